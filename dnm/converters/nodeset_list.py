"""nodeset-convert, which nodes: by Slurm as ever, and by what Kubernetes says of their pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dnm.converters.kube_side import KubeConnection
from dnm.converters.nodeset import OnNode, SlurmdPod, why_busy, why_not_moved
from dnm.converters.nodeset_label import label_of
from dnm.converters.select import Judged, ListVerdict, SlurmFacts, judge_nodes
from dnm.converters.settings import Settings
from dnm.model.errors import KubeError
from dnm.model.value import Unreadable


def judge(facts: SlurmFacts, settings: Settings) -> Sequence[Judged]:
    """Returns every node with its verdict, by Slurm and by Kubernetes. Raises KubeError."""
    label = label_of(settings)
    kube = KubeConnection(settings)
    nodes = kube.client.read_nodes()
    if isinstance(nodes, Unreadable):
        raise KubeError(nodes.error)
    pods, sets = kube.node_sets.read_pods(), kube.node_sets.read_sets()
    by_name = {node.name: node for node in nodes}
    on: dict[str, list[SlurmdPod]] = {}
    for pod in pods:
        on.setdefault(pod.node, []).append(pod)
    places = {
        one.name: OnNode(node=by_name.get(one.name), pods=on.get(one.name, ()), sets=sets)
        for one in facts.nodes
    }
    return judge_places(judge_nodes(facts, settings.rules()), places, label)


def judge_places(
    judged: Sequence[Judged], places: dict[str, OnNode], label: tuple[str, str]
) -> Sequence[Judged]:
    """Returns the verdicts, where a node that can't be moved, or of whose pod the operator says
    that it is not idle, is not to be had."""
    return [_held(one, places[one.node.name], label) for one in judged]


def _held(one: Judged, at: OnNode, label: tuple[str, str]) -> Judged:
    if one.verdict is ListVerdict.SKIP:
        return one
    why = why_not_moved(one.node.name, at, label)
    if not why and one.verdict is ListVerdict.OK:
        why = why_busy(at.pods[0])
    return msgspec.structs.replace(one, verdict=ListVerdict.SKIP, reason=why) if why else one
