"""The record as the facts have moved it: requests, nodes that carry our mark, lent nodes. Pure.

Nothing is decided here: this is what has happened since the last run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.plan import NodeVerdict, Reason
from dnm.model.registry import Breaker, LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.backoff import ConversionResult, after_conversions
from dnm.plan.breaker import after_transition
from dnm.plan.found import (
    Claims,
    adopt_marked_nodes,
    by_hand_verdict,
    claim_verdict,
    find_by_hand,
    set_aside_interrupted,
    take_in_claims,
)
from dnm.plan.known import Known
from dnm.plan.phases import advance_node
from dnm.plan.requests import Arrivals, advance_requests
from dnm.plan.rule import TurnedAway, rules_of
from dnm.plan.transition import NodeTransition


class Advanced(Value):
    """`may_release`: nodes that have been idle long enough and go back if their queue can spare
    them. `may_return`: nodes for which the converter may be called. `may_dress`: nodes whose labels
    and taints may be exchanged."""

    known: Known
    registry: Registry
    verdicts: Mapping[str, NodeVerdict]
    may_release: tuple[str, ...]
    may_return: tuple[str, ...]
    may_dress: tuple[str, ...]
    notes: tuple[str, ...]
    errors: tuple[str, ...]


def advance(known: Known) -> Advanced:
    """Every request and every node, one step each."""
    config, facts = known.config, known.facts
    registry = set_aside_interrupted(config, known.registry, facts)
    arrivals = Arrivals(nodes=dict(registry.nodes))
    if registry.requests:
        arrivals = advance_requests(config, registry, facts)
    claims = _claims(known, arrivals)
    in_use = {**arrivals.nodes, **claims.nodes}
    adopted = adopt_marked_nodes(config, {**in_use, **claims.claimed}, facts)
    turned = _turned_away(known, registry, {**in_use, **adopted.nodes})
    before = _dated(config, turned.nodes)
    after = {name: advance_node(config, name, before[name], facts) for name in sorted(before)}
    for rule in rules_of(config, registry, facts):
        after = rule.tells(known, after) if rule.tells else after
    breakers: Mapping[str, Breaker] = known.registry.breakers
    for name, one in after.items():
        breakers = after_transition(breakers, before[name], one.entry)
    results = [*arrivals.failures, *_results(before, after), *turned.failures]
    registry = msgspec.structs.replace(
        known.registry,
        nodes={name: one.entry for name in before if (one := after[name]).entry is not None},
        requests=arrivals.requests,
        claimed=dict(claims.claimed),
        backoffs=after_conversions(config, known.registry.backoffs, results, known.now),
        breakers=dict(breakers),
    )
    # Before anything is decided: what a node has used that has just gone is spent.
    for rule in rules_of(config, registry, facts):
        if rule.books:
            registry = rule.books(config, known.registry, registry, known.now)
    registry = msgspec.structs.replace(registry, by_hand=find_by_hand(known, registry))
    return Advanced(
        known=known,
        registry=registry,
        verdicts={
            **{name: claim_verdict(name, one) for name, one in claims.claimed.items()},
            **{name: one.verdict for name, one in after.items()},
            **{name: by_hand_verdict(known, name) for name in registry.by_hand},
        },
        may_release=tuple(name for name, one in after.items() if one.wants_release),
        may_return=tuple(name for name, one in after.items() if one.wants_return),
        may_dress=tuple(name for name, one in after.items() if one.wants_dress),
        notes=(
            *adopted.notes,
            *turned.notes,
            *claims.notes,
            *(one.remark for one in after.values() if one.remark),
        ),
        errors=(
            *arrivals.errors,
            *turned.errors,
            *adopted.errors,
            *claims.errors,
            *_errors(config, after),
        ),
    )


def _turned_away(known: Known, registry: Registry, nodes: Mapping[str, LentNode]) -> TurnedAway:
    after = TurnedAway(nodes=nodes)
    given = msgspec.structs.replace(registry, nodes={**registry.nodes, **nodes})
    for rule in rules_of(known.config, given, known.facts):
        if rule.turns_away:
            after = rule.turns_away(known.config, registry, after.nodes, known.facts)
    return after


def _dated(config: Config, nodes: Mapping[str, LentNode]) -> dict[str, LentNode]:
    """With the time since when each is lent, where something depends on it."""
    if not config.counts_lending:
        return dict(nodes)
    return {
        name: entry if entry.lent_since else msgspec.structs.replace(entry, lent_since=entry.since)
        for name, entry in nodes.items()
    }


def _claims(known: Known, arrivals: Arrivals) -> Claims:
    """What is claimed for this instance beside what is recorded and what requests wait for."""
    claimed = {**known.registry.claimed, **arrivals.left_behind}
    before = msgspec.structs.replace(known.registry, claimed=claimed)
    return take_in_claims(known.config, before, arrivals.nodes, arrivals.requests, known.facts)


def _results(
    before: Mapping[str, LentNode], after: Mapping[str, NodeTransition]
) -> list[ConversionResult]:
    """What the nodes say of the conversions that they came of."""
    results = []
    for name, one in after.items():
        node_type = before[name].node_type
        if one.verdict.reason is Reason.JOINED:
            results.append(ConversionResult(node_type=node_type))
        if one.conversion_failed:
            error = f"{name} {one.verdict.sentence}"
            results.append(ConversionResult(node_type=node_type, error=error))
    return results


def _errors(config: Config, after: Mapping[str, NodeTransition]) -> list[str]:
    """Of nodes that need a person, for as long as they do, and of calls that failed."""
    errors = []
    for one in after.values():
        entry = one.entry
        if entry is not None and entry.phase is Phase.FAILED and entry.owner == config.instance_id:
            errors.append(entry.error)
        if one.note:
            errors.append(one.note)
    return errors
