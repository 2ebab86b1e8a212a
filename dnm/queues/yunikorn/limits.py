"""The baseline of each limit, and its target: the baseline plus the amounts that all instances lend
along the queue's path. The whole tree stays valid, and no running pod loses its quota.

A limit that dnm last wrote is unchanged. A limit that equals its baseline means that a manifest was
applied again. The rest of the document decides about any other value. If a manifest was applied,
the value is the new baseline. Otherwise an administrator has set a new total, and the baseline is
that total minus the lent amount. A total below the lent amount is frozen.

dnm never lowers a limit below the allocated amount, the guarantees of the queue and its children,
the limits of its users, or the limits below it. It never raises one above the ancestors' limits. No
max becomes zero in all resources, since YuniKorn would read that as no limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dnm.model.quantity import INT64_MAX, add_to
from dnm.model.queue_edit import QueueWants
from dnm.model.value import Resources
from dnm.queues.yunikorn.ledger import (
    Ledger,
    LedgerEntry,
    LentAmounts,
    Section,
    lent_amounts,
    sum_resources,
)
from dnm.queues.yunikorn.quantities import format_amount, format_yunikorn, parse_yunikorn
from dnm.queues.yunikorn.text_edit import why_not_changeable
from dnm.queues.yunikorn.tree import KINDS, DocumentTree, LimitPlace, amounts_of, tightest

_SMALLEST_FIRST = ("memory", "vcore")  # one byte admits no pod, nor does a thousandth of a core


class Baseline(NamedTuple):
    """A limit without lent nodes, in YuniKorn's grammar and units."""

    text: str
    amount: int
    is_frozen: bool = False
    news: str = ""  # how it differs from the record: reapplied | applied | changed
    before: str = ""  # the baseline that a manifest has replaced


# --- the current document --------------------------------------------------------------------


def current(tree: DocumentTree, place: LimitPlace) -> tuple[str, int]:
    """Returns a limit as written, and its amount in YuniKorn's units."""
    text = tree.places[place].text
    return text, parse_yunikorn(place.resource, text)


def is_limit(tree: DocumentTree, place: LimitPlace) -> bool:
    """Returns whether the number at this place limits anything. YuniKorn ignores a max that is zero
    in all resources, and a guarantee of zero."""
    queue = tree.queues[place.queue]
    return bool(queue.max) if place.kind == "max" else queue.guaranteed.get(place.resource, 0) > 0


def is_closed(place: LimitPlace, baseline: int) -> bool:
    """Returns whether an administrator has set the max of pods to 0, which lending never raises."""
    return place.kind == "max" and place.resource == "pods" and baseline == 0


def compare(
    tree: DocumentTree, ledger: Ledger, is_applied: bool = False
) -> dict[LimitPlace, Baseline]:
    """Returns the baseline of every limit. Compares the limit's current value with its baseline and
    last text in the ledger. `is_applied`: the document comes from an applied manifest."""
    lent = lent_amounts(ledger.sections.values())
    baselines = {
        place: _compare_limit(tree, ledger, place, lent.at(place))
        for place in tree.places
        if is_limit(tree, place)
    }
    reported = [place for place, pair in baselines.items() if pair.news or _is_moved(ledger, place)]
    if _is_manifest(tree, ledger, reported) or (
        is_applied and not _is_current(tree, ledger, reported)
    ):
        _take_as_baselines(
            tree, ledger, baselines, [place for place in baselines if lent.at(place)]
        )
        return baselines
    by_queue: dict[str, list[LimitPlace]] = {}
    for place in reported:
        by_queue.setdefault(place.queue, []).append(place)
    for places in by_queue.values():
        if _is_manifest(tree, ledger, places):
            _take_as_baselines(tree, ledger, baselines, places)
    return baselines


def _is_moved(ledger: Ledger, place: LimitPlace) -> bool:
    """Returns whether this limit can show that a manifest was applied: dnm wrote a value other than
    the baseline, or an administrator has set the limit below the lent amount."""
    entry = ledger.entries.get(place)
    return entry is not None and (place in ledger.frozen or entry.is_moved(place.resource))


def _is_current(tree: DocumentTree, ledger: Ledger, places: list[LimitPlace]) -> bool:
    """Returns whether one of these limits still has the value that dnm last wrote."""
    return any(_is_at(tree, place, entry.written) for place, entry in _entries(ledger, places))


def _is_manifest(tree: DocumentTree, ledger: Ledger, places: list[LimitPlace]) -> bool:
    """Returns whether someone applied a manifest with these limits again: at least one has its
    value without lent nodes, and none the value that dnm last wrote."""
    return not _is_current(tree, ledger, places) and any(
        _is_at(tree, place, entry.baseline) for place, entry in _entries(ledger, places)
    )


def _is_at(tree: DocumentTree, place: LimitPlace, text: str) -> bool:
    return current(tree, place)[1] == parse_yunikorn(place.resource, text)


def _entries(ledger: Ledger, places: list[LimitPlace]) -> Iterator[tuple[LimitPlace, LedgerEntry]]:
    for place in places:
        entry = ledger.entries.get(place)
        if entry is not None:
            yield place, entry


def _take_as_baselines(
    tree: DocumentTree,
    ledger: Ledger,
    baselines: dict[LimitPlace, Baseline],
    places: list[LimitPlace],
) -> None:
    for place in places:
        entry = ledger.entries.get(place)
        before = "" if entry is None or _is_at(tree, place, entry.baseline) else entry.baseline
        news = "applied" if before else "reapplied"
        baselines[place] = Baseline(*current(tree, place), news=news, before=before)


def _compare_limit(tree: DocumentTree, ledger: Ledger, place: LimitPlace, lent: int) -> Baseline:
    text, amount = current(tree, place)
    entry = ledger.entries.get(place)
    if entry is not None:
        baseline = parse_yunikorn(place.resource, entry.baseline)
        if amount == parse_yunikorn(place.resource, entry.written):
            return Baseline(entry.baseline, baseline, is_frozen=place in ledger.frozen)
        if amount == baseline:
            return Baseline(entry.baseline, baseline, news="reapplied" if lent else "")
        if is_closed(place, baseline) and not entry.is_moved(place.resource):
            return Baseline(text, amount)  # reopened; a closed queue contains no lent nodes
    if not lent:
        return Baseline(text, amount)
    if amount < lent:
        return Baseline(text, amount, is_frozen=True, news="changed")
    rest = amount - lent
    return Baseline(format_yunikorn(place.resource, rest, text), rest, news="changed")


# --- the targets of the limits -------------------------------------------------------------------


def fit_limits(
    tree: DocumentTree,
    targets: Mapping[LimitPlace, int],
    floors: Mapping[str, Resources],
) -> tuple[dict[LimitPlace, int], dict[LimitPlace, str]]:
    """Returns the new limits that differ from the present ones, in YuniKorn's units, and why limits
    miss their targets. They are as near to the targets as the tree and `floors` (queue -> least
    max) allow. Limits without a target stay."""
    work = _Fitting(tree, targets, floors)
    paths = list(tree.written)  # parents come first
    for path in reversed(paths):
        work.fit_guaranteed(path)
        work.shrink_max(path)
    for path in paths:
        work.cap_growth(path)
    changed = {
        LimitPlace(path, kind, resource): amount
        for kind in ("guaranteed", "max")
        for path, amounts in work.new[kind].items()
        for resource, amount in amounts.items()
        if amount != work.old[kind][path][resource]
    }
    return changed, work.held


class _Fitting:
    """The state of `fit_limits` while it computes the limits of children, then of their parents.
    `old` and `new` map kind, queue and resource to amounts."""

    def __init__(
        self,
        tree: DocumentTree,
        targets: Mapping[LimitPlace, int],
        floors: Mapping[str, Resources],
    ) -> None:
        self.tree, self.targets, self.floors = tree, targets, floors
        self.held: dict[LimitPlace, str] = {}
        self.old: dict[str, dict[str, dict[str, int]]] = {kind: {} for kind in KINDS}
        for path, queue in tree.written.items():
            for kind, quantities in queue.resources.kinds:
                self.old[kind][path] = amounts_of(quantities)
        self.new = {
            kind: {path: dict(amounts) for path, amounts in queues.items()}
            for kind, queues in self.old.items()
        }
        self._sums: dict[str, dict[str, int]] = {path: {} for path in tree.written}
        self._needs: dict[str, dict[str, int]] = {path: {} for path in tree.written}
        self._bounds: dict[str, Mapping[str, int]] = {}

    def fit_guaranteed(self, path: str) -> None:
        """Sets the guaranteed resources of a queue to their targets, but not below the sum of its
        children's (rule R3). Adds them to the sum of its parent."""
        new = self.new["guaranteed"][path]
        for resource in new:
            new[resource] = self._moved(LimitPlace(path, "guaranteed", resource))
        parent = self.tree.queues[path].parent
        if parent is not None:
            add_to(self._sums[parent], new if any(new.values()) else self._sums[path])

    def shrink_max(self, path: str) -> None:
        """Sets the max of a queue to its target, as far as its pods and YuniKorn's rules allow."""
        old, new = self.old["max"][path], self.new["max"][path]
        for resource in new:
            new[resource] = self._moved(LimitPlace(path, "max", resource))
        if any(old.values()) and not any(new.values()):
            kept = next(name for name in (*_SMALLEST_FIRST, *old) if old.get(name))
            new[kept] = 1
            why = "zero in all resources would mean no limit"
            self._hold(LimitPlace(path, "max", kept), 1, 0, why)
        parent = self.tree.queues[path].parent
        if parent is not None:
            above = self._needs[parent]
            for resource, amount in (self._needs[path] | new).items():
                above[resource] = max(amount, above.get(resource, 0))

    def _moved(self, place: LimitPlace) -> int:
        """Returns the target of a limit, or the least amount that the rules allow, if larger."""
        before = self.old[place.kind][place.queue][place.resource]
        target = self.targets.get(place, before)
        if target >= before:
            return target
        floor, reason = max(self._floors(place))
        if floor <= target:
            return target
        stopped = min(before, floor)
        self._hold(place, stopped, target, f"{format_amount(place.resource, floor)} is {reason}")
        return stopped

    def _floors(self, place: LimitPlace) -> Iterator[tuple[int, str]]:
        path, kind, resource = place
        yield self._sums[path].get(resource, 0), "guaranteed to the queues below it"
        if kind == "max":
            yield self.floors.get(path, {}).get(resource, 0), "what its pods have or need"
            yield self.new["guaranteed"][path].get(resource, 0), "its guarantee"
            yield self._needs[path].get(resource, 0), "the limit of a queue below it"
            for limit in self.tree.written[path].limits or []:
                amount = amounts_of(limit.maxresources).get(resource, 0)
                yield amount, f"the limit {limit.limit!r} in it"

    def _hold(self, place: LimitPlace, amount: int, target: int, reason: str) -> None:
        stays, instead = (format_amount(place.resource, number) for number in (amount, target))
        self.held[place] = (
            f"{place.kind} {place.resource} stays at {stays} instead of {instead}: {reason}"
        )

    def cap_growth(self, path: str) -> None:
        """Lowers a raised max to the max of the ancestors, as YuniKorn's rule R2 demands."""
        parent = self.tree.queues[path].parent
        above: Mapping[str, int] = self._bounds[parent] if parent else {}
        old, new = self.old["max"][path], self.new["max"][path]
        for resource, amount in new.items():
            bound = above.get(resource, amount)
            if amount > old[resource] and amount > bound:
                new[resource] = max(old[resource], bound)
                why = f"the max of a queue above it is {format_amount(resource, bound)}"
                self._hold(LimitPlace(path, "max", resource), new[resource], amount, why)
        self._bounds[path] = tightest(new, above)


class Aim(NamedTuple):
    """The targets of the limits. `stuck`: limits that can't be written, with reasons. `fixed`:
    limits that an administrator set and lending does not raise, including the `frozen` ones."""

    sections: Mapping[str, Section]
    lent: LentAmounts
    frozen: frozenset[LimitPlace]
    fixed: frozenset[LimitPlace]
    targets: Mapping[LimitPlace, int]
    stuck: Mapping[LimitPlace, str]


def aim_at(
    tree: DocumentTree,
    ledger: Ledger,
    baselines: Mapping[LimitPlace, Baseline],
    instance: str,
    own: Section,
) -> Aim:
    """Returns the target of each limit if this instance lends the nodes in `own` and no others."""
    sections = {name: part for name, part in ledger.sections.items() if name != instance}
    if own.queues:
        sections[instance] = own
    lent = lent_amounts(sections.values())
    frozen = frozenset(
        place for place, baseline in baselines.items() if baseline.is_frozen and lent.at(place)
    )
    fixed = frozen.union(
        place for place, baseline in baselines.items() if is_closed(place, baseline.amount)
    )
    targets = {
        place: baseline.amount + lent.at(place)
        for place, baseline in baselines.items()
        if place not in fixed
    }
    stuck = {
        place: why
        for place, target in targets.items()
        if target != current(tree, place)[1] and (why := _why_not(tree, place, target))
    }
    moving = {place: target for place, target in targets.items() if place not in stuck}
    return Aim(sections, lent, frozen, fixed, moving, stuck)


def _why_not(tree: DocumentTree, place: LimitPlace, target: int) -> str | None:
    if target > INT64_MAX:
        line = tree.places[place].node.line
        return (
            f"line {line}: {place.kind} {place.resource} of {place.queue} would be "
            f"{format_amount(place.resource, target)}, more than YuniKorn can count; lower it"
        )
    return why_not_changeable(tree, place)


def own_section(ledger: Ledger, wants: QueueWants) -> Section:
    """Returns the part of the ledger about this instance if it lends the nodes in `wants`."""
    recorded = ledger.sections.get(wants.instance_id)
    queues = {
        queue: {node: sum_resources([size]) for node, size in nodes.items()}
        for queue, nodes in wants.nodes.items()
        if nodes
    }
    if recorded and not queues:
        return Section(guaranteed=recorded.guaranteed)
    return Section(queues=queues, guaranteed=wants.adjust_guaranteed)
