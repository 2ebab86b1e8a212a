"""How verbs print: JSON documents, lines wrapped to the terminal, tables, amounts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from dnm.model.amounts import amounts
from dnm.model.batch import WaitingJobs
from dnm.model.hostlist import fold_hostlist
from dnm.model.observed import Sitting
from dnm.model.orders import LendOrder
from dnm.model.printable import Meanings, Part, count_of, duration, json_text, printable
from dnm.model.registry import Registry
from dnm.plan.counting import count_missing, nodes_of_order


def print_document(document: object, output: str = "json", names: Iterable[str] = ()) -> None:
    """Prints one document on stdout: indented JSON, YAML that says the same, or `name`: the names
    of what it lists, a line each."""
    if output == "name":
        sys.stdout.writelines(f"{printable(name)}\n" for name in names)
        return
    if output == "yaml":
        import yaml  # which no other output needs

        plain = msgspec.to_builtins(document)
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, explicit_start=True)
        if not text.replace("\n", "").isprintable():
            text = yaml.safe_dump(plain, sort_keys=False, explicit_start=True)
        sys.stdout.write(text)
        return
    sys.stdout.write(json_text(document, indent=2) + "\n")


def print_answer(lines: Sequence[str], output: str, **more: object) -> None:
    """Prints what a verb that writes has to say; as a document schema dnm.verb/1."""
    if output == "text":
        for line in lines:
            print_line(line)
        return
    from dnm.cli.terminal.logs import operations

    told = [msgspec.structs.asdict(operation) for operation in operations]
    names = dict.fromkeys(operation.object for operation in operations)
    document = {"schema": "dnm.verb/1", "deeds": told, "lines": list(lines), **more}
    print_document(document, output, names)


def told_together(answers: Iterable[tuple[str, str]], each: str = "each of ") -> list[str]:
    """Returns sentences about nodes, each (name, sentence that says NODE): equal ones as one, with
    a host list that the verbs take."""
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
    """Prints a line for people, by default on stdout, folded where a terminal is narrower."""
    from dnm.cli.terminal.lines import Line
    from dnm.cli.terminal.screen import draw

    draw([Line(parts, indent)], to)


def print_title(text: str) -> None:
    """Prints what stands above a part of an answer."""
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
    """Prints a title, if there is one, and a table below it; without rows the sentence `empty`.
    `optional`: its last columns, for terminals that have room for them."""
    from dnm.cli.terminal.screen import draw_table

    if title:
        print_title(title)
    if rows:
        draw_table(header, rows, meanings or {}, optional, indent)
    else:
        print_line(empty, indent=indent)


def clock(moment: datetime, zone: str) -> str:
    """Returns the second that the clock of `zone` shows, with its name where that is not UTC."""
    there = _by_clock_of(zone, moment)
    text = there.isoformat(" ", "seconds")[:19]
    return text if zone == "UTC" else f"{text} {there.tzname()}"


def briefly(moment: datetime, zone: str) -> str:
    """Returns the day and minute that the clock of `zone` shows, named where it is not UTC."""
    there = _by_clock_of(zone, moment)
    return f"{there:%d %b %H:%M}" + ("" if zone == "UTC" else f" {there.tzname()}")


def _by_clock_of(zone: str, moment: datetime) -> datetime:
    if zone == "UTC":
        return moment
    from dnm.calendar.windows import zone_named

    return moment.astimezone(zone_named(zone))


def shown(moment: datetime, zone: str = "UTC", *, seconds: bool = False) -> str:
    """Returns a moment by the clock of `zone`, and in brackets in UTC, or as the host's clock shows
    it, where that is something else."""
    there = _by_clock_of(zone, moment)
    clock = "%H:%M:%S" if seconds else "%H:%M"
    text = f"{there:%Y-%m-%d {clock}} {there.tzname()}"
    other = moment.astimezone(UTC) if there.utcoffset() else moment.astimezone()
    if other.utcoffset() == there.utcoffset():
        return text
    day = "" if other.date() == there.date() else "%Y-%m-%d "
    return f"{text} ({other:{day}{clock}} {other.tzname()})"


def waiting_lines(rows: Iterable[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    """Yields a line for each partition and type in which jobs wait for nodes."""
    for row in rows:
        since = f", the first for {duration(now - row['since'])}" if row["since"] else ""
        yield (
            f"partition {row['partition']}: {count_of(row['jobs'], 'job')} would start on "
            f"{count_of(row['nodes'], 'more node')} of type {row['node_type']}{since}"
        )


def waiting_rows(waiting: tuple[WaitingJobs, ...] | None) -> list[dict[str, Any]] | None:
    """Returns the same for a document; None: nobody says what jobs wait for."""
    return (
        None
        if waiting is None
        else [msgspec.structs.asdict(waiting_jobs) for waiting_jobs in waiting]
    )


def decision_numbers(numbers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields name and words of each number that a decision for a queue rested on or came to."""
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
    """Returns the names of pods that lack room or quota, and how many more do."""
    named = numbers["pods"]
    more = max(numbers.get("no_room", 0), numbers.get("no_quota", 0)) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def order_row(order: LendOrder, registry: Registry) -> dict[str, Any]:
    """Returns an order as documents have it, with the nodes that serve it or join, and the number
    of nodes that are missing."""
    serving, missing = nodes_of_order(order, registry), count_missing(order, registry)
    return {**msgspec.structs.asdict(order), "missing": missing, "serving": serving}


def order_progress(row: Mapping[str, Any]) -> str:
    """Returns how many nodes of an order are there, are coming and are missing, and why."""
    there, missing = len(row["serving"]), row["missing"]
    coming = f"{left} coming, " if (left := row["count"] - there - missing) > 0 else ""
    waits = f"; waits: {row['why']}" if missing and row["why"] else ""
    return f"{count_of(there, 'node')} there, {coming}{missing} missing{waits}"


def sitting_rows(sitting: Mapping[str, Sitting]) -> list[dict[str, Any]]:
    """Returns those of which people are told, by queue."""
    return [
        {
            "queue": queue,
            "since": queue_use.since,
            "percent": queue_use.percent,
            "nodes": queue_use.nodes,
        }
        for queue, queue_use in sorted(sitting.items())
        if queue_use.is_told
    ]


def sitting_lines(rows: Iterable[Mapping[str, Any]], zone: str = "UTC") -> Iterator[str]:
    """Yields of each queue what it uses, and what would end it."""
    for row in rows:
        yield (
            f"queue {row['queue']} sits: its pods use at most {row['percent']} % of "
            f"{count_of(row['nodes'], 'lent node')} since {shown(row['since'], zone)}: "
            "`max_lend_hours` keeps new pods off nodes that were lent for so long, `dnm return "
            "NODE --evict` asks those there to go"
        )
