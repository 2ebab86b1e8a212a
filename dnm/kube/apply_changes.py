"""Applies what a watch has told to what was kept; whatever does not fit refuses all of it. Pure.

A server that leaves an event out is noticed where a later one does not fit: what changes or goes
must be there, what comes must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dnm.kube.pod_columns import ColumnWriter, PodColumns
from dnm.kube.watch_log import Change, NotProved, Why
from dnm.model.node import Node
from dnm.model.pod import Pod

Reduce = Callable[[bytes], Sequence[Pod]]


def make_page(changes: Iterable[Change]) -> bytes:
    """Returns the objects of changes in the form of a list's page."""
    return b'{"items":[' + b",".join(change.raw for change in changes) + b"]}"


def apply_to_pods(columns: PodColumns, changes: Sequence[Change], reduce: Reduce) -> None:
    """Changes the columns, which must be the caller's own; `reduce` makes pods of a page. Raises
    NotProved; the columns are of no use then."""
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
    gone = (uid for uid, change in latest.items() if change.type == "DELETED" and uid in rows)
    writer.drop(rows[uid] for uid in gone)
    _check_names(columns, [pod for pod, _ in joined])
    for pod, version in joined:
        writer.add(pod, version)


def _latest_of_pods(
    columns: PodColumns, rows: dict[str, int], changes: Sequence[Change]
) -> dict[str, Change]:
    """The last change of each uid, after every one of them was seen to fit."""
    latest: dict[str, Change] = {}
    for change in changes:
        before, row = latest.get(change.uid), rows.get(change.uid)
        is_there = before.type != "DELETED" if before is not None else row is not None
        if not change.uid or is_there == (change.type == "ADDED"):
            raise _misfit("it does not fit what is there", change)
        if row is not None and before is None:
            namespace = columns.namespace_of(row)
            if (namespace, columns.names[row]) != (change.namespace, change.name):
                raise _misfit("a pod changes its name", change)
            if columns.versions[row] >= change.version:
                raise _misfit(f"it is known at version {columns.versions[row]}", change)
        latest[change.uid] = change
    return latest


def _check_names(columns: PodColumns, joined: Sequence[Pod]) -> None:
    """A pod can't come while another of its name is there: that one's end was not told."""
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
    """Returns the nodes after the changes; raises NotProved."""
    if not changes:
        return tuple(nodes)
    known: dict[str, Node | None] = {node.name: node for node in nodes}
    latest: dict[str, Change] = {}
    for change in changes:
        before = latest.get(change.name)
        is_there = before.type != "DELETED" if before is not None else change.name in known
        if is_there == (change.type == "ADDED"):
            raise _misfit("it does not fit what is there", change)
        latest[change.name] = change
    alive = [change for change in latest.values() if change.type != "DELETED"]
    known |= dict.fromkeys(latest)
    known |= {node.name: node for node in reduce(make_page(alive))}
    return tuple(node for node in known.values() if node is not None)


def _misfit(what: str, change: Change | None = None) -> NotProved:
    where = ""
    if change is not None:
        name = f"{change.namespace}/{change.name}" if change.namespace else change.name
        where = f" ({change.type} of {name}, version {change.version})"
    return NotProved(Why.INCONSISTENT, f"an event was left out: {what}{where}")
