"""Workloads such as Deployments that lack pods, because quotas refused them, and these pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from dnm.model.cluster import RefusedPods
from dnm.model.node_type import Taint, fill_namespace
from dnm.model.pod import Pod, PodShape, Toleration
from dnm.model.printable import printable
from dnm.model.quota import QuotaScope, ResourceQuota
from dnm.model.value import Resources, Value

PLACEHOLDER_PRIORITY = -10
"""The highest priority of placeholders, to which etc/admission-policy.yaml gives no toleration."""
WOKEN = "dynamic-node-manager/woken"
"""The annotation with which dnm makes a controller try again. It decides nothing."""
_LONGEST_NAME = 160
_MARGIN = timedelta(seconds=10)  # until a controller has created the pods
_EPOCH = "1970-01-01T00:00:00Z"


class PriorityClass(Value):
    """A PriorityClass. Pods that name none get the default class with the least value."""

    name: str
    value: int
    is_default: bool = False


class LackingPods(Value):
    """A workload for which its controller could not create all pods. `shape` and `limits` are those
    of a missing pod, with a LimitRange's defaults. `since` is when the first may have been refused
    (RFC 3339). `longest_wait` is the longest time between two tries of the controller. `omitted`
    are limits of quotas, like `requests.cpu`, for which one of its containers has no amount.
    `is_forbidden`: a LimitRange refuses the pod. A workload with pods has neither of these two.
    `priority_class` is that of the template until `with_class`. `has_deadline`: the pods end after
    `activeDeadlineSeconds`."""

    kind: str
    namespace: str
    name: str
    count: int
    shape: PodShape
    limits: Resources
    since: str
    longest_wait: timedelta
    omitted: frozenset[str] = frozenset()
    is_forbidden: bool = False
    woken: str = ""  # the text of its annotation WOKEN
    priority_class: str = ""
    priority: int = 0
    has_deadline: bool = False

    @property
    def is_placeholder(self) -> bool:
        """Returns whether the pods only reserve capacity for others, which evict them."""
        return self.priority <= PLACEHOLDER_PRIORITY

    def with_class(self, classes: Iterable[PriorityClass]) -> LackingPods:
        """Returns the workload with the PriorityClass and the priority that its pods will get. The
        API server refuses pods of a missing class."""
        name = self.priority_class
        found = [item for item in classes if (item.name == name if name else item.is_default)]
        if not found:
            return replace(self, is_forbidden=self.is_forbidden or bool(name))
        least = min(found, key=lambda item: item.value)
        return replace(self, priority_class=least.name, priority=least.value)

    def is_counted_by(self, quota: ResourceQuota) -> bool:
        """Returns whether a quota counts these pods, as Kubernetes decides it in
        pkg/quota/v1/evaluator/core/pods.go. No pod is in a scope that dnm does not know."""
        return all(map(self._meets, quota.scopes))

    def _meets(self, scope: QuotaScope) -> bool:
        amounts = [side.get(name) for side in (self.shape.request, self.limits)
                   for name in ("cpu", "memory")]  # fmt: skip
        is_listed = self.priority_class in scope.values
        return {
            "Terminating Exists": self.has_deadline,
            "NotTerminating Exists": not self.has_deadline,
            "BestEffort Exists": not any(amounts),
            "NotBestEffort Exists": any(amounts),
            "PriorityClass Exists": bool(self.priority_class),
            "PriorityClass DoesNotExist": not self.priority_class,
            "PriorityClass In": is_listed,
            "PriorityClass NotIn": not is_listed,
        }.get(f"{scope.name} {scope.operator}", False)

    def is_invalid(self, quotas: Iterable[ResourceQuota]) -> bool:
        """Returns whether the API server refuses these pods whatever amounts the quotas allow."""
        limited = {f"requests.{key}" if key in ("cpu", "memory") else key
                   for quota in quotas for key in quota.hard}  # fmt: skip
        return self.is_forbidden or not self.omitted.isdisjoint(limited)

    def next_try(self, raised: str) -> str:
        """Returns the latest time at which the controller tries again, if limits were raised at
        `raised`. The controller waits about as long as its pods have been refused until then."""
        at, since = (datetime.fromisoformat(text or _EPOCH) for text in (raised, self.since))
        waits = min(max(at - since, timedelta()), self.longest_wait)
        return (at + waits + _MARGIN).strftime("%Y-%m-%dT%H:%M:%SZ")

    def refused(
        self, count: int, taints: Sequence[Taint], retry_until: str = "", is_invalid: bool = False
    ) -> RefusedPods:
        """Returns `count` pods that the quota refused, as pending pods. They get tolerations of
        `taints`, those of the nodes lent to their namespace, as real pods do at their creation.
        Placeholders get none."""
        when = f"next try until {retry_until}" if retry_until else "not created"
        more = tuple(
            Toleration(
                key=fill_namespace(taint.key, self.namespace),
                value=fill_namespace(taint.value, self.namespace),
                effect=taint.effect,
            )
            for taint in taints
            if not self.is_placeholder
        )
        pod = Pod(
            namespace=self.namespace,
            name=f"{printable(self.name, _LONGEST_NAME)} ({self.kind}, {when})",
            shape=replace(self.shape, tolerations=(*self.shape.tolerations, *more)),
            created=self.since,
            app_id=self.namespace,
            is_managed=True,
        )
        return RefusedPods(
            pod=pod, count=count, retry_until=retry_until, is_invalid=is_invalid, owner=self.name
        )
