"""YuniKorn dies, hangs and comes back: what pods did meanwhile says nothing about the pods."""

from __future__ import annotations

import signal
import time

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import PODS, add_pods


def test_yunikorn_dies_while_a_lent_node_joins(rig: Rig, make_site: MakeSite) -> None:
    """The node stays while its pods wait for the scheduler, no pod is noted as one that waits for
    something else, and everything goes on without a word from anybody when it is back."""
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
    assert "YuniKorn at" in lines[0] and not any(lines[1:]), "said once, and lasting"
    rig.servers["yunikorn"].start()
    site.run_until(lambda: rig.running("dev") == 12, "every pod runs")
    assert len(site.lent) == 1
    rig.api.ask("DELETE", PODS)
    site.run_until(site.has_given_back, "the node is back")
    assert rig.queues_text() == QUEUES


def test_a_scheduler_that_hangs_costs_a_run_its_patience_and_no_more(
    rig: Rig, make_site: MakeSite
) -> None:
    site = make_site()
    site.dnm("run")
    rig.servers["yunikorn"].send(signal.SIGSTOP)
    try:
        answer = site.dnm("run", code=1)
    finally:
        rig.servers["yunikorn"].send(signal.SIGCONT)
    assert "does not answer" in answer.stderr, answer.stderr
    site.dnm("run")
