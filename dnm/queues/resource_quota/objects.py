"""A reader of ResourceQuotas, and of workloads that lack pods because these quotas refuse them."""

from __future__ import annotations

import time

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, RefusedPods
from dnm.model.config import Config
from dnm.model.errors import KubeError, QueueError
from dnm.model.quota import ResourceQuota, free_capacity, reported_use, take
from dnm.model.turns import in_turn
from dnm.model.value import Unreadable
from dnm.model.workload import LackingPods
from dnm.queues.resource_quota.ledger import LEDGER, ledger_of
from dnm.queues.system import KubeObjects


class QuotaFacts(QueueFacts):
    """The quotas that apply to ordinary pods. `ignored`: quotas for special pods only. `waiting`:
    workloads with refused pods that the quotas would admit now; dnm annotates them."""

    quotas: tuple[ResourceQuota, ...] = ()
    ignored: tuple[ResourceQuota, ...] = ()
    waiting: tuple[LackingPods, ...] = ()


def read_facts(config: Config, objects: KubeObjects, with_pods: bool = True) -> QuotaFacts:
    """Returns the quotas and refused pods of all namespaces with this queue system. Namespaces that
    could not be read, or have an invalid quantity in a quota, are in `unread_queues`."""
    facts, unread, read = QuotaFacts(), {}, {}
    for name in in_turn(config.namespaces_with("resource_quota"), int(time.time() // 60)):
        try:
            read[name] = _read_namespace(config, objects, name, with_pods)
        except (KubeError, QueueError) as error:
            unread[name] = Unreadable(subject=f"the ResourceQuotas of {name}", error=str(error))
    unread = dict(sorted(unread.items()))  # the order of the reads has no effect on the plan
    for _, own in sorted(read.items()):
        facts = QuotaFacts(
            quotas=facts.quotas + own.quotas,
            ignored=facts.ignored + own.ignored,
            waiting=facts.waiting + own.waiting,
            refused=facts.refused + own.refused,
            used={**facts.used, **own.used},
            unread_ledgers=facts.unread_ledgers | own.unread_ledgers,
        )
    return replace(facts, unread_queues=unread, unread_ledgers=facts.unread_ledgers | {*unread})


def _read_namespace(config: Config, objects: KubeObjects, name: str, with_pods: bool) -> QuotaFacts:
    refused: list[RefusedPods] = []
    waiting: list[LackingPods] = []
    listed = objects.read_quotas(name)
    quotas = tuple(quota for quota in listed if quota.hard and not quota.other_scopes)
    types = (config.node_types[kind] for kind in config.namespaces[name].node_types)
    taints = [taint for node_type in types for taint in node_type.taints]
    free, raised = free_capacity(quotas), max((quota.changed for quota in quotas), default="")
    wakes = config.annotate_workloads and any(LEDGER in quota.annotations for quota in quotas)
    for pods in objects.read_lacking(name) if quotas and with_pods else ():
        if pods.is_invalid(quotas):
            refused.append(pods.refused(pods.count, taints, is_invalid=True))
            continue
        if admitted := take(free, pods.count, pods.shape.request, pods.limits):
            refused.append(pods.refused(admitted, taints, pods.next_try(raised)))
            waiting += [replace(pods, woken=raised)] if wakes and pods.woken != raised else []
        if admitted < pods.count:
            refused.append(pods.refused(pods.count - admitted, taints))
    return QuotaFacts(
        quotas=quotas,
        ignored=tuple(quota for quota in listed if quota.other_scopes),
        waiting=tuple(waiting),
        refused=tuple(refused),
        used=reported_use(quotas),
        unread_ledgers=frozenset({name} if None in map(ledger_of, quotas) else ()),
    )
