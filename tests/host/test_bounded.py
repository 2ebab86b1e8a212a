"""Tests that dnm reads foreign programs and files only up to a number of bytes and a time."""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import dnm
from dnm.host.programs import TimeoutExpired, run_bounded
from dnm.host.trust import read_regular
from tests.processes import wait_until
from tests.trees import nodes_below

PACKAGE = Path(dnm.__file__).parent


def test_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, 100) == b"x" * 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        read_regular(path, 99)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_path_that_is_no_file_is_refused_without_blocking(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing" if kind != "device" else Path("/dev/zero")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(OSError, match=r"it is (not a regular file|a directory)"):
        read_regular(path, 100)


def run(script: str, seconds: float = 20, largest: int = 100_000) -> tuple[bytes, bytes, int]:
    done = run_bounded(["/bin/sh", "-c", script], os.environ, seconds, largest)
    return done.stdout, done.stderr, done.returncode


def test_program_output_is_read_from_both_streams_without_input() -> None:
    assert run("cat; echo out; echo err >&2; exit 3") == (b"out\n", b"err\n", 3)


def test_program_beyond_its_bounds_is_ended_with_its_children() -> None:
    with pytest.raises(OSError, match="printed more than 100000 bytes") as raised:
        run("yes & yes >&2")
    assert raised.value.errno == errno.EFBIG
    for late in ("sleep 3600", "exec >&- 2>&-; sleep 3600"):
        with pytest.raises(TimeoutExpired):
            run(late, seconds=0.3)


@pytest.mark.parametrize("child", ["sleep 3600", "exec yes", "exec >&- 2>&-; sleep 3600"])
def test_leftover_child_of_a_program_is_ended_without_blocking(child: str) -> None:
    """The child has the program's output open, so that reading to the end would wait for it."""
    out, _, code = run(f"echo $$; sh -c '{child}' & exit 3", seconds=3600, largest=10**8)
    assert code == 3
    group = int(out.split(b"\n")[0])
    wait_until(lambda: not is_any_left(group))


def is_any_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# --- the source ------------------------------------------------------------------------------

# Reads without a bound of this kind, and the reason why each is bounded.
BOUNDED = {
    "http.plain": "the same buffer",
    "host.programs": "the bound itself",
    "converter.processes": "/proc, written by the kernel",
    "converter.start": "/proc, in the keeper",
    "queues.yunikorn.decode": "a method of the decoder, no file",
    "kube.requests": "a method of the session, which has a bound",
    "kube.questions": "the same",
    "kube.session": "the same",
    "kube.watching": "the same",
    "kube.reflector": "the same",
    "kube.deployments": "the same",
    "kube.slinky": "the same",
    "converters.hooks": "the pipe of a hook, line by line",
    "record.history_file": "the end of the file, and lines of a bounded length",
    "run.registry": "a method of the registry's place, which has a bound",
    "run.kube_state": "the same",
    "run.move": "the same",
    "converters.to_k8s": "ping, with ignored output",
}
NOT_OF_A_SITE = ("lab.",)  # it reads its own writes
READS = {"read", "read_text", "read_bytes", "readlines", "readline", "communicate", "check_output"}


def unbounded(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yields calls in the source that read a file or a program without a limit in bytes."""
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for call in nodes_below(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            name, owner = call.func.attr, ast.unparse(call.func.value)
            reads_all = name in READS and not (name in ("read", "readline") and _has_bound(call))
            if reads_all or (owner == "subprocess" and name == "run"):
                yield module, call.lineno, f"{owner}.{name}"


def _has_bound(call: ast.Call) -> bool:
    """Returns whether a call has a limit, such as `file.read(LARGEST + 1)`."""
    words = ast.unparse(call.args[0]).replace("+ 1", "").strip() if len(call.args) == 1 else ""
    return words.isdigit() or words.isupper() or words == "largest"


def test_all_reads_in_the_source_have_a_bound() -> None:
    rows = [pair for pair in unbounded(PACKAGE) if not pair[0].startswith(NOT_OF_A_SITE)]
    assert not [pair for pair in rows if pair[0] not in BOUNDED]
    assert BOUNDED.keys() - {module for module, _, _ in rows} <= {"converter.start"}, "not needed"


def test_search_detects_unbounded_reads(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "open(x).read()\npath.read_text()\nfile.read(_LARGEST + 1)\nsubprocess.run(y)\n"
        "child.communicate()\nfile.read(size)\nfile.readline()\nfile.readline(LARGEST)\n"
    )
    assert [line for _, line, _ in unbounded(tmp_path)] == [1, 2, 4, 5, 6, 7]
