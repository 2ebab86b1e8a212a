"""The process of this host that holds the lock, as the kernel reports it in /proc/locks."""

from __future__ import annotations

import os
import pwd
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dnm.host.trust import read_regular
from dnm.model.printable import printable
from dnm.model.value import Value

_LOCKS = Path("/proc/locks")  # proc_locks(5)
_LARGEST = 16 * 1024 * 1024  # bytes
_LONGEST_COMMAND = 120  # characters


class LockHolder(Value):
    """A process that holds the lock. `is_foreign`: its user may not execute runs of dnm here."""

    pid: int
    user: str = ""
    command: str = ""
    since: datetime | None = None  # when it began
    is_foreign: bool = False

    @property
    def text(self) -> str:
        """Returns the process with its user, command and start, for messages."""
        of = f" of {self.user}" if self.user else ""
        command = f" ({self.command})" if self.command else ""
        since = f", since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"process {self.pid}{of}{command}{since}"


def find_lock_holder(path: Path) -> LockHolder | None:
    """Returns the process of this host that holds the lock. Returns None if no process holds it, or
    one in another container or on another host of a shared disk."""
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
