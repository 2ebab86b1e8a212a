"""Nodes that somebody has lent and nobody has recorded: those that carry this instance's mark, and
those that came by hand. Pure.

A mark alone is a hint, which the ledger or Slurm must confirm. What came by hand is seen, named,
and taken in by `dnm adopt` alone.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Mark
from dnm.model.printable import printable
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.facts import Facts
from dnm.plan.inputs import Inputs


class Adoption(Value):
    """The nodes to record again, and what is said of those that can't be."""

    nodes: dict[str, LentNode] = {}
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def adopt_marked_nodes(config: Config, recorded: Container[str], facts: Facts) -> Adoption:
    """Records again what carries our mark, has a monitored namespace, and is lent by more than the
    mark's word; what is said of the others."""
    nodes, notes, errors = {}, [], []
    for name, node in sorted((facts.nodes or {}).items()):
        mark = node.mark
        if name in recorded or mark is None or mark.instance != config.instance_id:
            continue
        is_lent = facts.is_lent_by(name, config.instance_id)
        if is_lent is None:
            notes.append(
                f"{name} carries our mark and is not recorded: it waits until Slurm and the ledger "
                "can be asked"
            )
        elif not is_lent:
            errors.append(
                f"{name} carries our mark, but neither the ledger nor Slurm knows it as lent: the "
                "mark changes nothing. Take the dynamic-node-manager/ annotations off the Node"
            )
        elif mark.namespace in config.namespaces:
            nodes[name] = _from_mark(config, name, mark, facts.now)
            notes.append(f"node={name} carries our mark and is recorded again")
        else:
            errors.append(
                f"{name} carries our mark for namespace {printable(mark.namespace, 80)!r}, which "
                "is not monitored: add it to monitored_namespaces, or take the "
                "dynamic-node-manager/ annotations off the Node"
            )
    return Adoption(nodes=nodes, notes=tuple(notes), errors=tuple(errors))


def _from_mark(config: Config, name: str, mark: Mark, now: datetime) -> LentNode:
    """Its queue is the namespace's and its type that of its name, whatever the mark says."""
    policy = config.namespaces[mark.namespace]
    return LentNode(
        node_type=config.type_of(name) or policy.node_types[0],
        namespace=mark.namespace,
        queue=policy.queue,
        owner=mark.instance,
        phase=Phase.JOINING,
        since=now,
    )


def find_by_hand(inputs: Inputs, registry: Registry) -> tuple[str, ...]:
    """Returns the Nodes that have the name of a type, that Slurm does not have in service, and that
    nobody has recorded, marked or claimed: an administrator has converted them. While Slurm is not
    asked those stay that were known."""
    facts, config = inputs.facts, inputs.config
    if facts.nodes is None:
        return registry.by_hand
    coming = {request.node_type for request in registry.requests}
    candidates = registry.by_hand if facts.batch is None else tuple(sorted(facts.nodes))
    return tuple(
        name
        for name in candidates
        if name in facts.nodes
        and name not in registry.nodes
        and name not in registry.claimed
        and (config.type_of(name) or "") not in {"", *coming}
        and not _is_anothers(inputs, name)
        and (facts.batch is None or facts.is_in_service(name) is False)
    )


def _is_anothers(inputs: Inputs, name: str) -> bool:
    """Whether a mark, the ledger or a claim names somebody."""
    facts, instance = inputs.facts, inputs.config.instance_id
    mark = (facts.nodes or {})[name].mark
    is_marked = mark is not None and mark.instance != ""
    is_counted = name in (facts.lenders or {})
    is_ours = facts.claim_of(name, instance) is not None
    return is_marked or is_counted or is_ours or facts.is_claimed_by_another(name, instance)


def by_hand_verdict(inputs: Inputs, name: str) -> NodeVerdict:
    """What is said of such a node, with the namespace whose label it carries."""
    labels = (inputs.facts.nodes or {})[name].labels if inputs.facts.nodes else {}
    named = [one for one in inputs.config.namespaces if labels.get(one) == "true"]
    detail = f"`dnm adopt {name} --namespace {named[0] if named else 'NAMESPACE'}` takes it in"
    return NodeVerdict(node=name, verdict=Verdict.WAIT, reason=Reason.BY_HAND, detail=detail)
