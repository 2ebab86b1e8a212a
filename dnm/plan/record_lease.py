"""Who may act for an instance: one registry, whose lease stands beside the queue document.

Two registries with one `instance_id` would each count the cap for themselves, and a pause in one is
not known to the other. So who is about to act must hold the instance's lease: an annotation of the
queue document's ConfigMap, as client-go kept its leader elections before there were Lease objects.
A Lease object (`run/lease_lock.py`) says which run acts with one registry, and can't say which one:
hosts with another `state` or `state_namespace`, or a role without Leases, have only the document in
common, and what a sleeper writes there is refused by what stands there alone (MUTANT_LEDGER in
docs/model). It is written under the resourceVersion when another acts than before, and when it is
hours old; at rest it is only read. Who does not hold it is refused until its holder has not acted
for a day.

A registry is known by the token in it, wherever it lies: on shared storage a second host goes on
with it. Of copies the one that acts first exchanges the token, so that the others are refused. One
that was lost, or restored from an older copy, is known by its place: one path on one host has one
lock, and no other dnm can be there. A clone of the whole host has the same place too, but another
boot: it is told from this host after a restart by a lease that is younger than the restart.

All times are the API server's: a wrong clock of a host neither ends a lease nor keeps it.

A refused run passes on what converters of its own still print, and ends those that hang: nobody
else can. It lends, returns, marks, fences and edits nothing, and its record stays as it was: once
it may act again, it goes by what it sees then, as after any pause. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from dnm.model.cluster import ConfigMap
from dnm.model.config import Config
from dnm.model.errors import LeaseError
from dnm.model.lease import Place, RecordLease, RunLease
from dnm.model.plan import EndConverter, Plan, Snapshot
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.value import Unreadable, Value
from dnm.plan.refused_record import (
    refuse_plan,
    words_of_a_new_record,
    words_of_an_odd_lease,
    words_of_another,
)

_RENEWED_AFTER = timedelta(hours=6)  # in work it is written four times a day
_HELD_FOR = timedelta(days=1) + _RENEWED_AFTER  # so nobody else acts within a day of an act
_LONGEST = 4096  # characters
_LONGEST_NAME = 63  # of an annotation, behind its prefix


class Actor(Value):
    """Who wants to act, as what, and when by his own clock."""

    instance: str
    place: Place
    registry: Registry
    now: datetime


class Judgement(Value):
    """`refusal`: why he must not act; None: he may, once the lease is written where it `is_due`.
    `ours`: our lease as it was found. `others`: another's as it was found, or before it was taken
    off. `now`: by the server's clock. `note`: that somebody takes it off."""

    now: datetime
    refusal: str | None = None
    is_due: bool = False
    ours: RecordLease | None = None
    others: RecordLease | None = None
    note: str = ""


def lease_annotation(instance: str) -> str:
    """Returns the annotation that holds an instance's lease; Kubernetes bounds its length."""
    name = f"lease.{instance}"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:46]}.{hashlib.sha256(instance.encode()).hexdigest()[:16]}"
    return f"dynamic-node-manager/{name}"


def with_lease(config_map: ConfigMap, instance: str, lease: RecordLease) -> ConfigMap:
    """Returns the ConfigMap with this lease, all else as it is."""
    text = msgspec.json.encode(lease).decode()
    annotations = {**config_map.annotations, lease_annotation(instance): text}
    return msgspec.structs.replace(config_map, annotations=annotations)


def read_lease(annotations: Mapping[str, str], instance: str) -> RecordLease | None:
    """Returns the lease that stands there; None: none. Raises ValueError for what is no lease."""
    text = annotations.get(lease_annotation(instance), "")
    if not text:
        return None
    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} characters")
    try:
        found = msgspec.json.decode(text, type=RecordLease)
        return msgspec.structs.replace(found, at=found.at.astimezone(UTC))
    except (msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error


def judge_lease(config_map: ConfigMap, actor: Actor) -> Judgement:
    """Tells whether he may act now."""
    now, instance, here = config_map.read_at or actor.now, actor.instance, actor.place.holder
    try:
        standing = read_lease(config_map.annotations, instance)
    except ValueError as error:
        refusal = words_of_an_odd_lease(instance, here, lease_annotation(instance), str(error))
        return Judgement(now=now, refusal=refusal)
    if standing is None:
        return _judge_none(actor, now)
    if standing.token in [lease.token for lease in actor.registry.leases]:
        is_fresh = timedelta(0) <= now - standing.at < _RENEWED_AFTER
        is_due = not (is_fresh and is_written_here(standing, actor.place))
        return Judgement(now=now, is_due=is_due, ours=standing)
    if now - standing.at >= _HELD_FOR or _was_here(standing, actor.place, now):
        note = words_of_a_new_record(instance, actor.registry, standing)
        return Judgement(now=now, is_due=True, note=note)
    refusal = words_of_another(instance, here, standing)
    return Judgement(now=now, others=standing, refusal=refusal)


def check_held(config_map: ConfigMap, instance: str, registry: Registry) -> None:
    """Raises LeaseError where another registry, or another run with this one, has written itself
    there since this run did: it was asleep, and its numbers are old."""
    try:
        standing = read_lease(config_map.annotations, instance)
    except ValueError:
        standing = None  # judged before, and told by the next run
    if standing is not None and standing.token not in [one.token for one in registry.leases]:
        raise LeaseError(
            f"{printable(standing.holder, 300)} acts as instance {instance} since this run began: "
            "the queue document is left as it is"
        )


def after_refusal(registry: Registry, judged: Judgement) -> Registry:
    """Returns the registry that was refused: it remembers by whom, and what it held is no more."""
    if judged.others is None:
        return registry
    return msgspec.structs.replace(registry, leases=(), others_lease=judged.others)


def acts_elsewhere(registry: Registry, now: datetime) -> RecordLease | None:
    """Returns another's lease that the last run of this registry met and that is still held."""
    others = registry.others_lease
    return others if others is not None and now - others.at < _HELD_FOR else None


def _judge_none(actor: Actor, now: datetime) -> Judgement:
    """Nothing stands there: nobody has acted yet, or somebody takes it off, as `kubectl replace`
    does. What was once seen of another is believed for as long as if it still stood there."""
    others = acts_elsewhere(actor.registry, now)
    if others is not None and not _was_here(others, actor.place, now):
        gone = "; its mark was taken off the ConfigMap since"
        refusal = words_of_another(actor.instance, actor.place.holder, others, gone)
        return Judgement(now=now, others=others, refusal=refusal)
    note = (
        f"the annotation {lease_annotation(actor.instance)} is missing on the queue document's "
        "ConfigMap: two hosts with one instance_id find each other out by it; let whatever writes "
        "the ConfigMap keep the annotations of dynamic-node-manager"
    )
    return Judgement(now=now, is_due=True, note=note if actor.registry.leases else "")


def is_written_here(lease: RecordLease | RunLease, place: Place) -> bool:
    """Returns whether only this place, since this boot, can have written it. In a container, whose
    place may be another's too, nobody can say so."""
    return bool(place.home) and (lease.home, lease.boot) == (place.home, place.boot)


def _was_here(lease: RecordLease, place: Place, now: datetime) -> bool:
    """Whether the dnm of this very place wrote it, with a registry that it has no more."""
    is_home = bool(place.home) and lease.home == place.home
    return is_home and (lease.boot == place.boot or now - lease.at > place.up_for)


def judge_actor(config: Config, registry: Registry, snapshot: Snapshot) -> Judgement | None:
    """Tells whether this registry may act; None: there is no ConfigMap that could say so."""
    maps = snapshot.queue_maps
    if isinstance(maps, Unreadable) or maps[0] is None:
        return None
    actor = Actor(
        instance=config.instance_id,
        place=snapshot.place,
        registry=registry,
        now=snapshot.taken_at,
    )
    return judge_lease(maps[0], actor)


def with_judgement(plan: Plan, registry: Registry, judged: Judgement | None) -> Plan:
    """Returns the plan as far as it may be carried out; `registry` is the one that it began
    with."""
    if judged is None:
        return plan
    if judged.refusal:
        return refuse_plan(plan, after_refusal(registry, judged), judged.refusal)
    notes = (*plan.notes, judged.note) if judged.note else plan.notes
    known = None if judged.ours else registry.others_lease
    acting = msgspec.structs.replace(plan.registry, others_lease=known)
    return msgspec.structs.replace(plan, registry=acting, notes=notes)


def needs_lease(plan: Plan) -> bool:
    """Returns whether a plan does anything that only one registry may do."""
    return not all(isinstance(action, EndConverter) for action in plan.actions)
