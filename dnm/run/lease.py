"""Takes the Lease for a registry, and excludes the write of a run that may still be asleep."""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.errors import KubeConflict, LeaseError
from dnm.model.registry import Registry
from dnm.plan.lease import Actor, Judgement, judge_lease, secret_word
from dnm.run.registry import save_registry
from dnm.run.state import State

if TYPE_CHECKING:
    from dnm.kube.client import KubeClient

_TRIES = 5  # against other clients that write at the same time
_FENCE = "dynamic-node-manager/fence"
"""An annotation of the queue document. It decides nothing, but a write of it gives the document
another version, so that the API server refuses a write which an earlier run has prepared."""


def judge_here(config: Config, state: State, registry: Registry, now: datetime) -> Judgement:
    """Decides whether this registry may act from here."""
    instance, secret = config.instance_id, secret_word(config)
    actor = Actor(instance=instance, place=state.place, registry=registry, now=now, secret=secret)
    return judge_lease(state.observe(), actor)


def new_word() -> str:
    """Returns a word for a registry that no other registry has."""
    return os.urandom(8).hex()


def take_lease(
    config: Config, state: State, registry: Registry, kube: KubeClient, now: datetime
) -> Registry:
    """Returns the registry that holds the Lease from now on. A new word is saved first, so that the
    registry has it after a kill in between. Raises LeaseError if another registry acts, LockedError
    if another run does, KubeError if the Lease cannot be read."""
    judged = judge_here(config, state, registry, now)
    if judged.refusal:
        raise LeaseError(judged.refusal)
    if judged.needs_word and not state.registry:
        state.registry = new_word()
        registry = replace(registry, lease_words=(*registry.lease_words[-1:], state.registry))
        save_registry(config, registry, state)
    state.begin()
    if state.is_unfenced:
        fence_queue_document(config, kube, state)
    return replace(registry, lease_words=(state.registry,), elsewhere=None)


def follow_run(
    config: Config, state: State, now: datetime, registry: Registry, kube: KubeClient
) -> Registry:
    """Takes a Lease that the previous run did not release: that run may be asleep just before a
    write. Returns the registry as `take_lease` does."""
    if judge_here(config, state, registry, now).refusal:
        return registry
    taken = take_lease(config, state, registry, kube, now)
    if state.kind == "kubernetes":
        save_registry(config, taken, state)  # its number excludes earlier runs
    return taken


def fence_queue_document(config: Config, kube: KubeClient, state: State) -> None:
    """Gives the queue document another version. Raises KubeError."""
    read = partial(kube.read_config_map, *config.queue_document)
    for _ in range(_TRIES):
        queues = read()
        if queues is None or queues.immutable:
            break  # no run can change a limit
        state.keep(anew=True)
        text = f"{config.instance_id} {state.highest}"
        try:
            kube.write_config_map(replace(queues, annotations={**queues.annotations, _FENCE: text}))
            break
        except KubeConflict:
            continue
    else:
        raise KubeConflict(
            f"other clients changed the queue document {_TRIES} times in a row while dnm wanted to "
            "exclude writes of an earlier run; the next run tries again"
        )
    state.is_unfenced = False
