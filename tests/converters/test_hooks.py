"""Tests of hooks as real processes: environment, secrets, time-outs with children, and hooks that
outlive their converter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from dnm.converter.processes import process_of
from dnm.converters.hooks import (
    HookCall,
    HookFailed,
    check_kubelets,
    find_hook,
    hook_environment,
    kubelet_facts,
    outlive,
)
from dnm.converters.journal import Direction, Journal
from dnm.converters.settings import Settings, load_settings
from dnm.model.blackout import Secrets
from dnm.model.errors import ConverterError
from dnm.model.lent_state import ConverterProcess
from tests.converters.played import a_journal
from tests.processes import wait_until

Script = Callable[[str], Path]
SOON = timedelta(seconds=10)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(text: str) -> Path:
        path = tmp_path / "hook"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


def call(path: Path, *secrets: str, timeout: timedelta = SOON, **environ: str) -> list[str]:
    lines: list[str] = []
    hook = HookCall(
        [str(path), "a001"],
        {"PATH": os.environ["PATH"], **environ},
        Secrets(secrets),
        lines.append,
    )
    hook.let_go()
    hook.wait(timeout, lambda: False)
    return lines


def test_passes_on_hook_output_line_by_line(script: Script) -> None:
    lines = call(script("echo one $1; printf 'two\\033[1m\\n' >&2; printf three; cat"))
    assert lines == ["one a001", "two?[1m", "three"]


def test_hook_failure_contains_the_last_lines(script: Script) -> None:
    with pytest.raises(HookFailed, match=r"failed \(exit 3\): b / c / d"):
        call(script("for x in a b c d; do echo $x; done; exit 3"))


def test_secret_is_redacted_from_hook_output(script: Script) -> None:
    path = script('echo "the password is $PASSWORD, $PASSWORD!"; exit 1')
    with pytest.raises(HookFailed) as failed:
        call(path, "s3cr3t", PASSWORD="s3cr3t")
    assert "s3cr3t" not in str(failed.value) and "***, ***!" in str(failed.value)


def test_hook_ends_with_its_children_after_its_time_out(script: Script, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = script(f"sleep 60 & echo $! >'{pids}'; echo $$ >>'{pids}'; wait")
    with pytest.raises(HookFailed, match=r"did not end within 0\.3 s and was ended"):
        call(path, timeout=timedelta(seconds=0.3))
    numbers = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(map(process_of, numbers)))


def test_does_not_wait_for_background_children(script: Script, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert call(script(f"sleep 3600 & echo $! >'{pid}'; echo done")) == ["done"]
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_endless_hook_lines_use_bounded_memory(script: Script) -> None:
    lines = call(script("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"))
    assert lines[-1] == "end" and max(map(len, lines)) <= 4096


def test_hook_starts_only_after_its_process_is_recorded(script: Script, tmp_path: Path) -> None:
    """The hook waits until the journal has its process; if the converter dies before, it ends."""
    path = script(f"echo begun >'{tmp_path}/begun'")
    starter = subprocess.Popen(
        [sys.executable, "-c",
         "import sys, time; from dnm.converters.hooks import HookCall\n"
         "from dnm.model.blackout import Secrets\n"
         "hook = HookCall([sys.argv[1], 'a001'], {}, Secrets(), print)\n"
         "print(hook.process.pid, flush=True); time.sleep(60)", str(path)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert starter.stdout is not None
    waiting = int(starter.stdout.readline())
    starter.kill()
    starter.wait()
    wait_until(lambda: process_of(waiting) is None)
    assert not (tmp_path / "begun").exists()


def test_hook_of_an_earlier_call_is_awaited_and_ended() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    process = process_of(child.pid)
    assert process is not None
    lines: list[str] = []
    outlive(process, timedelta(seconds=0.1), lines.append)
    assert child.wait(300) == -signal.SIGTERM and "earlier call" in lines[0]
    outlive(ConverterProcess(pid=os.getpid(), start_ticks=1), SOON, lines.append)  # another process
    assert len(lines) == 1


def test_hook_gets_only_its_own_environment() -> None:
    environ = {"PATH": "/x", "HOME": "/root", "LD_PRELOAD": "evil", "PASSWORD": "p", "OTHER": "o",
               "SLURM_CONF": "/s", "KUBECONFIG": "/k"}  # fmt: skip
    settings = hook_environment(Settings(), {"DNM_NODE": "a001"}, environ)
    assert settings == {
        "PATH": "/x:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root", "LC_ALL": "C", "DNM_INSTANCE": "prod", "NODE_SEARCH_DOMAIN": "",
        "DNM_NODE": "a001", "SLURM_CONF": "/s", "KUBECONFIG": "/k", "PASSWORD": "p",
    }  # fmt: skip
    mine = Settings(kubeconfig_path=Path("/mine"), config_path=Path("/c"), pass_environment=())
    settings = hook_environment(mine, {}, environ)
    assert (settings["KUBECONFIG"], settings["DNM_CONFIG"]) == ("/mine", "/c")
    assert "PASSWORD" not in settings


def test_hook_is_searched_as_an_executable_file(tmp_path: Path) -> None:
    settings = Settings(hooks_dir=tmp_path)
    assert find_hook(settings, "join") is None
    hook = tmp_path / "join"
    hook.write_text("#!/bin/sh\n")
    with pytest.raises(ConverterError, match=r"not executable: run 'chmod \+x"):
        find_hook(settings, "join")
    hook.chmod(0o757)
    with pytest.raises(ConverterError, match="chmod go-w"):
        find_hook(settings, "join")
    hook.chmod(0o755)
    assert find_hook(settings, "join") == hook
    (tmp_path / "reset").mkdir()
    with pytest.raises(ConverterError, match="not executable"):
        find_hook(settings, "reset")
    (tmp_path / "health").symlink_to("/not/mounted")  # a missing hook would count as "healthy"
    with pytest.raises(ConverterError, match="behind a broken link"):
        find_hook(settings, "health")
    (tmp_path / "shared").symlink_to("/not/mounted")
    with pytest.raises(ConverterError, match="behind a broken link"):
        find_hook(Settings(hooks_dir=tmp_path / "shared"), "health")


# --- the kubelet's file ----------------------------------------------------------------------

KUBELETS = """\
[settings]
state_dir = {directory}/state
[node_type:g]
kube_reserved = memory=1Gi
[node_type:a]
[node_type:w]
memory_manager_policy = Static
"""


def kubelet_settings_of(directory: Path) -> Settings:
    path = directory / "dnm.ini"
    path.write_text(KUBELETS.format(directory=directory))
    path.chmod(0o644)
    (directory / "state" / "node-convert").mkdir(parents=True, mode=0o700)
    return load_settings({}, {}, path)


def journal_of(node: str, direction: Direction = Direction.K8S) -> Journal:
    return a_journal(node, direction=direction, node_type=node[0], namespace="dev")


def test_only_prepare_and_join_get_the_kubelet_file(tmp_path: Path) -> None:
    settings = kubelet_settings_of(tmp_path)
    for hook in ("prepare", "join"):
        facts = kubelet_facts(settings, journal_of("g001"), hook)
        path = Path(facts["DNM_KUBELET_CONFIG"])
        assert path.read_text() == (
            'apiVersion: "kubelet.config.k8s.io/v1beta1"\nkind: "KubeletConfiguration"\n'
            'kubeReserved:\n  memory: "1Gi"\n'
        )
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.is_relative_to(tmp_path / "state" / "node-convert")
    assert not list(path.parent.glob("*.new"))
    for hook in ("reach", "ready"):
        assert kubelet_facts(settings, journal_of("g001"), hook) == {}
    assert kubelet_facts(settings, journal_of("g001", Direction.BATCH), "prepare") == {}
    assert kubelet_facts(settings, journal_of("a001"), "join") == {}


def test_type_with_fatal_kubelet_settings_is_not_converted(tmp_path: Path) -> None:
    settings = kubelet_settings_of(tmp_path)
    check_kubelets(settings, "g")
    check_kubelets(settings, "a")
    with pytest.raises(ConverterError, match="no node of this type is converted until"):
        check_kubelets(settings, "w")


def test_unwritable_kubelet_file_is_reported(tmp_path: Path) -> None:
    settings = kubelet_settings_of(tmp_path)
    (tmp_path / "state" / "node-convert" / "kubelet").write_text("in the way")
    with pytest.raises(ConverterError, match=r"the kubelet's file .* can't be written"):
        kubelet_facts(settings, journal_of("g001"), "join")
