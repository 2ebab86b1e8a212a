"""Tests of YuniKorn that dies or hangs: dnm draws no conclusion from pods that wait meanwhile."""

from __future__ import annotations

import signal
import time

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import PODS, add_pods


def test_yunikorn_killed_while_a_lent_node_joins_loses_nothing(
    rig: Rig, make_site: MakeSite
) -> None:
    """The node stays while its pods wait for the scheduler. dnm records no pod as stalled, and
    continues by itself when the scheduler is back."""
    add_pods(rig, 12, "16", "8Gi")
    rig.wait_for(lambda: rig.running("dev") == 6, "the quota's worth of pods runs")
    site = make_site()
    site.dnm("run")
    assert site.calls[-1].startswith("--set k8s")
    rig.servers["yunikorn"].stop(signal.SIGKILL)
    began, lines = time.monotonic(), []
    while time.monotonic() < began + 8:  # four times reversion_idle_seconds
        lines.append(site.dnm("run", code=1).stderr)
        assert len(site.lent) == 1
    assert "YuniKorn at" in lines[0] and not any(lines[1:]), "printed once, and lasting"
    rig.servers["yunikorn"].start()
    site.run_until(lambda: rig.running("dev") == 12, "every pod runs")
    assert len(site.lent) == 1
    rig.api.ask("DELETE", PODS)
    site.run_until(site.has_returned_nodes, "the node is returned")
    assert rig.queues_text() == QUEUES


def test_hanging_yunikorn_delays_a_run_by_its_timeout_only(rig: Rig, make_site: MakeSite) -> None:
    site = make_site()
    site.dnm("run")
    rig.servers["yunikorn"].send(signal.SIGSTOP)
    try:
        answer = site.dnm("run", code=1)
    finally:
        rig.servers["yunikorn"].send(signal.SIGCONT)
    assert "does not answer" in answer.stderr, answer.stderr
    site.dnm("run")
