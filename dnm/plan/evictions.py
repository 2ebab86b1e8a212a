"""The evictions of pods in a plan. Pure."""

from __future__ import annotations

from dnm.model.plan import EvictPods
from dnm.model.value import Unreadable
from dnm.plan.conversions import Decided
from dnm.plan.decision_table import NodeDecision
from dnm.plan.limits import limits_objection_to


def list_evictions(decided: Decided) -> list[EvictPods]:
    """Returns an eviction action for each node with the decision EMPTIES that still has pods. No
    other action of dnm ends a pod."""
    due, pods = decided.decisions.nodes_with(NodeDecision.EMPTIES), decided.inputs.snapshot.pods
    if not due or isinstance(pods, Unreadable):
        return []
    occupied = {pod.node for pod in pods.pods if pod.counts_as_work and not pod.is_terminating}
    nodes = decided.conversions.registry.nodes
    return [
        EvictPods(node=name)
        for name in due
        if name in occupied
        and not limits_objection_to(decided.inputs, decided.limits, nodes[name].queue)
    ]
