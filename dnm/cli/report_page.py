"""`dnm report --html`: one page with the timeline of every lent node, limits and demand of each
queue over time, and the tables. pygal draws the charts, without its script; the timeline is drawn
here, since no library has one without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from dnm.cli.history import QuestionError
from dnm.cli.lending_report import report_document, report_tables
from dnm.cli.output import order_resources
from dnm.cli.page import escape, html_table, make_html
from dnm.model.config import Config
from dnm.model.printable import count_of, printable
from dnm.record.accounts import Accounts, Point
from dnm.record.stays import Stay

PHASES = ("joining", "serving", "releasing", "moving", "returning", "failed")
MOST_NODES = 150  # of the timeline
_WIDTH, _NAMES, _ROW = 1000.0, 120.0, 16.0  # of the timeline, in its own units
_LEAST = 0.7  # what is narrower is not seen
_IN = {"vcore": (1000, "cores"), "memory": (10**9, "GB")}


def make_page(config: Config, accounts: Accounts) -> str:
    """Returns the page. Raises QuestionError where the library for charts is not installed."""
    report = report_document(accounts)
    lead = (
        f"Instance {config.instance_id}, {accounts.since:%Y-%m-%d %H:%M} to "
        f"{accounts.until:%Y-%m-%d %H:%M} UTC"
    )
    sections = [("Lent nodes over time", _timeline(accounts))]
    sections += [
        (f"Queue {queue}", "".join(_charts(queue, points)))
        for queue, points in sorted(accounts.points.items())
    ]
    sections += [
        (name, html_table(name, header, rows, empty))
        for name, header, rows, empty in report_tables(report)
    ]
    sections.append(("Every stay", _stays_table(accounts)))
    return make_html("dnm: what was lent", lead, sections)


# --- the timeline ----------------------------------------------------------------------------


def _timeline(accounts: Accounts) -> str:
    by_node: dict[str, list[Stay]] = {}
    for stay in accounts.stays:
        by_node.setdefault(stay.node, []).append(stay)
    if not by_node:
        return '<p class="dim">no node was lent</p>'
    shown = list(by_node)[:MOST_NODES]
    height = _ROW * (len(shown) + 1)
    rows = "".join(_row(name, by_node[name], number, accounts) for number, name in enumerate(shown))
    keys = "".join(
        f'<span class="key" style="background:var(--{phase})"></span>{phase}' for phase in PHASES
    )
    more = f"; {len(by_node) - len(shown)} more are in the table" if by_node.keys() - shown else ""
    what = f"When each of {count_of(len(shown), 'node')} was lent, and its phases{more}"
    return (
        f'<figure><div class="scroll" role="region" aria-label="Timeline" tabindex="0">'
        f'<svg class="chart" role="img" aria-label="{escape(what)}; the last table says the same" '
        f'viewBox="0 0 {_WIDTH:.0f} {height:.0f}">{_days(accounts, height)}{rows}</svg></div>'
        f"<figcaption>{escape(what)}.{keys}</figcaption></figure>"
    )


def _x(moment: datetime, accounts: Accounts) -> float:
    span = (accounts.until - accounts.since).total_seconds() or 1.0
    share = min(max((moment - accounts.since).total_seconds() / span, 0.0), 1.0)
    return _NAMES + share * (_WIDTH - _NAMES)


def _row(name: str, stays: Sequence[Stay], number: int, accounts: Accounts) -> str:
    y = _ROW * (number + 1)
    drawn = "".join(_segments(stays, y, accounts))
    return (
        f'<text x="0" y="{y + 12:.0f}" font-size="11">{escape(printable(name, 18))}</text>{drawn}'
    )


def _segments(stays: Sequence[Stay], y: float, accounts: Accounts) -> Iterator[str]:
    """A rectangle a phase, but for those that nobody could see beside the last one."""
    reached = 0.0
    for stay in stays:
        ends = [begin for _, begin in stay.phases[1:]] + [stay.end or accounts.until]
        for (phase, begin), end in zip(stay.phases, ends, strict=True):
            left, right = _x(begin, accounts), _x(end, accounts)
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


def _days(accounts: Accounts, height: float) -> str:
    """Five dates with a line each."""
    step = (accounts.until - accounts.since) / 5
    parts = []
    for number in range(5):
        moment = accounts.since + number * step
        x = _x(moment, accounts)
        parts.append(
            f'<line x1="{x:.0f}" x2="{x:.0f}" y1="0" y2="{height:.0f}" '
            'style="stroke:var(--line)"/>'
            f'<text x="{x + 3:.0f}" y="11" font-size="11">{moment:%m-%d %H:%M}</text>'
        )
    return "".join(parts)


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


def _charts(queue: str, points: Sequence[Point]) -> Iterator[str]:
    """One for each resource that the queue limits or that its pods ask for."""
    names = {name for point in points for name in (*point.limit, *point.used, *point.pending)}
    for resource in order_resources(names):
        scale, unit = _IN.get(resource, (1, "pieces"))
        what = escape(f"{resource} of {queue} in {unit}")
        words = escape(_in_words(points, resource))
        chart = _chart(points, resource, scale)
        yield (
            f'<figure><div class="scroll" role="region" aria-label="{what}" tabindex="0">'
            f'<div class="chart" role="img" aria-label="{what}: {words}">{chart}</div></div>'
            f"<figcaption>{what}: limit, used, and wanted, which is used with what is pending"
            "</figcaption></figure>"
        )


def _series(points: Sequence[Point], resource: str) -> Mapping[str, list[tuple[datetime, int]]]:
    """As steps: a number holds until the next verdict."""
    found: dict[str, list[tuple[datetime, int]]] = {"limit": [], "used": [], "wanted": []}
    for point in points:
        used = point.used.get(resource, 0)
        values = {"used": used, "wanted": used + point.pending.get(resource, 0)}
        if resource in point.limit:
            values["limit"] = point.limit[resource]
        for name, value in values.items():
            if found[name]:
                found[name].append((point.time, found[name][-1][1]))
            found[name].append((point.time, value))
    return found


def _in_words(points: Sequence[Point], resource: str) -> str:
    scale, _ = _IN.get(resource, (1, ""))
    ends = [
        f"{name} from {values[0][1] / scale:g} to {values[-1][1] / scale:g}, at most "
        f"{max(value for _, value in values) / scale:g}"
        for name, values in _series(points, resource).items()
        if values
    ]
    return "; ".join(ends)


def _without_scripts(root: Any) -> Any:
    """pygal leaves the settings of its script there, also where that is not wanted, and ids for it
    that are the same in every chart."""
    for parent in list(root.iter()):
        if parent.get("id", "").startswith("activate-serie"):
            del parent.attrib["id"]
        for child in [one for one in parent if one.tag == "script"]:
            parent.remove(child)
    return root


def _chart(points: Sequence[Point], resource: str, scale: int) -> str:
    try:
        from pygal import DateTimeLine
        from pygal.style import Style
    except ImportError as error:
        raise QuestionError(
            "--html needs the library pygal: install it with pip install 'dnm[report]'"
        ) from error
    style = Style(
        background="transparent", plot_background="transparent", foreground="var(--text)",
        foreground_strong="var(--text)", foreground_subtle="var(--dim)", font_family="inherit",
        colors=("var(--c2)", "var(--c3)", "var(--c1)"), opacity="1",
    )  # fmt: skip
    options: dict[str, Any] = {
        "js": [], "style": style, "width": 1000, "height": 260, "show_dots": False,
        "disable_xml_declaration": True, "legend_at_bottom": True, "include_x_axis": True,
        "x_value_formatter": lambda moment: f"{moment:%m-%d %H:%M}", "x_label_rotation": 0,
    }  # fmt: skip
    chart = DateTimeLine(**options)
    chart.add_xml_filter(_without_scripts)
    dashes = {"limit": "8,4", "used": "", "wanted": "2,3"}  # told apart without colour too
    for name, values in _series(points, resource).items():
        steps = [(moment, value / scale) for moment, value in values]
        chart.add(name, steps, stroke_style={"width": 2, "dasharray": dashes[name]})
    return str(chart.render(is_unicode=True))
