"""Tests of `dnm convert-test` on a real Slurm, with the sample hooks. A folder plays the machine:
files in it are what a kubelet leaves behind, and a power cycle removes running processes only."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from dnm.converters.convert_test import THINGS, judge_rests, parse_reports
from tests.night import by_night, sample_by_day
from tests.processes import Child, warm_processes
from tests.slurm_lab import REPOSITORY, SlurmSite, needs_slurm

SAMPLES = REPOSITORY / "etc" / "hooks"
WHY = "RMA 4711: fan, see ticket"
# On the machine; its folder is $M.
PROGRAMS = {
    "ssh": 'while [ "${1#root@}" = "$1" ]; do shift; done; shift; exec sh -c "$*"',
    "ip": "cat $M/links",
    "iptables-save": "cat $M/rules",
    **dict.fromkeys(("ip6tables-save", "iptables-legacy-save", "nft", "systemctl", "kubeadm"), ":"),
    "crictl": 'rm -rf "$M/sandboxes/"* $M/shims',
    "pgrep": "cat $M/shims 2>/dev/null",
    "nvidia-smi": "case $* in -L) cat $M/gpus;; --query*) echo 0, Enabled;; "
    "*0) echo GPU 0 >$M/gpus;; esac",
    "ipmitool": "case $* in *status) echo Chassis Power is off;; *off) rm -rf $M/cgroup/* $M/shims;"
    " for one in links rules proc/mounts proc/net/ip_vs; do : >$M/$one; done;; esac",
}  # fmt: skip
KUBELET = """\
mkdir -p $M/kubelet/pki $M/kubernetes $M/cni $M/sandboxes/4711 $M/cgroup/cpu/kubepods.slice
echo '{}' | tee $M/kubelet/cpu_manager_state $M/kubelet/memory_manager_state
echo '{}' >$M/kubelet/pki/kubelet.crt
echo '{}' | tee $M/cni/10-calico.conflist >$M/kubernetes/kubelet.conf
echo '7: cali4711@if3: <UP>' >$M/links
echo ':KUBE-SERVICES - [0:0]' >$M/rules
printf '%s\\n' version flags addresses 'TCP  0A600001:01BB rr' >$M/proc/net/ip_vs
echo "tmpfs $M/kubelet/pods/x/volumes tmpfs rw 0 0" >$M/proc/mounts
echo '4711 containerd-shim' >$M/shims
echo '  MIG 1g.5gb Device 0: (UUID: MIG-x)' >>$M/gpus
"""
LEFTOVERS = {
    "cpu_manager_state": "kubelet/cpu_manager_state",
    "memory_manager_state": "kubelet/memory_manager_state",
    "cni_state": "cni/10-calico.conflist",
    "cni_interfaces": "cali4711",
    "packet_rules": "iptables-save: :KUBE-SERVICES",
    "mounts": "kubelet/pods/x/volumes",
    "cgroups": "cgroup/cpu/kubepods.slice",
    "mig": "MIG 1g.5gb",
    "containers": "sandboxes/4711",
    "certificates": "kubelet/pki/kubelet.crt",
}


class TestSite:
    """A site with the machine a001, which a folder plays. It is drained in Slurm, and its kubelet
    leaves files and mounts behind."""

    __test__ = False

    def __init__(self, site: SlurmSite, directory: Path) -> None:
        self.site, self.machine = site, directory / "machine"
        self.bin = directory / "bin"
        for folder in (self.bin, self.machine / "proc" / "net", self.machine / "cgroup"):
            folder.mkdir(parents=True)
        for name in ("links", "rules", "proc/mounts", "proc/net/ip_vs"):
            (self.machine / name).touch()
        (self.machine / "gpus").write_text("GPU 0\n")
        for name, text in PROGRAMS.items():
            self.write(self.bin / name, text)
        self.sample("common", "leftovers")
        self.append("join", KUBELET)
        self.drain()

    def drain(self, node: str = "a001") -> None:
        self.site.lab.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={WHY}")
        self.site.lab.wait_for(
            lambda: self.site.lab.client.read_node(node).state.text == "IDLE+DRAIN"
        )

    def write(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\nM={self.machine}\n{text}\n")
        path.chmod(0o755)

    def append(self, hook: str, text: str) -> None:
        path = self.site.hooks / hook
        path.write_text(f"{path.read_text()}M={self.machine}\n{text}\n")

    def sample(self, kind: str, name: str) -> None:
        """Copies a sample hook and edits the settings at its top, as a site does."""
        text = (SAMPLES / kind / name).read_text()
        for key, value in (
            ("kubelet", "kubelet"), ("kubernetes", "kubernetes"), ("cni", "cni"),
            ("sandboxes", "sandboxes"), ("cgroups", "cgroup"), ("proc", "proc"),
        ):  # fmt: skip
            text = re.sub(rf"^{key}=.*", f"{key}={self.machine}/{value}", text, flags=re.M)
        path = self.site.hooks / name
        path.write_text(text)
        path.chmod(0o755)

    def use_samples(self) -> None:
        for kind, name in (("kubeadm", "leave"), ("common", "clear")):
            self.sample(kind, name)
        lab_reset = (self.site.hooks / "reset").rename(self.site.hooks / "boot-lab")
        self.sample("ipmi", "reset")
        reset = self.site.hooks / "reset"
        cycles = reset.rename(self.site.hooks / "cycle")
        self.write(reset, f'{cycles} "$1" && {lab_reset} "$1"')

    def start(self, *words: str) -> Child:
        path = f"{self.bin}:{self.site.lab.environ['PATH']}"
        job = {"arguments": ("convert-test", *words), "directory": str(REPOSITORY)}
        (child,) = warm_processes().start({**job, "environment": {
            **self.site.lab.environ, "PATH": path, "DNM_CONFIG": str(self.site.config),
            "PASSWORD": "secret", "PYTHONPATH": str(REPOSITORY),
        }})  # fmt: skip
        return child

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, *self.start(*words).wait())

    def assert_as_before(self, node: str = "a001") -> None:
        """Asserts that the administrator's drain is back, and nothing of dnm's is left."""
        slurm_node = self.site.lab.client.read_node(node)
        assert slurm_node.state.base in ("IDLE", "DOWN") and "DRAIN" in slurm_node.state.flags, (
            slurm_node.state
        )
        assert (slurm_node.reason, slurm_node.comment) == (WHY, "")
        assert not any(
            node in reservation.nodes for reservation in self.site.lab.client.read_reservations()
        )
        assert self.site.sandbox.get("nodes", node) is None


@pytest.fixture
def tested(site: SlurmSite, tmp_path: Path) -> TestSite:
    return TestSite(site, tmp_path)


pytestmark = needs_slurm

OUTPUT = {
    "nothing": (dict.fromkeys(THINGS, "none"), {}, set()),
    "the same layout": ({"mig": "now a"}, {"mig": "now a"}, set()),
    "another layout": ({"mig": "now a"}, {"mig": "now b"}, {("mig", "b, was a", "clear")}),
    "no layout any more": ({"mig": "now a"}, {"mig": "none"}, {("mig", "nothing, was a", "clear")}),
    "the site's own": ({}, {"gpfs": "left /x y"}, {("gpfs", "/x y", "clear")}),
    "before and after": ({"mounts": "left /x"}, {"mounts": "left /x"}, {("mounts", "/x", "reset")}),
    "no reason": ({}, {"cgroups": "unknown"}, {("cgroups", "the hook can't determine it", "")}),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTPUT)
def test_judges_reports_of_the_hook(case: str) -> None:
    before, after, left = OUTPUT[case]
    none = dict.fromkeys(THINGS, "none")
    mappings = [
        parse_reports(
            ["Warning: host added", *(f"{key} {text}" for key, text in {**none, **entry}.items())]
        )
        for entry in (before, after)
    ]
    assert {
        (judge_rest.thing, judge_rest.text, judge_rest.hook)
        for judge_rest in judge_rests(*mappings)
    } == left


@pytest.mark.parametrize("rounds", by_night(2, 10))
def test_reports_each_leftover_with_its_hook(tested: TestSite, rounds: int) -> None:
    done = tested.run("a001", "--rounds", str(rounds))
    assert done.returncode == 1, done
    played = re.split(r"^Round \d+ of \d+: a001\n", done.stdout, flags=re.M)[1:]
    assert len(played) == rounds
    for text in played:
        for thing, subject in LEFTOVERS.items():
            (row,) = [line for line in text.splitlines() if line.split()[:1] == [thing]][:1]
            assert subject in row and row.endswith(THINGS[thing]), row
        stages = re.findall(r"^  (\S+) +\d+\.\d  ok$", text, flags=re.M)
        assert {"join", "reset", "boot", "leftovers", "return"} <= set(stages)
    assert f"{rounds} of {rounds} rounds succeeded" in done.stdout
    assert "not known whether left over: nothing" in done.stdout
    tested.assert_as_before()


@pytest.mark.parametrize("rounds", by_night(1, 10))
def test_sample_hooks_leave_nothing_over(tested: TestSite, rounds: int) -> None:
    """The test begins with a node that is DOWN; each round of it leaves nothing on the machine."""
    tested.use_samples()
    tested.site.lab.run("scontrol", "update", "nodename=a001", "state=down", f"reason={WHY}")
    done = tested.run("a001", "--rounds", str(rounds))
    assert done.returncode == 0, done
    assert done.stdout.count("nothing is left over") == rounds
    assert len(tested.site.hook_calls) == 3 * rounds, tested.site.hook_calls
    tested.assert_as_before()


UNSURE = {
    "the hook fails": "echo ssh: no route; exit 255",
    "it says nothing": "exit 0",
    "it can't look at one": "".join(
        f"echo {thing} {'unknown no such program' if thing == 'mounts' else 'none'}\n"
        for thing in THINGS
    ),
    "it prints without an end": "yes mounts none | head -n 5000",
}


@pytest.mark.parametrize("case", sample_by_day(4, UNSURE))
def test_unchecked_thing_is_unknown_not_clean(tested: TestSite, case: str) -> None:
    again = f"[ -e $M/looked ] || {{ touch $M/looked; exit 0; }}\n{UNSURE[case]}"
    tested.write(tested.site.hooks / "leftovers", again)
    done = tested.run("a001")
    assert done.returncode == 1 and "1 of 1 round succeeded" in done.stdout
    output = done.stdout.partition("not known whether left over: ")[2]
    unsure = {"mounts"} if "one" in case else set(THINGS)
    assert set(re.findall(r"\w+", output)) == unsure and "left over: nothing" in done.stdout
    tested.assert_as_before()


def test_refuses_nodes_in_service_or_in_use(tested: TestSite) -> None:
    lab, site = tested.site.lab, tested.site
    job = lab.submit("-w", "a002", "-n1", "--mem=100")
    lab.wait_for(lambda: lab.client.read_job(job).state == "RUNNING")
    lab.run("scontrol", "update", "nodename=a002", "state=drain", f"reason={WHY}")
    assert site.run("--set", "k8s", "--node-name", "a003").returncode == 0
    lab.run("scontrol", "update", "nodename=a004", "state=drain", "reason=dnm:other x op=1")
    lab.run("scontrol", "update", "nodename=a005", "state=down", f"reason={WHY}")
    before, calls = {node.name: node for node in lab.read_nodes()}, site.hook_calls
    for node, message in {
        "a002": "a002 is in Slurm's service (MIXED+DRAIN, 1 job(s)): only a node out of service",
        "a003": "a003 is lent or claimed by 'test': nothing is done to it; 'node-convert --set",
        "a004": "a004 is lent or claimed by 'other': nothing is done to it",
        "a005": f"a005 is DOWN {WHY}: only a node that is drained with a reason, answers",
        "a006": "a006 is in Slurm's service (IDLE, 0 job(s)): only",
        "../x": "Slurm knows no node ../x",
    }.items():
        done = tested.run(node)
        assert (done.returncode, done.stdout) == (1, "") and message in done.stderr, done
        assert len(done.stderr.splitlines()) == 1
    (site.hooks / "leftovers").unlink()
    done = tested.run("a001")
    missing = "is missing: node-convert needs it"
    assert (done.returncode, done.stdout) == (1, "") and missing in done.stderr
    tested.assert_as_before()
    after = {node.name: node for node in lab.read_nodes()}
    assert {name: after[name].reason for name in after} == {
        name: before[name].reason for name in before
    }
    assert site.hook_calls == calls


ENDS = [(sent, hook) for hook in ("join", "reset") for sent in (signal.SIGINT, signal.SIGKILL)]


@pytest.mark.parametrize(("sent", "hook"), sample_by_day(2, ENDS))
def test_ended_test_restores_the_previous_drain(
    tested: TestSite, sent: signal.Signals, hook: str
) -> None:
    tested.append(hook, "touch $M/there; while [ ! -e $M/go ]; do sleep 0.1; done; sleep 0.5")
    process, site = tested.start("a001"), tested.site
    site.lab.wait_for((tested.machine / "there").exists)
    process.send(sent)
    if sent == signal.SIGKILL:
        assert process.wait().was_killed
    (tested.machine / "go").touch()
    if sent == signal.SIGINT:
        done = process.wait()
        assert done.code == 1
        output = "stopped by a signal: the next run of dnm continues, or 'node-convert --set batch"
        assert output in done.out
    rows = json.loads(site.run("--list", "--output", "json", "--node-name", "a001").stdout)
    assert rows["nodes"][0]["claim"]["direction"] == "batch"
    again = tested.run("a001")
    assert again.returncode == 1 and "a001 is lent or claimed by 'test'" in again.stderr
    lent = site.run("--set", "k8s", "--node-name", "a001")
    assert lent.returncode == 1 and re.search("is being returned|lent or being lent", lent.stderr)
    back = site.run("--set", "batch", "--node-name", "a001")
    assert back.returncode == 0, back.stderr
    tested.assert_as_before()
