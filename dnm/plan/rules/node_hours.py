"""`node_hours_per_week`: the budget of node-hours that a namespace has in each week. Pure.

The rule: a node is lent only while an hour is left for it and for each node that its namespace has
or has requested. Once the budget is used up, the namespace's nodes are fenced, their pods end, and
they are returned. The week begins on Monday, 00:00 UTC. Nodes count from when the converter names
them until they are back in Slurm. Only nodes that pods keep after that can exceed a budget."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import SpentHours
from dnm.model.reason import ReasonText
from dnm.model.registry import Registry
from dnm.plan.hooks import CountedFrom, Leave, Rule
from dnm.sizing.caps import Bound

if TYPE_CHECKING:  # `dnm status` needs only the remaining hours
    from dnm.plan.inputs import Inputs

HOURS_SPENT = ReasonText(
    "the node-hours of its namespace's week are used up",
    "Monday, 00:00 UTC, or a higher node_hours_per_week",
    has_pod_event=True,
    name="HOURS_SPENT",
)
_KEY, _HOUR = "node_hours_per_week", timedelta(hours=1)


def week_of(now: datetime) -> datetime:
    """Returns the start of the week that contains this time: Monday, 00:00."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=now.weekday())


def hours_left(config: Config, registry: Registry, now: datetime) -> dict[str, float]:
    """Returns the remaining node-hours of this week for each namespace with a budget. They are
    below zero if pods have kept nodes since the budget was used up."""
    week = week_of(now)
    return {
        name: policy.options[_KEY] - _used(config, registry, name, week, now) / _HOUR
        for name, policy in config.namespaces.items()
        if _KEY in policy.options
    }


def _used(
    config: Config, registry: Registry, namespace: str, week: datetime, now: datetime
) -> timedelta:
    spent = registry.spent_hours.get(namespace)
    earlier = timedelta(seconds=spent.seconds) if spent and spent.week == week else timedelta()
    current = [_span(entry, week, now) for entry in _entries(config, registry, namespace)]
    return sum(current, earlier)


def _entries(config: Config, registry: Registry, namespace: str) -> list[LentNode]:
    return [
        entry
        for entry in registry.nodes.values()
        if entry.namespace == namespace and entry.owner == config.instance_id
    ]


def _span(entry: LentNode, week: datetime, now: datetime) -> timedelta:
    return max(now - max(entry.moved_at or entry.lent_from, week), timedelta())


def hour_bounds(config: Config, registry: Registry, now: datetime) -> Iterator[Bound]:
    """Yields how many more nodes may be lent by each namespace's budget of node-hours."""
    for name, left in hours_left(config, registry, now).items():
        lent = len(_entries(config, registry, name))
        lent += sum(node.heads_for == name != node.namespace for node in registry.nodes.values())
        lent += sum(claim.namespace == name for claim in registry.claimed.values())
        lent += sum(request.count for request in registry.requests if request.namespace == name)
        yield Bound(
            name=f"{_KEY} of namespace {name}",
            left=max(0, int(left) - lent),
            reason=HOURS_SPENT,
            namespaces=frozenset((name,)),
        )


def record_hours(config: Config, before: Registry, after: Registry, now: datetime) -> Registry:
    """Returns `after` with the node-hours of this week for nodes that have left since `before`, or
    serve another namespace now."""
    week = week_of(now)
    spent = {}
    for name, policy in config.namespaces.items():
        if _KEY not in policy.options:
            continue
        spent_so_far = after.spent_hours.get(name)
        is_of_week = spent_so_far is not None and spent_so_far.week == week
        seconds = spent_so_far.seconds if spent_so_far and is_of_week else 0.0
        seconds += sum(
            _span(entry, week, now).total_seconds()
            for node, entry in before.nodes.items()
            if node not in after.nodes or after.nodes[node].namespace != name
            if entry.namespace == name and entry.owner == config.instance_id
        )
        if seconds:
            spent[name] = SpentHours(week=week, seconds=seconds)
    return msgspec.structs.replace(after, spent_hours=spent)


def _bounds(asked: CountedFrom) -> Iterator[Bound]:
    yield from hour_bounds(asked.config, asked.registry, asked.facts.now)


def _overdrawn(inputs: Inputs, registry: Registry) -> Iterator[str]:
    left = hours_left(inputs.config, registry, inputs.now)
    for name, entry in registry.nodes_of(inputs.config.instance_id, Phase.SERVING).items():
        if left.get(entry.namespace, 1.0) <= 0:
            yield name


def _is_over(inputs: Inputs, registry: Registry, name: str) -> bool:
    left = hours_left(inputs.config, registry, inputs.now)
    return left.get(registry.nodes[name].namespace, 1.0) > 0


RULE = Rule(
    reasons=(HOURS_SPENT,),
    bounds=_bounds,
    records=lambda change: record_hours(change.config, change.before, change.after, change.now),
    leave=Leave(
        word="spent",
        reason="node_hours_per_week of its namespace is used up",
        find_nodes=_overdrawn,
        is_over=_is_over,
        needs_lent_since=True,
    ),
)
