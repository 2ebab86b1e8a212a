"""Lists that are well formed and lack what must be there. Pure.

A server that was restored, a filter before it or a cache that is cold can answer with a list that
has everything a list needs, and is empty or holds a part. It is told by what it contradicts and not
by its size: Nodes run pods of DaemonSets, or of their kubelets themselves, for as long as they are
there, and the record knows which did; it knows whose pods ran on each lent node too. What rests on
such a list waits, as for any fact that could not be read.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from dnm.model.cluster import YunikornView
from dnm.model.lent import Phase
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.printable import count_of, duration
from dnm.model.registry import Registry, RunRecord
from dnm.model.value import Unreadable, Value

_PATIENCE = timedelta(days=1)  # with a list of no such pods at all: runs fail for as long
_WITH_A_PART = timedelta(hours=1)  # a DaemonSet may have left some Nodes
_SHOWN = 3  # names
_IN_USE = (Phase.SERVING, Phase.RELEASING, Phase.MOVING)
_WITNESSES = 3  # Nodes that are not lent, which the record knows too


class _Doubt(Value):
    """What speaks against a list of pods. `why`: against all of it. `missed`: these lack what they
    had. `hidden`: the scheduler has pods in the queue of these, and the list has none of them.
    `emptied`: nor has it a pod of the namespaces that these served; the next run looks again.
    `patience`: then it is believed after all."""

    why: str = ""
    missed: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    emptied: frozenset[str] = frozenset()
    patience: timedelta = _WITH_A_PART


def doubt_lists(
    registry: Registry, instance: str, snapshot: Snapshot
) -> tuple[Snapshot, RunRecord]:
    """Returns the snapshot without what contradicts the record: a list of no Nodes while lent nodes
    serve (for good: a person says what is true), and lists of pods. And the record of the last run
    with the Nodes on which this snapshot shows pods that stay, as read and not as believed; at rest
    it is the same."""
    attended = _attended_nodes(snapshot)
    doubt = _doubt_pods(registry, instance, snapshot, attended)
    noted = _remember(registry, instance, snapshot, doubt, attended)
    in_kubernetes = registry.nodes_of(instance, *_IN_USE)
    if snapshot.nodes == () and in_kubernetes:
        names = ", ".join(list(in_kubernetes)[:_SHOWN])
        lent = count_of(len(in_kubernetes), "lent node")
        why = Unreadable(
            what="nodes",
            error=f"the list of Nodes is empty although {lent} should be there ({names}): it is "
            "not believed. Look at `kubectl get nodes`; if they are gone indeed, `dnm forget NODE` "
            "for each",
        )
        return Snapshot(taken_at=snapshot.taken_at, pods=why, nodes=why, queue_maps=why), noted
    return _without_doubted(snapshot, registry.last_run, doubt), noted


def _attended_nodes(snapshot: Snapshot) -> frozenset[str]:
    """The Nodes on which the list shows pods that stay as long as the Node is there."""
    pods = snapshot.pods
    if isinstance(pods, Unreadable):
        return frozenset()
    # Of all the cluster's pods: without a call for each of them.
    apart = (pod for pod in pods.pods if pod.is_daemonset or pod.is_mirror)
    return frozenset(pod.node for pod in apart if pod.node)


def _without_doubted(snapshot: Snapshot, last_run: RunRecord, doubt: _Doubt) -> Snapshot:
    if not _is_in_force(doubt, last_run, snapshot):
        return replace(snapshot, unseen_nodes=doubt.emptied) if doubt.emptied else snapshot
    if doubt.why:
        error = (
            f"{doubt.why}: it is not believed for {duration(doubt.patience)}. Look at "
            "`kubectl get pods -A`"
        )
        return replace(snapshot, pods=Unreadable(what="pods", error=error))
    return replace(snapshot, unseen_nodes=doubt.missed | doubt.hidden | doubt.emptied)


def _remember(
    registry: Registry, instance: str, snapshot: Snapshot, doubt: _Doubt, attended: frozenset[str]
) -> RunRecord:
    last_run, pods = registry.last_run, snapshot.pods
    if not (isinstance(pods, PodList) and pods.cluster_wide):
        return last_run
    is_doubted = doubt != _Doubt(emptied=doubt.emptied)
    since = (last_run.pods_doubted_since or snapshot.taken_at) if is_doubted else None
    is_in_force = _is_in_force(doubt, last_run, snapshot)
    if doubt.why and is_in_force:
        return replace(last_run, pods_doubted_since=since)
    kept = doubt.missed if is_in_force else frozenset()
    lent = registry.nodes_of(instance, *Phase).keys()
    others = sorted(attended - lent, key=lambda name: (name not in last_run.attended, name))
    known = kept | (attended & lent) | set(others[:_WITNESSES])
    return replace(last_run, attended=tuple(sorted(known)), pods_doubted_since=since)


def _doubt_pods(
    registry: Registry, instance: str, snapshot: Snapshot, attended: frozenset[str]
) -> _Doubt:
    pods, nodes = snapshot.pods, snapshot.nodes
    if not (isinstance(pods, PodList) and pods.cluster_wide) or isinstance(nodes, Unreadable):
        return _Doubt()
    ready = {node.name for node in nodes if node.is_ready and not node.is_deleting}
    lent = registry.nodes_of(instance, *Phase)
    in_use = registry.nodes_of(instance, *_IN_USE)
    held = registry.last_run.pods
    ran = {name: held[name].namespaces for name in in_use if name in held and held[name].count}
    missed = ready.intersection(registry.last_run.attended) - attended
    if missed and not attended and (len(missed) > 1 or not pods.pods):
        names = ", ".join(sorted(missed)[:_SHOWN])
        return _Doubt(
            why=f"the list has {count_of(len(pods.pods), 'pod')}, and none of a DaemonSet or of a "
            f"kubelet itself, although Nodes are Ready that had such pods ({names})",
            patience=_PATIENCE,
        )
    peopled = {pod.namespace for pod in pods.pods} if ran else set()
    emptied = [
        name
        for name, namespaces in ran.items()
        if in_use[name].phase is Phase.RELEASING and peopled.isdisjoint(namespaces)
    ]
    hidden = _hidden_queues(snapshot, pods, {entry.queue.lower() for entry in in_use.values()})
    return _Doubt(
        missed=frozenset(missed.intersection(lent)),
        hidden=frozenset(name for name, node in in_use.items() if node.queue.lower() in hidden),
        emptied=frozenset(ready.intersection(emptied)),
    )


def _hidden_queues(snapshot: Snapshot, pods: PodList, queues: set[str]) -> set[str]:
    """Those in which the scheduler runs pods of which the list has not one."""
    view = snapshot.yunikorn
    if not isinstance(view, YunikornView):
        return set()
    known: dict[str, set[str]] = {}
    for uid, queue in view.queue_of_pod.items():
        if queue in queues and any(view.allocated.get(queue, {}).values()):
            known.setdefault(queue, set()).add(uid)
    listed = {pod.uid for pod in pods.pods} if known else set()
    return {queue for queue, uids in known.items() if uids.isdisjoint(listed)}


def _is_in_force(doubt: _Doubt, last_run: RunRecord, snapshot: Snapshot) -> bool:
    since = last_run.pods_doubted_since or snapshot.taken_at
    is_young = timedelta(0) <= snapshot.taken_at - since < doubt.patience
    return is_young and bool(doubt.why or doubt.missed or doubt.hidden)
