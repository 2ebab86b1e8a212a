"""`dnm history`: the lines of the history that the options select, as text or documents."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dnm.calendar.windows import begin_in_utc
from dnm.cli.terminal import completion
from dnm.cli.terminal.options import ConfigOption, OutputOption
from dnm.cli.terminal.output import (
    clock,
    decision_numbers,
    pods_lacking,
    print_document,
    print_line,
    shown,
)
from dnm.model.amounts import amounts
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.history import JOBS, HistoryLine
from dnm.model.printable import Meaning, Part, count_of, duration, json_text
from dnm.model.quantity import parse_span
from dnm.record.accounts import Accounts, Bookkeeper
from dnm.record.history_file import History, read_backwards, read_history
from dnm.run.recorded import open_history, unseen_since
from dnm.run.registry import load_registry

if TYPE_CHECKING:
    from dnm.cli.terminal.lines import Line

KINDS = (
    "node", "request", "queue", "limit", "breaker", "backoff", "pause", "hold", "exclusion",
    "calendar", "order", "jobs", "verb",
)  # fmt: skip
_LONGEST = timedelta(days=36_500)  # back
_MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(("joined", "returned", "readable"), "ok"),
    **dict.fromkeys(("found-changed", "forgotten", "unknown", "unseen", "wait"), "warning"),
    **dict.fromkeys(("failed", "return-failed", "given-up", "opened", "unreadable"), "error"),
}


class QuestionError(DnmError):
    """The error for an invalid option or an unknown name in a command that only reads."""

    exit_code = ExitCode.NEEDS_PERSON


def parse_moment(text: str, now: datetime, option: str, zone: str = "UTC") -> datetime:
    """Returns the moment that a text names: a span before now (90m, 36h, 7d), or a date or time in
    the zone."""
    span = parse_span(text)
    if span is not None:
        return now - min(span, _LONGEST)
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else begin_in_utc(moment, zone)
    except (ValueError, OverflowError) as error:
        raise QuestionError(
            f"{option} {text!r} is not a time: write 90m, 36h, 7d, 2026-11-21 or 2026-11-21T14:03"
        ) from error
    if moment > now and option == "--since":
        raise QuestionError(f"{option} {text!r} is in the future")
    return moment


def lines_since(
    config: Config,
    since: datetime,
    kinds: Collection[str] = (),
    about: str = "",
    until: datetime | None = None,
) -> Iterator[HistoryLine]:
    """Yields the history lines between two times, of these kinds (empty: all) and about this object
    (empty: all). Raises DnmError if the history is unreadable."""
    holding = _holding(about) or [f'"kind":"{kind}"'.encode() for kind in kinds]
    with readable(open_history(config)) as history:
        for line in read_history(history, since, holding):
            is_in_time = until is None or line.time <= until
            if is_in_time and (not kinds or line.kind in kinds) and _is_about(line, about):
                yield line


def last_lines(config: Config, about: str, count: int) -> list[HistoryLine]:
    """Returns the last `count` history lines about an object, in order. Reads the history
    backwards. Raises DnmError if it is unreadable."""
    with readable(open_history(config)) as history:
        lines = read_backwards(history, _holding(about))
        return list(islice((line for line in lines if _is_about(line, about)), count))[::-1]


@contextmanager
def readable(history: History) -> Iterator[History]:
    """Yields the history. Turns an OSError in its context into a QuestionError with the remedy."""
    try:
        yield history
    except OSError as error:
        remedy = "Fix its permissions, or run the command as the user who runs dnm."
        if isinstance(error, FileNotFoundError):
            remedy = f"Create the state directory {history.directory}, or correct state_dir."
        raise QuestionError(
            f"cannot read the history {history.path}: {error.strerror or error}. {remedy}"
        ) from error


def _holding(about: str) -> list[bytes]:
    """Returns strings for a fast search: each history line about this name contains one of them."""
    return [msgspec.json.encode(name) for name in {about, about.lower()} if about]


def _is_about(line: HistoryLine, about: str) -> bool:
    of = (line.object, line.queue, line.node_type, str(line.numbers.get("request", "")))
    return not about or about in of or about.lower() in of


def history(
    config: ConfigOption,
    about: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A node, queue, node type or request; default: all.",
            autocompletion=completion.resettable,
        ),
    ] = "",
    since: Annotated[
        str, typer.Option(help="Show lines since: 90m, 36h, 7d, or a time in events_zone.")
    ] = "7d",
    until: Annotated[str, typer.Option(help="Show lines until this time, as in --since.")] = "",
    kind: Annotated[
        str,
        typer.Option(
            help="Show only these kinds, separated by commas: node, request, queue, limit, "
            "breaker, backoff, pause, hold, exclusion, calendar, order, jobs, verb."
        ),
    ] = "",
    output: OutputOption = "text",
) -> int:
    """Show what happened and why, newest last."""
    now = datetime.now(UTC)
    begin = parse_moment(since, now, "--since", config.events_zone)
    end = parse_moment(until, now, "--until", config.events_zone) if until else None
    if end is not None and begin >= end:
        raise QuestionError("--until is not after --since")
    kinds = frozenset(name.strip() for name in kind.split(",") if name.strip())
    if unknown := kinds - set(KINDS):
        raise QuestionError(
            f"--kind {', '.join(sorted(unknown))} is unknown; the kinds are {', '.join(KINDS)}"
        )
    lines = lines_since(config, begin, kinds, about, end)
    if output == "json":
        for line in lines:
            sys.stdout.write(json_text(line) + "\n")
    elif output == "yaml":
        for line in lines:
            print_document(line, output)
    else:
        _print_lines(config, lines, about, since)
    return ExitCode.OK


def _print_lines(config: Config, lines: Iterator[HistoryLine], about: str, since: str) -> None:
    from dnm.cli.terminal.screen import draw

    first = next(lines, None)
    if first is not None:
        every = chain((first,), lines)
        draw(part for line in every for part in describe_line(line, config.events_zone))
    elif not config.history_keep:
        print_line("no history is kept, because history_days = 0")
    else:
        of = f" about {about}" if about else ""
        when = f"since {since}" if parse_span(since) is None else f"in the last {since}"
        more = "; add `--since 400d` to see older lines" if since != "400d" else ""
        print_line(f"nothing is recorded{of} {when}{more}")


def describe_line(line: HistoryLine, zone: str = "UTC", indent: int = 0) -> Iterator[Line]:
    """Yields a history line as two lines of output: time in the zone, kind, name, and old and new
    state; then the reason and numbers."""
    from dnm.cli.terminal.lines import Line

    arrow = f"{line.before or '-'} -> {line.after}" if line.after not in ("", line.before) else ""
    if line.kind == JOBS:
        arrow = f"{line.before or 'unknown'} -> {line.after or 'unknown'}"
    if line.kind == "queue":
        arrow = f"was {line.before}" if line.before else ""
    author = f"by {line.requester} on {line.host}" if line.requester else ""
    kind = line.kind if line.kind not in ("node", "queue") else ""
    subject = f" {' '.join(filter(None, (kind, line.object)))} "
    event: Part = (line.event, _MEANINGS.get(line.event, ""))
    rest = f"{f' {author}' if author else ''}{f' ({arrow})' if arrow else ''}"
    yield Line(((clock(line.time, zone), "muted"), subject, event, rest), indent)
    if detail := "; ".join(filter(None, [line.reason, *_numbers(line, zone)])):
        yield Line((detail,), indent + 4)


def _jobs(numbers: Mapping[str, Any], zone: str) -> Iterator[str]:
    """Yields the numbers in a history line about waiting jobs: how many more nodes the jobs need,
    and how many nodes are lent."""
    if "since" in numbers:
        yield f"no run has read the job queue since {_shown(numbers['since'], zone)}"
    if "nodes" in numbers:
        jobs, nodes = count_of(numbers["jobs"], "job"), count_of(numbers["nodes"], "more node")
        yield f"{jobs} would start on {nodes}"
    if "lent" in numbers:
        yield f"{count_of(numbers['lent'], 'node')} lent"


def _shown(moment: str, zone: str) -> str:
    """Returns a time in the history as text in the zone, or unchanged if it is malformed."""
    with suppress(ValueError):
        return shown(datetime.fromisoformat(moment), zone, seconds=True)
    return moment


def _numbers(line: HistoryLine, zone: str) -> Iterator[str]:
    numbers = line.numbers
    if line.kind == JOBS:
        yield from _jobs(numbers, zone)
    if "count" in numbers:
        yield f"{numbers['count']} requested"
    if "missing" in numbers:
        yield f"{numbers['missing']} did not join"
    if "evicted" in numbers:
        yield f"{count_of(numbers['evicted'], 'pod')} evicted"
    if "counted" in numbers:
        yield f"counts {amounts(numbers['counted'])}"
    if "request" in numbers:
        yield f"request {numbers['request']}"
    for key, word in (("idle_seconds", "idle for"), ("lent_seconds", "was lent for")):
        if key in numbers:
            yield f"{word} {duration(timedelta(seconds=numbers[key]))}"
    if "pending_pods" in numbers:
        pods = count_of(numbers["pending_pods"], "pod")
        yield f"{pods} pending ({amounts(numbers.get('pending', {}))})"
    yield from (f"{key} {text}" for key, text in decision_numbers(numbers))
    if numbers.get("pods"):
        yield f"pods {pods_lacking(numbers)}"
    if half := numbers.get("half"):
        yield f"only {half}"
    if until := numbers.get("until"):
        yield f"until {_shown(until, zone)}"
    for key in ("failures", "strikes", "reading"):
        if numbers.get(key):
            yield f"{key.replace('_', ' ')} {numbers[key]}"


_ACCOUNTED = frozenset({"node", "request", "queue", "limit", "verb", JOBS})


def make_accounts(config: Config, since: datetime, now: datetime) -> Accounts:
    """Returns the content of `dnm report` from `since` to now. Raises DnmError if the history is
    unreadable."""
    keeper = Bookkeeper(since)
    for line in lines_since(config, since, _ACCOUNTED):
        keeper.add(line)
    return keeper.close(load_registry(config, now), now, unseen_since(config, now))
