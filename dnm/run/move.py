"""Moves the registry of an instance from a file of this host into Kubernetes, or back.

At each moment at most one of the two places is in force. First the other place gets the document as
one that is arriving, then the old place says where it went, then the other place gets it as it is.
A move that was killed in between is ended by the same words once more; until then no run of either
place acts.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from dnm.converter.processes import this_host
from dnm.host.place import host_name
from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.history import Operation
from dnm.model.lent import ConverterProcess
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.stored_registry import ARRIVING, MOVED
from dnm.record.tell import tell_operation
from dnm.record.transitions import Cause
from dnm.run.registry import encode_registry, load_registry
from dnm.run.state import State


def move_registry(
    config: Config, source: State, target: State, operation: Operation, cause: Cause
) -> Registry | None:
    """Moves it, and returns what stands in `target` now; None: it stood there before. Both places
    are acted from. Raises RegistryError where there is none to move, or one in each place."""
    here, there = _standing(source), _standing(target)
    if there == "":
        if here == "":
            raise RegistryError(
                f"there are two registries, in {source.where} and in {target.where}: nobody but "
                "you knows which one is right; remove the other, and what is kept before it"
            )
        if here == ARRIVING:  # a move away that was not ended, and is given up
            source.write(_note(MOVED, target))
        return None
    if here == "":
        found = load_registry(config, cause.now, source)
        registry = tell_operation(found, found, operation, cause)
        registry = replace(registry, lease_words=(target.registry or source.registry,))
        if target.kind == "kubernetes":
            registry = _signed(registry)
        target.write(_note(ARRIVING, source, registry))
        source.write(_note(MOVED, target))
        target.write(encode_registry(registry))
    elif there == ARRIVING and _is_left(source, target):
        registry = _arriving(target)
        source.write(_note(MOVED, target))
        target.write(encode_registry(registry))
    elif here == ARRIVING and _is_left(target, source):
        registry = _arriving(source)
        target.write(encode_registry(registry))
        source.write(_note(MOVED, target))
    else:
        raise RegistryError(_why_none(source, target))
    return registry


def _is_left(left: State, arriving: State) -> bool:
    """Whether what is arriving in one is what the other has let go: each names the other. What a
    host began to move may be in force there still, or have gone on from there."""
    gone, come = _decode(left.read() or b""), _decode(arriving.read() or b"")
    return (gone.get("version"), gone.get("where"), come.get("where")) == (
        MOVED, _named(arriving), _named(left)
    )  # fmt: skip


def _why_none(source: State, target: State) -> str:
    """Why there is none to be moved: it never was, it went on from here to another host, or another
    has begun to move it."""
    for state in (source, target):
        if state.kind == "kubernetes" and _standing(state) == MOVED:
            where = _decode(state.read() or b"").get("where")
            return (
                f"there is no registry here: it was moved from {state.where} to "
                f"{printable(str(where), 300)}; say this where it is, or restore it there first"
            )
    for state in (source, target):
        if _standing(state) == ARRIVING:
            where = _decode(state.read() or b"").get("where")
            return (
                f"what is on its way to {state.where} comes from {printable(str(where), 300)}, and "
                "may be in force there still: say this there"
            )
    return (
        f"there is no registry in {source.where} that could be moved, and none in "
        f"{target.where}: set state = {target.kind} in [settings], and the next run begins one"
    )


def _signed(registry: Registry) -> Registry:
    """With the host whose converters these are: others are to read it too."""

    def sign(process: ConverterProcess | None) -> ConverterProcess:
        here = this_host()
        return here if process is None else replace(process, host=process.host or here.host)

    requests = tuple(
        request if request.ended else replace(request, converter=sign(request.converter))
        for request in registry.requests
    )
    nodes = {
        name: entry if entry.converter is None else replace(entry, converter=sign(entry.converter))
        for name, entry in registry.nodes.items()
    }
    return replace(registry, requests=requests, nodes=nodes)


def _standing(state: State) -> str | None:
    """MOVED or ARRIVING, empty for a registry in force, None where there is none."""
    content = state.read()
    if content is None:
        if missing := state.why_missing():
            raise RegistryError(missing)
        return None
    version = _decode(content).get("version")
    return version if version in (MOVED, ARRIVING) else ""


def _note(version: str, other: State, registry: Registry | None = None) -> bytes:
    """What stands in a place whose registry is not in force. A file is on one host."""
    document: dict[str, Any] = {"version": version, "where": _named(other)}
    if registry is not None:
        document["registry"] = registry
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"


def _named(state: State) -> str:
    """What a place is called everywhere."""
    return f"{host_name()}:{state.where}" if state.kind == "file" else state.where


def _arriving(state: State) -> Registry:
    try:
        return msgspec.convert(_decode(state.read() or b"").get("registry"), Registry)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RegistryError(
            f"what is on its way to {state.where} can't be read: {error}"
        ) from error


def lease_words_of(state: State) -> tuple[str, ...]:
    """Returns the words by which a Lease names this registry, also one that is on its way."""
    document = _decode(state.read() or b"")
    inner = document.get("registry")
    words = (inner if isinstance(inner, dict) else document).get("lease_words", ())
    return tuple(word for word in words if isinstance(word, str))


def _decode(content: bytes) -> dict[str, Any]:
    """An object; what is none is judged where it is loaded."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
