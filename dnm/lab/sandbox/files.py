"""The files of a sandbox: kubeconfig, converter, kept state. Only their owner can read them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import msgspec

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.batch import Batch
from dnm.lab.sandbox.store import Store
from dnm.model.errors import SandboxError

KEPT_STATE = "kept-state.json"


def save_state(store: Store, batch: Batch, path: Path) -> None:
    """Writes all objects and machines as one JSON document."""
    write_file(path, msgspec.json.encode({"store": store.dump(), "batch": batch.dump()}))


def load_state(store: Store, batch: Batch, path: Path) -> None:
    """Reads them back; raises SandboxError for a file that was not written by `save_state`."""
    try:
        document = msgspec.json.decode(path.read_bytes())
        store.load(document["store"])
        batch.load(document["batch"])
    except (OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise SandboxError(
            f"the kept state {path} can't be read ({error}); delete it to begin anew"
        ) from error


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replaced as a whole, readable by its owner only."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=mode)
    fresh.write_bytes(content)
    fresh.replace(path)


def kubeconfig_text(url: str) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifests.kubeconfig(url)), indent=2)


def converter_text(url: str) -> bytes:
    """Runs the client part with this very interpreter. Isolated (-I): the modules beside the script
    must not hide the standard library's; without site packages (-S): it needs none."""
    script = Path(__file__).with_name("node_convert.py")
    words = " ".join(shlex.quote(word) for word in (sys.executable, "-I", "-S", str(script), url))
    return f'#!/bin/sh\nexec {words} "$@"\n'.encode()
