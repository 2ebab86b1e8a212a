"""Workloads that lack pods: ReplicaSets, StatefulSets and Jobs, from their spec and status. dnm
counts them there because a pod that a quota refuses is no object; Events and conditions report only
the first refusals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from dnm.kube.objects import Metadata
from dnm.kube.typed_objects import MOST_OBJECTS, TypedObjects
from dnm.model.pod import PodShape
from dnm.model.quantity import QuantityError, kube_resources, parse_kubernetes
from dnm.model.value import Resources
from dnm.model.workload import WOKEN, LackingPods, PriorityClass

KINDS = {
    "ReplicaSet": timedelta(seconds=1000),
    "StatefulSet": timedelta(seconds=1000),
    "Job": timedelta(seconds=60),
}
"""The kinds, with the longest wait of their controllers between two tries."""
_REQUIRED = frozenset(("cpu", "memory"))  # if a quota limits one, each container must have it
_JOB_CONTROLLER = "kubernetes.io/job-controller"
_MOST_BYTES = 1 << 26  # of distinct pod specs in a namespace
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
        """Returns how many pods a ReplicaSet or a StatefulSet lacks. Returns 0 until its controller
        has seen the present spec, since its status has the old number of pods."""
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
    """Returns how many indexes of a Job a text like `1,3-5` lists; 0 if it has another form."""
    total = 0
    for first, _, last in (part.partition("-") for part in text.split(",") if part):
        if not (first.isdecimal() and (last or first).isdecimal()):
            return 0
        total += int(last or first) - int(first) + 1
    return total


class _Lacking(NamedTuple):
    kind: str
    name: str
    lacks: int
    since: str
    spec: bytes
    annotation: str
    has_pods: bool  # then the API server admits them, perhaps changed by a webhook


class _Selection:
    """The workloads of a namespace that dnm counts, and their distinct pod specs. A tenant may have
    any number of each, so dnm bounds them. At the bounds, the demand exceeds all nodes anyway."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()
        self._specs: dict[bytes, bytes] = {}
        self._bytes = 0

    def takes(self, kind: str, name: str) -> bool:
        """Returns whether this workload is among the first, which dnm counts, in each reading."""
        if len(self._names) < MOST_OBJECTS:
            self._names.add((kind, name))
        return (kind, name) in self._names

    def keep(self, spec: bytes) -> bytes:
        """Returns one object for equal pod specs; b"" if the specs so far take too many bytes."""
        if spec not in self._specs:
            if self._bytes + len(spec) > _MOST_BYTES:
                return b""
            self._bytes += len(spec)
        return self._specs.setdefault(spec, spec)


class _RangeItem(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}

    def forbids(self, requests: Resources, limits: Resources) -> bool:
        """Returns whether this LimitRange item refuses a pod or container with these amounts."""
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


class _PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    metadata: Metadata
    value: int = 0
    global_default: bool = False

    def as_value(self) -> PriorityClass:
        name, is_default = self.metadata.name, self.global_default
        return PriorityClass(name=name, value=self.value, is_default=is_default)


class WorkloadObjects(TypedObjects):
    """The client of the workloads that lack pods."""

    def read_priority_classes(self) -> list[PriorityClass]:
        """Returns the PriorityClasses of the cluster. Raises KubeError."""
        return self.list_objects("PriorityClass", "", _PriorityClass, _PriorityClass.as_value)

    def read_lacking(self, namespace: str) -> list[LackingPods]:
        """Returns the workloads of a namespace that lack pods, the longest waiting first, up to
        MOST_OBJECTS. Reads the LimitRanges only if a workload lacks pods. Raises KubeError."""
        lacking: list[_Lacking] = []
        selection = _Selection()
        for kind in KINDS:
            read = partial(_read, kind, selection)
            lacking += self.list_objects(kind, namespace, _Workload, read)
        if not lacking:
            return []
        lacking.sort(key=lambda item: (item.since, item.kind, item.name))
        ranges = self.list_objects("LimitRange", namespace, _LimitRange, lambda item: item)
        rules = [item for each in ranges for item in each.spec.limits]
        missing = {spec: _complete(self, spec, rules) for spec in {item.spec for item in lacking}}
        return [
            LackingPods(
                kind=item.kind,
                namespace=namespace,
                name=item.name,
                count=item.lacks,
                shape=missing[item.spec].shape,
                limits=missing[item.spec].limits,
                since=item.since,
                longest_wait=KINDS[item.kind],
                omitted=frozenset() if item.has_pods else missing[item.spec].omitted,
                is_forbidden=missing[item.spec].is_forbidden and not item.has_pods,
                woken=item.annotation,
                priority_class=missing[item.spec].priority_class,
                has_deadline=missing[item.spec].has_deadline,
            )
            for item in lacking
        ]


def _read(kind: str, selection: _Selection, item: _Workload) -> _Lacking | None:
    metadata = item.metadata
    count = item.count_of_job if kind == "Job" else item.count
    if count <= 0 or metadata.deletion_timestamp or not selection.takes(kind, metadata.name):
        return None
    spec = selection.keep(bytes(item.spec.template.spec))
    annotation = (metadata.annotations or {}).get(WOKEN, "")
    has_pods = bool(item.status.replicas or item.status.active or item.status.succeeded)
    return _Lacking(kind, metadata.name, count, item.since, spec, annotation, has_pods)


class _Missing(NamedTuple):
    """A pod with the requests and limits that its containers will get. `omitted`: the limits of
    quotas for which a container has no amount. `is_forbidden`: a LimitRange refuses the pod."""

    shape: PodShape
    limits: Resources
    omitted: frozenset[str] = frozenset()
    is_forbidden: bool = False
    priority_class: str = ""
    has_deadline: bool = False


def _complete(objects: TypedObjects, spec: bytes, rules: Sequence[_RangeItem]) -> _Missing:
    """Returns the pod that the API server would make of a template's spec: it sets a missing
    request to the limit, else to the default of the LimitRanges."""
    if not spec:
        return _Missing(objects.read_shape(spec), {})
    fields: dict[str, Any] = msgspec.json.decode(spec)
    with_limits, of_pod = {**fields}, fields.get("resources") or {}
    of_containers = [rule for rule in rules if rule.type == "Container"]
    omitted, is_forbidden = set(), False
    for kind in ("containers", "initContainers"):
        requested, limited = [], []
        for container in fields.get(kind) or ():
            resources = container.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            requests = {**limits, **requests}
            for rule in of_containers:
                requests = {**rule.default_request, **requests}
                limits = {**rule.default, **limits}
            with suppress(QuantityError):  # `read_shape` cuts off the shape of such a pod
                amounts = kube_resources(requests), kube_resources(limits)
                is_forbidden |= any(rule.forbids(*amounts) for rule in of_containers)
            omitted |= {f"requests.{name}" for name in _REQUIRED - requests.keys()}
            omitted |= {f"limits.{name}" for name in _REQUIRED - limits.keys()}
            requested.append({**container, "resources": {"requests": requests}})
            limited.append({**container, "resources": {"requests": limits}})
        if requested:
            fields, with_limits = {**fields, kind: requested}, {**with_limits, kind: limited}
    if of_pod:
        omitted = set()
        with_limits["resources"] = {"requests": of_pod.get("limits") or {}}
    shape = objects.read_shape(msgspec.json.encode(fields))
    limits = objects.read_shape(msgspec.json.encode(with_limits)).request
    of_pods = (rule for rule in rules if rule.type == "Pod")
    is_forbidden |= any(rule.forbids(shape.request, limits) for rule in of_pods)
    has_deadline = fields.get("activeDeadlineSeconds") is not None
    priority_class = fields.get("priorityClassName") or ""
    return _Missing(shape, limits, frozenset(omitted), is_forbidden, priority_class, has_deadline)
