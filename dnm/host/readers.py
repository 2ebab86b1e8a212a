"""Who may read the record and its history: their owner, and a group where the site names one.

What converters printed stands in both, and who lends what to whom.
"""

from __future__ import annotations

import errno
import grp
import os
import stat
from contextlib import suppress
from pathlib import Path

from dnm.host.fault_points import fault_point
from dnm.model.value import Value


class Access(Value):
    """The mode of a file, and the numbers of its group and its owner; -1 for those that it has."""

    mode: int = 0o600
    group: int = -1
    owner: int = -1


def access_of(group: str) -> Access:
    """Returns what the owner's files get. Raises OSError for a group that there is not."""
    if not group:
        return Access()
    try:
        return Access(mode=0o640, group=grp.getgrnam(group).gr_gid)
    except KeyError:
        raise OSError(errno.EINVAL, f"state_group = {group} is no group of this host") from None


def give_access(descriptor: int, access: Access) -> None:
    """Gives it to a file that was made for its owner alone. Raises OSError."""
    os.fchown(descriptor, -1, access.group)
    os.fchmod(descriptor, access.mode)


def mend_access(path: Path, access: Access) -> None:
    """Closes a file that an earlier dnm left open, or opens it to a group that was named since; at
    no moment it is open to more. Raises OSError, but not where there is none."""
    with suppress(FileNotFoundError):
        info = os.lstat(path)
        is_right = (
            stat.S_IMODE(info.st_mode) == access.mode
            and access.group in (-1, info.st_gid)
            and access.owner in (-1, info.st_uid)
        )
        if stat.S_ISREG(info.st_mode) and not is_right:
            with fault_point("registry.access"):
                os.chmod(path, 0o600)
                os.chown(path, access.owner, access.group)
                os.chmod(path, access.mode)
