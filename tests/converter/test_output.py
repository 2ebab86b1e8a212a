"""Tests of a converter's output: node names in it, and its parts that dnm logs or stores."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from dnm.converter.node_convert import NodeConvert
from dnm.converter.output import ConverterOutput
from dnm.model.blackout import Secrets
from tests.builders import a_config
from tests.converter.programs import run_script, script


def test_only_stdout_lines_are_node_names(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "echo 'PING OK (short): a001'; echo a001; echo a002; echo a001; echo a003 >&2; printf a004",
    )
    ended, lines = run_script(path)
    assert ended.names == ("a001", "a002", "a004")
    assert ended.exit_code == 0 and "PING OK (short): a001" in lines


def test_control_characters_never_reach_the_log(tmp_path: Path) -> None:
    _, lines = run_script(script(tmp_path, r"printf 'red \033[31m\007\r\n\377\n'"))
    assert lines and all(line.isprintable() for line in lines)


def test_endless_output_line_takes_bounded_memory(tmp_path: Path) -> None:
    _, lines = run_script(
        script(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo a001")
    )
    assert max(map(len, lines)) <= 16 * 1024 and lines[-1] == "a001"


def test_endless_output_does_not_fill_the_disk(tmp_path: Path) -> None:
    path = script(tmp_path, "head -c 80000000 /dev/zero | tr '\\0' '\\n'; echo a001")
    ended, _ = run_script(path)
    assert ended.names == ("a001",)
    assert sum(file.stat().st_size for file in (tmp_path / "output").iterdir()) < 70_000_000


def test_fast_output_does_not_delay_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A converter that prints without end does not stop dnm: it skips what exceeds the limit."""
    monkeypatch.setattr("dnm.converter.output._OUTPUT_LIMIT", 2**20)
    (tmp_path / "k.err").touch()
    with open(tmp_path / "k.out", "ab", buffering=0) as written:
        written.write(b"y\n" * 1000)
        output = ConverterOutput(tmp_path / "k", Secrets(), os.O_RDWR)
        events: list[str] = []

        def note_line(line: str) -> None:
            assert len(events) < 2**19, "it never comes back"
            events.append(line)
            written.write(b"y\n")

        output.read_new(note_line)
        written.write(b"y\n" * 2**19 + b"a001\na0")
        output.read_new(events.append)
        written.write(b"02\n")
        output.read_new(events.append)
    assert (tmp_path / "k.out").stat().st_size < 2**20
    assert "1 MiB of its output are skipped: too much at once" in events
    assert list(output.names) == ["y", "a001", "a002"]


HOOK = "a003: failed: the hook /etc/dnm/hooks/reset failed (exit 1); mend the cause, then go on"
OTHER = "a004: failed: its power can't be switched"
REASONS = {
    "the shipped program's, which counts last": (
        "k", [HOOK, "0 of 1 node(s) converted"], HOOK,
    ),
    "one that others' lines have driven out of the last five": (
        "k", [HOOK, *(f"a00{number}: stage join" for number in range(4, 10)), "1 of 2"], HOOK,
    ),
    "each node's, the last of each": (
        "k", ["a003: failed: at first", HOOK, OTHER, "0 of 2"], f"{HOOK}; {OTHER}",
    ),
    "more than anybody reads": (
        "k", [f"a00{number}: failed: why" for number in range(1, 6)],
        "a001: failed: why; a002: failed: why; and 3 more",
    ),
    "a site's own words for the node of the call": (
        "a003", ["reset of a003 timed out, see its console", "giving up"],
        "reset of a003 timed out, see its console",
    ),
    "a node that was not taken": ("k", ["a003: skipped: a job came first", "0 of 1"],
                                  "a003: skipped: a job came first"),
    "another node's": ("a003", ["error: a004 is no business of ours", "no power"], "no power"),
    "a step that went well": ("a003", ["a003: reset done", "no way to the BMC"],
                              "no way to the BMC"),
    "too long": ("k", ["a003: failed: " + "x" * 3000], ("a003: failed: " + "x" * 3000)[:500]),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_failure_line_that_names_the_node_is_its_reason(name: str, tmp_path: Path) -> None:
    """The run that waits for the converter and the next run choose the same line as the reason."""
    key, lines, reason = REASONS[name]
    message = tmp_path / "said"
    message.write_text("".join(f"{line}\n" for line in lines))
    ended, _ = run_script(script(tmp_path, f"cat {message} >&2; exit 1"), key=key)
    assert ended.error == f"the converter ended with exit code 1: {reason}"
    convert = NodeConvert(a_config(tmp_path), {})
    convert.directory = tmp_path / "output"
    assert convert.read_end(key).error == ended.error


def test_recorded_output_of_a_call_is_bounded(tmp_path: Path) -> None:
    """The registry keeps a bounded text of a call; the log has whole lines."""
    message = tmp_path / "said"
    names = [f"n{number}-{'x' * 40}" for number in range(5_000)]
    fails = [f"f{number}: failed: {'y' * 5000}" for number in range(200)]
    message.write_text("".join(f"{line}\n" for line in (*names, "z" * 300, *fails)))
    ended, lines = run_script(script(tmp_path, f"cat {message}"), key="k")
    assert ended.names == tuple(names[: len(ended.names)]) and len(ended.names) > 1_000
    assert len(ended.failures) == 100 and len(ended.last_lines) == 5
    assert len(msgspec.json.encode(ended)) < 150_000
    assert max(map(len, lines)) > 5_000


@pytest.mark.parametrize("fold", ["", "\n"])
def test_skipped_output_shows_no_part_of_a_secret(
    fold: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text behind the skipped part may begin in the middle of a secret."""
    monkeypatch.setattr("dnm.converter.output._OUTPUT_LIMIT", 2**20)
    secret = "Kq7-very-long-secret-of-the-site-0123456789"
    (tmp_path / "k.err").touch()
    (tmp_path / "k.out").write_text(f"{secret[:20]}{fold}{secret[20:]} " * 40_000 + "\na001\n")
    output = ConverterOutput(tmp_path / "k", Secrets([secret]), os.O_RDWR)
    events: list[str] = []
    output.read_new(events.append)
    parts = [secret[at : at + 6] for at in range(len(secret) - 6)]
    assert "a001" in events and not [line for line in events if any(part in line for part in parts)]
