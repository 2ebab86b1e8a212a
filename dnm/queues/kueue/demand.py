"""The demand for lent nodes: Workloads that Kueue can admit only with more quota of their flavor.
Computed from quotas and requests, never from Kueue's messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from dnm.model.cluster import RefusedPods
from dnm.model.config import Config
from dnm.model.kueue import (
    FLAVOR,
    ClusterQueue,
    Flavor,
    KueueWorkload,
    LocalQueue,
    PodSet,
    ResourceGroup,
    Usage,
)
from dnm.model.pod import NodeSelectorTerm, Pod, PodShape, Requirement, Toleration
from dnm.model.printable import printable
from dnm.model.quantity import add_to
from dnm.model.value import Resources, Value

MOST_PODS = 100_000  # of one Workload
_LONGEST_NAME = 160
_STOPPING = ("NoSchedule", "NoExecute")
Free = dict[tuple[str, str], int]  # (flavor, resource) -> quota that is not reserved


class WorkloadDemand(Value):
    """The pods that need lent nodes, and the Workloads that these cannot help, with the reason."""

    refused: tuple[RefusedPods, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


class CannotLendError(Exception):
    """The reason why lent nodes do not help a Workload."""


def count_used(
    usages: Iterable[Usage], paths: Mapping[str, str], flavor: str = FLAVOR
) -> dict[str, dict[str, int]]:
    """Returns queue path -> the quota of a flavor that admitted Workloads have reserved."""
    by_queue: dict[str, dict[str, int]] = {name: {} for name in paths.values()}
    for usage in usages:
        if usage.cluster_queue in by_queue:
            add_to(by_queue[usage.cluster_queue], usage.amounts.get(flavor, {}))
    return {path: by_queue[name] for path, name in paths.items()}


def find_demand(
    queue: ClusterQueue,
    workloads: Sequence[KueueWorkload],
    usages: Iterable[Usage],
    flavors: Mapping[str, Flavor],
    most: Resources,
) -> WorkloadDemand:
    """Returns the demand of one ClusterQueue. `workloads`: those that wait in its active
    LocalQueues. `most`: the largest quota of lent nodes that it can get."""
    free = _free_quota(queue, usages)
    refused: list[RefusedPods] = []
    left_out: dict[str, str] = {}
    shapes: dict[int, PodShape] = {}
    ordered = sorted(workloads, key=lambda item: (-item.priority, item.created, item.key))
    for workload in ordered:
        trial = dict(free)
        try:
            chosen = _place(queue, workload, flavors, trial)
            _check_size(chosen, most)
        except CannotLendError as why:
            left_out[workload.key] = str(why)
            if queue.is_strict:
                behind = ordered[ordered.index(workload) + 1 :]
                reason = f"StrictFIFO: {printable(workload.key, _LONGEST_NAME)} is before it"
                left_out |= {item.key: reason for item in behind}
                break
            continue
        free = trial
        for pod_set in chosen:
            shape = shapes.setdefault(
                id(pod_set.shape), _on_lent_nodes(pod_set.shape, flavors[FLAVOR])
            )
            refused.append(RefusedPods(
                pod=_pod(workload, shape), count=pod_set.count, workload=workload.key,
                least=pod_set.least, is_strict=queue.is_strict,
            ))  # fmt: skip
    refused += [_unhelped(item) for item in ordered if item.key in left_out and item.pod_sets]
    return WorkloadDemand(refused=tuple(refused), left_out=tuple(left_out.items()))


def _unhelped(workload: KueueWorkload) -> RefusedPods:
    """Returns the pods of a Workload that lent nodes do not help. They do not count."""
    pod, count = _pod(workload, workload.pod_sets[0].shape), sum(s.count for s in workload.pod_sets)
    return RefusedPods(pod=pod, count=count, is_unhelped=True)


def waiting_in(
    queue: str, workloads: Iterable[KueueWorkload], local_queues: Iterable[LocalQueue]
) -> list[KueueWorkload]:
    """Returns the Workloads that wait in those LocalQueues of a ClusterQueue that are active."""
    places = {
        (item.namespace, item.name)
        for item in local_queues
        if item.cluster_queue == queue and not item.is_stopped
    }
    return [item for item in workloads if (item.namespace, item.local_queue) in places]


def most_lent(config: Config, path: str) -> dict[str, int]:
    """Returns the largest quota of lent nodes that a queue can get: its cap of nodes, each of the
    largest size. Sets no bound for a resource that no node type has, or for a cap in percent."""
    policies = [policy for policy in config.namespaces.values() if policy.queue == path]
    caps = [policy.max_nodes for policy in policies]
    nodes = sum(cap for cap in caps if isinstance(cap, int))
    total = config.max_converted_nodes
    if not all(isinstance(cap, int) for cap in caps):
        nodes = total if isinstance(total, int) else 0
    elif isinstance(total, int):
        nodes = min(nodes, total)
    names = {name for policy in policies for name in policy.node_types}
    sizes = [config.node_types[name].size for name in names if name in config.node_types]
    largest = {name: max(size.get(name, 0) for size in sizes) for size in sizes for name in size}
    return {name: amount * nodes for name, amount in largest.items()} if nodes else {}


# --- where Kueue could admit a Workload ----------------------------------------------------------


def _free_quota(queue: ClusterQueue, usages: Iterable[Usage]) -> Free:
    free: Free = {}
    for group in queue.groups:
        for quota in group.flavors:
            for name in group.resources:
                free[quota.name, name] = quota.nominal.get(name, 0)
    for usage in usages:
        if usage.cluster_queue == queue.name:
            for flavor, amounts in usage.amounts.items():
                for name, amount in amounts.items():
                    if (flavor, name) in free:
                        free[flavor, name] -= amount
    return free


def _place(
    queue: ClusterQueue, workload: KueueWorkload, flavors: Mapping[str, Flavor], free: Free
) -> list[PodSet]:
    """Returns the pod sets that need lent nodes. Kueue assigns a whole pod set to one flavor. A set
    that fits another flavor takes that flavor's quota from `free`. Raises CannotLendError."""
    chosen: list[PodSet] = []
    for pod_set in workload.pod_sets:
        if pod_set.shape.is_cut or pod_set.count > MOST_PODS:
            raise CannotLendError("it has more pods or requirements than dnm counts")
        request = {name: amount * pod_set.count for name, amount in pod_set.shape.request.items()}
        covered = {name for group in queue.groups for name in group.resources}
        if missing := sorted(request.keys() - covered - {"pods"}):
            raise CannotLendError(f"the ClusterQueue covers no {', '.join(missing)}")
        is_lent = False
        for group in queue.groups:
            wanted = {name: request[name] for name in group.resources if request.get(name)}
            if not wanted:
                continue
            flavor = _find_flavor(group, pod_set.shape, wanted, flavors, free)
            if flavor is not None:
                for name, amount in wanted.items():
                    free[flavor, name] -= amount
            elif group is queue.group and _is_eligible(pod_set.shape, flavors.get(FLAVOR)):
                is_lent = True
            elif group is queue.group:
                raise CannotLendError(f"its selectors or tolerations exclude the flavor {FLAVOR}")
            else:
                raise CannotLendError(
                    f"there is no quota of {', '.join(sorted(wanted))}, which is not lent"
                )
        if is_lent:
            chosen.append(pod_set)
    return chosen


def _find_flavor(
    group: ResourceGroup,
    shape: PodShape,
    wanted: Resources,
    flavors: Mapping[str, Flavor],
    free: Free,
) -> str | None:
    """Returns the first flavor of permanent nodes with enough free quota."""
    for quota in group.flavors:
        if quota.name == FLAVOR or not _is_eligible(shape, flavors.get(quota.name)):
            continue
        if all(free[quota.name, name] >= amount for name, amount in wanted.items()):
            return quota.name
    return None


def _check_size(chosen: Sequence[PodSet], most: Resources) -> None:
    """Raises CannotLendError if dnm may not lend enough nodes for the least pods of these sets."""
    total: dict[str, int] = {}
    for item in chosen:
        add_to(total, item.shape.request, item.least)
    if excess := sorted(name for name, amount in most.items() if total.get(name, 0) > amount):
        raise CannotLendError(f"it requests more {', '.join(excess)} than dnm may lend at most")


def _is_eligible(shape: PodShape, flavor: Flavor | None) -> bool:
    """Returns whether Kueue would assign a flavor to these pods: it compares selectors with the
    labels of the flavor, and tolerations with its taints."""
    if flavor is None:
        return False
    labels, selector = flavor.labels, dict(shape.node_selector)
    if any(labels[key] != value for key, value in selector.items() if key in labels):
        return False
    if shape.node_affinity and not any(_may_match(term, labels) for term in shape.node_affinity):
        return False
    tolerations = (*shape.tolerations, *flavor.tolerations)
    return all(
        any(tolerates(toleration, taint.key, taint.value, taint.effect)
            for toleration in tolerations)
        for taint in flavor.taints
        if taint.effect in _STOPPING
    )  # fmt: skip


def _may_match(term: NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    return all(_holds(item, labels[item.key]) for item in term.expressions if item.key in labels)


def _holds(item: Requirement, value: str) -> bool:
    if item.operator == "In":
        return value in item.values
    if item.operator == "NotIn":
        return value not in item.values
    return item.operator != "DoesNotExist"


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """Returns whether a toleration covers a taint."""
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.key, toleration.value) == (key, value)


def _on_lent_nodes(shape: PodShape, flavor: Flavor) -> PodShape:
    """Returns the pods' shape with the selector and tolerations that Kueue adds for lent nodes."""
    selector = {**dict(shape.node_selector), **flavor.labels}
    return replace(
        shape,
        node_selector=tuple(sorted(selector.items())),
        tolerations=(*shape.tolerations, *flavor.tolerations),
    )


def _pod(workload: KueueWorkload, shape: PodShape) -> Pod:
    return Pod(
        namespace=workload.namespace,
        name=f"{printable(workload.name, _LONGEST_NAME)} (Workload, not admitted)",
        shape=shape,
        created=workload.created,
        app_id=workload.namespace,
        is_managed=True,
    )
