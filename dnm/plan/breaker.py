"""The breaker of a queue: it opens (trips) when nodes that the queue got went unused, and then the
queue gets no more until its demand changes or a person says so. Pure.

A node that goes back unused counts, and so does one that stands unused; three in a row
trip it. A node that was used, or whose quota is, forgets all. Demand that changes is another
chance, at once after the first trip and later after each further one: with one node at a time, and
one more that goes unused trips it again.

And the back-off of a node type: from the second failure in a row on, the next conversion waits
longer and asks for fewer nodes; a node that joins ends it. And the cooldown after any conversion.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import Backoff, Breaker
from dnm.model.registry import Registry
from dnm.model.value import Value

if TYPE_CHECKING:
    from dnm.demand.demand import Demand  # `dnm status` does without


def judge_breaker(
    config: Config, registry: Registry, queue: str, demand: str, now: datetime
) -> Breaker | None:
    """The queue's breaker if it is tripped, for a queue that wants a conversion; `demand` is the
    fingerprint of its pending pods. None: it may convert.

    Changed demand is another chance (`take_chance`). But demand that changes all the time helps
    nobody either: each chance that went unused makes the next one later. As many nodes as
    `min_nodes` keeps, or what raises it now, are meant to stand unused.
    """
    breaker = registry.breakers.get(queue, Breaker())
    if breaker.tripped_at is not None:
        is_another = not breaker.demand or breaker.demand != demand  # an image has none
        return None if is_another and now >= next_chance(config, breaker) else breaker
    had_its_time = now - 2 * config.check_interval
    unused = sum(
        1
        for entry in registry.nodes.values()
        if entry.queue == queue
        and entry.phase is Phase.SERVING
        and not entry.was_used
        and entry.stays_until is None
        and entry.since <= had_its_time
    )
    meant = sum(
        namespace.min_nodes for namespace in config.namespaces.values() if namespace.queue == queue
    )
    unused = max(0, unused - meant)
    if breaker.unused + unused < config.breaker_strikes:
        return None
    return Breaker(
        unused=breaker.unused + unused, tripped_at=now, demand=demand, trips=breaker.trips + 1
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
    return Breaker(unused=config.breaker_strikes - 1, trips=breaker.trips)


def allowed_at_once(breaker: Breaker | None, count: int) -> int:
    """How many of `count` nodes a queue may ask for in one conversion."""
    return 1 if breaker is not None and breaker.trips else count


def after_transition(
    breakers: Mapping[str, Breaker], before: LentNode, after: LentNode | None
) -> Mapping[str, Breaker]:
    """The breakers once a node has been looked at; `after` None: it has gone back. Unused, that
    counts, if it ever served, left because it was unused, and the breaker has not tripped; used,
    all is forgotten."""
    was_used = before.was_used if after is None else after.was_used and not before.was_used
    if was_used:
        return _closed(breakers, before.queue)
    breaker = breakers.get(before.queue, Breaker())
    counts_not = before.leaves is not None or before.stays_until is not None
    if after is not None or not before.counted or counts_not or breaker.tripped_at is not None:
        return breakers
    one_more = msgspec.structs.replace(breaker, unused=breaker.unused + 1)
    return {**breakers, before.queue: one_more}


def forgive(breakers: Mapping[str, Breaker], queue: str) -> dict[str, Breaker]:
    """The breakers once a node of the queue goes that was there for headroom alone: no pod was to
    use it, so its going back will not count."""
    breaker = breakers.get(queue, Breaker())
    if breaker.tripped_at is not None:
        return dict(breakers)
    return {**breakers, queue: msgspec.structs.replace(breaker, unused=breaker.unused - 1)}


def note_used_quota(
    registry: Registry, names: Container[str], demand: Demand, limits: Mapping[str, QueueLimits]
) -> Registry:
    """A node whose quota is used has helped its queue, even if the pods run elsewhere. `names`:
    those that these limits count; of another node no quota can be used yet."""
    nodes, breakers = dict(registry.nodes), registry.breakers
    for name, entry in registry.nodes.items():
        if name not in names or entry.phase is not Phase.SERVING:
            continue
        queue, limit = demand.queues.get(entry.queue), limits.get(entry.queue)
        if entry.was_used or queue is None or limit is None:
            continue
        if any(
            queue.used.get(resource, 0) > limit.max[resource] - entry.counted.get(resource, 0)
            for resource in limit.max.keys() - limit.fixed
        ):
            nodes[name] = msgspec.structs.replace(entry, was_used=True)
            breakers = _closed(breakers, entry.queue)
    return msgspec.structs.replace(registry, nodes=nodes, breakers=breakers)


def _closed(breakers: Mapping[str, Breaker], queue: str) -> dict[str, Breaker]:
    return {path: breaker for path, breaker in breakers.items() if path != queue}


LONGEST_BACKOFF = timedelta(hours=1)


class ConversionResult(Value):
    """How a conversion of a node type went: a node of it has joined, or `error` says what failed
    for `count` nodes."""

    node_type: str
    count: int = 1
    error: str = ""


def backoff_delay(config: Config, failures: int) -> timedelta:
    """Doubling from one check interval, an hour at most."""
    doubled: int = 2 ** min(failures, 12)
    return min(config.check_interval * doubled, LONGEST_BACKOFF)


def conversion_delay(config: Config, failures: int) -> timedelta:
    """Returns how long a node type waits after so many failures in a row. The first may be that of
    one node, so the next run tries others at once."""
    return backoff_delay(config, failures - 1) if failures > 1 else timedelta(0)


def with_failure(
    config: Config, before: Backoff | None, asked: int, now: datetime, error: str
) -> Backoff:
    """Returns the back-off after a failed conversion. From the second in a row on, the next one
    waits longer and asks for half as many."""
    failures = (before.failures if before else 0) + 1
    most = min(asked, before.ask_at_most) if before else asked
    return Backoff(
        failures=failures,
        until=now + conversion_delay(config, failures),
        ask_at_most=max(1, most // 2) if failures > 1 else most,
        last_error=error,
        since=now,
    )


def after_conversions(
    config: Config,
    backoffs: Mapping[str, Backoff],
    results: Iterable[ConversionResult],
    now: datetime,
) -> dict[str, Backoff]:
    """The back-offs after this look's results, in their order. A type fails once in a look, however
    many nodes it was: they were one conversion."""
    changed = dict(backoffs)
    failed: set[str] = set()
    for result in results:
        node_type = result.node_type
        if not result.error:
            changed.pop(node_type, None)
        elif node_type not in failed:
            failed.add(node_type)
            changed[node_type] = with_failure(
                config, changed.get(node_type), result.count, now, result.error
            )
    return changed


def cooldown_end(config: Config, registry: Registry, now: datetime) -> datetime | None:
    """Returns when the pause after the last conversion is over; None: there is none now."""
    last = registry.last_conversion
    # A moment in the future was written by a host whose clock was wrong: it brakes nothing.
    if last is None or not last <= now < last + config.global_cooldown:
        return None
    return last + config.global_cooldown


def backoffs_in_force(registry: Registry, now: datetime) -> dict[str, Backoff]:
    """Returns the back-offs, by node type, that hold conversions back now."""
    return {name: backoff for name, backoff in registry.backoffs.items() if now < backoff.until}
