"""Who wrote what stands there: the ledger that an edit goes by, and whether a text is a manifest's.

A ledger says by its checksum which text it belongs to. The one beside the text is in force where
that is this text; else this instance's record of it where its checksum is the text's (the
annotation was lost, or is an older one); else a person has changed the text, and each limit is
compared. What another instance wrote, or fits neither ledger, is asked: nothing is added twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from dnm.model.cluster import ConfigMap, FieldOwner
from dnm.model.errors import QueueError
from dnm.model.quantity import parse_yunikorn
from dnm.model.queue_edit import QueueWants
from dnm.queues.baselines import current, is_limit
from dnm.queues.document import QueueDocument
from dnm.queues.ledger import (
    MOST_TOTALS,
    Ledger,
    LedgerEntry,
    Section,
    all_totals,
    checksum,
    decode_ledger,
    lent_amounts,
    total_hash,
)
from dnm.queues.source import LEDGER_ANNOTATION, SourceDocument
from dnm.queues.tree import DocumentTree, LimitPlace

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Update the values of a chart or a module as a whole, without server-side apply.
_WHOLE = frozenset(("helm", "helm-controller", "argocd-controller", "HashiCorp"))
_OURS = "dnm"  # the API server names a writer after its User-Agent


class LedgerInForce(NamedTuple):
    """`note`: that it is not the one that stands there; empty: it is."""

    ledger: Ledger
    note: str = ""


def is_anothers_matter(document: QueueDocument, wants: QueueWants) -> bool:
    """Tells whether this instance has no part in what is to be made of a text that is not the
    ledger's: it lends nothing and has lent nothing, and others have."""
    found, then = document.ledger, _remembered(wants)
    known = {**found.sections, **(then.sections if then else {})}
    is_in_step = found.text == checksum(document.source.text)
    return bool(known) and not (
        is_in_step or wants.instance_id in known or any(wants.nodes.values())
    )


def ledger_in_force(document: QueueDocument, wants: QueueWants) -> LedgerInForce:
    """Returns the ledger that tells what the limits contain. Raises QueueError where only a person
    can say it."""
    found, instance, then = document.ledger, wants.instance_id, _remembered(wants)
    text = checksum(document.source.text)
    if then is None:
        if instance not in found.sections and any(wants.nodes.values()):
            raise undecided("no run has yet noted what its queues were before", _NEVER_WRITTEN)
        then = found
    is_told = instance in then.sections or _is_moved(then)
    if found.text == text:
        chosen = _with_ours(document, then, instance)
    elif then.text == text and is_told:
        if then.sections and instance not in then.sections:
            raise undecided("the next run of the instance that lent may write it again", _OTHERS)
        _doubt_the_record(document, then, instance)
        chosen = LedgerInForce(then, _LOST if found.is_empty else _PUT_BACK)
    else:
        chosen = _of_another_text(document, then, instance, is_told)
        _refuse_older_totals(document.tree, chosen.ledger, all_totals(then) | all_totals(found))
        if is_applied(document.source):
            _refuse_half_a_manifest(document.tree, chosen.ledger)
    return _with_totals(chosen, then)


def _of_another_text(
    document: QueueDocument, then: Ledger, instance: str, is_told: bool
) -> LedgerInForce:
    found = document.ledger
    if found.is_empty:
        return _of_lost(document, then, instance)
    if found.text and _is_written_by_dnm(document.source):
        raise undecided("another instance's next run may write it again", _NOT_OF_THIS_TEXT)
    if then == found or (instance in found.sections and not is_told):
        return LedgerInForce(found)
    return _by_what_stands(document.tree, found, then, instance)


def _with_totals(chosen: LedgerInForce, then: Ledger) -> LedgerInForce:
    """The same, with the totals that only the record knows."""
    more = all_totals(then).keys() - all_totals(chosen.ledger)
    if not more or len(more) + len(chosen.ledger.totals) > MOST_TOTALS:
        return chosen
    totals = (*chosen.ledger.totals, *sorted(more))
    kept: Ledger = msgspec.structs.replace(chosen.ledger, totals=totals)
    return LedgerInForce(kept, chosen.note)


def _remembered(wants: QueueWants) -> Ledger | None:
    return None if wants.remembered is None else decode_ledger(wants.remembered)


def _is_moved(ledger: Ledger) -> bool:
    return any(entry.is_moved(place.resource) for place, entry in ledger.entries.items())


_GONE = "the ledger of this instance is gone from the ConfigMap"
_NEVER_WRITTEN = "the ConfigMap has no ledger of this instance"
_NOT_OF_THIS_TEXT = "the ledger in the ConfigMap is not the one of this queue document"
_OTHERS = "another instance's ledger is gone from the ConfigMap"
_PUT_BACK = (
    "the ledger in the ConfigMap is older than the limits beside it: what the last run noted of it "
    "is taken, and written again"
)
_LOST = (
    "the ledger is gone from the ConfigMap: the limits stand as the last run noted them, so what "
    "it noted is taken, and written again"
)


def undecided(why: str, what: str = _GONE) -> QueueError:
    """Returns the question to a person, with what he can answer."""
    return QueueError(
        f"{what} while nodes are lent, and the limits don't tell whether they contain them: {why}. "
        "Look at `dnm queues show`, then say "
        "`dnm queues rebase --as total` if they do or `dnm queues rebase --as baseline` if not"
    )


# --- where the checksums do not say it --------------------------------------------------------


def _with_ours(document: QueueDocument, then: Ledger, instance: str) -> LedgerInForce:
    """The ledger is this text's. What is missing in it of ours was never written, unless another
    instance has taken it for part of the baselines."""
    found, ours = document.ledger, then.sections.get(instance)
    if ours is None or ours == found.sections.get(instance):
        return LedgerInForce(found)
    sections = {**found.sections, instance: ours}
    held = _held(document.tree, then, found, sections)
    is_odd = held.keys() == {"neither"} and bool(found.sections.keys() - {instance})
    if "with" not in held and not is_odd:
        return LedgerInForce(found)
    if held.keys() != {"with"} or found.origin != then.text:
        raise undecided(_why(document.tree, held))
    entries = {**then.entries, **found.entries}
    entries |= {
        place: LedgerEntry(then.entries[place].baseline, current(document.tree, place)[0])
        for place in held["with"]
    }
    with_ours = msgspec.structs.replace(found, sections=sections, entries=entries)
    return LedgerInForce(with_ours, _LOST)


def _doubt_the_record(document: QueueDocument, then: Ledger, instance: str) -> None:
    """The record is this text's, but somebody may have written since, another instance or a person
    with a number of his own: then it is no ledger that is old. Raises QueueError if so."""
    found, source = document.ledger, document.source
    owners = source.config_map.owners if source.config_map else ()
    if owners and not _is_written_by_dnm(source):
        what = _GONE if found.is_empty else _NOT_OF_THIS_TEXT
        raise undecided("they stand as the last run noted them, and it did not write them", what)
    if {*found.sections, *then.sections} != {instance}:
        _refuse_older_totals(document.tree, found, all_totals(found))


def _of_lost(document: QueueDocument, then: Ledger, instance: str) -> LedgerInForce:
    """No ledger is there, and the text is not the record's: somebody has put another one there."""
    tree, source = document.tree, document.source
    fresh = LedgerInForce(document.ledger)
    if checksum(source.text) in (then.origin, then.text if then.is_empty else ""):
        return fresh
    held = _held(tree, then, document.ledger, then.sections)
    if (
        then.text
        and _is_written_by_dnm(source)
        and (then.is_empty or instance in then.sections or held.keys() - {"without"})
    ):
        raise undecided(_why(tree, held))
    if then.is_empty:
        return fresh
    if "with" not in held and ("without" in held or is_applied(source)):
        return fresh
    if held.keys() <= {"with"} and then.sections.keys() <= {instance}:
        if held and not then.text:  # of an older dnm, whose text it may be
            return LedgerInForce(then, _LOST)
        if not held and not _has_new_limits(tree, then):
            return fresh
    raise undecided(_why(tree, held))


def _held(
    tree: DocumentTree, then: Ledger, found: Ledger, sections: Mapping[str, Section]
) -> dict[str, list[LimitPlace]]:
    """The limits that nodes move, by whether they stand with what is in `sections` and not in
    `found`, without it, or neither."""
    was, is_now, would = (
        lent_amounts(one.values()) for one in (then.sections, found.sections, sections)
    )
    held: dict[str, list[LimitPlace]] = {}
    for place, entry in then.entries.items():
        if place not in tree.places:
            continue
        baseline, written = (parse_yunikorn(place.resource, one) for one in entry)
        with_it = written - was.at(place) + would.at(place)
        without = baseline + is_now.at(place)
        if with_it != without:
            amount = current(tree, place)[1]
            answer = {with_it: "with", without: "without"}.get(amount, "neither")
            held.setdefault(answer, []).append(place)
    return held


def _has_new_limits(tree: DocumentTree, then: Ledger) -> bool:
    lent = lent_amounts(then.sections.values())
    return any(
        lent.at(place) and place not in then.entries and is_limit(tree, place)
        for place in tree.places
    )


def _why(tree: DocumentTree, held: dict[str, list[LimitPlace]]) -> str:
    if "neither" in held:
        place = held["neither"][0]
        text = current(tree, place)[0].strip()
        return f"{place.kind} {place.resource} of {place.queue} is {text}, which fits neither"
    if not held:
        return "they had no limits when they were last seen"
    if len(held) == 1:
        return "the document is another one than the last run has noted"
    first, second = held["with"][0], held["without"][0]
    return (
        f"{first.kind} {first.resource} of {first.queue} contains them, {second.kind} "
        f"{second.resource} of {second.queue} does not"
    )


def _by_what_stands(
    tree: DocumentTree, found: Ledger, then: Ledger, instance: str
) -> LedgerInForce:
    """Neither is the text's, and they differ: the one that each limit stands by which they see
    differently."""
    stands_by: set[str] = set()
    for place in {*found.entries, *then.entries} & tree.places.keys():
        one, other = found.entries.get(place), then.entries.get(place)
        known = [entry for entry in (one, other) if entry]
        baselines = {parse_yunikorn(place.resource, entry.baseline) for entry in known}
        said = [
            parse_yunikorn(place.resource, entry.written if entry else known[0].baseline)
            for entry in (one, other)
        ]
        amount = current(tree, place)[1]
        if said[0] == said[1] or {amount} == baselines:
            continue
        answer = {said[1]: "then", said[0]: "found"}.get(amount, "neither")
        stands_by.add(answer)
    ours, was_ours = found.sections.get(instance), then.sections.get(instance)
    is_kin = then.origin in ("", found.origin)  # else it may be another cluster's
    if (stands_by == {"found"} and is_kin and (ours or not was_ours)) or (
        not stands_by and ours and ours == was_ours
    ):
        return LedgerInForce(found)
    if stands_by == {"then"}:
        _refuse_older_totals(tree, found, all_totals(found))
        return LedgerInForce(then, _PUT_BACK)
    raise undecided(
        "it is neither what the last run noted nor all that stands there", _NOT_OF_THIS_TEXT
    )


def _refuse_older_totals(tree: DocumentTree, ledger: Ledger, totals: Mapping[str, None]) -> None:
    """Raises QueueError where a limit that a person has changed stands at a total that dnm once
    wrote: it is an older state's, and no new value."""
    for place in tree.places if totals else ():
        text, amount = current(tree, place)
        entry = ledger.entries.get(place)
        is_new = entry is None or amount != parse_yunikorn(place.resource, entry.written)
        if is_new and total_hash(place, amount) in totals:
            raise undecided(
                f"{place.kind} {place.resource} of {place.queue} is {text.strip()}, which dnm "
                "itself has written earlier, with other nodes in it; if it contains some of the "
                "lent nodes, first write it as it is without any",
                "the queue document was changed, as by an older export,",
            )


def _refuse_half_a_manifest(tree: DocumentTree, ledger: Ledger) -> None:
    """Raises QueueError where a manifest was applied that has some limits as dnm wrote them, with
    nodes in them, and others not: it is partly an older export."""
    held: dict[str, list[LimitPlace]] = {}
    for place, entry in ledger.entries.items():
        if place in tree.places and entry.is_moved(place.resource):
            is_with = current(tree, place)[1] == parse_yunikorn(place.resource, entry.written)
            held.setdefault("with" if is_with else "without", []).append(place)
    if len(held) == 2:
        raise undecided(_why(tree, held), "a manifest was applied")


# --- what the ConfigMap itself says -------------------------------------------------------------


def _is_written_by_dnm(source: SourceDocument) -> bool:
    """Whether the text is as an instance has written it: whoever changes a field owns it."""
    owners = source.config_map.owners if source.config_map else ()
    return any(one.manager == _OURS and source.key in one.keys for one in owners)


def is_applied(source: SourceDocument) -> bool:
    """Tells whether the text came as it is from a manifest of people. An export of the cluster's
    own object, which has the ledger in it, is none: its numbers contain what was lent."""
    found = source.config_map
    if found is None:
        return False
    return _is_last_applied(found, source) or any(
        _is_a_manifests(owner, source.key) for owner in found.owners
    )


def _is_last_applied(found: ConfigMap, source: SourceDocument) -> bool:
    try:
        manifest = json.loads(found.annotations.get(_LAST_APPLIED, "null"))
        field = "binaryData" if source.is_gzip else "data"
        stored = (found.binary_data if source.is_gzip else found.data)[source.key]
        annotations = manifest["metadata"].get("annotations") or {}
        is_same: bool = manifest[field][source.key] == stored
        return is_same and LEDGER_ANNOTATION not in annotations
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _is_a_manifests(owner: FieldOwner, key: str) -> bool:
    return (
        key in owner.keys
        and LEDGER_ANNOTATION not in owner.annotations
        and (owner.operation == "Apply" or owner.manager in _WHOLE)
    )
