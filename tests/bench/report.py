"""The tables and the results of a benchmark, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.cluster import Size
from tests.bench.measure import Sample

CURL = "curl to nowhere"
RUN = "dnm run"
SHARED = "dnm run, registry = kubernetes"
PLAN = "dnm plan"
PLAIN = "plain client"

Results = Mapping[Size, Mapping[str, Sample]]

WORDS = {
    CURL: "`curl` to nowhere, the same three reads: the floor",
    RUN: "`dnm run`, nothing to do",
    SHARED: "the same with `registry = kubernetes`",
    PLAN: "`dnm plan`, a tenth of the pods pending",
    PLAIN: "the same reads, the official client's objects",
}


@dataclass(frozen=True)
class Target:
    """The highest allowed ratio of a figure of two commands; `limits` has one for each size."""

    text: str
    figure: str
    numerator: str
    denominator: str
    limits: tuple[float | None, ...]


# Most of the smallest run is the import of the client, which the plain one needs too.
TARGETS = (
    Target(f"`{RUN}` / {PLAIN}: wall", "wall", RUN, PLAIN, (0.6, 1 / 18, 1 / 60)),
    Target(f"`{RUN}` / {PLAIN}: peak memory", "peak_bytes", RUN, PLAIN, (0.95, 1 / 4, 1 / 10)),
    Target(f"`{RUN}` / {CURL}: wall", "wall", RUN, CURL, (None, 20.0, 9.0)),
    Target(f"with `registry = kubernetes` / `{RUN}`: wall", "wall", SHARED, RUN, (1.3, 1.3, 1.2)),
    Target(f"`{PLAN}` / `{RUN}`: wall", "wall", PLAN, RUN, (1.3, 1.5, 2.0)),
)


def ratio(samples: Mapping[str, Sample], target: Target) -> float | None:
    if target.numerator not in samples or target.denominator not in samples:
        return None
    upper = getattr(samples[target.numerator], target.figure)
    lower = getattr(samples[target.denominator], target.figure)
    return float(upper) / float(lower)


def find_misses(results: Results) -> list[str]:
    """Returns a message for every measured ratio that exceeds its limit."""
    misses = []
    for position, (size, samples) in enumerate(results.items()):
        for target in TARGETS:
            limit, measured = target.limits[position], ratio(samples, target)
            if limit is not None and measured is not None and measured > limit:
                misses.append(
                    f"{size.name}: {target.text} is {measured:.3f}, should be {limit:.3f} or less"
                )
    return misses


CHANGES = "## When little has changed"  # parts of the page: `tests.bench.changes` writes this one
REAL_SERVER = "## On a real API server"  # and `make bench-real` this one


def find_part(page: str, heading: str) -> str:
    """Returns the part of a page from this heading to the next one; empty if the page lacks it."""
    _, text, rest = page.partition(f"{heading}\n")
    end = rest.find("\n## ")
    return (text + (rest if end < 0 else rest[:end])).strip()


def put_part(page: str, heading: str, part: str) -> str:
    """Returns the page with the part below a heading replaced; a new part is added at the end."""
    before = find_part(page, heading)
    page = page.replace(before, part.strip()) if before else f"{page.rstrip()}\n\n{part.strip()}"
    return f"{page.rstrip()}\n"


def write_report(results: Results, setting: Sequence[str]) -> str:
    """Returns docs/bench.md for these results. `setting` describes the machine and its load."""
    parts = [
        "# What it costs to read a cluster",
        "Medians, in turns in one run of `make bench`, process start included. The server copies "
        "written objects into sockets: a real one is slower ([below](#on-a-real-api-server)). "
        "Pods have 3 to 14 kB. Half a second and 45 MB are the official client's import.",
        "\n".join(f"- {line}" for line in setting),
        "## Figures",
        "Wall clock and peak memory:",
        _figures(results),
    ]
    return "\n\n".join(parts) + "\n"


def write_ratios(results: Results) -> str:
    """Returns a part of the page: the ratios between commands, each with its limit."""
    return f"## Ratios and their limits\n\n{_ratios(results)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _figures(results: Results) -> str:
    rows = []
    for name in next(iter(results.values())):
        result = [samples.get(name) for samples in results.values()]
        cells = [
            f"{sample.wall:.2f} s, {sample.peak_bytes / 1e6:.0f} MB" if sample else "–"
            for sample in result
        ]
        rows.append([WORDS[name], *cells])
    return table(["", *(size.name for size in results)], rows)


def _ratios(results: Results) -> str:
    rows = []
    for target in TARGETS:
        row = [target.text]
        for position, samples in enumerate(results.values()):
            limit, measured = target.limits[position], ratio(samples, target)
            row.append("–" if measured is None else _verdict(measured, limit))
        rows.append(row)
    return table(["", *(size.name for size in results)], rows)


def _verdict(measured: float, limit: float | None) -> str:
    shown = _fraction(measured)
    if limit is None:
        return shown
    return f"{shown} (≤ {_fraction(limit)}{'' if measured <= limit else ', MISSED'})"


def _fraction(value: float) -> str:
    return f"1/{1 / value:.0f}" if value < 0.3 else f"{value:.2f}"
