"""The lease of an instance, at the edge: read and written."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from dnm.host.place import this_place
from dnm.model.cluster import ConfigMap
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, LeaseError
from dnm.model.lease import RecordLease
from dnm.model.registry import Registry
from dnm.plan.record_lease import Actor, Judgement, after_refusal, judge_lease, with_lease

if TYPE_CHECKING:
    from dnm.kube.client import KubeClient

_TRIES = 5  # against others who write at the same time
_OTHERS_WRITE = (
    f"the queue document's ConfigMap was changed by others {_TRIES} times in a row while dnm "
    "wanted to write that it acts; the next run tries again"
)


def take_lease(
    config: Config,
    kube: KubeClient,
    registry: Registry,
    save: Callable[[Registry], object],
    now: datetime,
    follows: bool = False,
) -> Registry:
    """Returns the registry that holds the instance's lease. A new token is saved before it is
    written, so that a kill in between leaves it ours; of two that write at once the API server
    refuses one. `follows`: the run before may be asleep; what it is about to write there must meet
    another version.

    Raises LeaseError where it is another's, KubeError where it can't be read or written.
    """
    for _ in range(_TRIES):
        found = _read(config, kube)
        if found is None:
            return registry
        judged = judge_here(config, found, registry, now)
        if judged.refusal:
            save(after_refusal(registry, judged))
            raise LeaseError(judged.refusal)
        if not (judged.is_due or follows):
            return registry
        lease = new_lease(config, judged.now)
        registry = _holding(registry, *filter(None, [judged.ours, lease]))
        save(registry)
        if _write(config, kube, found, lease):
            return _holding(registry, lease)
    raise KubeConflict(_OTHERS_WRITE)


def put_lease(config: Config, kube: KubeClient, lease: RecordLease) -> None:
    """Writes this lease, whoever has it now. Raises KubeError."""
    for _ in range(_TRIES):
        found = _read(config, kube)
        if found is None or _write(config, kube, found, lease):
            return
    raise KubeConflict(_OTHERS_WRITE)


def judge_here(
    config: Config, config_map: ConfigMap, registry: Registry, now: datetime
) -> Judgement:
    """Tells whether this registry may act, from here."""
    place = this_place(config)
    actor = Actor(instance=config.instance_id, place=place, registry=registry, now=now)
    return judge_lease(config_map, actor)


def new_lease(config: Config, at: datetime) -> RecordLease:
    """Returns a lease of this dnm that nobody else has."""
    place, token = this_place(config), os.urandom(8).hex()
    return RecordLease(holder=place.holder, token=token, at=at, home=place.home, boot=place.boot)


def _read(config: Config, kube: KubeClient) -> ConfigMap | None:
    """The ConfigMap; None: there is none to be written, so nobody can change a limit either."""
    found = kube.read_config_map(*config.queue_document)
    return None if found is None or found.immutable else found


def _write(config: Config, kube: KubeClient, found: ConfigMap, lease: RecordLease) -> bool:
    """Whether nobody else wrote in between."""
    try:
        kube.write_config_map(with_lease(found, config.instance_id, lease))
    except KubeConflict:
        return False
    return True


def _holding(registry: Registry, *leases: RecordLease) -> Registry:
    return msgspec.structs.replace(registry, leases=leases, others_lease=None)
