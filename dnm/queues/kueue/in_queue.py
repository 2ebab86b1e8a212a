"""Lent quota in a ClusterQueue itself, for a site without Cohorts. dnm reads such a ClusterQueue as
two values: a queue with its baseline, and a Cohort with the lent quota. A JSON patch writes their
sum, together with the ledger. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from dnm.model.kueue import (
    COHORT_PREFIX,
    FLAVOR,
    LEDGER,
    ClusterQueue,
    Cohort,
    FlavorQuota,
    ResourceGroup,
)
from dnm.model.printable import printable
from dnm.model.quantity import add_to, format_amount, kube_resources
from dnm.model.queue_edit import LimitNews, QueueWants
from dnm.model.value import Resources
from dnm.queues.kueue import ledger as ledgers
from dnm.queues.kueue.edit import KueueEdit, PlannedCohort, plan_cohorts
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import CohortLedger, Nodes

_EDITORS = ("kubectl-edit", "kubectl-patch")
"""Field managers that change a sum with lent nodes. All others write manifests without these."""


class SplitQueue(ClusterQueue):
    """A ClusterQueue with its baseline as quota. Only dnm sees its Cohort. `reset_by`: the client
    that removed lent nodes from the quota."""

    baseline: Resources = {}
    reset_by: str = ""

    @property
    def own_cohort(self) -> str:
        return f"ClusterQueue {self.name}"  # no object has this name

    @property
    def own_quota(self) -> FlavorQuota:
        return FlavorQuota(name=FLAVOR, nominal=self.baseline)


class _Content(NamedTuple):
    """The lent nodes in a quota, and the quota without them. `is_current`: the annotation has the
    same content. `is_reset`: another client removed the lent nodes."""

    instances: Mapping[str, Nodes]
    baseline: Resources
    is_current: bool = False
    is_reset: bool = False


def split_queues(facts: KueueFacts, wants: QueueWants) -> KueueFacts:
    """Returns the facts with two values for each ClusterQueue that has its lent quota itself. The
    ledger shows where lent quota is, so a change of the annotation takes effect when no node is
    lent. `wants` has the registry's ledgers, which replace lost ones."""
    records = ledgers.decode_record(wants.remembered)
    cohorts = {item.name: item for item in facts.cohorts}
    queues = []
    for queue in facts.queues:
        usual = cohorts.get(COHORT_PREFIX + queue.name)
        if queue.held and (queue.held.ledger or not (usual and usual.ledger)):
            queue, cohort = _split(queue, queue.held, records, wants.instance_id)
            cohorts[cohort.name] = cohort
        queues.append(queue if isinstance(queue, SplitQueue) else replace(queue, held=None))
    return replace(facts, queues=tuple(queues), cohorts=tuple(cohorts.values()))


def _split(
    queue: ClusterQueue, held: Cohort, records: Mapping[str, CohortLedger], instance: str
) -> tuple[SplitQueue, Cohort]:
    name, current, text = f"ClusterQueue {queue.name}", held.quota.nominal, held.ledger
    stored, recorded = ledgers.ledger_of(replace(held, name=name)), records.get(name)
    content = _find_content(held, stored, recorded, instance)
    if content is None and recorded:
        text = ledgers.encode_ledger(recorded)  # stays in the registry
    elif content and not content.is_current and (text or content.instances):
        ledger = CohortLedger(cohort=name, instances=content.instances)  # differs from the next
        text = msgspec.json.encode(ledger).decode()
    writer = printable(held.writer, 60) or "another client"
    values = asdict(queue) | {"cohort": name, "baseline": current, "reset_by": ""}
    if content:
        values |= {"baseline": content.baseline, "reset_by": writer if content.is_reset else ""}
    lent = {key: amount - values["baseline"][key] for key, amount in current.items()}
    quota = FlavorQuota(name=FLAVOR, nominal=lent, lending=dict.fromkeys(lent, 0))
    group = ResourceGroup(resources=tuple(lent), flavors=(quota,))
    cohort = replace(held, name=name, groups=(group,), ledger=text)
    return SplitQueue(**values), replace(cohort, writer="" if content else writer)


def _find_content(
    held: Cohort, stored: CohortLedger | None, recorded: CohortLedger | None, instance: str
) -> _Content | None:
    """Returns the content of a quota. The annotation has precedence over the registry. If neither
    is current, another client wrote the quota: a manifest without lent nodes, or an edited sum.
    None: that is unclear."""
    # If a run was killed before its write, and the annotation is lost, `earlier` is current.
    earlier = recorded.earlier if recorded and stored is None else None
    current, previous = held.quota.nominal, stored or earlier or recorded or CohortLedger()
    for ledger in (stored, recorded, earlier):
        if ledger and ledger.quota and _are_equal(_written(ledger), current):
            old = kube_resources(ledger.baseline)
            baseline = {key: old.get(key, amount) for key, amount in current.items()}
            return _Content(ledger.instances, baseline, is_current=ledger is stored)
    old, written = kube_resources(previous.baseline), _written(previous)
    is_reset = _are_equal(old, current)
    if stored is None:
        is_lost = instance in previous.instances
        is_unclear = not (recorded and is_reset) and (held.ledger or (is_lost and not held.writer))
        return None if is_unclear else _Content({}, current, is_reset=is_lost)
    is_edited = held.writer in _EDITORS and not is_reset
    if not (is_reset or held.writer) or (is_edited and recorded not in (None, stored)):
        return None
    baseline = dict(current)
    for key in old.keys() & current.keys():
        moved = old[key] + current[key] - written[key]
        if current[key] == written[key] or (is_edited and moved >= 0):
            baseline[key] = moved
    return _Content(stored.instances, baseline, is_reset=not is_edited)


def _written(ledger: CohortLedger) -> dict[str, int]:
    """Returns the quota that dnm wrote with a ledger."""
    written = kube_resources(ledger.baseline)
    add_to(written, ledger.amounts)
    return written


def _are_equal(amounts: Resources, current: Resources) -> bool:
    return all(current.get(key, amount) == amount for key, amount in amounts.items())


def plan_queues(facts: KueueFacts, wants: QueueWants) -> KueueEdit:
    """Returns the edit of all lent quota. It reports clients that removed lent nodes."""
    edit = plan_cohorts(split_queues(facts, wants), wants)
    resets = {item.path: item.queue.reset_by for item in edit.planned
              if isinstance(item.queue, SplitQueue) and item.queue.reset_by}  # fmt: skip
    texts = {path: f"{writer} removed lent nodes from its quota" for path, writer in resets.items()}
    news = tuple(LimitNews(queue=path, text=texts[path], is_reset=True) for path in texts)
    record = ledgers.encode_record({item.cohort.name: _record_of(item) for item in edit.planned})
    reset_by = next(iter(resets.values()), "")
    return replace(edit, record=record, limit_news=news, reset_by=reset_by)


def _record_of(item: PlannedCohort) -> CohortLedger:
    """Returns the ledger for the registry, with that of the present quota if it will change."""
    earlier = ledgers.ledger_of(item.cohort) if item.queue.held and item.is_changed else None
    return replace(item.ledger, earlier=earlier if earlier and earlier.quota else None)


def patch_of(item: PlannedCohort) -> list[dict[str, Any]]:
    """Returns the JSON patch of a ClusterQueue. It fails with 409 if the object was changed."""
    held, text = item.queue.held or item.cohort, ledgers.encode_ledger(item.ledger)
    steps = [{"op": "replace", "path": "/metadata/resourceVersion", "value": held.version}]
    rows = {
        f"/spec/resourceGroups/{i}/flavors/{j}/resources/{k}": name
        for i, group in enumerate(held.groups)
        for j, flavor in enumerate(group.flavors)
        for k, name in enumerate(group.resources)
        if flavor.name == FLAVOR and item.amounts[name] != flavor.nominal.get(name)
    }
    for row, name in rows.items():
        quantity = format_amount(name, item.amounts[name])
        steps += [{"op": "test", "path": f"{row}/name", "value": name},
                  {"op": "replace", "path": f"{row}/nominalQuota", "value": quantity}]  # fmt: skip
    if text != held.ledger:
        path = f"/metadata/annotations/{LEDGER.replace('/', '~1')}"
        steps.append({"op": "add" if text else "remove", "path": path, "value": text})
    return steps
