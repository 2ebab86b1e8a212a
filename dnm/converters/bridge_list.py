"""bridge-convert, which nodes: by Slurm as ever, by what Kubernetes says of them, and those
that are lent, of which Slurm has no record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dnm.converters.bridge import BridgedNode, why_not_moved
from dnm.converters.kube_side import KubeConnection
from dnm.converters.select import Judged, ListVerdict, SlurmFacts, judge_nodes
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.model.slurm_state import ABSENT, NodeState


def judge(facts: SlurmFacts, settings: Settings) -> Sequence[Judged]:
    """Returns every node with its verdict, by Slurm and by Kubernetes. Raises KubeError."""
    at = {one.node.name: one for one in KubeConnection(settings).bridge.read_nodes()}
    return judge_bridged(judge_nodes(facts, settings.rules()), at)


def judge_bridged(judged: Sequence[Judged], at: Mapping[str, BridgedNode]) -> Sequence[Judged]:
    """Returns the verdicts, where a node that can't be moved is not to be had, and a row for each
    Node that was taken from Slurm: nobody else would tell that Slurm does not have it in
    service."""
    known = {one.node.name for one in judged}
    absent = [_absent(one) for name, one in sorted(at.items()) if one.taken and name not in known]
    return [*(_held(one, at.get(one.node.name)) for one in judged), *absent]


def _held(one: Judged, at: BridgedNode | None) -> Judged:
    if one.verdict is ListVerdict.SKIP:
        return one
    why = why_not_moved(one.node.name, at)
    return msgspec.structs.replace(one, verdict=ListVerdict.SKIP, reason=why) if why else one


def _absent(one: BridgedNode) -> Judged:
    assert one.taken is not None
    state = NodeState(base=ABSENT)
    return Judged(
        node=SlurmNode(name=one.node.name, state=state, cpus_allocated=0, memory_allocated=0),
        verdict=ListVerdict.SKIP,
        reason=f"taken from slurm-bridge by instance {one.taken.instance}",
        idle=None,
        in_service=False,
    )
