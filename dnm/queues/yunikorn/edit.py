"""The next queue document and its ledger, computed from the nodes that serve now. Equal input gives
equal output, and if nothing has to change, the texts are returned byte for byte.

dnm first projects (drafts) an edit: it decides the numbers (`limits.py`) and checks them against
YuniKorn's rules. Only before a write does it parse the resulting text again, as a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dnm.host.collection import without_collection
from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError
from dnm.model.queue_edit import Projection, QueueWants
from dnm.model.value import Resources
from dnm.model.verdict import Objection, limits_objection
from dnm.queues.yunikorn import edit_report, notices
from dnm.queues.yunikorn.authors import (
    Authorship,
    ChosenLedger,
    choose_ledger,
    is_applied,
    name_authors,
)
from dnm.queues.yunikorn.document import (
    QueueDocument,
    is_settled,
    numbers_of,
    read_document,
    settled_edit,
    unchanged_edit,
)
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.ledger import (
    Ledger,
    LedgerEntry,
    LentAmounts,
    Section,
    all_totals,
    checksum,
    current_totals,
    encode_ledger,
    total_hash,
)
from dnm.queues.yunikorn.limits import Baseline, aim_at, compare, current, fit_limits, own_section
from dnm.queues.yunikorn.quantities import format_yunikorn, parse_yunikorn
from dnm.queues.yunikorn.source import SourceDocument, check_size
from dnm.queues.yunikorn.text_edit import EditedText, read_again, replace_limits
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace
from dnm.queues.yunikorn.unsettled import hold_back, only_recorded

_PROJECTED_NODE = "a-node-that-is-to-come-"


class ProjectedEdit(Projection):
    """An edit with decided and valid numbers. Its new `text` (None: no change) is not parsed yet,
    so the `limits` of `edit` are still the current ones. `fixed`: limits to which lending adds
    nothing, because an administrator set them below the lent amount or closed the queue."""

    edit: DocumentEdit
    text: EditedText | None = None
    fixed: frozenset[LimitPlace] = frozenset()


def edit_document(
    document: QueueDocument, wants: QueueWants, projected: ProjectedEdit | None = None
) -> DocumentEdit:
    """Returns the next document and ledger for the nodes in `wants`, or an edit with a refusal if
    there is none. `projected`: an earlier draft for this document, which is used if it was made for
    equal `wants`."""
    if projected is None or projected.wants != wants:
        projected = compute_edit(document, wants)
    return prove(document, projected)


def edit_source(
    source: SourceDocument, wants: QueueWants, planned: DocumentEdit | None = None
) -> DocumentEdit:
    """Returns the edit of a document that was just read: `planned` if it was planned for this
    version, otherwise a new edit. Raises QueueError if YuniKorn could not read the document."""
    if planned and planned.planned_on and planned.planned_on == source.version:
        return planned
    return edit_document(read_document(source), wants)


@without_collection()
def compute_edit(document: QueueDocument, wants: QueueWants) -> ProjectedEdit:
    """Returns the draft of an edit, with a text that is not parsed again, or with a refusal."""
    try:
        if refusal := document.ledger_problem or document.refusal:
            raise QueueError(refusal)
        authorship = None if is_settled(document, wants) else Authorship(document, wants)
        if authorship is None or authorship.belongs_to_other_instance:
            return ProjectedEdit(wants=wants, edit=settled_edit(document, wants))
        chosen = choose_ledger(authorship)
        baselines = compare(document.tree, chosen.ledger, is_applied(document.source))
        return project_edit(document, chosen, baselines, wants)
    except (QueueError, QuantityError) as error:
        return ProjectedEdit(wants=wants, edit=unchanged_edit(document, refusal=str(error)))


def why_no_growth(
    document: QueueDocument, wants: QueueWants, queue: str, sizes: Sequence[Resources]
) -> Objection | None:
    """Returns why dnm cannot add more nodes of these sizes to the queue's limits, with line and
    next step, or None. The planner calls this before it lends a node."""
    nodes = dict(wants.nodes.get(queue, {}))
    nodes |= {f"{_PROJECTED_NODE}{number}": size for number, size in enumerate(sizes)}
    is_first = wants.remembered is None and not any(wants.nodes.values())
    more = msgspec.structs.replace(
        wants,
        nodes={**wants.nodes, queue: nodes},
        remembered="" if is_first else wants.remembered,
    )
    edit = compute_edit(document, more).edit
    return limits_objection(edit.refusal or edit.uncounted.get(queue))


def shrink_refusal(document: QueueDocument, projected: Projection) -> Objection | None:
    """Returns why dnm could not write the limits even if all nodes were returned, or None. For
    example, a document with a ledger of the maximum size cannot grow, but can shrink."""
    if not projected.edit.refusal:
        return None
    nothing_lent = msgspec.structs.replace(projected.wants, nodes={})
    return limits_objection(compute_edit(document, nothing_lent).edit.refusal)


@without_collection()
def prove(document: QueueDocument, projected: ProjectedEdit) -> DocumentEdit:
    """Parses the new text of a drafted edit and returns the edit. It becomes a refusal if the text
    differs from the old one in more than the intended numbers."""
    if projected.text is None:
        return projected.edit
    try:
        after = read_again(projected.text)
    except QueueError as error:
        return unchanged_edit(document, refusal=str(error))
    limits = notices.limits_of(after.queues, projected.fixed) if projected.fixed else after.queues
    return msgspec.structs.replace(projected.edit, limits=limits)


# --- the numbers and the ledger of the next document -----------------------------------------


def project_edit(
    document: QueueDocument,
    chosen: ChosenLedger,
    baselines: Mapping[LimitPlace, Baseline],
    wants: QueueWants,
) -> ProjectedEdit:
    """Drafts the edit for these baselines. If the limits cannot contain all nodes of this instance,
    it counts only the nodes that are in the ledger already, so that limits can still shrink. Raises
    QueueError if no edit is possible."""
    own = own_section(chosen.ledger, wants)
    try:
        return _project_edit(document, chosen, baselines, wants, _Counted(own))
    except QueueError as error:
        less = only_recorded(own, chosen.ledger.of(wants.instance_id))
        if less == own:
            raise
        waiting = {
            queue: str(error)
            for queue in own.queues
            if own.queues[queue] != less.queues.get(queue, {})
        }
        return _project_edit(document, chosen, baselines, wants, _Counted(less, waiting))


class _Counted(NamedTuple):
    """The nodes of this instance that an edit adds to limits. `waiting`: queues with nodes that it
    cannot add, each with the reason."""

    own: Section
    waiting: Mapping[str, str] = {}


def _project_edit(
    document: QueueDocument,
    chosen: ChosenLedger,
    baselines: Mapping[LimitPlace, Baseline],
    wants: QueueWants,
    counted: _Counted,
) -> ProjectedEdit:
    source, tree, ledger = document.source, document.tree, chosen.ledger
    own, waiting = counted
    aim = aim_at(tree, ledger, baselines, wants.instance_id, own)
    if aim.stuck:
        own, held_back = hold_back(own, ledger.of(wants.instance_id), aim.stuck)
        waiting = {**held_back, **waiting}
        aim = aim_at(tree, ledger, baselines, wants.instance_id, own)
    sections, lent, frozen = aim.sections, aim.lent, aim.frozen
    edited, texts, held = _find_valid_edit(tree, baselines, aim.targets, wants)
    entries = _entries(tree, ledger, baselines, lent, texts)
    text = edited.text if edited else source.text
    new_ledger = Ledger(
        sections=sections,
        entries=entries,
        frozen=frozen,
        text=checksum(text),
        origin=checksum(source.text) if ledger.is_empty else ledger.origin,
        totals=_totals(tree, ledger, baselines, entries),
    )
    noted = source.ledger_text
    if document.ledger_problem or new_ledger != document.ledger:
        noted = encode_ledger(new_ledger)
    ledger_text = "" if new_ledger.is_empty else noted  # no annotation is left behind
    check_size(source, text, ledger_text)
    blocked = notices.blocked_of(aim.stuck, waiting) if aim.stuck or waiting else {}
    is_held = held or frozen or blocked or wants.nodes.keys() - tree.queues.keys()
    amounts = {place: baseline.amount for place, baseline in baselines.items()}
    news = notices.news_of(tree, baselines, lent) if any(b.news for b in baselines.values()) else ()
    edit = DocumentEdit(
        text=text,
        ledger=ledger_text,
        record=noted,
        planned_on=source.version,
        reset_by=name_authors(source) if _is_reset(baselines, texts) else "",
        is_changed=text != source.text or ledger_text != source.ledger_text,
        changes=edit_report.changes_of(tree, texts, baselines, (ledger.sections, sections)),
        limit_news=news,
        ledger_news=chosen.notes,
        held=notices.held_of(tree, held, frozen, wants, blocked) if is_held else {},
        blocked=blocked,
        uncounted=waiting,
        numbers=numbers_of(tree, amounts, texts, sections, wants.instance_id),
        limits=notices.limits_of(document.limits, aim.fixed) if aim.fixed else document.limits,
    )
    return ProjectedEdit(wants=wants, edit=edit, text=edited, fixed=aim.fixed)


def _is_reset(baselines: Mapping[LimitPlace, Baseline], texts: Mapping[LimitPlace, str]) -> bool:
    """Returns whether another client has set limits back to their baselines and changed no other
    limit, so that the edit adds the lent nodes again."""
    news = {baseline.news for baseline in baselines.values()} - {""}
    return news == {"reapplied"} and any(baselines[place].news for place in texts)


def _find_valid_edit(
    tree: DocumentTree,
    baselines: Mapping[LimitPlace, Baseline],
    targets: Mapping[LimitPlace, int],
    wants: QueueWants,
) -> tuple[EditedText | None, dict[LimitPlace, str], dict[LimitPlace, str]]:
    """Returns the new text, its new numbers, and why limits miss their targets. If the result
    breaks rules, tries again without higher guarantees. Raises QueueError if that fails too."""
    without = {
        place: min(target, current(tree, place)[1]) if place.kind == "guaranteed" else target
        for place, target in targets.items()
    }
    problem = ""
    for attempt in (targets, without):
        amounts, held = fit_limits(tree, attempt, wants.floors)
        texts = {
            place: _text_for(tree, place, amount, baselines[place])
            for place, amount in amounts.items()
        }
        if not texts:
            return None, {}, held
        edited = replace_limits(tree, texts)
        if not edited.violations:
            for place in attempt:
                if attempt[place] < targets[place]:
                    held[place] = f"guaranteed {place.resource} does not grow: {problem}"
            return edited, texts, held
        problem = edited.violations[0].message
    raise QueueError(
        f"no valid edit of the queue document was found: {problem}. Raise the limits of the "
        "queue's ancestors by the size of its lent nodes, or remove these limits"
    )


def _text_for(tree: DocumentTree, place: LimitPlace, amount: int, baseline: Baseline) -> str:
    """Returns the new text of a limit, in the unit and style of its baseline. An amount that equals
    the baseline gets the baseline's characters. Spaces around the number stay."""
    text = baseline.text
    if amount != baseline.amount:
        text = format_yunikorn(place.resource, amount, text)
    now = tree.places[place].text
    return now.replace(now.strip(), text.strip())


def _entries(
    tree: DocumentTree,
    ledger: Ledger,
    baselines: Mapping[LimitPlace, Baseline],
    lent: LentAmounts,
    texts: Mapping[LimitPlace, str],
) -> dict[LimitPlace, LedgerEntry]:
    """Returns a ledger entry for each limit that lent nodes change or that differs from its
    baseline. While nodes are lent, a limit that was removed from the document keeps its entry, so
    that dnm recognizes it if it reappears."""
    entries = {
        place: entry
        for place, entry in ledger.entries.items()
        if place not in tree.places and lent.at(place)
    }
    for place, baseline in baselines.items():
        written = texts.get(place, tree.places[place].text)
        if lent.at(place) or parse_yunikorn(place.resource, written) != baseline.amount:
            entries[place] = LedgerEntry(baseline.text, written)
    return entries


def _totals(
    tree: DocumentTree,
    ledger: Ledger,
    baselines: Mapping[LimitPlace, Baseline],
    entries: Mapping[LimitPlace, LedgerEntry],
) -> tuple[str, ...]:
    """Returns hashes of earlier amounts that contained lent nodes, the newest last, so that dnm
    recognizes these amounts. Current amounts and baselines are not among them."""
    settled = {
        total_hash(place, baseline.amount)
        for place, baseline in baselines.items()
        if place not in entries
    }
    changed = sorted(place for place, baseline in baselines.items() if baseline.news == "changed")
    seen = dict.fromkeys(total_hash(place, current(tree, place)[1]) for place in changed)
    removed = settled | current_totals(entries).keys()
    return tuple(total for total in all_totals(ledger) | seen if total not in removed)
