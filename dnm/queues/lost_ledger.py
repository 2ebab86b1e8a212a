"""The ledger that an edit goes by: the one beside the document, unless that is lost or was put back
to an older state. Then this instance's own record of it decides, where every limit fits it; else a
person. So an annotation that is lost at any moment never has an amount added twice.
"""

from __future__ import annotations

from typing import NamedTuple

from dnm.model.errors import QueueError
from dnm.model.quantity import parse_yunikorn
from dnm.model.queue_edit import QueueWants
from dnm.queues.baselines import current, is_limit
from dnm.queues.document import QueueDocument
from dnm.queues.ledger import Ledger, LedgerEntry, decode_ledger, lent_amounts
from dnm.queues.manifests import is_applied
from dnm.queues.tree import DocumentTree, LimitPlace


class LedgerInForce(NamedTuple):
    """`note`: that it is not the one that stands there; empty: it is."""

    ledger: Ledger
    note: str = ""


def ledger_in_force(document: QueueDocument, wants: QueueWants) -> LedgerInForce:
    """Returns the ledger that tells what the limits contain. Raises QueueError where only a person
    can say it."""
    found, instance = document.ledger, wants.instance_id
    own = found.sections.get(instance)
    if wants.remembered is None:
        if own is None and any(wants.nodes.values()):
            raise undecided("no run has yet noted what its queues were before", _NEVER_WRITTEN)
        return LedgerInForce(found)
    then = decode_ledger(wants.remembered)
    if own == then.sections.get(instance) and not (found == Ledger() and then != found):
        return LedgerInForce(found)
    if own is not None:
        is_told = any(entry.is_moved(place.resource) for place, entry in then.entries.items())
        if is_told and not _all_stand(document.tree, found) and _all_stand(document.tree, then):
            return LedgerInForce(then, _PUT_BACK)
        return LedgerInForce(found)  # as it was before a run that could not write
    return _of_lost(document, then, is_ours=instance in then.sections)


_GONE = "the ledger of this instance is gone from the ConfigMap"
_NEVER_WRITTEN = "the ConfigMap has no ledger of this instance"
_PUT_BACK = (
    "the ledger in the ConfigMap is older than the limits beside it: what the last run noted of it "
    "is taken, and written again"
)
_LOST = (
    "the ledger is gone from the ConfigMap: the limits stand as the last run noted them, so what "
    "it noted is taken, and written again"
)


def _all_stand(tree: DocumentTree, ledger: Ledger) -> bool:
    """Whether every limit that it tells of stands as it says."""
    return all(
        current(tree, place)[1] == parse_yunikorn(place.resource, entry.written)
        for place, entry in ledger.entries.items()
        if place in tree.places
    )


def _of_lost(document: QueueDocument, then: Ledger, is_ours: bool) -> LedgerInForce:
    """Every limit that lent nodes move is judged: either all contain what this ledger says, or
    none does. `is_ours`: nodes of this instance are in it."""
    tree, found = document.tree, document.ledger
    sections = {**then.sections, **found.sections}
    was, is_now, would = (
        lent_amounts(one.values()) for one in (then.sections, found.sections, sections)
    )
    entries = {**then.entries, **found.entries}
    held: dict[str, LimitPlace] = {}  # an example of each answer
    for place, entry in then.entries.items():
        if place not in tree.places:
            continue
        text, amount = current(tree, place)
        baseline, written = (parse_yunikorn(place.resource, one) for one in entry)
        with_it = written - was.at(place) + would.at(place)
        without = baseline + is_now.at(place)
        if with_it == without:
            continue
        answer = {with_it: "with", without: "without"}.get(amount, "neither")
        held.setdefault(answer, place)
        entries[place] = LedgerEntry(entry.baseline, text)
    if "with" not in held and ("without" in held or is_applied(document.source)):
        return LedgerInForce(found)
    if held.keys() <= {"with"} and (held or not _has_new_limits(tree, then)):
        restored = Ledger(sections=sections, entries=entries, frozen=then.frozen | found.frozen)
        return LedgerInForce(restored, _LOST)
    if not is_ours:
        return LedgerInForce(found)
    raise undecided(_why(tree, held))


def _has_new_limits(tree: DocumentTree, then: Ledger) -> bool:
    lent = lent_amounts(then.sections.values())
    return any(
        lent.at(place) and place not in then.entries and is_limit(tree, place)
        for place in tree.places
    )


def _why(tree: DocumentTree, held: dict[str, LimitPlace]) -> str:
    if "neither" in held:
        place = held["neither"]
        text = current(tree, place)[0].strip()
        return f"{place.kind} {place.resource} of {place.queue} is {text}, which fits neither"
    if not held:
        return "they had no limits when they were last seen"
    first, second = held["with"], held["without"]
    return (
        f"{first.kind} {first.resource} of {first.queue} contains them, {second.kind} "
        f"{second.resource} of {second.queue} does not"
    )


def undecided(why: str, what: str = _GONE) -> QueueError:
    """Returns the question to a person, with what he can answer."""
    return QueueError(
        f"{what} while nodes are lent, and the limits don't tell whether they contain them: {why}. "
        "Look at `dnm queues show`, then say "
        "`dnm queues rebase --as total` if they do or `dnm queues rebase --as baseline` if not"
    )
