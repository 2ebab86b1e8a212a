"""Jobs arrive on a real Slurm while nodes are lent: with `when_batch_waits = return` an idle one
goes back within two runs, and no job and no pod is killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.registry import Phase
from tests.converters.test_host_restart import Place
from tests.slurm_lab import is_running, needs_other_slurm, put_back, the_lab

pytestmark = needs_other_slurm


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Two pods that need a node each; what is idle would stay for ten minutes."""
    sandbox = Sandbox(tmp_path / "sandbox", manual=False).start()
    try:
        yield Place(
            tmp_path / "site", sandbox, 2, when_batch_waits="return", reversion_idle_seconds=600
        )
    finally:
        sandbox.stop()
        put_back(the_lab())


def waiting_jobs(place: Place) -> list[dict[str, object]]:
    """As the converter's list has them."""
    answer = subprocess.run(
        [str(place.directory / "node-convert"), "--list", "--output", "json"],
        env={**place.lab.environ, "DNM_CONFIG": str(place.site.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[dict[str, object]] = json.loads(answer.stdout)["waiting_jobs"]
    return found


def test_idle_nodes_go_back_to_jobs_that_starve(place: Place) -> None:
    lab = place.lab
    place.settle(lambda: place.is_served() and len(place.site.lent()) == 2)
    kept, spare = sorted(place.site.lent())
    working = lab.submit("-p", "main", "-N1", "--exclusive", "-t", "30")
    lab.wait_for(lambda: is_running(lab, working))
    (gone,) = [pod for pod, node in place.site.pods().items() if node == spare]
    place.sandbox.delete("pods", gone, "dev")
    place.run()
    assert place.site.registry.nodes[spare].phase is Phase.SERVING, "nobody waits yet"

    # All nodes of the partition but the one that works and the one that pods use.
    total = sum("main" in node.partitions for node in lab.read_nodes())
    starved = lab.submit("-p", "main", f"-N{total - 2}", "--exclusive", "-t", "30")
    for held in (("--hold",), ("--begin=now+1hour",), (f"--dependency=afterok:{starved}",)):
        lab.submit("-p", "main", "-N1", "-t", "30", *held)
    lab.wait_for(lambda: bool(waiting_jobs(place)))
    (row,) = [one for one in waiting_jobs(place) if one["node_type"] == "a"]
    assert (row["partition"], row["jobs"], row["nodes"]) == ("main", 1, total - 2)

    place.run()
    assert place.site.registry.nodes[spare].phase is Phase.RELEASING
    place.run()
    entry = place.site.registry.nodes.get(spare)
    assert entry is None or (entry.phase is Phase.RETURNING and entry.converter is not None)
    shown = place.site.command("status").stdout
    assert f"partition main: 1 job would start on {total - 2} more nodes of type a" in shown
    place.settle(lambda: is_running(lab, starved) and len(place.site.lent()) == 1)

    assert is_running(lab, working), "a job was killed"
    assert place.site.lent() == [kept] and kept in place.site.pods().values(), "a pod was killed"
    assert not place.sandbox.violations
