"""What each limit of the document would be without lent nodes: the three-way comparison.

As it was last written: nobody touched it. Back at the baseline: a manifest was applied again.
Anything else is what the rest of the document says: where a manifest was applied, its new value is
a new baseline; else it is a person's new total, and the baseline follows from it. A total below
what is lent is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dnm.model.quantity import format_yunikorn, parse_yunikorn
from dnm.queues.ledger import Ledger, LedgerEntry, lent_amounts
from dnm.queues.tree import DocumentTree, LimitPlace


class Baseline(NamedTuple):
    """One limit without lent nodes, in YuniKorn's grammar and units."""

    text: str
    amount: int
    is_frozen: bool = False
    news: str = ""  # how it came about, if not as recorded: reapplied | applied | changed
    before: str = ""  # the one that a manifest has replaced


# --- what the document says now --------------------------------------------------------------


def current(tree: DocumentTree, place: LimitPlace) -> tuple[str, int]:
    """Returns a limit as it is written, and its amount in YuniKorn's units."""
    text = tree.places[place].text
    return text, parse_yunikorn(place.resource, text)


def is_limit(tree: DocumentTree, place: LimitPlace) -> bool:
    """Tells whether the number limits or guarantees anything: an all-zero max is no limit, and a
    zero guarantee none."""
    queue = tree.queues[place.queue]
    return bool(queue.max) if place.kind == "max" else queue.guaranteed.get(place.resource, 0) > 0


def is_closed(place: LimitPlace, baseline: int) -> bool:
    """Tells whether people have closed the queue for all pods, so that lent nodes don't open it."""
    return place.kind == "max" and place.resource == "pods" and baseline == 0


def compare(
    tree: DocumentTree, ledger: Ledger, is_applied: bool = False
) -> dict[LimitPlace, Baseline]:
    """Returns the baseline of every limit of the document, by the three-way comparison.
    `is_applied`: the text is known to be that of a manifest, as it was applied."""
    lent = lent_amounts(ledger.sections.values())
    known = {
        place: _compare_one(tree, ledger, place, lent.at(place))
        for place in tree.places
        if is_limit(tree, place)
    }
    told = [place for place, one in known.items() if one.news or _is_moved(ledger, place)]
    if _is_manifest(tree, ledger, told) or (is_applied and not _stands(tree, ledger, told)):
        _take_as_baselines(tree, ledger, known, [place for place in known if lent.at(place)])
        return known
    by_queue: dict[str, list[LimitPlace]] = {}
    for place in told:
        by_queue.setdefault(place.queue, []).append(place)
    for places in by_queue.values():
        if _is_manifest(tree, ledger, places):
            _take_as_baselines(tree, ledger, known, places)
    return known


def _is_moved(ledger: Ledger, place: LimitPlace) -> bool:
    """Whether the limit tells a manifest from what dnm made of it: it was written as another amount
    than its baseline, or a person has set it below what is lent."""
    entry = ledger.entries.get(place)
    return entry is not None and (place in ledger.frozen or entry.is_moved(place.resource))


def _stands(tree: DocumentTree, ledger: Ledger, places: list[LimitPlace]) -> bool:
    """Whether one of these limits stands as it was written."""
    return any(_is_at(tree, place, entry.written) for place, entry in _entries(ledger, places))


def _is_manifest(tree: DocumentTree, ledger: Ledger, places: list[LimitPlace]) -> bool:
    """Whether these limits came with a manifest: one of them is back at its baseline, and none
    stands as it was written. So another new value among them is a new baseline too."""
    return not _stands(tree, ledger, places) and any(
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
    known: dict[LimitPlace, Baseline],
    places: list[LimitPlace],
) -> None:
    for place in places:
        entry = ledger.entries.get(place)
        before = "" if entry is None or _is_at(tree, place, entry.baseline) else entry.baseline
        news = "applied" if before else "reapplied"
        known[place] = Baseline(*current(tree, place), news=news, before=before)


def _compare_one(tree: DocumentTree, ledger: Ledger, place: LimitPlace, lent: int) -> Baseline:
    text, amount = current(tree, place)
    entry = ledger.entries.get(place)
    if entry is not None:
        baseline = parse_yunikorn(place.resource, entry.baseline)
        if amount == parse_yunikorn(place.resource, entry.written):
            return Baseline(entry.baseline, baseline, is_frozen=place in ledger.frozen)
        if amount == baseline:
            return Baseline(entry.baseline, baseline, news="reapplied" if lent else "")
        if is_closed(place, baseline) and not entry.is_moved(place.resource):
            return Baseline(text, amount)  # opened again; a closed one contains nothing lent
    if not lent:
        return Baseline(text, amount)
    if amount < lent:
        return Baseline(text, amount, is_frozen=True, news="changed")
    rest = amount - lent
    return Baseline(format_yunikorn(place.resource, rest, text), rest, news="changed")
