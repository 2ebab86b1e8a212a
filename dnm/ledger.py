"""What the queue document and its ledger must be, given what serves now. Pure and level-triggered:
equal input gives equal output, and where nothing has to change the texts come back byte for byte.

Every limit is compared three ways: what stands there, what was last written, and the baseline.
As written: nobody touched it. Back at the baseline: a manifest was applied again, what is lent is
added again. Anything else: a person's new total, the baseline follows from it. The new limit is the
baseline plus what all instances lend, along the queue's whole path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from dnm.config_values import is_under
from dnm.errors import QueueError
from dnm.ledger_text import (
    Entry,
    Ledger,
    Section,
    decode_ledger,
    encode_ledger,
    lent_amounts,
    sum_resources,
)
from dnm.limits import settle
from dnm.model import QueueStatus, Resources, Value
from dnm.quantity import QuantityError, format_amount, format_yunikorn, parse_yunikorn
from dnm.queues import (
    LEDGER_ANNOTATION,
    LimitPlace,
    QueueDocument,
    SourceDocument,
    check_rules,
    parse_document,
    replace_limits,
)

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


class Reading(Enum):
    """What a person says that the limits in the document are (`dnm queues rebase`)."""

    BASELINE = "baseline"  # they don't contain what is lent
    TOTAL = "total"  # they do


class _Baseline(NamedTuple):
    text: str
    amount: int
    is_frozen: bool = False
    news: str = ""  # how it came about, if not as recorded: reapplied | changed


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
        known = _compare(document, ledger, lent)
        if wants.instance_id not in ledger.sections:
            known = _recover(document, known, wants)
        return _edit(source, document, ledger, known, wants)
    except (QueueError, QuantityError) as error:
        return QueueEdit(text=source.text, ledger=source.ledger_text, refusal=str(error))


def plan_rebase(
    source: SourceDocument,
    wants: QueueWants,
    reading: Reading,
    queues: Iterable[str] = (),
    forget: str = "",
) -> QueueEdit:
    """The same after a person has said what the limits of these queues (none: of all) contain.
    `forget` drops the section of an instance that is no more."""
    try:
        document = parse_document(source.text)
        refusal = source.refusal or document.refusal or _why_invalid(document)
        if refusal:
            raise QueueError(refusal)
        chosen = frozenset(queues)
        unknown = chosen - document.queues.keys()
        if unknown:
            raise QueueError(f"no queue of the document: {', '.join(sorted(unknown))}")
        ledger = _readable_ledger(source, bool(chosen))
        others = {name: part for name, part in ledger.sections.items() if name != forget}
        own = {wants.instance_id: _own_section(ledger, wants)}
        known = _compare(document, ledger, lent_amounts(ledger.sections.values()))
        if chosen and wants.instance_id not in ledger.sections:
            known = _recover(document, known, wants)
        contained = lent_amounts({**others, **own}.values())
        for place in known:
            if not chosen or place.queue in chosen:
                known[place] = _declared(document, place, reading, contained.get(place, 0))
        kept: Ledger = msgspec.structs.replace(ledger, sections=others)
        return _edit(source, document, kept, known, wants)
    except (QueueError, QuantityError) as error:
        return QueueEdit(text=source.text, ledger=source.ledger_text, refusal=str(error))


def _readable_ledger(source: SourceDocument, is_needed: bool) -> Ledger:
    try:
        return decode_ledger(source.ledger_text)
    except QueueError:
        if is_needed:
            raise
        return Ledger()


def _declared(document: QueueDocument, place: LimitPlace, reading: Reading, lent: int) -> _Baseline:
    text, amount = _current(document, place)
    if reading is Reading.BASELINE or not lent:
        return _Baseline(text, amount)
    if amount < lent:
        raise QueueError(
            f"{place.kind} {place.resource} of {place.queue} is {text}, less than the "
            f"{format_amount(place.resource, lent)} that are lent, so it can't contain them"
        )
    return _Baseline(format_yunikorn(place.resource, amount - lent, text), amount - lent)


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


# --- what the document says now --------------------------------------------------------------


def _current(document: QueueDocument, place: LimitPlace) -> tuple[str, int]:
    text = document.places[place].text
    return text, parse_yunikorn(place.resource, text)


def _is_limit(document: QueueDocument, place: LimitPlace) -> bool:
    """Whether the number limits or guarantees anything: an all-zero max is no limit, and a zero
    guarantee none."""
    queue = document.queues[place.queue]
    return bool(queue.max) if place.kind == "max" else queue.guaranteed.get(place.resource, 0) > 0


def _compare(
    document: QueueDocument, ledger: Ledger, lent: Mapping[LimitPlace, int]
) -> dict[LimitPlace, _Baseline]:
    """The three-way comparison, for every limit of the document."""
    known = {
        place: _compare_one(document, ledger, place, lent.get(place, 0))
        for place in document.places
        if _is_limit(document, place)
    }
    by_queue: dict[str, list[LimitPlace]] = {}
    for place, baseline in known.items():
        if baseline.news or lent.get(place):
            by_queue.setdefault(place.queue, []).append(place)
    for places in by_queue.values():
        news = {known[place].news for place in places}
        if "reapplied" in news and "" not in news:
            # None of them stands as written: what differs came with the manifest too.
            for place in places:
                known[place] = _Baseline(*_current(document, place), news="reapplied")
    return known


def _compare_one(
    document: QueueDocument, ledger: Ledger, place: LimitPlace, lent: int
) -> _Baseline:
    text, amount = _current(document, place)
    entry = ledger.entries.get(place)
    if entry is not None:
        baseline = parse_yunikorn(place.resource, entry.baseline)
        if amount == parse_yunikorn(place.resource, entry.written):
            return _Baseline(entry.baseline, baseline, is_frozen=place in ledger.frozen)
        if amount == baseline:
            return _Baseline(entry.baseline, baseline, news="reapplied" if lent else "")
    if not lent:
        return _Baseline(text, amount)
    if amount < lent:
        return _Baseline(text, amount, is_frozen=True, news="changed")
    rest = amount - lent
    return _Baseline(format_yunikorn(place.resource, rest, text), rest, news="changed")


# --- when this instance's part of the ledger is lost ------------------------------------------


def _recover(
    document: QueueDocument, known: dict[LimitPlace, _Baseline], wants: QueueWants
) -> dict[LimitPlace, _Baseline]:
    """Baselines without what this instance lent, judged by what its last run remembers: either all
    limits contain it or none does; anything else is for a person to say."""
    then = _direct(wants.remembered)
    serving = {queue: sum_resources(nodes.values()) for queue, nodes in wants.nodes.items()}
    lent = {queue: then.get(queue) or serving.get(queue, {}) for queue in {*then, *serving}}
    parts = {queue: {"": amounts} for queue, amounts in lent.items()}
    own = lent_amounts([Section(queues=parts, guaranteed=wants.adjust_guaranteed)])
    answers: dict[bool, list[str]] = {}
    for queue in sorted(lent):
        for resource in document.queues[queue].max if queue in document.queues else ():
            place = LimitPlace(queue, "max", resource)
            if place in known and own.get(place):
                answer = _contains(document, known[place], place, own[place], wants)
                answers.setdefault(answer, []).append(f"{queue} ({resource})")
    if len(answers) > 1:
        raise _undecided(f"{answers[True][0]} contains them, {answers[False][0]} does not")
    if not answers.get(True):
        return known
    without = {}
    for place, baseline in known.items():
        amount = baseline.amount - own.get(place, 0)
        if amount < 0:
            raise _undecided(f"{place.kind} {place.resource} of {place.queue} is less than them")
        text = baseline.text
        if amount != baseline.amount:
            text = format_yunikorn(place.resource, amount, text)
        without[place] = baseline._replace(text=text, amount=amount)
    return without


def _direct(remembered: Mapping[str, QueueStatus]) -> dict[str, dict[str, int]]:
    """What was lent to each queue itself: a monitored queue below another is part of its sum."""
    direct: dict[str, dict[str, int]] = {}
    for queue in sorted(remembered, key=lambda path: -path.count(".")):
        rest = dict(remembered[queue].lent)
        for below, amounts in direct.items():
            if below.startswith(f"{queue}."):
                for resource, amount in amounts.items():
                    rest[resource] = rest.get(resource, 0) - amount
        direct[queue] = {resource: amount for resource, amount in rest.items() if amount > 0}
    return {queue: amounts for queue, amounts in direct.items() if amounts}


def _contains(
    document: QueueDocument, known: _Baseline, place: LimitPlace, lent: int, wants: QueueWants
) -> bool:
    """Whether a limit contains what this instance lends."""
    status = wants.remembered.get(place.queue)
    resource = place.resource
    if status is None or resource not in status.baseline:
        raise _undecided(f"no run has yet noted what {place.queue} was before")
    if known.amount == status.baseline[resource]:
        return False
    if known.amount == status.baseline[resource] + lent:
        return True
    if not status.lent.get(resource):
        return False  # nothing was lent when it was last seen: a person's new baseline
    text, amount = _current(document, place)
    if amount == status.limit.get(resource):
        return True
    raise _undecided(f"max {resource} of {place.queue} is {text}, which fits neither")


def _undecided(why: str) -> QueueError:
    return QueueError(
        "the ledger of this instance is gone from the ConfigMap while nodes are lent, and the "
        f"limits don't tell whether they contain them: {why}. Look at `dnm queues show`, then say "
        "`dnm queues rebase --as total` if they do or `dnm queues rebase --as baseline` if not"
    )


# --- what it must say ------------------------------------------------------------------------


def _own_section(ledger: Ledger, wants: QueueWants) -> Section:
    """What this instance lends from now on; queues outside its prefixes stay as recorded."""
    before = ledger.sections.get(wants.instance_id, Section()).queues
    queues: dict[str, dict[str, Resources]] = {}
    for queue in {*before, *wants.nodes}:
        is_ours = not wants.allowed_prefixes or any(
            is_under(queue, prefix) for prefix in wants.allowed_prefixes
        )
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
    known: Mapping[LimitPlace, _Baseline],
    wants: QueueWants,
) -> QueueEdit:
    sections = dict(ledger.sections)
    own = _own_section(ledger, wants)
    if own.queues or wants.instance_id in sections:
        sections[wants.instance_id] = own
    lent = lent_amounts(sections.values())
    frozen = frozenset(
        place for place, baseline in known.items() if baseline.is_frozen and lent.get(place)
    )
    targets = {
        place: baseline.amount + lent.get(place, 0)
        for place, baseline in known.items()
        if place not in frozen
    }
    edited, texts, held = _settle_validly(document, known, targets, wants)
    entries = _entries(document, known, lent, texts)
    new_ledger = Ledger(sections=sections, entries=entries, frozen=frozen)
    ledger_text = source.ledger_text
    if new_ledger != ledger or not _is_readable(ledger_text):
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
        notes=_notes(document, known),
        held=_held(document, held, frozen, wants),
        numbers=_numbers(document, known, texts, sections, wants.instance_id),
    )


def _settle_validly(
    document: QueueDocument,
    known: Mapping[LimitPlace, _Baseline],
    targets: Mapping[LimitPlace, int],
    wants: QueueWants,
) -> tuple[str, dict[LimitPlace, str], dict[LimitPlace, str]]:
    """The new text, its new numbers and what was held; at least without growing guarantees the
    result is valid, or nothing is done."""
    without = dict(targets)
    for place in targets:
        if place.kind == "guaranteed":
            without[place] = min(targets[place], _current(document, place)[1])
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
        violations = check_rules(parse_document(edited))
        if not violations:
            held = dict(settled.held)
            for place in attempt:
                if attempt[place] < targets[place]:
                    held[place] = f"guaranteed {place.resource} does not grow along: {problem}"
            return edited, texts, held
        problem = violations[0].message
    raise QueueError(
        f"no valid edit of the queue document was found: {problem}; give the queue's ancestors the "
        "room that its lent nodes need, or take their limits out"
    )


def _text_for(place: LimitPlace, amount: int, baseline: _Baseline) -> str:
    """The baseline's own characters where that is the amount, else in its style."""
    if amount == baseline.amount:
        return baseline.text
    return format_yunikorn(place.resource, amount, baseline.text)


def _entries(
    document: QueueDocument,
    known: Mapping[LimitPlace, _Baseline],
    lent: Mapping[LimitPlace, int],
    texts: Mapping[LimitPlace, str],
) -> dict[LimitPlace, Entry]:
    """Of every limit that what is lent moves, or that is still held away from its baseline."""
    entries = {}
    for place, baseline in known.items():
        written = texts.get(place, document.places[place].text)
        if lent.get(place) or parse_yunikorn(place.resource, written) != baseline.amount:
            entries[place] = Entry(baseline.text, written)
    return entries


def _is_readable(ledger_text: str) -> bool:
    try:
        decode_ledger(ledger_text)
    except QueueError:
        return False
    return True


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


def _notes(document: QueueDocument, known: Mapping[LimitPlace, _Baseline]) -> tuple[str, ...]:
    reapplied: dict[str, list[str]] = {}
    notes = []
    for place, baseline in sorted(known.items()):
        what = f"{place.kind} {place.resource}"
        if baseline.news == "reapplied":
            reapplied.setdefault(place.queue, []).append(what)
        elif baseline.news == "changed" and not baseline.is_frozen:
            total = document.places[place].text.strip()
            notes.append(
                f"{place.queue}: {what} was changed to {total}, which is its new total; without "
                f"lent nodes that is {baseline.text.strip()}. If {total} was meant without them: "
                f"`dnm queues rebase {place.queue} --as baseline`"
            )
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
            f"{place.queue} --as baseline`"
        )
    for place, reason in sorted(held.items()):
        reasons.setdefault(place.queue, []).append(reason)
    for queue in sorted(wants.nodes):
        if queue not in document.queues:
            reasons.setdefault(queue, []).append(
                "is not in the queue document: only the limits of queues above it grow"
            )
        elif wants.allowed_prefixes and not any(
            is_under(queue, prefix) for prefix in wants.allowed_prefixes
        ):
            reasons.setdefault(queue, []).append("is outside allowed_queue_prefixes: left alone")
    return {queue: "; ".join(sentences) for queue, sentences in reasons.items()}


def _numbers(
    document: QueueDocument,
    known: Mapping[LimitPlace, _Baseline],
    texts: Mapping[LimitPlace, str],
    sections: Mapping[str, Section],
    instance: str,
) -> dict[str, QueueNumbers]:
    own = _by_queue(section for name, section in sections.items() if name == instance)
    others = _by_queue(section for name, section in sections.items() if name != instance)
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


def _by_queue(sections: Iterable[Section]) -> dict[str, dict[str, int]]:
    queues: dict[str, dict[str, int]] = {}
    for place, amount in lent_amounts(sections).items():
        if place.kind == "max":
            queues.setdefault(place.queue, {})[place.resource] = amount
    return queues
