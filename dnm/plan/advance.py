"""The update of the registry's requests and nodes to what has happened since the last run. Pure.

Nothing is decided here: the registry follows the facts of this run."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.lent import LentNode, Phase
from dnm.model.observed import Breaker
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict
from dnm.plan.breaker import ConversionResult, after_conversions, after_transition
from dnm.plan.facts import NodeTransition
from dnm.plan.findings import Findings, adopt_marked, claim_verdict, find_manual, manual_verdict
from dnm.plan.hooks import Edit
from dnm.plan.inputs import Inputs
from dnm.plan.phases import advance_node
from dnm.plan.requests import advance_requests, record_claims, set_aside_interrupted
from dnm.plan.rule import need_lent_since, rules_of


class Advanced(Value):
    """The result of `advance`. `nodes` has only nodes in the registry, `verdicts` also others."""

    registry: Registry
    nodes: Mapping[str, NodeTransition]
    verdicts: Mapping[str, NodeVerdict]
    adopted: tuple[str, ...]
    notes: tuple[str, ...]
    errors: tuple[str, ...]
    node_errors: tuple[str, ...]
    request_errors: Mapping[str, str]


def advance(inputs: Inputs) -> Advanced:
    """Updates every request and every node in the registry by the facts of this run."""
    config, facts, recorded = inputs.config, inputs.facts, inputs.registry
    if recorded.nodes:
        recorded = set_aside_interrupted(config, recorded, facts)
    arrivals = Findings(nodes=dict(recorded.nodes))
    if recorded.requests:
        arrivals = advance_requests(config, recorded, facts)
    claims = _claims(inputs, arrivals)
    in_use = {**arrivals.nodes, **claims.nodes}
    adopted = _adopted(inputs, {**in_use, **claims.claimed})
    refused = _refused(inputs, recorded, {**in_use, **adopted.nodes})
    before = _with_lent_since(inputs, refused.nodes)
    after = _advance_nodes(inputs, recorded, before)
    failures = [*arrivals.failures, *_results(before, after), *refused.failures]
    registry = msgspec.structs.replace(
        inputs.registry,
        nodes={
            name: transition.entry
            for name, transition in after.items()
            if transition.entry is not None
        },
        requests=arrivals.requests,
        claimed=dict(claims.claimed),
        backoffs=after_conversions(config, inputs.registry.backoffs, failures, inputs.now)
        if failures
        else inputs.registry.backoffs,
        breakers=_breakers(inputs, before, after),
    )
    registry = _with_rules(inputs, registry)
    registry = msgspec.structs.replace(registry, manual=_manual_conversions(inputs, registry))
    failed = registry.nodes_of(config.instance_id, Phase.FAILED).values()
    return Advanced(
        registry=registry,
        nodes=after,
        verdicts={
            **{name: claim_verdict(name, claim) for name, claim in claims.claimed.items()},
            **{name: transition.verdict for name, transition in after.items()},
            **{name: manual_verdict(inputs, name) for name in registry.manual},
        },
        adopted=tuple(adopted.nodes),
        notes=(
            *adopted.notes,
            *refused.notes,
            *claims.notes,
            *(transition.remark for transition in after.values() if transition.remark),
        ),
        errors=(
            *arrivals.request_errors.values(),
            *refused.errors,
            *adopted.errors,
            *claims.errors,
            *(transition.note for transition in after.values() if transition.note),
        ),
        node_errors=(*claims.node_errors, *(entry.error for entry in failed)),
        request_errors=arrivals.request_errors,
    )


def _advance_nodes(
    inputs: Inputs, registry: Registry, before: Mapping[str, LentNode]
) -> dict[str, NodeTransition]:
    """Returns the transition of each node in this run, as changed by the enabled rules."""
    config, facts = inputs.config, inputs.facts
    after = {name: advance_node(config, name, before[name], facts) for name in sorted(before)}
    for rule in rules_of(config, registry, facts) if after else ():
        after = rule.annotates(inputs, after) if rule.annotates else after
    return after


def _claims(inputs: Inputs, arrivals: Findings) -> Findings:
    """Returns nodes that converters have claimed for this instance without a lend or request."""
    claimed = {**inputs.registry.claimed, **arrivals.claimed}
    if not claimed and not any(row.claim for row in (inputs.facts.batch or {}).values()):
        return Findings()
    before = msgspec.structs.replace(inputs.registry, claimed=claimed)
    return record_claims(inputs.config, before, arrivals.nodes, arrivals.requests, inputs.facts)


def _adopted(inputs: Inputs, recorded: Mapping[str, object]) -> Findings:
    """Returns findings about Nodes with this instance's annotations that the registry lacks."""
    nodes = (inputs.facts.nodes or {}).values()
    if not any(node.mark is not None and node.name not in recorded for node in nodes):
        return Findings()
    return adopt_marked(inputs.config, recorded, inputs.facts)


def _manual_conversions(inputs: Inputs, registry: Registry) -> tuple[str, ...]:
    """Returns the Nodes with a name of a node type that were moved to Kubernetes manually. If Slurm
    was not read in this run, these are those of the last run that are still not in the registry."""
    nodes, previous = inputs.facts.nodes, registry.manual
    if nodes is None:
        return previous
    candidates = [
        name
        for name in (previous if inputs.facts.batch is None else sorted(nodes))
        if name in nodes and name not in registry.nodes and inputs.config.type_of(name)
    ]
    return find_manual(inputs, registry, candidates) if candidates else ()


def _refused(inputs: Inputs, registry: Registry, nodes: Mapping[str, LentNode]) -> Findings:
    after = Findings(nodes=nodes)
    combined = msgspec.structs.replace(registry, nodes={**registry.nodes, **nodes})
    for rule in rules_of(inputs.config, combined, inputs.facts) if nodes else ():
        if rule.refuses:
            after = rule.refuses(inputs.config, registry, after.nodes, inputs.facts)
    return after


def _with_lent_since(inputs: Inputs, nodes: Mapping[str, LentNode]) -> dict[str, LentNode]:
    """Returns the nodes, each with the time since when it is lent if an enabled rule needs that."""
    rules = rules_of(inputs.config, inputs.registry, inputs.facts) if nodes else ()
    if not need_lent_since(rules):
        return dict(nodes)
    return {
        name: entry if entry.lent_since else msgspec.structs.replace(entry, lent_since=entry.since)
        for name, entry in nodes.items()
    }


def _with_rules(inputs: Inputs, registry: Registry) -> Registry:
    """Returns the registry with what enabled rules record before any decision, such as the
    node-hours of a node that has just left."""
    config, before, now = inputs.config, inputs.registry, inputs.now
    for rule in rules_of(config, registry, inputs.facts):
        if rule.records:
            registry = rule.records(
                Edit(config=config, before=before, after=registry, now=now, inputs=inputs)
            )
    return registry


def _breakers(
    inputs: Inputs, before: Mapping[str, LentNode], after: Mapping[str, NodeTransition]
) -> dict[str, Breaker]:
    breakers: Mapping[str, Breaker] = inputs.registry.breakers
    for name, transition in after.items():
        breakers = after_transition(breakers, before[name], transition.entry)
    return dict(breakers)


def _results(
    before: Mapping[str, LentNode], after: Mapping[str, NodeTransition]
) -> list[ConversionResult]:
    """Returns the results of conversions in this run: nodes that joined, or that failed to."""
    results = []
    for name, transition in after.items():
        node_type = before[name].node_type
        if transition.verdict.reason is Reason.JOINED:
            results.append(ConversionResult(node_type=node_type))
        if transition.conversion_failed:
            error = f"{name} {transition.verdict.sentence}"
            results.append(ConversionResult(node_type=node_type, error=error))
    return results
