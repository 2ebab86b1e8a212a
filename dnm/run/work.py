"""The pods of one node, just before it changes hands: a pod that only claims to be a DaemonSet's is
work."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from dnm.demand.daemon_pods import own_pods, verify_pods
from dnm.kube.client import KubeClient
from dnm.model.cluster import PodOnNode
from dnm.model.node import Node
from dnm.model.pod import Pod
from dnm.model.registry import Registry
from dnm.model.value import Unreadable


def find_work(kube: KubeClient, registry: Registry, node: Node) -> str | None:
    """Returns why the node is not free; None: no pod on it is work. Raises KubeError."""
    pods = _verified_pods(kube, node, own_pods(registry))
    if isinstance(pods, Unreadable):
        return pods.error
    return "a pod landed on it" if any(pod.counts_as_work for pod in pods) else None


def read_pods_to_evict(kube: KubeClient, node: Node) -> Sequence[PodOnNode]:
    """Returns the unfinished pods on a node, as eviction sees them. If the DaemonSets cannot be
    read, a pod that claims to be one's is left alone. Raises KubeError."""
    listed = kube.read_pods_to_evict(node.name)
    if all(pod.is_work for pod in listed):
        return listed
    pods = _verified_pods(kube, node, ())
    work = () if isinstance(pods, Unreadable) else {p.uid for p in pods if p.counts_as_work}
    return [
        replace(pod, is_work=True, stays=False) if not pod.is_work and pod.uid in work else pod
        for pod in listed
    ]


def _verified_pods(
    kube: KubeClient, node: Node, own: Collection[str]
) -> tuple[Pod, ...] | Unreadable:
    pods = kube.read_pods_on(node.name)
    if not any(pod.is_daemonset for pod in pods):
        return pods
    daemon_sets = kube.read_daemon_sets()
    if isinstance(daemon_sets, Unreadable):
        return daemon_sets
    return verify_pods(pods, daemon_sets, (node,), own)
