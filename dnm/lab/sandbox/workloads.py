"""Controllers of workloads: Deployments create ReplicaSets, and these and Jobs create pods.

A change of a Deployment's template creates a new ReplicaSet and deletes the pods of the old one at
once (strategy Recreate). Objects without their controlling owner are deleted.

If the API server refuses a pod, its controller waits as long again as its pods have been refused,
or until the workload or one of its pods changes."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any, NamedTuple

import msgspec

from dnm.lab.sandbox.admission import Admission
from dnm.lab.sandbox.clock import stamp
from dnm.lab.sandbox.deletion import FINISHED
from dnm.lab.sandbox.kinds import KINDS
from dnm.lab.sandbox.store import ApiError, Object, Objects

_HASH = "pod-template-hash"
_NOT_PLAYED = ("statefulsets",)  # a test may name such an owner without creating it
_LONGEST_WAIT = {"ReplicaSet": 1000.0, "Job": 60.0}  # seconds between two tries


class _Refusal(NamedTuple):
    """The API server's refusal of a workload's pods. A change of `seen` leads to a new try."""

    since: float
    next_try: float
    message: str
    seen: Any

    @property
    def condition(self) -> Object:
        return {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                "message": self.message, "lastTransitionTime": stamp(self.since)}  # fmt: skip


class Workloads:
    """The controllers of all workloads, which run one step at a time."""

    def __init__(self, store: Objects, admission: Admission) -> None:
        self.store = store
        self.admission = admission
        self._refused: dict[str, _Refusal] = {}  # by the workload's uid

    def step(self) -> None:
        for deployment in list(self.store.objects("deployments")):
            self._deploy(deployment)
        for replicaset in list(self.store.objects("replicasets")):
            self._replicate(replicaset)
        for job in list(self.store.objects("jobs")):
            self._run_job(job)
        self._collect()

    # --- Deployments ------------------------------------------------------------------------

    def _deploy(self, deployment: Object) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        digest = hashlib.sha256(msgspec.json.encode(spec["template"])).hexdigest()[:10]
        name = f"{meta['name']}-{digest}"
        current = self.store.get("replicasets", meta["namespace"], name)
        if current is None:
            with contextlib.suppress(ApiError):  # the next step tries again
                self._create("replicasets", self._replicaset(deployment, name, digest))
        for replicaset in self._owned("replicasets", meta):
            wanted = spec.get("replicas", 1) if replicaset["metadata"]["name"] == name else 0
            self._set_replicas(replicaset, wanted)
        owned = self._owned("replicasets", meta)
        pods = [pod for each in owned for pod in self._owned("pods", each["metadata"])]
        failures = [item for each in owned for item in each["status"].get("conditions", ())]
        more = {"conditions": failures} if failures else {}
        self._report("deployments", deployment, pods, {"updatedReplicas": len(_live(pods)), **more})

    def _replicaset(self, deployment: Object, name: str, digest: str) -> Object:
        spec = msgspec.json.decode(msgspec.json.encode(deployment["spec"]))
        template = spec["template"]
        template.setdefault("metadata", {}).setdefault("labels", {})[_HASH] = digest
        labels = {**template["metadata"]["labels"]}
        selector = {**spec["selector"]}
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: digest}
        return {
            "metadata": {"name": name, "namespace": deployment["metadata"]["namespace"],
                         "labels": labels,
                         "ownerReferences": [_owner("Deployment", deployment)]},
            "spec": {"replicas": spec.get("replicas", 1), "selector": selector,
                     "template": template},
        }  # fmt: skip

    def _set_replicas(self, replicaset: Object, wanted: int) -> None:
        meta = replicaset["metadata"]
        if replicaset["spec"].get("replicas") != wanted:
            self.store.edit("replicasets", meta["namespace"], meta["name"],
                            lambda item: item["spec"].update(replicas=wanted))  # fmt: skip

    # --- ReplicaSets ------------------------------------------------------------------------

    def _replicate(self, replicaset: Object) -> None:
        meta, spec = replicaset["metadata"], replicaset["spec"]
        if meta.get("deletionTimestamp"):
            return
        pods = self._owned("pods", meta)
        live = _live(pods)
        wanted = spec.get("replicas", 1)
        refusal = self._fill("ReplicaSet", replicaset, pods, wanted - len(live))
        # kube-controller-manager deletes unbound pods first, then the youngest.
        surplus = sorted(live, key=_keeping_rank)[: max(0, len(live) - wanted)]
        for pod in surplus:
            self._delete_pod(pod)
        self._report("replicasets", replicaset, self._owned("pods", meta),
                     {"conditions": [refusal.condition]} if refusal else {})  # fmt: skip

    # --- Jobs -------------------------------------------------------------------------------

    def _run_job(self, job: Object) -> None:
        spec, pods = job["spec"], self._owned("pods", job["metadata"])
        succeeded = sum(1 for pod in pods if pod["status"].get("phase") == "Succeeded")
        wanted = min(spec["parallelism"], spec.get("completions", 1 << 31) - succeeded)
        if not spec.get("suspend") and not job["metadata"].get("deletionTimestamp"):
            self._fill("Job", job, pods, wanted - len(_live(pods)))
        active = len(_live(self._owned("pods", job["metadata"])))
        self._set_status("jobs", job, {"active": active, "succeeded": succeeded})

    # --- shared -----------------------------------------------------------------------------

    def _owned(self, plural: str, owner: Object) -> list[Object]:
        uid = owner["uid"]
        return [
            item
            for item in self.store.objects(plural, owner["namespace"])
            if any(ref["uid"] == uid for ref in item["metadata"].get("ownerReferences") or ())
        ]

    def _create(self, plural: str, manifest: Object) -> None:
        """Creates an object for a controller. Raises ApiError if the API server refuses it."""
        self.admission.admit_creation(KINDS[plural], manifest)
        self.store.create(plural, manifest)

    def _fill(self, kind: str, owner: Object, pods: list[Object], lacking: int) -> _Refusal | None:
        """Creates the pods that a workload lacks. Returns the refusal of the API server, if any."""
        meta, now = owner["metadata"], self.store.clock.now()
        before = self._refused.get(meta["uid"])
        phases = {pod["metadata"]["uid"]: pod["status"].get("phase") for pod in pods}
        seen = [meta.get("generation"), meta.get("annotations"), phases]
        if lacking > 0 and before and before.seen == seen and now < before.next_try:
            return before
        self._refused.pop(meta["uid"], None)
        try:
            for _ in range(lacking):
                self._create("pods", _pod_of(kind, owner))
        except ApiError as error:
            since = before.since if before else now
            next_try = now + min(max(now - since, 1.0), _LONGEST_WAIT[kind])
            message = before.message if before else error.message
            self.store.clock.call_at(next_try)
            self._refused[meta["uid"]] = _Refusal(since, next_try, message, seen)
        return self._refused.get(meta["uid"])

    def _delete_pod(self, pod: Object) -> None:
        meta = pod["metadata"]
        if pod["spec"].get("nodeName"):
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
            self.store.mark_deleted("pods", meta["namespace"], meta["name"], grace)
        else:
            self.store.remove("pods", meta["namespace"], meta["name"])

    def _report(self, plural: str, owner: Object, pods: list[Object], more: Object) -> None:
        live = _live(pods)
        ready = sum(1 for pod in live if pod["status"].get("phase") == "Running")
        status = {"observedGeneration": owner["metadata"].get("generation", 1),
                  "replicas": len(live), "readyReplicas": ready, "availableReplicas": ready,
                  **more}  # fmt: skip
        self._set_status(plural, owner, status)

    def _set_status(self, plural: str, owner: Object, status: Object) -> None:
        if owner.get("status") != status:
            meta = owner["metadata"]
            self.store.edit(plural, meta["namespace"], meta["name"],
                            lambda item: item.update(status=status))  # fmt: skip

    def _collect(self) -> None:
        """Deletes objects if their owner does not exist, as the garbage collector does."""
        for plural in ("replicasets", "pods"):
            for item in list(self.store.objects(plural)):
                meta = item["metadata"]
                owner = _controller(meta.get("ownerReferences") or ())
                if owner is None or meta.get("deletionTimestamp"):
                    continue
                kind = next((k for k in KINDS.values() if k.name == owner["kind"]), None)
                if kind is None or kind.plural in _NOT_PLAYED:
                    continue
                owner_object = self.store.get(kind.plural, meta["namespace"], owner["name"])
                if owner_object is None or owner_object["metadata"]["uid"] != owner["uid"]:
                    self._drop(plural, item)

    def _drop(self, plural: str, item: Object) -> None:
        if plural == "pods":
            self._delete_pod(item)
        else:
            self.store.remove(plural, item["metadata"]["namespace"], item["metadata"]["name"])


def _live(pods: list[Object]) -> list[Object]:
    return [
        pod
        for pod in pods
        if pod["status"].get("phase") not in FINISHED
        and not pod["metadata"].get("deletionTimestamp")
    ]


def _keeping_rank(pod: Object) -> tuple[Any, ...]:
    """Returns a pod's sort key. If there are too many, a controller deletes the first pods."""
    created = pod["metadata"]["creationTimestamp"]
    youth = "".join(chr(255 - ord(letter)) for letter in created)
    return (bool(pod["spec"].get("nodeName")), pod["status"].get("phase") == "Running", youth,
            pod["metadata"]["name"])  # fmt: skip


def _pod_of(kind: str, owner: Object) -> Object:
    template: Object = msgspec.json.decode(msgspec.json.encode(owner["spec"]["template"]))
    meta = template.setdefault("metadata", {})
    meta["generateName"] = f"{owner['metadata']['name']}-"
    meta["namespace"] = owner["metadata"]["namespace"]
    meta["ownerReferences"] = [_owner(kind, owner)]
    return template


def _owner(kind: str, owner: Object) -> Object:
    return {"apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            "controller": True, "blockOwnerDeletion": True}  # fmt: skip


def _controller(owners: Any) -> Object | None:
    return next((owner for owner in owners if owner.get("controller")), None)
