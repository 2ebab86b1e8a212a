"""The files of a sandbox, which only their owner can read: kubeconfig and converter."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import msgspec

from dnm.lab.sandbox import manifests


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replaces the file atomically. By default only its owner can read it."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=mode)
    fresh.write_bytes(content)
    fresh.replace(path)


def kubeconfig_text(url: str) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifests.kubeconfig(url)), indent=2)


def converter_text(url: str) -> bytes:
    """Returns a script that runs `node_convert.py` with this interpreter: isolated (-I), so that
    modules beside the script do not hide the standard library's, and without site packages (-S)."""
    script = Path(__file__).with_name("node_convert.py")
    words = " ".join(shlex.quote(word) for word in (sys.executable, "-I", "-S", str(script), url))
    return f'#!/bin/sh\nexec {words} "$@"\n'.encode()
