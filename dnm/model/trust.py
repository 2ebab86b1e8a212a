"""Who else could have written this? A file or directory that others can change is not obeyed.

Whoever can write dnm's configuration or its state decides which machines are power-cycled. So both
must belong to root or to the user dnm runs as, and nobody else may write them, not even the group.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

from dnm.model.errors import ConfigError, DnmError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find_distrust(path: Path, info: os.stat_result) -> str:
    """Why `path` can't be trusted, with the command that mends it; empty if it can.

    `info` is what `os.stat` or, without a race, `os.fstat` of the opened file said.
    """
    what = "directory" if stat.S_ISDIR(info.st_mode) else "file"
    if info.st_uid not in (0, os.geteuid()):
        return (
            f"the {what} {path} belongs to user id {info.st_uid}, who could change what dnm does: "
            f"run 'chown {os.geteuid()} {quote(str(path))}'"
        )
    if info.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(info.st_mode)
        who = "everybody" if mode & stat.S_IWOTH else f"group id {info.st_gid}"
        return (
            f"the {what} {path} can be written by {who} (mode {mode:04o}): "
            f"run 'chmod go-w {quote(str(path))}'"
        )
    return ""


def check_trust(path: Path, error: type[DnmError] = ConfigError) -> None:
    """Raises `error` with the command that mends it; OSError where `path` is out of sight."""
    distrust = find_distrust(path, os.stat(path))
    if distrust:
        raise error(distrust)
