"""The output of commands: JSON documents, lines folded to the terminal's width, tables, amounts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from dnm.model.amounts import amounts
from dnm.model.batch import WaitingJobs
from dnm.model.hostlist import fold_hostlist
from dnm.model.observed import LowUse
from dnm.model.orders import LendOrder
from dnm.model.printable import Meanings, Part, count_of, duration, json_text, printable
from dnm.model.registry import Registry
from dnm.plan.counting import count_missing, nodes_of_order


def print_document(document: object, output: str = "json", names: Iterable[str] = ()) -> None:
    """Prints a document on stdout: as indented JSON, as YAML with the same content, or, with output
    `name`, one name in each line."""
    if output == "name":
        sys.stdout.writelines(f"{printable(name)}\n" for name in names)
        return
    if output == "yaml":
        import yaml  # only this output needs it

        plain = msgspec.to_builtins(document)
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, explicit_start=True)
        if not text.replace("\n", "").isprintable():
            text = yaml.safe_dump(plain, sort_keys=False, explicit_start=True)
        sys.stdout.write(text)
        return
    sys.stdout.write(json_text(document, indent=2) + "\n")


def print_answer(lines: Sequence[str], output: str, **more: object) -> None:
    """Prints a command's report of its changes: as lines, or as the document dnm.verb/1."""
    if output == "text":
        for line in lines:
            print_line(line)
        return
    from dnm.cli.terminal.logs import operations

    actions = [msgspec.structs.asdict(operation) for operation in operations]
    names = dict.fromkeys(operation.object for operation in operations)
    document = {"schema": "dnm.verb/1", "actions": actions, "lines": list(lines), **more}
    print_document(document, output, names)


def merge_sentences(answers: Iterable[tuple[str, str]], each: str = "each of ") -> list[str]:
    """Turns pairs of a node's name and a sentence into sentences. The name replaces the word NODE.
    Equal sentences are merged into one with a host list, in the form that commands accept."""
    names: dict[str, list[str]] = {}
    for name, sentence in answers:
        names.setdefault(sentence, []).append(name)
    return [
        sentence.replace("NODE", f"{each}{fold_hostlist(of)}" if len(of) > 1 else of[0], 1).replace(
            "NODE", fold_hostlist(of)
        )
        for sentence, of in names.items()
    ]


def print_line(*parts: Part, indent: int = 0, to: TextIO | None = None) -> None:
    """Prints a line, by default on stdout, folded to the width of a terminal."""
    from dnm.cli.terminal.lines import Line
    from dnm.cli.terminal.screen import draw

    draw([Line(parts, indent)], to)


def print_title(text: str) -> None:
    """Prints a heading."""
    print_line((text, "heading"))


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    empty: str,
    meanings: Meanings | None = None,
    optional: Collection[str] = (),
    indent: int = 2,
) -> None:
    """Prints a title, if there is one, and a table below it. Without rows, prints the sentence
    `empty`. `optional` names the last columns, which only wide terminals show."""
    from dnm.cli.terminal.screen import draw_table

    if title:
        print_title(title)
    if rows:
        draw_table(header, rows, meanings or {}, optional, indent)
    else:
        print_line(empty, indent=indent)


def clock(moment: datetime, zone: str) -> str:
    """Returns the moment as date and time to the second, with the zone's name unless it is UTC."""
    there = _by_clock_of(zone, moment)
    text = there.isoformat(" ", "seconds")[:19]
    return text if zone == "UTC" else f"{text} {there.tzname()}"


def briefly(moment: datetime, zone: str) -> str:
    """Returns the moment as day and time to the minute, with the zone's name unless it is UTC."""
    there = _by_clock_of(zone, moment)
    return f"{there:%d %b %H:%M}" + ("" if zone == "UTC" else f" {there.tzname()}")


def _by_clock_of(zone: str, moment: datetime) -> datetime:
    if zone == "UTC":
        return moment
    from dnm.calendar.windows import zone_named

    return moment.astimezone(zone_named(zone))


def shown(moment: datetime, zone: str = "UTC", *, seconds: bool = False) -> str:
    """Returns a moment as text in `zone`. Adds in brackets its time in UTC (in the host's zone, if
    `zone` is UTC), unless that has the same offset."""
    there = _by_clock_of(zone, moment)
    clock = "%H:%M:%S" if seconds else "%H:%M"
    text = f"{there:%Y-%m-%d {clock}} {there.tzname()}"
    other = moment.astimezone(UTC) if there.utcoffset() else moment.astimezone()
    if other.utcoffset() == there.utcoffset():
        return text
    day = "" if other.date() == there.date() else "%Y-%m-%d "
    return f"{text} ({other:{day}{clock}} {other.tzname()})"


def waiting_lines(rows: Iterable[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    """Yields a line for each partition and node type for which jobs wait."""
    for row in rows:
        since = f", the first for {duration(now - row['since'])}" if row["since"] else ""
        yield (
            f"partition {row['partition']}: {count_of(row['jobs'], 'job')} would start on "
            f"{count_of(row['nodes'], 'more node')} of type {row['node_type']}{since}"
        )


def waiting_rows(waiting: tuple[WaitingJobs, ...] | None) -> list[dict[str, Any]] | None:
    """Returns waiting jobs as JSON objects, or None if Slurm does not report what jobs wait for."""
    return (
        None
        if waiting is None
        else [msgspec.structs.asdict(waiting_jobs) for waiting_jobs in waiting]
    )


def decision_numbers(numbers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (name, text) for each number on which the decision about a queue is based."""
    for key in ("used", "limit", "headroom"):
        if numbers.get(key):
            yield key, amounts(numbers[key])
    for key in ("wanted", "granted"):
        if numbers.get(key):
            nodes = (
                f"{count_of(count, 'node')} of type {name}" for name, count in numbers[key].items()
            )
            yield key, ", ".join(nodes)


def pods_lacking(numbers: Mapping[str, Any]) -> str:
    """Returns a text: the names of pods that lack capacity or quota, and the number of other such
    pods."""
    named = numbers["pods"]
    more = max(numbers.get("without_capacity", 0), numbers.get("no_quota", 0)) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def order_row(order: LendOrder, registry: Registry) -> dict[str, Any]:
    """Returns an order as a JSON object, with its serving and joining nodes, and the number of
    missing nodes."""
    serving, missing = nodes_of_order(order, registry), count_missing(order, registry)
    return {**msgspec.structs.asdict(order), "missing": missing, "serving": serving}


def order_progress(row: Mapping[str, Any]) -> str:
    """Returns a text: how many nodes of an order are lent, joining and missing, and why they are
    missing."""
    lent, missing = len(row["serving"]), row["missing"]
    coming = f"{left} coming, " if (left := row["count"] - lent - missing) > 0 else ""
    waits = f"; waits: {row['waiting_reason']}" if missing and row["waiting_reason"] else ""
    return f"{count_of(lent, 'node')} lent, {coming}{missing} missing{waits}"


def low_use_rows(queues: Mapping[str, LowUse]) -> list[dict[str, Any]]:
    """Returns a row for each queue with a utilization so low that it is reported, by name."""
    return [
        {
            "queue": queue,
            "since": queue_use.since,
            "percent": queue_use.percent,
            "nodes": queue_use.nodes,
        }
        for queue, queue_use in sorted(queues.items())
        if queue_use.is_reported
    ]


def low_use_lines(rows: Iterable[Mapping[str, Any]], zone: str = "UTC") -> Iterator[str]:
    """Yields a line for each queue with low utilization, with what an administrator can do."""
    for row in rows:
        yield (
            f"queue {row['queue']} has low utilization: its pods use at most {row['percent']} % of "
            f"{count_of(row['nodes'], 'lent node')} since {shown(row['since'], zone)}: "
            "`max_lend_hours` keeps new pods off nodes that were lent for so long, `dnm return "
            "NODE --evict` evicts the present ones"
        )
