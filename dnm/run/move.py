"""The move of the registry of an instance from a file of this host into Kubernetes, or back.

At each moment at most one of the two places is valid. First dnm writes the registry to the new
place as an "arriving" document, which is not valid yet. Then it replaces the document in the old
place by a note that names the new one. Last it writes the valid document. If dnm is killed in
between, the same command completes the move. Until then no run of either place acts."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from dnm.converter.processes import this_host
from dnm.host.place import host_name
from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.history import Operation
from dnm.model.lent_state import ConverterProcess
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.stored_registry import ARRIVING, MOVED
from dnm.record.recording import record_operation
from dnm.record.transitions import Cause
from dnm.run.registry import encode_registry, load_registry
from dnm.run.state import State


def move_registry(
    config: Config, source: State, target: State, operation: Operation, cause: Cause
) -> Registry | None:
    """Moves the registry. Returns it, or None if it was in `target` already. The caller must have
    the right to act in both places. Raises RegistryError if neither or both have a registry."""
    here, there = _read_status(source), _read_status(target)
    if there == "":
        if here == "":
            raise RegistryError(
                f"there are two registries, in {source.where} and in {target.where}: dnm cannot "
                "decide which one is valid; remove the other one and its previous version"
            )
        if here == ARRIVING:  # an incomplete move away, which is cancelled
            source.write(_note(MOVED, target))
        return None
    if here == "":
        recorded = load_registry(config, cause.now, source)
        registry = record_operation(recorded, recorded, operation, cause)
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
        raise RegistryError(_missing_error(source, target))
    return registry


def check_existence(source: State, target: State) -> None:
    """Raises RegistryError if neither place has a registry. The check precedes the Lease, which
    would otherwise name a registry in Kubernetes that does not exist."""
    if _read_status(source) is None and _read_status(target) is None:
        raise RegistryError(_missing_error(source, target))


def _is_left(left: State, arriving: State) -> bool:
    """Returns whether an incomplete move leads from `left` to `arriving`: each document names the
    other place. If not, the valid registry may be in a third place."""
    moved, incoming = _decode(left.read() or b""), _decode(arriving.read() or b"")
    return (moved.get("version"), moved.get("where"), incoming.get("where")) == (
        MOVED, _named(arriving), _named(left)
    )  # fmt: skip


def _missing_error(source: State, target: State) -> str:
    """Returns why there is no registry to move: it never existed, it is now on another host, or
    another host has begun to move it."""
    for state in (source, target):
        if state.kind == "kubernetes" and _read_status(state) == MOVED:
            where = _decode(state.read() or b"").get("where")
            return (
                f"there is no registry here: it was moved from {state.where} to "
                f"{printable(str(where), 300)}; run this command there, or restore it there first"
            )
    for state in (source, target):
        if _read_status(state) == ARRIVING:
            where = _decode(state.read() or b"").get("where")
            return (
                f"the registry on its path to {state.where} is from {printable(str(where), 300)} "
                "and may still be valid there: run this command there"
            )
    return (
        f"there is no registry in {source.where} that could be moved, and none in "
        f"{target.where}: set registry = {target.kind} in [settings], and the next run creates one"
    )


def _signed(registry: Registry) -> Registry:
    """Returns the registry with this host's name on each converter: only this host sees its end."""

    def sign(process: ConverterProcess | None) -> ConverterProcess:
        here = this_host()
        return here if process is None else replace(process, host=process.host or here.host)

    requests = tuple(
        request if request.end else replace(request, converter=sign(request.converter))
        for request in registry.requests
    )
    nodes = {
        name: entry.with_state(converter=sign(entry.converter)) if entry.converter else entry
        for name, entry in registry.nodes.items()
    }
    return replace(registry, requests=requests, nodes=nodes)


def _read_status(state: State) -> str | None:
    """Returns "" for a valid registry, MOVED or ARRIVING for a document of a move, else None."""
    content = state.read()
    if content is None:
        if missing := state.missing_error():
            raise RegistryError(missing)
        return None
    version = _decode(content).get("version")
    return version if version in (MOVED, ARRIVING) else ""


def _note(version: str, other: State, registry: Registry | None = None) -> bytes:
    """Returns a document that replaces the registry in one place and names the other place."""
    document: dict[str, Any] = {"version": version, "where": _named(other)}
    if registry is not None:
        document["registry"] = registry
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"


def _named(state: State) -> str:
    """Returns a unique description of a registry's place. For a file, it contains the host."""
    return f"{host_name()}:{state.where}" if state.kind == "file" else state.where


def _arriving(state: State) -> Registry:
    try:
        return msgspec.convert(_decode(state.read() or b"").get("registry"), Registry)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RegistryError(
            f"the registry on its path to {state.where} can't be read: {error}"
        ) from error


def lease_words_of(state: State) -> tuple[str, ...]:
    """Returns the names (`lease_words`) by which the Lease knows the registry in `state`."""
    document = _decode(state.read() or b"")
    inner = document.get("registry")
    words = (inner if isinstance(inner, dict) else document).get("lease_words", ())
    return tuple(word for word in words if isinstance(word, str))


def _decode(content: bytes) -> dict[str, Any]:
    """Returns the parsed document; empty if it is malformed, since `load_registry` reports that."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
