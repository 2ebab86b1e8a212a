"""Deletion and eviction of objects: preconditions, grace periods, disruption budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from dnm.lab.sandbox.clock import Clock
from dnm.lab.sandbox.http_values import Request
from dnm.lab.sandbox.kinds import KINDS, Kind
from dnm.lab.sandbox.lists import document
from dnm.lab.sandbox.matching import selector_test
from dnm.lab.sandbox.store import ApiError, Object, Objects, StoredObject

FINISHED = ("Succeeded", "Failed")


class Deletion:
    """The API's deletion of objects. Later, `workloads` deletes dependents of a deleted owner."""

    def __init__(self, store: Objects) -> None:
        self.store = store

    def delete(self, kind: Kind, namespace: str, name: str, request: Request) -> Object:
        """Deletes an object and returns the answer. Raises 404, and 409 if a precondition fails."""
        options = request.json() if request.body else {}
        entry = self.store.require(kind.plural, namespace, name)
        conditions = options.get("preconditions") or {}
        self.store.check_version(
            kind, entry.data, conditions.get("resourceVersion"), conditions.get("uid")
        )
        query = request.query
        if "All" in (query.get("dryRun"), *(options.get("dryRun") or ())):
            return document(kind, entry.data)
        grace = query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        return self._drop(kind, entry, None if grace is None else int(grace))

    def evict(self, namespace: str, name: str, eviction: Object, dry_run: bool) -> None:
        """Evicts a pod as policy/v1 does. Raises 429 if a disruption budget refuses it, 500 if two
        budgets select the pod, and 409 if the precondition names another pod."""
        entry = self.store.require("pods", namespace, name)
        options = eviction.get("deleteOptions") or {}
        self._ask_budgets(entry.data)
        conditions = options.get("preconditions") or {}
        self.store.check_version(
            KINDS["pods"], entry.data, conditions.get("resourceVersion"), conditions.get("uid")
        )
        if dry_run or "All" in (options.get("dryRun") or ()):
            return
        grace = options.get("gracePeriodSeconds")
        self._drop(KINDS["pods"], entry, None if grace is None else int(grace))

    def _drop(self, kind: Kind, entry: StoredObject, grace: int | None) -> Object:
        meta = entry.data["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        if kind.plural == "pods":
            if grace is None:
                grace = entry.data["spec"].get("terminationGracePeriodSeconds", 30)
            is_bound = bool(entry.data["spec"].get("nodeName"))
            if is_bound and grace > 0 and entry.data["status"].get("phase") not in FINISHED:
                return document(kind, self.store.mark_deleted("pods", namespace, name, grace))
            return document(kind, self.store.remove("pods", namespace, name))
        self.store.remove(kind.plural, namespace, name)
        details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": meta["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": details}  # fmt: skip

    def _ask_budgets(self, pod: Object) -> None:
        """Raises an error if a disruption budget forbids to evict the running pod."""
        is_going = pod["metadata"].get("deletionTimestamp")
        if is_going or pod["status"].get("phase") in (*FINISHED, "Pending"):
            return
        namespace = pod["metadata"]["namespace"]
        budgets = [
            (budget, matches)
            for budget in self.store.objects("poddisruptionbudgets", namespace)
            if (matches := selector_test(budget["spec"].get("selector")))(pod)
        ]
        if len(budgets) > 1:
            raise ApiError(
                500,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support.",
            )
        for budget, matches in budgets:
            pods = [item for item in self.store.objects("pods", namespace) if matches(item)]
            if disruptions_allowed(budget["spec"], pods) < 1:
                name = budget["metadata"]["name"]
                raise ApiError(
                    429,
                    "Cannot evict pod as it would violate the pod's disruption budget: "
                    f"the disruption budget {name} does not allow one more",
                )


def disruptions_allowed(spec: Object, pods: Sequence[Object]) -> int:
    """Returns the number of healthy pods that may be evicted by a budget with `minAvailable`.
    `pods` are all pods that the budget selects."""
    healthy = [
        pod
        for pod in pods
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]
    return len(healthy) - int(spec["minAvailable"])


# --- violations ----------------------------------------------------------------------------------

# The events that must never happen to a node, recorded by the sandbox.

ViolationKind = Literal[
    "job-killed",  # a node with a running batch job was converted or power-cycled
    "pods-killed",  # a Node was deleted while pods that count were on it
    "two-owners",  # a node was offered to Slurm and to Kubernetes at the same time
    "reservation-taken",  # the converter gave up a reservation that another had made
    "needless-return",  # the converter was told to return a node that Slurm had in service
]


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An event that must never happen, e.g. a killed job, and its time."""

    kind: ViolationKind
    node: str
    detail: str
    at: str


class Violations:
    """The list of violations, in the order of their times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.all: list[Violation] = []

    def note(self, kind: ViolationKind, node: str, detail: str) -> None:
        self.all.append(Violation(kind=kind, node=node, detail=detail, at=self._clock.stamp()))


def working_pods(store: Objects, node: str) -> list[Object]:
    """Returns the unfinished pods of a node, except those of DaemonSets and mirror pods."""
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
