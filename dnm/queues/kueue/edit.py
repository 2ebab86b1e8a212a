"""The change of the Cohorts for the nodes that serve now: the quota is what these nodes have, and
never less than what Kueue has reserved of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dnm.model.cluster import QueueLimits
from dnm.model.kueue import FLAVOR, ClusterQueue, Cohort
from dnm.model.quantity import format_amount
from dnm.model.queue_edit import LimitChange, QueueEdit, QueueNumbers, QueueWants
from dnm.model.value import Resources, Value
from dnm.queues.kueue import ledger as ledgers
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import CohortLedger, ledger_of
from dnm.queues.kueue.refusals import foreign_writer


class PlannedCohort(Value):
    """A Cohort and its next quota and ledger. `held`: why the quota is not that of the nodes."""

    path: str
    queue: ClusterQueue
    cohort: Cohort
    ledger: CohortLedger
    quota: Resources
    is_changed: bool = False
    changes: tuple[LimitChange, ...] = ()
    held: str = ""

    @property
    def base(self) -> Resources:
        """Returns the amounts that the object has beside the lent quota; none in a Cohort."""
        return self.queue.own_quota.nominal if self.queue.held else {}

    @property
    def amounts(self) -> dict[str, int]:
        """Returns the amounts in the object."""
        return {name: amount + self.base.get(name, 0) for name, amount in self.quota.items()}

    @property
    def is_in_force(self) -> bool:
        """Returns whether the ClusterQueue uses this quota."""
        return not self.queue.inactive and self.queue.cohort == self.cohort.name


class KueueEdit(QueueEdit):
    """An edit of Cohorts. `planned` has every Cohort; one that dnm must not write is unchanged."""

    planned: tuple[PlannedCohort, ...] = ()


def current_cohorts(facts: KueueFacts) -> list[PlannedCohort]:
    """Returns the Cohorts of all served queues as they are."""
    items = []
    for path in facts.paths:
        if (queue := facts.queue_at(path)) and queue.group:
            cohort = facts.cohort_of(queue) or Cohort(name=queue.own_cohort)
            quota = {name: cohort.quota.nominal.get(name, 0) for name in queue.group.resources}
            ledger = ledger_of(cohort) or CohortLedger(cohort=cohort.name)
            items.append(PlannedCohort(path=path, queue=queue, cohort=cohort, ledger=ledger,
                                       quota=quota))  # fmt: skip
    return items


def plan_cohorts(facts: KueueFacts, wants: QueueWants) -> KueueEdit:
    """Returns the next quota of every Cohort, as absolute numbers. They are computed from the nodes
    that serve now and from the ledger of other instances."""
    records = ledgers.decode_record(wants.remembered)
    planned, blocked = [], {}
    for item in current_cohorts(facts):
        if item.cohort.writer:
            blocked[item.path] = ": ".join(foreign_writer(item.cohort))
        else:
            floor = _most(wants.floors.get(item.path, {}), item.queue.own_quota.nominal,
                          facts.used.get(item.path, {}))  # fmt: skip
            item = _plan(item, records.get(item.cohort.name), wants, floor)
        planned.append(item)
    there = {item.path for item in planned}
    lost = {path: f"ClusterQueue {facts.paths.get(path, path)} lists no flavor {FLAVOR}"
            for path, nodes in wants.nodes.items() if nodes and path not in there}  # fmt: skip
    uncounted = {**lost, **{path: why for path, why in blocked.items() if wants.nodes.get(path)}}
    for item in planned:
        if wants.nodes.get(item.path) and item.queue.cohort != item.cohort.name:
            uncounted[item.path] = f"ClusterQueue {item.queue.name} is not in {item.cohort.name}"
    return KueueEdit(
        record=ledgers.encode_record({item.cohort.name: item.ledger for item in planned}),
        is_changed=any(item.is_changed for item in planned),
        changes=tuple(change for item in planned for change in item.changes),
        held={**{item.path: item.held for item in planned if item.held}, **blocked},
        blocked={**blocked, **uncounted},
        uncounted=uncounted,
        numbers=numbers_of(planned, wants.instance_id),
        limits=limits_of(facts, planned),
        planned=tuple(planned),
    )


def _most(floor: Resources, own: Resources, used: Resources) -> dict[str, int]:
    """Returns the least quota of the Cohort: the amounts in use minus the queue's own quota."""
    return {
        name: max(floor.get(name, 0), used.get(name, 0)) - own.get(name, 0)
        for name in {*floor, *used}
    }


def _plan(
    item: PlannedCohort, record: CohortLedger | None, wants: QueueWants, floor: Resources
) -> PlannedCohort:
    covered = item.queue.group.resources if item.queue.group else ()
    instances = dict(
        ledgers.current_instances(ledger_of(item.cohort), item.cohort.quota.nominal, record)
    )
    instances.pop(wants.instance_id, None)
    if nodes := wants.nodes.get(item.path):
        instances[wants.instance_id] = {
            node: {name: format_amount(name, size[name]) for name in covered if name in size}
            for node, size in nodes.items()
        }
    total = CohortLedger(instances=instances).total
    quota = {
        name: max(total.get(name, 0), min(item.quota[name], floor.get(name, 0))) for name in covered
    }
    texts = {name: format_amount(name, amount) for name, amount in quota.items()}
    ledger = CohortLedger(cohort=item.cohort.name)
    if instances or any(quota.values()):
        base = {name: format_amount(name, amount) for name, amount in item.base.items()}
        ledger = replace(ledger, instances=instances, quota=texts, baseline=base)
    after = replace(item, ledger=ledger, quota=quota)
    held = ", ".join(
        f"{name} stays at {format_amount(name, amount)}, which is reserved"
        for name, amount in after.amounts.items()
        if quota[name] > total.get(name, 0)
    )
    changes = tuple(
        LimitChange(queue=item.path, kind="max", resource=name, why=held or "nodes that serve",
                    before=format_amount(name, item.amounts[name]),
                    after=format_amount(name, amount))
        for name, amount in after.amounts.items()
        if item.amounts[name] != amount
    )  # fmt: skip
    is_changed = bool(changes) or _differs(item, after)
    return replace(after, changes=changes, held=held, is_changed=is_changed)


def _differs(item: PlannedCohort, after: PlannedCohort) -> bool:
    """Returns whether the Cohort must be written although its amounts stay."""
    is_empty = not any(after.quota.values())
    if is_empty and not after.ledger.instances:
        return bool(item.cohort.ledger)
    lending = item.cohort.quota.lending
    is_open = bool(item.cohort.parent) and any(lending.get(name) != 0 for name in after.quota)
    return ledger_of(item.cohort) != after.ledger or is_open


# --- what others see of it -----------------------------------------------------------------------


def limits_of(facts: KueueFacts, planned: Iterable[PlannedCohort]) -> dict[str, QueueLimits]:
    """Returns each queue's limit on the flavor of lent nodes: the ClusterQueue's own quota, plus
    the quota of dnm's Cohort if the ClusterQueue is in that Cohort."""
    limits = {
        path: QueueLimits(path=path, parent=None, is_leaf=True)
        for path in facts.paths
        if facts.queue_at(path)
    }
    for item in planned:
        limits[item.path] = replace(limits[item.path], max=_limit(item))
    return limits


def numbers_of(planned: Iterable[PlannedCohort], instance_id: str) -> dict[str, QueueNumbers]:
    """Returns by queue its limit, its own quota as baseline, and what this instance's nodes add."""
    return {
        item.path: QueueNumbers(
            limit=_limit(item),
            baseline={name: item.queue.own_quota.nominal.get(name, 0) for name in item.quota},
            lent=CohortLedger(instances={"": item.ledger.instances.get(instance_id, {})}).total,
        )
        for item in planned
    }


def _limit(item: PlannedCohort) -> dict[str, int]:
    is_member = item.queue.cohort == item.cohort.name
    own = item.queue.own_quota.nominal
    return {name: own.get(name, 0) + amount * is_member for name, amount in item.quota.items()}


def show(planned: Iterable[PlannedCohort]) -> str:
    """Returns the Cohorts as lines of text."""
    return "".join(
        f"{item.cohort.name}: {FLAVOR}: {name} {format_amount(name, amount)}\n"
        for item in planned
        for name, amount in item.amounts.items()
    )
