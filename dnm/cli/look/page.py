"""The frame of an HTML page that opens offline: one file, no script, no address in it; readable on
a telephone, in the dark and by a screen reader. What comes from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape as escape_html
from itertools import cycle

from dnm.model.printable import printable
from dnm.model.value import Value

# Colours of text and lines, each with a contrast of 4.5 to its background, light and dark.
_STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1b1b1f;--dim:#5a5a66;--line:#c9c9d4;
--c1:#0b62c4;--c2:#b04a00;--c3:#0a7a3d;--joining:#b07800;--serving:#0a7a3d;--idle:#8f8f9c;--releasing:#0b62c4;
--moving:#0b7a8a;--returning:#7a3fb0;--failed:#c01c28}
@media(prefers-color-scheme:dark){:root{--back:#16161a;--text:#e8e8ee;--dim:#a9a9b8;--line:#44444f;
--c1:#6cb0ff;--c2:#ffa768;--c3:#5fd38d;--joining:#e0b040;--serving:#5fd38d;--idle:#7d7d8c;--releasing:#6cb0ff;
--moving:#5fc8d3;--returning:#c79bf2;--failed:#ff8087}}
body{margin:0 auto;max-width:75rem;padding:1rem;background:var(--back);color:var(--text);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem}
p{margin:.3rem 0}.dim{color:var(--dim)}
.scroll{overflow-x:auto}.scroll:focus-visible{outline:2px solid var(--c1)}
table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);
vertical-align:top;white-space:nowrap}td.wide{white-space:normal;min-width:14rem}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
figure{margin:.5rem 0}figcaption{color:var(--dim);font-size:.9rem}
svg{max-width:100%;height:auto;display:block}
.chart{min-width:40rem}
.phase{white-space:nowrap}.key{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 .8rem;
vertical-align:-.1rem}.line{display:inline-block;width:2rem;margin:0 .3rem .25rem .8rem}
svg text{fill:var(--text)}summary{cursor:pointer}
"""


def escape(text: str) -> str:
    """Returns text from outside for HTML: a browser keeps control characters, and copies them."""
    return escape_html(printable(text))


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def make_html(title: str, lead: str, sections: Iterable[tuple[str, str]]) -> str:
    """Returns the page: `sections` are title and HTML each."""
    body = "".join(
        f'<section aria-labelledby="s{number}"><h2 id="s{number}">{escape(name)}</h2>{html}'
        "</section>\n"
        for number, (name, html) in enumerate(sections)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>"
        f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p></header>\n<main>{body}</main>"
        "</body></html>\n"
    )


def html_table(name: str, header: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    """Returns a table that a narrow screen scrolls; columns of numbers stand right, and a last one
    of sentences is broken."""
    if not rows:
        return f'<p class="dim">{escape(empty)}</p>'
    kinds = [_kind([row[column] for row in rows]) for column in range(len(header))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(cell)}</th>'
        for cell, kind in zip(header, kinds, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, kinds)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    first, *rest = (f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
    heading = first.replace("<td", '<th scope="row"', 1).replace("</td>", "</th>")
    return "".join((heading, *rest))


def _kind(cells: Sequence[str]) -> str:
    if all(cell.replace(".", "", 1).lstrip("~").isdigit() or not cell for cell in cells):
        return ' class="number"'
    return ' class="wide"' if max(map(len, cells)) > 30 else ""


WIDTH, LEFT = 1000.0, 120.0  # of a drawing in its own units, and of what stands left of the axis
_TOP, _HEIGHT = 30.0, 200.0  # of a chart: the dates above it, and itself
_MOST_TICKS = 7
_EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday
_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7 * 1440, 14 * 1440, 28 * 1440)
# Told apart without colour too; what is drawn last lies on top.
_LINES = {"wanted": ("--c1", "2,3"), "limit": ("--c2", "8,4"), "used": ("--c3", "")}
_BORDERS = {"wanted": "dotted", "limit": "dashed", "used": "solid"}  # the same in the legend
_WORDS = {
    "limit": "limit",
    "used": "used by pods that run",
    "wanted": "wanted: used and pending",
}


class Span(Value):
    """From when until when a drawing goes."""

    begin: datetime
    end: datetime

    def x(self, moment: datetime) -> float:
        """Returns where a moment is drawn; one outside at the edge."""
        whole = (self.end - self.begin).total_seconds() or 1.0
        share = min(max((moment - self.begin).total_seconds() / whole, 0.0), 1.0)
        return LEFT + share * (WIDTH - LEFT)

    def draw_axis(self, height: float, y: float = 11) -> str:
        """Returns a line and a date for each step that people count in, in UTC."""
        step = _time_step(self.end - self.begin)
        form = "%m-%d %H:%M" if step < timedelta(days=1) else "%Y-%m-%d"
        parts = [f'<text x="0" y="{y:.0f}" font-size="11">UTC</text>']
        moment = self.begin + (_EPOCH - self.begin) % step
        while moment <= self.end:
            x = self.x(moment)
            parts.append(
                f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{y - 11:.0f}" y2="{height:.0f}" '
                'style="stroke:var(--line)"/>'
            )
            if x < WIDTH - 70:
                parts.append(
                    f'<text class="time" x="{x + 3:.2f}" y="{y:.0f}" font-size="11">'
                    f"{moment:{form}}</text>"
                )
            moment += step
        return "".join(parts)


def _time_step(whole: timedelta) -> timedelta:
    steps = (timedelta(minutes=one) for one in _MINUTES)
    year = timedelta(days=364)
    return next((one for one in steps if whole / one <= _MOST_TICKS), year)


Series = Mapping[str, Sequence[tuple[datetime, float]]]


def draw_steps(series: Series, span: Span, unit: str) -> str:
    """Returns the drawing of `limit`, `used` and `wanted`: each holds from its moment until the
    next one, the last until the end."""
    most = max((value for values in series.values() for _, value in values), default=0.0)
    step = _value_step(most)
    top = step * max(-(-most // step), 1)
    height = _TOP + _HEIGHT
    lines = "".join(
        _draw_line(name, series[name], span, top) for name in _LINES if series.get(name)
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH:.0f} {height + 8:.0f}">'
        f"{span.draw_axis(height, _TOP - 10)}"
        f"{''.join(_draw_values(step, top, unit))}{lines}</svg>"
    )


def _value_step(most: float) -> float:
    """1, 2 or 5 of a power of ten, so that five lines are enough."""
    step, factors = 1.0, cycle((2, 2.5, 2))
    while most / step > 5:
        step *= next(factors)
    return step


def _y(value: float, top: float) -> float:
    return _TOP + _HEIGHT * (1 - value / top)


def _draw_values(step: float, top: float, unit: str) -> Iterator[str]:
    for number in range(round(top / step) + 1):
        y = _y(number * step, top)
        yield (
            f'<line x1="{LEFT:.0f}" x2="{WIDTH:.0f}" y1="{y:.2f}" y2="{y:.2f}" '
            'style="stroke:var(--line)"/>'
            f'<text class="value" x="{LEFT - 6:.0f}" y="{y + 4:.2f}" font-size="11" '
            f'text-anchor="end">{number * step:,.0f} {escape(unit)}</text>'
        )


def _draw_line(name: str, values: Sequence[tuple[datetime, float]], span: Span, top: float) -> str:
    (begin, first), *rest = values
    path = [f"M{span.x(begin):.2f} {_y(first, top):.2f}"]
    path += [f"H{span.x(moment):.2f}V{_y(value, top):.2f}" for moment, value in rest]
    path.append(f"H{span.x(span.end):.2f}")
    return f'<path class="{name}" d="{"".join(path)}" {_style(name)}/>'


def _style(name: str) -> str:
    colour, dashes = _LINES[name]
    return f'fill="none" style="stroke:var({colour});stroke-width:2;stroke-dasharray:{dashes or 0}"'


def draw_legend(series: Series) -> str:
    """Returns the legend of the lines. It is not part of the drawing, which narrow screens
    scroll."""
    return " ".join(
        f'<span class="phase"><span class="line" style="border-top:2px {_BORDERS[name]} '
        f'var({_LINES[name][0]})"></span>{words}</span>'
        for name, words in _WORDS.items()
        if series.get(name)
    )
