"""Reads what waiting pods name, claims for devices and groups, and makes of it what is understood.
Only entered where such a pod waits."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.demand.pod_waits import understand_devices, understand_groups, waits_to_know
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
    """Returns the pods as they ask for nodes, and what is to be known besides; None: none waits."""
    waiting = [one for one in pods.pods if waits_to_know(one, config.namespaces)]
    if not any(one.devices or one.group for one in waiting):
        return pods, None
    found = read_groups(api, (one.group.partition("/")[0] for one in waiting if one.group))
    grouped, doubts = understand_groups(pods.pods, found, config.namespaces)
    pods, waits = _with(pods, grouped), PodWaits(doubts=doubts)
    if namespaces := {one.namespace for one in waiting if one.devices}:
        lent = {name: one.node_type for name, one in registry.nodes.items()}
        lent |= {node.name: node.mark.node_type for node in nodes if node.mark}
        types = {one.name: one.node_types for one in config.namespaces.values()}
        facts = read_devices(api, namespaces)
        asking, waits = understand_devices(pods.pods, facts, lent, types)
        pods = _with(pods, asking)
        waits = msgspec.structs.replace(waits, doubts={**doubts, **waits.doubts})
    return pods, waits


def _with(pods: PodList, changed: Mapping[int, Pod]) -> PodList:
    if not changed:
        return pods
    each = tuple([changed.get(id(one), one) for one in pods.pods])
    return msgspec.structs.replace(pods, pods=each)
