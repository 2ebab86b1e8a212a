"""The request of one pod, computed as schedulers do from its containers.

The rules are those of Kubernetes' resource helpers, which queue systems copy. `kube/shapes.py`
calls this once for every distinct kind of pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dnm.model.pod import MOST_RESOURCES, Pod, PodShape
from dnm.model.quantity import add_to, kube_resources
from dnm.model.value import Resources, Value


class ContainerRequest(Value):
    """A container of a pod's spec with its requests as text. `is_sidecar`: it is an init container
    with restartPolicy Always."""

    name: str
    requests: Mapping[str, str] = {}
    is_sidecar: bool = False


class ContainerState(Value):
    """A container's status: allocatedResources, and resources.requests (None: not reported)."""

    allocated: Mapping[str, str] = {}
    requests: Mapping[str, str] | None = None


class PodRequest(Value):
    """The fields of a pod that decide its request. `states` has the status of each container by
    name, including init containers."""

    containers: tuple[ContainerRequest, ...]
    init_containers: tuple[ContainerRequest, ...] = ()
    pod_level: Mapping[str, str] = {}  # spec.resources.requests
    overhead: Mapping[str, str] = {}
    states: Mapping[str, ContainerState] = {}
    resize_infeasible: bool = False


def with_counted_names(pod: PodRequest) -> PodRequest | None:
    """Returns the pod with only MOST_RESOURCES resource names, the extended resources removed
    first, or None if it has no more than that. A tenant can invent any number of names."""
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


def effective_request(pod: PodRequest, sidecars_twice: bool = False) -> dict[str, int]:
    """Returns the total request of a pod as Kubernetes computes it, with `pods: 1`.

    With `sidecars_twice`, each sidecar counts twice while it starts, as in some queue systems."""
    if len(pod.containers) == 1 and not (pod.init_containers or pod.pod_level or pod.overhead):
        return _plus({"pods": 1}, _container_request(pod.containers[0], pod))
    sidecars: dict[str, int] = {}
    init_peak: dict[str, int] = {}
    for container in pod.init_containers:
        request = _container_request(container, pod)
        step = _plus(request, sidecars)
        if container.is_sidecar:
            sidecars = _plus(sidecars, request)
            step = _plus(step, request) if sidecars_twice else step
        init_peak = most_of(init_peak, step)
    total = _plus({"pods": 1}, sidecars)
    for container in pod.containers:
        total = _plus(total, _container_request(container, pod))
    total = most_of(total, init_peak)
    for name, amount in kube_resources(pod.pod_level).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    return _plus(total, kube_resources(pod.overhead))


def with_sidecars_twice(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Returns the pods with the requests that a queue system computes if it counts sidecars twice.
    Equal shapes remain one shared object."""
    shapes: dict[int, PodShape] = {}

    def counted(pod: Pod) -> Pod:
        earlier = pod.shape.request_sidecars_twice
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
    """Returns for each resource the larger of two amounts."""
    most = dict(left)
    for name, amount in right.items():
        most[name] = max(most.get(name, 0), amount)
    return most


def count_rules(shape: PodShape) -> int:
    """Returns the cost of comparing a pod with a node: the number of its selectors, tolerations and
    other rules. Ten values of a rule count as one."""
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
