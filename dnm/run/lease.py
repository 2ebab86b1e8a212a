"""The taking of the Lease for a registry."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.errors import LeaseError
from dnm.model.registry import Registry
from dnm.plan.lease import Actor, Judgement, judge_lease, secret_word
from dnm.run.registry import save_registry
from dnm.run.state import State

if TYPE_CHECKING:
    from dnm.kube.client import KubeClient


def judge_here(config: Config, state: State, registry: Registry, now: datetime) -> Judgement:
    """Returns whether this run may act for the instance with this registry, and if not, why."""
    instance, secret = config.instance_id, secret_word(config)
    actor = Actor(instance=instance, place=state.place, registry=registry, now=now, secret=secret)
    return judge_lease(state.observe(), actor)


def new_word() -> str:
    """Returns a new random name of a registry, by which the Lease names the one that may act."""
    return os.urandom(8).hex()


def take_lease(
    config: Config, state: State, registry: Registry, kube: KubeClient, now: datetime
) -> Registry:
    """Takes the Lease for this registry and returns the registry. Saves a new name of the registry
    before the Lease has it, so that a kill in between does no harm. Raises LeaseError if another
    registry acts, LockedError if another run does, KubeError if the Lease cannot be read."""
    judged = judge_here(config, state, registry, now)
    if judged.refusal:
        raise LeaseError(judged.refusal)
    if judged.needs_word and not state.registry:
        state.registry = new_word()
        registry = replace(registry, lease_words=(*registry.lease_words[-1:], state.registry))
        save_registry(config, registry, state)
    state.begin()
    if state.needs_exclusion:
        from dnm.run.exclusion import exclude_earlier_writes  # few runs are killed

        exclude_earlier_writes(config, kube, state)
    return replace(registry, lease_words=(state.registry,), elsewhere=None)


def follow_run(
    config: Config, state: State, now: datetime, registry: Registry, kube: KubeClient
) -> Registry:
    """Takes a Lease that the previous run did not release: that run may be asleep just before a
    write. Returns the changed registry, or the unchanged one if this run must not act."""
    if judge_here(config, state, registry, now).refusal:
        return registry
    taken = take_lease(config, state, registry, kube, now)
    if state.kind == "kubernetes":
        save_registry(config, taken, state)  # its number excludes earlier runs
    return taken
