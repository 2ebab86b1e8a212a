"""Tests of pods that YuniKorn preempts for another queue's guarantee: dnm lends one node, and
nothing oscillates.

32 pods of `dev`, which has no guarantee, fill two full-time nodes of 64 cores. Two pods of 4 cores
join `notebook`, which is guaranteed 8. After half a minute YuniKorn ends two pods of `dev` for
them, which their ReplicaSet creates again."""

from __future__ import annotations

import time

import pytest

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.site import DEV, NOTEBOOK, Site, add_controller, pod
from tests.real.versions import YUNIKORNS

FILLING, COMING = 32, 2
WIDER = QUEUES.replace("vcore: 100\n", "vcore: 128\n")


@pytest.fixture(params=YUNIKORNS)
def full_rig(request: pytest.FixtureRequest, rig: Rig) -> Rig:
    """Fills both nodes with the pods of a ReplicaSet in `dev`."""
    rig.use_scheduler(request.param)
    rig.write_queues(WIDER)
    wanted = {"vcore": 128_000, "memory": 400 * 2**30}
    rig.wait_for(lambda: rig.queue(DEV).get("maxResource") == wanted, "the document is active")
    add_controller(rig, "fill", pod("fill", DEV, "4", "4Gi"), FILLING)
    rig.wait_for(lambda: rig.running("dev") == FILLING, "the nodes are full")
    return rig


def add_guaranteed_pods(rig: Rig) -> None:
    for number in range(COMING):
        manifest = pod(f"n{number}", NOTEBOOK, "4", "4Gi")
        rig.api.post("/api/v1/namespaces/notebook/pods", manifest)


def preempted(rig: Rig) -> list[Json]:
    """Returns YuniKorn's Events about pods that it has preempted."""
    events = rig.api.get("/api/v1/namespaces/dev/events")["items"]
    return [
        event
        for event in events
        if "preempt" in f"{event['reason']} {event.get('message')}".lower()
    ]


def conversions(site: Site) -> int:
    return sum("--set k8s" in call for call in site.calls)


def all_run(rig: Rig) -> bool:
    return rig.running("dev") == FILLING and rig.running("notebook") == COMING


def assert_no_changes(rig: Rig, site: Site) -> None:
    """Plays runs for longer than the preemption delay: no pod may end, no node be lent."""
    uids = {entry["metadata"]["uid"] for entry in rig.pods("dev") + rig.pods("notebook")}
    until = time.monotonic() + 35  # YuniKorn preempts after 30
    while time.monotonic() < until:
        site.dnm("run")
        time.sleep(1)
    assert {entry["metadata"]["uid"] for entry in rig.pods("dev") + rig.pods("notebook")} == uids
    assert conversions(site) == 1 and len(site.lent) == 1


def end(rig: Rig, site: Site) -> None:
    rig.remove_work()
    site.run_until(site.has_returned_nodes, "the node is returned")
    assert rig.queues_text() == WIDER
    assert conversions(site) == 1


def test_preempted_pods_get_a_single_node(full_rig: Rig, make_site: MakeSite) -> None:
    """YuniKorn preempts pods of dev. They wait again, with quota but without free capacity."""
    add_guaranteed_pods(full_rig)
    full_rig.wait_for(lambda: full_rig.running("notebook") == COMING, "YuniKorn preempts", 120)
    assert full_rig.running("dev") == FILLING - COMING
    print(full_rig.versions()["YuniKorn"], [entry.get("message") for entry in preempted(full_rig)])
    site = make_site()
    full_rig.wait_for(lambda: len(full_rig.pods("dev")) == FILLING, "they are created again")
    message = site.dnm("plan").stdout
    assert (
        f"queue {DEV}: lend" in message
        and "no node has free capacity for its pods: 2 pods" in message
    ), message
    site.run_until(lambda: all_run(full_rig), "every pod runs")
    assert_no_changes(full_rig, site)
    end(full_rig, site)


def test_pods_preempted_while_a_node_joins_get_no_second_node(
    full_rig: Rig, make_site: MakeSite
) -> None:
    """dnm lends a node for notebook, but before it joins, notebook's pods preempt those of dev."""
    site = make_site(check_interval_seconds=4)
    site.seconds(60)
    add_guaranteed_pods(full_rig)
    site.dnm("run")
    assert conversions(site) == 1
    site.run_until(lambda: full_rig.running("notebook") == COMING, "YuniKorn preempts", 120)
    site.run_until(lambda: all_run(full_rig), "every pod runs", 120)
    site.seconds(0)
    assert_no_changes(full_rig, site)
    end(full_rig, site)
