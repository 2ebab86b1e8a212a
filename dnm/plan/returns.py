"""Which fenced nodes are handed to the converter now. Pure.

The second of the two runs that a return takes at least: this one has seen the fence, no pod on the
node, the queue without it, and Slurm without it, and only then asks for its return.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.plan import NodeVerdict, Reason, Verdict
from dnm.model.registry import Half, LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.brakes import is_paused
from dnm.plan.fences import paused
from dnm.plan.known import Known
from dnm.plan.limits import PlannedLimits
from dnm.plan.transition import enter_phase, node_verdict


class Returned(Value):
    """`names`: the nodes that the converter is called for, in order."""

    limits: PlannedLimits
    registry: Registry
    verdicts: Mapping[str, NodeVerdict]
    names: tuple[str, ...] = ()

    @property
    def known(self) -> Known:
        return self.limits.known


def plan_returns(limits: PlannedLimits) -> Returned:
    """Hands nodes to the converter, oldest first, within the run's budget."""
    fenced = limits.fenced
    known, most = fenced.known, fenced.known.config.max_reversions_per_run
    nodes, verdicts = dict(fenced.registry.nodes), dict(fenced.verdicts)
    names: list[str] = []
    for name, entry in _fenced(fenced.standing.advanced.may_return, fenced.registry):
        in_service = known.facts.is_in_service(name)
        if in_service is None:
            detail = "Slurm could not be asked about it"
            verdicts[name] = node_verdict(name, Verdict.WAIT, Reason.UNKNOWN, detail)
        elif in_service:
            # The next look finds it offered to both and calls a person.
            nodes[name] = enter_phase(entry, Phase.RETURNING, known.now)
        elif not is_shrunk(known, name):
            continue
        elif is_paused(fenced.registry, known.now, Half.RETURNING):
            verdicts[name] = paused(fenced.registry, name)
        elif len(names) >= most:
            detail = f"max_reversions_per_run = {most}"
            verdicts[name] = node_verdict(name, Verdict.WAIT, Reason.BUDGET, detail)
        else:
            if entry.phase is Phase.RELEASING:
                nodes[name] = enter_phase(entry, Phase.RETURNING, known.now)
            names.append(name)
            verdicts[name] = node_verdict(name, Verdict.REVERT, Reason.RETURNING)
    registry = msgspec.structs.replace(fenced.registry, nodes=nodes)
    return Returned(limits=limits, registry=registry, verdicts=verdicts, names=tuple(names))


def _fenced(names: tuple[str, ...], registry: Registry) -> list[tuple[str, LentNode]]:
    """Those of the nodes that still leave, the oldest first."""
    leaving = [
        (name, registry.nodes[name])
        for name in names
        if registry.nodes[name].phase in (Phase.RELEASING, Phase.RETURNING)
    ]
    return sorted(leaving, key=lambda one: (one[1].since, one[0]))


def is_shrunk(known: Known, name: str) -> bool:
    """Whether the document that was read no longer counts the node."""
    document = known.document
    return document is not None and not document.is_counted(name, known.config.instance_id)
