"""Lists that are well formed and empty, and can't be true. Pure.

A server that was restored, a filter before it or a cache that is cold can answer with an empty list
that has everything a list needs. Where the record knows better, it is not believed: what rests on
it waits, as for any fact that could not be read.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from dnm.model.cluster import PodList
from dnm.model.plan import Snapshot
from dnm.model.registry import Phase, Registry, RunRecord
from dnm.model.value import Unreadable

_MANY = 1000  # unfinished pods; a cluster that has so many is never without any from now to then
_PATIENCE = timedelta(hours=1)  # then the cluster is empty after all


def doubt_empty_lists(registry: Registry, instance: str, snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot without an empty list that contradicts the record: of Nodes while lent
    nodes serve (for good: a person says what is true), of pods after a list of thousands (for an
    hour)."""
    in_kubernetes = registry.nodes_of(instance, Phase.SERVING, Phase.RELEASING, Phase.MOVING)
    if snapshot.nodes == () and in_kubernetes:
        names = ", ".join(list(in_kubernetes)[:3])
        why = Unreadable(
            what="nodes",
            error=f"the list of Nodes is empty although {len(in_kubernetes)} lent nodes should be "
            f"there ({names}): it is not believed. Look at `kubectl get nodes`; if they are gone "
            "indeed, `dnm forget NODE` for each",
        )
        return Snapshot(taken_at=snapshot.taken_at, pods=why, nodes=why, queue_maps=why)
    if _is_doubtful(registry.last_run, snapshot):
        why = Unreadable(
            what="pods",
            error=f"the list of pods is empty, and the last one had {registry.last_run.pods_seen} "
            "and more: it is not believed for an hour. Look at `kubectl get pods -A`",
        )
        return msgspec.structs.replace(snapshot, pods=why)
    return snapshot


def _is_doubtful(last_run: RunRecord, snapshot: Snapshot) -> bool:
    since = last_run.pods_doubted_since or snapshot.taken_at
    return (
        _is_empty(snapshot)
        and last_run.pods_seen >= _MANY
        and timedelta(0) <= snapshot.taken_at - since < _PATIENCE
    )


def _is_empty(snapshot: Snapshot) -> bool:
    pods = snapshot.pods
    return isinstance(pods, PodList) and pods.cluster_wide and not (pods.pods or pods.unreadable)


def remember_pods(last_run: RunRecord, snapshot: Snapshot) -> RunRecord:
    """Returns the record of the last run with how many pods this snapshot shows, as read and not as
    believed. The number is rounded down to a power of ten, so that rest writes nothing."""
    if not isinstance(snapshot.pods, PodList) or not snapshot.pods.cluster_wide:
        return last_run
    doubted: datetime | None = None
    seen = _magnitude(len(snapshot.pods.pods))
    if _is_doubtful(last_run, snapshot):
        seen, doubted = last_run.pods_seen, last_run.pods_doubted_since or snapshot.taken_at
    return msgspec.structs.replace(last_run, pods_seen=seen, pods_doubted_since=doubted)


def _magnitude(count: int) -> int:
    return int(10 ** (len(str(count)) - 1)) if count >= _MANY else 0
