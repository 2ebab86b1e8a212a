"""The reasons not to trust a file, each with the command that fixes it."""

from __future__ import annotations

import os
import stat
from shlex import quote

from dnm.model.value import Value


class Distrust(Value):
    """A reason not to trust a file, and the command that fixes it."""

    problem: str
    command: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.remedy}"

    @property
    def remedy(self) -> str:
        return f"run '{self.command}'"


def foreign(file: str, path: str, info: os.stat_result, danger: str, option: str = "") -> Distrust:
    """Returns why a file of another user is not trusted. `file` describes it in the message."""
    return Distrust(
        problem=f"{file} belongs to user id {info.st_uid}, who {danger}",
        command=f"chown {option}{os.geteuid()} {quote(path)}",
    )


def writable(file: str, path: str, info: os.stat_result, danger: str = "") -> Distrust:
    """Returns why a file that other users can write is not trusted. `file` describes it."""
    writers = "every user" if info.st_mode & stat.S_IWOTH else f"group id {info.st_gid}"
    mode = stat.S_IMODE(info.st_mode)
    return Distrust(
        problem=f"{file} can be written by {writers}{danger} (mode {mode:04o})",
        command=f"chmod go-w {quote(path)}",
    )
