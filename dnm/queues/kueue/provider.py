"""Lent quota in the status of a CapacityProvider, from which a DynamicQuotaOrchestrator of Kueue
sets the quota of a ClusterQueue. dnm reads both as two values: a queue without own quota of lent
nodes, and a Cohort with this quota. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from dnm.model.capacity import LEDGER_CONDITION, SYNCHRONIZED
from dnm.model.kueue import CAPACITY_API, FLAVOR, ClusterQueue, Cohort, ResourceGroup
from dnm.model.quantity import format_amount
from dnm.model.value import Resources
from dnm.queues.kueue import ledger as ledgers
from dnm.queues.kueue.edit import PlannedCohort
from dnm.queues.kueue.facts import KueueFacts

KIND = "CapacityProvider"


class ProvidedQueue(ClusterQueue):
    """A ClusterQueue without own quota of lent nodes: the amounts in its spec are only its share of
    a CapacityProvider. It is in that "cohort" if its effective quota is that of the provider."""

    @property
    def own_cohort(self) -> str:
        return f"{KIND} {super().own_cohort}"  # no Cohort has this name


def find_provided(facts: KueueFacts, providers: Iterable[Cohort]) -> KueueFacts:
    """Returns the facts with the CapacityProviders of annotated ClusterQueues. Lent quota stays
    where its ledger is, so a change of the annotation takes effect when no node is lent."""
    cohorts = {item.name: item for item in facts.cohorts}
    by_name = {item.name: item for item in providers}
    queues: list[ClusterQueue] = []
    for queue in facts.queues:
        cohort, provider = facts.cohort_of(queue), by_name.get(f"{KIND} {queue.own_cohort}")
        is_elsewhere = any(item and item.ledger for item in (cohort, queue.held))
        if (queue.is_provided or (provider and provider.ledger)) and not is_elsewhere:
            missing = Cohort(name=f"{KIND} {queue.own_cohort}", writer="it does not exist")
            provider = _with_marker(provider or missing, queue)
            cohorts[provider.name] = provider
            queues.append(_provide(queue, provider))
        else:
            queues.append(replace(queue, is_provided=False))
    return replace(facts, queues=tuple(queues), cohorts=tuple(cohorts.values()))


def _provide(queue: ClusterQueue, provider: Cohort) -> ProvidedQueue:
    """Returns the queue with its effective quotas, and whether they have those of the provider. A
    status that dnm has not written yet is no reason to lend nothing; a share of 0 is one."""
    current = queue if queue.effective is None else replace(queue, groups=queue.effective)
    own, provided = current.own_quota.nominal, provider.quota.nominal
    is_equal = all(own.get(key, amount) == amount for key, amount in provided.items())
    has_effect = queue.effective is not None and is_equal
    is_used = (has_effect or not provided) and all(queue.own_quota.nominal.values())
    groups = tuple(_without_lent(group, queue.own_quota.lending) for group in current.groups)
    values = {"groups": groups, "is_provided": True, "cohort": provider.name if is_used else ""}
    return ProvidedQueue(**(asdict(queue) | values | {"held": None}))


def _without_lent(group: ResourceGroup, lending: Resources) -> ResourceGroup:
    flavors = tuple(
        replace(quota, nominal=dict.fromkeys(quota.nominal, 0), borrowing={}, lending=lending)
        if quota.name == FLAVOR else quota
        for quota in group.flavors
    )  # fmt: skip
    return replace(group, flavors=flavors)


def _with_marker(provider: Cohort, queue: ClusterQueue) -> Cohort:
    """Returns a CapacityProvider with an empty ledger if its status lacks amounts, so that dnm
    writes it. Without them the share in the spec would be quota, even if no node is lent."""
    lacks = set(queue.group.resources if queue.group else ()) - provider.quota.nominal.keys()
    empty = ledgers.CohortLedger(cohort=provider.name)
    text = provider.ledger or (msgspec.json.encode(empty).decode() if lacks else "")
    return replace(provider, parent=queue.cohort, ledger=text)


def status_of(item: PlannedCohort, now: str) -> dict[str, Any]:
    """Returns the status to apply: all amounts, also zeros, and the conditions. The API server
    refuses it if the CapacityProvider has changed."""
    provider, text = item.cohort, ledgers.encode_ledger(item.ledger)
    conditions = [_condition(SYNCHRONIZED, "Synchronized", "", provider.since or now)]
    if text:
        conditions.append(_condition(LEDGER_CONDITION, "LentNodes", text, now))
    resources = {name: format_amount(name, amount) for name, amount in item.quota.items()}
    capacity = {"flavors": [{"name": FLAVOR, "resources": resources}]}
    name = provider.name.removeprefix(f"{KIND} ")
    metadata = {"name": name, "resourceVersion": provider.version}
    return {"apiVersion": CAPACITY_API, "kind": KIND, "metadata": metadata,
            "status": {"capacity": capacity, "conditions": conditions}}  # fmt: skip


def _condition(kind: str, reason: str, message: str, since: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": since}  # fmt: skip
