"""`dnm report`: reads the history, and prints what it adds up to or writes the page: the timeline
of every lent node, limits and demand of each queue over the same time, and the tables."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from dnm.cli.look.bill import bill_table, make_bill
from dnm.cli.look.history import QuestionError, make_accounts, parse_moment
from dnm.cli.look.lending_report import csv_rows, print_report, report_document, report_tables
from dnm.cli.look.page import WIDTH, Span, draw_legend, draw_steps, escape, html_table, make_html
from dnm.cli.terminal.output import order_resources, print_document, print_line, print_table
from dnm.model.config import Config
from dnm.model.errors import ExitCode
from dnm.model.printable import count_of, printable
from dnm.record.accounts import Accounts, Point
from dnm.record.stays import Stay
from dnm.run.publish import write_textfile

PHASES = ("joining", "serving", "idle", "releasing", "moving", "returning", "failed")
MOST_NODES = 150  # of the timeline
_ROW = 16.0  # of the timeline, in its own units
_LEAST = 0.7  # what is narrower is not seen
_IN = {"vcore": (1000, "Cores", "cores"), "memory": (10**9, "Memory", "GB")}
_MARGIN = 0.02  # of what is drawn, before its first moment
Step: TypeAlias = tuple[datetime, float]


def show_report(
    config: Config, since: str, html: Path | None, jobs: Path | None, output: str
) -> int:
    """Prints it, or writes the page; returns the exit code. `jobs`: what sacct printed of the same
    time, for what they paid."""
    now = datetime.now(UTC)
    if html is not None and (jobs is not None or output != "text"):
        raise QuestionError("--jobs and --output go with the tables, not with --html")
    accounts = make_accounts(config, parse_moment(since, now, "--since", config.events_zone), now)
    price = None
    if jobs is not None:
        from dnm.cli.look.simulation import price_of_lending  # which loads the planner

        price = price_of_lending(config, since, jobs)
    if html is not None:
        try:
            write_textfile(html, make_page(config, accounts))
        except OSError as error:
            raise QuestionError(
                f"--html {html} can't be written ({error.strerror or error}): name a file in a "
                "directory where this user may write"
            ) from error
        print(f"{html}: {count_of(len(accounts.stays), 'stay')} of lent nodes")
    elif output in ("json", "yaml"):
        print_document(report_document(accounts, price), output)
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["table", "queue", "of", "measure", "value"])
        writer.writerows(csv_rows(report_document(accounts, price)))
    else:
        print_report(config, report_document(accounts, price))
        if charged := [one for one in make_bill(config, accounts.since, now) if one.account]:
            print_line()
            print_table(*bill_table(charged))
    return ExitCode.OK


def make_page(config: Config, accounts: Accounts) -> str:
    """Returns the page."""
    report, span = report_document(accounts), _span(accounts)
    lead = (
        f"Instance {config.instance_id}, {accounts.since:%Y-%m-%d %H:%M} to "
        f"{accounts.until:%Y-%m-%d %H:%M} UTC"
    )
    sections = [("Lent nodes over time", _timeline(accounts, span))]
    sections += [
        (f"Queue {queue}", "".join(_charts(queue, points, span)))
        for queue, points in sorted(accounts.points.items())
    ]
    sections += [
        (name, html_table(name, header, rows, empty))
        for name, header, rows, empty in report_tables(report)
    ]
    sections.append(("Every stay", _stays_table(accounts)))
    return make_html("dnm: what was lent", lead, sections)


def _span(accounts: Accounts) -> Span:
    """What is drawn: from the first that is known of, so that a young record fills the page."""
    first = [stay.begin for stay in accounts.stays]
    first += [points[0].time for points in accounts.points.values() if points]
    begin = min(first, default=accounts.since)
    begin -= (accounts.until - begin) * _MARGIN
    return Span(begin=max(begin, accounts.since), end=accounts.until)


# --- the timeline ----------------------------------------------------------------------------


def _timeline(accounts: Accounts, span: Span) -> str:
    by_node: dict[str, list[Stay]] = {}
    for stay in accounts.stays:
        by_node.setdefault(stay.node, []).append(stay)
    if not by_node:
        return '<p class="dim">no node was lent</p>'
    shown = list(by_node)[:MOST_NODES]
    height = _ROW * (len(shown) + 1)
    rows = "".join(_row(name, by_node[name], number, span) for number, name in enumerate(shown))
    keys = " ".join(
        f'<span class="phase"><span class="key" style="background:var(--{phase})"></span>{phase}'
        "</span>"
        for phase in PHASES
    )
    more = f"; {len(by_node) - len(shown)} more are in the table" if by_node.keys() - shown else ""
    what = f"The times of {count_of(len(shown), 'node')}, by phases{more}"
    return (
        f'<figure><div class="scroll" role="region" aria-label="Timeline" tabindex="0">'
        f'<svg class="chart" role="img" aria-label="{escape(what)}; the last table says the same" '
        f'viewBox="0 0 {WIDTH:.0f} {height:.0f}">{span.draw_axis(height)}{rows}</svg></div>'
        f"<figcaption>{escape(what)}.{keys}</figcaption></figure>"
    )


def _row(name: str, stays: Sequence[Stay], number: int, span: Span) -> str:
    y = _ROW * (number + 1)
    drawn = "".join(_segments(stays, y, span))
    return (
        f'<text x="0" y="{y + 12:.0f}" font-size="11">{escape(printable(name, 18))}</text>{drawn}'
    )


def _segments(stays: Sequence[Stay], y: float, span: Span) -> Iterator[str]:
    """A rectangle a phase, but for those that nobody could see beside the last one."""
    reached = 0.0
    for stay in stays:
        idle = [("idle", end) for _, end in stay.used]
        phases = sorted((*stay.phases, *idle), key=lambda phase: phase[1])
        ends = [begin for _, begin in phases[1:]] + [stay.end or span.end]
        for (phase, begin), end in zip(phases, ends, strict=True):
            left, right = span.x(begin), span.x(end)
            if right - reached < _LEAST:
                continue
            width = max(right - left, _LEAST)
            title = escape(f"{stay.node}: {phase} from {begin:%Y-%m-%d %H:%M} to {end:%H:%M}")
            yield (
                f'<rect x="{left:.1f}" y="{y + 2:.0f}" width="{width:.1f}" height="12" '
                f'style="fill:var(--{phase if phase in PHASES else "dim"})">'
                f"<title>{title}</title></rect>"
            )
            reached = left + width


def _stays_table(accounts: Accounts) -> str:
    rows = [
        [stay.node, stay.node_type, stay.queue, f"{stay.begin:%Y-%m-%d %H:%M}",
         f"{stay.end:%Y-%m-%d %H:%M}" if stay.end else "is lent",
         f"{((stay.end or accounts.until) - stay.begin).total_seconds() / 3600:.1f}"]
        for stay in accounts.stays[-_MOST_ROWS:]
    ]  # fmt: skip
    header = ["node", "type", "queue", "from", "to", "hours"]
    table = html_table("Every stay", header, rows, "no node was lent")
    last = f"the last {_MOST_ROWS} of " if len(accounts.stays) > _MOST_ROWS else ""
    stays = count_of(len(accounts.stays), "stay")
    return f"<details><summary>{last}{stays}</summary>{table}</details>"


_MOST_ROWS = 2_000


# --- charts ----------------------------------------------------------------------------------


def _charts(queue: str, points: Sequence[Point], span: Span) -> Iterator[str]:
    """One for each resource that the queue limits or that its pods ask for."""
    names = {name for point in points for name in (*point.limit, *point.used, *point.pending)}
    for resource in order_resources(names):
        scale, title, unit = _IN.get(resource, (1, resource, ""))
        series = _series(points, resource, scale)
        what = escape(f"{title} of {queue}")
        yield (
            f'<figure><div class="scroll" role="region" aria-label="{what}" tabindex="0">'
            f'<div role="img" aria-label="{what}: {escape(_in_words(series, unit))}">'
            f"{draw_steps(series, span, unit)}</div></div><figcaption>{what}. The limit is as the "
            "history has it; what pods use and want is as runs saw it that decided something."
            f"{draw_legend(series)}</figcaption></figure>"
        )


def _series(points: Sequence[Point], resource: str, scale: int) -> dict[str, list[Step]]:
    """Where a number changes; where the queue has no limit, none is drawn."""
    found: dict[str, list[Step]] = {"limit": [], "used": [], "wanted": []}
    for point in points:
        used = point.used.get(resource, 0)
        values = {"used": used, "wanted": used + point.pending.get(resource, 0)}
        if resource in point.limit:
            values["limit"] = point.limit[resource]
        for name, value in values.items():
            if not found[name] or found[name][-1][1] != value / scale:
                found[name].append((point.time, value / scale))
    return found


def _in_words(series: Mapping[str, Sequence[Step]], unit: str) -> str:
    return "; ".join(
        f"{name} from {values[0][1]:g} to {values[-1][1]:g} {unit}, at most "
        f"{max(value for _, value in values):g}"
        for name, values in series.items()
        if values
    )
