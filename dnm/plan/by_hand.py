"""Nodes that came to Kubernetes by hand: they are seen, named, and taken in by `dnm adopt` alone.
Pure."""

from __future__ import annotations

from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import Registry
from dnm.plan.known import Known


def find_by_hand(known: Known, registry: Registry) -> tuple[str, ...]:
    """Returns the Nodes that have the name of a type, that Slurm does not have in service, and that
    nobody has recorded, marked or claimed: an administrator has converted them. While Slurm is not
    asked those stay that were known."""
    facts, config = known.facts, known.config
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
        and not _is_anothers(known, name)
        and (facts.batch is None or facts.is_in_service(name) is False)
    )


def _is_anothers(known: Known, name: str) -> bool:
    """Whether a mark, the ledger or a claim names somebody."""
    facts, instance = known.facts, known.config.instance_id
    mark = (facts.nodes or {})[name].mark
    is_marked = mark is not None and mark.instance != ""
    is_counted = name in (facts.lenders or {})
    is_ours = facts.claim_of(name, instance) is not None
    return is_marked or is_counted or is_ours or facts.is_claimed_by_another(name, instance)


def by_hand_verdict(known: Known, name: str) -> NodeVerdict:
    """What is said of such a node, with the namespace whose label it carries."""
    labels = (known.facts.nodes or {})[name].labels if known.facts.nodes else {}
    named = [one for one in known.config.namespaces if labels.get(one) == "true"]
    detail = f"`dnm adopt {name} --namespace {named[0] if named else 'NAMESPACE'}` takes it in"
    return NodeVerdict(node=name, verdict=Verdict.WAIT, reason=Reason.BY_HAND, detail=detail)
