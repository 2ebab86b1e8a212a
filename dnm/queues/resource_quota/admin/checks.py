"""The checks by `dnm check` of namespaces with ResourceQuotas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from dnm.checks.findings import Finding, doubtful, fine, looks_at, wrong
from dnm.checks.node_types import check_node_types
from dnm.checks.queue_checks import QueueProperties
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.permission import Permission
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.quota import ResourceQuota, is_of_limits
from dnm.queues.resource_quota.objects import QuotaFacts

PROPERTIES = QueueProperties(
    writes_limits=True, zero_means="nothing", ancestors_grow=False, shrinking_may_evict=False
)
_UNREAD = "no limit can be read, and nothing is lent or returned"
_UNKNOWN = "nothing is lent or returned where refused pods have a PriorityClass"
_UNWRITTEN = "no limit can be changed, so lent nodes add nothing to it"
_ROLE = "give dnm the role of etc/rbac-resource-quota.yaml in each namespace"
_ASLEEP = "refused pods of this kind wait for the next try of their controller, up to 1,000 seconds"
_permission = partial(Permission, role="rbac-resource-quota.yaml")
_KINDS = (("replicasets", "apps"), ("statefulsets", "apps"), ("jobs", "batch"))


def find_trace(config: Config, kube: KubeClient) -> str:
    """Returns a ResourceQuota of a monitored namespace, or an empty text."""
    read = kube.typed_objects.read_quotas
    quotas = [quota for name in sorted(config.namespaces) for quota in read(name) if quota.hard]
    return f"a ResourceQuota {quotas[0].place}" if quotas else ""


def permissions(config: Config) -> tuple[Permission, ...]:
    """Returns the API permissions that a run needs in each namespace with ResourceQuotas."""
    return (
        *(
            item
            for name in sorted(config.namespaces_with("resource_quota"))
            for item in _of_namespace(name, config.annotate_workloads)
        ),
        _permission(
            verb="list", resource="priorityclasses", group="scheduling.k8s.io", without=_UNKNOWN
        ),
    )


def _of_namespace(namespace: str, wakes: bool) -> Iterator[Permission]:
    for resource, verb, why in (
        ("resourcequotas", "list", _UNREAD),
        ("resourcequotas", "patch", _UNWRITTEN),
        ("limitranges", "list", _UNREAD),
    ):
        yield _permission(verb=verb, resource=resource, without=why, namespace=namespace)
    for resource, group in _KINDS:
        of_kind = partial(_permission, resource=resource, group=group, namespace=namespace)
        yield of_kind(verb="list", without=_UNREAD)
        if wakes:
            yield of_kind(verb="patch", without=_ASLEEP, is_needed=False)


@looks_at("queue system")
def check_limits(config: Config, kube: KubeClient, snapshot: Snapshot) -> Iterator[Finding]:
    """Reports the limits of each namespace, and ResourceQuotas that dnm cannot change or read."""
    facts = snapshot.queue_facts
    if facts.unread or not isinstance(facts, QuotaFacts):
        yield wrong(
            facts.unread.error if facts.unread else "the ResourceQuotas were not read",
            _ROLE,
        )
        return
    for name in sorted(config.namespaces_with("resource_quota")):
        quotas = [quota for quota in facts.quotas if quota.namespace == name]
        if unread := facts.unread_queues.get(name):
            yield wrong(unread.error, _ROLE)
        elif not quotas:
            yield wrong(
                f"namespace {name} has no ResourceQuota that nodes raise",
                f"create one with requests.cpu and requests.memory, or write queue_system = none "
                f"in [namespace:{name}]",
            )
        for quota in quotas:
            yield from _check_quota(quota)
    for quota in facts.ignored:
        yield doubtful(
            f"ResourceQuota {quota.place} covers only some pods ({', '.join(quota.other_scopes)}): "
            "no node raises it, and workloads whose pods it refuses get no node for these",
            "remove it, or exclude these pods from what needs lent nodes",
        )


def _check_quota(quota: ResourceQuota) -> Iterator[Finding]:
    if not quota.is_ready:
        yield doubtful(
            f"the limits of ResourceQuota {quota.place} have no effect: its status has others",
            "look at kube-controller-manager",
        )
    if all(map(is_of_limits, quota.hard)):
        yield doubtful(
            f"ResourceQuota {quota.place} limits only the limits of pods: if it is full, dnm "
            "lends nodes only once no node has free capacity",
            "add requests.cpu and requests.memory",
        )
    shown = ", ".join(f"{key} {text}" for key, text in sorted(quota.hard.items()))
    yield fine(f"ResourceQuota {quota.place}: {shown}")


def check_queues(config: Config, snapshot: Snapshot) -> Iterator[Finding]:
    """Checks that only pods of a namespace with ResourceQuotas can use the nodes lent to it."""
    yield from check_node_types(config, config.namespaces_with("resource_quota"))


def check_demand(
    config: Config, snapshot: Snapshot, pods: PodList, count: Callable[[Config], Demand]
) -> Iterator[Finding]:
    """Reports nothing: a ResourceQuota's status already has the exact use, so dnm's count of pods
    needs no check."""
    yield from ()
