"""The Kubernetes client of nodeset-convert, besides `kube_side.py`. It reads slurmd's pods,
NodeSets and their autoscalers, and keeps only what dnm's decisions need. It changes deletion costs,
replicas and labels, each only if the object is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from dnm.converters.nodeset import NodeSet, SlurmdPod
from dnm.host.fault_points import fault_point
from dnm.kube.nodes import read_node_page
from dnm.kube.objects import Condition, ListPage, Metadata, OwnerReference
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.kube.session import MERGE_PATCH
from dnm.model.pod import Toleration
from dnm.model.printable import printable
from dnm.model.value import Value

COST = "nodeset.slinky.slurm.net/pod-deletion-cost"
MANAGER = "dynamic-node-manager"  # dnm's name in managedFields
_AUTOSCALERS = "kube-controller-manager"
_CONDEMNED = "nodeset.slinky.slurm.net/pod-cordon"
_HOSTNAME = "nodeset.slinky.slurm.net/pod-hostname"
_MODE = "nodeset.slinky.slurm.net/scaling-mode"
_STATE = "SlurmNodeState"
_NODE_SET = ("slinky.slurm.net", "NodeSet")
T = TypeVar("T")


class _Owner(OwnerReference, frozen=True, rename="camel"):
    name: str = ""

    @property
    def is_node_set(self) -> bool:
        """Returns whether a NodeSet controls the object."""
        return (
            bool(self.controller) and (self.api_version.partition("/")[0], self.kind) == _NODE_SET
        )


class _Manager(msgspec.Struct, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="fieldsV1")


class _Metadata(Metadata, frozen=True, rename="camel"):
    generation: int = 0
    owner_references: list[_Owner] | None = None  # type: ignore[assignment]
    managed_fields: list[_Manager] | None = None


class _Condition(Condition, frozen=True):
    reason: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: list[_Condition] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    host_network: bool = False
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] = ()


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec
    status: _Status = _Status()


class _Template(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _SetSpec(msgspec.Struct, rename="camel"):
    scaling_mode: str = "StatefulSet"
    replicas: int = 1
    template: _Template = msgspec.field(default_factory=_Template)


class _SetStatus(msgspec.Struct, rename="camel"):
    observed_generation: int = -1
    replicas: int = 0
    updated_replicas: int = 0


class _Set(msgspec.Struct):
    metadata: _Metadata
    spec: _SetSpec
    status: _SetStatus = msgspec.field(default_factory=_SetStatus)


def read_pod_page(page: memoryview | bytes) -> list[SlurmdPod]:
    """Returns the unfinished slurmd pods of a page. A pod counts only if a NodeSet owns it, because
    any tenant can set the labels of its own pods and could block a node for ever."""
    pods = msgspec.json.decode(page, type=ListPage[_Pod]).items
    return [
        _make_pod(pod, owner.name)
        for pod in pods
        if pod.status.phase not in ("Succeeded", "Failed")
        for owner in pod.metadata.owner_references or ()
        if owner.is_node_set
    ]


def _make_pod(pod: _Pod, node_set: str) -> SlurmdPod:
    conditions = {status.type for status in pod.status.conditions or () if status.status == "True"}
    return SlurmdPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        hostname=_slurm_name(pod),
        node_set=node_set,
        is_ready=pod.status.phase == "Running" and "Ready" in conditions,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        states=frozenset(
            name.removeprefix(_STATE) for name in conditions if name.startswith(_STATE)
        ),
        cost=_cost((pod.metadata.annotations or {}).get(COST, "")),
        is_condemned=(pod.metadata.annotations or {}).get(_CONDEMNED, "") == "true",
    )


def _slurm_name(pod: _Pod) -> str:
    """Returns the name of the pod's Slurm node, like the operator (GetSlurmNodeName, 1.1 to 1.2).
    In StatefulSet mode with hostNetwork it is the Node's name. In that mode the label has the pod's
    own name, since the operator writes it before the pod has a Node."""
    labels = pod.metadata.labels or {}
    if labels.get(_MODE) == "StatefulSet" and pod.spec.host_network:
        return pod.spec.node_name
    return labels.get(_HOSTNAME, "")


def _cost(text: str) -> int:
    """Returns the deletion cost as the operator parses it: 0 if the text is no number."""
    try:
        return int(text)
    except ValueError:
        return 0


def read_set_page(page: memoryview | bytes) -> list[NodeSet]:
    """Returns the NodeSets of a page."""
    return [_make_set(item) for item in msgspec.json.decode(page, type=ListPage[_Set]).items]


def _make_set(item: _Set) -> NodeSet:
    spec, status = item.spec.template.spec, item.status
    return NodeSet(
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        is_daemon_set=item.spec.scaling_mode == "DaemonSet",
        is_deleting=item.metadata.deletion_timestamp is not None,
        is_settled=status.observed_generation == item.metadata.generation
        and status.updated_replicas == status.replicas,
        selector=spec.node_selector or {},
        tolerations=spec.tolerations,
        replicas=item.spec.replicas,
        resource_version=item.metadata.resource_version,
        scalers=tuple(sorted({*filter(None, map(_scaler, item.metadata.managed_fields or ()))})),
    )


def _scaler(owner: _Manager) -> str:
    """Returns the field manager that may set `.spec.replicas` again: by server-side apply, or by
    the scale subresource. kubectl and dnm set it only once; autoscalers are read separately."""
    writes_once = owner.manager in (MANAGER, _AUTOSCALERS) or owner.manager.startswith("kubectl")
    is_scaling = owner.subresource == "scale" and not writes_once
    if not (owner.operation == "Apply" or is_scaling):
        return ""
    try:
        fields = msgspec.json.decode(owner.fields_v1, type=dict[str, Any])
    except msgspec.MsgspecError:
        return ""
    spec = fields.get("f:spec")
    return owner.manager if isinstance(spec, dict) and "f:replicas" in spec else ""


class _Target(msgspec.Struct, rename="camel"):
    kind: str
    name: str
    api_version: str = ""


class _ScalerSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: _Target


class _Scaler(msgspec.Struct):
    metadata: _Metadata
    spec: _ScalerSpec
    status: _Status = _Status()


class Autoscaler(Value):
    """An autoscaler of a NodeSet. It `is_idle` if its status shows that it does not scale now."""

    namespace: str
    node_set: str
    shown: str
    is_idle: bool = False


def read_scaler_page(page: memoryview | bytes) -> list[Autoscaler]:
    """Returns each autoscaler of a NodeSet in a page, including those that KEDA has created."""
    scalers = []
    for item in msgspec.json.decode(page, type=ListPage[_Scaler]).items:
        target = item.spec.scale_target_ref
        if (target.api_version.partition("/")[0] or _NODE_SET[0], target.kind) != _NODE_SET:
            continue
        shown = f"HorizontalPodAutoscaler {item.metadata.name}"
        if keda := (item.metadata.labels or {}).get("scaledobject.keda.sh/name"):
            shown = f"KEDA's ScaledObject {keda}"
        idle = [condition.reason for condition in item.status.conditions or ()
                if (condition.type, condition.status) == ("ScalingActive", "False")]  # fmt: skip
        scalers.append(
            Autoscaler(
                namespace=item.metadata.namespace,
                node_set=target.name,
                shown=printable(f"{shown} ({idle[0]})" if idle and idle[0] else shown, 160),
                is_idle=bool(idle),
            )
        )
    return scalers


_JSON_PATCH = "application/json-patch+json"
_SLURMD = "app.kubernetes.io/name=slurmd,app.kubernetes.io/component=worker"
_API = "/apis/slinky.slurm.net/v1beta1"


@dataclass(frozen=True)
class NodeSetConnection:
    """The calls for NodeSets that only nodeset-convert needs. Every method raises KubeError."""

    requests: ApiRequests

    def read_pods(self, node: str = "") -> Sequence[SlurmdPod]:
        """Returns the slurmd pods of a Node, or of the cluster if `node` is empty."""
        query = {"labelSelector": _SLURMD}
        if node:
            query["fieldSelector"] = f"spec.nodeName={node}"
        request = List(path_of("pods"), "PodList", query)
        shown = "slurmd's pods" + (f" on node {node}" if node else "")
        return self._list(shown, "pods", request, read_pod_page)

    def read_sets(self) -> Sequence[NodeSet]:
        request = List(path_of("nodesets", api=_API), "NodeSetList")
        sets = self._list("the NodeSets", "nodesets.slinky.slurm.net", request, read_set_page)
        if all(node_set.is_daemon_set for node_set in sets):
            return sets
        path = path_of("horizontalpodautoscalers", api="/apis/autoscaling/v2")
        of = "horizontalpodautoscalers.autoscaling"
        request = List(path, "HorizontalPodAutoscalerList")
        scalers = self._list("the autoscalers", of, request, read_scaler_page)
        return [_with_scalers(node_set, scalers) for node_set in sets]

    def read_chosen(self, key: str, value: str) -> Sequence[str]:
        """Returns the Ready Nodes with this label that are not cordoned."""
        label = f"{key}={value}"
        request = List(path_of("nodes"), "NodeList", {"labelSelector": label})
        nodes = self._list(f"the Nodes with {label}", "nodes", request, read_node_page)
        return [node.name for node in nodes if node.is_ready and not node.is_cordoned]

    def _list(
        self, shown: str, of: str, request: List, read: Callable[[memoryview], Iterable[T]]
    ) -> list[T]:
        with self.requests.asking(f"list {shown}", f"list {of}"), fault_point("kube.node_sets"):
            return self.requests.collect(request, read)

    def set_cost(self, pod: SlurmdPod, cost: int | None) -> None:
        """Sets or removes the pod's pod-deletion-cost. Fails if another pod has its name by now."""
        annotations = {COST: None if cost is None else str(cost)}
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        path = path_of("pods", pod.name, pod.namespace)
        self._patch(f"write the deletion cost of pod {pod.key}", "pods", path, patch)

    def scale(self, node_set: NodeSet, replicas: int) -> None:
        """Changes the NodeSet's replicas. Fails if the NodeSet has changed since it was read."""
        path = path_of("nodesets", node_set.name, node_set.namespace, _API)
        patch = {
            "metadata": {"resourceVersion": node_set.resource_version},
            "spec": {"replicas": replicas},
        }
        shown = f"scale NodeSet {node_set.key} to {replicas}"
        self._patch(shown, "nodesets/scale", f"{path}/scale?fieldManager={MANAGER}", patch)

    def remove_label(self, node: str, key: str, value: str) -> None:
        """Removes the label from the Node. Fails if the label has another value than `value`."""
        path = f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}"
        patch = [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
        shown = f"take the label {key} off node {node}"
        self.requests.change_node(
            lambda: self._patch(shown, "nodes", path_of("nodes", node), patch, _JSON_PATCH)
        )

    def _patch(
        self, shown: str, of: str, path: str, patch: object, kind: str = MERGE_PATCH
    ) -> None:
        with self.requests.changing(shown, f"patch {of}"), fault_point("kube.change_node_set"):
            self.requests.session.write("PATCH", path, patch, kind)


def _with_scalers(entry: NodeSet, scalers: Sequence[Autoscaler]) -> NodeSet:
    own = [scaler for scaler in scalers
           if (scaler.namespace, scaler.node_set) == (entry.namespace, entry.name)]  # fmt: skip
    active = tuple(scaler.shown for scaler in own if not scaler.is_idle)
    idle = tuple(scaler.shown for scaler in own if scaler.is_idle)
    return msgspec.structs.replace(entry, scalers=(*active, *entry.scalers), idle_scalers=idle)
