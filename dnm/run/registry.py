"""The registry: a versioned JSON document in a file or a Secret (`state.py`).

A document that is unreadable, of a newer version, or with an unknown phase stops the run. Only a
site that never had a registry begins with an empty one. The document before the last change is
kept. dnm reads a registry file of the predecessor and replaces it by its own form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from dnm.host.place import this_place
from dnm.model.config import Config
from dnm.model.lease import LEASE_NAMESPACE
from dnm.model.registry import Registry
from dnm.model.stored_registry import VERSION
from dnm.plan.lease import names_to_keep
from dnm.run.state import FileState, State

if TYPE_CHECKING:
    from dnm.kube.client import KubeClient


class _Head(msgspec.Struct):
    """The part of a registry document that dnm decodes first, to check its version."""

    version: int
    nodes: msgspec.Raw


_decode_head = msgspec.json.Decoder(_Head).decode
_decode = msgspec.json.Decoder(Registry).decode


@contextmanager
def opened_state(config: Config) -> Iterator[State]:
    """Yields the registry's storage. Connects to Kubernetes if it is a Secret. Raises KubeError."""
    if config.registry_storage == "file":
        yield file_state(config)
        return
    from dnm.kube.client import KubeClient

    with closing(KubeClient.connect(config)) as kube:
        state = state_in(config, kube)
        try:
            yield state
        finally:
            state.end()


def file_state(config: Config) -> FileState:
    """Returns the storage of a registry file, for commands that only read: they need no Lease."""
    return FileState(config)


def state_in(config: Config, kube: KubeClient) -> State:
    """Returns the storage of the registry in the cluster that the client is connected to."""
    from dnm.run.kube_state import KubeState

    places = config.registry_namespace, LEASE_NAMESPACE
    objects = kube.state_objects(*places, config.object_name)
    return KubeState(config, objects, this_place(config))


def attach_lease(config: Config, state: State, kube: KubeClient) -> None:
    """Connects a registry file's storage to the Lease. A Secret's storage is connected already."""
    if state.kind == "file":
        lease = kube.lease_object(LEASE_NAMESPACE, config.object_name)
        state.attach(lease, this_place(config))


def load_registry(config: Config, now: datetime, state: State | None = None) -> Registry:
    """Returns the registry from `state`, or else from the configured place. Returns an empty one if
    neither a document nor a history exists.

    Raises RegistryError with the next step for a document that cannot be trusted. Raises KubeError
    if the registry is in Kubernetes and the API server does not answer."""
    with opened_state(config) if state is None else nullcontext(state) as place:
        return _load(config, place, now)


def _load(config: Config, state: State, now: datetime) -> Registry:
    content = state.read()
    if content is None and state.begins_anew and state.number > 1:
        from dnm.plan.lost_registry import recreate  # by an administrator's decision

        begun = recreate(Registry(), state.kept, "its Lease shows", now)
        return msgspec.structs.replace(begun, lease_words=(state.registry,))
    if content is not None:
        with suppress(msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            if _decode_head(content).version == VERSION:
                return _decode(content)
    else:
        from dnm.record.history_file import has_history

        if not (state.missing_error() or has_history(config.converted_nodes_path)):
            return Registry()  # of a new site
    from dnm.run.odd_registry import read_unusual  # it is not a normal document

    return read_unusual(content, config, state, now)


def encode_registry(registry: Registry) -> bytes:
    """Returns the registry encoded as its JSON document. Equal registries give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(registry, order="sorted"), indent=1) + b"\n"


def save_registry(config: Config, registry: Registry, state: State | None = None) -> bool:
    """Writes the registry to `state`, or else to the configured place. Returns whether that changed
    the stored document. Raises RegistryError; the old document is intact then."""
    with opened_state(config) if state is None else nullcontext(state) as place:
        is_changed = place.write(encode_registry(registry))
        if place.number:
            place.kept = names_to_keep(registry)
        return is_changed
