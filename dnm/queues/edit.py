"""What the queue document and its ledger must be, given what serves now. Pure and level-triggered:
equal input gives equal output, and where nothing has to change the texts come back byte for byte.

Every limit is compared three ways: what stands there, what was last written, and the baseline.
As written: nobody touched it. Back at the baseline: a manifest was applied again, what is lent is
added again. Anything else: a person's new total, the baseline follows from it. The new limit is the
baseline plus what all instances lend, along the queue's whole path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.errors import QueueError
from dnm.model.quantity import INT64_MAX, QuantityError, format_yunikorn, parse_yunikorn
from dnm.model.queue_path import may_edit
from dnm.model.registry import QueueStatus
from dnm.model.value import Resources, Value
from dnm.queues.baselines import Baseline, Reading, compare, current, declared, recover
from dnm.queues.document import (
    LEDGER_ANNOTATION,
    LimitPlace,
    QueueDocument,
    SourceDocument,
    check_rules,
    parse_document,
    replace_limits,
    without_collection,
)
from dnm.queues.ledger import (
    Entry,
    Ledger,
    Lent,
    Section,
    decode_ledger,
    encode_ledger,
    lent_amounts,
    sum_resources,
)
from dnm.queues.new_limits import settle

ANNOTATIONS_LIMIT = 256 * 1024  # bytes, keys and values of all annotations of an object
DATA_LIMIT = 1024 * 1024  # bytes, of a ConfigMap's data


class QueueWants(Value):
    """What one instance wants of the document.

    `nodes`: queue -> node -> recorded size, of exactly the nodes that serve it now. `floors`: queue
    -> what its max must not shrink below (allocated now, the largest gang application), for queues
    above it too. `remembered`: the queues as the last run of this instance saw them; only asked
    when its part of the ledger is lost.
    """

    instance_id: str
    nodes: Mapping[str, Mapping[str, Resources]] = {}
    floors: Mapping[str, Resources] = {}
    remembered: Mapping[str, QueueStatus] = {}
    adjust_guaranteed: bool = True
    allowed_prefixes: tuple[str, ...] = ()  # lower case; empty: every queue


class LimitChange(Value):
    """One number of the document as it was and as it will be."""

    queue: str
    kind: str  # max | guaranteed
    resource: str
    before: str
    after: str


class QueueNumbers(Value):
    """One queue after the edit. limit = baseline + lent + others for what it limits, but for what
    `held` explains."""

    limit: Mapping[str, int] = {}
    baseline: Mapping[str, int] = {}
    lent: Mapping[str, int] = {}  # by this instance, below it too
    others: Mapping[str, int] = {}  # by other instances


class QueueEdit(Value):
    """`is_changed`: something has to be written. `refusal`: nothing may be, and what a person can
    do about it. `held`: queue -> why its limit is not where it would be. `notes`: what others did
    to the document."""

    text: str
    ledger: str
    is_changed: bool = False
    changes: tuple[LimitChange, ...] = ()
    notes: tuple[str, ...] = ()
    held: Mapping[str, str] = {}
    refusal: str = ""
    numbers: Mapping[str, QueueNumbers] = {}
    frozen: frozenset[LimitPlace] = frozenset()


@without_collection()
def plan_queue_edit(source: SourceDocument, wants: QueueWants) -> QueueEdit:
    """The document and ledger that hold what `wants` says; a refusal instead of an exception for
    documents that can't be read or edited."""
    try:
        document = parse_document(source.text)
        ledger = decode_ledger(source.ledger_text)
        refusal = source.refusal or document.refusal or _why_invalid(document)
        if refusal:
            raise QueueError(refusal)
        lent = lent_amounts(ledger.sections.values())
        known = compare(document, ledger, lent)
        if wants.instance_id not in ledger.sections:
            known = _recover(document, known, wants)
        return _edit(source, document, ledger, known, wants)
    except (QueueError, QuantityError) as error:
        return QueueEdit(text=source.text, ledger=source.ledger_text, refusal=str(error))


def plan_rebase(
    source: SourceDocument,
    wants: QueueWants,
    reading: Reading | None,
    queues: Iterable[str] = (),
    forget: str = "",
) -> QueueEdit:
    """The same after a person has said what the limits of these queues (none: of all) contain, if
    he has. With this instance's part of the ledger there, that is said only of limits that somebody
    has changed: of one that stands as it was written, it is known. `forget` drops the section of an
    instance that is no more."""
    try:
        document = parse_document(source.text)
        refusal = source.refusal or document.refusal or _why_invalid(document)
        if refusal:
            raise QueueError(refusal)
        chosen = frozenset(queues)
        unknown = sorted(chosen - document.queues.keys())
        if unknown:
            raise QueueError(f"{', '.join(unknown)}: no queue of the document has this path")
        is_for_all = reading is not None and not chosen
        ledger = _stored_ledger(source.ledger_text) if is_for_all else None
        ledger = ledger or (Ledger() if is_for_all else decode_ledger(source.ledger_text))
        if forget and forget not in ledger.sections.keys() - {wants.instance_id}:
            others = ", ".join(sorted(ledger.sections.keys() - {wants.instance_id})) or "none"
            raise QueueError(f"the ledger has no other instance {forget!r}; it has {others}")
        sections = {name: part for name, part in ledger.sections.items() if name != forget}
        known = compare(document, ledger, lent_amounts(ledger.sections.values()))
        if not is_for_all and wants.instance_id not in ledger.sections:
            known = _recover(document, known, wants)
        own = {wants.instance_id: _own_section(ledger, wants)}
        contained = lent_amounts({**sections, **own}.values())
        is_lost = bool(own[wants.instance_id].queues) and wants.instance_id not in ledger.sections
        for place, baseline in known.items():
            is_asked = is_lost or baseline.news or baseline.is_frozen
            if reading and is_asked and (not chosen or place.queue in chosen):
                known[place] = declared(document, place, reading, contained.at(place))
        kept: Ledger = msgspec.structs.replace(ledger, sections=sections)
        return _edit(source, document, kept, known, wants)
    except (QueueError, QuantityError) as error:
        return QueueEdit(text=source.text, ledger=source.ledger_text, refusal=str(error))


def _recover(
    document: QueueDocument, known: dict[LimitPlace, Baseline], wants: QueueWants
) -> dict[LimitPlace, Baseline]:
    remembered, guaranteed = wants.remembered, wants.adjust_guaranteed
    return recover(document, known, wants.nodes, remembered, guaranteed)


def _why_invalid(document: QueueDocument) -> str:
    violations = check_rules(document)
    if not violations:
        return ""
    first = violations[0]
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return (
        f"YuniKorn refuses the queue document as it stands, line {first.line}: {first.message}"
        f"{more}; `dnm queues check` lists all, mend it first"
    )


# --- what it must say ------------------------------------------------------------------------


def _own_section(ledger: Ledger, wants: QueueWants) -> Section:
    """What this instance lends from now on; queues outside its prefixes stay as recorded."""
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


def _edit(
    source: SourceDocument,
    document: QueueDocument,
    ledger: Ledger,
    known: Mapping[LimitPlace, Baseline],
    wants: QueueWants,
) -> QueueEdit:
    sections = dict(ledger.sections)
    own = _own_section(ledger, wants)
    if own.queues or wants.instance_id in sections:
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
    edited, texts, held = _settle_validly(document, known, targets, wants)
    entries = _entries(document, known, lent, texts)
    new_ledger = Ledger(sections=sections, entries=entries, frozen=frozen)
    ledger_text = source.ledger_text
    if new_ledger != _stored_ledger(ledger_text):
        ledger_text = encode_ledger(new_ledger)
    _check_size(source, edited, ledger_text)
    return QueueEdit(
        text=edited,
        ledger=ledger_text,
        is_changed=edited != source.text or ledger_text != source.ledger_text,
        changes=tuple(
            LimitChange(
                queue=place.queue,
                kind=place.kind,
                resource=place.resource,
                before=document.places[place].text.strip(),
                after=text.strip(),
            )
            for place, text in sorted(texts.items())
        ),
        notes=_notes(document, known, lent),
        held=_held(document, held, frozen, wants),
        frozen=frozen,
        numbers=_numbers(document, known, texts, sections, wants.instance_id),
    )


def _settle_validly(
    document: QueueDocument,
    known: Mapping[LimitPlace, Baseline],
    targets: Mapping[LimitPlace, int],
    wants: QueueWants,
) -> tuple[str, dict[LimitPlace, str], dict[LimitPlace, str]]:
    """The new text, its new numbers and what was held; at least without growing guarantees the
    result is valid, or nothing is done."""
    without = dict(targets)
    for place in targets:
        if place.kind == "guaranteed":
            without[place] = min(targets[place], current(document, place)[1])
    problem = ""
    for attempt in (targets, without):
        settled = settle(document, attempt, wants.floors)
        texts = {
            place: _text_for(place, amount, known[place])
            for place, amount in settled.amounts.items()
        }
        if not texts:
            return document.text, {}, dict(settled.held)
        edited = replace_limits(document, texts)
        violations = check_rules(edited)
        if not violations:
            held = dict(settled.held)
            for place in attempt:
                if attempt[place] < targets[place]:
                    held[place] = f"guaranteed {place.resource} does not grow along: {problem}"
            return edited.text, texts, held
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
    document: QueueDocument,
    known: Mapping[LimitPlace, Baseline],
    lent: Lent,
    texts: Mapping[LimitPlace, str],
) -> dict[LimitPlace, Entry]:
    """Of every limit that what is lent moves, or that is still held away from its baseline."""
    entries = {}
    for place, baseline in known.items():
        written = texts.get(place, document.places[place].text)
        if lent.at(place) or parse_yunikorn(place.resource, written) != baseline.amount:
            entries[place] = Entry(baseline.text, written)
    return entries


def _stored_ledger(text: str) -> Ledger | None:
    try:
        return decode_ledger(text)
    except QueueError:
        return None


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


# --- what is reported ------------------------------------------------------------------------


def _notes(
    document: QueueDocument, known: Mapping[LimitPlace, Baseline], lent: Lent
) -> tuple[str, ...]:
    reapplied: dict[str, list[str]] = {}
    notes = []
    for place, baseline in sorted(known.items()):
        what = f"{place.kind} {place.resource}"
        if baseline.news == "reapplied":
            reapplied.setdefault(place.queue, []).append(what)
        elif baseline.news == "changed" and not baseline.is_frozen:
            text, amount = current(document, place)
            total = text.strip()
            note = (
                f"{place.queue}: {what} was changed to {total}, which is its new total; without "
                f"lent nodes that is {baseline.text.strip()}"
            )
            meant = amount + lent.at(place)
            if meant <= INT64_MAX:
                added = format_yunikorn(place.resource, lent.at(place), text).strip()
                meant_text = format_yunikorn(place.resource, meant, text).strip()
                note += (
                    f". If {total} was meant without them, write {meant_text}: with the {added} "
                    "that is lent now"
                )
            notes.append(note)
    return tuple(
        [
            f"{queue}: back at its baseline ({', '.join(what)}), as after a manifest was applied "
            "again: what is lent is added again"
            for queue, what in sorted(reapplied.items())
        ]
        + notes
    )


def _held(
    document: QueueDocument,
    held: Mapping[LimitPlace, str],
    frozen: Iterable[LimitPlace],
    wants: QueueWants,
) -> dict[str, str]:
    reasons: dict[str, list[str]] = {}
    for place in sorted(frozen):
        reasons.setdefault(place.queue, []).append(
            f"{place.kind} {place.resource} was set to {document.places[place].text.strip()}, less "
            "than what is lent: it stays so until nothing is lent, or say `dnm queues rebase "
            f"--queue {place.queue} --as baseline`"
        )
    for place, reason in sorted(held.items()):
        reasons.setdefault(place.queue, []).append(reason)
    for queue in sorted(wants.nodes):
        if queue not in document.queues:
            reasons.setdefault(queue, []).append(
                "is not in the queue document: only the limits of queues above it grow"
            )
        elif not may_edit(queue, wants.allowed_prefixes):
            reasons.setdefault(queue, []).append("is outside allowed_queue_prefixes: left alone")
    return {queue: "; ".join(sentences) for queue, sentences in reasons.items()}


def _numbers(
    document: QueueDocument,
    known: Mapping[LimitPlace, Baseline],
    texts: Mapping[LimitPlace, str],
    sections: Mapping[str, Section],
    instance: str,
) -> dict[str, QueueNumbers]:
    own = lent_amounts(section for name, section in sections.items() if name == instance).max
    others = lent_amounts(section for name, section in sections.items() if name != instance).max
    numbers = {}
    for path, queue in document.queues.items():
        limit, baseline = dict(queue.max), dict(queue.max)
        for resource in queue.max:
            place = LimitPlace(path, "max", resource)
            if place in texts:
                limit[resource] = parse_yunikorn(resource, texts[place])
            if place in known:
                baseline[resource] = known[place].amount
        numbers[path] = QueueNumbers(
            limit=limit, baseline=baseline, lent=own.get(path, {}), others=others.get(path, {})
        )
    return numbers
