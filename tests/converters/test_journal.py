"""Tests of converters' journals: complete after any kill, refused if untrusted, locked by node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dnm.converters.journal import JournalStore, JournalWriter, StageMark, new_operation
from dnm.model.errors import ConverterError
from tests.converters.played import a_journal as journal


def test_journal_is_loaded_as_it_was_written(tmp_path: Path) -> None:
    store = JournalStore(tmp_path / "state")
    assert store.load("a001") is None
    writer = JournalWriter(store, journal())
    writer.change()
    writer.write("claim", StageMark.BEGUN)
    writer.remember({"reserving": "k8s-a001"})
    writer.write("claim", StageMark.DONE, "drained")
    result = store.load("a001")
    assert result == writer.journal
    assert result.is_done("claim") and not result.is_done("verify")
    writer.write("claim", StageMark.FAILED, "no")
    assert not writer.journal.is_done("claim") and writer.journal.has_begun("claim")
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_open_journals_are_selected_by_instance(tmp_path: Path) -> None:
    store = JournalStore(tmp_path)
    for item in (journal("a001"), journal("a002", is_open=False), journal("a003", instance="x")):
        store.save(item)
    lines: list[str] = []
    assert [entry.node for entry in store.load_open("prod", lines.append)] == ["a001"] and not lines


def test_unreadable_journal_directory_is_an_error(tmp_path: Path) -> None:
    store = JournalStore(tmp_path / "state")
    store.directory.rmdir()
    with pytest.raises(OSError, match="state"):
        store.load_open("prod", pytest.fail)


def test_unreadable_journal_hides_no_other(tmp_path: Path) -> None:
    """Once, an empty journal of one node stopped the conversions of all nodes."""
    store = JournalStore(tmp_path)
    store.save(journal("a002"))
    (tmp_path / "a001.json").touch(mode=0o600)
    lines: list[str] = []
    assert [item.node for item in store.load_open("prod", lines.append)] == ["a002"]
    assert len(lines) == 1 and "a001.json can't be read" in lines[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "can't be read"),
        (b"{}", "can't be read"),
        (b"\xff", "can't be read"),
        (b"[" * 100_000, "can't be read"),
        (b'{"version": 2}', "can't be read"),
    ],
)
def test_unreadable_journal_stops_work_on_its_node(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a001.json").write_bytes(content)
    with pytest.raises(ConverterError, match=message):
        JournalStore(tmp_path).load("a001")


def test_journal_of_a_later_version_is_refused(tmp_path: Path) -> None:
    store = JournalStore(tmp_path)
    store.save(journal(version=2))
    with pytest.raises(ConverterError, match="version 2"):
        store.load("a001")
    output = (tmp_path / "a001.json").read_bytes().replace(b"{", b'{"home": "k8s",', 1)
    (tmp_path / "a001.json").write_bytes(output)  # with fields that this version does not know
    with pytest.raises(ConverterError, match="if a later node-convert wrote it, use that; else"):
        store.load("a001")


def test_copied_journal_is_refused(tmp_path: Path) -> None:
    """Otherwise, a call for a002 would change a001 although it has only the lock of a002."""
    store = JournalStore(tmp_path)
    store.save(journal())
    (tmp_path / "a002.json").write_bytes((tmp_path / "a001.json").read_bytes())
    with pytest.raises(ConverterError, match="is about a001: remove the copy"):
        store.load("a002")


def test_untrusted_state_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConverterError, match="chmod go-w"):
        JournalStore(tmp_path)


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    store = JournalStore(tmp_path)
    with store.lock("a001") as mine, store.lock("a001") as again, store.lock("a002") as other:
        assert (mine, again, other) == (True, False, True)
    holder = subprocess.Popen(
        [sys.executable, "-c",
         "import sys, time; from pathlib import Path\n"
         "from dnm.converters.journal import JournalStore\n"
         "with JournalStore(Path(sys.argv[1])).lock('a001') as mine:\n"
         "    print(mine, flush=True); time.sleep(60)", str(tmp_path)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == "True\n"
    with store.lock("a001") as mine:
        assert not mine
    holder.kill()
    holder.wait()
    with store.lock("a001") as mine:
        assert mine


WRITE = """
import sys
from pathlib import Path
from tests.converters.played import a_journal as journal
from dnm.converters.journal import JournalStore, JournalWriter, StageMark
writer = JournalWriter(JournalStore(Path(sys.argv[1])), journal())
writer.change()
for number in range(3):
    writer.write(f"stage-{number}", StageMark.DONE)
"""


@pytest.mark.parametrize("point", ["write", "fsync", "rename", "fsync_directory"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_journal_is_complete_after_a_kill_at_any_point(
    point: str, when: str, tmp_path: Path
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": os.getcwd(),
            "DNM_FAULT": f"journal.{point}:{when}:kill:3",
        },
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    result = JournalStore(tmp_path).load("a001")
    assert result is not None
    is_there = point == "fsync_directory" or (point, when) == ("rename", "after")
    assert len(result.lines) == (2 if is_there else 1)


def test_full_disk_is_one_message(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.getcwd(), "DNM_FAULT": "journal.write:before:full:2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "can't be written (No space left on device)" in answer.stderr
    assert JournalStore(tmp_path).load("a001") is not None


def test_operations_sort_by_time_and_differ() -> None:
    assert len({new_operation() for _ in range(50)}) == 50


def test_lock_file_permissions_are_repaired(tmp_path: Path) -> None:
    store = JournalStore(tmp_path / "state")
    lock = tmp_path / "state" / "a001.lock"
    lock.touch()
    lock.chmod(0o644)
    with store.lock("a001") as is_own:
        assert is_own and lock.stat().st_mode & 0o777 == 0o600
