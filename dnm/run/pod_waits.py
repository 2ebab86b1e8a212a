"""Reader of the device claims and pod groups that waiting pods refer to. dnm calls it only if a
waiting pod refers to one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.demand.pod_waits import is_awaiting_placement, resolve_devices, resolve_groups
from dnm.kube.devices import read_devices
from dnm.kube.pod_groups import read_groups
from dnm.kube.requests import ApiRequests
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.pod import Pod, PodList
from dnm.model.pod_waits import PodWaits
from dnm.model.registry import Registry


def understand_pods(
    config: Config,
    registry: Registry,
    api: ApiRequests,
    pods: PodList,
    nodes: tuple[Node, ...],
) -> tuple[PodList, PodWaits | None]:
    """Returns the pods with resolved device claims and pod groups, and facts about why they wait.
    The facts are None if no waiting pod has a claim or a group."""
    waiting = [pod for pod in pods.pods if is_awaiting_placement(pod, config.namespaces)]
    if not any(pod.devices or pod.group for pod in waiting):
        return pods, None
    groups = read_groups(api, (pod.group.partition("/")[0] for pod in waiting if pod.group))
    grouped, unclear = resolve_groups(pods.pods, groups, config.namespaces)
    pods, waits = _with(pods, grouped), PodWaits(unclear=unclear)
    if namespaces := {pod.namespace for pod in waiting if pod.devices}:
        lent = {name: node.node_type for name, node in registry.nodes.items()}
        lent |= {node.name: node.mark.node_type for node in nodes if node.mark}
        types = {namespace.name: namespace.node_types for namespace in config.namespaces.values()}
        facts = read_devices(api, namespaces)
        asking, waits = resolve_devices(pods.pods, facts, lent, types)
        pods = _with(pods, asking)
        waits = msgspec.structs.replace(waits, unclear={**unclear, **waits.unclear})
    return pods, waits


def _with(pods: PodList, changed: Mapping[int, Pod]) -> PodList:
    if not changed:
        return pods
    each = tuple([changed.get(id(pod), pod) for pod in pods.pods])
    return msgspec.structs.replace(pods, pods=each)
