"""A reader of ResourceQuotas, and of workloads that lack pods because these quotas refuse them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, RefusedPods
from dnm.model.config import Config
from dnm.model.errors import KubeError, QueueError
from dnm.model.node_type import Taint
from dnm.model.quota import Free, ResourceQuota, free_capacity, reported_use, take
from dnm.model.turns import in_turn
from dnm.model.value import Unreadable
from dnm.model.workload import LackingPods, PriorityClass
from dnm.queues.resource_quota.ledger import LEDGER, ledger_of
from dnm.queues.system import KubeObjects

_ReadClasses: TypeAlias = Callable[[], Sequence[PriorityClass]]


class QuotaFacts(QueueFacts):
    """The quotas that apply to ordinary pods. `ignored`: quotas for special pods only, which no
    node raises. `waiting`: workloads with refused pods that the quotas would admit now; dnm
    annotates them."""

    quotas: tuple[ResourceQuota, ...] = ()
    ignored: tuple[ResourceQuota, ...] = ()
    waiting: tuple[LackingPods, ...] = ()


def read_facts(config: Config, objects: KubeObjects, with_pods: bool = True) -> QuotaFacts:
    """Returns the quotas and refused pods of all namespaces with this queue system. Namespaces that
    could not be read, or have an invalid quantity in a quota, are in `unread_queues`."""
    facts, unread, read = QuotaFacts(), {}, {}
    read_classes = cache(objects.read_priority_classes) if with_pods else None
    for name in in_turn(config.namespaces_with("resource_quota"), int(time.time() // 60)):
        try:
            read[name] = _read_namespace(config, objects, name, read_classes)
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


def _read_namespace(
    config: Config, objects: KubeObjects, name: str, read_classes: _ReadClasses | None
) -> QuotaFacts:
    """Returns the facts of a namespace, with its refused pods if `read_classes` is given."""
    listed = objects.read_quotas(name)
    quotas = tuple(quota for quota in listed if quota.hard and not quota.other_scopes)
    facts = QuotaFacts(
        quotas=quotas,
        ignored=tuple(quota for quota in listed if quota.other_scopes),
        used=reported_use(quotas),
        unread_ledgers=frozenset({name} if None in map(ledger_of, quotas) else ()),
    )
    if not (quotas and read_classes):
        return facts
    refused: list[RefusedPods] = []
    waiting: list[LackingPods] = []
    types = (config.node_types[kind] for kind in config.namespaces[name].node_types)
    taints = [taint for node_type in types for taint in node_type.taints]
    free, raised = free_capacity(listed), max(quota.changed for quota in quotas)
    wakes = config.annotate_workloads and any(LEDGER in quota.annotations for quota in quotas)
    for pods in _read_lacking(objects, name, listed, read_classes):
        parts = _split(pods, listed, free, taints, raised)
        refused += parts
        if wakes and pods.woken != raised and any(part.retry_until for part in parts):
            waiting.append(replace(pods, woken=raised))
    return replace(facts, waiting=tuple(waiting), refused=tuple(refused))


def _read_lacking(
    objects: KubeObjects, name: str, quotas: Sequence[ResourceQuota], read_classes: _ReadClasses
) -> Sequence[LackingPods]:
    """Returns the workloads that lack pods. Reads the PriorityClasses only if a template names one,
    or if a quota depends on them."""
    lacking = objects.read_lacking(name)
    scopes = {scope.name for quota in quotas for scope in quota.scopes}
    if lacking and ("PriorityClass" in scopes or any(pods.priority_class for pods in lacking)):
        return [pods.with_class(read_classes()) for pods in lacking]
    return lacking


def _split(
    pods: LackingPods,
    quotas: Sequence[ResourceQuota],
    free: Free,
    taints: Sequence[Taint],
    raised: str,
) -> list[RefusedPods]:
    """Returns the missing pods of a workload in up to three parts: those that the quotas admit now,
    those that larger quotas would admit, and those that a quota refuses that no node raises.
    Subtracts the first from `free`. Placeholders that fit now keep no node until the next try."""
    own = [quota for quota in quotas if pods.is_counted_by(quota)]
    if pods.is_invalid(own):
        return [pods.refused(pods.count, taints, is_invalid=True)]
    request, limits = pods.shape.request, pods.limits
    helped = take(free, [item for item in own if item.other_scopes], pods.count, request, limits)
    fitting = [item for item in own if not item.other_scopes]
    admitted = take(free, fitting, helped, request, limits)
    retry_until = "" if pods.is_placeholder else pods.next_try(raised)
    parts = (
        pods.refused(admitted, taints, retry_until),
        pods.refused(helped - admitted, taints),
        replace(pods.refused(pods.count - helped, taints), is_unhelped=True),
    )
    return [part for part in parts if part.count]
