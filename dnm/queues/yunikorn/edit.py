"""The next queue document and its ledger, computed from the nodes that serve now. Equal input gives
equal output, and if nothing has to change, the texts are returned byte for byte.

dnm first projects an edit: it decides the numbers (`limits.py`) and checks the resulting tree
against YuniKorn's rules. It parses the text of an edit again only before it writes that edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dnm.host.collection import without_collection
from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError
from dnm.model.queue_edit import Projection, QueueEdit, QueueWants
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
    """An edit with decided and valid numbers. `text` has not been parsed again (None: no change),
    so the `limits` of `edit` are still the current ones. `fixed`: limits that lending does not
    raise, because an administrator set them below the lent amount or closed the queue."""

    text: EditedText | None = None
    fixed: frozenset[LimitPlace] = frozenset()


def edit_document(
    document: QueueDocument, wants: QueueWants, projected: ProjectedEdit | None = None
) -> QueueEdit:
    """Returns the next document and ledger for `wants`, or an edit with a refusal if there is none.
    `projected`: an earlier projection for this document, which is used if it was made for equal
    `wants`."""
    if projected is None or projected.wants != wants:
        projected = compute_edit(document, wants)
    return prove(document, projected)


def edit_source(
    source: SourceDocument, wants: QueueWants, planned: QueueEdit | None = None
) -> QueueEdit:
    """Returns the edit of a document that was just read: `planned` if it was planned on the same
    version, otherwise a new edit. Raises QueueError for a document that YuniKorn could not read."""
    version = source.version
    if planned is not None and version is not None and planned.planned_on == version:
        return planned
    return edit_document(read_document(source), wants)


@without_collection()
def compute_edit(document: QueueDocument, wants: QueueWants) -> ProjectedEdit:
    """Returns an edit before its new text is parsed again, or an edit with a refusal."""
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
    """Returns why dnm cannot add more nodes of these sizes to the queue's limits, with the line and
    the next step. The planner asks before it converts a node."""
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
    """Returns why dnm could not write the limits even if all nodes were returned. A document with a
    full ledger cannot grow, but may still shrink."""
    if not projected.edit.refusal:
        return None
    nothing_lent = msgspec.structs.replace(projected.wants, nodes={})
    return limits_objection(compute_edit(document, nothing_lent).edit.refusal)


@without_collection()
def prove(document: QueueDocument, projected: ProjectedEdit) -> QueueEdit:
    """Parses the new text of a projected edit and returns the edit. It has a refusal if the text
    differs from the old one in more than the intended numbers."""
    if projected.text is None:
        return projected.edit
    try:
        after = read_again(projected.text)
    except QueueError as error:
        return unchanged_edit(document, refusal=str(error))
    limits = notices.limits_of(after.queues, projected.fixed) if projected.fixed else after.queues
    edit: QueueEdit = msgspec.structs.replace(projected.edit, limits=limits)
    return edit


# --- the numbers and the ledger of the next document -----------------------------------------


def project_edit(
    document: QueueDocument,
    chosen: ChosenLedger,
    baselines: Mapping[LimitPlace, Baseline],
    wants: QueueWants,
) -> ProjectedEdit:
    """Computes an edit from these baselines. If the limits cannot contain all nodes of this
    instance, only the nodes that the ledger has already are counted, so that limits can still
    shrink. Raises QueueError if no edit is possible."""
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
    """The nodes of this instance that the edit counts in limits. `waiting` maps the queues of its
    other nodes to the reason why these do not count."""

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
    edit = QueueEdit(
        text=text,
        ledger=ledger_text,
        noted=noted,
        planned_on=source.version,
        reset_by=name_authors(source) if _is_reset(baselines, texts) else "",
        is_changed=text != source.text or ledger_text != source.ledger_text,
        changes=edit_report.changes_of(tree, texts, baselines, (ledger.sections, sections)),
        notes=chosen.notes + tuple(change.note for change in news),
        news=news,
        held=notices.held_of(tree, held, frozen, wants, blocked) if is_held else {},
        blocked=blocked,
        uncounted=waiting,
        numbers=numbers_of(tree, amounts, texts, sections, wants.instance_id),
        limits=notices.limits_of(document.limits, aim.fixed) if aim.fixed else document.limits,
    )
    return ProjectedEdit(wants=wants, edit=edit, text=edited, fixed=aim.fixed)


def _is_reset(baselines: Mapping[LimitPlace, Baseline], texts: Mapping[LimitPlace, str]) -> bool:
    """Returns whether another client has set limits back to their baselines, has changed no other
    limit, and the edit raises them again."""
    news = {baseline.news for baseline in baselines.values()} - {""}
    return news == {"reapplied"} and any(baselines[place].news for place in texts)


def _find_valid_edit(
    tree: DocumentTree,
    baselines: Mapping[LimitPlace, Baseline],
    targets: Mapping[LimitPlace, int],
    wants: QueueWants,
) -> tuple[EditedText | None, dict[LimitPlace, str], dict[LimitPlace, str]]:
    """Returns the new text, its new numbers, and the limits that miss their targets. If the result
    is invalid, a second try raises no guarantees. Raises QueueError if that is invalid too."""
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
    """Returns an amount as text in the style of the baseline. An amount that equals the baseline
    has the baseline's characters. The spaces around the current number stay."""
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
    baseline. While nodes are lent, limits that were removed from the document keep their entries,
    so that dnm recognizes them if they reappear."""
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
    """Returns the hashes of earlier amounts that contained lent nodes, the newest last. The current
    amounts and the baselines are not among them."""
    settled = {
        total_hash(place, baseline.amount)
        for place, baseline in baselines.items()
        if place not in entries
    }
    changed = sorted(place for place, baseline in baselines.items() if baseline.news == "changed")
    seen = dict.fromkeys(total_hash(place, current(tree, place)[1]) for place in changed)
    removed = settled | current_totals(entries).keys()
    return tuple(total for total in all_totals(ledger) | seen if total not in removed)
