"""The metrics file, for node_exporter's textfile collector: replaced whole, readable for all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dnm.host.fault_points import fault_point


def write_textfile(path: Path, text: str) -> None:
    """Replaces the file. Raises OSError; the old one is then still whole. The temporary name does
    not end in `.prom`, so that nobody reads it; it is not synced, since the next run writes it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with fault_point("metrics.write"):
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)  # whatever the umask is
                file.write(text.encode())
            with fault_point("metrics.rename"):
                os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def read_textfile(path: Path) -> str:
    """Returns what stands there; nothing where it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode(errors="replace")
    except OSError:
        return ""
