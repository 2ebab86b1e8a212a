"""What each limit of the document would be without lent nodes: the three-way comparison.

As it was last written: nobody touched it. Back at the baseline: a manifest was applied again.
Anything else is a person's new total, and the baseline follows from it; a total below what is lent
is frozen. Where an instance's part of the ledger is lost, the record of its last run decides, or
else a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from dnm.model.errors import QueueError
from dnm.model.quantity import format_amount, format_yunikorn, parse_yunikorn
from dnm.model.queue_edit import QueueWants
from dnm.model.queue_path import lineage
from dnm.model.registry import QueueStatus
from dnm.queues.ledger import Ledger, Section, lent_amounts, sum_resources
from dnm.queues.tree import DocumentTree, LimitPlace


class Reading(Enum):
    """What a person says that the limits in the document are (`dnm queues rebase`)."""

    BASELINE = "baseline"  # they don't contain what is lent
    TOTAL = "total"  # they do


class Baseline(NamedTuple):
    """One limit without lent nodes, in YuniKorn's grammar and units."""

    text: str
    amount: int
    is_frozen: bool = False
    news: str = ""  # how it came about, if not as recorded: reapplied | changed


# --- what the document says now --------------------------------------------------------------


def current(tree: DocumentTree, place: LimitPlace) -> tuple[str, int]:
    """Returns a limit as it is written, and its amount in YuniKorn's units."""
    text = tree.places[place].text
    return text, parse_yunikorn(place.resource, text)


def _is_limit(tree: DocumentTree, place: LimitPlace) -> bool:
    """Whether the number limits or guarantees anything: an all-zero max is no limit, and a zero
    guarantee none."""
    queue = tree.queues[place.queue]
    return bool(queue.max) if place.kind == "max" else queue.guaranteed.get(place.resource, 0) > 0


def compare(tree: DocumentTree, ledger: Ledger) -> dict[LimitPlace, Baseline]:
    """Returns the baseline of every limit of the document, by the three-way comparison."""
    lent = lent_amounts(ledger.sections.values())
    known = {
        place: _compare_one(tree, ledger, place, lent.at(place))
        for place in tree.places
        if _is_limit(tree, place)
    }
    by_queue: dict[str, list[LimitPlace]] = {}
    for place, baseline in known.items():
        if baseline.news or lent.at(place):
            by_queue.setdefault(place.queue, []).append(place)
    for places in by_queue.values():
        news = {known[place].news for place in places}
        if "reapplied" in news and "" not in news:
            # None of them stands as written: what differs came with the manifest too.
            for place in places:
                known[place] = Baseline(*current(tree, place), news="reapplied")
    return known


def _compare_one(tree: DocumentTree, ledger: Ledger, place: LimitPlace, lent: int) -> Baseline:
    text, amount = current(tree, place)
    entry = ledger.entries.get(place)
    if entry is not None:
        baseline = parse_yunikorn(place.resource, entry.baseline)
        if amount == parse_yunikorn(place.resource, entry.written):
            return Baseline(entry.baseline, baseline, is_frozen=place in ledger.frozen)
        if amount == baseline:
            return Baseline(entry.baseline, baseline, news="reapplied" if lent else "")
    if not lent:
        return Baseline(text, amount)
    if amount < lent:
        return Baseline(text, amount, is_frozen=True, news="changed")
    rest = amount - lent
    return Baseline(format_yunikorn(place.resource, rest, text), rest, news="changed")


# --- when this instance's part of the ledger is lost ------------------------------------------


def recover(
    tree: DocumentTree, known: dict[LimitPlace, Baseline], wants: QueueWants
) -> dict[LimitPlace, Baseline]:
    """Returns the baselines without what this instance lent, judged by what its last run remembers:
    either all limits contain it or none does. Raises QueueError for anything else: that is for a
    person to say."""
    then = _direct(wants.remembered)
    serving = {queue: sum_resources(sizes.values()) for queue, sizes in wants.nodes.items()}
    lent = {queue: then.get(queue) or serving.get(queue, {}) for queue in {*then, *serving}}
    parts = {queue: {"": amounts} for queue, amounts in lent.items()}
    own = lent_amounts([Section(queues=parts, guaranteed=wants.adjust_guaranteed)])
    answers: dict[bool | None, list[str]] = {}
    for queue in sorted(lent):
        for resource in tree.queues[queue].max if queue in tree.queues else ():
            place = LimitPlace(queue, "max", resource)
            if place in known and own.at(place):
                answer = _contains(tree, known[place], place, own.at(place), wants.remembered)
                answers.setdefault(answer, []).append(f"{queue} ({resource})")
    if True in answers and False in answers:
        raise _undecided(f"{answers[True][0]} contains them, {answers[False][0]} does not")
    if answers.keys() == {None}:
        raise _undecided(f"{answers[None][0]} had no limit when it was last seen")
    if not answers.get(True):
        return known
    without = {}
    for place, baseline in known.items():
        amount = baseline.amount - own.at(place)
        if amount < 0:
            raise _undecided(f"{place.kind} {place.resource} of {place.queue} is less than them")
        text = baseline.text
        if amount != baseline.amount:
            text = format_yunikorn(place.resource, amount, text)
        without[place] = baseline._replace(text=text, amount=amount)
    return without


def _direct(remembered: Mapping[str, QueueStatus]) -> dict[str, dict[str, int]]:
    """What was lent to each queue itself: a monitored queue below another is part of its sum."""
    direct = {queue: dict(status.lent) for queue, status in remembered.items()}
    for queue in sorted(remembered, key=lambda path: -path.count(".")):
        for above in lineage(queue)[1:]:
            if above in direct:
                for resource, amount in direct[queue].items():
                    direct[above][resource] = direct[above].get(resource, 0) - amount
    return {
        queue: positive
        for queue, amounts in direct.items()
        if (positive := {name: amount for name, amount in amounts.items() if amount > 0})
    }


def _contains(
    tree: DocumentTree,
    known: Baseline,
    place: LimitPlace,
    lent: int,
    remembered: Mapping[str, QueueStatus],
) -> bool | None:
    """Whether a limit contains what this instance lends; None: it does not tell."""
    status = remembered.get(place.queue)
    resource = place.resource
    if status is None:
        raise _undecided(f"no run has yet noted what {place.queue} was before")
    before = status.baseline.get(resource)
    if before is not None and known.amount in (before, before + lent):
        return known.amount != before
    if not any(status.lent.values()):
        return False  # nothing was lent when it was last seen: a person's new baseline
    if before is None:
        return None  # it had no such limit then
    text, amount = current(tree, place)
    if amount == status.limit.get(resource):
        return True
    raise _undecided(f"max {resource} of {place.queue} is {text}, which fits neither")


def _undecided(why: str) -> QueueError:
    return QueueError(
        "the ledger of this instance is gone from the ConfigMap while nodes are lent, and the "
        f"limits don't tell whether they contain them: {why}. Look at `dnm queues show`, then say "
        "`dnm queues rebase --as total` if they do or `dnm queues rebase --as baseline` if not"
    )


# --- when a person says it ------------------------------------------------------------------


def declared(tree: DocumentTree, place: LimitPlace, reading: Reading, lent: int) -> Baseline:
    """Returns the baseline that follows from what a person says. Raises QueueError for a limit that
    can't contain what is lent."""
    text, amount = current(tree, place)
    if reading is Reading.BASELINE or not lent:
        return Baseline(text, amount)
    if amount < lent:
        raise QueueError(
            f"{place.kind} {place.resource} of {place.queue} is {text}, less than the "
            f"{format_amount(place.resource, lent)} that are lent, so it can't contain them"
        )
    return Baseline(format_yunikorn(place.resource, amount - lent, text), amount - lent)
