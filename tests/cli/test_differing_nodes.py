"""A lent node has another size than its type: queues are still served, and commands name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.plan import StartConversion
from tests.site import QUEUE, Site, set_up_workshop

TAINT = {"key": "site.example/broken", "effect": "NoSchedule"}
SIZE = "[node_type:a]\ncpu = 128\nmemory = 256G\n"


def add_taint(node: Any) -> None:
    node["spec"].setdefault("taints", []).append(TAINT)


def lower_cpu(node: Any) -> None:
    node["status"]["allocatable"]["cpu"] = "99"


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with two full lent nodes."""
    set_up_workshop(sandbox, 6)
    sandbox.add_node("k1", cpu="1", memory="4G")
    site = Site(sandbox, tmp_path / "site", sections=SIZE)
    sandbox.add_pods(32, "dev", queue=QUEUE, cpu="4", memory="16G", name="first")
    site.run_until_rest()
    assert site.lent() == ["a001", "a002"]
    return site


@pytest.mark.parametrize(
    ("change", "cpu", "difference"),
    [
        (add_taint, "4", "it has the taint site.example/broken:NoSchedule, which type a does not"),
        (lower_cpu, "100", "it has 99 cpu, where type a has 128 cpu"),
    ],
)
def test_single_differing_node_stops_no_queue_and_is_named(
    site: Site, change: Any, cpu: str, difference: str
) -> None:
    site.sandbox.edit("nodes", "a001", change)
    site.sandbox.add_pods(4, "dev", queue=QUEUE, cpu=cpu, memory="16G", name="second")
    site.sandbox.tick(60)
    plan = site.plan().plan
    assert any(isinstance(action, StartConversion) for action in plan.actions), plan.queues
    shown = " ".join(site.command("check").stdout.split())
    assert f"a001: {difference}" in shown and "repair the node or return it" in shown
    assert "they bring no node" not in shown
    assert difference in " ".join(site.command("explain", "a001").stdout.split())
    assert difference not in site.command("explain", "a002").stdout


def test_only_differing_lent_node_gets_a_repair_advice(site: Site) -> None:
    for name in site.lent():
        site.sandbox.edit("nodes", name, add_taint)
    site.sandbox.add_pods(4, "dev", queue=QUEUE, cpu="4", memory="16G", name="second")
    site.sandbox.tick(60)
    shown = " ".join(site.command("check").stdout.split())
    assert "they bring no node: first repair the lent nodes that differ" in shown
