"""The store on disk, beside the registry: replaced as a whole, for its owner alone.

It is only a copy, so nothing waits for the disk: what a power cut leaves of it has a wrong
checksum, and the next run reads the full list.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dnm.host.fault_points import fault_point
from dnm.host.trust import read_trusted
from dnm.kube.watch_log import NotProved, Why
from dnm.model.errors import DnmError

_LARGEST = 1 << 30  # bytes; 150,000 pods take 15 MB


def read_store(path: Path) -> bytes:
    """Returns the content. Raises NotProved where there is none, or none that can be trusted."""
    try:
        os.lstat(path)  # where there is none, nothing is read
        with fault_point("store.read"):
            return read_trusted(path, _LARGEST, DnmError)
    except FileNotFoundError as error:
        raise NotProved(Why.FIRST, f"there is no {path} yet") from error
    except OSError as error:
        raise NotProved(Why.DAMAGED, f"{path} can't be read ({error.strerror})") from error
    except DnmError as error:
        raise NotProved(Why.DAMAGED, str(error)) from error


def write_store(path: Path, content: Sequence[bytes]) -> None:
    """Replaces the file by these pieces. Raises OSError; the old one is still whole then."""
    temporary = path.with_name(path.name + ".new")
    with fault_point("store.write"):
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.writelines(content)
    with fault_point("store.rename"):
        os.replace(temporary, path)


def remove_store(path: Path) -> None:
    """Removes the file, if there is one. Raises OSError."""
    if path.exists():
        with fault_point("store.remove"), suppress(FileNotFoundError):
            path.unlink()
