"""The files of a sandbox: kubeconfig, converter, kept state. Only their owner can read them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dnm.model.errors import SandboxError
from dnm.sandbox import manifests

if TYPE_CHECKING:
    from dnm.sandbox.cluster import Sandbox

KEPT_STATE = "kept-state.json"


def save_state(sandbox: Sandbox, path: Path) -> None:
    """Everything but requests, faults and what is under way, as one JSON document."""
    with sandbox.lock:
        document = {"store": sandbox.store.dump(), "batch": sandbox.batch.dump()}
        content = msgspec.json.encode(document)
    write_file(path, content)


def load_state(sandbox: Sandbox, path: Path) -> None:
    """Raises SandboxError for a file that was not written by `save_state`."""
    try:
        document = msgspec.json.decode(path.read_bytes())
        with sandbox.lock:
            sandbox.store.load(document["store"])
            sandbox.batch.load(document["batch"])
            sandbox.yunikorn.restart()
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
