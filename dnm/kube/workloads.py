"""Workloads that lack pods: ReplicaSets, StatefulSets and Jobs, from their spec and status. A pod
that a quota refuses has no object: conditions and Events keep the text of the first refusals
only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from dnm.kube.objects import Metadata
from dnm.kube.typed_objects import TypedObjects
from dnm.model.quantity import QuantityError, kube_resources, parse_kubernetes
from dnm.model.value import Resources
from dnm.model.workload import WOKEN, LackingPods

KINDS = {
    "ReplicaSet": timedelta(seconds=1000),
    "StatefulSet": timedelta(seconds=1000),
    "Job": timedelta(seconds=60),
}
"""The kinds, with the longest wait of their controllers between two tries."""
_REQUIRED = frozenset(("cpu", "memory"))  # if a quota limits one, each container must have it
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
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}

    def forbids(self, requests: Resources, limits: Resources) -> bool:
        """Returns whether the API server refuses such a pod or container."""
        for name, least in kube_resources(self.min).items():
            if min(requests.get(name, -1), limits.get(name, least)) < least:
                return True
        for name, most in kube_resources(self.max).items():
            if name not in limits or max(requests.get(name, 0), limits[name]) > most:
                return True
        for name, text in self.max_limit_request_ratio.items():
            thousandths = parse_kubernetes("cpu", text)
            request, limit = requests.get(name, 0), limits.get(name, 0)
            if not (request and limit) or 1000 * limit > thousandths * request:
                return True
        return False


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
        rules = [item for each in ranges for item in each.spec.limits]
        return [_lacking(self, namespace, item, rules) for item in lacking]


def _read(kind: str, item: _Workload) -> _Lacking:
    count = item.count_of_job if kind == "Job" else item.count
    count = 0 if item.metadata.deletion_timestamp else count
    spec = bytes(item.spec.template.spec) if count > 0 else b""
    return _Lacking(kind, item.metadata, count, item.since, spec)


def _lacking(
    objects: TypedObjects, namespace: str, item: _Lacking, rules: Sequence[_RangeItem]
) -> LackingPods:
    completed = _complete(item.spec, [rule for rule in rules if rule.type == "Container"])
    shape = objects.read_shape(completed.requests)
    limits = objects.read_shape(completed.limits).request
    return LackingPods(
        kind=item.kind,
        namespace=namespace,
        name=item.metadata.name,
        count=item.lacks,
        shape=shape,
        limits=limits,
        since=item.since,
        longest_wait=KINDS[item.kind],
        omitted=completed.omitted,
        is_forbidden=completed.is_forbidden
        or any(rule.forbids(shape.request, limits) for rule in rules if rule.type == "Pod"),
        woken=(item.metadata.annotations or {}).get(WOKEN, ""),
    )


class _Completed(NamedTuple):
    """The pod spec as the API server completes it, and the spec with limits in place of requests.
    `omitted`: the limits of quotas for which a container has no amount. `is_forbidden`: a
    LimitRange refuses a container."""

    requests: bytes
    limits: bytes
    omitted: frozenset[str]
    is_forbidden: bool


def _complete(spec: bytes, rules: Sequence[_RangeItem]) -> _Completed:
    """Returns the pod spec with the requests and limits that its containers will get. For a missing
    request the API server takes the limit, else the default of the LimitRanges."""
    fields: dict[str, Any] = msgspec.json.decode(spec)
    with_limits, of_pod = {**fields}, fields.get("resources") or {}
    omitted, is_forbidden = set(), False
    for kind in ("containers", "initContainers"):
        requested, limited = [], []
        for container in fields.get(kind) or ():
            resources = container.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            requests = {**limits, **requests}
            for rule in rules:
                requests = {**rule.default_request, **requests}
                limits = {**rule.default, **limits}
            with suppress(QuantityError):  # `read_shape` cuts off the shape of such a pod
                amounts = kube_resources(requests), kube_resources(limits)
                is_forbidden |= any(rule.forbids(*amounts) for rule in rules)
            omitted |= {f"requests.{name}" for name in _REQUIRED - requests.keys()}
            omitted |= {f"limits.{name}" for name in _REQUIRED - limits.keys()}
            requested.append({**container, "resources": {"requests": requests}})
            limited.append({**container, "resources": {"requests": limits}})
        if requested:
            fields, with_limits = {**fields, kind: requested}, {**with_limits, kind: limited}
    if of_pod:
        with_limits["resources"] = {"requests": of_pod.get("limits") or {}}
    return _Completed(
        requests=msgspec.json.encode(fields),
        limits=msgspec.json.encode(with_limits),
        omitted=frozenset() if of_pod else frozenset(omitted),
        is_forbidden=is_forbidden,
    )
