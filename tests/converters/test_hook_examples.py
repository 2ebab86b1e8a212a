"""Tests of the example hooks in etc/: shell-checked, and run with replacements of ssh, ipmitool and
others that record their calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dnm.converters import to_batch, to_k8s
from dnm.converters.convert_test import HOOK, THINGS, parse_reports
from tests.real_slurm_hooks import write_lab_hooks

HOOKS = Path(__file__).parents[2] / "etc" / "hooks"
EXAMPLES = sorted(path for path in HOOKS.glob("*/*"))
NAMES = {*to_k8s.HOOKS, *to_batch.HOOKS, HOOK}
SECRET = 'pa"ss\\w0rd'

# Answers of the programs that the hooks call. Any other program only records its call.
ANSWERS = {
    "ipmitool": "case $* in *status) echo 'Chassis Power is off';; esac",
    "rpower": '[ $2 != stat ] || echo "$1: off"',
    "curl": 'cat >>"$CALLS.stdin"; echo \'{"PowerState": "Off"}\'',
    "ssh": 'cat >>"$CALLS.stdin"',
    "kubectl": "case $* in *gpu*) echo 4;; esac",
    "kubeadm": "echo abcdef.0123456789abcdef",
    "openssl": "cat",
    "nodeset": ":",
    "rsetboot": ":",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, answer in ANSWERS.items():
        path = directory / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\n{answer}\n')
        path.chmod(0o755)
    return directory


def test_each_hook_has_an_example() -> None:
    assert {path.name for path in EXAMPLES} == NAMES
    text = (HOOKS / "README.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+)` \|", text, re.M)) == NAMES


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="'make test' installs shellcheck")
def test_example_hooks_pass_shellcheck(tmp_path: Path) -> None:
    """The hooks that the lab writes for a demo or a test are checked too."""
    write_lab_hooks(tmp_path, tmp_path / "slurm", "http://127.0.0.1:1", {"cpu": "8"})
    lab = [path for path in tmp_path.iterdir() if os.access(path, os.X_OK)]
    answer = subprocess.run(
        ["shellcheck", *map(str, [*EXAMPLES, *lab])], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("hook", EXAMPLES, ids=[f"{p.parent.name}-{p.name}" for p in EXAMPLES])
def test_example_hook_does_its_work_and_hides_the_secret(
    hook: Path, programs: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "CALLS": str(calls),
        "PASSWORD": SECRET,
        "DNM_NODE": "a001",
        "DNM_NODE_TYPE": "g",
        "DNM_NAMESPACE": "dev",
        "DNM_LABELS": "dev=true,example.org/pool=a",
        "DNM_TAINTS": "dev=true:NoSchedule,gpu:NoExecute",
        "NODE_SEARCH_DOMAIN": "example.org",
    }
    assert os.access(hook, os.X_OK)
    answer = subprocess.run(
        [hook, "a001"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert calls.read_text(), "it called nothing"
    assert SECRET not in calls.read_text() + answer.stdout + answer.stderr
    if hook.parent.name == "redfish":
        settings = Path(f"{calls}.stdin").read_text()
        assert 'user = "root:pa\\"ss\\\\w0rd"' in settings
    if hook.parent.name == "kubeadm" and hook.name == "join":
        settings = Path(f"{calls}.stdin").read_text()
        assert 'node-labels: "dev=true,example.org/pool=a"' in settings
        assert (
            'taints: [{key: "dev", value: "true", effect: "NoSchedule"},'
            '{key: "gpu", value: "", effect: "NoExecute"}]' in settings
        )


def test_reset_of_a_switched_off_machine_switches_it_on(tmp_path: Path) -> None:
    """Some BMCs refuse to power-cycle a machine that is off, so the hook switches it on."""
    refuses = "*off) echo 'Command not supported in present state' >&2; exit 1;;"
    answer = f"case $* in *status) echo 'Chassis Power is off';; {refuses} esac"
    done, calls = played_on_node(HOOKS / "ipmi" / "reset", tmp_path, ipmitool=answer)
    assert done.returncode == 0, done.stderr
    assert calls[-1].endswith("chassis power on")


# --- what is done on the node, by an ssh that gives its words to a shell as sshd does -------------

ON_THE_NODE = {
    "ssh": 'while [ "${1#root@}" = "$1" ]; do shift; done; shift; exec sh -c "$*"',
    "pgrep": "exit 1",
    "mountpoint": "[ $2 != /depot ]",
    "umount": "[ ! -e $CALLS.busy ]",
    "fuser": "echo /home: a001 4711",
    **dict.fromkeys(("systemctl", "mmumount", "mmshutdown", "swapoff", "nft"), ":"),
    "apply-role": "cat >/dev/null; exit 2",  # it reads all its input
    "k8s-register": 'echo "$NAMESPACE|$LABELS|$TAINTS" >>"$CALLS"',
}


def played_on_node(
    hook: Path, tmp_path: Path, **more: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    for name, answer in {**ON_THE_NODE, **more}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\n{answer}\n')
        (tmp_path / name).chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(calls), "DNM_NAMESPACE": "dev",
        "DNM_LABELS": "dev=true,example.org/pool=a", "DNM_TAINTS": "",
    }  # fmt: skip
    done = subprocess.run(
        ["sh", str(hook), "a001"], env=environment, capture_output=True, text=True, check=False,
        timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done, [line for line in calls.read_text().splitlines() if not line.startswith("ssh")]


def test_prepare_stops_and_unmounts_each_configured_thing(tmp_path: Path) -> None:
    """A list of several words reaches the node whole, although ssh joins its arguments."""
    done, calls = played_on_node(HOOKS / "common" / "prepare", tmp_path)
    assert done.returncode == 0, done
    stopped = [line.split()[2] for line in calls if line.startswith("systemctl stop")]
    assert stopped == ["slurmd", "munge", "telegraf", "node_exporter"]
    assert [line for line in calls if "mount " in line and "mountpoint" not in line] == [
        "umount /home", "mmumount /scratch"
    ]  # fmt: skip
    assert calls[-2:] == ["mmshutdown ", "swapoff -a"]


def test_prepare_stops_at_a_busy_file_system(tmp_path: Path) -> None:
    (tmp_path / "calls.busy").touch()
    done, calls = played_on_node(HOOKS / "common" / "prepare", tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["/home: a001 4711", "/home is still in use"]
    assert not [line for line in calls if line.startswith("mm")]


def test_health_checks_every_mount(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    text = (HOOKS / "common" / "health").read_text()
    hook.write_text(text.replace('"/home /scratch"', '"/home /depot"'))
    done, _ = played_on_node(hook, tmp_path)
    assert (done.returncode, done.stdout) == (1, "/depot is not mounted\n")


def test_leftovers_reports_each_thing(
    tmp_path: Path,
) -> None:
    hook = tmp_path / "hook"
    text = (HOOKS / "common" / "leftovers").read_text()
    hook.write_text(re.sub(r"^(\w+)=(/|\"/).*", rf"\1={tmp_path}/nowhere", text, flags=re.M))
    more = dict.fromkeys(("ip", "iptables-save", "nvidia-smi"), "echo no; exit 1")
    done, _ = played_on_node(hook, tmp_path, **more)
    document = parse_reports(done.stdout.splitlines())
    unseen = {"cni_interfaces", "packet_rules", "mounts", "cgroups", "mig"}
    assert done.returncode == 0 and set(document) == set(THINGS), done
    assert {
        thing for thing, of in document.items() if {word for word, _ in of} == {"unknown"}
    } == unseen


def test_leftovers_reports_a_changing_folder(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    text = (HOOKS / "common" / "leftovers").read_text()
    hook.write_text(re.sub(r"^(kube\w+)=.*", rf"\1={tmp_path}", text, flags=re.M))
    (tmp_path / "pki").mkdir()
    find = '/usr/bin/find "$@"; echo "find: $1/gone: No such file or directory" >&2; exit 1'
    done, _ = played_on_node(hook, tmp_path, find=find)
    ((word, _),) = parse_reports(done.stdout.splitlines())["certificates"]
    assert word == "unknown", done
    (tmp_path / "pki").rmdir()
    done, _ = played_on_node(hook, tmp_path)
    ((word, _),) = parse_reports(done.stdout.splitlines())["certificates"]
    assert word == "none", done


def test_masterless_site_changes_only_the_top_lines(tmp_path: Path) -> None:
    """A site without a Puppet server edits only the settings at the top of the hook. Exit code 2 of
    its script means that it changed something."""
    text = (HOOKS / "puppet" / "join").read_text()
    top, script = text.split("\nexec ssh", 1)
    role = tmp_path / "etc" / "role"
    for old, new in (
        (r"^apply=.*", f"apply={tmp_path}/apply-role"),
        (r"^file=.*", f"file={role}"),
        (r"^line=.*", "line=$role"),
        (r"^firewall=.*", 'firewall="nft -f /etc/nftables.conf"'),
        (r"^register=.*", f"register={tmp_path}/k8s-register"),
    ):
        top = re.sub(old, new, top, flags=re.M)
    (tmp_path / "join").write_text(f"{top}\nexec ssh{script}")
    done, calls = played_on_node(tmp_path / "join", tmp_path)
    assert done.returncode == 0, done
    assert role.read_text() == "kubernetes_node\n"
    assert calls == [
        "apply-role ", "nft -f /etc/nftables.conf", "systemctl start containerd", "k8s-register ",
        "dev|dev=true,example.org/pool=a|", "systemctl is-active --quiet kubelet",
    ]  # fmt: skip
