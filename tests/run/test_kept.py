"""Tests that cluster data kept between runs never causes the return of a node in use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, Site, set_up_workshop


def test_pod_missing_from_the_watch_keeps_its_node(
    sandbox: Sandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    set_up_workshop(sandbox, 1)
    metrics = tmp_path / "dnm.prom"
    settings: dict[str, Any] = {"relist_minutes": 60, "watch_from_pods": 0, "metrics_file": metrics}
    site = Site(sandbox, tmp_path / "site", **settings)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=120)
    for _ in range(4):
        site.run()
        sandbox.tick(60)
    (node,) = site.lent()
    untold = sandbox.add_pods(1, "dev", cpu="1", memory="1G", name="untold")
    sandbox.bind(untold[0], node, "dev")
    rows = [
        event for event in sandbox.store.events if event.entry.data["metadata"]["name"] != untold[0]
    ]
    sandbox.store.events.clear()
    sandbox.store.events.extend(rows)
    ways, actions = set(), ""
    for _ in range(6):  # only time passes: no further event reports the pod
        result = site.run()
        results = re.search(r'reading_info{.*way="([^"]*)"', metrics.read_text())
        assert results is not None and result.outcome is not None
        ways.add(results[1])
        actions += " ".join(result.outcome.actions)
        sandbox.clock.set(sandbox.clock.now() + 60)
    assert ways == {"changes"} and f"action=fence node={node}" in actions
    assert "action=return" not in actions and "a pod started on it" in caplog.text
    assert node in site.lent() and sandbox.get("pods", untold[0], "dev")
