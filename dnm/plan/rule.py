"""Rules, the options of the planner: each is one file below `plan/rules` with its hooks, and one
line in the table. The core calls the enabled rules, and names none of them. Pure.

The table's order is the order of precedence: of two rules about one thing the first wins, and their
texts appear in that order. A rule that is off is not imported. A rule stays on after the removal of
its option as long as the record needs a cleanup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.registry import Registry
from dnm.plan.hooks import CountedFrom, Exclusion, Rule

if TYPE_CHECKING:
    from dnm.plan.facts import Facts
    from dnm.sizing.caps import Bound


IsOn = Callable[[Config, Registry, "Facts | None"], bool]


def has_events(config: Config, registry: Registry) -> bool:
    """Returns whether the configuration or the registry has planned events."""
    places = (config.events_dir, *config.calendar_events, *config.unread_events)
    return any(places) or bool(registry.events or registry.calendars)


def _excludes_nodes(config: Config, registry: Registry, facts: Facts | None) -> bool:
    keys = (config.exclude_nodes, config.exclude_partitions, config.exclude_features,
            config.exclude_reservations)  # fmt: skip
    left = (node.leaves == Leaving.EXCLUDED or node.is_unjudged for node in registry.nodes.values())
    return any(keys) or bool(registry.excluded or registry.held) or any(left)


def _has_floors(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return bool(config.partition_floors) or any(map(config.floor_of, config.node_types))


def _has_hours(config: Config, registry: Registry, facts: Facts | None) -> bool:
    budgets = ("node_hours_per_week" in item.options for item in config.namespaces.values())
    return any(budgets) or bool(registry.spent_hours)


def _reserves(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return bool(config.reserve_ahead or registry.reservation_attempts)


def _moves(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return config.move_in_place or any(
        node.phase is Phase.MOVING or node.failed_move or node.moved_at is not None
        for node in registry.nodes.values()
    )


def _opens(config: Config, registry: Registry, facts: Facts | None) -> bool:
    types, nodes = config.node_types.values(), registry.nodes.values()
    has_checks = any(node_type.readiness_checks for node_type in types)
    return has_checks or any(node.opening for node in nodes)


def _has_faults(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return bool(config.fault_conditions) or any(node.fault for node in registry.nodes.values())


def _charges(config: Config, registry: Registry, facts: Facts | None) -> bool:
    lent: list[Any] = [*registry.orders, *registry.nodes.values()]
    named = (namespace.charge_account for namespace in config.namespaces.values())
    return any(named) or any(item.account for item in lent)


SPARE_FOR = timedelta(minutes=10)  # until a half-empty node gets no new pods
CONSOLIDATED = "consolidated"  # the registry's reason why such a node leaves


def _consolidates(config: Config, registry: Registry, facts: Facts | None) -> bool:
    """Returns whether a lent node has served pods for long enough to be consolidated."""
    if not config.consolidate or facts is None:
        return False
    return bool(registry.spare_nodes) or any(
        node.leaves == CONSOLIDATED
        or (node.idle_since is None and facts.now - node.since >= SPARE_FOR)
        for node in registry.nodes.values()
    )


LOW_UTILIZATION_FOR = timedelta(hours=2)  # until nodes with low utilization are reported


def _serve_for_hours(config: Config, registry: Registry, facts: Facts | None) -> bool:
    sits, nodes = bool(registry.low_utilization), registry.nodes.values()
    return sits or any(facts and facts.now - node.since >= LOW_UTILIZATION_FOR for node in nodes)


# The file of each rule below `plan/rules`, and whether it is on.
TABLE: tuple[tuple[str, IsOn], ...] = (
    ("warm_share", lambda config, registry, facts: config.headroom < 1),
    ("events", lambda config, registry, facts: has_events(config, registry)),
    ("exclusions", _excludes_nodes),
    ("kubelets", lambda config, registry, facts: config.has_kubelets),
    ("opening", _opens),
    ("faults", _has_faults),
    ("batch_floors", _has_floors),
    ("max_lend", lambda config, registry, facts: bool(config.options.get("max_lend_hours"))),
    ("node_hours", _has_hours),
    ("moves", _moves),
    ("charges", _charges),
    ("event_reservations", _reserves),
    ("low_utilization", _serve_for_hours),
    ("consolidation", _consolidates),
)


def rules_of(config: Config, registry: Registry, facts: Facts | None = None) -> tuple[Rule, ...]:
    """Returns the rules (options of the planner) that are enabled now, in the table's order."""
    return tuple(rule_named(name) for name, is_on in TABLE if is_on(config, registry, facts))


def need_lent_since(rules: Iterable[Rule]) -> bool:
    """Returns whether any of the rules needs to know since when each node is lent."""
    return any(rule.leave and rule.leave.needs_lent_since for rule in rules)


def rule_named(name: str) -> Rule:
    """Imports and returns the rule (option of the planner) with this name in the table."""
    return cast(Rule, import_module(f"dnm.plan.rules.{name}").RULE)


def excluded_nodes(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> dict[str, str]:
    """Returns why nodes are excluded from lending, by node. `batch` is None if Slurm's facts about
    the nodes are unknown."""
    return {name: exclusion.why for name, exclusion in _exclusions(config, registry, batch, now)}


def nodes_to_return(config: Config, registry: Registry, facts: Facts) -> dict[str, str]:
    """Returns why nodes must be returned, by node: they were lent although they are excluded."""
    excluded = _exclusions(config, registry, facts.batch, facts.now)
    return {name: exclusion.why for name, exclusion in excluded if exclusion.must_return}


def _exclusions(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> Iterator[tuple[str, Exclusion]]:
    """Yields excluded nodes by the rules in reverse order: in a dict, the first rule then wins."""
    for rule in reversed(rules_of(config, registry)):
        if rule.excludes:
            yield from rule.excludes(config, registry, batch, now).items()


def list_bounds(asked: CountedFrom) -> Iterator[Bound]:
    """Yields the bounds that enabled rules set on the number of lent nodes."""
    for rule in rules_of(asked.config, asked.registry, asked.facts):
        if rule.bounds:
            yield from rule.bounds(asked)
