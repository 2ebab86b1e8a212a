"""What a converter prints: the names in it, and what of it reaches a log or the disk."""

from __future__ import annotations

from pathlib import Path

from tests.converter.programs import run_one, script


def test_names_are_lines_of_stdout_and_nothing_else_is(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "echo 'PING OK (short): a001'; echo a001; echo a002; echo a001; echo a003 >&2; printf a004",
    )
    ended, lines = run_one(path)
    assert ended.names == ("a001", "a002", "a004")
    assert ended.exit_code == 0 and "PING OK (short): a001" in lines


def test_control_characters_never_reach_the_log(tmp_path: Path) -> None:
    _, lines = run_one(script(tmp_path, r"printf 'red \033[31m\007\r\n\377\n'"))
    assert lines and all(line.isprintable() for line in lines)


def test_an_endless_line_takes_bounded_memory(tmp_path: Path) -> None:
    _, lines = run_one(script(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo a001"))
    assert max(map(len, lines)) <= 16 * 1024 and lines[-1] == "a001"


def test_one_that_babbles_fills_no_disk(tmp_path: Path) -> None:
    path = script(tmp_path, "head -c 80000000 /dev/zero | tr '\\0' '\\n'; echo a001")
    ended, _ = run_one(path)
    assert ended.names == ("a001",)
    assert sum(file.stat().st_size for file in (tmp_path / "output").iterdir()) < 70_000_000
