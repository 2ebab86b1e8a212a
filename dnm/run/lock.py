"""The lock file beside the registry. It allows only one active run or command on one host and path.
Between hosts, the Lease (`lease_lock.py`) decides.

A user who can open the file of the lock can hold it and block dnm forever. So only its owner may
open it, and dnm removes the permissions of other users. The kernel reports its holder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from shlex import quote

from dnm.host.distrust import Distrust, foreign
from dnm.host.fault_points import fault_point
from dnm.host.trust import FileMode, check_trust, fix_access
from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.run.lock_holder import find_lock_holder

_LONGEST_LOOK = timedelta(minutes=5)  # the time of a run besides listening to converters


def longest_run(config: Config) -> timedelta:
    """Returns how long a command waits for another run to end."""
    return config.check_interval + _LONGEST_LOOK


@contextmanager
def run_lock(config: Config, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock beside the registry. If another process holds it, raises LockedError at once,
    or calls `on_wait` if given and waits for as long as a run may take. Raises RegistryError if the
    lock is unusable, or if a process of another user holds it."""
    from filelock import FileLock, Timeout

    path = config.lock_path
    try:
        check_trust(path.parent)
        with suppress(OSError):  # if this user may not do that, the lock is refused below
            fix_access(path, FileMode(owner=os.geteuid()))
        if trouble := find_open_lock(path):
            raise RegistryError(str(trouble))
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
        raise LockedError(f"another run holds the lock {path}{by}. Wait for its end") from error
    except OSError as error:
        fix = "check its disk and state_dir"
        if isinstance(error, PermissionError):
            fix = f"run dnm as the owner of {path.parent}, or make it writable"
        elif isinstance(error, FileNotFoundError):
            fix = f"create the state directory {path.parent} and let this user write there"
        raise RegistryError(f"the lock {path} can't be taken ({error.strerror}): {fix}") from error
    try:
        yield
    finally:
        # The process ends soon, and its end releases the lock too.
        with suppress(OSError), fault_point("lock.release"):
            lock.release()


def find_open_lock(path: Path) -> Distrust | None:
    """Returns why another user could hold the lock file, with a fix, or None. Raises OSError."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode):
        problem = f"the lock {path} is not a regular file"
        return Distrust(problem=problem, command=f"rm {quote(str(path))}")
    if info.st_uid not in (0, os.geteuid()):
        return foreign(f"the lock {path}", str(path), info, "could hold it forever")
    if stat.S_IMODE(info.st_mode) & 0o077:
        mode = stat.S_IMODE(info.st_mode)
        return Distrust(
            problem=f"the lock {path} can be held by other users (mode {mode:04o})",
            command=f"chmod 600 {quote(str(path))}",
        )
    return None


def _refuse_foreign(path: Path) -> None:
    holder = find_lock_holder(path)
    if holder is not None and holder.is_foreign:
        raise RegistryError(
            f"the lock {path} is held by {holder.text}, which is not a run of dnm: dnm does "
            "nothing until it ends, and has closed the lock to that user. Check the process, then "
            f"'kill {holder.pid}'"
        )
