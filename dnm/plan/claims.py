"""Which of the nodes that the batch side tells as claimed for this instance nobody has recorded,
and no request waits for. Pure.

A host was restarted in the middle of a conversion, or a converter was killed with its keeper. Only
the batch side's word makes a claim ours: its marks are out of a kubelet's reach. What becomes of
such a node is said in `found.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dnm.model.config import Config
from dnm.model.lent import ClaimedNode, ConversionRequest, LentNode, Phase
from dnm.model.registry import Registry
from dnm.plan.facts import Facts
from dnm.plan.found import Case, Found, claim_as_known, judge_claim
from dnm.plan.rule import unwelcome_nodes


def set_aside_interrupted(config: Config, registry: Registry, facts: Facts) -> Registry:
    """Returns the registry without the nodes that should be joining, but whose conversion was
    interrupted: they are claims like any other now."""
    nodes = {
        name: entry
        for name, entry in registry.nodes.items()
        if not (
            entry.phase is Phase.JOINING
            and entry.owner == config.instance_id
            and not facts.is_running(entry.converter)
            and facts.is_interrupted(name, config.instance_id)
        )
    }
    return msgspec.structs.replace(registry, nodes=nodes)


def take_in_claims(
    config: Config,
    before: Registry,
    nodes: Mapping[str, LentNode],
    requests: Sequence[ConversionRequest],
    facts: Facts,
) -> Found:
    """Returns what becomes of each claim of this instance that neither `nodes` nor `requests` hold.
    `before`: as the last run left it. While the batch side can't be read all stays as it was."""
    remembered = {name: one for name, one in before.claimed.items() if name not in nodes}
    if facts.batch is None or facts.nodes is None:
        return Found(claimed=remembered)
    held, running = (
        _held(requests),
        _held(one for one in requests if facts.is_running(one.converter)),
    )
    found = Found(claimed=_left_behind(remembered, facts))
    out = unwelcome_nodes(config, before, facts)
    for name, row in sorted(facts.batch.items()):
        claim = row.claim
        if claim is None or claim.instance != config.instance_id or name in nodes:
            continue
        if not {name, claim.request} & (running if claim.is_interrupted else held):
            entry = before.nodes.get(name)
            if entry is None and claim.direction != "batch" and _is_marked(config, name, facts):
                continue  # it served, and is recorded again by its mark
            case = Case(
                config=config,
                name=name,
                row=row,
                claim=claim_as_known(config, claim, entry, facts.nodes.get(name)),
                facts=facts,
                kept_out=out.get(name),
            )
            found = _merged(found, judge_claim(case))
    return found


def _is_marked(config: Config, name: str, facts: Facts) -> bool:
    node = (facts.nodes or {}).get(name)
    if node is None or node.mark is None:
        return False
    return node.is_marked_by(config.instance_id) and node.mark.namespace in config.namespaces


def _held(requests: Iterable[ConversionRequest]) -> frozenset[str]:
    """The requests, and the nodes that they have named or are to go on with: what their converter
    has claimed and not left in the middle, they wait for."""
    return frozenset(text for one in requests for text in (one.id, *one.names, one.node) if text)


def _left_behind(remembered: Mapping[str, ClaimedNode], facts: Facts) -> dict[str, ClaimedNode]:
    """Returns the nodes that a converter left behind which does not report its claims, until Slurm
    has them in service."""
    assert facts.batch is not None
    rows = facts.batch
    return {
        name: one
        for name, one in remembered.items()
        if name not in rows or not (rows[name].tells_claim or rows[name].in_service)
    }


def _merged(found: Found, more: Found) -> Found:
    return Found(
        nodes={**found.nodes, **more.nodes},
        claimed={**found.claimed, **more.claimed},
        notes=found.notes + more.notes,
        errors=found.errors + more.errors,
    )
