"""The writers of a queue document: which ledger counts, and whether a manifest was applied.

A ledger names its text by a checksum. The ledger in the ConfigMap counts if it names the current
text. Otherwise the ledger in this instance's registry counts if it names that text: the annotation
was lost or is older. If neither names it, an administrator has changed the text. dnm then compares
each limit with the ledger that the last run recorded. In every other case dnm asks the
administrator, so that nothing is added twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import NamedTuple

import msgspec

from dnm.model.cluster import ConfigMap, FieldOwner
from dnm.model.quantity import parse_yunikorn
from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn.document import QueueDocument
from dnm.queues.yunikorn.ledger import (
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
from dnm.queues.yunikorn.limits import current
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, SourceDocument
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace
from dnm.queues.yunikorn.unsettled import (
    LEDGER_LOST,
    NEVER_WRITTEN,
    NOT_OF_THIS_TEXT,
    OTHER_LEDGER_LOST,
    older_total,
    undecided,
    why_mixed,
)

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# These tools replace all values of a chart or a module, without server-side apply.
_REPLACING_MANAGERS = frozenset(("helm", "helm-controller", "argocd-controller", "HashiCorp"))
_DNM_MANAGER = "dnm"  # the API server names a writer after its User-Agent


class ChosenLedger(NamedTuple):
    """The ledger that an edit starts from. `notes` explain why it is not the ConfigMap's."""

    ledger: Ledger
    notes: tuple[str, ...] = ()


def belongs_to_other_instance(document: QueueDocument, wants: QueueWants) -> bool:
    """Returns whether an edited text concerns only other instances. This is so if this instance
    lends and has lent nothing, other instances have, and it has seen their ledger or this text.
    Without any ledger, two instances could each leave the decision to the other."""
    current, recorded = document.ledger, remembered(wants) or Ledger()
    text = checksum(document.source.text)
    sections = {**current.sections, **recorded.sections}
    is_seen = recorded in (Ledger(), current) or (recorded.text == text and not current.is_empty)
    return (
        bool(sections)
        and is_seen
        and not (current.text == text or wants.instance_id in sections or any(wants.nodes.values()))
    )


def choose_ledger(document: QueueDocument, wants: QueueWants) -> ChosenLedger:
    """Returns the ledger that describes what the limits contain. Raises QueueError if only an
    administrator can decide."""
    current, instance, recorded = document.ledger, wants.instance_id, remembered(wants)
    text = checksum(document.source.text)
    if recorded is None:
        if instance not in current.sections and any(wants.nodes.values()):
            raise undecided("no run has recorded the limits from before", NEVER_WRITTEN)
        recorded = current
    is_recorded = instance in recorded.sections or _is_moved(recorded)
    if current.text == text:
        if _is_moved(current) and _has_two_foreign_writers(document.source):
            raise undecided("different clients wrote the ledger and the limits", NOT_OF_THIS_TEXT)
        _refuse_other_lineage(document.tree, current, recorded)
        chosen = _restore_own_section(document, recorded, instance)
    elif recorded.text == text and is_recorded:
        if recorded.sections and instance not in recorded.sections:
            raise undecided(
                "the next run of the lending instance may write it again", OTHER_LEDGER_LOST
            )
        _verify_record(document, recorded, instance)
        chosen = ChosenLedger(recorded, _LOST if current.is_empty else _PUT_BACK)
    else:
        chosen = _choose_for_edited_text(document, recorded, instance)
        _refuse_older_totals(
            document.tree, chosen.ledger, all_totals(recorded) | all_totals(current)
        )
        if is_applied(document.source):
            _refuse_partial_manifest(document.tree, chosen.ledger)
    return with_totals(chosen, recorded)


def _choose_for_edited_text(
    document: QueueDocument, recorded: Ledger, instance: str
) -> ChosenLedger:
    """Returns the ledger for a text that an administrator has changed. Raises QueueError unless the
    last run recorded the ledger that is in the ConfigMap."""
    current = document.ledger
    if current.is_empty:
        return _choose_for_lost_ledger(document, recorded, instance)
    if current.text and is_written_by_dnm(document.source):
        raise undecided("the next run of another instance may write it again", NOT_OF_THIS_TEXT)
    knows_nothing = recorded == Ledger() and (instance in current.sections or not current.sections)
    if _has_foreign_ledger(document.source):
        raise undecided("another client than dnm wrote it", NOT_OF_THIS_TEXT)
    if recorded != current and not knows_nothing:
        raise undecided("it differs from the ledger that the last run recorded", NOT_OF_THIS_TEXT)
    return ChosenLedger(current)


def with_totals(chosen: ChosenLedger, recorded: Ledger) -> ChosenLedger:
    """Adds the earlier totals that only the registry has."""
    sections = all_totals(chosen.ledger)
    more = [total for total in all_totals(recorded) if total not in sections]
    free = MOST_TOTALS - len(chosen.ledger.totals)
    if not more or free <= 0:
        return chosen
    totals = (*more[-free:], *chosen.ledger.totals)
    kept: Ledger = msgspec.structs.replace(chosen.ledger, totals=totals)
    return ChosenLedger(kept, chosen.notes)


def remembered(wants: QueueWants) -> Ledger | None:
    """Returns the ledger that the last run recorded, or None if no run has recorded one."""
    return None if wants.remembered is None else decode_ledger(wants.remembered)


def _is_moved(ledger: Ledger) -> bool:
    return any(entry.is_moved(place.resource) for place, entry in ledger.entries.items())


_PUT_BACK = (
    "the ledger in the ConfigMap is older than its limits: dnm writes the ledger of the last run "
    "again",
)
_LOST = (
    "the ledger is gone from the ConfigMap, and the limits are those that the last run recorded: "
    "dnm writes the recorded ledger again",
)


# --- cases that the checksums do not decide ---------------------------------------------------


def _restore_own_section(document: QueueDocument, recorded: Ledger, instance: str) -> ChosenLedger:
    """Returns the ledger of this text with this instance's section. If the section is missing, it
    was never written, or another instance has counted its nodes as part of the baselines."""
    ledger, own = document.ledger, recorded.sections.get(instance)
    if own == ledger.sections.get(instance):
        return ChosenLedger(ledger)
    if recorded.text == ledger.text and _have_different_baselines(
        document.tree, {*recorded.entries, *ledger.entries}, recorded, ledger
    ):
        raise undecided("the last run recorded other baselines", NOT_OF_THIS_TEXT)
    if own is None:
        return ChosenLedger(ledger)
    sections = {**ledger.sections, instance: own}
    held = _sort_by_content(document.tree, recorded, ledger, sections)
    is_malformed = held.keys() == {"neither"} and bool(ledger.sections.keys() - {instance})
    if "with" not in held and not is_malformed:
        return ChosenLedger(ledger)
    if held.keys() != {"with"} or ledger.origin != recorded.text:
        raise undecided(why_mixed(document.tree, held))
    entries = {**recorded.entries, **ledger.entries}
    entries |= {
        place: LedgerEntry(recorded.entries[place].baseline, current(document.tree, place)[0])
        for place in held["with"]
    }
    restored = msgspec.structs.replace(ledger, sections=sections, entries=entries)
    return ChosenLedger(restored, _LOST)


def _have_different_baselines(
    tree: DocumentTree, places: Set[LimitPlace], item: Ledger, other: Ledger
) -> bool:
    """Returns whether the ledgers give one of these limits, at its current value, two baselines."""
    for place in places & tree.places.keys():
        now = current(tree, place)[0]
        first, second = (
            ledger.entries.get(place, LedgerEntry(now, now)).baseline for ledger in (item, other)
        )
        if parse_yunikorn(place.resource, first) != parse_yunikorn(place.resource, second):
            return True
    return False


def _verify_record(document: QueueDocument, recorded: Ledger, instance: str) -> None:
    """Raises QueueError if a client other than this dnm may have written this text. Then the ledger
    in the ConfigMap may be newer than the recorded one."""
    current, source = document.ledger, document.source
    if has_other_writers(source) and _is_moved(recorded):
        problem = LEDGER_LOST if current.is_empty else NOT_OF_THIS_TEXT
        raise undecided("the last run recorded these limits but did not write them", problem)
    if not _owners(source) and {*current.sections, *recorded.sections} != {instance}:
        _refuse_older_totals(document.tree, current, all_totals(current))


def _choose_for_lost_ledger(
    document: QueueDocument, recorded: Ledger, instance: str
) -> ChosenLedger:
    """Returns the ledger if the ConfigMap has none and the recorded one is of another text."""
    tree, source = document.tree, document.source
    fresh = ChosenLedger(document.ledger)
    held = _sort_by_content(tree, recorded, document.ledger, recorded.sections)
    is_first = checksum(source.text) in (
        recorded.origin,
        recorded.text if recorded.is_empty else "",
    )
    if is_first and not (is_written_by_dnm(source) and held.keys() - {"without"}):
        return fresh
    if (
        recorded.text
        and is_written_by_dnm(source)
        and (recorded.is_empty or instance in recorded.sections or held.keys() - {"without"})
    ):
        raise undecided(why_mixed(tree, held))
    lent = lent_amounts(recorded.sections.values())
    is_free = not (_is_moved(recorded) or any(lent.at(place) for place in tree.places))
    if is_free and (recorded.is_empty or has_other_writers(source)):
        return fresh  # no limit contains anything
    is_own = recorded.sections.keys() <= {instance}
    if held.keys() == {"without"} or ("without" in held and "with" not in held and is_own):
        return fresh
    raise undecided(why_mixed(tree, held))


def _sort_by_content(
    tree: DocumentTree, recorded: Ledger, ledger: Ledger, sections: Mapping[str, Section]
) -> dict[str, list[LimitPlace]]:
    """Sorts the limits that nodes move: by whether they contain the nodes in `sections` that are
    not in `found` (`with`), don't contain them (`without`), or have another value (`neither`)."""
    was, is_now, would = (
        lent_amounts(entry.values()) for entry in (recorded.sections, ledger.sections, sections)
    )
    held: dict[str, list[LimitPlace]] = {}
    for place, entry in recorded.entries.items():
        if place not in tree.places:
            continue
        baseline, written = (parse_yunikorn(place.resource, name) for name in entry)
        with_it = written - was.at(place) + would.at(place)
        without = baseline + is_now.at(place)
        if with_it != without:
            amount = current(tree, place)[1]
            answer = {with_it: "with", without: "without"}.get(amount, "neither")
            held.setdefault(answer, []).append(place)
    return held


def _refuse_older_totals(tree: DocumentTree, ledger: Ledger, totals: Mapping[str, None]) -> None:
    """Raises QueueError if a limit that an administrator has changed equals a total that dnm once
    wrote. Such a value belongs to an older state and is not a new value."""
    for place in tree.places if totals else ():
        text, amount = current(tree, place)
        entry = ledger.entries.get(place)
        is_new = entry is None or amount != parse_yunikorn(place.resource, entry.written)
        if is_new and total_hash(place, amount) in totals:
            raise older_total(place, text)


def _refuse_other_lineage(tree: DocumentTree, ledger: Ledger, recorded: Ledger) -> None:
    """Raises QueueError if the ledger does not continue the recorded one: it continues an older
    ledger, or started on a text that contains lent nodes. If both continue the same document, only
    limits that neither ledger explains are compared with the earlier totals."""
    totals = all_totals(recorded)
    if ledger.origin == recorded.origin != recorded.text:
        is_older = bool(totals.keys() - all_totals(ledger))
        if is_older and _have_different_baselines(tree, recorded.entries.keys(), recorded, ledger):
            raise undecided("it lacks nodes that the last run recorded", NOT_OF_THIS_TEXT)
    is_same_line = ledger.origin in (recorded.text, recorded.origin)
    explained = ledger.entries.keys() | recorded.entries.keys() if is_same_line else ()
    for place in tree.places if totals else ():
        text = (
            ledger.entries[place].baseline if place in ledger.entries else current(tree, place)[0]
        )
        is_new = place not in explained
        if is_new and total_hash(place, parse_yunikorn(place.resource, text)) in totals:
            raise older_total(place, text)


def _refuse_partial_manifest(tree: DocumentTree, ledger: Ledger) -> None:
    """Raises QueueError if an applied manifest has some limits as dnm wrote them, with lent nodes,
    and others without. Such a manifest is partly an older export."""
    held: dict[str, list[LimitPlace]] = {}
    for place, entry in ledger.entries.items():
        if place in tree.places and entry.is_moved(place.resource):
            is_with = current(tree, place)[1] == parse_yunikorn(place.resource, entry.written)
            held.setdefault("with" if is_with else "without", []).append(place)
    if len(held) == 2:
        raise undecided(why_mixed(tree, held), "a manifest was applied")


# --- the field owners of the ConfigMap ----------------------------------------------------------


def _owners(source: SourceDocument) -> tuple[FieldOwner, ...]:
    return source.config_map.owners if source.config_map else ()


def _find_writers(source: SourceDocument) -> tuple[set[str], set[str]]:
    """Returns the field managers of the text and of the ledger. Writing a field makes its owner."""
    of_text = {owner.manager for owner in _owners(source) if source.key in owner.keys}
    of_ledger = {
        owner.manager for owner in _owners(source) if LEDGER_ANNOTATION in owner.annotations
    }
    return of_text, of_ledger


def is_written_by_dnm(source: SourceDocument) -> bool:
    """Returns whether dnm wrote the text, in any instance."""
    return _DNM_MANAGER in _find_writers(source)[0]


def has_other_writers(source: SourceDocument) -> bool:
    """Returns whether a client other than dnm wrote the document; False without field managers."""
    return bool(_owners(source)) and not is_written_by_dnm(source)


def name_authors(source: SourceDocument) -> str:
    """Returns the field managers other than dnm that own the text."""
    return ", ".join(sorted(_find_writers(source)[0] - {_DNM_MANAGER})) or "another client"


def _has_foreign_ledger(source: SourceDocument) -> bool:
    """Returns whether only clients other than dnm wrote the ledger."""
    of_ledger = _find_writers(source)[1]
    return bool(of_ledger) and _DNM_MANAGER not in of_ledger


def _has_two_foreign_writers(source: SourceDocument) -> bool:
    """Returns whether two other clients wrote text and ledger, which then match only by chance."""
    of_text, of_ledger = _find_writers(source)
    is_dnms = _DNM_MANAGER in of_text | of_ledger or not (of_text and of_ledger)
    return not is_dnms and of_text.isdisjoint(of_ledger)


def is_applied(source: SourceDocument) -> bool:
    """Returns whether the text comes unchanged from an administrator's manifest. An export of the
    cluster's object has the ledger in it and does not count: its numbers contain lent nodes."""
    current = source.config_map
    if current is None:
        return False
    return _is_last_applied(current, source) or any(
        _is_manifest_owner(owner, source.key) for owner in current.owners
    )


def _is_last_applied(current: ConfigMap, source: SourceDocument) -> bool:
    try:
        manifest = json.loads(current.annotations.get(_LAST_APPLIED, "null"))
        field = "binaryData" if source.is_gzip else "data"
        stored = (current.binary_data if source.is_gzip else current.data)[source.key]
        annotations = manifest["metadata"].get("annotations") or {}
        is_same: bool = manifest[field][source.key] == stored
        return is_same and LEDGER_ANNOTATION not in annotations
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _is_manifest_owner(owner: FieldOwner, key: str) -> bool:
    return (
        key in owner.keys
        and LEDGER_ANNOTATION not in owner.annotations
        and (owner.operation == "Apply" or owner.manager in _REPLACING_MANAGERS)
    )
