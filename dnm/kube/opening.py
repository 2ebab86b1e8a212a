"""The facts that readiness checks of joining nodes need, and dnm's own pods for these checks.

dnm reads them only while a node joins that belongs to a type with readiness checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused, clean
from dnm.kube.objects import READY, Condition, Metadata, check_kind
from dnm.kube.pod_reading import NodeRules
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.model.close_look import CloseLook, DaemonPods, FactsRequest, ImageUsers, OwnPod
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.node import Node
from dnm.model.opening import PodOrder, full_name
from dnm.model.value import Unreadable

_MOST_IMAGES = 1_000  # of one Node
# In these states a container has its image.
_PULLED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")
_OF_DAEMONS = {"daemonsets", "daemonset"}
_REFUSED = (400, 403, 422)
T = TypeVar("T")


class _Lean(msgspec.Struct, frozen=True, rename="camel"):
    """The parent class of the objects that this module decodes."""


class _Container(_Lean, frozen=True):
    image: str = ""


class _Secret(_Lean, frozen=True):
    name: str = ""


class _Spec(NodeRules, frozen=True, rename="camel"):
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    image_pull_secrets: list[_Secret] | None = None
    scheduler_name: str | None = None


class _State(_Lean, frozen=True):
    reason: str = ""
    message: str = ""
    exit_code: int = 0


class _States(_Lean, frozen=True):
    waiting: _State | None = None
    running: _State | None = None
    terminated: _State | None = None


class _ContainerStatus(_Lean, frozen=True):
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    state: _States = _States()


class _Status(_Lean, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _Pod(_Lean, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class _Template(_Lean, frozen=True):
    spec: _Spec = _Spec()


class _DaemonSpec(_Lean, frozen=True):
    template: _Template = _Template()


class _DaemonSet(_Lean, frozen=True):
    metadata: Metadata
    spec: _DaemonSpec = _DaemonSpec()


class _Image(_Lean, frozen=True):
    names: list[str] | None = None


class _NodeStatus(_Lean, frozen=True):
    conditions: list[Condition] | None = None
    images: list[_Image] | None = None


class _Node(_Lean, frozen=True):
    status: _NodeStatus = _NodeStatus()


def look_closely(
    requests: ApiRequests, asked: Iterable[FactsRequest]
) -> dict[str, CloseLook | Unreadable]:
    """Returns for each node the facts for its readiness checks, or why they cannot be read."""
    daemons: list[_DaemonSet] | None = None
    facts: dict[str, CloseLook | Unreadable] = {}
    for request in asked:
        try:
            if request.kinds & _OF_DAEMONS and daemons is None:
                daemons = _list_daemons(requests)
            facts[request.node] = _look(requests, request, daemons or [])
        except (KubeError, msgspec.MsgspecError) as error:
            facts[request.node] = Unreadable(
                subject=f"what node {request.node} lacks", error=clean(str(error))
            )
    return facts


def _look(requests: ApiRequests, asked: FactsRequest, daemons: Sequence[_DaemonSet]) -> CloseLook:
    task = f"read node {asked.node}"
    with requests.asking(task, "get nodes"), fault_point("kube.look_closely"):
        answer = requests.read_or_none(path_of("nodes", asked.node))
        node = msgspec.json.decode(answer.body, type=_Node) if answer else _Node()
    pods: list[_Pod] = []
    if daemons or asked.pods:
        chosen = {"fieldSelector": f"spec.nodeName={asked.node}"}
        pods = _list(requests, List("/api/v1/pods", "PodList", chosen), "list pods", _Pod)
    waiting: list[_Pod] = []
    if "images" in asked.kinds:
        path = path_of("pods", namespace=asked.namespace)
        chosen = {"fieldSelector": "spec.nodeName=,status.phase=Pending"}
        waiting = _list(requests, List(path, "PodList", chosen), "list pods", _Pod)
    images = (node.status.images or [])[:_MOST_IMAGES]
    return CloseLook(
        conditions={condition.type: condition.status for condition in node.status.conditions or ()},
        images=frozenset(full_name(name) for image in images for name in image.names or ()),
        daemons=tuple(_daemon_pods(daemon, pods) for daemon in daemons),
        waiting=tuple(_users(pod) for pod in waiting),
        pods={pod.key: _own(pod) for pod in pods if pod.key in asked.pods},
    )


def list_daemons(requests: ApiRequests) -> list[DaemonPods]:
    """Returns all DaemonSets, without pods, since a new node has none of them. Raises KubeError."""
    return [_daemon_pods(daemon, ()) for daemon in _list_daemons(requests)]


def _list_daemons(requests: ApiRequests) -> list[_DaemonSet]:
    listing = List("/apis/apps/v1/daemonsets", "DaemonSetList")
    return _list(requests, listing, "list daemonsets", _DaemonSet)


def _list(requests: ApiRequests, listing: List, rule: str, of: type[T]) -> list[T]:
    """Returns all objects of a list, decoded as `of`. Raises KubeError."""
    with requests.asking(rule, rule), fault_point("kube.look_closely"):
        return requests.list_items(listing, of)


def _daemon_pods(daemon_set: _DaemonSet, pods: Sequence[_Pod]) -> DaemonPods:
    name = f"{daemon_set.metadata.namespace}/{daemon_set.metadata.name}"
    shape = daemon_set.spec.template.spec.shape()
    mine = [
        pod
        for pod in pods
        if pod.metadata.namespace == daemon_set.metadata.namespace  # a tenant may name any owner
        and any(
            owner.uid == daemon_set.metadata.uid for owner in pod.metadata.owner_references or ()
        )
        and pod.metadata.deletion_timestamp is None
    ]
    if any(READY in (pod.status.conditions or ()) for pod in mine):
        return DaemonPods(name=name, shape=shape, is_ready=True, why="")
    if not mine:
        return DaemonPods(name=name, shape=shape)
    why = ": ".join(filter(None, ("is not Ready there", _trouble(mine[0]))))
    return DaemonPods(name=name, shape=shape, why=why)


def _trouble(pod: _Pod) -> str:
    """Returns the error in a pod's status, cut to a limit, or an empty text if it has none."""
    status = pod.status
    statuses = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    problems = [(status.reason, status.message)] if status.reason else []
    for item in statuses:
        if item.state.waiting is not None:
            problems.append((item.state.waiting.reason, item.state.waiting.message))
        elif item.state.terminated is not None and item.state.terminated.exit_code:
            ended = item.state.terminated
            problems.append((f"exit {ended.exit_code}", ended.message or ended.reason))
    for reason, message in problems:
        if reason not in ("", "ContainerCreating", "PodInitializing"):
            return clean(": ".join(filter(None, (reason, message))))[:298]
    return ""


def _users(pod: _Pod) -> ImageUsers:
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    return ImageUsers(
        shape=pod.spec.shape(),
        images=tuple(dict.fromkeys(container.image for container in containers if container.image)),
        secrets=tuple(
            image_pull_secret.name
            for image_pull_secret in pod.spec.image_pull_secrets or ()
            if image_pull_secret.name
        ),
    )


def _own(pod: _Pod) -> OwnPod:
    """Returns the state of dnm's own pod on the node, with the images that are pulled. A container
    that could not start has its image nevertheless."""
    pulled = {
        full_name(container_status.image)
        for container_status in pod.status.container_statuses or ()
        if container_status.image_id
        or container_status.state.running is not None
        or (
            container_status.state.waiting is not None
            and container_status.state.waiting.reason in _PULLED
        )
    }
    return OwnPod(phase=pod.status.phase, why=_trouble(pod), pulled=frozenset(pulled))


# --- pods of dnm's own ---------------------------------------------------------------------------


def start_pod(requests: ApiRequests, node: Node, order: PodOrder) -> str:
    """Creates a pod on the node, if it does not exist yet. Returns why the server refuses it, or an
    empty text. Raises KubeError."""
    spec = _probe_spec(requests, order) if order.template else _pulling_spec(order)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": order.name,
            "namespace": order.namespace,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid,
                 "controller": True},
            ],
        },
        "spec": {
            **spec,
            "nodeName": node.name,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
        },
    }  # fmt: skip
    path = path_of("pods", namespace=order.namespace)
    task = f"start pod {order.namespace}/{order.name}"
    try:
        with requests.changing(task, "create pods"), fault_point("kube.start_pod"):
            check_kind(requests.session.write("POST", path, body).body, "Pod")
    except ApiRefused as error:
        if error.status not in _REFUSED:
            raise
        return clean(error.message or str(error))[:300]
    except KubeConflict:
        pass
    return ""


def drop_pod(requests: ApiRequests, namespace: str, name: str) -> None:
    """Deletes a pod if it exists. Raises KubeError."""
    path = path_of("pods", name, namespace)
    task = f"delete pod {namespace}/{name}"
    with requests.changing(task, "delete pods"), fault_point("kube.drop_pod"):
        requests.delete(path, "Pod")


def _pulling_spec(order: PodOrder) -> dict[str, Any]:
    """Returns the spec of a pod that pulls images onto a node. Its containers end at once or cannot
    start, but the kubelet pulls their images before that. The pod requests almost no resources, and
    no right that a restricted namespace refuses."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    little = {"cpu": "1m", "memory": "8Mi"}
    containers = [
        {"name": f"image-{number}", "image": image, "command": ["true"],
         "imagePullPolicy": "IfNotPresent", "securityContext": restricted,
         "resources": {"requests": little, "limits": {"cpu": "100m", "memory": "64Mi"}}}
        for number, image in enumerate(order.images)
    ]  # fmt: skip
    return {
        "containers": containers,
        "imagePullSecrets": [{"name": name} for name in order.secrets],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }


class _ProbeTemplate(msgspec.Struct):
    spec: dict[str, Any] = {}


class _PodTemplate(msgspec.Struct):
    template: _ProbeTemplate = msgspec.field(default_factory=_ProbeTemplate)


def _probe_spec(requests: ApiRequests, order: PodOrder) -> dict[str, Any]:
    task = f"read PodTemplate {order.namespace}/{order.template}"
    with requests.asking(task, "get podtemplates"), fault_point("kube.read_template"):
        answer = requests.read_or_none(path_of("podtemplates", order.template, order.namespace))
        if answer is None:
            raise KubeError(f"there is no PodTemplate {order.namespace}/{order.template}")
        return msgspec.json.decode(answer.body, type=_PodTemplate).template.spec
