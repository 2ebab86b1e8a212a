"""Tests of the workshop: 75 people, four cores each, on a cluster that is full.

The least number of nodes: 75 pods request 300 cores and 1,200 GB. The queue has 80 cores and 320
GB, so it lacks 220 cores and 880 GB. A node adds 128 cores and 256 GB: two nodes by cores, four by
memory (3 x 256 = 768 < 880). By capacity, a node of 128 cores and 256 GB holds 16 such pods (16 x
16 GB). The cluster has no capacity, so 75 pods need five nodes (4 x 16 = 64 < 75). So dnm lends
five."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.plan import StartConversion
from tests.site import QUEUE, Site, set_up_workshop

LEAST = 5


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 12)
    sandbox.add_node("k001", cpu="4", memory="16G")
    sandbox.add_namespace("dev")
    return Site(
        sandbox, tmp_path / "site", max_converted_nodes=6, max_conversions_per_run=2,
        global_cooldown_seconds=90, headroom=1,
    )  # fmt: skip


def test_seventy_five_pods_get_the_fewest_nodes_and_all_are_returned(
    sandbox: Sandbox, site: Site
) -> None:
    sandbox.add_pods(1, "kube-system", name="full", cpu="3900m", memory="15G")
    sandbox.tick()
    before = sandbox.queues_text()
    people = sandbox.add_pods(75, "dev", queue=QUEUE, cpu="4", memory="16G")
    counts = []
    for _ in range(12):
        site.run()
        sandbox.tick(60)
        counts.append(len(site.lent()))
        assert len(site.registry.nodes) + sum(r.count for r in site.registry.requests) <= 6
    assert counts[-1] == LEAST and max(counts) == LEAST
    assert all(later - earlier <= 2 for earlier, later in pairwise(counts))
    assert all(site.pods().values())
    limits = site.registry.last_run.queues[QUEUE]
    assert limits.limit["cpu"] == (80 + LEAST * 128) * 1000
    assert limits.limit["memory"] == (320 + LEAST * 256) * 10**9
    assert limits.baseline == {"cpu": 80_000, "memory": 320 * 10**9}
    sandbox.finish_pods(people, "dev")
    sandbox.tick(1)
    for _ in range(20):
        site.run()
        sandbox.tick(60)
    assert site.lent() == [] and sandbox.queues_text() == before
    assert not sandbox.violations


def state_files(site: Site) -> dict[Path, bytes]:
    result = (site.directory / "state").rglob("*")
    return {path: path.read_bytes() for path in result if path.is_file()}


def test_write_that_fails_once_costs_a_single_run(
    sandbox: Sandbox, site: Site, tmp_path: Path
) -> None:
    """A failed write of the limits stops the lends of a run. The next run does both."""
    site = Site(sandbox, tmp_path / "hasty", max_converted_nodes=6, max_conversions_per_run=2)
    sandbox.add_pods(75, "dev", queue=QUEUE, cpu="4", memory="16G")
    site.run()
    sandbox.tick(60)
    begun = len(conversions(sandbox))
    sandbox.fault("status", path="configmaps", methods=("PATCH", "PUT"), code=500, times=1)
    failed = site.run()
    assert failed.outcome and any("500" in error for error in failed.outcome.errors)
    assert any(isinstance(action, StartConversion) for action in failed.plan.actions)
    assert len(conversions(sandbox)) == begun and not site.registry.requests
    sandbox.tick(60)
    outcome = site.run().outcome
    assert outcome and any("action=convert" in line for line in outcome.actions)
    assert not site.registry.backoffs


def conversions(sandbox: Sandbox) -> list[tuple[str, ...]]:
    return [call.arguments for call in sandbox.conversion.calls if "--set" in call.arguments]


@pytest.mark.parametrize("waiting", [0, 4])
def test_limit_lowered_manually_below_lent_nodes_stops_lending(
    sandbox: Sandbox, tmp_path: Path, waiting: int
) -> None:
    """A lent node would not raise such a limit, so dnm lends none, and returns idle ones."""
    set_up_workshop(sandbox, 12)
    sandbox.add_node("k001", cpu="64", memory="256G")
    site = Site(sandbox, tmp_path / "site", max_converted_nodes=8, adjust_guaranteed="false")
    people = sandbox.add_pods(24, "dev", queue=QUEUE, cpu="4", memory="4G")
    for _ in range(6):
        site.run()
        sandbox.tick(60)
    assert len(site.lent()) == 1 and "vcore: 208" in sandbox.queues_text()
    sandbox.set_queues(sandbox.queues_text().replace("vcore: 208", "vcore: 100"))
    sandbox.add_pods(waiting, "dev", name="more", queue=QUEUE, cpu="4", memory="4G")
    for _ in range(14):
        site.run()
        sandbox.tick(60)
        assert len(site.lent()) <= 1
    assert "vcore: 100" in sandbox.queues_text()
    verdict = site.registry.last_run.queues[QUEUE]
    assert verdict.verdict == "keep" and "was set to 100" in verdict.reason
    assert ("no new node" in verdict.reason) == bool(waiting), verdict
    sandbox.finish_pods([*people, *(n for n in site.pods() if n.startswith("more"))], "dev")
    for _ in range(14):
        site.run()
        sandbox.tick(60)
    assert site.lent() == [] and not sandbox.violations


def test_run_without_changes_writes_nothing(sandbox: Sandbox, site: Site) -> None:
    sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16G")
    site.run_until_rest()
    files = state_files(site)
    sandbox.requests.clear()
    result = site.run()
    assert result.exit_code == 0 and not result.plan.actions
    assert sandbox.requests.writes() == []
    assert state_files(site) == files
