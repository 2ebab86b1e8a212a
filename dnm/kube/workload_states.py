"""The Workloads of Kueue in a namespace, for commands that explain why one of them waits."""

from __future__ import annotations

import re

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.model.kueue import KUEUE_API
from dnm.model.printable import printable
from dnm.model.value import Value

_LONGEST_TEXT = 400
_OF_DEPLOYMENT = r"-[a-z0-9]{6,10}-[a-z0-9]{5}"  # the end of its pods' names
_MOST = 250_000  # a plain pod has a Workload of its own


class WorkloadState(Value):
    """A Workload of Kueue. `owners` has the names of its Job or pods. `cluster_queue` and `flavors`
    are set if Kueue has reserved quota there. `pods` counts admitted pods, or before that all."""

    namespace: str
    name: str
    local_queue: str = ""
    owners: tuple[str, ...] = ()
    pods: int = 0
    cluster_queue: str = ""
    flavors: tuple[str, ...] = ()
    is_finished: bool = False
    is_active: bool = True
    message: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_waiting(self) -> bool:
        return not (self.is_finished or self.cluster_queue)


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    owner_references: list[_Named] = []


class _PodSet(msgspec.Struct, frozen=True):
    count: int = 1


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    queue_name: str = ""
    active: bool | None = None
    pod_sets: list[_PodSet] = []


class _Assignment(msgspec.Struct, frozen=True):
    count: int = 0
    flavors: dict[str, str] = {}


class _Admission(msgspec.Struct, frozen=True, rename="camel"):
    cluster_queue: str = ""
    pod_set_assignments: list[_Assignment] = []


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []
    admission: _Admission | None = None


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def as_value(self) -> WorkloadState:
        state = {item.type: item for item in self.status.conditions}
        finished, reserved = state.get("Finished"), state.get("QuotaReserved")
        is_reserved = reserved is not None and reserved.status == "True"
        admission = self.status.admission if is_reserved else None
        assigned = admission.pod_set_assignments if admission else []
        return WorkloadState(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            local_queue=self.spec.queue_name,
            owners=tuple(owner.name for owner in self.metadata.owner_references),
            pods=sum(item.count for item in assigned or self.spec.pod_sets),
            cluster_queue=admission.cluster_queue if admission else "",
            flavors=tuple(sorted({name for item in assigned for name in item.flavors.values()})),
            is_finished=finished is not None and finished.status == "True",
            is_active=self.spec.active is not False,
            message=printable(reserved.message, _LONGEST_TEXT) if reserved else "",
        )


def read_workload_states(api: ApiRequests, namespace: str, name: str) -> list[WorkloadState]:
    """Returns the Workload of this name, or those with an owner of this name: a Job, a pod, or the
    pods of a Deployment. Raises KubeError."""
    task, plural = f"list the workloads of Kueue in {namespace}", "workloads"
    path = path_of(plural, namespace=namespace, api=f"/apis/{KUEUE_API}")
    with api.asking(task, f"list {plural}"), fault_point("kube.list_workloads"):
        items = api.list_items(List(path, "WorkloadList"), _Workload, most=_MOST)
    states = [item.as_value() for item in items]
    pattern = re.compile(re.escape(name) + _OF_DEPLOYMENT)
    own = [item for item in states if name in (item.name, *item.owners)]
    return own or [item for item in states if any(map(pattern.fullmatch, item.owners))]
