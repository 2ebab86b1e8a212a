"""The picture of `dnm report --html`, read back as people read it, by the numbers at its axes, and
compared with what stood in the queue document minute by minute."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from dnm.cli.history import make_accounts
from dnm.cli.page import Span, draw_steps
from dnm.cli.report_page import make_page
from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

NUMBER = r"(-?[0-9.]+)"
DATE = "%m-%d %H:%M"


class Picture:
    """The lines of one chart; nothing of dnm's is used to read it."""

    def __init__(self, svg: str) -> None:
        values = re.findall(
            rf'class="value" x="[0-9]+" y="{NUMBER}"[^>]*>([0-9,]+) ?([a-zA-Z]*)<', svg
        )
        self.values = [(float(y) - 4, float(text.replace(",", ""))) for y, text, _ in values]
        self.units = {unit for _, _, unit in values}
        self.times = [
            (float(x) - 3, datetime.strptime(text, DATE if ":" in text else "%Y-%m-%d"))
            for x, text in re.findall(rf'class="time" x="{NUMBER}"[^>]*>([^<]+)<', svg)
        ]
        self.paths = {
            name: _corners(path)
            for name, path in re.findall(r'<path class="([a-z]+)" d="([^"]+)"', svg)
        }

    def value_at(self, name: str, moment: datetime) -> float | None:
        """Returns what the line says of a moment; None: it is not drawn yet."""
        (x0, t0), (x1, t1) = self.times[0], self.times[-1]
        seconds = (moment.replace(tzinfo=None, year=1900) - t0).total_seconds()
        x = x0 + seconds / (t1 - t0).total_seconds() * (x1 - x0)
        drawn = [y for corner, y in self.paths.get(name, []) if corner <= x + 0.02]
        (y0, v0), (y1, v1) = self.values[0], self.values[-1]
        return v0 + (drawn[-1] - y0) / (y1 - y0) * (v1 - v0) if drawn else None


def _corners(path: str) -> list[tuple[float, float]]:
    first, *steps = re.findall(rf"(?:M{NUMBER} {NUMBER}|H{NUMBER}(?:V{NUMBER})?)", path)
    found = [(float(first[0]), float(first[1]))]
    for _, _, x, y in steps:
        found.append((float(x), float(y) if y else found[-1][1]))
    return found


def pictures(page: str) -> dict[str, Picture]:
    """By what each chart is of."""
    return {
        what: Picture(svg)
        for what, svg in re.findall(
            r'role="img" aria-label="([^":]+):[^"]*">(<svg.*?</svg>)', page, re.DOTALL
        )
    }


def real_limit(site: Site) -> float:
    queues = yaml.safe_load(site.sandbox.queues_text())["partitions"][0]["queues"]
    (dev,) = (one for one in queues[0]["queues"][0]["queues"] if one["name"] == "dev")
    return float(dev["resources"]["max"]["vcore"])


def test_the_picture_shows_the_limit_that_stood_there_minute_by_minute(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Demand comes and goes, and a person changes the limit meanwhile."""
    sandbox.clock.set(time.time() // 86_400 * 86_400 + 8 * 3600)
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_machines(6)
    site = Site(sandbox, tmp_path / "site", reversion_idle_seconds=120)
    began, seen = site.now(), {}
    for minute in range(40):
        if minute in (3, 22):
            sandbox.add_pods(60, "dev", queue=QUEUE, cpu="8", memory="16G", name=f"w{minute}")
        if minute in (12, 32):
            sandbox.finish_pods(list(site.pods()), namespace="dev")
        if minute == 27:
            sandbox.set_queues(sandbox.queues_text().replace("vcore: 592", "vcore: 600"))
        site.run()
        seen[site.now()] = real_limit(site)
        sandbox.tick(60)
    assert max(seen.values()) > 400 and len(set(seen.values())) > 3
    accounts = make_accounts(site.config, began - timedelta(days=30), site.now())
    charts = pictures(make_page(site.config, accounts))
    cores = charts[f"Cores of {QUEUE}"]
    assert cores.units == {"cores"} and charts[f"Memory of {QUEUE}"].units == {"GB"}
    drawn = {moment: cores.value_at("limit", moment + timedelta(seconds=30)) for moment in seen}
    wrong = {
        f"{moment:%H:%M}": (drawn[moment], limit)
        for moment, limit in seen.items()
        if drawn[moment] is not None and abs((drawn[moment] or 0) - limit) > 2
    }
    assert wrong == {} and sum(value is not None for value in drawn.values()) > 35
    assert cores.times[-1][1] - cores.times[0][1] < timedelta(hours=1), "fitted to the data"


@pytest.mark.parametrize("minutes", [1, 7, 58, 600, 5000, 50_000, 700_000])
@pytest.mark.parametrize("most", [0, 0.5, 7, 80, 720, 12_345, 9e9])
def test_whatever_is_drawn_can_be_read_off_its_axes(minutes: int, most: float) -> None:
    begin = datetime(2026, 3, 2, 10, 7, tzinfo=UTC)
    span = Span(begin=begin, end=begin + timedelta(minutes=minutes))
    middle = begin + timedelta(minutes=minutes) / 2
    picture = Picture(draw_steps({"limit": [(begin, most), (middle, most / 2)]}, span, "cores"))
    assert 2 <= len(picture.values) <= 7
    low, high = picture.values[0][1], picture.values[-1][1]
    assert low == 0 and most <= high <= max(2.5 * most, 1)
    corners = picture.paths["limit"]
    (y0, v0), (y1, v1) = picture.values[0], picture.values[-1]
    read = [v0 + (y - y0) / (y1 - y0) * (v1 - v0) for _, y in corners]
    assert read == pytest.approx([most, most / 2, most / 2], abs=high / 1000)


def test_an_empty_span_is_drawn() -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    assert "<path" in draw_steps({"used": [(now, 3.0)]}, Span(begin=now, end=now), "")
