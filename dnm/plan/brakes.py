"""The brakes: what keeps a wanted conversion from being started now. Pure.

Caps are counted over the registry, every conversion under way, and every Node that carries our
mark. The cooldown is between conversions; a node type backs off after failures. What stops a queue
whose nodes went unused is in `breaker.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from dnm.model.cluster import BatchNode
from dnm.model.config import Config
from dnm.model.plan import Reason
from dnm.model.registry import Backoff, Registry
from dnm.plan.batch_floors import floor_bounds
from dnm.plan.batch_waits import waiting_bounds
from dnm.plan.facts import Facts
from dnm.plan.kubelets import barred_types
from dnm.plan.node_hours import hour_bounds
from dnm.sizing.budget import Bound, ConversionBudget, count_left


def conversion_budget(config: Config, registry: Registry, facts: Facts) -> ConversionBudget:
    """What caps and the batch side leave, where nodes whose conversion was interrupted may be had
    like idle ones. A batch side that can't be read bounds nothing here: then no conversion is
    started at all."""
    resumable = {name: one for name, one in registry.claimed.items() if one.can_resume}
    claimed = {name: one for name, one in registry.claimed.items() if name not in resumable}
    others = msgspec.structs.replace(registry, claimed=claimed)
    at_hand = {} if facts.batch is None else _at_hand(config, registry, facts.batch)
    for one in resumable.values() if at_hand else ():
        at_hand[one.node_type] += 1
    lent = counted_as_lent(config, others, facts)
    budget = count_left(config, lent, at_hand, barred_types(config))
    resumed = Counter(one.node_type for one in resumable.values())
    return budget.within(_batch_bounds(config, registry, facts, resumed))


def fresh_budget(config: Config, registry: Registry, facts: Facts) -> ConversionBudget:
    """What the caps and Slurm's own needs leave for nodes that are claimed anew, with all that is
    claimed counted."""
    lent = counted_as_lent(config, registry, facts)
    budget = count_left(config, lent, {}, barred_types(config))
    return budget.within(_batch_bounds(config, registry, facts, {}))


def _batch_bounds(
    config: Config, registry: Registry, facts: Facts, resumable: Mapping[str, int]
) -> Iterator[Bound]:
    """What the rules on Slurm's behalf leave, as far as it could be asked."""
    if facts.batch is not None:
        yield from floor_bounds(config, registry, facts.batch, resumable)
    yield from waiting_bounds(config, facts)
    yield from hour_bounds(config, registry, facts.now)


def counted_as_lent(
    config: Config, registry: Registry, facts: Facts | None = None
) -> list[tuple[str, str]]:
    """Returns (node type, namespace) of every node that counts under the caps: the union of lent
    nodes, claimed nodes, conversions under way and, where there are facts, nodes marked as ours
    where none of them contradicts the mark."""
    lent = [(entry.node_type, entry.namespace) for entry in registry.nodes.values()]
    lent += [
        (one.node_type, one.namespace)
        for name, one in registry.claimed.items()
        if name not in registry.nodes
    ]
    if facts is not None:
        lent += [
            (node.mark.node_type, node.mark.namespace)
            for name, node in (facts.nodes or {}).items()
            if node.mark and node.mark.instance == config.instance_id
            if name not in registry.nodes and name not in registry.claimed
            if facts.is_lent_by(name, config.instance_id) is not False
        ]
    for request in registry.requests:
        lent += [(request.node_type, request.namespace)] * request.count
    return lent


def _at_hand(config: Config, registry: Registry, batch: Mapping[str, BatchNode]) -> dict[str, int]:
    """Node type -> batch nodes that could be lent now, by the converter's own judgement."""
    counts = Counter(
        config.type_of(name)
        for name, node in batch.items()
        if _can_be_lent(config, node) and name not in registry.nodes
    )
    return {node_type: counts[node_type] for node_type in config.node_types}


def _can_be_lent(config: Config, node: BatchNode) -> bool:
    return node.verdict == "OK" or (node.verdict == "PREEMPT" and config.allow_preempt)


def is_paused(registry: Registry, now: datetime) -> bool:
    pause = registry.pause
    return pause is not None and (pause.until is None or now < pause.until)


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


def why_wait(
    config: Config, registry: Registry, node_type: str, now: datetime
) -> tuple[Reason, str] | None:
    """The pause, the cooldown or the back-off that holds a conversion of this type back for now."""
    if is_paused(registry, now):
        assert registry.pause is not None
        return Reason.PAUSED, registry.pause.reason
    if (until := cooldown_end(config, registry, now)) is not None:
        return Reason.COOLDOWN, f"until {until:%H:%M:%S} UTC"
    if (backoff := backoffs_in_force(registry, now).get(node_type)) is not None:
        detail = f"{backoff.failures} of type {node_type}, until {backoff.until:%H:%M:%S} UTC"
        error = f"{backoff.last_error}; " if backoff.last_error else ""
        return Reason.BACKOFF, f"{detail}; {error}`dnm reset {node_type}` ends it"
    return None
