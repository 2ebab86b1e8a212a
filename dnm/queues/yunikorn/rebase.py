"""The edit after an administrator has answered whether the present limits contain lent nodes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from enum import Enum

from msgspec.structs import replace

from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError
from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn.authors import Authorship, ChosenLedger, choose_ledger, with_totals
from dnm.queues.yunikorn.document import QueueDocument, unchanged_edit
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.edit import project_edit, prove
from dnm.queues.yunikorn.ledger import Ledger, all_totals, decode_ledger, lent_amounts
from dnm.queues.yunikorn.limits import Baseline, compare, current, own_section
from dnm.queues.yunikorn.quantities import format_amount, format_yunikorn
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace


class LimitMeaning(Enum):
    """The meaning that an administrator gives to the document's limits (`dnm queues rebase`)."""

    BASELINE = "baseline"  # the limits don't contain the lent nodes
    TOTAL = "total"  # the limits contain the lent nodes


def rebase_document(
    document: QueueDocument,
    wants: QueueWants,
    reading: LimitMeaning,
    queues: Iterable[str] = (),
) -> DocumentEdit:
    """Returns the edit after an administrator has declared that the limits of these queues (of all
    if `queues` is empty) do or do not contain lent nodes. If the ledger already has nodes of this
    instance, the answer applies only to limits that another client has changed after dnm."""
    try:
        if document.refusal:
            raise QueueError(document.refusal)
        return _rebase(document, wants, reading, frozenset(queues))
    except (QueueError, QuantityError) as error:
        return unchanged_edit(document, refusal=str(error))


def _rebase(
    document: QueueDocument,
    wants: QueueWants,
    reading: LimitMeaning,
    chosen: frozenset[str],
) -> DocumentEdit:
    unknown = sorted(chosen - document.limits.keys())
    if unknown:
        raise QueueError(
            f"{', '.join(unknown)}: no queue of the document has this path; `dnm queues show` "
            "lists the paths"
        )
    if document.ledger_problem and chosen:
        raise QueueError(document.ledger_problem)
    tree = document.tree
    ledger = choose_ledger(Authorship(document, wants)).ledger if chosen else document.ledger
    baselines = compare(tree, ledger)
    own = own_section(ledger, wants)
    contained = lent_amounts({**ledger.sections, wants.instance_id: own}.values())
    is_lost = bool(own.queues) and wants.instance_id not in ledger.sections
    for place, baseline in baselines.items():
        is_asked = is_lost or baseline.news or baseline.is_frozen
        if is_asked and (not chosen or place.queue in chosen):
            baselines[place] = _declared(tree, place, reading, contained.at(place))
    # The answer covers what a run recorded but did not write, or the next run would ask again.
    recorded = Ledger()
    with suppress(QueueError):  # the answer covers an unreadable record too
        recorded = decode_ledger(wants.remembered or "")
    in_force = with_totals(ChosenLedger(ledger), recorded)
    edit = prove(document, project_edit(document, in_force, baselines, wants))
    forgotten = all_totals(recorded).keys() - all_totals(decode_ledger(edit.record or ""))
    answered: DocumentEdit = replace(edit, is_answer=bool(forgotten) and not edit.refusal)
    return answered


def _declared(tree: DocumentTree, place: LimitPlace, reading: LimitMeaning, lent: int) -> Baseline:
    """Returns the baseline of a limit that follows from the administrator's answer. Raises
    QueueError if the limit is too small to contain the lent amount, as the answer claims."""
    text, amount = current(tree, place)
    if reading is LimitMeaning.BASELINE or not lent:
        return Baseline(text, amount)
    if amount < lent:
        raise QueueError(
            f"{place.kind} {place.resource} of {place.queue} is {text}, less than the "
            f"{format_amount(place.resource, lent)} that are lent, so it can't contain them"
        )
    return Baseline(format_yunikorn(place.resource, amount - lent, text), amount - lent)
