"""What must never happen to a node, written down by the sandbox when it does."""

from __future__ import annotations

from typing import Literal

import msgspec

from dnm.lab.sandbox.clock import Clock
from dnm.lab.sandbox.deletion import FINISHED
from dnm.lab.sandbox.store import Object, Store

ViolationKind = Literal[
    "job-killed",  # a node with a running batch job was converted or power-cycled
    "pods-killed",  # a Node was deleted while pods that count were on it
    "two-owners",  # a node was offered to Slurm and to Kubernetes at the same time
    "reservation-taken",  # the converter gave up a reservation that another had made
    "needless-return",  # the converter was told to return a node that Slurm had in service
]


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must never happen, and when it did."""

    kind: ViolationKind
    node: str
    detail: str
    at: str


class Violations:
    """The list, in order; the same fact is not written down twice in a row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.all: list[Violation] = []

    def note(self, kind: ViolationKind, node: str, detail: str) -> None:
        self.all.append(Violation(kind=kind, node=node, detail=detail, at=self._clock.stamp()))


def working_pods(store: Store, node: str) -> list[Object]:
    """Unfinished pods on a node that are of no DaemonSet and no mirrors of static ones."""
    return [
        pod
        for pod in store.objects("pods")
        if pod["spec"].get("nodeName") == node
        and pod["status"].get("phase") not in FINISHED
        and not is_daemon(pod)
    ]


def is_daemon(pod: Object) -> bool:
    meta = pod["metadata"]
    owners = meta.get("ownerReferences") or ()
    is_mirror = "kubernetes.io/config.mirror" in (meta.get("annotations") or {})
    return is_mirror or any(owner.get("kind") == "DaemonSet" for owner in owners)
