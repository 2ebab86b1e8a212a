"""A queue with low utilization of a lent node, in `dnm plan`, `dnm status` and `dnm report`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, Site, set_up_workshop

HOUR = 3600


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site on which a pod of one core uses a node that was lent five hours ago."""
    sandbox.clock.set(time.time() - 5 * HOUR)
    set_up_workshop(sandbox, 1)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="1", memory="1G")
    site = Site(sandbox, tmp_path / "site")
    site.run_until_rest()
    return site


def hours(site: Site, count: int) -> None:
    for _ in range(count):
        site.sandbox.tick(HOUR)
        site.run()


def test_lasting_low_utilization_is_named_with_the_next_step(site: Site) -> None:
    hours(site, 3)
    early = site.registry.low_utilization[QUEUE]
    assert not early.is_reported and "sits" not in site.command("status").stdout
    hours(site, 1)
    reported = site.registry.low_utilization[QUEUE]
    assert reported.is_reported and reported.since == early.since
    for verb in ("plan", "status"):
        text = " ".join(site.command(verb).stdout.split())
        assert (
            f"queue {QUEUE} has low utilization: its pods use at most 1 % of 1 lent node since "
            f"{reported.since:%Y-%m-%d %H:%M} UTC" in text
        )
        assert "`max_lend_hours`" in text and "`dnm return NODE --evict`" in text
    lines = site.command("report").stdout.splitlines()
    (row,) = (line.split() for line in lines if line.endswith("1%"))
    assert row == [QUEUE, f"{reported.since:%m-%d}", f"{reported.since:%H:%M}", "1", "1%"]
    for verb in ("plan", "status", "report"):
        (item,) = json.loads(site.command(verb, "-o", "json").stdout)["low_utilization"]
        since = item.pop("since")
        assert item == {"queue": QUEUE, "percent": 1, "nodes": 1}
        assert since.startswith(f"{reported.since:%Y-%m-%dT%H:%M}")


def test_run_with_unchanged_low_utilization_writes_nothing(site: Site) -> None:
    hours(site, 4)
    before = site.config.converted_nodes_path.read_bytes()
    site.run()
    assert site.config.converted_nodes_path.read_bytes() == before
