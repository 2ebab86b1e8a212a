"""The application of watch events to stored objects, and a comparison of stored and listed ones.

dnm applies no event if one does not fit the store, since the server has then left out another. A
changed or deleted object must be in the store, and an added one must not."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from dnm.kube.nodes import read_node_page
from dnm.kube.pod_columns import ColumnWriter, PodColumns
from dnm.kube.pods import make_reducer
from dnm.kube.store import Store, StoreFile, StoreHead
from dnm.kube.watching import Change, NotProved, Watchers, WatchLog, Why
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.pod import Pod

Reduce = Callable[[bytes], Sequence[Pod]]
View = tuple[Sequence[Node], PodColumns]
_NAMED = 5
# The largest number of changed pods that a run follows. An event takes three times as many
# instructions as a pod of a list. So a run that stops there has lost less than 5 % of the list.
_FEW_CHANGES = 200
_LARGEST_SHARE = 80  # one in so many pods


def catch_up(
    config: Config,
    watchers: Watchers,
    file: StoreFile,
    lasts: tuple[int | None, int | None] = (None, None),
) -> tuple[Store, tuple[WatchLog, WatchLog]]:
    """Returns the store after all changes, and the logs of the watches of nodes and pods. `lasts`
    are the versions of nodes and pods at which the changes end, if given. Raises NotProved.

    Decodes the store only after the watches: if they fail, e.g. because too much has changed, the
    run has lost little time before it reads the full lists."""
    logs, versions = _begin(watchers, file.head, lasts)
    for watcher, log, version in zip(watchers, logs, versions, strict=True):
        watcher.follow(log)
        log.check_witness(version)
    store = file.decode()
    of_nodes, of_pods = logs
    of_nodes.check_ends((node.name for node in store.nodes), lambda change: change.name)
    of_pods.check_ends(store.pods.uids, lambda change: change.uid)
    nodes = apply_to_nodes(
        store.nodes, of_nodes.changes, lambda page: read_node_page(page, config.has_kubelets)
    )
    apply_to_pods(store.pods, of_pods.changes, lambda page: _reduce_pods(config, page))
    head = msgspec.structs.replace(
        store.head, nodes_version=of_nodes.version, last_node=of_nodes.last_witness,
        pods_version=of_pods.version, last_pod=of_pods.last_witness, unproved=0,
    )  # fmt: skip
    return Store(head, store.pods, nodes), logs


def _reduce_pods(config: Config, page: bytes) -> Sequence[Pod]:
    reducer = make_reducer(config)
    reducer.add(page)
    if reducer.unreadable:
        raise NotProved(Why.UNREADABLE, next(iter(reducer.unreadable.values())))
    return reducer.pods


def _begin(
    watchers: Watchers, head: StoreHead, lasts: tuple[int | None, int | None]
) -> tuple[tuple[WatchLog, WatchLog], tuple[int, int]]:
    """Begins both watches. Returns their logs, and the last changed objects' versions by now."""
    of_nodes, of_pods = watchers
    nodes_goal, node = of_nodes.read_barrier(head.last_node)
    pods_goal, pod = of_pods.read_barrier(head.last_pod)
    logs = (
        WatchLog("Node", head.nodes_version, nodes_goal, head.last_node, lasts[0],
                 head.nodes_listed),
        WatchLog("Pod", head.pods_version, pods_goal, head.last_pod, lasts[1], head.pods_listed,
                 max(_FEW_CHANGES, head.pods // _LARGEST_SHARE)),
    )  # fmt: skip
    for watcher, log in zip(watchers, logs, strict=True):
        if not log.is_proved:
            watcher.begin(log.reached)
    return logs, (node, pod)


def make_page(changes: Iterable[Change]) -> bytes:
    """Returns the objects of these changes in the JSON form of a list's page."""
    return b'{"items":[' + b",".join(change.raw for change in changes) + b"]}"


def apply_to_pods(columns: PodColumns, changes: Sequence[Change], reduce: Reduce) -> None:
    """Applies the changes to the table of pods, which no other code may use. `reduce` decodes the
    changed pods. Raises NotProved if a change does not fit; then the table is inconsistent."""
    if not changes:
        return
    rows = dict(zip(columns.uids, range(len(columns.uids)), strict=True))
    if len(rows) != len(columns.uids):
        raise _misfit("two of the pods that are kept have one uid")
    latest = _latest_of_pods(columns, rows, changes)
    alive = [change for change in latest.values() if change.type != "DELETED"]
    pods = reduce(make_page(alive))
    writer = ColumnWriter(columns)
    joined: list[tuple[Pod, int]] = []
    for change, pod in zip(alive, pods, strict=True):
        row = rows.get(change.uid)
        if row is None:
            joined.append((pod, change.version))
        else:
            writer.put(row, pod, change.version)
    deleted = (uid for uid, change in latest.items() if change.type == "DELETED" and uid in rows)
    writer.drop(rows[uid] for uid in deleted)
    _check_names(columns, [pod for pod, _ in joined])
    for pod, version in joined:
        writer.add(pod, version)


def _latest_of_pods(
    columns: PodColumns, rows: dict[str, int], changes: Sequence[Change]
) -> dict[str, Change]:
    """Returns the last change of each uid, after a check that each change fits the stored pods."""
    for change in changes:
        row = rows.get(change.uid)
        if not change.uid:
            raise _misfit("it has no uid", change)
        if row is None:
            continue
        namespace = columns.namespace_of(row)
        if (namespace, columns.names[row]) != (change.namespace, change.name):
            raise _misfit("a pod changes its name", change)
        if columns.versions[row] >= change.version:
            raise _misfit(f"it is known at version {columns.versions[row]}", change)
    return _latest(((change.uid, change) for change in changes), rows)


def _latest(changes: Iterable[tuple[str, Change]], present: Container[str]) -> dict[str, Change]:
    """Returns the last change of each key. Raises NotProved if a key that exists is added, or a key
    that does not exist is changed or deleted."""
    latest: dict[str, Change] = {}
    for key, change in changes:
        before = latest.get(key)
        is_there = before.type != "DELETED" if before is not None else key in present
        if is_there == (change.type == "ADDED"):
            raise _misfit("it does not fit what is there", change)
        latest[key] = change
    return latest


def _check_names(columns: PodColumns, joined: Sequence[Pod]) -> None:
    """Raises NotProved if a new pod has the name of a stored one: the watch omitted a deletion."""
    if not joined:
        return
    names = {pod.name for pod in joined}
    held = {
        (columns.namespace_of(row), name) for row, name in enumerate(columns.names) if name in names
    }
    for pod in joined:
        if (pod.namespace, pod.name) in held:
            raise _misfit(f"pod {pod.namespace}/{pod.name} came twice")
        held.add((pod.namespace, pod.name))


def apply_to_nodes(
    nodes: Sequence[Node], changes: Sequence[Change], reduce: Callable[[bytes], Sequence[Node]]
) -> tuple[Node, ...]:
    """Returns the nodes after these changes. `reduce` decodes the JSON of the changed nodes."""
    if not changes:
        return tuple(nodes)
    by_name: dict[str, Node | None] = {node.name: node for node in nodes}
    latest = _latest(((change.name, change) for change in changes), by_name)
    alive = [change for change in latest.values() if change.type != "DELETED"]
    by_name |= dict.fromkeys(latest)
    by_name |= {node.name: node for node in reduce(make_page(alive))}
    return tuple(node for node in by_name.values() if node is not None)


def _misfit(problem: str, change: Change | None = None) -> NotProved:
    where = ""
    if change is not None:
        name = f"{change.namespace}/{change.name}" if change.namespace else change.name
        where = f" ({change.type} of {name}, version {change.version})"
    return NotProved(Why.INCONSISTENT, f"an event was left out: {problem}{where}")


def find_differences(kept: View, listed: View) -> str:
    """Returns how many objects differ between the store and the full list, with both versions of
    the first ones, as a sentence; an empty text if none differ."""
    pods = (_pods_of(kept[1]), _pods_of(listed[1]))
    nodes = (
        {node.name: (node.resource_version, node) for node in view[0]} for view in (kept, listed)
    )
    differences = [*_differing("pod", *pods), *_differing("node", *nodes)]
    if not differences:
        return ""
    named = "; ".join(islice(differences, _NAMED))
    return (
        f"{len(differences)} stored objects differ from the full list, which is used instead: "
        f"{named}"
    )


def _pods_of(columns: PodColumns) -> dict[str, tuple[str, Pod]]:
    return {
        pod.uid: (str(version), pod)
        for pod, version in zip(columns.to_pods(), columns.versions, strict=True)
    }


def _differing(
    kind: str,
    kept: Mapping[str, tuple[str, Pod | Node]],
    listed: Mapping[str, tuple[str, Pod | Node]],
) -> Iterator[str]:
    if kept == listed:
        return
    for key in sorted(kept.keys() | listed.keys()):
        before, after = kept.get(key), listed.get(key)
        if before != after:
            thing = (after or before or ("", None))[1]
            assert thing is not None
            where = f"{thing.namespace}/{thing.name}" if isinstance(thing, Pod) else thing.name
            yield (
                f"{kind} {where} is kept at version {before[0] if before else 'none'} and listed "
                f"at {after[0] if after else 'none'}"
            )
