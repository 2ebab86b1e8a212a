"""The request, application and queue of one pod, as YuniKorn reads them.

The rules are those of apache/yunikorn-k8shim, pkg/common/resource.go and pkg/common/utils/utils.go,
releases 1.6 to 1.9. `kube/shapes.py` calls this once for every distinct kind of pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dnm.model.pod import Pod, PodShape
from dnm.model.quantity import add_to, kube_resources
from dnm.model.value import Resources, Value

QUEUE_KEY = "yunikorn.apache.org/queue"
APP_ID_KEY = "yunikorn.apache.org/app-id"
_UNIQUE_SUFFIX = "-uniqueautogen"
_LONGEST_APP_ID = 63

MOST_TASK_GROUPS = 32  # of one application
MOST_RESOURCES = 32  # of a pod, or of one task group; `pods` not among them
LONGEST_PATH = 1024  # characters of a queue or an application that a pod may name
LONGEST_GROUP = 253  # of a task group


class ContainerRequest(Value):
    """A container of the spec; `requests` as the API prints them. `is_sidecar`: an init container
    with restartPolicy Always."""

    name: str
    requests: Mapping[str, str] = {}
    is_sidecar: bool = False


class ContainerState(Value):
    """A container's status: `allocatedResources` and `resources.requests` (None: not reported)."""

    allocated: Mapping[str, str] = {}
    requests: Mapping[str, str] | None = None


class PodRequest(Value):
    """The fields of a pod that decide its request. `states` by container name, init containers
    included."""

    containers: tuple[ContainerRequest, ...]
    init_containers: tuple[ContainerRequest, ...] = ()
    pod_level: Mapping[str, str] = {}  # spec.resources.requests
    overhead: Mapping[str, str] = {}
    states: Mapping[str, ContainerState] = {}
    resize_infeasible: bool = False


def with_counted_names(pod: PodRequest) -> PodRequest | None:
    """Returns the request without resource names beyond MOST_RESOURCES, extended resources first;
    None if none are removed. A tenant can invent any number of names."""
    containers = (*pod.containers, *pod.init_containers)
    lists = [pod.pod_level, pod.overhead, *(container.requests for container in containers)]
    for state in pod.states.values():
        lists += [state.allocated, state.requests or {}]
    if sum(map(len, lists)) <= MOST_RESOURCES:
        return None
    names = {name for entry in lists for name in entry}
    if len(names) <= MOST_RESOURCES:
        return None
    kept = frozenset(sorted(names, key=lambda name: ("/" in name, name))[:MOST_RESOURCES])

    def cut(amounts: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in amounts.items() if name in kept}

    return PodRequest(
        containers=tuple(
            replace(container, requests=cut(container.requests)) for container in pod.containers
        ),
        init_containers=tuple(
            replace(init_container, requests=cut(init_container.requests))
            for init_container in pod.init_containers
        ),
        pod_level=cut(pod.pod_level),
        overhead=cut(pod.overhead),
        states={
            name: ContainerState(
                allocated=cut(state.allocated),
                requests=None if state.requests is None else cut(state.requests),
            )
            for name, state in pod.states.items()
        },
        resize_infeasible=pod.resize_infeasible,
    )


def effective_request(pod: PodRequest, is_before_1_9: bool = False) -> dict[str, int]:
    """Returns a pod's request as YuniKorn sums it up, with `pods: 1`, in YuniKorn's names and
    units.

    Releases 1.6 to 1.8 add a sidecar to itself in its own step of the init phase
    (checkInitContainerRequest in resource.go); 1.9 does not."""
    if len(pod.containers) == 1 and not (pod.init_containers or pod.pod_level or pod.overhead):
        return _plus({"pods": 1}, _container_request(pod.containers[0], pod))
    sidecars: dict[str, int] = {}
    init_peak: dict[str, int] = {}
    for container in pod.init_containers:
        request = _container_request(container, pod)
        step = _plus(request, sidecars)
        if container.is_sidecar:
            sidecars = _plus(sidecars, request)
            step = _plus(step, request) if is_before_1_9 else step
        init_peak = most_of(init_peak, step)
    total = _plus({"pods": 1}, sidecars)
    for container in pod.containers:
        total = _plus(total, _container_request(container, pod))
    total = most_of(total, init_peak)
    for name, amount in kube_resources(pod.pod_level).items():
        if name in ("vcore", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    return _plus(total, kube_resources(pod.overhead))


def as_counted(pods: Sequence[Pod], release: tuple[int, int] | None) -> Sequence[Pod]:
    """Returns the pods with their requests as this release of YuniKorn sums them up; if it is
    unknown, as 1.9 does. Equal shapes stay one object."""
    if release is None or release >= (1, 9):
        return pods
    shapes: dict[int, PodShape] = {}

    def counted(pod: Pod) -> Pod:
        earlier = pod.shape.request_before_1_9
        if not earlier:
            return pod
        shape = shapes.get(id(pod.shape)) or replace(pod.shape, request=earlier)
        return replace(pod, shape=shapes.setdefault(id(pod.shape), shape))

    return [counted(pod) for pod in pods]


def _container_request(container: ContainerRequest, pod: PodRequest) -> dict[str, int]:
    state = pod.states.get(container.name)
    if state is None:
        return kube_resources(container.requests)
    if pod.resize_infeasible and state.requests is not None:
        return kube_resources(state.requests)
    request = most_of(kube_resources(container.requests), kube_resources(state.allocated))
    return most_of(request, kube_resources(state.requests or {}))


def _plus(left: Resources, right: Resources) -> dict[str, int]:
    total = dict(left)
    add_to(total, right)
    return total


def most_of(left: Resources, right: Resources) -> dict[str, int]:
    """Returns the larger amount of each resource."""
    most = dict(left)
    for name, amount in right.items():
        most[name] = max(most.get(name, 0), amount)
    return most


def application_id(
    labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str, uid: str
) -> str:
    """Returns the application of a pod with schedulerName yunikorn (k8shim 1.6, utils.go)."""
    name = (
        labels.get(APP_ID_KEY)
        or annotations.get(APP_ID_KEY)
        or labels.get("applicationId")
        or labels.get("spark-app-selector")
        or ""
    )
    name = name[:LONGEST_PATH]
    if name.endswith(_UNIQUE_SUFFIX):
        return f"{name.removesuffix(_UNIQUE_SUFFIX)}-{uid}"
    return name or f"yunikorn-{namespace}-autogen"[:_LONGEST_APP_ID]


def requested_queue(
    labels: Mapping[str, str], annotations: Mapping[str, str], site_key: str = QUEUE_KEY
) -> str:
    """Returns the queue that a pod names, unchanged; empty: none. `site_key` is the configured key:
    it is read as label and as annotation, before YuniKorn's own keys."""
    queue = (
        labels.get(site_key)
        or annotations.get(site_key)
        or labels.get(QUEUE_KEY)
        or annotations.get(QUEUE_KEY)
        or labels.get("queue")
        or ""
    )
    return queue[:LONGEST_PATH]


def count_rules(shape: PodShape) -> int:
    """Returns the effort of a comparison with a node: the number of rules, where ten values count
    as one."""
    terms = [
        expression
        for term in shape.node_affinity
        for expression in (*term.expressions, *term.fields)
    ]
    terms += [expression for affinity in shape.pod_affinity for expression in affinity.expressions]
    plain = (shape.node_selector, shape.tolerations, shape.node_affinity, shape.pod_affinity,
             shape.spread_keys, shape.host_ports)  # fmt: skip
    values = sum(len(term.values) for term in terms) + len(shape.labels)
    return sum(map(len, plain)) + len(terms) + values // 10
