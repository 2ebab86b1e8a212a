"""The Events that a run creates in Kubernetes, from the lines of history. Pure.

They report each transition of a node, each new kind of pods that wait without getting a node, and
each changed decision about waiting pods. An idle hour creates none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dnm.model.cluster import KubeEvent
from dnm.model.history import HistoryLine, Memory
from dnm.model.plan import WaitingPods
from dnm.model.printable import count_of, printable

LONGEST_NOTE = 1024  # bytes that the API takes
_NEW_AGAIN = timedelta(days=7)
_MOST_KINDS = 500
# Event of a node -> reason, action, whether it is a warning.
_OF_NODES = {
    "lent": ("NodeLent", "Lend", False),
    "adopted": ("NodeAdopted", "Adopt", False),
    "joined": ("NodeServing", "Serve", False),
    "emptying": ("NodeFenced", "Fence", False),
    "evicting": ("NodeFenced", "Evict", False),
    "kept": ("NodeServing", "Unfence", False),
    "fenced": ("NodeFenced", "Fence", False),
    "unfenced": ("NodeServing", "Unfence", False),
    "moving": ("NodeFenced", "Move", False),
    "moved": ("NodeServing", "Move", False),
    "returning": ("NodeReturning", "Return", False),
    "returned": ("NodeReturned", "Return", False),
    "return-failed": ("NodeReturnFailed", "Return", True),
    "failed": ("NodeFailed", "Lend", True),
    "failed-again": ("NodeFailed", "Lend", True),
}


def mark_new_kinds(
    memory: Memory, waiting: Sequence[WaitingPods], now: datetime
) -> tuple[Memory, tuple[WaitingPods, ...]]:
    """Returns `memory` with the kinds of these waiting pods, and the waiting pods. A pod's `is_new`
    is set if `memory` did not have its kind. A kind that reappears after a week is new."""
    here = {waiting_pods.kind for waiting_pods in waiting}
    recorded = {
        kind: lines
        for kind, lines in memory.waiting.items()
        if kind in here or now - lines < _NEW_AGAIN
    }
    marked = tuple(
        msgspec.structs.replace(waiting_pods, is_new=waiting_pods.kind not in recorded)
        for waiting_pods in waiting
    )
    new = {waiting_pods.kind: now for waiting_pods in marked if waiting_pods.is_new}
    remembered = dict([*recorded.items(), *new.items()][-_MOST_KINDS:])
    return msgspec.structs.replace(memory, waiting=remembered), marked


def list_events(
    reported: Iterable[HistoryLine],
    waiting: Sequence[WaitingPods],
    uids: Mapping[str, str],
    now: datetime,
) -> list[KubeEvent]:
    """Returns the Events for these history lines and waiting pods. `uids`: of Nodes that exist."""
    lines = list(reported)
    events = [
        _of_node(line, uids[line.object])
        for line in lines
        if line.kind == "node" and line.event in _OF_NODES and uids.get(line.object)
    ]
    return [*events, *_of_pods(lines, waiting, now)]


def _of_node(line: HistoryLine, uid: str) -> KubeEvent:
    reason, action, is_warning = _OF_NODES[line.event]
    parts = filter(None, (f"{line.event} for queue {line.queue}", line.reason))
    return KubeEvent(
        kind="Node", namespace="", name=line.object, uid=uid, is_warning=is_warning,
        reason=reason, action=action, time=line.time,
        note=_note(": ".join(parts)),
    )  # fmt: skip


def _of_pods(
    lines: Sequence[HistoryLine], waiting: Sequence[WaitingPods], now: datetime
) -> Iterator[KubeEvent]:
    """Yields an Event for each new kind of waiting pods, and for each queue with a new decision."""
    changed = {line.queue for line in lines if line.kind == "queue"}
    for waiting_pods in waiting:
        if waiting_pods.is_new or waiting_pods.queue in changed:
            changed.discard(waiting_pods.queue)
            yield _of_pod(waiting_pods, now)


def _of_pod(pods: WaitingPods, now: datetime) -> KubeEvent:
    more = f" ({count_of(pods.count, 'equal pod')} waiting)" if pods.count > 1 else ""
    return KubeEvent(
        kind="Pod", namespace=pods.namespace, name=pods.name, uid=pods.uid, is_warning=False,
        reason="NoNodeLent", action="Wait", time=now,
        note=_note(f"no node is lent for queue {pods.queue}: {pods.sentence}{more}"),
    )  # fmt: skip


def _note(text: str) -> str:
    """Returns the text, cut to the bytes that the API allows for the note of an Event."""
    shown = printable(text)
    if len(shown.encode()) <= LONGEST_NOTE:
        return shown
    return shown.encode()[: LONGEST_NOTE - 3].decode(errors="ignore") + "…"
