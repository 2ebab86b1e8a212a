"""The journals of node-convert: its actions on each node, written before and after every stage.

Each node has one JSON document in the state directory, replaced atomically (temporary file, fsync,
rename, fsync of the directory), and one lock. The lock ends with the process that holds it. A later
call continues a conversion with an open journal. It reads the actual state and does not trust the
journal alone. An unreadable journal prevents work on its node."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import FileMode, check_trust, fix_access, read_trusted, replace_file
from dnm.model.errors import ConverterError
from dnm.model.lent_state import ConverterProcess
from dnm.model.value import Value

_LARGEST = 1 << 22  # bytes of one journal
VERSION = 1
_LOOKS, _LOOK_SECONDS = 5, 0.02
_MOST_LINES = 400  # keeps a journal with many repetitions readable
# Key of the facts: the Reason of an administrator's drain that a test replaces, and restores.
PREVIOUS_DRAIN = "drained-before"


class Direction(Enum):
    K8S = "k8s"
    BATCH = "batch"


class StageMark(Enum):
    """The progress of a stage, in a line of a journal."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"


class StageLine(Value, frozen=True):
    stage: str
    mark: StageMark
    at: datetime
    note: str = ""


class Journal(Value, frozen=True):
    """The record of one conversion of a node. A rollback changes `direction` to batch."""

    node: str
    operation: str  # part of Slurm's Reason, so that two conversions differ
    direction: Direction
    instance: str
    begun: datetime
    node_type: str = ""
    namespace: str = ""
    request: str = ""  # dnm's request that began or continued it
    version: int = VERSION
    lines: tuple[StageLine, ...] = ()
    is_open: bool = True
    error: str = ""
    rolled_back_from: str = ""  # the error that caused a rollback to Slurm
    facts: Mapping[str, str] = {}  # what a stage found and a later one needs
    hook: ConverterProcess | None = None  # the running hook, or the last one

    @property
    def way(self) -> Direction:
        """Returns the side on which the conversion ends: a convert-test ends in Slurm."""
        return Direction.BATCH if PREVIOUS_DRAIN in self.facts else self.direction

    def is_done(self, stage: str) -> bool:
        """Returns whether the stage's last line in the journal is DONE."""
        marks = [line.mark for line in self.lines if line.stage == stage]
        return bool(marks) and marks[-1] is StageMark.DONE

    def has_begun(self, stage: str) -> bool:
        return any(line.stage == stage and line.mark is StageMark.BEGUN for line in self.lines)


def new_operation() -> str:
    """Returns a unique name for a conversion. Names sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


class JournalStore:
    """The journals and locks of one state directory."""

    def __init__(self, directory: Path) -> None:
        """Creates the directory. Raises ConverterError if it is unusable or not trusted."""
        self.directory = directory
        try:
            with fault_point("journal.make_directory"):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_trust(directory, ConverterError)
        except OSError as error:
            raise ConverterError(
                f"the state directory {directory} can't be used ({error.strerror}): "
                "make it, or set state_dir"
            ) from error

    def _path(self, node: str) -> Path:
        return self.directory / f"{node}.json"

    def load(self, node: str) -> Journal | None:
        """Returns the journal of the node's last conversion, open or not; None if there is none."""
        path = self._path(node)
        try:
            with fault_point("journal.read"):
                content = read_trusted(path, _LARGEST, ConverterError)
            journal = msgspec.json.decode(content, type=Journal)
        except FileNotFoundError:
            return None
        except (
            ConverterError, OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError,
        ) as error:  # fmt: skip
            raise ConverterError(
                f"the journal {path} can't be read ({error}): if a later node-convert wrote it, use"
                " that; else check the node in Slurm and in Kubernetes, then remove the file"
            ) from error
        if journal.node != node:
            raise ConverterError(f"the journal {path} is about {journal.node}: remove the copy")
        if journal.version != VERSION:
            raise ConverterError(
                f"the journal {path} has version {journal.version}, this node-convert knows "
                f"{VERSION}: use the one that wrote it"
            )
        return journal

    def load_open(self, instance: str, on_unreadable: Callable[[str], None]) -> tuple[Journal, ...]:
        """Returns this instance's open journals: interrupted or failed conversions. `on_unreadable`
        gets a message for each unreadable journal, which prevents work only on its own node."""
        journals = self.load_all(lambda node, why: on_unreadable(why)).values()
        return tuple(item for item in journals if item.is_open and item.instance == instance)

    def load_all(self, on_unreadable: Callable[[str, str], None]) -> dict[str, Journal]:
        """Returns the journal of each node's last conversion, by node. `on_unreadable` gets the
        node of an unreadable journal, and a message with the next step. Raises OSError."""
        journals = {}
        for node in (
            file[:-5] for file in sorted(os.listdir(self.directory)) if file[-5:] == ".json"
        ):
            try:
                if journal := self.load(node):
                    journals[node] = journal
            except ConverterError as error:
                on_unreadable(node, str(error))
        return journals

    def is_at_work(self, node: str) -> bool:
        """Returns whether a running converter holds the node's lock."""
        try:
            with fault_point("journal.lock"):
                descriptor = os.open(self.directory / f"{node}.lock", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    return not _try_lock(descriptor, fcntl.LOCK_SH)
                finally:
                    os.close(descriptor)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConverterError(
                f"the lock of {node} in {self.directory} can't be read ({error.strerror})"
            ) from error

    def save(self, journal: Journal) -> None:
        """Writes the journal durably. Raises ConverterError, after which the caller must stop."""
        path = self._path(journal.node)
        content = msgspec.json.format(msgspec.json.encode(journal), indent=1) + b"\n"
        try:
            replace_file(path, [content], "journal")
        except OSError as error:
            raise ConverterError(
                f"the journal {path} can't be written ({error.strerror or error}): nothing further "
                "is done to the node; free space or fix the permissions, then repeat"
            ) from error

    @contextmanager
    def lock(self, node: str) -> Iterator[bool]:
        """Yields whether this process has acquired the node's lock, until the end of the block.
        Waits for a `--list` that holds the lock for a moment, but not for another converter."""
        path = self.directory / f"{node}.lock"
        try:
            fix_access(path, FileMode(owner=os.geteuid()))  # who opens it can lock the node
            with fault_point("journal.lock"):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                is_locked = _try_lock(descriptor, fcntl.LOCK_EX)
                for _ in range(_LOOKS):
                    if is_locked:
                        break
                    time.sleep(_LOOK_SECONDS)
                    is_locked = _try_lock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise ConverterError(f"the lock {path} can't be made ({error.strerror})") from error
        try:
            yield is_locked
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(eq=False)
class JournalWriter:
    """The journal of a running conversion. Each method returns after its change is on disk."""

    store: JournalStore
    journal: Journal

    def change(self, **fields: object) -> None:
        self.journal = msgspec.structs.replace(self.journal, **fields)
        self.store.save(self.journal)

    def write(self, stage: str, mark: StageMark, note: str = "") -> None:
        line = StageLine(stage=stage, mark=mark, at=datetime.now(UTC), note=note)
        self.change(lines=(*self.journal.lines, line)[-_MOST_LINES:])

    def reopen(self, stages: Collection[str]) -> None:
        """Records that those of these stages that have run must run again."""
        for stage in stages:
            if self.journal.is_done(stage):
                self.write(stage, StageMark.FAILED, "to be done again")

    def remember(self, facts: Mapping[str, str]) -> None:
        self.change(facts={**self.journal.facts, **facts})

    def close(self, error: str = "") -> None:
        """Closes the journal, so that no later call continues the conversion."""
        self.change(is_open=False, error=error)


# The result of a conversion, as a call reports it.

SCHEMA = "node-convert.result/1"


class StageResult(Value, frozen=True):
    stage: str
    seconds: float
    result: str  # ok | failed | interrupted


class NodeResult(Value, frozen=True):
    """The result for a node. It is `skipped` if it could not be claimed or needed no conversion."""

    node: str
    result: str  # ok | failed | skipped
    error: str = ""
    stages: tuple[StageResult, ...] = ()


def stages_of(journal: Journal, began: datetime) -> tuple[StageResult, ...]:
    """Returns the stages since `began`, each with the seconds between its first and last line."""
    results: list[StageResult] = []
    begun: dict[str, datetime] = {}
    for line in journal.lines:
        if line.at < began:
            continue
        if line.mark is StageMark.BEGUN:
            begun[line.stage] = line.at
            continue
        seconds = (line.at - begun.pop(line.stage, line.at)).total_seconds()
        result = "ok" if line.mark is StageMark.DONE else "failed"
        results.append(StageResult(stage=line.stage, seconds=round(seconds, 3), result=result))
    results += [StageResult(stage=stage, seconds=0, result="interrupted") for stage in begun]
    return tuple(results)
