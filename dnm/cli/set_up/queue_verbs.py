"""`dnm queues check`, `show` and `rebase`: what they read and print, and what they exit with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from dnm.cli.terminal.output import amounts, print_document, print_line, print_table, shown_amount
from dnm.model.errors import ExitCode, QueueError, YunikornError
from dnm.model.printable import Part, count_of, printable
from dnm.model.quantity import format_yunikorn, parse_yunikorn
from dnm.model.queue_edit import QueueEdit
from dnm.model.value import Resources
from dnm.plan.queue_reports import headroom
from dnm.queues.decode import RuleViolation
from dnm.queues.document import QueueDocument, read_document
from dnm.queues.files import Judgement, judge_file, judge_text
from dnm.queues.ledger import decode_ledger, lent_amounts
from dnm.queues.source import SourceDocument
from dnm.queues.tree import LimitPlace
from dnm.queues.writer import ConfigMaps, apply_queue_edit, read_source
from dnm.queues.yunikorn_rest import YunikornClient

CHECK_SCHEMA = "dnm.queues.check/1"
SHOW_SCHEMA = "dnm.queues.show/1"


# --- check -----------------------------------------------------------------------------------


def check_files(files: Sequence[Path], output: str, yunikorn: YunikornClient | None = None) -> int:
    """Judges files; 0 where dnm can edit all of them and YuniKorn, if it was asked, takes them."""
    judged = [_ask(one, yunikorn) for path in files for one in judge_file(path)]
    return _report(judged, output)


def check_cluster(
    kube: ConfigMaps, place: tuple[str, str], yunikorn: YunikornClient | None, output: str
) -> int:
    """Judges the document in force, and its ledger: all that keeps dnm from an edit."""
    source = read_source(kube, place)
    judged = judge_text(_name_of(source), source.text)
    if not source.is_built_in:
        judged = _ask(judged, yunikorn)
    problems = (source.refusal, _ledger_problem(source))
    judged = msgspec.structs.replace(
        judged,
        violations=(*(_advice("document", one) for one in problems if one), *judged.violations),
        advice=(*(_advice("document", one) for one in source.warnings), *judged.advice),
    )
    return _report([judged], output)


def _ledger_problem(source: SourceDocument) -> str | None:
    try:
        decode_ledger(source.ledger_text)
    except QueueError as error:
        return str(error)
    return None


def _ask(judged: Judgement, yunikorn: YunikornClient | None) -> Judgement:
    """With the scheduler's own word on all that an edit can't change."""
    if yunikorn is None or not judged.text:
        return judged
    try:
        reason = yunikorn.validate(judged.text)
    except YunikornError as error:
        advice = (_advice("yunikorn", str(error)), *judged.advice)
        return msgspec.structs.replace(judged, advice=advice)
    refused = (_advice("yunikorn", f"YuniKorn itself refuses it: {reason}"),) if reason else ()
    return msgspec.structs.replace(
        judged, is_taken=not reason, violations=(*judged.violations, *refused)
    )


def _advice(rule: str, message: str) -> RuleViolation:
    return RuleViolation(rule=rule, queue="", line=0, message=message)


def _name_of(source: SourceDocument) -> str:
    config_map = source.config_map
    if config_map is None:
        return "built-in"
    return f"configmap/{config_map.namespace}/{config_map.name}/{source.key}"


def _report(judged: list[Judgement], output: str) -> int:
    if output != "text":
        print_document([_judgement_document(one) for one in judged], output)
    else:
        for one in judged:
            _print_judgement(one)
    are_good = all(one.is_ok for one in judged)
    return ExitCode.OK if are_good else ExitCode.FAILED


def _judgement_document(judged: Judgement) -> dict[str, Any]:
    return {
        "schema": CHECK_SCHEMA,
        "file": judged.file,
        "ok": judged.is_ok,
        "taken": judged.is_taken,
        "violations": [msgspec.structs.asdict(found) for found in judged.violations],
        "advice": [msgspec.structs.asdict(found) for found in judged.advice],
    }


def _print_judgement(judged: Judgement) -> None:
    """A line each, as compilers print them, so that editors and pipelines find the place."""
    for found in judged.violations:
        print_line((f"{judged.file}:{found.line}: ", "error"), f"{found.message} [{found.rule}]")
    for found in judged.advice:
        lead: Part = (f"{judged.file}:{found.line}: advice: ", "warning")
        print_line(lead, f"{found.message} [{found.rule}]")
    if judged.is_ok:
        asked = "takes it" if judged.is_taken else "was not asked for the rest (yunikorn_url)"
        good = f"dnm can edit it, {count_of(judged.queues, 'queue')}; YuniKorn {asked}"
        print_line((f"{judged.file}: ", "ok"), good)


# --- show ------------------------------------------------------------------------------------


def show_queues(
    kube: ConfigMaps,
    place: tuple[str, str],
    used: Mapping[str, Resources] | None,
    output: str,
) -> int:
    """The tree with its limits. `used`: what is allocated, by queue path (None: not known)."""
    source = read_source(kube, place)
    document = read_document(source)
    problem = document.ledger_problem or (source.refusal if source.is_built_in else None)
    if problem:
        raise QueueError(problem)
    rows = list(_queue_rows(document, used))
    if output != "text":
        shown = {"schema": SHOW_SCHEMA, "document": _name_of(source), "queues": rows}
        print_document(shown, output, (row["queue"] for row in rows))
        return ExitCode.OK
    header = ["queue", "resource", "limit", "baseline", "lent", "used", "headroom"]
    cells = [line for row in rows for line in _limit_lines(document, row)]
    print_table(_name_of(source), header, cells, "", indent=0)
    lent = [
        [row["queue"], instance, node, amounts(size)]
        for row in rows
        for instance, nodes in row["nodes"].items()
        for node, size in nodes.items()
    ]
    print_line()
    header = ["queue", "instance", "node", "adds"]
    print_table("", header, lent, "no node serves a queue yet", indent=0)
    return ExitCode.OK


def _queue_rows(
    document: QueueDocument, used: Mapping[str, Resources] | None
) -> Iterator[dict[str, Any]]:
    ledger = document.ledger
    lent = lent_amounts(ledger.sections.values())
    for path, queue in document.limits.items():
        places = {resource: LimitPlace(path, "max", resource) for resource in queue.max}
        yield {
            "queue": path,
            "limit": dict(queue.max),
            "guaranteed": dict(queue.guaranteed),
            "baseline": {
                resource: parse_yunikorn(resource, ledger.entries[place].baseline)
                if place in ledger.entries
                else queue.max[resource]
                for resource, place in places.items()
            },
            "lent": {resource: lent.at(place) for resource, place in places.items()},
            "used": None if used is None else dict(used.get(path, {})),
            "headroom": None if used is None else headroom(document.limits, used, path),
            "nodes": {
                instance: {node: dict(size) for node, size in section.queues[path].items()}
                for instance, section in ledger.sections.items()
                if path in section.queues
            },
        }


def _limit_lines(document: QueueDocument, row: Mapping[str, Any]) -> Iterator[list[str]]:
    """A line a limit, in the style in which the limit is written."""
    path: str = row["queue"]
    name = "  " * path.count(".") + path.rpartition(".")[2]
    if not row["limit"]:
        yield [name, "", "the cluster's size" if path == "root" else "none", "", "", "", ""]
    for resource in row["limit"]:
        style = document.tree.places[LimitPlace(path, "max", resource)].text.strip()
        cells = [name, resource]
        for column in ("limit", "baseline", "lent", "used", "headroom"):
            known = row[column]
            amount = None if known is None else known.get(resource, 0)
            cells.append("?" if amount is None else _shown(resource, amount, style))
        yield cells
        name = ""


def _shown(resource: str, amount: int, style: str) -> str:
    """As the limit is written, where that is exact."""
    exact = format_yunikorn(resource, amount, style)
    is_styled = exact.lstrip("0123456789") == style.lstrip("0123456789.")
    if is_styled or resource != "memory" or not style.endswith("i"):
        return exact if is_styled else shown_amount(resource, amount)
    return f"~{amount / 2**30:.1f}Gi"  # a row has binary units or decimal ones


# --- rebase ----------------------------------------------------------------------------------

_NOTHING_LOST = (
    "these limits stand as dnm knows them, and the ledger says what they contain "
    "(`dnm queues show`): nothing was written"
)
_NOTHING_LENT = (
    "neither ledger nor registry has a lent node of this instance that these limits could contain: "
    "nothing was written. If nodes are lent, let `dnm run` record them again; it asks then"
)


def rebase_queues(
    kube: ConfigMaps,
    place: tuple[str, str],
    change: Callable[[SourceDocument], QueueEdit],
    is_sure: Callable[[str], bool],
    lock: AbstractContextManager[Callable[[str | None], None]],
    yunikorn: YunikornClient | None = None,
) -> int:
    """Writes down what a person says of the limits that stand there, after he has seen what that
    makes of them. `change` is `rebase` with the nodes that serve when it is called. Asked
    before the lock is taken, for runs to go on meanwhile; and again only if that changed a limit.
    `lock` gives the function that keeps the new ledger in the registry.
    """
    asked = _Question(is_sure)
    try:
        edit = asked.confirm(change(read_source(kube, place)))
        if not (edit.is_changed or edit.is_answer):
            print(_NOTHING_LOST if any(n.lent for n in edit.numbers.values()) else _NOTHING_LENT)
            return ExitCode.OK
        with lock as keep_ledger:
            outcome = apply_queue_edit(
                kube, place, lambda source: asked.confirm(change(source)), yunikorn
            )
            keep_ledger(outcome.edit.noted)
    except _DeclinedError:
        print("nothing was written")
        return ExitCode.OK
    for note in outcome.notes:
        print(printable(note))
    is_recorded = outcome.is_written or outcome.edit.is_answer
    print("the answer is recorded" if is_recorded else "another command has recorded it")
    return ExitCode.OK


class _DeclinedError(Exception):
    """The person said no."""


class _Question:
    """Shows what an edit makes of the limits and asks a person, once for each answer there is."""

    def __init__(self, is_sure: Callable[[str], bool]) -> None:
        self._is_sure = is_sure
        self._shown: list[str] = []

    def confirm(self, edit: QueueEdit) -> QueueEdit:
        """Returns the edit; raises _DeclinedError, and QueueError where it is refused."""
        if edit.refusal:
            raise QueueError(edit.refusal)
        lines = _rebase_lines(edit)
        if (edit.is_changed or edit.is_answer) and lines != self._shown:
            self._shown = lines
            print("\n".join(lines))
            if not self._is_sure("Is that what the limits should be?"):
                raise _DeclinedError
        return edit


def _rebase_lines(edit: QueueEdit) -> list[str]:
    """Each limit before and after, and what is left of it once nothing is lent."""
    lines = [
        f"{limit.queue}: {limit.kind} {limit.resource} {limit.before} -> {limit.after}"
        for limit in edit.changes
    ] or ["no limit changes"]
    lines += [
        f"{queue}: max without lent nodes: {amounts(numbers.baseline)}"
        for queue, numbers in edit.numbers.items()
        if numbers.baseline != numbers.limit
    ]
    lines += [f"{queue}: {reason}" for queue, reason in edit.held.items()]
    return [printable(line) for line in lines]
