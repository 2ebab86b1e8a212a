"""The scheduler: YuniKorn's rules within its queues, and the default scheduler's rules elsewhere.

A pod of YuniKorn is bound if its queue and all parents have headroom and a node has free capacity.
The first pod of an application decides its queue. Sources: yunikorn-k8shim (pkg/cache) and
yunikorn-core (pkg/scheduler/objects). Gang placeholders, user limits, preemption, placement rules,
affinity, spread, host ports and the nodes of a volume are not implemented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.deletion import FINISHED
from dnm.lab.sandbox.matching import fits_node, has_its_volumes
from dnm.lab.sandbox.pod_reading import (
    application_of,
    gang_of,
    queue_asked_by,
    request_of,
    total,
    yunikorn_units,
)
from dnm.lab.sandbox.queue_tree import ApplicationRejected, QueueTree, add_request, fits
from dnm.lab.sandbox.store import Object, Objects
from dnm.lab.sandbox.yunikorn_config import YunikornConfig

Amounts = Mapping[str, int]

_WAITING = "request is waiting for cluster resources become available"


class Application(msgspec.Struct, kw_only=True):
    """A YuniKorn application. `forget_at`: when it is removed, if it has no pods any more."""

    id: str
    queue: str
    submitted: int  # in order
    forget_at: float | None = None


class Scheduler:
    """A simulation of YuniKorn. `used` and `pending`: path of a queue or ancestor -> amounts."""

    def __init__(self, store: Objects, timing: Timing, config: YunikornConfig) -> None:
        self.store = store
        self.clock = store.clock
        self.timing = timing
        self.tree = QueueTree(config)
        self.applications: dict[str, Application] = {}
        self.used: dict[str, dict[str, int]] = {}
        self.pending: dict[str, dict[str, int]] = {}
        self._requests: dict[str, tuple[tuple[str, bool], dict[str, int]]] = {}
        self._submissions = 0

    def step(self) -> None:
        """Places applications, sums up pods and binds them, once. Ignores pods of deleted Nodes."""
        pods = [p for p in self.store.objects("pods") if p["status"].get("phase") not in FINISHED]
        self._forget({pod["metadata"]["uid"] for pod in pods})
        self._submit(pods)
        pods = [p for p in self.store.objects("pods") if p["status"].get("phase") not in FINISHED]
        nodes = {node["metadata"]["name"]: node for node in self.store.objects("nodes")}
        free = {name: yunikorn_units(node["status"]["allocatable"]) for name, node in nodes.items()}
        self._total = total(free.values())
        bound = [pod for pod in pods if pod["spec"].get("nodeName") in nodes]
        self.used, self.pending = {}, {}
        for pod in bound:
            self._take(free, pod["spec"]["nodeName"], self.request(pod))
            self._add_request(self.used, pod)
        waiting = sorted((pod for pod in pods if _wants_node(pod)), key=self._rank)
        self._bind_all(waiting, nodes, free)

    # --- applications -----------------------------------------------------------------------

    def queue_of(self, pod: Object) -> str:
        """Returns the queue in which YuniKorn has placed the pod; empty if it is in none."""
        application = self.applications.get(application_of(pod))
        return application.queue if application else ""

    def _submit(self, pods: Sequence[Object]) -> None:
        present: dict[str, list[Object]] = {}
        for pod in sorted(pods, key=_age):
            name = application_of(pod)
            if name:
                present.setdefault(name, []).append(pod)
        for name, members in present.items():
            seen = [pod for pod in members if not _is_gated(pod)]
            if name not in self.applications and seen:
                self._accept_or_reject(name, seen)
        for name, application in list(self.applications.items()):
            if name in present:
                application.forget_at = None
            elif application.forget_at is None:
                application.forget_at = self.clock.after(self.timing.completing)
            if application.forget_at is not None and application.forget_at <= self.clock.now():
                del self.applications[name]

    def _accept_or_reject(self, name: str, pods: Sequence[Object]) -> None:
        """Places the application by its first pod. If it is rejected, its unbound pods fail."""
        first = pods[0]
        namespace, is_bound = first["metadata"]["namespace"], bool(first["spec"].get("nodeName"))
        asked, gang = queue_asked_by(first), gang_of(first)
        self._submissions += 1
        try:
            queue = self.tree.place(name, asked, namespace, gang, is_bound)
        except ApplicationRejected as rejected:
            for pod in pods:
                self._fail(pod, str(rejected))
            return
        self.applications[name] = Application(id=name, queue=queue, submitted=self._submissions)

    def _fail(self, pod: Object, message: str) -> None:
        def change(item: Object) -> None:
            item["status"] |= {
                "phase": "Failed", "reason": "ApplicationRejected", "message": message,
            }  # fmt: skip

        if not pod["spec"].get("nodeName"):
            meta = pod["metadata"]
            self.store.edit("pods", meta["namespace"], meta["name"], change)

    # --- requests ---------------------------------------------------------------------------

    def request(self, pod: Object) -> dict[str, int]:
        """Returns the request of a pod in YuniKorn's names and units."""
        meta = pod["metadata"]
        version = (meta["resourceVersion"], self.tree.config.counts_sidecars_twice)
        cached = self._requests.get(meta["uid"])
        if cached is None or cached[0] != version:
            cached = (version, request_of(pod, sidecars_count_twice=version[1]))
            self._requests[meta["uid"]] = cached
        return cached[1]

    def _forget(self, uids: set[str]) -> None:
        if len(self._requests) > 2 * len(uids) + 100:
            self._requests = {uid: kept for uid, kept in self._requests.items() if uid in uids}

    def _add_request(self, sums: dict[str, dict[str, int]], pod: Object) -> None:
        if queue := self.queue_of(pod):
            add_request(sums, queue, self.request(pod))

    def _take(self, free: dict[str, dict[str, int]], node: str, request: Amounts) -> None:
        if node in free:
            for resource, amount in request.items():
                free[node][resource] = free[node].get(resource, 0) - amount

    # --- binding ----------------------------------------------------------------------------

    def _rank(self, pod: Object) -> tuple[Any, ...]:
        application = self.applications.get(application_of(pod))
        order = application.submitted if application else 0
        return (-pod["spec"].get("priority", 0), order, _age(pod))

    def _bind_all(
        self,
        waiting: Sequence[Object],
        nodes: Mapping[str, Object],
        free: dict[str, dict[str, int]],
    ) -> None:
        hopeless: set[tuple[str, bytes]] = set()  # equal pods do not fit where one did not
        for pod in waiting:
            request, queue = self.request(pod), self.queue_of(pod)
            is_yunikorn = bool(application_of(pod))
            if is_yunikorn and not queue:
                continue
            kind = (queue, _kind(pod))
            node = None
            if kind not in hopeless and self._quota_allows(queue, request):
                node = self._choose(pod, request, nodes, free)
                if node is None and self._quota_allows(queue, request, with_root=False):
                    self._report_unschedulable(pod)
            if node is None:
                hopeless.add(kind)
                self._add_request(self.pending, pod)
                continue
            self._take(free, node, request)
            self._add_request(self.used, pod)
            self._bind(pod, node)

    def _quota_allows(self, queue: str, request: Amounts, with_root: bool = True) -> bool:
        if not queue:
            return True
        root = self._total if with_root else None
        if root is not None and any(
            amount > 0 and resource not in root for resource, amount in request.items()
        ):
            return False
        return fits(request, self.tree.headroom(queue, self.used, root))

    def _choose(
        self,
        pod: Object,
        request: Amounts,
        nodes: Mapping[str, Object],
        free: Mapping[str, dict[str, int]],
    ) -> str | None:
        if not has_its_volumes(self.store, pod):
            return None
        good = [
            name
            for name, node in nodes.items()
            if all(amount <= free[name].get(r, 0) for r, amount in request.items() if amount > 0)
            and fits_node(pod, node)
        ]
        if not good:
            return None
        sign = -1 if self.tree.config.packs_nodes else 1
        return min(good, key=lambda name: (sign * _share(free[name], nodes[name]), name))

    def _bind(self, pod: Object, node: str) -> None:
        def change(item: Object) -> None:
            item["spec"]["nodeName"] = node
            remaining = [
                c for c in item["status"].get("conditions") or () if c["type"] != "PodScheduled"
            ]
            scheduled = {"type": "PodScheduled", "status": "True",
                         "lastTransitionTime": self.clock.stamp()}  # fmt: skip
            item["status"]["conditions"] = [*remaining, scheduled]

        meta = pod["metadata"]
        self.store.edit("pods", meta["namespace"], meta["name"], change)

    def _report_unschedulable(self, pod: Object) -> None:
        """Sets the condition PodScheduled=False, as YuniKorn does only if more nodes would help."""
        conditions = pod["status"].get("conditions") or []
        if any(c["type"] == "PodScheduled" for c in conditions):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": _WAITING, "lastTransitionTime": self.clock.stamp()}  # fmt: skip
        meta = pod["metadata"]

        def change(item: Object) -> None:
            item["status"]["conditions"] = [*conditions, condition]

        self.store.edit("pods", meta["namespace"], meta["name"], change)


def _wants_node(pod: Object) -> bool:
    is_going = pod["metadata"].get("deletionTimestamp")
    return not (pod["spec"].get("nodeName") or is_going or _is_gated(pod))


def _is_gated(pod: Object) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _age(pod: Object) -> tuple[str, int]:
    """Returns a pod's age as a sort key: its creation and, within a second, its last change."""
    return pod["metadata"]["creationTimestamp"], int(pod["metadata"]["resourceVersion"])


def _kind(pod: Object) -> bytes:
    """Returns a key that is equal for pods that the scheduler cannot distinguish."""
    return msgspec.json.encode([pod["metadata"]["namespace"], pod["spec"]])


def _share(free: Amounts, node: Object) -> float:
    """Returns the used share of a node, like `nodesorting.go`: cpu and memory count equally."""
    size = yunikorn_units(node["status"]["allocatable"])
    shares = [1 - free.get(r, 0) / size[r] for r in ("vcore", "memory") if size.get(r)]
    return sum(shares) / len(shares) if shares else 0.0
