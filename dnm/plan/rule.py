"""What an option switches on is a rule: one file below `plan/rules`, one value with the hooks that
it needs, one line in the table. The spine asks the rules that are on, and names none of them. Pure.

The table's order is the order of precedence: of two rules that speak of one thing the first is
heard first, and what both add up to is said in that order. A rule that is off is not imported. One
whose option was taken away stays on for as long as the record holds something of it: it tidies up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.lent import Leaving, Phase
from dnm.model.registry import Registry
from dnm.plan.hooks import CountedFrom, KeptOut, Rule

if TYPE_CHECKING:
    from dnm.plan.facts import Facts
    from dnm.sizing.caps import Bound


IsOn = Callable[[Config, Registry, "Facts | None"], bool]


def has_events(config: Config, registry: Registry) -> bool:
    """Whether any place names an event, or the record still has one."""
    places = (config.events_dir, *config.calendar_events, *config.unread_events)
    return any(places) or bool(registry.events or registry.calendars)


def _keeps_nodes_out(config: Config, registry: Registry, facts: Facts | None) -> bool:
    keys = (config.exclude_nodes, config.exclude_partitions, config.exclude_features,
            config.exclude_reservations)  # fmt: skip
    return any(keys) or bool(
        registry.excluded
        or registry.held
        or any(
            node.leaves == Leaving.KEPT_OUT or node.is_unjudged for node in registry.nodes.values()
        )
    )


def _has_floors(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return bool(config.partition_floors) or any(map(config.floor_of, config.node_types))


def _has_hours(config: Config, registry: Registry, facts: Facts | None) -> bool:
    budgets = (
        "node_hours_per_week" in namespace.options for namespace in config.namespaces.values()
    )
    return any(budgets) or bool(registry.spent_hours)


def _moves(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return config.move_in_place or any(
        node.phase is Phase.MOVING or node.move is not None or node.moved_at is not None
        for node in registry.nodes.values()
    )


def _opens(config: Config, registry: Registry, facts: Facts | None) -> bool:
    types, nodes = config.node_types.values(), registry.nodes.values()
    return any(node_type.opens_when for node_type in types) or any(node.opening for node in nodes)


def _has_sick(config: Config, registry: Registry, facts: Facts | None) -> bool:
    return bool(config.sick_when) or any(node.sick for node in registry.nodes.values())


def _charges(config: Config, registry: Registry, facts: Facts | None) -> bool:
    lent: list[Any] = [*registry.orders, *registry.nodes.values()]
    named = (namespace.charge_account for namespace in config.namespaces.values())
    return any(named) or any(item.account for item in lent)


SPARE_FOR = timedelta(minutes=10)  # until a half-empty node gets no new pods
CONSOLIDATED = "consolidated"  # why such a node leaves, as the registry records it


def _consolidates(config: Config, registry: Registry, facts: Facts | None) -> bool:
    """Checks whether a node has served pods for as long as it takes to be found spare."""
    if not config.consolidate or facts is None:
        return False
    return bool(registry.spare_nodes) or any(
        node.leaves == CONSOLIDATED
        or (node.idle_since is None and facts.now - node.since >= SPARE_FOR)
        for node in registry.nodes.values()
    )


SITS = timedelta(hours=2)  # until people are told of who uses little of what he holds


def _serve_for_hours(config: Config, registry: Registry, facts: Facts | None) -> bool:
    sits, nodes = bool(registry.sitting), registry.nodes.values()
    return sits or any(facts and facts.now - node.since >= SITS for node in nodes)


# The file of each rule below `plan/rules`, and whether it is on.
TABLE: tuple[tuple[str, IsOn], ...] = (
    ("warm_share", lambda config, registry, facts: config.headroom < 1),
    ("events", lambda config, registry, facts: has_events(config, registry)),
    ("kept_out", _keeps_nodes_out),
    ("kubelets", lambda config, registry, facts: config.has_kubelets),
    ("opening", _opens),
    ("sick", _has_sick),
    ("batch_floors", _has_floors),
    ("max_lend", lambda config, registry, facts: bool(config.options.get("max_lend_hours"))),
    ("node_hours", _has_hours),
    ("moves", _moves),
    ("charges", _charges),
    ("bookings", lambda config, registry, facts: bool(config.book_ahead or registry.booking_tries)),
    ("sitting", _serve_for_hours),
    ("consolidation", _consolidates),
)


def rules_of(config: Config, registry: Registry, facts: Facts | None = None) -> tuple[Rule, ...]:
    """Returns the rules that are on, in the table's order."""
    return tuple(rule_named(name) for name, is_on in TABLE if is_on(config, registry, facts))


def need_lent_since(rules: Iterable[Rule]) -> bool:
    """Checks whether one of the rules needs to know since when each node is lent."""
    return any(rule.leave and rule.leave.needs_lent_since for rule in rules)


def rule_named(name: str) -> Rule:
    """Imports one rule of the table."""
    return cast(Rule, import_module(f"dnm.plan.rules.{name}").RULE)


def nodes_kept_out(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> dict[str, str]:
    """Returns why each node that is kept out may not be lent, by name; `batch` None: what Slurm
    says of the nodes is not known."""
    return {name: exclusion.why for name, exclusion in _kept_out(config, registry, batch, now)}


def unwelcome_nodes(config: Config, registry: Registry, facts: Facts) -> dict[str, str]:
    """Returns why each node goes back that has come although it is kept out, by name."""
    out = _kept_out(config, registry, facts.batch, facts.now)
    return {name: exclusion.why for name, exclusion in out if exclusion.goes_back}


def _kept_out(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> Iterator[tuple[str, KeptOut]]:
    """Those of the rule that is heard first come last."""
    for rule in reversed(rules_of(config, registry)):
        if rule.keeps_out:
            yield from rule.keeps_out(config, registry, batch, now).items()


def list_bounds(asked: CountedFrom) -> Iterator[Bound]:
    """Yields what the rules leave of nodes that could be had."""
    for rule in rules_of(asked.config, asked.registry, asked.facts):
        if rule.bounds:
            yield from rule.bounds(asked)
