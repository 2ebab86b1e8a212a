"""`dnm report`, the page of it and the page of now, from a history of some weeks."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import yaml

from dnm.cli.look.history import make_accounts
from dnm.cli.look.lending_report import (
    price_document,
    report_document,
    report_tables,
    seen_sentence,
)
from dnm.cli.look.page import Span, draw_steps
from dnm.cli.look.report_page import MOST_NODES, make_page
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.model.reason import Reason
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.record.accounts import Bookkeeper
from dnm.record.price import SeenPrice
from tests.builders import NOW, a_config, a_lent_node
from tests.record.year import NODES, QUEUES, write_year
from tests.site import QUEUE, Site, set_up_workshop

DAYS = 20


pytestmark = pytest.mark.xdist_group("lending report")  # what the fixture has built is built once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("report")
    made = Site(Sandbox(directory / "sandbox"), directory / "site")
    write_year(made.config.converted_nodes_path, datetime.now(UTC), days=DAYS)
    return made


def test_the_numbers_are_those_of_the_days(site: Site) -> None:
    """Each queue: twelve nodes a day, each conversion 9 minutes and the nodes of a wave one more
    each; the cap for 40 minutes a day; 11 minutes of idling for each node."""
    report = json.loads(site.command("report", "--since", "52w", "-o", "json").stdout)
    assert report["schema"] == "dnm.report/1"
    for row in report["nodes"]:
        assert row["conversions"] == row["returns"] == NODES * DAYS
        assert row["queue_idle_hours"] == NODES * DAYS * 11 / 60
    assert sum(row["nodes"] for row in report["to_serving"]) == 2 * NODES * DAYS
    assert report["to_serving"][0]["median_seconds"] == 600
    assert report["to_serving"][0]["p95_seconds"] == 660
    assert [(one["code"], one["times"], one["hours"]) for one in report["refused"]] == [
        ("CAPPED", DAYS, round(DAYS * 40 / 60, 2))
    ] * 2
    (first, _) = report["waits"]
    assert (first["waits"], first["before_median_seconds"]) == (4 * DAYS, 540)
    assert first["after_median_seconds"] == 3600 - 540
    hours = sum(row["hours"] for row in report["node_hours"])
    assert hours == pytest.approx(sum(row["hours"] for row in report["nodes"]), abs=0.5)


def test_what_jobs_paid_as_runs_saw_their_queue(site: Site) -> None:
    """A day: for all that is lent from ten to twelve, 705 node-minutes of one queue and 525 of the
    other, then for four nodes for three hours. Sixteen pods on each node, from the join until 11
    minutes before the fence."""
    report = json.loads(site.command("report", "--since", "52w", "-o", "json").stdout)
    (one,) = report["price_as_seen"]
    hours = sum(row["hours"] for row in report["nodes"])
    assert one == {
        "node_type": "a",
        "lent_node_minutes": pytest.approx(hours * 60),
        "known_node_minutes": one["lent_node_minutes"],
        "jobs_paid_node_minutes": DAYS * (705 + 525 + 4 * 180),
        "pods_saved_minutes": DAYS * 2 * 16 * 3 * sum(580 - 117 * wave for wave in range(4)),
        "saved_per_paid": 79.66,
    }
    shown = site.command("report", "--since", "52w").stdout
    (row,) = (line.split() for line in shown.split("What jobs paid")[1].splitlines()[2:3])
    assert row == ["a", "204,720", "100%", "39,000", "3,106,560", "79.7"]
    last = json.loads(site.command("report", "--since", "1m", "-o", "json").stdout)
    assert last["price_as_seen"] == []


NO_LOOK = SeenPrice(node_type="a", lent=7200.0, known=0.0, paid=0.0, used=0.0)
HALF = SeenPrice(node_type="a", lent=7200.0, known=3540.0, paid=0.0, used=600.0)
PAID = SeenPrice(node_type="b", lent=7200.0, known=7200.0, paid=60.0, used=600.0)


@pytest.mark.parametrize(
    ("price", "row", "sentence"),
    [
        pytest.param(NO_LOOK, ["a", "120", "not known", "-", "-", "-"], "", id="not-known"),
        pytest.param(
            HALF, ["a", "120", "49%", "0", "10", "-"],
            "jobs lacked at most 0 node-minutes of the 120 that were lent, of which 49% were seen; "
            "pods had 10 minutes there", id="seen-for-half-of-it",
        ),
        pytest.param(
            PAID, ["b", "120", "100%", "1", "10", "10.0"],
            "jobs lacked at most 1 node-minutes of the 120 that were lent, of which 100% were "
            "seen; pods had 10 minutes there: 10.0 for each one", id="seen",
        ),
    ],
)  # fmt: skip
def test_what_was_not_seen_is_not_known_and_never_nothing(
    price: SeenPrice, row: list[str], sentence: str
) -> None:
    document = price_document(price)
    assert (document["jobs_paid_node_minutes"] is None) is (price.known == 0)
    accounts = msgspec.structs.replace(Bookkeeper(NOW).close(Registry(), NOW), prices=(price,))
    *_, table = report_tables(report_document(accounts))
    assert table[0].startswith("What jobs paid at most") and table[2] == [row]
    said = seen_sentence((price,))
    assert said == (sentence and f"as runs saw their queue, {sentence}")
    played = report_document(accounts, {
        "jobs": 1, "jobs_waited_minutes": 1.0, "jobs_paid_minutes": 1.0,
        "pods_saved_minutes": 1.0, "saved_per_paid": 1.0,
    })  # fmt: skip
    titles = [table[0] for table in report_tables(played)]
    assert not any("at most" in title for title in titles), "Slurm's accounting says it better"


def test_the_terminal_gets_tables_and_bars_of_eighty_columns(site: Site) -> None:
    shown = site.at_a_terminal("report", NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= 80
    words = ("Node-hours lent, by week", "█", "95th", Reason.CAPPED.text, "The longest waits")
    assert not [word for word in (*words, *QUEUES) if word not in shown]
    assert "    " + "type: " not in shown, "a table, not blocks"


def test_a_sheet_gets_one_number_a_row(site: Site) -> None:
    rows = list(csv.DictReader(io.StringIO(site.command("report", "-o", "csv").stdout)))
    assert {row["table"] for row in rows} == {
        "node_hours", "nodes", "to_serving", "waits", "refused", "price_as_seen",
    }  # fmt: skip
    assert all(re.fullmatch(r"[0-9.]+", row["value"]) for row in rows)


def test_a_history_of_nothing(tmp_path: Path) -> None:
    site = Site(Sandbox(tmp_path / "sandbox"), tmp_path / "site")
    shown = site.command("report").stdout
    assert "no node was lent" in shown and "none waited" in shown
    page = tmp_path / "r.html"
    assert site.command("report", "--html", str(page)).returncode == 0
    assert "no node was lent" in page.read_text()


BESIDE = {
    "an end of a report": (("--until", "2026-03-02"), "it needs --format"),
    "a page of a bill": (("--format", "csv", "--html", "x.html"), "or --html, --jobs or"),
    "a form of a page": (("--html", "x.html", "-o", "csv"), "--output go with the tables"),
    "a form of a form": (("--format", "csv", "-o", "json"), "write --format, or"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_an_option_that_would_change_nothing_is_refused(site: Site, name: str) -> None:
    words, sentence = BESIDE[name]
    done = site.command("report", *words)
    assert done.returncode == 2 and sentence in done.stderr and not done.stdout


@pytest.mark.parametrize("page", ["/nonexistent/r.html", ".", "/"])
def test_a_page_that_can_not_be_written(site: Site, page: str) -> None:
    done = site.command("report", "--html", page)
    assert done.returncode == 2 and f"--html {page} can't be written" in done.stderr


# --- pages -----------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a browser would make of the elements."""

    VOID = ("meta", "img", "br", "hr", "input", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.headings: list[int] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def check(self) -> None:
        """The structure that a screen reader goes by, and nothing from elsewhere."""
        assert self.open == [] and self.tags["main"] == 1 and self.headings[0] == 1
        assert all(below - above <= 1 for above, below in zip(self.headings, self.headings[1:],
                                                              strict=False))  # fmt: skip
        assert not self.tags["script"] and not self.tags["img"] and not self.tags["link"]
        names = {name for _, name, _ in self.attributes}
        assert not {name for name in names if name.startswith("on") or name in ("src", "href")}
        assert ("html", "lang", "en") in self.attributes
        ids = [value for _, name, value in self.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        assert self.tags["svg"] <= sum(
            1 for _, name, value in self.attributes if (name, value) == ("role", "img")
        )


def test_the_page_is_one_file_that_asks_for_nothing(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = site.command("report", "--html", str(path))
    assert done.returncode == 0 and f"{path}: {2 * NODES * DAYS} stays" in done.stdout
    assert path.stat().st_mode & 0o777 == 0o644
    text = path.read_text()
    page = Page(text)
    page.check()
    assert page.tags["svg"] == 1 + 2 * len(QUEUES)  # the timeline; cores and memory of each queue
    assert page.tags["rect"] >= 2 * NODES * DAYS
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", re.sub("<!--.*?-->", "", text)))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "default-src 'none'" in text and len(text) < 500_000
    drawings = re.findall("<svg.*?</svg>", text, re.DOTALL)
    for entry in ("limit", "used by pods that run", "wanted: used and pending", "idle"):
        assert text.count(f"</span>{entry}</span>") == (1 if entry == "idle" else 2 * len(QUEUES))
        assert not any(f"{entry}</text>" in one for one in drawings)  # which narrow screens scroll


def test_a_year_of_many_nodes_is_a_page_of_bounded_size(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    write_year(config.converted_nodes_path, NOW, days=100)
    text = make_page(config, make_accounts(config, NOW - timedelta(days=100), NOW))
    assert Page(text).tags["rect"] < 12_000 and len(text) < 3_000_000
    registry = Registry(nodes={f"a{number:04}": a_lent_node() for number in range(400)})
    many = make_page(config, Bookkeeper(NOW - timedelta(days=1)).close(registry, NOW))
    assert many.count("<rect") == MOST_NODES and "250 more are in the table" in many


def test_what_others_wrote_is_text_and_no_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    status = QueueStatus(limit={}, baseline={}, lent={}, used={}, pending={}, pending_pods=1,
                         verdict="wait", reason=evil)  # fmt: skip
    registry = Registry(
        nodes={"a001": a_lent_node(Phase.FAILED, error=evil, queue=evil)},
        last_run=RunRecord(queues={QUEUE: status}, actions=(evil,), errors=(evil,)),
    )
    config = a_config(tmp_path)
    text = make_page(config, Bookkeeper(NOW - timedelta(days=1)).close(registry, NOW))
    Page(text).check()
    assert "<script" not in text


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
    set_up_workshop(sandbox, 6)
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
