"""Tests of the lock file: dnm closes an old one to other users, and names the holder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from dnm.checks.findings import CheckResult
from dnm.checks.host import check_converter, check_lock
from dnm.host.faults import inject_faults
from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.model.registry import Registry
from dnm.run.health import judge_health
from dnm.run.lock import run_lock
from dnm.run.lock_holder import find_lock_holder
from tests.builders import NOW, a_config

NOBODY = 65534
HOLD = """import fcntl, os, sys
os.setuid(int(sys.argv[1]))
fcntl.flock(2, fcntl.LOCK_EX)
print(flush=True)
input()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Builds a configuration with a lock file that every user can open."""
    tmp_path.chmod(0o755)
    config = a_config(tmp_path)
    config.lock_path.touch()
    config.lock_path.chmod(0o644)
    return config


@contextmanager
def held(path: Path, user: int = os.geteuid()) -> Iterator[int]:
    """Starts a process that opens the file for reading and holds the lock. Yields its id."""
    command, pipe = [sys.executable, "-c", HOLD, str(user)], subprocess.PIPE
    with (
        open(path, "rb") as lock,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=lock) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.communicate(b"\n")


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o600, 0o400])
def test_lock_file_is_closed_to_other_users_whatever_its_mode_was(
    config: Config, mode: int
) -> None:
    config.lock_path.chmod(mode)
    with run_lock(config):
        assert mode_of(config.lock_path) == 0o600


@needs_root
def test_lock_file_of_another_owner_is_accepted(config: Config) -> None:
    os.chown(config.lock_path, NOBODY, -1)
    with run_lock(config):
        assert config.lock_path.stat().st_uid == 0


def test_lock_path_that_is_no_file_is_refused(config: Config) -> None:
    config.lock_path.unlink()
    config.lock_path.symlink_to("elsewhere")
    with pytest.raises(RegistryError, match="not a regular file: run 'rm "), run_lock(config):
        pass


REMEDIES = {
    "denied": (PermissionError(errno.EACCES, "Permission denied"), "run dnm as the owner of "),
    "missing": (FileNotFoundError(errno.ENOENT, "No such file"), "create the state directory "),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_lock_error_names_a_matching_remedy(config: Config, name: str) -> None:
    error, remedy = REMEDIES[name]

    def strike(point: str, when: str) -> None:
        if point == "lock.acquire":
            raise error

    message = f"can't be taken .{error.strerror}.: {remedy}{config.lock_path.parent}"
    with inject_faults(strike), pytest.raises(RegistryError, match=message), run_lock(config):
        pass


@needs_root
@pytest.mark.parametrize(("mode", "remedy"), [(0o700, "run dnm as its owner"), (0o600, "chmod +x")])
def test_converter_executable_by_its_owner_only_is_reported_as_such(
    config: Config, mode: int, remedy: str
) -> None:
    converter = config.state_dir / "converter"
    converter.touch()
    converter.chmod(mode)
    os.setresuid(NOBODY, 0, 0)
    try:
        finding = next(check_converter(replace(config, node_convert_path=converter), {}))
    finally:
        os.setresuid(0, 0, 0)
    assert finding.result is CheckResult.FAILED and finding.remedy.startswith(remedy)
    assert finding.text == f"{converter} is not executable by user id {NOBODY}"


def test_lock_holder_is_reported_with_its_time(config: Config) -> None:
    assert find_lock_holder(config.lock_path) is None
    with held(config.lock_path) as pid:
        lock_holder = find_lock_holder(config.lock_path)
        assert lock_holder is not None and lock_holder.pid == pid and not lock_holder.is_foreign
        assert lock_holder.text.startswith(f"process {pid} of ") and " UTC" in lock_holder.text
        with (
            pytest.raises(LockedError, match=f"converted_nodes.lock: process {pid} "),
            run_lock(config),
        ):
            pass
        (finding,) = check_lock(config)
        assert finding.result is CheckResult.OK and f"process {pid} " in finding.text
        assert f"process {pid} " in judge_health(config, Registry(), NOW)[1]


@needs_root
def test_lock_held_by_another_user_is_reported_as_a_problem(config: Config) -> None:
    with held(config.lock_path, NOBODY) as pid:
        waits: list[int] = []
        for on_wait in (None, lambda: waits.append(1)):
            with pytest.raises(RegistryError, match=f"kill {pid}"), run_lock(config, on_wait):
                pass
        assert not waits and mode_of(config.lock_path) == 0o600
        (finding,) = check_lock(config)
        assert finding.result is CheckResult.FAILED and "of nobody" in finding.text
        word, why, exit_code = judge_health(config, Registry(), NOW)
        assert (word, exit_code) == ("person", 2) and "of nobody" in why


def test_check_warns_of_a_lock_file_open_to_other_users(config: Config) -> None:
    (finding,) = check_lock(config)
    assert finding.result is CheckResult.WARNING
    assert finding.remedy == f"run 'chmod 600 {config.lock_path}'"
    with run_lock(config):
        pass
    assert list(check_lock(config)) == []
