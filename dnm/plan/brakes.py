"""The brakes: what keeps a wanted conversion from being started now. Pure.

Caps are counted over the registry, every conversion under way, and every Node that carries our
mark. The cooldown is between conversions; a node type backs off after failures; the breaker stops a
queue whose nodes went unused, until its demand changes or a person says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.model.cluster import Node
from dnm.model.config import Config
from dnm.model.plan import Reason
from dnm.model.registry import Breaker, LentNode, Phase, Registry
from dnm.plan.phases import backoff_delay


def counted_as_lent(
    config: Config, registry: Registry, nodes: Mapping[str, Node]
) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of every node that counts under the caps: the union of lent
    nodes, nodes marked as ours, and conversions under way."""
    lent = [(entry.node_type, entry.namespace) for entry in registry.nodes.values()]
    lent += [
        (node.mark.node_type, node.mark.namespace)
        for name, node in nodes.items()
        if node.mark and node.mark.instance == config.instance_id and name not in registry.nodes
    ]
    for request in registry.requests:
        lent += [(request.node_type, request.namespace)] * request.count
    return lent


def is_paused(registry: Registry, now: datetime) -> bool:
    pause = registry.pause
    return pause is not None and (pause.until is None or now < pause.until)


def why_not_convert(
    config: Config, registry: Registry, node_type: str, now: datetime
) -> tuple[Reason, str] | None:
    """What holds a conversion of this type back for now; None: nothing does."""
    if is_paused(registry, now):
        assert registry.pause is not None
        return Reason.PAUSED, registry.pause.reason
    if registry.last_conversion is not None:
        # A moment in the future was written by a host whose clock was wrong: it brakes nothing.
        until = registry.last_conversion + config.global_cooldown
        if registry.last_conversion <= now < until:
            return Reason.COOLDOWN, f"until {until:%H:%M:%S} UTC"
    backoff = registry.backoffs.get(node_type)
    if backoff is not None and now < backoff.until:
        detail = f"{backoff.failures} of type {node_type}, until {backoff.until:%H:%M:%S} UTC"
        error = f"{backoff.last_error}; " if backoff.last_error else ""
        return Reason.BACKOFF, f"{detail}; {error}`dnm reset {node_type}` ends it"
    return None


def judge_breaker(
    config: Config, registry: Registry, queue: str, demand: str, now: datetime
) -> Breaker | None:
    """The queue's breaker if it is tripped, for a queue that wants a conversion; `demand` is the
    fingerprint of its pending pods. None: it may convert.

    Changed demand is another chance (`take_chance`). But demand that changes all the time helps
    nobody either: each chance that went unused makes the next one later.
    """
    breaker = registry.breakers.get(queue, Breaker())
    if breaker.tripped_at is not None:
        is_another = breaker.demand != demand and now >= next_chance(config, breaker)
        return None if is_another else breaker
    settled = now - 2 * config.check_interval
    unused = sum(
        1
        for entry in registry.nodes.values()
        if entry.queue == queue
        and entry.phase is Phase.SERVING
        and not entry.was_used
        and entry.since <= settled
    )
    if breaker.strikes + unused < config.breaker_strikes:
        return None
    return Breaker(
        strikes=breaker.strikes + unused, tripped_at=now, demand=demand, trips=breaker.trips + 1
    )


def next_chance(config: Config, breaker: Breaker) -> datetime:
    """When changed demand lets a tripped breaker convert again: at once after the first trip."""
    assert breaker.tripped_at is not None
    wait = backoff_delay(config, breaker.trips - 1) if breaker.trips > 1 else timedelta(0)
    return breaker.tripped_at + wait


def take_chance(config: Config, breaker: Breaker) -> Breaker:
    """A breaker that tripped, once its queue converts again: one node at a time, and one more that
    goes unused trips it again."""
    if breaker.tripped_at is None:
        return breaker
    return Breaker(strikes=config.breaker_strikes - 1, trips=breaker.trips)


def close_breaker(registry: Registry, queue: str) -> Breaker:
    """As a person wants it: the nodes that stand unused now are held against the queue no more,
    neither while they stand nor when they go back."""
    standing = (Phase.SERVING, Phase.RELEASING, Phase.RETURNING)
    forgiven = sum(
        entry.queue == queue and entry.phase in standing and not entry.was_used
        for entry in registry.nodes.values()
    )
    return Breaker(strikes=-forgiven)


def after_return(breakers: Mapping[str, Breaker], entry: LentNode) -> dict[str, Breaker]:
    """The breakers once a node has gone back: unused, it is a strike; used, all is forgotten."""
    changed = dict(breakers)
    before = changed.get(entry.queue, Breaker())
    if entry.was_used:
        changed.pop(entry.queue, None)
    elif entry.counted and before.tripped_at is None:
        changed[entry.queue] = msgspec.structs.replace(before, strikes=before.strikes + 1)
    return changed
