"""What the limits should become: each its baseline plus what all instances lend along the queue's
path, and which of them can't. The amounts keep the whole tree valid, and no running pod loses its
quota.

A shrink stops at what the queue needs: what is allocated, what it and its children are guaranteed,
the limits of users in it, the limits of queues below it. A growth stops at the queues above. Never
does a max become zero throughout, which YuniKorn would take for no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dnm.model.quantity import INT64_MAX, format_amount
from dnm.model.queue_edit import QueueWants
from dnm.model.queue_path import may_edit
from dnm.model.value import Resources, Value
from dnm.queues.baselines import Baseline, current, is_closed
from dnm.queues.ledger import Ledger, Lent, Section, lent_amounts, sum_resources
from dnm.queues.text_edit import why_not_changeable
from dnm.queues.tree import DocumentTree, LimitPlace
from dnm.queues.validation import amounts_of

_SMALLEST_FIRST = ("memory", "vcore")  # one byte admits no pod, nor does a thousandth of a core


class FittedLimits(Value):
    """`amounts`: only of limits that change. `held`: limit -> why it is not at its target."""

    amounts: Mapping[LimitPlace, int]
    held: Mapping[LimitPlace, str]


def fit_limits(
    tree: DocumentTree,
    targets: Mapping[LimitPlace, int],
    floors: Mapping[str, Resources],
) -> FittedLimits:
    """Returns amounts as near to the targets as the tree and the floors (queue -> what its max must
    not shrink below) allow, in YuniKorn's units; limits without a target stay."""
    work = _Fitting(tree, targets, floors)
    paths = list(tree.written)  # parents come first
    for path in reversed(paths):
        work.fit_guaranteed(path)
        work.shrink_max(path)
    for path in paths:
        work.cap_growth(path)
    changed = {
        LimitPlace(path, kind, resource): amount
        for kind, new, old in (
            ("guaranteed", work.guaranteed, work.old_guaranteed),
            ("max", work.max, work.old_max),
        )
        for path, amounts in new.items()
        for resource, amount in amounts.items()
        if amount != old[path][resource]
    }
    return FittedLimits(amounts=changed, held=work.held)


class _Fitting:
    """The amounts of all queues on their way; children are fitted before their parents."""

    def __init__(
        self,
        tree: DocumentTree,
        targets: Mapping[LimitPlace, int],
        floors: Mapping[str, Resources],
    ) -> None:
        self.tree = tree
        self.targets = targets
        self.floors = floors
        self.held: dict[LimitPlace, str] = {}
        written = tree.written
        self.old_max = {path: amounts_of(queue.resources.max) for path, queue in written.items()}
        self.old_guaranteed = {
            path: amounts_of(queue.resources.guaranteed) for path, queue in written.items()
        }
        self.max: dict[str, dict[str, int]] = {}
        self.guaranteed: dict[str, dict[str, int]] = {}
        self._sums: dict[str, dict[str, int]] = {path: {} for path in written}
        self._needs: dict[str, dict[str, int]] = {path: {} for path in written}
        self._bounds: dict[str, dict[str, int]] = {}

    def fit_guaranteed(self, path: str) -> None:
        """Lowers guarantees as far as those of the children allow (R3), and adds them to the
        parent's sum."""
        new = self.guaranteed[path] = dict(self.old_guaranteed[path])
        sums = self._sums[path]
        for resource, before in new.items():
            target = self.targets.get(LimitPlace(path, "guaranteed", resource), before)
            reasons = [(sums.get(resource, 0), "guaranteed to the queues below it")]
            new[resource] = self._stop(path, "guaranteed", resource, (before, target), reasons)
        parent = self.tree.queues[path].parent
        if parent is not None:
            for resource, amount in (new if any(new.values()) else sums).items():
                above = self._sums[parent]
                above[resource] = above.get(resource, 0) + amount

    def shrink_max(self, path: str) -> None:
        """Lowers max as far as R1, R2, R4 and L1 allow from below, and what the pods need."""
        old = self.old_max[path]
        new = self.max[path] = dict(old)
        for resource, before in old.items():
            target = self.targets.get(LimitPlace(path, "max", resource), before)
            reasons = self._reasons(path, resource) if target < before else []
            new[resource] = self._stop(path, "max", resource, (before, target), reasons)
        if any(old.values()) and not any(new.values()):
            self._keep_one(path, old, new)
        parent = self.tree.queues[path].parent
        if parent is not None:
            needs = self._needs[path] | new
            above = self._needs[parent]
            for resource, amount in needs.items():
                above[resource] = max(amount, above.get(resource, 0))

    def _reasons(self, path: str, resource: str) -> list[tuple[int, str]]:
        users = [
            (amounts_of(limit.maxresources).get(resource, 0), f"the limit {limit.limit!r} in it")
            for limit in self.tree.written[path].limits or []
        ]
        return [
            (self.floors.get(path, {}).get(resource, 0), "what its pods have or need"),
            (self.guaranteed[path].get(resource, 0), "what it is guaranteed"),
            (self._sums[path].get(resource, 0), "guaranteed to the queues below it"),
            (self._needs[path].get(resource, 0), "the limit of a queue below it"),
            *users,
        ]

    def _stop(
        self,
        path: str,
        kind: str,
        resource: str,
        way: tuple[int, int],
        reasons: list[tuple[int, str]],
    ) -> int:
        before, target = way
        floor, reason = max(reasons, default=(0, ""))
        if target >= before or floor <= target:
            return target
        stopped = min(before, floor)
        self._hold(path, kind, resource, (stopped, target), f"{_show(resource, floor)} is {reason}")
        return stopped

    def _hold(self, path: str, kind: str, resource: str, way: tuple[int, int], reason: str) -> None:
        amount, target = way
        self.held[LimitPlace(path, kind, resource)] = (
            f"{kind} {resource} stays at {_show(resource, amount)} instead of "
            f"{_show(resource, target)}: {reason}"
        )

    def _keep_one(self, path: str, old: dict[str, int], new: dict[str, int]) -> None:
        resources = [resource for resource in (*_SMALLEST_FIRST, *old) if old.get(resource)]
        new[resources[0]] = 1
        reason = "zero throughout would mean no limit"
        self._hold(path, "max", resources[0], (1, 0), reason)

    def cap_growth(self, path: str) -> None:
        """Stops growth where a queue above does not grow: it would be refused (R2)."""
        parent = self.tree.queues[path].parent
        above = self._bounds[parent] if parent else {}
        new, old = self.max[path], self.old_max[path]
        for resource, amount in new.items():
            bound = above.get(resource, amount)
            if amount > old[resource] and amount > bound:
                new[resource] = max(old[resource], bound)
                reason = f"the max of a queue above it is {_show(resource, bound)}"
                self._hold(path, "max", resource, (new[resource], amount), reason)
        bounds = dict(above)
        for resource, amount in new.items():
            bounds[resource] = min(amount, bounds.get(resource, amount))
        self._bounds[path] = bounds


def _show(resource: str, amount: int) -> str:
    return format_amount(resource, amount)


class Aim(NamedTuple):
    """What the limits should become, and those of them that can't, with why. `fixed`: those that
    people have set so that no node raises them, the frozen ones among them."""

    sections: Mapping[str, Section]
    lent: Lent
    frozen: frozenset[LimitPlace]
    fixed: frozenset[LimitPlace]
    targets: Mapping[LimitPlace, int]
    stuck: Mapping[LimitPlace, str]


def aim_at(
    tree: DocumentTree,
    ledger: Ledger,
    known: Mapping[LimitPlace, Baseline],
    instance: str,
    own: Section,
) -> Aim:
    """Returns the aim while this instance lends `own`."""
    sections = {name: part for name, part in ledger.sections.items() if name != instance}
    if own.queues:
        sections[instance] = own
    lent = lent_amounts(sections.values())
    frozen = frozenset(
        place for place, baseline in known.items() if baseline.is_frozen and lent.at(place)
    )
    fixed = frozen.union(place for place, one in known.items() if is_closed(place, one.amount))
    targets = {
        place: baseline.amount + lent.at(place)
        for place, baseline in known.items()
        if place not in fixed
    }
    stuck = _find_stuck(tree, targets)
    moving = {place: target for place, target in targets.items() if place not in stuck}
    return Aim(sections, lent, frozen, fixed, moving, stuck)


def _find_stuck(tree: DocumentTree, targets: Mapping[LimitPlace, int]) -> dict[LimitPlace, str]:
    """Returns the limits that should become another amount and can't, each with why."""
    stuck = {}
    for place, target in targets.items():
        if target != current(tree, place)[1] and (why := _why_not(tree, place, target)):
            stuck[place] = why
    return stuck


def _why_not(tree: DocumentTree, place: LimitPlace, target: int) -> str | None:
    if target > INT64_MAX:
        line = tree.places[place].node.line
        return (
            f"line {line}: {place.kind} {place.resource} of {place.queue} would be "
            f"{format_amount(place.resource, target)}, more than YuniKorn can count; lower it"
        )
    return why_not_changeable(tree, place)


def own_section(ledger: Ledger, wants: QueueWants) -> Section:
    """Returns what this instance lends from now on; queues outside its prefixes stay as
    recorded."""
    before = ledger.sections.get(wants.instance_id, Section()).queues
    queues: dict[str, dict[str, Resources]] = {}
    for queue in {*before, *wants.nodes}:
        is_ours = may_edit(queue, wants.allowed_prefixes)
        nodes = (wants.nodes if is_ours else before).get(queue, {})
        if nodes:
            queues[queue] = {node: sum_resources([size]) for node, size in nodes.items()}
    recorded = ledger.sections.get(wants.instance_id)
    if not queues and recorded is not None:
        return Section(guaranteed=recorded.guaranteed)
    return Section(queues=queues, guaranteed=wants.adjust_guaranteed)
