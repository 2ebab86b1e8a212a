"""The lock beside the registry: on one host and path one run is at work, or one verb.

Whoever may open its file can hold it, and stop dnm for ever: so it is closed to all but its owner,
dnm closes a file that an administrator has left open. The kernel tells who holds it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from shlex import quote

from dnm.host.fault_points import fault_point
from dnm.host.trust import Access, check_trust, mend_access
from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.run.lock_holder import find_lock_holder

_LONGEST_LOOK = timedelta(minutes=5)  # what a run takes beside listening to its converters


def longest_run(config: Config) -> timedelta:
    """Returns how long another run is waited for."""
    return config.check_interval + _LONGEST_LOOK


@contextmanager
def run_lock(config: Config, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock beside the registry, or raises LockedError: at once, or where `on_wait` is
    given, after having called it and waited for as long as a run may take. Raises RegistryError
    where it can't be had, or where another user's process holds it, which no waiting helps."""
    from filelock import FileLock, Timeout

    path = config.lock_path
    try:
        check_trust(path.parent)
        with suppress(OSError):  # where this user may not close it to others, it is refused
            mend_access(path, Access(owner=os.geteuid()))
        if trouble := find_open_lock(path):
            raise RegistryError(trouble)
        lock = FileLock(path, timeout=0, mode=0o600)
        with fault_point("lock.acquire"):
            try:
                lock.acquire()
            except Timeout:
                _refuse_foreign(path)
                if on_wait is None:
                    raise
                on_wait()
                lock.acquire(timeout=longest_run(config).total_seconds())
    except Timeout as error:
        holder = find_lock_holder(path)
        by = f": {holder.text}" if holder else ""
        raise LockedError(f"another run holds the lock {path}; it is left to finish{by}") from error
    except OSError as error:
        mend = "look at the disk that it is on, and at state_dir"
        if isinstance(error, PermissionError):
            mend = f"run dnm as the owner of {path.parent}, or make it writable"
        elif isinstance(error, FileNotFoundError):
            mend = f"create the state directory {path.parent} and let this user write there"
        raise RegistryError(f"the lock {path} can't be taken ({error.strerror}): {mend}") from error
    try:
        yield
    finally:
        # The process ends soon, and its end releases the lock too.
        with suppress(OSError), fault_point("lock.release"):
            lock.release()


def find_open_lock(path: Path) -> str | None:
    """Returns who could hold the lock beside its owner, with the command that mends it. Raises
    OSError."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return f"the lock {path} is no regular file: run 'rm {quote(str(path))}'"
    if info.st_uid not in (0, os.geteuid()):
        return (
            f"the lock {path} belongs to user id {info.st_uid}, who can hold it for ever: run "
            f"'chown {os.geteuid()} {quote(str(path))}'"
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        return (
            f"the lock {path} can be held by others (mode {stat.S_IMODE(info.st_mode):04o}): run "
            f"'chmod 600 {quote(str(path))}'"
        )
    return None


def _refuse_foreign(path: Path) -> None:
    holder = find_lock_holder(path)
    if holder is not None and holder.is_foreign:
        raise RegistryError(
            f"the lock {path} is held by {holder.text}, which is no run of dnm: nothing is done "
            f"until it ends; the lock is closed to that user now. Look at it, then "
            f"'kill {holder.pid}'"
        )
