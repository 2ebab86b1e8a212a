"""A decision table that finds the ledger which describes the limits of the current queue document.

A ledger contains the checksum of its document. If neither the ledger in the ConfigMap nor the one
in the registry has the current checksum, another client has changed the document. If dnm cannot
decide whether its limits contain lent nodes, it asks, so that it never adds an amount twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from dnm.model.cluster import REPLACING_MANAGERS, ConfigMap, FieldOwner
from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn.document import QueueDocument
from dnm.queues.yunikorn.ledger import (
    MOST_TOTALS,
    Ledger,
    LedgerEntry,
    all_totals,
    checksum,
    decode_ledger,
    lent_amounts,
    total_hash,
)
from dnm.queues.yunikorn.quantities import parse_yunikorn
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, SourceDocument
from dnm.queues.yunikorn.tree import LimitPlace
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
_DNM_MANAGER = "dnm"  # the API server names a writer after its User-Agent
_LOST = (
    "the ledger is gone from the ConfigMap, and the limits are those that the last run recorded: "
    "dnm writes the recorded ledger again"
)


class Named(Enum):
    """The answer to the question which ledger has the checksum of the current queue document."""

    NO_RECORD = "not compared: this instance lends, no run recorded a ledger or wrote its section"
    CONFIG_MAP = "the ledger in the ConfigMap"
    REGISTRY = "only the recorded ledger, which has nodes of this instance or moved limits"
    LOST = "neither, and the ConfigMap has no ledger"
    CHANGED = "neither, and the ConfigMap has the ledger of another text"


class Authorship:
    """The facts that tell who has last written a queue document. A ledger lists its lent nodes. One
    is `current`, in the ConfigMap; a copy is `recorded` in the registry. Both have a section for
    each instance of dnm: `own` and `recorded_own` are those of this instance."""

    def __init__(self, document: QueueDocument, wants: QueueWants) -> None:
        current, record, instance = document.ledger, wants.remembered, wants.instance_id
        recorded = current if record is None else decode_ledger(record)
        self.document, self.current, self.recorded = document, current, recorded
        self.own = current.sections.get(instance)
        self.recorded_own = recorded.sections.get(instance)
        own = {instance: self.recorded_own} if self.recorded_own else {}
        self.sections = {**current.sections, **own}
        self.lends = any(wants.nodes.values())
        self.lenders = current.sections.keys() | recorded.sections.keys()
        self.lends_alone = recorded.sections.keys() <= {instance}
        self.has_other_sections = not current.sections.keys() <= {instance}
        self.text = text = checksum(document.source.text)
        self.is_first_text = text in (recorded.origin, recorded.text if recorded.is_empty else "")
        self.starts_at_record = current.origin == recorded.text
        managers, of_text, of_ledger = _find_managers(document.source)
        self.is_by_dnm = _DNM_MANAGER in of_text
        self.is_by_others = bool(managers) and not self.is_by_dnm
        self.is_ledger_by_others = bool(of_ledger) and _DNM_MANAGER not in of_ledger
        are_foreign = bool(of_text) and self.is_by_others and self.is_ledger_by_others
        self.has_two_foreign_writers = are_foreign and of_text.isdisjoint(of_ledger)
        self.is_copy = self.is_by_others and _is_moved(recorded)
        self.may_be_newer = not managers and self.lenders != {instance}
        if record is None and self.lends and not self.own:
            self.named = Named.NO_RECORD
        elif current.text == text:
            self.named = Named.CONFIG_MAP
        elif recorded.text == text and (self.recorded_own or _is_moved(recorded)):
            self.named = Named.REGISTRY
        else:
            self.named = Named.LOST if current.is_empty else Named.CHANGED

    @property
    def belongs_to_other_instance(self) -> bool:
        """Returns whether a changed document concerns only other instances: they have lent nodes,
        this one never has, and it has recorded their ledger. If the ConfigMap has a ledger, a
        recorded document is enough; without a ledger, two instances could wait for each other."""
        if self.lends or self.own or self.recorded_own or self.current.text == self.text:
            return False
        is_seen = self.recorded == self.current or self.recorded == Ledger()
        is_recorded = self.recorded.text == self.text and not self.current.is_empty
        return bool(self.lenders) and (is_seen or is_recorded)

    @cached_property
    def limits(self) -> dict[str, list[LimitPlace]]:
        """Returns the limits that lent nodes change, in lists by the present value: it includes
        these nodes (key `with`), it does not (`without`), or it is another value (`neither`). In a
        changed document (Named.CHANGED), `with` means the value that dnm wrote last."""
        ledger, later, other = self.recorded, self.current, "neither"
        sections = self.sections if self.named is Named.CONFIG_MAP else ledger.sections
        if self.named is Named.CHANGED:
            ledger, later, sections, other = later, Ledger(), later.sections, "without"
        was, is_now, would = (
            lent_amounts(part.values()) for part in (ledger.sections, later.sections, sections)
        )
        limits: dict[str, list[LimitPlace]] = {}
        for place, entry in ledger.entries.items():
            baseline, written = (parse_yunikorn(place.resource, text) for text in entry)
            with_nodes = written - was.at(place) + would.at(place)
            without = baseline + is_now.at(place)
            if place in self.document.tree.places and with_nodes != without:
                amount = parse_yunikorn(place.resource, self.document.tree.places[place].text)
                answer = {with_nodes: "with", without: "without"}.get(amount, other)
                limits.setdefault(answer, []).append(place)
        return limits

    def with_section(self) -> Ledger:
        """Returns the ConfigMap's ledger with this instance's section from the registry."""
        entries = {**self.recorded.entries, **self.current.entries}
        for place in self.limits["with"]:
            text = self.document.tree.places[place].text
            entries[place] = LedgerEntry(self.recorded.entries[place].baseline, text)
        restored: Ledger = replace(self.current, sections=self.sections, entries=entries)
        return restored

    @cached_property
    def older_total(self) -> tuple[LimitPlace, str] | None:
        """Returns the first limit with an amount that dnm once wrote with lent nodes in it, and its
        text. If the ConfigMap's ledger has the document's checksum, compares baselines instead."""
        ledger, recorded, is_named = self.current, self.recorded, self.named is Named.CONFIG_MAP
        totals = {} if self.named is Named.REGISTRY else all_totals(recorded)
        totals |= {} if is_named else all_totals(ledger)
        is_same_line = ledger.origin in (recorded.text, recorded.origin)
        for place, quantity in self.document.tree.places.items() if totals else ():
            entry = ledger.entries.get(place)
            if is_named and is_same_line and (entry or place in recorded.entries):
                continue
            text = entry.baseline if entry and is_named else quantity.text
            amount = parse_yunikorn(place.resource, text)
            if entry and not is_named and amount == parse_yunikorn(place.resource, entry.written):
                continue
            if total_hash(place, amount) in totals:
                return place, text
        return None

    @property
    def lacks_totals(self) -> bool:
        """Returns whether the ConfigMap's ledger is older: it lacks limits that dnm wrote later."""
        is_same_line = self.current.origin == self.recorded.origin != self.recorded.text
        return is_same_line and bool(all_totals(self.recorded).keys() - all_totals(self.current))

    @property
    def differing(self) -> set[LimitPlace]:
        """Returns the limits for which the two ledgers have different baselines."""
        places, ledgers = self.document.tree.places, (self.current.entries, self.recorded.entries)
        differing = set()
        for place in places.keys() & (ledgers[0].keys() | ledgers[1].keys()):
            now = LedgerEntry(places[place].text, "")
            first, second = (entries.get(place, now).baseline for entries in ledgers)
            if parse_yunikorn(place.resource, first) != parse_yunikorn(place.resource, second):
                differing.add(place)
        return differing

    @property
    def raises_limits(self) -> bool:
        """Returns whether the nodes in the recorded ledger raise a limit of this document."""
        lent = lent_amounts(self.recorded.sections.values())
        return _is_moved(self.recorded) or any(map(lent.at, self.document.tree.places))


def _is_moved(ledger: Ledger) -> bool:
    return any(entry.is_moved(place.resource) for place, entry in ledger.entries.items())


class Choice(Enum):
    """The decision of a row of `TABLE`: the ledger that an edit starts from, or a question."""

    USE = "the ledger in the ConfigMap, which describes the limits"
    RESTORE = "the recorded ledger, which dnm writes again"
    RESTORE_SECTION = "the ledger in the ConfigMap with the recorded section of this instance"
    START = "an empty ledger, since no limit contains lent nodes"
    COMPARE = "the ledger in the ConfigMap, with which dnm compares each limit"
    ASK = "a question with the reason of the row"
    ASK_LIMITS = "a question that names limits without a clear answer"
    ASK_TOTAL = "a question that names a limit with an earlier total"


class _Row(NamedTuple):
    """A row of `TABLE` or `CHECKS`. `why`: the reason for it. `problem`: how a question begins."""

    name: str
    applies: Callable[[Authorship], object]
    choice: Choice
    why: str
    problem: str = LEDGER_LOST


# The first row that applies decides.
TABLE: Mapping[Named, tuple[_Row, ...]] = {
    Named.NO_RECORD: (
        _Row("no record", lambda a: True, Choice.ASK,
            "no run has recorded the limits from before", NEVER_WRITTEN),
    ),
    Named.CONFIG_MAP: (
        _Row("two clients", lambda a: a.has_two_foreign_writers and _is_moved(a.current),
            Choice.ASK, "different clients wrote the ledger and the limits", NOT_OF_THIS_TEXT),
        _Row("older state", lambda a: a.lacks_totals and a.differing & a.recorded.entries.keys(),
            Choice.ASK, "it lacks nodes that the last run recorded", NOT_OF_THIS_TEXT),
        _Row("total as baseline", lambda a: a.older_total, Choice.ASK_TOTAL,
            "the ledger may have been started on a text with lent nodes"),
        _Row("same section", lambda a: a.own == a.recorded_own, Choice.USE,
            "the last run recorded the section of this instance as it is"),
        _Row("other baselines", lambda a: a.recorded.text == a.text and a.differing, Choice.ASK,
            "the last run recorded other baselines", NOT_OF_THIS_TEXT),
        _Row("new section", lambda a: not a.recorded_own, Choice.USE, "the ledger lacks nothing"),
        _Row("lost section", lambda a: set(a.limits) == {"with"} and a.starts_at_record,
            Choice.RESTORE_SECTION, _LOST),
        _Row("unclear section", lambda a: "with" in a.limits, Choice.ASK_LIMITS,
            "some limits contain the recorded nodes, which the ledger may have as baselines"),
        _Row("changed limits", lambda a: set(a.limits) == {"neither"} and a.has_other_sections,
            Choice.ASK_LIMITS, "another instance may have taken the changed limits for baselines"),
        _Row("unwritten section", lambda a: True, Choice.USE, "no limit contains the nodes"),
    ),
    Named.REGISTRY: (
        _Row("section of others", lambda a: a.recorded.sections and not a.recorded_own, Choice.ASK,
            "the next run of the lending instance may write it again", OTHER_LEDGER_LOST),
        _Row("copy without ledger", lambda a: a.is_copy and a.current.is_empty, Choice.ASK,
            "the last run recorded these limits but did not write them"),
        _Row("copy with ledger", lambda a: a.is_copy, Choice.ASK,
            "the last run recorded these limits but did not write them", NOT_OF_THIS_TEXT),
        _Row("newer ledger", lambda a: a.may_be_newer and a.older_total, Choice.ASK_TOTAL,
            "the ledger in the ConfigMap has a limit of this text as an earlier total"),
        _Row("lost ledger", lambda a: a.current.is_empty, Choice.RESTORE, _LOST),
        _Row("older ledger", lambda a: True, Choice.RESTORE,
            "the ledger in the ConfigMap is older than its limits: dnm writes the ledger of the "
            "last run again"),
    ),
    Named.LOST: (
        _Row("first text", lambda a: a.is_first_text and set(a.limits) <= {"without"}, Choice.START,
            "the text is the one before the first lend"),
        _Row("first manifest", lambda a: a.is_first_text and not a.is_by_dnm, Choice.START,
            "another client wrote the text before the first lend again"),
        _Row("return by others", lambda a: set(a.limits) == {"without"} and not a.recorded_own,
            Choice.START, "only other instances lent, and their nodes are returned"),
        _Row("unrecorded write", lambda a: a.is_by_dnm and a.recorded.text, Choice.ASK_LIMITS,
            "dnm wrote a text that the last run of this instance did not record"),
        _Row("nothing lent", lambda a: a.recorded.is_empty, Choice.START, "no lends are recorded"),
        _Row("no raised limit", lambda a: a.is_by_others and not a.raises_limits, Choice.START,
            "the recorded nodes raise no limit of this text"),
        _Row("manifest", lambda a: set(a.limits) == {"without"}, Choice.START,
            "all limits are back at their baselines"),
        _Row("new manifest", lambda a: set(a.limits) == {"without", "neither"} and a.lends_alone,
            Choice.START, "a limit is back at its baseline, so the others are new baselines"),
        _Row("unclear limits", lambda a: True, Choice.ASK_LIMITS, "limits may contain nodes"),
    ),
    Named.CHANGED: (
        _Row("newer write", lambda a: a.is_by_dnm and a.current.text, Choice.ASK,
            "the next run of another instance may write it again", NOT_OF_THIS_TEXT),
        _Row("foreign ledger", lambda a: a.is_ledger_by_others, Choice.ASK,
            "another client than dnm wrote it", NOT_OF_THIS_TEXT),
        _Row("recorded ledger", lambda a: a.recorded == a.current, Choice.COMPARE,
            "the last run recorded this ledger"),
        _Row("blank record", lambda a: a.recorded == Ledger() and (a.own or not a.lenders),
            Choice.COMPARE, "nothing is recorded, and the ledger is not that of other instances"),
        _Row("unrecorded ledger", lambda a: True, Choice.ASK,
            "it differs from the ledger that the last run recorded", NOT_OF_THIS_TEXT),
    ),
}  # fmt: skip
# START and COMPARE take changed limits for new values, unless one of these rows applies.
CHECKS = (
    _Row("older export", lambda a: a.older_total, Choice.ASK_TOTAL,
        "a changed limit equals a total that dnm wrote earlier"),
    _Row("partial manifest", lambda a: a.named is Named.CHANGED and is_applied(a.document.source)
        and set(a.limits) == {"with", "without"}, Choice.ASK_LIMITS,
        "only some limits contain lent nodes", "a manifest was applied"),
)  # fmt: skip


class ChosenLedger(NamedTuple):
    """The ledger that an edit starts from. `notes` give the reason if it is not the ConfigMap's."""

    ledger: Ledger
    notes: tuple[str, ...] = ()


def choose_ledger(a: Authorship) -> ChosenLedger:
    """Returns the ledger that describes the limits. Raises QueueError to ask the administrator."""
    row = find_row(a)
    if row.choice is Choice.ASK:
        raise undecided(row.why, row.problem)
    if row.choice is Choice.ASK_LIMITS:
        raise undecided(why_mixed(a.document.tree, a.limits), row.problem)
    if row.choice is Choice.ASK_TOTAL and a.older_total:
        raise older_total(*a.older_total)
    if row.choice is Choice.RESTORE:
        return with_totals(ChosenLedger(a.recorded, (row.why,)), a.recorded)
    if row.choice is Choice.RESTORE_SECTION:
        return with_totals(ChosenLedger(a.with_section(), (row.why,)), a.recorded)
    return with_totals(ChosenLedger(a.current), a.recorded)


def find_row(a: Authorship) -> _Row:
    """Returns the first row of `TABLE` that applies, or a row of `CHECKS` that overrides it."""
    row = next(row for row in TABLE[a.named] if row.applies(a))
    checks = CHECKS if row.choice in (Choice.START, Choice.COMPARE) else ()
    return next((check for check in checks if check.applies(a)), row)


def with_totals(chosen: ChosenLedger, recorded: Ledger) -> ChosenLedger:
    """Returns the chosen ledger, with those hashes of earlier totals that only the registry's copy
    (`recorded`) has."""
    totals, kept = all_totals(chosen.ledger), chosen.ledger.totals
    more = [total for total in all_totals(recorded) if total not in totals]
    free = MOST_TOTALS - len(kept)
    if not more or free <= 0:
        return chosen
    ledger = replace(chosen.ledger, totals=(*more[-free:], *kept))
    return ChosenLedger(ledger, chosen.notes)


def _find_managers(source: SourceDocument) -> tuple[set[str], set[str], set[str]]:
    """Returns the field managers (writers) of the ConfigMap, of the document and of the ledger."""
    owners = source.config_map.owners if source.config_map else ()
    of_text = {owner.manager for owner in owners if source.key in owner.keys}
    of_ledger = {owner.manager for owner in owners if LEDGER_ANNOTATION in owner.annotations}
    return {owner.manager for owner in owners}, of_text, of_ledger


def name_authors(source: SourceDocument) -> str:
    """Returns the names of the clients other than dnm that wrote the document."""
    return ", ".join(sorted(_find_managers(source)[1] - {_DNM_MANAGER})) or "another client"


def is_applied(source: SourceDocument) -> bool:
    """Returns whether the text comes unchanged from an administrator's manifest. An export of the
    cluster's object has the ledger in it and does not count: its numbers contain lent nodes."""
    config_map = source.config_map
    return config_map is not None and (
        _is_last_applied(config_map, source)
        or any(_is_manifest_owner(owner, source.key) for owner in config_map.owners)
    )


def _is_last_applied(config_map: ConfigMap, source: SourceDocument) -> bool:
    try:
        manifest = json.loads(config_map.annotations.get(_LAST_APPLIED, "null"))
        field = "binaryData" if source.is_gzip else "data"
        stored = (config_map.binary_data if source.is_gzip else config_map.data)[source.key]
        annotations = manifest["metadata"].get("annotations") or {}
        is_same: bool = manifest[field][source.key] == stored
        return is_same and LEDGER_ANNOTATION not in annotations
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _is_manifest_owner(owner: FieldOwner, key: str) -> bool:
    return (
        key in owner.keys
        and LEDGER_ANNOTATION not in owner.annotations
        and (owner.operation == "Apply" or owner.manager in REPLACING_MANAGERS)
    )
