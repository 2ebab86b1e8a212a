"""The files of runs on this host: when the last run began and ended, and its history. `dnm status`
shows them, `dnm check` judges them."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dnm.host.fault_points import fault_point
from dnm.host.trust import access_in, fix_access
from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.value import Value
from dnm.record.history_file import History


class LastRun(Value):
    """The times at which the last run began and ended; None: unknown, or not yet."""

    began: datetime | None = None
    ended: datetime | None = None

    @property
    def took(self) -> timedelta | None:
        """Returns the duration, or None without an end."""
        if self.began is None or self.ended is None or self.ended < self.began:
            return None
        return self.ended - self.began


def read_last_run(config: Config) -> LastRun:
    """Returns the times of two files of this host, which a run sets as it begins and ends."""

    def changed(path: os.PathLike[str]) -> datetime | None:
        with suppress(OSError):
            return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        return None

    return LastRun(began=changed(config.began_path), ended=changed(config.ended_path))


def mark_begin(config: Config) -> None:
    """Sets the start time of this run. Removes the trigger file of ended conversions, because this
    run observes them. Raises RegistryError."""
    set_time("lock.time", config.began_path)
    with suppress(OSError), fault_point("lock.wake"):
        config.trigger_path.unlink(missing_ok=True)


def mark_end(config: Config) -> None:
    """Sets the end time of this run. Raises RegistryError."""
    set_time("registry.time", config.ended_path)


def set_time(point: str, path: Path) -> None:
    """Sets the time of a file to now, or creates the file. Raises RegistryError."""
    try:
        with fault_point(point):
            path.touch(mode=0o600)
    except OSError as error:
        raise RegistryError(
            f"the time of {path} can't be set ({error.strerror}): check its disk, "
            "and let this user write there"
        ) from error


def open_history(config: Config) -> History:
    """Returns the history of the actions of this host."""
    return History(config.converted_nodes_path, config.history_keep)


def history_path(config: Config) -> Path:
    """Returns the newest file of that history."""
    return config.converted_nodes_path.with_name("history.jsonl")


def fix_history_access(config: Config) -> None:
    """Gives that history the access that its directory grants. Raises OSError."""
    newest = history_path(config)
    access = access_in(newest.parent)
    for path in (newest, *newest.parent.glob("history-????????T??????Z.jsonl")):
        fix_access(path, access)


def unseen_since(config: Config, now: datetime) -> datetime | None:
    """Returns since when no run has ended, if that is longer than runs leave between two reads of
    the batch side: an hour, or three runs. `now`: by the clock of the files."""
    ended = read_last_run(config).ended
    longest = max(timedelta(hours=1), 3 * config.check_interval)
    return ended if ended is not None and now - ended > longest else None
