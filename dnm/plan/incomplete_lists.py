"""Detection of lists that are well formed but lack expected objects. Pure.

A server that was restored, a filter in front of it or a cold cache can answer with a valid list
that is empty or partial. dnm detects such a list by contradictions, not by its size: as long as a
Node exists, it runs pods of DaemonSets or mirror pods of its kubelet. The registry records which
Nodes had such pods, and which namespaces had pods on each lent node. Decisions that depend on such
a list wait, as for any fact that could not be read."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, SchedulerView
from dnm.model.lent import Phase
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.printable import count_of, duration
from dnm.model.registry import Registry, RunRecord
from dnm.model.value import Unreadable, Value

_EMPTY_LIST_FOR = timedelta(days=1)  # a list without any such pod is rejected, and runs fail
_PARTIAL_LIST_FOR = timedelta(hours=1)  # a DaemonSet may have been removed from some Nodes
_SHOWN = 3  # names
_IN_USE = (Phase.SERVING, Phase.RELEASING, Phase.MOVING)
_OTHER_NODES = 3  # Nodes that are not lent and are recorded too


class _Flaws(Value):
    """The contradictions in a list of pods. `why` is a reason to reject the whole list. `missed`
    nodes lack pods that they had. `hidden` nodes serve queues in which the scheduler has pods, but
    the list none. `emptied` nodes serve namespaces without a pod in the list; the next run checks
    them again. After `patience`, the list is accepted."""

    why: str = ""
    missed: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    emptied: frozenset[str] = frozenset()
    patience: timedelta = _PARTIAL_LIST_FOR


def reject_incomplete_lists(
    registry: Registry, instance: str, snapshot: Snapshot
) -> tuple[Snapshot, RunRecord]:
    """Returns the snapshot without lists that contradict the registry, and the record of the last
    run. The record is updated with the Nodes on which the snapshot shows permanent pods; without a
    change, it is the same object. While lent nodes serve, a list without Nodes is rejected until an
    administrator decides. Lists of pods are rejected for a limited time."""
    attended = _attended_nodes(snapshot)
    flaws = _check_pods(registry, instance, snapshot, attended)
    last_run = _updated_record(registry, instance, snapshot, flaws, attended)
    in_kubernetes = registry.nodes_of(instance, *_IN_USE)
    if snapshot.nodes == () and in_kubernetes:
        names = ", ".join(list(in_kubernetes)[:_SHOWN])
        lent = count_of(len(in_kubernetes), "lent node")
        error = Unreadable(
            subject="nodes",
            error=f"the list of Nodes is empty although {lent} should be there ({names}), so dnm "
            "ignores it. Check `kubectl get nodes`; if the nodes are really gone, run `dnm forget "
            "NODE` for each",
        )
        unread = QueueFacts(unread=error)
        seen = Snapshot(taken_at=snapshot.taken_at, pods=error, nodes=error, queue_facts=unread)
        return seen, last_run
    return _without_flawed(snapshot, registry.last_run, flaws), last_run


def _attended_nodes(snapshot: Snapshot) -> frozenset[str]:
    """Returns the Nodes with listed pods that any Node has: those of DaemonSets, or mirror pods."""
    pods = snapshot.pods
    if isinstance(pods, Unreadable):
        return frozenset()
    # The list has all pods of the cluster: a function call for each would be too slow.
    daemon_pods = (pod for pod in pods.pods if pod.is_daemonset or pod.is_mirror)
    return frozenset(pod.node for pod in daemon_pods if pod.node)


def _without_flawed(snapshot: Snapshot, last_run: RunRecord, flaws: _Flaws) -> Snapshot:
    if not _is_active(flaws, last_run, snapshot):
        return replace(snapshot, unseen_nodes=flaws.emptied) if flaws.emptied else snapshot
    if flaws.why:
        error = (
            f"{flaws.why}. dnm ignores it for {duration(flaws.patience)}. Check "
            "`kubectl get pods -A`"
        )
        return replace(snapshot, pods=Unreadable(subject="pods", error=error))
    return replace(snapshot, unseen_nodes=flaws.missed | flaws.hidden | flaws.emptied)


def _updated_record(
    registry: Registry, instance: str, snapshot: Snapshot, flaws: _Flaws, attended: frozenset[str]
) -> RunRecord:
    last_run, pods = registry.last_run, snapshot.pods
    if not (isinstance(pods, PodList) and pods.cluster_wide):
        return last_run
    is_flawed = flaws != _Flaws(emptied=flaws.emptied)
    since = (last_run.contradicted_since or snapshot.taken_at) if is_flawed else None
    is_in_force = _is_active(flaws, last_run, snapshot)
    if flaws.why and is_in_force:
        return replace(last_run, contradicted_since=since)
    missed = flaws.missed if is_in_force else frozenset()
    lent = registry.nodes_of(instance, *Phase).keys()
    other_nodes = sorted(attended - lent, key=lambda name: (name not in last_run.attended, name))
    names = missed | (attended & lent) | set(other_nodes[:_OTHER_NODES])
    return replace(last_run, attended=tuple(sorted(names)), contradicted_since=since)


def _check_pods(
    registry: Registry, instance: str, snapshot: Snapshot, attended: frozenset[str]
) -> _Flaws:
    pods, nodes = snapshot.pods, snapshot.nodes
    if not (isinstance(pods, PodList) and pods.cluster_wide) or isinstance(nodes, Unreadable):
        return _Flaws()
    ready = {node.name for node in nodes if node.is_ready and not node.is_deleting}
    lent = registry.nodes_of(instance, *Phase)
    in_use = registry.nodes_of(instance, *_IN_USE)
    held = registry.last_run.pods
    ran = {name: held[name].namespaces for name in in_use if name in held and held[name].count}
    missed = ready.intersection(registry.last_run.attended) - attended
    if missed and not attended and (len(missed) > 1 or not pods.pods):
        names = ", ".join(sorted(missed)[:_SHOWN])
        return _Flaws(
            why=f"the list has {count_of(len(pods.pods), 'pod')}, none of a DaemonSet and no "
            f"mirror pod, although Nodes that had such pods are Ready ({names})",
            patience=_EMPTY_LIST_FOR,
        )
    populated = {pod.namespace for pod in pods.pods} if ran else set()
    emptied = [
        name
        for name, namespaces in ran.items()
        if in_use[name].phase is Phase.RELEASING and populated.isdisjoint(namespaces)
    ]
    hidden = _hidden_queues(snapshot, pods, {entry.queue.lower() for entry in in_use.values()})
    return _Flaws(
        missed=frozenset(missed.intersection(lent)),
        hidden=frozenset(name for name, node in in_use.items() if node.queue.lower() in hidden),
        emptied=frozenset(ready.intersection(emptied)),
    )


def _hidden_queues(snapshot: Snapshot, pods: PodList, queues: set[str]) -> set[str]:
    """Returns the queues in which the scheduler has pods, but the list of pods has none of them."""
    view = snapshot.queue_facts.view
    if not isinstance(view, SchedulerView):
        return set()
    uids_by_queue: dict[str, set[str]] = {}
    for uid, queue in view.queue_of_pod.items():
        if queue in queues and any(view.allocated.get(queue, {}).values()):
            uids_by_queue.setdefault(queue, set()).add(uid)
    listed = {pod.uid for pod in pods.pods} if uids_by_queue else set()
    return {queue for queue, uids in uids_by_queue.items() if uids.isdisjoint(listed)}


def _is_active(flaws: _Flaws, last_run: RunRecord, snapshot: Snapshot) -> bool:
    since = last_run.contradicted_since or snapshot.taken_at
    is_young = timedelta(0) <= snapshot.taken_at - since < flaws.patience
    return is_young and bool(flaws.why or flaws.missed or flaws.hidden)
