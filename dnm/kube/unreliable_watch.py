"""The note that a watch has left something out: while it lies there, every run reads the list.

It is a person's to remove; another release of dnm does not heed it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from dnm.host.trust import read_regular
from dnm.kube.store_file import write_store

_LARGEST = 1 << 16


def distrust_path(store: Path) -> Path:
    """Where the note lies."""
    return store.with_name(store.name + "-distrusted")


def note_distrust(store: Path, sentence: str) -> None:
    """Writes it down. Raises OSError."""
    write_store(distrust_path(store), [f"{version('dnm')}\n{sentence}\n".encode()])


def read_distrust(store: Path) -> str:
    """Returns what was found by this release; empty: nothing."""
    path = distrust_path(store)
    try:
        release, _, sentence = read_regular(path, _LARGEST).decode(errors="replace").partition("\n")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path} can't be read ({error.strerror})"
    return f"{sentence.strip()} (remove {path} to try again)" if release == version("dnm") else ""
