"""`dnm queues check` and `show`: the violations and the tree of the queue document."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dnm.cli.terminal.commands import load_named_config
from dnm.cli.terminal.options import ConfigOption, NamesOption, OutputOption, PathOption
from dnm.cli.terminal.output import print_document, print_line, print_table
from dnm.kube.client import KubeClient
from dnm.model.amounts import shown_amount
from dnm.model.config import Config
from dnm.model.errors import ExitCode, QueueError
from dnm.model.printable import Part, count_of
from dnm.model.value import Resources
from dnm.plan.inputs import gather_inputs
from dnm.plan.queue_reports import headroom
from dnm.queues.system import ConfigMaps
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.document import QueueDocument, read_document
from dnm.queues.yunikorn.errors import YunikornError
from dnm.queues.yunikorn.files import DocumentCheck, judge_file, judge_text
from dnm.queues.yunikorn.ledger import decode_ledger, lent_amounts
from dnm.queues.yunikorn.quantities import (
    format_yunikorn,
    parse_yunikorn,
    yunikorn_amounts,
)
from dnm.queues.yunikorn.rest import YunikornClient
from dnm.queues.yunikorn.source import SourceDocument, read_source
from dnm.queues.yunikorn.tree import LimitPlace
from dnm.run.planning import connect
from dnm.run.registry import load_registry
from dnm.run.snapshot import take_snapshot

CHECK_SCHEMA = "dnm.queues.check/1"
SHOW_SCHEMA = "dnm.queues.show/1"


# --- check -----------------------------------------------------------------------------------


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Files: queues.yaml or ConfigMap manifests; default: the cluster's document.",
        ),
    ] = None,
    config_path: PathOption = None,
    output: OutputOption = "text",
) -> int:
    """Check whether dnm can edit queue documents; if not, print why (exit code 1).

    YuniKorn validates the document too if yunikorn_url is set. To let it validate a file, pass
    --config."""
    if files:
        url = load_named_config(config_path).yunikorn_url if config_path else ""
        return check_files(files, output, YunikornClient(url) if url else None)
    kube, place, yunikorn = queue_edges(load_named_config(config_path))
    return check_cluster(kube, place, yunikorn, output)


def check_cluster(
    kube: ConfigMaps, place: tuple[str, str], yunikorn: YunikornClient | None, output: str
) -> int:
    """Checks the cluster's queue document and ledger, and prints why dnm cannot edit them."""
    source = read_source(kube, place)
    judged = judge_text(_name_of(source), source.text)
    if not source.is_built_in:
        judged = _ask(judged, yunikorn)
    problems = (source.refusal, _ledger_problem(source))
    judged = msgspec.structs.replace(
        judged,
        violations=(
            *(_advice("document", problem) for problem in problems if problem),
            *judged.violations,
        ),
        advice=(*(_advice("document", warning) for warning in source.warnings), *judged.advice),
    )
    return _report([judged], output)


def check_files(files: Sequence[Path], output: str, yunikorn: YunikornClient | None = None) -> int:
    """Checks queue documents in files. Returns 0 if dnm can edit all, and YuniKorn accepts them."""
    return _report(
        [_ask(judgement, yunikorn) for path in files for judgement in judge_file(path)], output
    )


def queue_edges(config: Config) -> tuple[KubeClient, tuple[str, str], YunikornClient | None]:
    """Returns the Kubernetes client, the ConfigMap's namespace and name, and YuniKorn's client
    (None: not configured). Raises QueueError if no namespace has a queue in YuniKorn."""
    if "yunikorn" not in config.queue_systems:
        systems = ", ".join(sorted(config.queue_systems))
        raise QueueError(
            f"no monitored namespace has a queue in YuniKorn (queue_system = {systems}): this "
            "command has no queue document to look at; `dnm status` shows the queues"
        )
    yunikorn = YunikornClient(config.yunikorn_url) if config.yunikorn_url else None
    return KubeClient.connect(config), config.queue_document, yunikorn


def _ledger_problem(source: SourceDocument) -> str | None:
    try:
        decode_ledger(source.ledger_text)
    except QueueError as error:
        return str(error)
    return None


def _ask(judged: DocumentCheck, yunikorn: YunikornClient | None) -> DocumentCheck:
    """Lets YuniKorn validate a queue document, and adds its answer to dnm's own check of it."""
    if yunikorn is None or not judged.text:
        return judged
    try:
        reason = yunikorn.validate(judged.text)
    except YunikornError as error:
        advice = (_advice("yunikorn", str(error)), *judged.advice)
        return msgspec.structs.replace(judged, advice=advice)
    refused = (_advice("yunikorn", f"YuniKorn refuses the document: {reason}"),) if reason else ()
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


def _report(judged: list[DocumentCheck], output: str) -> int:
    if output != "text":
        print_document([_judgement_document(item) for item in judged], output)
    else:
        for judgement in judged:
            _print_judgement(judgement)
    are_good = all(item.is_ok for item in judged)
    return ExitCode.OK if are_good else ExitCode.FAILED


def _judgement_document(judged: DocumentCheck) -> dict[str, Any]:
    return {
        "schema": CHECK_SCHEMA,
        "file": judged.file,
        "ok": judged.is_ok,
        "taken": judged.is_taken,
        "violations": [msgspec.structs.asdict(violation) for violation in judged.violations],
        "advice": [msgspec.structs.asdict(advice) for advice in judged.advice],
    }


def _print_judgement(judged: DocumentCheck) -> None:
    """Prints each violation as `file:line: message`, which editors and pipelines can parse."""
    for violation in judged.violations:
        lead: Part = (f"{judged.file}:{violation.line}: ", "error")
        print_line(lead, f"{violation.message} [{violation.rule}]")
    for advice in judged.advice:
        lead = (f"{judged.file}:{advice.line}: advice: ", "warning")
        print_line(lead, f"{advice.message} [{advice.rule}]")
    if judged.is_ok:
        answer = "accepts it" if judged.is_taken else "was not asked (set yunikorn_url)"
        good = f"dnm can edit it, {count_of(judged.queues, 'queue')}; YuniKorn {answer}"
        print_line((f"{judged.file}: ", "ok"), good)


# --- show ------------------------------------------------------------------------------------


def show(config: ConfigOption, output: NamesOption = "text") -> int:
    """Show the queue tree: limit, baseline, what lent nodes add, used, headroom."""
    kube, place, _ = queue_edges(config)
    return show_queues(kube, place, _used_by_queue(config), output)


def show_queues(
    kube: ConfigMaps, place: tuple[str, str], used: Mapping[str, Resources] | None, output: str
) -> int:
    """Prints the queue tree. `used`: the resources in use by queue path, None if unknown."""
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
        [row["queue"], instance, node, document_amounts(size)]
        for row in rows
        for instance, nodes in row["nodes"].items()
        for node, size in nodes.items()
    ]
    print_line()
    header = ["queue", "instance", "node", "adds"]
    print_table("", header, lent, "no node serves a queue yet", indent=0)
    return ExitCode.OK


def _used_by_queue(config: Config) -> dict[str, Resources] | None:
    """Returns the resources that the pods of each queue use now; None if pods are unreadable."""
    registry = load_registry(config, datetime.now(UTC))
    facts = take_snapshot(config, registry, *connect(config, os.environ), datetime.now(UTC))
    demand = gather_inputs(config, registry, facts).demand
    return (
        None
        if demand is None
        else {path: yunikorn_amounts(q.used) for path, q in demand.queues.items()}
    )


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
    """Yields table rows for a queue, one for each limit, with amounts in the unit of that limit."""
    path: str = row["queue"]
    name = "  " * path.count(".") + path.rpartition(".")[2]
    if not row["limit"]:
        yield [name, "", "the cluster's size" if path == "root" else "none", "", "", "", ""]
    for resource in row["limit"]:
        style = document.tree.places[LimitPlace(path, "max", resource)].text.strip()
        cells = [name, resource]
        for column in ("limit", "baseline", "lent", "used", "headroom"):
            values = row[column]
            amount = None if values is None else values.get(resource, 0)
            cells.append("?" if amount is None else _shown(resource, amount, style))
        yield cells
        name = ""


def _shown(resource: str, amount: int, style: str) -> str:
    """Returns an amount in the unit of the limit `style`, or rounded if it is not exact in it."""
    exact = format_yunikorn(resource, amount, style)
    is_styled = exact.lstrip("0123456789") == style.lstrip("0123456789.")
    if is_styled or resource != "memory" or not style.endswith("i"):
        return exact if is_styled else _shown_amount(resource, amount)
    return f"~{amount / 2**30:.1f}Gi"  # a row has binary units or decimal ones


def document_amounts(amounts: Resources) -> str:
    """Returns amounts as text, e.g. `128 vcore, 256G memory`, without the number of pods."""
    names = sorted(amounts.keys() - {"pods"}, key=lambda name: (name != "vcore", name))
    return ", ".join(f"{_shown_amount(name, amounts[name])} {name}" for name in names)


def _shown_amount(resource: str, amount: int) -> str:
    return shown_amount({"vcore": "cpu", "cpu": ""}.get(resource, resource), amount)
