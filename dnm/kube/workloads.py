"""Workloads that lack pods: ReplicaSets, StatefulSets and Jobs, from their spec and status. A pod
that a quota refuses has no object: conditions and Events keep the text of the first refusals
only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from dnm.kube.objects import Metadata
from dnm.kube.typed_objects import TypedObjects
from dnm.model.workload import WOKEN, LackingPods

KINDS = {
    "ReplicaSet": timedelta(seconds=1000),
    "StatefulSet": timedelta(seconds=1000),
    "Job": timedelta(seconds=60),
}
"""The kinds, with the longest wait of their controllers between two tries."""
_JOB_CONTROLLER = "kubernetes.io/job-controller"
_ENDED = frozenset(("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"))


class _Template(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    template: _Template = _Template()
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    pod_replacement_policy: str = ""


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    replicas: int = 0
    observed_generation: int = 0
    active: int = 0
    succeeded: int = 0
    terminating: int | None = None
    failed_indexes: str | None = None
    start_time: str | None = None
    conditions: list[_Condition] | None = None


class _Metadata(Metadata, frozen=True, rename="camel"):
    generation: int = 0


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def count(self) -> int:
        """Returns how many pods a ReplicaSet or a StatefulSet lacks. While its controller creates
        the pods of a new number, the status has the old one, and other pods are counted twice."""
        if 0 < self.status.observed_generation < self.metadata.generation:
            return 0
        return (1 if self.spec.replicas is None else self.spec.replicas) - self.status.replicas

    @property
    def count_of_job(self) -> int:
        """Returns how many pods the Job controller would create now."""
        spec, status = self.spec, self.status
        ended = {item.type for item in status.conditions or () if item.status == "True"}
        if spec.suspend or ended & _ENDED or spec.managed_by not in (None, _JOB_CONTROLLER):
            return 0
        wanted = 1 if spec.parallelism is None else spec.parallelism
        if spec.completions is not None:
            failed = _count_indexes(status.failed_indexes or "")
            wanted = min(wanted, spec.completions - status.succeeded - failed)
        elif status.succeeded:
            return 0  # the other pods end the work, and none is added
        waits_for_ends = spec.pod_replacement_policy == "Failed"
        return wanted - status.active - (status.terminating or 0) * waits_for_ends

    @property
    def since(self) -> str:
        """Returns when a pod was refused, or else when the workload was started or created."""
        failures = (item.last_transition_time or "" for item in self.status.conditions or ()
                    if item.type == "ReplicaFailure" and item.status == "True")  # fmt: skip
        start = self.status.start_time or self.metadata.creation_timestamp or ""
        return max(failures, default="") or start


def _count_indexes(text: str) -> int:
    """Returns how many indexes of a Job a text like `1,3-5` has; 0 for another text."""
    total = 0
    for first, _, last in (part.partition("-") for part in text.split(",") if part):
        if not (first.isdecimal() and (last or first).isdecimal()):
            return 0
        total += int(last or first) - int(first) + 1
    return total


class _Lacking(NamedTuple):
    kind: str
    metadata: Metadata
    lacks: int
    since: str
    spec: bytes


class _RangeItem(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}


class _RangeSpec(msgspec.Struct, frozen=True):
    limits: list[_RangeItem] = []


class _LimitRange(msgspec.Struct, frozen=True):
    spec: _RangeSpec = _RangeSpec()


class WorkloadObjects(TypedObjects):
    """The client of the workloads that lack pods."""

    def read_lacking(self, namespace: str) -> list[LackingPods]:
        """Returns the workloads of a namespace that lack pods, the longest waiting first. Reads the
        LimitRanges only if a workload lacks pods. Raises KubeError."""
        lacking: list[_Lacking] = []
        for kind in KINDS:
            listed = self.list_objects(kind, namespace, _Workload, partial(_read, kind))
            lacking += [item for item in listed if item.lacks > 0]
        if not lacking:
            return []
        lacking.sort(key=lambda item: (item.since, item.kind, item.metadata.name))
        ranges = self.list_objects("LimitRange", namespace, _LimitRange, lambda item: item)
        defaults = [
            item for each in ranges for item in each.spec.limits if item.type == "Container"
        ]
        return [_lacking(self, namespace, item, defaults) for item in lacking]


def _read(kind: str, item: _Workload) -> _Lacking:
    count = item.count_of_job if kind == "Job" else item.count
    count = 0 if item.metadata.deletion_timestamp else count
    spec = bytes(item.spec.template.spec) if count > 0 else b""
    return _Lacking(kind, item.metadata, count, item.since, spec)


def _lacking(
    objects: TypedObjects, namespace: str, item: _Lacking, defaults: Sequence[_RangeItem]
) -> LackingPods:
    requests, limits = _with_defaults(item.spec, defaults)
    return LackingPods(
        kind=item.kind,
        namespace=namespace,
        name=item.metadata.name,
        count=item.lacks,
        shape=objects.read_shape(requests),
        limits=objects.read_shape(limits).request,
        since=item.since,
        longest_wait=KINDS[item.kind],
        woken=(item.metadata.annotations or {}).get(WOKEN, ""),
    )


def _with_defaults(spec: bytes, defaults: Sequence[_RangeItem]) -> tuple[bytes, bytes]:
    """Returns the pod spec with the requests that its containers will get, and the spec with their
    limits in place of requests. For a missing request the API server takes the limit, else the
    default of the LimitRanges."""
    fields: dict[str, Any] = msgspec.json.decode(spec)
    with_limits = {**fields}
    for kind in ("containers", "initContainers"):
        requested, limited = [], []
        for container in fields.get(kind) or ():
            resources = container.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            requests = {**limits, **requests}
            for item in defaults:
                requests = {**item.default_request, **requests}
                limits = {**item.default, **limits}
            requested.append({**container, "resources": {"requests": requests}})
            limited.append({**container, "resources": {"requests": limits}})
        if requested:
            fields, with_limits = {**fields, kind: requested}, {**with_limits, kind: limited}
    with_limits.pop("resources", None)  # requests of the whole pod
    return msgspec.json.encode(fields), msgspec.json.encode(with_limits)
