"""The times at which runs began and ended on this host, and their history. `dnm status` shows them,
`dnm check` reports problems with them."""

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
    """The times when the last run began and ended; None if that has not happened, or is unknown."""

    began: datetime | None = None
    ended: datetime | None = None

    @property
    def took(self) -> timedelta | None:
        """Returns the duration of the last run, or None if it has not ended."""
        if self.began is None or self.ended is None or self.ended < self.began:
            return None
        return self.ended - self.began


def read_last_run(config: Config) -> LastRun:
    """Returns when the last run began and ended: the times of two files that each run sets."""

    def changed(path: os.PathLike[str]) -> datetime | None:
        with suppress(OSError):
            return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        return None

    return LastRun(began=changed(config.began_path), ended=changed(config.ended_path))


def mark_begin(config: Config) -> None:
    """Sets the start time of this run. Removes the file by which ended conversions trigger a run,
    because this run observes them. Raises RegistryError."""
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
    """Returns the history of this host: the log of what runs and commands did."""
    return History(config.converted_nodes_path, config.history_keep)


def history_path(config: Config) -> Path:
    """Returns the path of the newest file of the history."""
    return config.converted_nodes_path.with_name("history.jsonl")


def fix_history_access(config: Config) -> None:
    """Gives the history files the mode and group that their directory requests. Raises OSError."""
    newest = history_path(config)
    access = access_in(newest.parent)
    for path in (newest, *newest.parent.glob("history-????????T??????Z.jsonl")):
        fix_access(path, access)


def unseen_since(config: Config, now: datetime) -> datetime | None:
    """Returns when the last run ended, if that is more than an hour and more than three intervals
    ago, or else None. `now` must be by the system clock, which also sets the times of files."""
    ended = read_last_run(config).ended
    longest = max(timedelta(hours=1), 3 * config.check_interval)
    return ended if ended is not None and now - ended > longest else None
