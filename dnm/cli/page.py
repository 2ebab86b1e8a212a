"""The frame of an HTML page that opens offline: one file, no script, no address in it; readable on
a telephone, in the dark and by a screen reader. What comes from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html

from dnm.model.printable import printable

# Colours of text and lines, each with a contrast of 4.5 to its background, light and dark.
_STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1b1b1f;--dim:#5a5a66;--line:#c9c9d4;
--c1:#0b62c4;--c2:#b04a00;--c3:#0a7a3d;--joining:#b07800;--serving:#0a7a3d;--releasing:#0b62c4;
--moving:#0b7a8a;--returning:#7a3fb0;--failed:#c01c28}
@media(prefers-color-scheme:dark){:root{--back:#16161a;--text:#e8e8ee;--dim:#a9a9b8;--line:#44444f;
--c1:#6cb0ff;--c2:#ffa768;--c3:#5fd38d;--joining:#e0b040;--serving:#5fd38d;--releasing:#6cb0ff;
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
vertical-align:-.1rem}
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
