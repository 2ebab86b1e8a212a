"""What nodeset-convert reads and changes in Kubernetes beside `kube_side.py`: slurmd's pods,
NodeSets, and labels and taints of a Node, each change with what it must find there."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from dnm.converters.nodeset import NodeSet, SlurmdPod
from dnm.converters.nodeset_objects import (
    COST,
    MANAGER,
    Autoscaler,
    read_pod_page,
    read_scaler_page,
    read_set_page,
)
from dnm.host.fault_points import fault_point
from dnm.kube.lists import List
from dnm.kube.nodes import read_node_page
from dnm.kube.requests import ApiRequests
from dnm.kube.session import MERGE_PATCH

_JSON_PATCH = "application/json-patch+json"
_SLURMD = "app.kubernetes.io/name=slurmd,app.kubernetes.io/component=worker"
_PATH = "/apis/slinky.slurm.net/v1beta1/nodesets"
_SCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"


class NodeSetConnection:
    """What the stages need of a real API server. Every method raises KubeError."""

    def __init__(self, requests: ApiRequests) -> None:
        self.requests = requests

    def read_pods(self, node: str = "") -> Sequence[SlurmdPod]:
        """Returns those on a Node, or all."""
        query = {"labelSelector": _SLURMD}
        if node:
            query["fieldSelector"] = f"spec.nodeName={node}"
        where = f" on node {node}" if node else ""
        with (
            self.requests.asking(f"list slurmd's pods{where}", "list pods"),
            fault_point("kube.list_slurmd"),
        ):
            return self.requests.collect(List("/api/v1/pods", "PodList", query), read_pod_page)

    def read_sets(self) -> Sequence[NodeSet]:
        with (
            self.requests.asking("list the NodeSets", "list nodesets.slinky.slurm.net"),
            fault_point("kube.list_node_sets"),
        ):
            found = self.requests.collect(List(_PATH, "NodeSetList"), read_set_page)
        if all(one.is_daemon_set for one in found):
            return found
        scalers = self._read_scalers()
        return [_with_scalers(one, scalers) for one in found]

    def read_chosen(self, key: str, value: str) -> Sequence[str]:
        """Returns the Nodes with that label, by name, that are Ready and not cordoned."""
        what = List("/api/v1/nodes", "NodeList", {"labelSelector": f"{key}={value}"})
        with (
            self.requests.asking(f"list the Nodes with {key}={value}", "list nodes"),
            fault_point("kube.list_chosen"),
        ):
            found = self.requests.collect(what, read_node_page)
        return [one.name for one in found if one.is_ready and not one.is_cordoned]

    def _read_scalers(self) -> list[Autoscaler]:
        what = List(_SCALERS, "HorizontalPodAutoscalerList")
        with (
            self.requests.asking(
                "list the autoscalers", "list horizontalpodautoscalers.autoscaling"
            ),
            fault_point("kube.list_scalers"),
        ):
            return self.requests.collect(what, read_scaler_page)

    def set_cost(self, pod: SlurmdPod, cost: int | None) -> None:
        """Writes the pod's pod-deletion-cost, or takes it off; a pod that is gone has none."""
        namespace, name = quote(pod.namespace, safe=""), quote(pod.name, safe="")
        annotations = {COST: None if cost is None else str(cost)}
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        with (
            self.requests.changing(f"write the deletion cost of pod {pod.key}", "patch pods"),
            fault_point("kube.set_cost"),
        ):
            self.requests.session.write(
                "PATCH",
                f"/api/v1/namespaces/{namespace}/pods/{name}",
                patch,
                MERGE_PATCH,
            )

    def scale(self, node_set: NodeSet, replicas: int) -> None:
        """Changes how many pods are wanted, if the NodeSet is still as it was read."""
        namespace, name = quote(node_set.namespace, safe=""), quote(node_set.name, safe="")
        path = f"/apis/slinky.slurm.net/v1beta1/namespaces/{namespace}/nodesets/{name}/scale"
        patch = {
            "metadata": {"resourceVersion": node_set.resource_version},
            "spec": {"replicas": replicas},
        }
        with (
            self.requests.changing(
                f"scale NodeSet {node_set.key} to {replicas}", "patch nodesets/scale"
            ),
            fault_point("kube.scale_node_set"),
        ):
            query = f"?fieldManager={MANAGER}"
            self.requests.session.write("PATCH", path + query, patch, MERGE_PATCH)

    def remove_label(self, node: str, key: str, value: str) -> None:
        """Takes the label off if it has that value, else raises."""
        path = f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}"
        patch = [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
        with (
            self.requests.changing(f"take the label {key} off node {node}", "patch nodes"),
            fault_point("kube.remove_label"),
        ):
            self.requests.session.write("PATCH", _path_of(node), patch, _JSON_PATCH)


def _with_scalers(one: NodeSet, scalers: Sequence[Autoscaler]) -> NodeSet:
    own = [scaler for scaler in scalers
           if (scaler.namespace, scaler.node_set) == (one.namespace, one.name)]  # fmt: skip
    active = tuple(scaler.shown for scaler in own if not scaler.is_idle)
    idle = tuple(scaler.shown for scaler in own if scaler.is_idle)
    return msgspec.structs.replace(one, scalers=(*active, *one.scalers), idle_scalers=idle)


def _path_of(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"
