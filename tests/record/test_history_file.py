"""Tests of the history file: complete lines, each only once, even after an interrupted write."""

from __future__ import annotations

import grp
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.model.history import SCHEMA, HistoryLine, Operation
from dnm.model.registry import Registry
from dnm.record.history_file import (
    LONGEST_LINE,
    History,
    read_backwards,
    read_history,
    read_tail,
)
from dnm.record.recording import record_operation
from dnm.record.transitions import Cause
from tests.builders import NOW, struck_at

DAY = timedelta(days=1)


def line(number: int, at: int = 0, **fields: Any) -> HistoryLine:
    return HistoryLine(
        schema=SCHEMA, number=number, time=NOW + timedelta(minutes=at), run="r", instance="prod",
        kind="node", event="joined", object=f"a{number:03}", **fields,
    )  # fmt: skip


def history(directory: Path, keep: timedelta = 400 * DAY) -> History:
    return History(directory / "converted_nodes.json", keep)


def numbers(of: History) -> list[int]:
    return [item.number for item in read_history(of)]


def test_history_lines_are_read_in_their_order(tmp_path: Path) -> None:
    kept = history(tmp_path)
    assert kept.append([line(1), line(2)], NOW) == (line(1), line(2))
    kept.append([line(3, reason="ünicode\nand a line")], NOW)
    assert list(read_history(kept)) == [line(1), line(2), line(3, reason="ünicode\nand a line")]
    assert kept.path.read_bytes().count(b"\n") == 3
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_history_file_name_without_a_time_is_ignored(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.path.with_name(f"{kept.path.stem}-20260230T120000Z.jsonl").touch(0o600)
    assert kept.append([line(1)], NOW) == (line(1),)
    assert numbers(kept) == [1]


def test_history_file_has_the_access_of_the_registry(tmp_path: Path) -> None:
    group = next(pair for pair in grp.getgrall() if pair.gr_gid in {*os.getgroups(), os.getegid()})
    kept = history(tmp_path)
    kept.append([line(1)], NOW)
    kept.append([line(2, at=40 * 24 * 60)], NOW + 40 * DAY)
    files = sorted(tmp_path.glob("history*.jsonl"))
    for file in files:
        file.chmod(0o644)  # set by an administrator
    kept.append([], NOW + 41 * DAY)
    assert len(files) == 2 and [file.stat().st_mode & 0o777 for file in files] == [0o600] * 2
    os.chown(tmp_path, -1, group.gr_gid)
    tmp_path.chmod(0o2750)
    kept.append([line(3)], NOW + 80 * DAY)
    files = sorted(tmp_path.glob("history*.jsonl"))
    assert len(files) == 3
    for file in files:
        info = file.stat()
        assert (info.st_mode & 0o777, info.st_gid) == (0o640, group.gr_gid), file
    tmp_path.chmod(0o700)
    kept.append([line(4)], NOW + 81 * DAY)
    assert kept.path.stat().st_mode & 0o777 == 0o600 and numbers(kept) == [1, 2, 3, 4]


def test_written_history_line_is_not_written_again(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append([line(1), line(2)], NOW)
    assert kept.append([line(1), line(2), line(3)], NOW) == (line(3),)
    assert kept.append([line(2), line(3)], NOW) == ()
    assert numbers(kept) == [1, 2, 3]


def test_history_line_is_recognized_with_its_numbers_reordered(tmp_path: Path) -> None:
    """A line is the same even if the file has its numbers in another order."""
    kept = history(tmp_path)
    first = msgspec.structs.replace(line(1), numbers={"used": {"cpu": 1, "a": 2}, "limit": {}})
    again = msgspec.structs.replace(line(1), numbers={"limit": {}, "used": {"a": 2, "cpu": 1}})
    kept.append([first], NOW)
    assert kept.append([again], NOW) == ()


@pytest.mark.parametrize("torn", range(1, 60, 7))
def test_torn_last_line_is_skipped_and_repaired(tmp_path: Path, torn: int) -> None:
    kept = history(tmp_path)
    kept.append([line(1), line(2)], NOW)
    os.truncate(kept.path, kept.path.stat().st_size - torn)
    assert numbers(kept) == [1]
    kept.append([line(2), line(3)], NOW)
    assert numbers(kept) == [1, 2, 3]


def test_garbage_line_hides_no_other_line(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append([line(1)], NOW)
    with open(kept.path, "ab") as file:
        file.write(b"\xff\x00 not json\n{}\n" + b"x" * 100_000 + b"\n")
    kept.append([line(2)], NOW)
    assert numbers(kept) == [1, 2]


def test_garbage_without_a_line_end_hides_no_other_line(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append([line(1)], NOW)
    with open(kept.path, "ab") as file:
        file.write(bytes(100_000))
    kept.append([line(2)], NOW)
    assert numbers(kept) == [1, 2] == [item.number for item in read_tail(kept, 200_000)]


def test_failed_history_write_is_repeated(tmp_path: Path) -> None:
    kept = history(tmp_path)
    with struck_at("history.fsync", "before", OSError(28, "No space left on device")):
        kept.append([line(1)], NOW)
    kept.append([line(1), line(2)], NOW)
    assert numbers(kept) == [1, 2]


def test_overgrown_history_file_is_rotated_unread(tmp_path: Path) -> None:
    kept = history(tmp_path)
    with kept.path.open("wb") as file:
        file.truncate(2**40)
    assert kept.append([line(1)], NOW) == (line(1),)
    assert numbers(kept) == [1] and not kept.old_files()


def test_line_with_a_naive_time_hides_no_other_line(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append([line(1), line(2)], NOW)
    kept.path.write_bytes(kept.path.read_bytes().replace(b'Z"', b'"', 1))
    kept.append([line(3)], NOW)
    assert [item.number for item in read_history(kept, NOW - DAY)] == [2, 3]


def test_history_is_rotated_monthly_and_deleted_after_history_days(tmp_path: Path) -> None:
    kept = history(tmp_path, keep=100 * DAY)
    for month in range(6):
        kept.append([line(month + 1, at=month * 32 * 24 * 60)], NOW + month * 32 * DAY)
    assert numbers(kept) == [2, 3, 4, 5, 6], "the first ended more than 100 days ago"
    assert len(list(tmp_path.glob("history-*.jsonl"))) == 4


def test_clock_that_jumps_years_ahead_deletes_no_history(tmp_path: Path) -> None:
    kept = history(tmp_path)
    for number, day in enumerate((0, 40, 2_000, 50, 90)):  # the third one is wrong
        kept.append([line(number, at=day * 24 * 60)], NOW + day * DAY)
    assert numbers(kept) == [0, 1, 2, 3, 4]
    assert [ended for ended, _ in kept.old_files()] == [NOW, NOW + 40 * DAY], "in their order"


def test_total_size_of_history_files_is_bounded(tmp_path: Path) -> None:
    kept = History(tmp_path / "converted_nodes.json", 400 * DAY, largest=1_000, most=5_000)
    for number in range(1, 201):
        kept.append([line(number, at=number)], NOW + timedelta(minutes=number))
    rows = numbers(kept)
    assert rows[-1] == 200 and rows == list(range(rows[0], 201))
    assert sum(path.stat().st_size for path in tmp_path.glob("history*")) < 7_000


def test_repeated_lines_are_recognized_across_a_rotation(tmp_path: Path) -> None:
    """Twice, a month apart, a run is killed after it wrote history and before the registry."""
    kept = history(tmp_path)
    kept.append([line(1), line(2)], NOW)
    kept.append([line(1), line(2), line(3)], NOW + 32 * DAY)
    kept.append([line(1), line(2), line(3), line(4)], NOW + 33 * DAY)
    assert numbers(kept) == [1, 2, 3, 4]
    kept.append([line(5)], NOW + 34 * DAY)
    assert numbers(kept) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("point", ["history.append", "history.rotate", "history.fsync"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_between_rotation_and_write_loses_no_line(
    tmp_path: Path, point: str, when: str
) -> None:
    kept = history(tmp_path)
    kept.append([line(1)], NOW)
    later = NOW + 40 * DAY
    with struck_at(point, when, KeyboardInterrupt()):
        kept.append([line(2)], later)
    kept.append([line(2), line(3)], later)
    assert numbers(kept) == [1, 2, 3]


def test_only_the_requested_span_is_read(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append([line(1)], NOW)
    kept.append([line(2, at=40 * 24 * 60)], NOW + 40 * DAY)
    [old] = tmp_path.glob("history-*.jsonl")
    old.chmod(0)
    old.write_bytes(b"") if os.getuid() else None
    assert [item.number for item in read_history(kept, NOW + 41 * DAY - 2 * DAY)] == [2]


def test_symlink_or_pipe_as_history_is_not_followed(tmp_path: Path) -> None:
    kept = history(tmp_path)
    (tmp_path / "elsewhere").write_text("")
    kept.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        kept.append([line(1)], NOW)
    kept.path.unlink()
    os.mkfifo(kept.path)
    with pytest.raises(OSError, match="not a regular file"):
        list(read_history(kept))
    with pytest.raises(OSError):
        read_tail(kept, 100)


def test_history_of_zero_days_writes_nothing(tmp_path: Path) -> None:
    kept = history(tmp_path, keep=0 * DAY)
    assert kept.append([line(1)], NOW) == ()
    assert not kept.path.exists()


def test_newest_lines_are_read_without_older_files(tmp_path: Path) -> None:
    kept = history(tmp_path)
    for number in range(1, 5):
        kept.append([line(number)], NOW + number * 40 * DAY)
    oldest = min(tmp_path.glob("history-*.jsonl"))
    oldest.unlink()
    oldest.mkdir()  # reading it fails
    result = read_backwards(kept, [b'"a003"', b'"a004"', b'"a001"'])
    assert [next(result).number, next(result).number] == [4, 3]
    with pytest.raises(OSError, match=r"irectory|regular"):
        next(result)


def test_only_lines_that_contain_a_search_text_are_decoded(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append([line(1), line(2), line(3)], NOW)
    assert [item.number for item in read_history(kept, None, [b'"a002"', b'"nothing"'])] == [2]
    assert [backward.number for backward in read_backwards(kept)] == [3, 2, 1]


def test_overlong_history_line_is_shortened_when_written(tmp_path: Path) -> None:
    wide = {"pods": ["p" * 100] * 10_000, "count": 3, "request": "r" * 70_000}
    long = msgspec.structs.replace(line(1, reason="w" * 70_000), numbers=wide)
    operation = Operation(verb="pause", reason="w" * 70_000)
    cause = Cause(run="r", instance="prod", now=NOW)
    untold = record_operation(Registry(), Registry(), operation, cause).memory.unwritten
    assert len(msgspec.json.encode(untold)) < LONGEST_LINE
    of = history(tmp_path)
    assert of.append([long, line(2)], NOW) == (long, line(2))
    history_line, other = read_history(of)
    assert other == line(2) and len(of.path.read_bytes()) < LONGEST_LINE
    assert (history_line.number, history_line.numbers["count"], len(history_line.reason)) == (
        1,
        3,
        500,
    )
    assert "pods" not in history_line.numbers
