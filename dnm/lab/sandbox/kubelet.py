"""Kubelets, and the node and pod controllers: they start and end pods and taint nodes.

Due times are not stored in the objects, because times of the API have whole seconds."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import Any

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.deletion import FINISHED
from dnm.lab.sandbox.store import Object, Objects

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_NOT_READY = "node.kubernetes.io/not-ready"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_OWN_TAINTS = (_NOT_READY, _UNSCHEDULABLE)


class Kubelet:
    """All kubelets of the cluster. A NotReady node's kubelet does nothing."""

    def __init__(self, store: Objects, timing: Timing) -> None:
        self.store = store
        self.clock = store.clock
        self.timing = timing
        self.ended: Counter[str] = Counter()  # namespace -> pods that ever ended by themselves
        self._due: dict[tuple[str, str], float] = {}  # (pod uid, what) -> instant

    def step(self) -> None:
        for node in list(self.store.objects("nodes")):
            self._taint(node)
        alive = {n["metadata"]["name"]: manifests.is_ready(n) for n in self.store.objects("nodes")}
        pods = [pod for pod in self.store.objects("pods") if pod["spec"].get("nodeName")]
        for pod in pods:
            node = pod["spec"]["nodeName"]
            if node not in alive:
                if self._is_due(pod["metadata"]["uid"], "orphan", self.timing.orphans):
                    self._remove(pod)  # the pod garbage collector
            elif alive[node]:
                self._advance(pod)
        nodes = {node["metadata"]["uid"] for node in self.store.objects("nodes")}
        self._forget(nodes | {pod["metadata"]["uid"] for pod in pods})

    # --- pods -------------------------------------------------------------------------------

    def _advance(self, pod: Object) -> None:
        meta, status = pod["metadata"], pod["status"]
        if meta.get("deletionTimestamp"):
            grace = min(self.timing.pod_stop, meta.get("deletionGracePeriodSeconds", 30))
            if self._is_due(meta["uid"], "stop", grace):
                self._remove(pod)
        elif status.get("phase") in FINISHED:
            return
        elif status.get("phase") != "Running":
            if "startTime" not in status and self.timing.pod_start > 0:
                self._write(pod, creating_status(self.clock.stamp()))
            if self._is_due(meta["uid"], "start", self.timing.pod_start):
                self._write(pod, running_status(pod, self.clock.stamp()))
                self._end_by_itself(pod)
        else:
            self._end_by_itself(pod)

    def _end_by_itself(self, pod: Object) -> None:
        meta = pod["metadata"]
        seconds = (meta.get("annotations") or {}).get(manifests.RUN_SECONDS, "")
        if _NUMBER.fullmatch(seconds) and self._is_due(meta["uid"], "end", float(seconds)):
            self._write(pod, finished_status(pod, self.clock.stamp()))
            self.ended[meta["namespace"]] += 1

    def _is_due(self, uid: str, step: str, seconds: float) -> bool:
        """Returns whether this duration has passed since the first call for this uid and step."""
        key = (uid, step)
        if key not in self._due:
            self._due[key] = self.clock.after(seconds)
        return self.clock.now() >= self._due[key]

    def _write(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]

        def change(item: Object) -> None:
            kept = {c["type"]: c for c in item["status"].get("conditions") or ()}
            kept |= {c["type"]: c for c in status.get("conditions") or ()}
            item["status"] = {**item["status"], **status, "conditions": list(kept.values())}

        self.store.edit("pods", meta["namespace"], meta["name"], change)

    def _remove(self, pod: Object) -> None:
        meta = pod["metadata"]
        self.store.remove("pods", meta["namespace"], meta["name"])

    def _forget(self, uids: set[str]) -> None:
        if len(self._due) > 2 * len(uids) + 100:
            self._due = {key: due for key, due in self._due.items() if key[0] in uids}

    # --- nodes ------------------------------------------------------------------------------

    def _taint(self, node: Object) -> None:
        """Sets a Node's taints by its Ready condition and cordon, as Kubernetes does."""
        ready = manifests.is_ready(node)
        wanted: list[Object] = []
        if not ready:
            wanted += [
                {"key": _NOT_READY, "effect": effect} for effect in ("NoSchedule", "NoExecute")
            ]
            self._evict_from(node)
        uid = node["metadata"]["uid"]
        if not node["spec"].get("unschedulable"):
            self._due.pop((uid, "cordon"), None)
        elif self._is_due(uid, "cordon", self.timing.taint):
            wanted.append({"key": _UNSCHEDULABLE, "effect": "NoSchedule"})
        taints = node["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] not in _OWN_TAINTS]
        own = [{"key": t["key"], "effect": t["effect"]} for t in taints if t["key"] in _OWN_TAINTS]
        if sorted(own, key=str) == sorted(wanted, key=str):
            return

        def change(item: Object) -> None:
            item["spec"]["taints"] = kept + wanted
            if not item["spec"]["taints"]:
                del item["spec"]["taints"]

        self.store.edit("nodes", "", node["metadata"]["name"], change)

    def _evict_from(self, node: Object) -> None:
        """Marks pods of a Node that stays NotReady as deleted. No kubelet removes them."""
        conditions = {c["type"]: c for c in node["status"].get("conditions") or ()}
        since = conditions.get("Ready", {}).get("lastTransitionTime")
        begun = datetime.fromisoformat(since).timestamp() if since else None
        if begun is None:
            return
        over = begun + self.clock.scaled(self.timing.toleration)
        if self.clock.now() < over:
            self.clock.call_at(over)
            return
        for pod in list(self.store.objects("pods")):
            meta = pod["metadata"]
            is_here = pod["spec"].get("nodeName") == node["metadata"]["name"]
            if is_here and not meta.get("deletionTimestamp") and not _tolerates_for_ever(pod):
                self.store.mark_deleted("pods", meta["namespace"], meta["name"], 30)


def _tolerates_for_ever(pod: Object) -> bool:
    return any(
        toleration.get("key", _NOT_READY) == _NOT_READY
        and toleration.get("effect", "NoExecute") == "NoExecute"
        and "tolerationSeconds" not in toleration
        for toleration in pod["spec"].get("tolerations") or ()
    )


# --- statuses ------------------------------------------------------------------------------


def creating_status(stamp: str) -> Object:
    waiting: dict[str, Any] = {"reason": "ContainerCreating"}
    return {"startTime": stamp, "containerStatuses": [
        {"name": "main", "ready": False, "restartCount": 0, "image": "", "imageID": "",
         "state": {"waiting": waiting}}
    ]}  # fmt: skip


def running_status(pod: Object, stamp: str) -> Object:
    containers = [
        {"name": container["name"], "ready": True, "started": True, "restartCount": 0,
         "image": container.get("image", ""), "imageID": "", "state": {"running":
         {"startedAt": stamp}}}
        for container in pod["spec"]["containers"]
    ]  # fmt: skip
    return {
        "phase": "Running", "podIP": "127.0.0.1", "startTime": stamp,
        "containerStatuses": containers,
        "conditions": [{"type": "Ready", "status": "True"},
                       {"type": "PodScheduled", "status": "True"}],
    }  # fmt: skip


def finished_status(pod: Object, stamp: str) -> Object:
    containers = [
        {"name": container["name"], "ready": False, "restartCount": 0,
         "image": container.get("image", ""), "imageID": "", "state": {"terminated":
         {"exitCode": 0, "reason": "Completed", "finishedAt": stamp}}}
        for container in pod["spec"]["containers"]
    ]  # fmt: skip
    return {
        "phase": "Succeeded", "containerStatuses": containers,
        "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}],
    }  # fmt: skip
