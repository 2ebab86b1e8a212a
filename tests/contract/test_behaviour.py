"""The promises about behaviour that dnm keeps from the tool it replaces: one test for each promise.
No change of dnm may remove one.

The promise about the validation load is tested in `tests/cli/test_test_load.py`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.lab.sandbox.cluster import Sandbox
from dnm.queues.yunikorn.tree import check_rules, parse_tree
from tests.site import QUEUE, Site, set_up_workshop

SIZES: dict[str, Any] = {"cpu": "4", "memory": "4G"}


@pytest.fixture
def workshop(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with a queue of 80 cores and 320 GB, six idle machines, and no pods."""
    set_up_workshop(sandbox, 6)
    return Site(sandbox, tmp_path / "site", reversion_idle_seconds=60)


def resources(sandbox: Sandbox) -> dict[str, dict[str, str]]:
    root = yaml.safe_load(sandbox.queues_text())["partitions"][0]["queues"][0]
    (result,) = [queue for queue in root["queues"][0]["queues"] if queue["name"] == "dev"]
    return {
        kind: {name: str(amount) for name, amount in amounts.items()}
        for kind, amounts in result["resources"].items()
    }


def test_demand_is_the_running_and_waiting_pods_of_the_queue(
    sandbox: Sandbox, workshop: Site
) -> None:
    """dnm counts those pods of the namespace that name the queue, by annotation or by label."""
    sandbox.add_node("k1")
    names = sandbox.add_pods(3, "dev", queue=QUEUE, **SIZES)
    sandbox.bind(names[0], "k1", "dev")
    spec = {"schedulerName": "yunikorn"}
    note = {"yunikorn.apache.org/queue": QUEUE}
    sandbox.add_pods(2, "dev", name="noted", spec=spec, annotations=note, **SIZES)
    sandbox.add_pods(5, "dev", name="none", **SIZES)  # assigned to no queue
    seen = workshop.plan().plan.seen[QUEUE]
    assert seen.used["cpu"] == 4_000 and seen.pending["cpu"] == 16_000


CONDITIONS: dict[str, dict[str, Any]] = {
    "total demand exceeds the headroom for CPU": {"running": 15, "pending": 6},
    "total demand exceeds the headroom for memory": {
        "running": 2, "pending": 3, "sizes": {"cpu": "1", "memory": "70G"}},
    "pending demand exceeds what is available": {"running": 19, "pending": 2},
    "the pods fit the quota but need a fresh node": {"running": 0, "pending": 1, "nodes": 0},
}  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_demand_condition_converts_a_node(
    sandbox: Sandbox, workshop: Site, condition: str
) -> None:
    case = CONDITIONS[condition]
    if case.get("nodes", 1):
        sandbox.add_node("k1", cpu="256", memory="1T")
    names = sandbox.add_pods(
        case["running"] + case["pending"], "dev", queue=QUEUE, **case.get("sizes", SIZES)
    )
    for name in names[: case["running"]]:
        sandbox.bind(name, "k1", "dev")
    workshop.run_until_rest()
    assert len(workshop.lent()) == 1


def test_demand_that_fits_converts_no_node(sandbox: Sandbox, workshop: Site) -> None:
    sandbox.add_node("k1")
    sandbox.add_pods(10, "dev", queue=QUEUE, **SIZES)
    workshop.run_until_rest()
    assert workshop.lent() == []


def test_limits_follow_the_nodes(sandbox: Sandbox, workshop: Site) -> None:
    """Limits grow only after a node has joined, and are as before when it has been returned."""
    before = sandbox.queues_text()
    pods = sandbox.add_pods(25, "dev", queue=QUEUE, **SIZES)
    workshop.run()
    assert sandbox.queues_text() == before  # the node has not joined
    sandbox.tick(60)
    workshop.run_until_rest()
    assert workshop.lent() == ["a001"]
    grown = resources(sandbox)
    assert grown["max"] == {"vcore": "208", "memory": "576G"}
    assert grown["guaranteed"] == {"vcore": "136", "memory": "288G"}  # not above max
    assert not check_rules(parse_tree(sandbox.queues_text()))
    sandbox.finish_pods(pods, "dev")
    workshop.run()
    sandbox.tick(61)
    workshop.run_until_rest()
    assert workshop.lent() == [] and sandbox.queues_text() == before
    assert sandbox.violations == []


def test_idle_node_is_returned_and_leaves_the_registry(sandbox: Sandbox, workshop: Site) -> None:
    pods = sandbox.add_pods(25, "dev", queue=QUEUE, **SIZES)
    workshop.run_until_rest()
    sandbox.finish_pods(pods[1:], "dev")
    sandbox.tick(3600)
    workshop.run_until_rest()
    assert workshop.lent() == ["a001"]  # one active pod keeps it
    sandbox.finish_pods(pods[:1], "dev")
    workshop.run()
    sandbox.tick(61)
    workshop.run_until_rest()
    record = json.loads(workshop.config.converted_nodes_path.read_text())
    assert record["nodes"] == {} and sandbox.get("nodes", "a001") is None


def test_decisions_conversions_and_limits_are_logged(sandbox: Sandbox, workshop: Site) -> None:
    """dnm logs to syslog; the test reads the console, which gets the same lines."""
    sandbox.clock.set(time.time())
    sandbox.add_pods(25, "dev", queue=QUEUE, **SIZES)
    text = ""
    for _ in range(3):
        sandbox.tick(1)
        text += workshop.command("run", "--log-console").stderr
    for part in (
        "action=convert",
        "verdict=convert",
        "max.vcore=208 was=80",
        "guaranteed.vcore=136 was=8",
    ):
        assert part in text, text
