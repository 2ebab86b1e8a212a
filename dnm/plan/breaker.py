"""The circuit breaker of a queue. It trips if nodes of the queue went unused; then the queue gets
no node until its demand changes or an administrator resets it. Pure.

A node that is returned unused counts, and so does a serving node that is unused; three in a row
trip the breaker. A use of the node or of its quota resets the count. Changed demand is another
chance: at once after the first trip, later after each further one. Such a chance is one node at a
time, and one more unused node trips the breaker again.

Also here: the back-off of a node type (from the second failure in a row, the next conversion waits
longer and requests fewer nodes) and the cooldown after any conversion."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.lent_state import LentState, Returning, Serving
from dnm.model.observed import Backoff, Breaker
from dnm.model.registry import Registry
from dnm.model.value import Value

if TYPE_CHECKING:
    from dnm.demand.demand import Demand  # `dnm status` does without


def judge_breaker(
    config: Config, registry: Registry, queue: str, demand: str, now: datetime, joined: bool = True
) -> Breaker | None:
    """Returns the tripped circuit breaker of a queue that needs nodes, or None if it may get some.
    `demand` is a hash of its pending pods. Unused serving nodes count if `joined` is True: as many
    have joined as its pods need at once.

    If the pending pods change, the queue gets one more conversion (`take_chance`). If no pod uses
    its node either, the next one is delayed for longer: changing demand must not cause conversions
    all the time. Unused nodes that `min_nodes` keeps do not count."""
    breaker = registry.breakers.get(queue, Breaker())
    if breaker.tripped_at is not None:
        has_changed = not breaker.demand or breaker.demand != demand  # an image has none
        return None if has_changed and now >= next_chance(config, breaker) else breaker
    served_before = now - 2 * config.check_interval
    unused = sum(
        1
        for entry in registry.nodes.values()
        if joined
        and entry.queue == queue
        and entry.phase is Phase.SERVING
        and not entry.was_used
        and entry.stays_until is None
        and entry.since <= served_before
    )
    desired_idle = sum(
        namespace.min_nodes for namespace in config.namespaces.values() if namespace.queue == queue
    )
    unused = max(0, unused - desired_idle)
    if breaker.unused + unused < config.breaker_strikes:
        return None
    return Breaker(
        unused=breaker.unused + unused, tripped_at=now, demand=demand, trips=breaker.trips + 1
    )


def next_chance(config: Config, breaker: Breaker) -> datetime:
    """Returns when a queue with a tripped breaker may get a node: at once after the first trip."""
    assert breaker.tripped_at is not None
    wait = backoff_delay(config, breaker.trips - 1) if breaker.trips > 1 else timedelta(0)
    return breaker.tripped_at + wait


def take_chance(config: Config, breaker: Breaker) -> Breaker:
    """Returns the breaker of a queue that gets nodes again after a trip, one at a time. The next
    unused node trips the breaker again."""
    if breaker.tripped_at is None:
        return breaker
    return Breaker(unused=config.breaker_strikes - 1, trips=breaker.trips)


def allowed_at_once(breaker: Breaker | None, count: int, least: int = 1) -> int:
    """Returns how many of `count` nodes a queue may request now: all, or `least` after a trip."""
    return min(least, count) if breaker is not None and breaker.trips else count


def after_transition(
    breakers: Mapping[str, Breaker], before: LentNode, after: LentNode | None
) -> Mapping[str, Breaker]:
    """Returns the breakers after a node's transition from `before` to `after` (None: it was
    returned). A node that served and was never used counts against its queue, unless it left for
    another reason than idleness, or an administrator or Workload kept it. A used node closes it."""
    was_used = before.was_used if after is None else after.was_used and not before.was_used
    if was_used:
        return _closed(breakers, before.queue)
    breaker = breakers.get(before.queue, Breaker())
    is_exempt = before.leaves is not None or before.stays_until is not None or before.is_needed
    if after is not None or not before.counted or is_exempt or breaker.tripped_at is not None:
        return breakers
    changed_breaker = msgspec.structs.replace(breaker, unused=breaker.unused + 1)
    return {**breakers, before.queue: changed_breaker}


def forgive(breakers: Mapping[str, Breaker], queue: str) -> dict[str, Breaker]:
    """Returns the breakers after the release of an unused node that does not count against its
    queue, because a rule kept it and no pod was expected to use it."""
    breaker = breakers.get(queue, Breaker())
    if breaker.tripped_at is not None:
        return dict(breakers)
    return {**breakers, queue: msgspec.structs.replace(breaker, unused=breaker.unused - 1)}


def record_used_quota(
    registry: Registry, names: Container[str], demand: Demand, limits: Mapping[str, QueueLimits]
) -> Registry:
    """Returns the registry in which nodes count as used if pods use their quota, even on other
    nodes. `names` are the nodes that `limits` include; the quota of others cannot be used yet."""
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
    """The result of lending nodes of a type: a node has joined or, if `error` is set, `count` nodes
    failed for that reason."""

    node_type: str
    count: int = 1
    error: str = ""


def backoff_delay(config: Config, failures: int) -> timedelta:
    """Returns a delay: the check interval, doubled for each failure, but at most an hour."""
    doubled: int = 2 ** min(failures, 12)
    return min(config.check_interval * doubled, LONGEST_BACKOFF)


def conversion_delay(config: Config, failures: int) -> timedelta:
    """Returns how long dnm lends no nodes of a type after this many failures in a row. After the
    first, which may be the fault of one node, the next run tries other nodes at once."""
    return backoff_delay(config, failures - 1) if failures > 1 else timedelta(0)


def with_failure(
    config: Config, before: Backoff | None, asked: int, now: datetime, error: str
) -> Backoff:
    """Returns the back-off of a node type after one more failed conversion. From the second failure
    in a row, the next conversion waits longer and requests half as many nodes."""
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
    """Returns the back-offs by node type after the results of this run, applied in order. A type
    fails once in a run, however many of its nodes failed, since they belong to one conversion."""
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
    """Returns when the cooldown after the last conversion ends, or None without a cooldown now."""
    last = registry.last_conversion
    # A time in the future comes from a host with a wrong clock: it causes no cooldown.
    if last is None or not last <= now < last + config.global_cooldown:
        return None
    return last + config.global_cooldown


def active_backoffs(registry: Registry, now: datetime) -> dict[str, Backoff]:
    """Returns the back-offs that delay lending nodes of a type now, by node type."""
    return {name: backoff for name, backoff in registry.backoffs.items() if now < backoff.until}


def clamp_state(config: Config, state: LentState, now: datetime) -> LentState:
    """Returns a node's state without times that a wrong clock set too late. A return is tried again
    within its back-off after a failure, else within the converter's time limits."""
    state = msgspec.structs.replace(state, since=min(state.since, now))
    if isinstance(state, Serving) and (pause := state.move_pause):
        longest = backoff_delay(config, pause.attempts)
        pause = msgspec.structs.replace(pause, until=min(pause.until, now + longest))
        return msgspec.structs.replace(state, move_pause=pause)
    if isinstance(state, Returning) and state.retry_after:
        longest = config.convert_timeout + config.join_timeout
        if state.error and state.converter is None:
            longest = backoff_delay(config, state.attempts)
        return msgspec.structs.replace(state, retry_after=min(state.retry_after, now + longest))
    return state
