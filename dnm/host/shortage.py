"""The limits of this host that can end a command at any point: open files and memory."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

_NEXT = "The next run continues where this command ended."


def describe_shortage(error: BaseException | None) -> str:
    """Returns which limit of the host an error or its cause reports, and how to raise it, or an
    empty text. If an import fails for lack of memory or files, only the error's context may show
    that. The search ends even if an error is its own cause."""
    visited: set[int] = set()
    while error is not None and (identity := id(error)) not in visited:
        visited.add(identity)
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EMFILE:
            most = os.sysconf("SC_OPEN_MAX")
            return (
                f"too many open files: this process may open {most}. Raise the limit to 1024 with "
                f"'ulimit -n 1024', or with LimitNOFILE= in the systemd unit. {_NEXT}"
            )
        if number == errno.ENFILE:
            return f"too many open files on this host. Raise fs.file-max with sysctl. {_NEXT}"
        if number == errno.ENOMEM or isinstance(error, MemoryError):
            return (
                "too little memory. Free memory on this host, or raise the limit with "
                f"'ulimit -v unlimited', or with LimitAS= in the systemd unit. {_NEXT}"
            )
        error = error.__cause__ or error.__context__
    return ""


def end_command(shortage: str) -> NoReturn:
    """Prints and logs the shortage. Ends the command with exit code 2: an administrator acts."""
    print(f"dnm: {shortage}", file=sys.stderr)
    if "logging" in sys.modules and (logger := sys.modules["logging"].getLogger("dnm")).handlers:
        logger.error("error=%r", shortage)
    sys.exit(2)
