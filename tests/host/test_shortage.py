"""Tests that commands without enough files or memory end with a message; the next run continues."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from dnm.host.shortage import describe_shortage
from dnm.host.trust import read_regular
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ExitCode
from tests.site import a_workshop_site


def test_shortage_is_recognized_in_an_error_or_its_cause() -> None:
    assert "too many open files" in describe_shortage(OSError(errno.EMFILE, "x"))
    assert "fs.file-max" in describe_shortage(OSError(errno.ENFILE, "x"))
    assert "too little memory" in describe_shortage(MemoryError())
    assert "too little memory" in describe_shortage(OSError(errno.ENOMEM, "x"))
    by_import = ImportError("libm.so.6: cannot open shared object file")
    by_import.__context__ = OSError(errno.EMFILE, "x")
    assert "LimitNOFILE=" in describe_shortage(by_import)
    for error in (OSError(errno.EACCES, "x"), KeyError("x"), ValueError()):
        assert describe_shortage(error) == ""


def test_error_that_is_its_own_cause_or_in_a_cycle_is_described_once() -> None:
    first, second = ValueError("one"), ValueError("two")
    first.__cause__, second.__cause__ = first, first
    assert describe_shortage(first) == describe_shortage(second) == ""
    first.__cause__ = second
    assert describe_shortage(first) == ""


@pytest.mark.parametrize("limit", ["-n 5", "-n 6", "-n 7", "-n 8", "-v 75000"])
@pytest.mark.parametrize("command", ["run", "check"])
def test_command_under_a_low_limit_ends_with_a_sentence_and_loses_nothing(
    sandbox: Sandbox, tmp_path: Path, limit: str, command: str
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    site.change(yunikorn_url=sandbox.url)
    answer = subprocess.run(
        ["sh", "-c", f'ulimit {limit} && exec "$0" -m dnm.cli {command}', sys.executable],
        env={**os.environ, "DNM_CONFIG": str(site.path)},
        capture_output=True, text=True,
    )  # fmt: skip
    # A command's address space depends on the libraries, and may be small.
    enough = {ExitCode.OK} if limit.startswith("-v") else set()
    assert answer.returncode in {ExitCode.FAILED, ExitCode.NEEDS_PERSON} | enough, answer.stderr
    assert "Traceback" not in answer.stderr
    if answer.returncode == ExitCode.NEEDS_PERSON and command == "run":
        assert "raise the limit" in answer.stderr.lower()
    site.change(yunikorn_url="")  # it answers on the sandbox's clock, which stops during a run
    site.run_until_rest()
    assert site.lent()
    assert not sandbox.violations


def test_small_file_uses_the_memory_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_regular(path, 64 * 2**20) == b"x" * 1000
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "is_read"), [(200_000, True), (200_001, False)])
def test_growing_file_is_read_up_to_the_limit(tmp_path: Path, size: int, is_read: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")

    def grow(info: os.stat_result) -> None:
        path.write_bytes(b"x" * size)

    if is_read:
        assert len(read_regular(path, 200_000, grow)) == size
    else:
        with pytest.raises(OSError, match="larger than"):
            read_regular(path, 200_000, grow)
