"""The figures of a benchmark as an SVG: panels of lines, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.measure import Sample
from tests.bench.report import CURL, KUBECTL, PLAIN, PLAN, RUN, Results

_WIDTH, _HEIGHT = 420, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 34, 16, 44
_COLOURS = {RUN: "#0b6e4f", PLAN: "#57a773", CURL: "#8d99ae", PLAIN: "#c1121f", KUBECTL: "#e09f3e"}


@dataclass(frozen=True)
class Panel:
    """Lines of points, both axes logarithmic; `over` says what goes to the right."""

    title: str
    over: str
    series: Mapping[str, Sequence[tuple[float, float]]]


class _Axes:
    """One panel: data to pixels."""

    def __init__(self, origin: int, pods: Sequence[float], values: Sequence[float]) -> None:
        self.origin = origin
        self.x_range = (math.log10(min(pods)), math.log10(max(pods)) or 1.0)
        self.y_range = (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))))

    def x(self, pods: float) -> float:
        low, high = self.x_range
        share = (math.log10(pods) - low) / (high - low) if high > low else 0.5
        return self.origin + _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = (math.log10(value) - low) / max(high - low, 1)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


Figure = Callable[[Sample], float]
_PANELS: dict[str, Figure] = {
    "wall clock, seconds": lambda sample: sample.wall,
    "peak memory, MB": lambda sample: sample.peak_bytes / 1e6,
}


def draw(
    results: Results,
    figures: Mapping[str, Figure] = _PANELS,
    colours: Mapping[str, str] = _COLOURS,
    more: Sequence[Panel] = (),
) -> str:
    """A panel for each figure over the size of the cluster, those of `more`, and one legend."""
    panels = [_over_size(title, results, figure) for title, figure in figures.items()]
    panels += more
    drawn = [_draw(number * _WIDTH, panel, colours) for number, panel in enumerate(panels)]
    names = [name for name in colours if any(name in one for one in results.values())]
    width, total = len(panels) * _WIDTH, _HEIGHT + 30
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{total}" fill="white"/>',
            *drawn,
            *(_legend(position, name, colours[name]) for position, name in enumerate(names)),
            "</svg>",
            "",
        ]
    )


def _over_size(title: str, results: Results, figure: Figure) -> Panel:
    names = dict.fromkeys(name for samples in results.values() for name in samples)
    series = {
        name: [(size.pods, figure(samples[name]))
               for size, samples in results.items() if name in samples]
        for name in names
    }  # fmt: skip
    return Panel(title, "pods", series)


def _draw(origin: int, panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for line in panel.series.values() for point in line]
    ticks = sorted({x for x, _ in points})
    axes = _Axes(origin, ticks, [y for _, y in points])
    parts = [f'<text x="{origin + _LEFT}" y="20" font-weight="bold">{panel.title}</text>']
    for power in range(axes.y_range[0], axes.y_range[1] + 1):
        parts.append(_grid_line(axes, 10.0**power))
    for tick in ticks:
        parts.append(
            f'<text x="{axes.x(tick):.0f}" y="{_HEIGHT - _BOTTOM + 18}" '
            f'text-anchor="middle">{tick:,.0f}</text>'
        )
    parts.append(
        f'<text x="{origin + (_WIDTH + _LEFT) // 2}" y="{_HEIGHT - 8}" '
        f'text-anchor="middle">{panel.over}</text>'
    )
    for name, colour in colours.items():
        line = [(axes.x(x), axes.y(y)) for x, y in panel.series.get(name, ())]
        parts.append(_line(line, colour) if line else "")
    return "\n".join(parts)


def _grid_line(axes: _Axes, value: float) -> str:
    y = axes.y(value)
    left, right = axes.origin + _LEFT, axes.origin + _WIDTH - _RIGHT
    return (
        f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
        f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'


def _legend(position: int, name: str, colour: str) -> str:
    x = _LEFT + position * 150
    y = _HEIGHT + 16
    return (
        f'<rect x="{x}" y="{y - 9}" width="12" height="10" fill="{colour}"/>'
        f'<text x="{x + 18}" y="{y}">{name}</text>'
    )
