"""The next queue document and its ledger, given what serves now. Pure and level-triggered: equal
input gives equal output, and where nothing has to change the texts come back byte for byte.

Every limit is compared three ways (`baselines.py`); the new limit is the baseline plus what all
instances lend, along the queue's whole path, as far as the tree allows it (`new_limits.py`). An
edit is first foreseen: decided, and judged as a tree. Only the one that will be written is also
read again as a text.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError, format_yunikorn, parse_yunikorn
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.queue_path import may_edit
from dnm.model.value import Resources, Value
from dnm.queues.baselines import Baseline, compare, current, recover
from dnm.queues.document import QueueDocument, read_document
from dnm.queues.edit_report import changes_of, held_of, limits_of, notes_of, numbers_of
from dnm.queues.ledger import (
    Ledger,
    LedgerEntry,
    Lent,
    Section,
    encode_ledger,
    lent_amounts,
    sum_resources,
)
from dnm.queues.new_limits import fit_limits
from dnm.queues.source import LEDGER_ANNOTATION, SourceDocument
from dnm.queues.text_edit import EditedText, read_again, replace_limits
from dnm.queues.tree import DocumentTree, LimitPlace, without_collection
from dnm.queues.validation import validate

ANNOTATIONS_LIMIT = 256 * 1024  # bytes, keys and values of all annotations of an object
DATA_LIMIT = 1024 * 1024  # bytes, of a ConfigMap's data


class ForeseenEdit(Value):
    """An edit that is decided and judged, but whose text has not been read again (`text` None: it
    does not change). The `limits` of `edit` are those that stand there now; `fixed` in them are
    those that a person set below what is lent."""

    wants: QueueWants
    edit: QueueEdit
    text: EditedText | None = None
    frozen: frozenset[LimitPlace] = frozenset()


def edit_document(
    document: QueueDocument, wants: QueueWants, foreseen: ForeseenEdit | None = None
) -> QueueEdit:
    """Returns the next document and ledger, which hold what `wants` says; a refusal instead of an
    exception for documents that can't be edited. `foreseen`: an earlier look at the same document,
    which is used if it was for the same wants."""
    if foreseen is None or foreseen.wants != wants:
        foreseen = foresee_edit(document, wants)
    return prove(document, foreseen)


def edit_source(
    source: SourceDocument, wants: QueueWants, planned: QueueEdit | None = None
) -> QueueEdit:
    """Returns the edit of a document that was read just now: the planned one where it was planned
    on this very state of it, else one made anew. Raises QueueError for a document that YuniKorn
    could not read."""
    version = source.version
    if planned is not None and version is not None and planned.planned_on == version:
        return planned
    return edit_document(read_document(source), wants)


@without_collection()
def foresee_edit(document: QueueDocument, wants: QueueWants) -> ForeseenEdit:
    """Decides an edit without reading its text again."""
    try:
        refusal = document.ledger_problem or document.refusal
        if refusal:
            raise QueueError(refusal)
        known = compare(document.tree, document.ledger)
        if wants.instance_id not in document.ledger.sections:
            known = recover(document.tree, known, wants)
        return foresee(document, document.ledger, known, wants)
    except (QueueError, QuantityError) as error:
        return ForeseenEdit(wants=wants, edit=refused_edit(document, str(error)))


def why_no_shrink(document: QueueDocument, foreseen: ForeseenEdit) -> str:
    """Returns why not even limits without anything lent could be written; empty: they could. A
    document that refuses to grow (its ledger is full) may still shrink."""
    if not foreseen.edit.refusal:
        return ""
    nothing_lent = msgspec.structs.replace(foreseen.wants, nodes={})
    return foresee_edit(document, nothing_lent).edit.refusal


def refused_edit(document: QueueDocument, refusal: str) -> QueueEdit:
    """Returns the edit that leaves everything as it is, and says why."""
    source = document.source
    return QueueEdit(
        text=source.text, ledger=source.ledger_text, refusal=refusal, limits=document.limits
    )


@without_collection()
def prove(document: QueueDocument, foreseen: ForeseenEdit) -> QueueEdit:
    """Returns the foreseen edit after its text has been read again: it must be the same document
    but for the numbers that were to change."""
    if foreseen.text is None:
        return foreseen.edit
    try:
        after = read_again(foreseen.text)
    except QueueError as error:
        return refused_edit(document, str(error))
    limits = limits_of(after.queues, foreseen.frozen)
    edit: QueueEdit = msgspec.structs.replace(foreseen.edit, limits=limits)
    return edit


# --- what it must say ------------------------------------------------------------------------


def foresee(
    document: QueueDocument,
    ledger: Ledger,
    known: Mapping[LimitPlace, Baseline],
    wants: QueueWants,
) -> ForeseenEdit:
    """Decides the edit over these baselines. Raises QueueError and QuantityError where there is
    none."""
    source, tree = document.source, document.tree
    sections = dict(ledger.sections)
    sections.pop(wants.instance_id, None)
    own = own_section(ledger, wants)
    if own.queues:
        sections[wants.instance_id] = own
    lent = lent_amounts(sections.values())
    frozen = frozenset(
        place for place, baseline in known.items() if baseline.is_frozen and lent.at(place)
    )
    targets = {
        place: baseline.amount + lent.at(place)
        for place, baseline in known.items()
        if place not in frozen
    }
    edited, texts, held = _fit_validly(tree, known, targets, wants)
    entries = _entries(tree, known, lent, texts)
    new_ledger = Ledger(sections=sections, entries=entries, frozen=frozen)
    ledger_text = source.ledger_text
    if document.ledger_problem or new_ledger != document.ledger:
        ledger_text = encode_ledger(new_ledger)
    text = edited.text if edited else source.text
    _check_size(source, text, ledger_text)
    edit = QueueEdit(
        text=text,
        ledger=ledger_text,
        planned_on=source.version,
        is_changed=text != source.text or ledger_text != source.ledger_text,
        changes=changes_of(tree, texts),
        notes=notes_of(tree, known, lent),
        held=held_of(tree, held, frozen, wants),
        numbers=numbers_of(tree, known, texts, sections, wants.instance_id),
        limits=limits_of(document.limits, frozen),
    )
    return ForeseenEdit(wants=wants, edit=edit, text=edited, frozen=frozen)


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


def _fit_validly(
    tree: DocumentTree,
    known: Mapping[LimitPlace, Baseline],
    targets: Mapping[LimitPlace, int],
    wants: QueueWants,
) -> tuple[EditedText | None, dict[LimitPlace, str], dict[LimitPlace, str]]:
    """The new text, its new numbers and what was held; at least without growing guarantees the
    result is valid, or nothing is done."""
    without = dict(targets)
    for place in targets:
        if place.kind == "guaranteed":
            without[place] = min(targets[place], current(tree, place)[1])
    problem = ""
    for attempt in (targets, without):
        fitted = fit_limits(tree, attempt, wants.floors)
        texts = {
            place: _text_for(place, amount, known[place])
            for place, amount in fitted.amounts.items()
        }
        if not texts:
            return None, {}, dict(fitted.held)
        edited = replace_limits(tree, texts)
        violations = validate(edited.scheduler)
        if not violations:
            held = dict(fitted.held)
            for place in attempt:
                if attempt[place] < targets[place]:
                    held[place] = f"guaranteed {place.resource} does not grow along: {problem}"
            return edited, texts, held
        problem = violations[0].message
    raise QueueError(
        f"no valid edit of the queue document was found: {problem}; give the queue's ancestors the "
        "room that its lent nodes need, or take their limits out"
    )


def _text_for(place: LimitPlace, amount: int, baseline: Baseline) -> str:
    """The baseline's own characters where that is the amount, else in its style."""
    if amount == baseline.amount:
        return baseline.text
    return format_yunikorn(place.resource, amount, baseline.text)


def _entries(
    tree: DocumentTree,
    known: Mapping[LimitPlace, Baseline],
    lent: Lent,
    texts: Mapping[LimitPlace, str],
) -> dict[LimitPlace, LedgerEntry]:
    """Of every limit that what is lent moves, or that is still held away from its baseline."""
    entries = {}
    for place, baseline in known.items():
        written = texts.get(place, tree.places[place].text)
        if lent.at(place) or parse_yunikorn(place.resource, written) != baseline.amount:
            entries[place] = LedgerEntry(baseline.text, written)
    return entries


def _check_size(source: SourceDocument, text: str, ledger: str) -> None:
    config_map = source.config_map
    if config_map is None:
        return
    annotations = {**config_map.annotations, LEDGER_ANNOTATION: ledger}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT and len(ledger) > len(source.ledger_text):
        raise QueueError(
            f"the ledger would need {len(ledger)} bytes and the annotations of the ConfigMap "
            f"{size}, Kubernetes allows {ANNOTATIONS_LIMIT}: no more nodes are counted until some "
            "are returned; `kubectl apply --server-side` keeps no copy of the manifest there"
        )
    data = {**config_map.data} if source.is_gzip else {**config_map.data, source.key: text}
    size = sum(len(value.encode()) for value in data.values())
    if size > DATA_LIMIT and len(text) > len(source.text):
        raise QueueError(
            f"the ConfigMap would hold {size} bytes, Kubernetes allows {DATA_LIMIT}; move the "
            "queues into binaryData as queues.yaml.gz"
        )
