"""The lock beside the registry: on one host and path one run is at work, or one verb.

Whoever may open its file can hold it, and stop dnm for ever: so it is closed to all but its owner,
also where an earlier dnm, or a hand, has left it open. Who holds it is told by the kernel.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote

from dnm.host.bounded import read_regular
from dnm.host.fault_points import fault_point
from dnm.host.trust import Access, check_trust, mend_access
from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.model.printable import printable
from dnm.model.value import Value

_LONGEST_LOOK = timedelta(minutes=5)  # what a run takes beside listening to its converters
_LOCKS = Path("/proc/locks")  # proc_locks(5)
_LARGEST = 16 * 1024 * 1024  # bytes
_LONGEST_COMMAND = 120  # characters


class LockHolder(Value):
    """A process that holds the lock. `is_foreign`: of a user whose no run of dnm can be here."""

    pid: int
    user: str = ""
    command: str = ""
    since: datetime | None = None  # when it began
    is_foreign: bool = False

    @property
    def text(self) -> str:
        """Names it to people."""
        of = f" of {self.user}" if self.user else ""
        command = f" ({self.command})" if self.command else ""
        since = f", since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"process {self.pid}{of}{command}{since}"


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
        _close_to_others(path)
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
        raise RegistryError(
            f"the lock {path} can't be taken ({error.strerror}): create the state directory "
            f"{path.parent} and let this user write there"
        ) from error
    try:
        yield
    finally:
        # The process ends soon, and its end releases the lock too.
        with suppress(OSError), fault_point("lock.release"):
            lock.release()


def find_open_lock(path: Path) -> str:
    """Returns who could hold the lock beside its owner, with the command that mends it; empty:
    nobody. Raises OSError."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return ""
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
    return ""


def _close_to_others(path: Path) -> None:
    """Takes it from another owner and closes it, where this user may; else it is refused."""
    with suppress(OSError):  # said below
        mend_access(path, Access(owner=os.geteuid()))
    if trouble := find_open_lock(path):
        raise RegistryError(trouble)


def _refuse_foreign(path: Path) -> None:
    holder = find_lock_holder(path)
    if holder is not None and holder.is_foreign:
        raise RegistryError(
            f"the lock {path} is held by {holder.text}, which is no run of dnm: nothing is done "
            f"until it ends; the lock is closed to that user now. Look at it, then "
            f"'kill {holder.pid}'"
        )


def find_lock_holder(path: Path) -> LockHolder | None:
    """Returns which process of this host holds the lock; None: nobody, or nobody that is seen from
    here (in another container, or on another host of a shared disk)."""
    try:
        info, owner = os.stat(path), os.stat(path.parent).st_uid
        lines = read_regular(_LOCKS, _LARGEST).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}"
    for line in lines:
        fields = line.split()
        if len(fields) == 8 and (fields[1], fields[5]) == ("FLOCK", f"{device}:{info.st_ino}"):
            return _describe(int(fields[4]), {0, owner})
    return None


def _describe(pid: int, trusted: set[int]) -> LockHolder:
    try:
        uid = int(_of_process(pid, "status").partition("\nUid:")[2].split()[0])
        words = _of_process(pid, "cmdline").replace("\0", " ")
        ticks = int(_of_process(pid, "stat").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return LockHolder(pid=pid)
    began = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"user id {uid}"
    return LockHolder(
        pid=pid,
        user=printable(user, _LONGEST_COMMAND),
        command=printable(words.strip(), _LONGEST_COMMAND),
        since=datetime.now(UTC) - timedelta(seconds=began),
        is_foreign=uid not in trusted,
    )


def _of_process(pid: int, name: str) -> str:
    return read_regular(Path("/proc") / str(pid) / name, _LARGEST).decode(errors="replace")
