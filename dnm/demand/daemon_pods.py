"""A check of pods that name a DaemonSet as their owner, since any pod can name any owner. Pure.

dnm believes the pod if the DaemonSet exists, has that uid, is in the pod's namespace and selects
the pod's node. Otherwise the pod makes its node busy like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from dnm.demand.constraints import NodeTraits, describe_misfit
from dnm.model.node import Node
from dnm.model.pod import DaemonSet, Pod, PodList
from dnm.model.registry import Registry


def nodes_to_verify(registry: Registry, nodes: Iterable[Node], pods: PodList) -> frozenset[str]:
    """Returns the lent nodes that are idle only if their pods really belong to DaemonSets."""
    lent = {*registry.nodes, *(node.name for node in nodes if node.mark is not None)}
    if not lent:
        return frozenset()
    pods_on_lent = [pod for pod in pods.pods if pod.node in lent]
    at_work = {pod.node for pod in pods_on_lent if pod.counts_as_work}
    return frozenset(pod.node for pod in pods_on_lent if pod.is_daemonset) - at_work


def own_pods(registry: Registry) -> frozenset[str]:
    """Returns the pods that dnm itself started for readiness checks, as `namespace/name`."""
    return frozenset(
        key for entry in registry.nodes.values() if entry.opening for key in entry.opening.pods
    )


def verify_pods(
    pods: Sequence[Pod],
    daemon_sets: Iterable[DaemonSet],
    nodes: Iterable[Node],
    own: Collection[str],
) -> tuple[Pod, ...]:
    """Returns all pods. A pod that falsely names a DaemonSet as its owner counts as ordinary."""
    by_uid = {daemon_set.uid: daemon_set for daemon_set in daemon_sets}
    traits = {node.name: node for node in nodes}
    verdicts: dict[tuple[str, str, str], bool] = {}

    def is_genuine(pod: Pod) -> bool:
        key = pod.owner, pod.namespace, pod.node
        if key not in verdicts:
            daemon_set, node = by_uid.get(pod.owner), traits.get(pod.node)
            verdicts[key] = (
                daemon_set is not None
                and daemon_set.namespace == pod.namespace
                and (node is None or selects(daemon_set, node))
            )
        return verdicts[key] or f"{pod.namespace}/{pod.name}" in own

    return tuple([
        pod if not pod.is_daemonset or is_genuine(pod) else replace(pod, is_daemonset=False)
        for pod in pods
    ])  # fmt: skip


def selects(daemon_set: DaemonSet, node: Node) -> bool:
    """Returns whether the DaemonSet controller runs, or keeps, a pod on the node. NoSchedule taints
    are ignored, since such a taint may be newer than the pod, which then stays."""
    taints = tuple(
        taint
        for taint in node.taints
        if taint.effect == "NoExecute" and not taint.key.startswith("node.kubernetes.io/")
    )
    traits = NodeTraits(labels=node.labels, taints=taints, name=node.name)
    return describe_misfit(daemon_set.shape, (), traits) is None
