"""A reader of ResourceQuotas, and of workloads that lack pods because quotas refuse them."""

from __future__ import annotations

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, RefusedPods
from dnm.model.config import Config
from dnm.model.quota import ResourceQuota, free_capacity, reported_use, take
from dnm.model.workload import LackingPods
from dnm.queues.resource_quota.ledger import LEDGER
from dnm.queues.system import KubeObjects


class QuotaFacts(QueueFacts):
    """The quotas that apply to ordinary pods. `ignored`: quotas that apply only to other pods.
    `waiting`: workloads to annotate, since the quotas now admit pods that they refused before."""

    quotas: tuple[ResourceQuota, ...] = ()
    ignored: tuple[ResourceQuota, ...] = ()
    waiting: tuple[LackingPods, ...] = ()


def read_facts(config: Config, objects: KubeObjects, with_pods: bool = True) -> QuotaFacts:
    """Returns the quotas and refused pods of all namespaces with this queue system. Raises
    KubeError, and QueueError for an invalid quantity."""
    quotas: list[ResourceQuota] = []
    ignored: list[ResourceQuota] = []
    refused: list[RefusedPods] = []
    waiting: list[LackingPods] = []
    for name in sorted(config.namespaces_with("resource_quota")):
        listed = objects.read_quotas(name)
        ignored += (quota for quota in listed if quota.other_scopes)
        own = [quota for quota in listed if quota.hard and not quota.other_scopes]
        quotas += own
        types = (config.node_types[kind] for kind in config.namespaces[name].node_types)
        taints = [taint for node_type in types for taint in node_type.taints]
        free, raised = free_capacity(own), max((quota.changed for quota in own), default="")
        wakes = config.annotate_workloads and any(LEDGER in quota.annotations for quota in own)
        for pods in objects.read_lacking(name) if own and with_pods else ():
            if pods.is_invalid(own):
                refused.append(pods.refused(pods.count, taints, is_invalid=True))
                continue
            if admitted := take(free, pods.count, pods.shape.request, pods.limits):
                refused.append(pods.refused(admitted, taints, pods.next_try(raised)))
                waiting += [replace(pods, woken=raised)] if wakes and pods.woken != raised else []
            if admitted < pods.count:
                refused.append(pods.refused(pods.count - admitted, taints))
    return QuotaFacts(
        quotas=tuple(quotas),
        ignored=tuple(ignored),
        waiting=tuple(waiting),
        refused=tuple(refused),
        used=reported_use(quotas),
    )
