"""Which pods are DaemonSets': a pod may name any owner. Pure.

The reference is believed if the DaemonSet exists, has that uid, is of the pod's namespace and
selects the pod's node. Every other pod that names one is work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from dnm.demand.constraints import NodeTraits, why_unfit
from dnm.model.node import Node
from dnm.model.pod import DaemonSet, Pod, PodList
from dnm.model.registry import Registry


def nodes_to_verify(registry: Registry, nodes: Iterable[Node], pods: PodList) -> frozenset[str]:
    """Returns the lent nodes that are without work if the pods on them are DaemonSets'."""
    lent = {*registry.nodes, *(node.name for node in nodes if node.mark is not None)}
    if not lent:
        return frozenset()
    there = [pod for pod in pods.pods if pod.node in lent]
    at_work = {pod.node for pod in there if pod.counts_as_work}
    return frozenset(pod.node for pod in there if pod.is_daemonset) - at_work


def own_pods(registry: Registry) -> frozenset[str]:
    """Returns the pods by which dnm makes nodes ready, as `namespace/name`."""
    return frozenset(
        key for entry in registry.nodes.values() if entry.opening for key in entry.opening.pods
    )


def verify_pods(
    pods: Sequence[Pod],
    daemon_sets: Iterable[DaemonSet],
    nodes: Iterable[Node],
    own: Collection[str],
) -> tuple[Pod, ...]:
    """Returns the pods, in which those that only claim to be a DaemonSet's are work."""
    known = {daemon_set.uid: daemon_set for daemon_set in daemon_sets}
    traits = {node.name: node for node in nodes}
    verdicts: dict[tuple[str, str, str], bool] = {}

    def is_believed(pod: Pod) -> bool:
        key = pod.owner, pod.namespace, pod.node
        if key not in verdicts:
            daemon_set, node = known.get(pod.owner), traits.get(pod.node)
            verdicts[key] = (
                daemon_set is not None
                and daemon_set.namespace == pod.namespace
                and (node is None or selects(daemon_set, node))
            )
        return verdicts[key] or f"{pod.namespace}/{pod.name}" in own

    return tuple([
        pod if not pod.is_daemonset or is_believed(pod) else replace(pod, is_daemonset=False)
        for pod in pods
    ])  # fmt: skip


def selects(daemon_set: DaemonSet, node: Node) -> bool:
    """Returns whether the controller leaves a pod of it on the node: a taint NoSchedule, which may
    have come later, removes none."""
    taints = tuple(
        taint
        for taint in node.taints
        if taint.effect == "NoExecute" and not taint.key.startswith("node.kubernetes.io/")
    )
    traits = NodeTraits(labels=node.labels, taints=taints, name=node.name)
    return why_unfit(daemon_set.shape, (), traits) is None
