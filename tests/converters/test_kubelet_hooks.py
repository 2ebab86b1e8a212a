"""Tests of the example hooks that write a kubelet's configuration, each in a root directory of its
own. They check the files, their order, and a repetition after a kill between any two commands. ssh
is a shell on this machine, and the paths at the top of a hook are edited as a site would. Programs
that would change the machine are replaced by programs that record calls and files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from dnm.kubelet.render import render
from dnm.model.kubelet import KubeletSettings, ReservedMemory

HOOKS = Path(__file__).parents[2] / "etc" / "hooks"
SETTINGS = KubeletSettings(
    memory_manager_policy="Static",
    kube_reserved_memory="8500Mi",
    reserved_memory=(ReservedMemory(numa_node=0, amount="8600Mi"),),
)
# Each command that changes something counts down. At zero it ends the whole hook before its work,
# as a kill would.
STAND_IN = """\
#!/bin/sh
files=$(cd "$ROOT" && find . -type f | sort)
echo "{name} $* [$files]" | tr '\\n' ' ' >>"$CALLS"
echo >>"$CALLS"
left=$(cat "$ROOT.left")
echo $((left - 1)) >"$ROOT.left"
[ "$left" != 1 ] || kill -9 "-$(ps -o pgid= -p $$ | tr -d ' ')"
{work}
"""
WORK = {
    "ssh": 'for last; do :; done; exec sh -c "$last"',
    "kubectl": ":",
    "kubeadm": """\
case $* in
*token*) echo abcdef.0123456789abcdef ;;
reset*) rm -rf "$KUBELET"; mkdir "$KUBELET" ;;
*join*) cp "$4" "$ROOT.config"
    directory=$(sed -n 's/^patches: {directory: "\\(.*\\)"}$/\\1/p' "$4")
    [ -z "$directory" ] || cat "$directory"/*.yaml >"$ROOT.patch" ;;
esac""".replace('"$4"', '"$3"'),
    "openssl": "cat",
    "systemctl": ":",
    "crictl": 'cat "$ROOT.running"',
    "mv": 'exec /bin/mv "$@"',
    "rm": 'exec /bin/rm "$@"',
    "mkdir": 'exec /bin/mkdir "$@"',
    "sync": 'exec /bin/sync "$@"',
}


class Machine:
    """A root directory, and a copy of one hook that works in it."""

    def __init__(self, directory: Path, hook: str) -> None:
        self.root = directory / "root"
        self.kubelet = self.root / "kubelet"
        self.dropins = self.root / "conf.d"
        self.calls = directory / "calls"
        for path in (self.kubelet, self.root, directory / "bin"):
            path.mkdir(parents=True, exist_ok=True)
        for name in ("memory_manager_state", "cpu_manager_state"):
            (self.kubelet / name).write_text("{}")
        for name, work in WORK.items():
            path = directory / "bin" / name
            # Two openssl processes run in parallel, so they cannot count.
            is_counted = name != "openssl"
            path.write_text(STAND_IN.format(name=name, work=work) if is_counted else "exec cat\n")
            path.chmod(0o755)
        text = (HOOKS / hook / "join").read_text()
        for name, path in (
            ("kubelet", self.kubelet), ("dropins", self.dropins), ("work", self.root / "work")
        ):  # fmt: skip
            old = {
                "kubelet": "kubelet=/var/lib/kubelet\n",
                "dropins": "dropins=/etc/kubernetes/kubelet.conf.d\n",
                "work": "work=/run/dnm-join\n",
            }[name]
            text = text.replace(f"\n{old}", f"\n{name}={path}\n")
        assert "/var/lib/kubelet" not in text
        self.hook = directory / "join"
        self.hook.write_text(text)
        self.hook.chmod(0o755)
        self.file = directory / "g001.yaml"
        self.running = Path(f"{self.root}.running")
        self.running.write_text("")

    def call(self, text: str, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
        """Calls the hook once, with `text` as the kubelet's file. Command `kill_at` kills it."""
        self.file.write_text(text)
        self.calls.write_text("")
        Path(f"{self.root}.left").write_text(str(kill_at))
        environment = {
            "PATH": f"{self.hook.parent}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "ROOT": str(self.root),
            "CALLS": str(self.calls),
            "KUBELET": str(self.kubelet),
            "DNM_LABELS": "dev=true",
            "DNM_TAINTS": "",
        }
        if text:
            environment["DNM_KUBELET_CONFIG"] = str(self.file)
        return subprocess.run(
            [self.hook, "g001"], env=environment, capture_output=True, text=True, timeout=300,
            stdin=subprocess.DEVNULL, start_new_session=True, check=False,
        )  # fmt: skip

    def calls_made(self) -> list[str]:
        return self.calls.read_text().splitlines()

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def dropin(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "dropin")


@pytest.fixture
def kubeadm(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "kubeadm")


def test_drop_in_is_complete_before_the_kubelet_starts(dropin: Machine) -> None:
    done = dropin.call(render(SETTINGS))
    assert done.returncode == 0, done.stderr
    assert dropin.files() == {"conf.d/90-dnm.conf": render(SETTINGS)}
    assert os.stat(dropin.dropins / "90-dnm.conf").st_mode & 0o777 == 0o600
    names = [line.split(" [")[0].strip() for line in dropin.calls_made()]
    order = [
        names.index("systemctl stop kubelet"),
        next(n for n, line in enumerate(names) if line.startswith("sync") and ".new" in line),
        next(n for n, line in enumerate(names) if line.startswith("mv")),
        next(n for n, line in enumerate(names) if line.startswith("sync") and ".new" not in line),
        next(n for n, line in enumerate(names) if line.startswith("rm") and "_state" in line),
        names.index("systemctl restart kubelet"),
    ]
    assert order == sorted(order)
    last = dropin.calls_made()[-1]
    assert last.startswith("systemctl restart") and "_state" not in last


def test_type_without_settings_removes_the_previous_drop_in(dropin: Machine) -> None:
    assert dropin.call(render(SETTINGS)).returncode == 0
    assert dropin.call("").returncode == 0
    assert dropin.files() == {}


def test_node_with_running_containers_is_not_changed(dropin: Machine) -> None:
    assert dropin.call(render(SETTINGS)).returncode == 0
    (dropin.kubelet / "memory_manager_state").write_text("pinned")
    before = dropin.files()
    dropin.running.write_text("0123abcd\n")
    assert dropin.call(render(SETTINGS)).returncode == 0
    assert dropin.calls_made()[-1].startswith("systemctl start kubelet")
    assert dropin.files() == before
    other = dropin.call(render(SETTINGS).replace("8500Mi", "8400Mi"))
    assert other.returncode == 1
    assert "containers run here" in other.stdout
    assert not [line for line in dropin.calls_made() if line.startswith("systemctl")]
    assert dropin.files() == {**before, "conf.d/90-dnm.new": other_text()}


def other_text() -> str:
    return render(SETTINGS).replace("8500Mi", "8400Mi")


@pytest.mark.parametrize("hook", ["dropin", "kubeadm"])
def test_killed_and_repeated_hook_gives_the_same_files(tmp_path: Path, hook: str) -> None:
    full = Machine(tmp_path / "whole", hook)
    assert full.call(render(SETTINGS)).returncode == 0
    count = len(full.calls_made())
    kills = 0
    for kill_at in range(1, count + 1):
        machine = Machine(tmp_path / str(kill_at), hook)
        killed = machine.call(render(SETTINGS), kill_at)
        kills += killed.returncode != 0
        confs = list(machine.root.rglob("*.conf"))
        assert all(path.read_text() == render(SETTINGS) for path in confs), "a part of a file"
        assert machine.call(render(SETTINGS)).returncode == 0
        assert machine.files() == full.files(), kill_at
        assert patch_of(machine) == patch_of(full)
    assert kills == count


def patch_of(machine: Machine) -> str:
    path = Path(f"{machine.root}.patch")
    return path.read_text() if path.exists() else ""


def test_kubeadm_joins_with_the_settings_as_a_patch(kubeadm: Machine) -> None:
    done = kubeadm.call(render(SETTINGS))
    assert done.returncode == 0, done.stderr
    assert patch_of(kubeadm) == render(SETTINGS)
    config = yaml.safe_load(Path(f"{kubeadm.root}.config").read_text())
    assert config["patches"] == {"directory": f"{kubeadm.root}/work/patches"}
    assert config["nodeRegistration"]["name"] == "g001"
    assert kubeadm.files() == {}, "a token is left"
    joined = kubeadm.calls_made()
    (at,) = [number for number, line in enumerate(joined) if line.startswith("kubeadm join")]
    assert "patches/kubeletconfiguration+merge.yaml" in joined[at]
    assert "_state" not in joined[at].split("[")[1]


def test_kubeadm_joins_without_a_patch_if_the_type_has_no_settings(kubeadm: Machine) -> None:
    assert kubeadm.call("").returncode == 0
    assert "patches" not in Path(f"{kubeadm.root}.config").read_text()
    assert patch_of(kubeadm) == ""
