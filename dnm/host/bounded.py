"""Files of others, read with a bound in bytes.

A device or a named pipe in place of one must neither fill the memory of a run nor hold it, and its
lock.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> int:
    """Returns the descriptor of a regular file, for reading; opening does not wait, so a named pipe
    holds nobody up. Raises OSError, also for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
    raise OSError(errno.EINVAL, f"it is {kind}", str(path))


def read_regular(path: Path, largest: int) -> bytes:
    """Returns the content of a regular file of at most `largest` bytes. Raises OSError."""
    with open(open_regular(path), "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest} bytes", str(path))
    return content
