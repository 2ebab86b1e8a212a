"""Tests of the figures of `dnm report`, which come from a history of some weeks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from dnm.cli.look.lending_report import (
    price_document,
    report_document,
    report_tables,
    seen_sentence,
)
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.record.accounts import Bookkeeper
from dnm.record.price import SeenPrice
from tests.builders import NOW
from tests.record.year import NODES, QUEUES, write_year
from tests.site import Site

DAYS = 20


pytestmark = pytest.mark.xdist_group("lending report")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    directory = tmp_path_factory.mktemp("report")
    made = Site(Sandbox(directory / "sandbox"), directory / "site")
    write_year(made.config.converted_nodes_path, datetime.now(UTC), days=DAYS)
    return made


def test_report_numbers_match_the_generated_days(site: Site) -> None:
    """A day of the history: twelve lends of each queue, which take 9 minutes, and one more for each
    node of a wave. The cap stops lends for 40 minutes. Each node is idle for 11 minutes."""
    report = json.loads(site.command("report", "--since", "52w", "-o", "json").stdout)
    assert report["schema"] == "dnm.report/1"
    for row in report["nodes"]:
        assert row["conversions"] == row["returns"] == NODES * DAYS
        assert row["queue_idle_hours"] == NODES * DAYS * 11 / 60
    assert sum(row["nodes"] for row in report["to_serving"]) == 2 * NODES * DAYS
    assert report["to_serving"][0]["median_seconds"] == 600
    assert report["to_serving"][0]["p95_seconds"] == 660
    assert [(item["code"], item["times"], item["hours"]) for item in report["refused"]] == [
        ("CAPPED", DAYS, round(DAYS * 40 / 60, 2))
    ] * 2
    (first, _) = report["waits"]
    assert (first["waits"], first["before_median_seconds"]) == (4 * DAYS, 540)
    assert first["after_median_seconds"] == 3600 - 540
    hours = sum(row["hours"] for row in report["node_hours"])
    assert hours == pytest.approx(sum(row["hours"] for row in report["nodes"]), abs=0.5)


def test_report_shows_the_price_that_jobs_paid(site: Site) -> None:
    """A day of the history: jobs lack all lent nodes from ten to twelve (705 node-minutes of one
    queue, 525 of the other), then four nodes for three hours. Each node has sixteen pods from its
    join until 11 minutes before its fence."""
    report = json.loads(site.command("report", "--since", "52w", "-o", "json").stdout)
    (item,) = report["price_as_seen"]
    hours = sum(row["hours"] for row in report["nodes"])
    assert item == {
        "node_type": "a",
        "lent_node_minutes": pytest.approx(hours * 60),
        "known_node_minutes": item["lent_node_minutes"],
        "jobs_paid_node_minutes": DAYS * (705 + 525 + 4 * 180),
        "pods_saved_minutes": DAYS * 2 * 16 * 3 * sum(580 - 117 * wave for wave in range(4)),
        "saved_per_paid": 79.66,
    }
    shown = site.command("report", "--since", "52w").stdout
    (row,) = (
        line.split() for line in shown.split("Node-minutes that jobs lacked")[1].splitlines()[2:3]
    )
    assert row == ["a", "204,720", "100%", "39,000", "3,106,560", "79.7"]
    last = json.loads(site.command("report", "--since", "1m", "-o", "json").stdout)
    assert last["price_as_seen"] == []


NO_LOOK = SeenPrice(node_type="a", lent=7200.0, known=0.0, paid=0.0, used=0.0)
HALF = SeenPrice(node_type="a", lent=7200.0, known=3540.0, paid=0.0, used=600.0)
PAID = SeenPrice(node_type="b", lent=7200.0, known=7200.0, paid=60.0, used=600.0)


@pytest.mark.parametrize(
    ("price", "row", "sentence"),
    [
        pytest.param(NO_LOOK, ["a", "120", "unknown", "-", "-", "-"], "", id="not-known"),
        pytest.param(
            HALF, ["a", "120", "49%", "0", "10", "-"],
            "jobs lacked at most 0 of the 120 node-minutes that were lent (runs saw the job queue "
            "for 49% of them); pods used 10 node-minutes", id="seen-for-half-of-it",
        ),
        pytest.param(
            PAID, ["b", "120", "100%", "1", "10", "10.0"],
            "jobs lacked at most 1 of the 120 node-minutes that were lent (runs saw the job queue "
            "for 100% of them); pods used 10 node-minutes: 10.0 for each one", id="seen",
        ),
    ],
)  # fmt: skip
def test_unobserved_price_is_unknown_and_not_zero(
    price: SeenPrice, row: list[str], sentence: str
) -> None:
    document = price_document(price)
    assert (document["jobs_paid_node_minutes"] is None) is (price.known == 0)
    accounts = msgspec.structs.replace(Bookkeeper(NOW).close(Registry(), NOW), prices=(price,))
    *_, table = report_tables(report_document(accounts))
    assert table[1].startswith("Node-minutes that jobs lacked at most") and table[3] == [row]
    message = seen_sentence((price,))
    assert message == sentence


def test_report_on_a_terminal_fits_eighty_columns(site: Site) -> None:
    shown = site.at_a_terminal("report", NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= 80
    words = ("Node-hours lent, by week", "█", "95th", Reason.CAPPED.text, "The longest waits")
    assert not [word for word in (*words, *QUEUES) if word not in shown]
    assert "    " + "type: " not in shown, "a table, not blocks"


def test_empty_history_gives_an_empty_report(tmp_path: Path) -> None:
    site = Site(Sandbox(tmp_path / "sandbox"), tmp_path / "site")
    shown = site.command("report").stdout
    assert "no node was lent" in shown and "no pod waited" in shown


BESIDE = {
    "an end of a report": (("--until", "2026-03-02"), "it needs --format"),
    "an output of a format": (("--format", "csv", "-o", "json"), "write --format or --output"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_report_option_without_effect_is_refused(site: Site, name: str) -> None:
    words, sentence = BESIDE[name]
    done = site.command("report", *words)
    assert done.returncode == 2 and sentence in done.stderr and not done.stdout
