"""The reasons why dnm must not lend nodes to a ClusterQueue, each with the fix. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dnm.model.kueue import COHORT_PREFIX, FLAVOR, IN_QUEUE, LEDGER, ClusterQueue, Cohort
from dnm.model.value import Resources
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import CohortLedger, encode_ledger

Planned = tuple[ClusterQueue, Cohort, Resources, CohortLedger]
"""A queue, the Cohort that it has, and the planned quota and ledger of this Cohort."""

_LONGEST_MESSAGE = 32_768  # characters, of a condition


def growth_refusals(facts: KueueFacts, path: str, planned: Iterable[Planned]) -> list[str]:
    """Returns why the queue of a path cannot have the planned quota."""
    why = [f"{text}: {fix}" for text, fix in list_refusals(facts, path)]
    why += [error for name, error in facts.write_errors.items() if name == path]
    for queue, cohort, quota, ledger in planned:
        texts = [borrowing_refusal(queue, quota)]
        if cohort.writer:
            texts.append(": ".join(foreign_writer(cohort)))
        if queue.is_provided and len(encode_ledger(ledger)) > _LONGEST_MESSAGE:
            texts.append(f"{cohort.name} cannot contain the ledger of so many lent nodes")
        why += [text for text in texts if text and text not in why]
    return why


def list_refusals(facts: KueueFacts, path: str) -> Iterator[tuple[str, str]]:
    """Yields why no node can be lent to the queue of a path, and what an administrator must do."""
    queue = facts.queue_at(path)
    if queue is None:
        yield (
            f"there is no ClusterQueue {facts.paths.get(path, path)}",
            "create it, or name the ClusterQueue of the namespace in namespace_queue_paths",
        )
        return
    yield from _of_flavor(facts)
    yield from _of_queue(queue)
    yield from _of_cohort(facts, queue)


def _of_flavor(facts: KueueFacts) -> Iterator[tuple[str, str]]:
    flavor = facts.flavor
    if flavor is None:
        yield f"there is no ResourceFlavor {FLAVOR}", "create it with the labels of lent nodes"
    elif not flavor.labels:
        yield (
            f"the ResourceFlavor {FLAVOR} has no nodeLabels, so that its pods may run on any node",
            "write the labels of lent nodes into spec.nodeLabels",
        )
    elif flavor.topology:
        yield (
            f"the ResourceFlavor {FLAVOR} has the topology {flavor.topology}, and dnm "
            "labels no node for its levels",
            "remove spec.topologyName",
        )


def _of_queue(queue: ClusterQueue) -> Iterator[tuple[str, str]]:
    name = f"ClusterQueue {queue.name}"
    group = queue.group
    if group is None:
        yield (
            f"{name} does not list the flavor {FLAVOR}, so that Kueue ignores quota for it",
            f"add the flavor {FLAVOR} with nominalQuota 0 as the last of its resource group",
        )
    elif group.flavors[-1].name != FLAVOR:
        yield (
            f"{name} lists the flavor {FLAVOR} before {group.flavors[-1].name}, so that Kueue "
            "fills lent nodes first",
            "make it the last flavor of its resource group",
        )
    if queue.is_provided and not queue.cohort:
        yield (
            f"the effective quota of {name} is not that of {queue.own_cohort}",
            f"set nominalQuota 1 of {FLAVOR}, and let a DynamicQuotaOrchestrator distribute this",
        )
    elif queue.cohort != queue.own_cohort:
        yield (
            f"{name} has cohortName {queue.cohort or '(none)'}, so that lent quota has no effect",
            f"set spec.cohortName to {queue.own_cohort}, also in its manifest. Without a Cohort, "
            f"annotate it with {': '.join(IN_QUEUE)}",
        )
    if queue.inactive:
        yield f"{name} is inactive: {queue.inactive}", "make it active"
    if not queue.has_namespaces:
        yield (
            f"{name} has no namespaceSelector, so that Kueue admits no Workload in it",
            "write spec.namespaceSelector; {} selects all namespaces",
        )
    if queue.effective is not None and not queue.is_provided:
        yield (
            f"a DynamicQuotaOrchestrator sets the quotas of {name}, which ignores lent quota",
            "exclude the queue from it",
        )
    if any(amount == 0 for amount in queue.own_quota.borrowing.values()):
        yield (
            f"{name} has borrowingLimit 0 for the flavor {FLAVOR}, so that it uses no lent quota",
            "remove the borrowingLimit of this flavor",
        )


def _of_cohort(facts: KueueFacts, queue: ClusterQueue) -> Iterator[tuple[str, str]]:
    name, cohort = queue.own_cohort, facts.cohort_of(queue)
    members = [item.name for item in facts.queues if item != queue
               and name in (item.cohort, item.held and item.held.parent)]  # fmt: skip
    members += [item.name for item in facts.cohorts if item.parent == name]
    if members:
        yield (
            f"{', '.join(members)} would use the quota of Cohort {name} too",
            f"leave only ClusterQueue {queue.name} in it",
        )
    if cohort is None:
        return
    if cohort.writer:
        yield foreign_writer(cohort)
    lent = queue.own_quota if queue.is_provided else queue.held and queue.held.quota
    if lent and cohort.parent and any(lent.lending.get(name) != 0 for name in lent.nominal):
        yield (
            f"Cohort {cohort.parent} may use the quota of lent nodes in {name}",
            f"set lendingLimit 0 for the flavor {FLAVOR}, or remove spec.cohortName",
        )
    reclaiming = [item.name for item in facts.queues if item.reclaims and item.name != queue.name]
    if cohort.parent and reclaiming:
        yield (
            f"{name} has the parent {cohort.parent}, and {', '.join(reclaiming)} takes quota back "
            "by preemption, so that it could evict pods of lent nodes",
            f"remove spec.{'cohortName' if lent else 'parentName'}, or set reclaimWithinCohort to "
            "Never",
        )


def foreign_writer(cohort: Cohort) -> tuple[str, str]:
    """Returns a message that another client owns the quotas of a Cohort, and the fix."""
    if cohort.name.startswith("CapacityProvider "):
        return (
            f"dnm cannot write {cohort.name}: {cohort.writer}",
            "create it as docs/kueue.md shows",
        )
    if not cohort.name.startswith(COHORT_PREFIX):
        return (
            f"it is unclear how much of the quota of {cohort.name} is lent",
            f"set its quota of the flavor {FLAVOR} to the amount without lent nodes, and remove "
            f"the annotation {LEDGER}",
        )
    return (
        f"the field manager {cohort.writer} wrote spec.resourceGroups of Cohort {cohort.name}",
        "remove them from its manifest; then run `kubectl patch cohort "
        f'{cohort.name} --type=json -p \'[{{"op":"remove","path":"/spec/resourceGroups"}}]\'`',
    )


def borrowing_refusal(queue: ClusterQueue, amounts: Resources) -> str:
    """Returns why a queue could not use a Cohort with these amounts; empty: it could."""
    for name, limit in queue.own_quota.borrowing.items():
        if amounts.get(name, 0) > limit:
            return (
                f"ClusterQueue {queue.name} has a borrowingLimit of {name} for the flavor {FLAVOR} "
                "that is less than its lent nodes have: remove it"
            )
    return ""
