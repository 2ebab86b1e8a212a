"""The explanation of a Workload for `dnm explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnm.kube.requests import ApiRequests
from dnm.kube.workload_states import WorkloadState, read_workload_states
from dnm.model.cluster import QueueFacts
from dnm.model.printable import count_of
from dnm.queues.kueue.facts import KueueFacts


def explain_workload(
    api: ApiRequests, facts: QueueFacts, asked: tuple[str, str], incomplete: Mapping[str, str]
) -> dict[str, Any] | None:
    """Explains the first waiting Workload with this name, or with an owner of this name; None:
    there is none. `asked`: namespace and name. `incomplete`: Workload -> why it gets no node.
    Raises KubeError."""
    found = read_workload_states(api, *asked)
    if not (found and isinstance(facts, KueueFacts)):
        return None
    waiting = [item for item in found if item.is_waiting]
    first = (waiting or found)[0]
    places = {(item.namespace, item.name): item.cluster_queue for item in facts.local_queues}
    queue = places.get((first.namespace, first.local_queue), "")
    of_many = f"{len(waiting)} of its {len(found)} Workloads wait" if len(found) > 1 else ""
    obstacles = (of_many, _find_obstacle(facts, first, queue, incomplete), first.message)
    pods, flavors = count_of(first.pods, "pod"), ", ".join(first.flavors)
    state = f"waits in ClusterQueue {queue or '(none)'} with {pods}"
    if not first.is_waiting:
        state = f"has quota for {pods} in ClusterQueue {first.cluster_queue}, flavor {flavors}"
    return {
        "workload": first.key,
        "state": "has finished" if first.is_finished else state,
        "obstacles": list(filter(None, obstacles)) if waiting else [],
        "is_waiting": first.is_waiting,
    }


def _find_obstacle(
    facts: KueueFacts, state: WorkloadState, name: str, incomplete: Mapping[str, str]
) -> str:
    """Returns what keeps a Workload of ClusterQueue `name` from its quota."""
    queue = next((item for item in facts.queues if item.name == name), None)
    if not state.is_active:
        return "its spec.active is false, so that Kueue does not admit it"
    if queue is None:
        return f"no ClusterQueue belongs to its LocalQueue {state.local_queue}"
    if name not in facts.paths.values():
        return f"dnm does not serve ClusterQueue {name}"
    if queue.inactive:
        return f"ClusterQueue {name} is inactive: {queue.inactive}"
    if why := dict(facts.left_out).get(state.key):
        return f"lent nodes do not help it: {why}"
    if why := incomplete.get(state.key):
        return f"it gets no node, since Kueue admits it as a whole: it {why}"
    if count := sum(pods.count for pods in facts.refused if pods.workload == state.key):
        return f"{count} of its pods need lent nodes"
    return "it fits the free quota of permanent nodes, so that Kueue admits it without dnm"
