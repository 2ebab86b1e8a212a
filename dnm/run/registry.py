"""The registry: one versioned JSON document, wherever it stands (`state.py`), failing closed.

A document that is unreadable, of a newer version, or holds an unknown phase stops the run: an empty
registry is only what a site has that never had one. The document before the last change is kept.
A file in the predecessor's flat form is taken over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.run.file_state import FileState
from dnm.run.state import HasStateObjects, State, unreadable

VERSION = 1
_GONE = ("needs", "unbuffered", "deficits")  # of an older dnm, and nobody reads them any more
MOVED, ARRIVING = "moved", "arriving"  # in its place: it is elsewhere, or not yet in force


@contextmanager
def opened_state(config: Config) -> Iterator[State]:
    """The place that the configuration names; in Kubernetes by a connection of its own. Raises
    KubeError."""
    if config.state == "file":
        yield file_state(config)
        return
    from dnm.kube.client import KubeClient

    with closing(KubeClient.connect(config)) as kube:
        state = state_in(config, kube)
        try:
            yield state
        finally:
            state.end()


def place_of(config: Config) -> str:
    """Returns where the registry is, for people."""
    if config.state == "file":
        return str(config.converted_nodes_path)
    from dnm.run.kube_state import full_name

    return f"Secret {full_name(config)}"


def file_state(config: Config) -> FileState:
    """Returns the place on this host, for those who may read it."""
    return FileState(config.converted_nodes_path, config.state_group)


def state_in(config: Config, kube: HasStateObjects) -> State:
    """Returns the place in the cluster behind this client."""
    from dnm.host.place import this_place
    from dnm.run.kube_state import KubeState, object_name
    from dnm.run.tenure import Tenure

    objects = kube.state_objects(config.state_namespace, object_name(config.instance_id))
    return KubeState(config, objects, Tenure(config, objects, this_place(config)))


def load_registry(config: Config, now: datetime, state: State | None = None) -> Registry:
    """The recorded state, from the place that is open or else the configured one; a site without a
    document and without its predecessor starts empty.

    Raises RegistryError, which says what to do, for anything that can't be trusted; KubeError where
    the registry is in Kubernetes, and nobody answers.
    """
    with _open_at(config, state) as place:
        return _load(config, place, now)


def _open_at(config: Config, state: State | None) -> AbstractContextManager[State]:
    """The place that is open already, or else the configured one."""
    return opened_state(config) if state is None else nullcontext(state)


def _load(config: Config, state: State, now: datetime) -> Registry:
    content = state.read()
    if content is None:
        if missing := state.why_missing():
            raise RegistryError(missing)
        from dnm.run.lost import remake  # a site is without a registry once

        return remake(config, state.where, now)
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(unreadable(state, f"it is not JSON ({error})")) from error
    if not isinstance(document, dict):
        raise RegistryError(unreadable(state, "it is not a JSON object"))
    if not document:  # also the predecessor's with no node: nobody can tell it from one that is cut
        raise RegistryError(unreadable(state, "it is empty (remove it if no node was ever lent)"))
    if "version" not in document:
        from dnm.run.lost import take_over

        return take_over(document, config, state, now)
    version = document["version"]
    if version in (MOVED, ARRIVING):
        raise RegistryError(_on_the_way(document, state))
    if version != VERSION:
        raise RegistryError(
            f"the registry {state.where} has version {version!r}, this dnm knows version "
            f"{VERSION}: run the dnm that wrote it, or restore an older copy"
        )
    if "nodes" not in document:
        raise RegistryError(unreadable(state, "it has no list of nodes"))
    for name in _GONE:
        document.pop(name, None)
    try:
        return msgspec.convert(document, Registry)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise RegistryError(unreadable(state, str(error))) from error


def _on_the_way(document: dict[str, Any], state: State) -> str:
    """What to do about a registry that is not in force here (`move.py`)."""
    if document["version"] == ARRIVING:
        return (
            f"the registry is on its way to {state.where}, and the move was not ended: say "
            f"`dnm state move --to {state.kind}` once more"
        )
    moved = (
        f"the registry was moved from {state.where} to {printable(str(document.get('where')), 300)}"
    )
    if state.kind == "kubernetes":
        return (
            f"{moved}, and that host alone acts: set state = file in its [settings], or say there "
            "`dnm state move --to kubernetes`"
        )
    return f"{moved}: set state = kubernetes in [settings] here, or say `dnm state move --to file`"


def encode_registry(registry: Registry) -> bytes:
    """The bytes of the document: equal registries give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(registry, order="sorted"), indent=1) + b"\n"


def save_registry(config: Config, registry: Registry, state: State | None = None) -> bool:
    """Writes it to the place that is open, or else the configured one, if it would change; says
    whether it did. Raises RegistryError; the old document is then still whole."""
    with _open_at(config, state) as place:
        return place.write(encode_registry(registry))


def write_registry(path: Path, registry: Registry, group: str = "") -> bool:
    """The same for a file, whatever the configuration says."""
    return FileState(path, group).write(encode_registry(registry))
