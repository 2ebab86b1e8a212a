"""A workshop in a namespace without a queue system: alone, and beside a queue of YuniKorn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.site import LENT, add_workshop, build_site
from dnm.model.reason import Reason
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

NODE_TYPE = f"""
[node_type:a]
labels = {LENT}={{namespace}}
taints = {LENT}={{namespace}}:NoSchedule
"""
LEAST = 5  # 75 pods of 16 GB, 16 on each node


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    build_site(sandbox, 12, "none")
    return Site(
        sandbox, tmp_path / "site", sections=NODE_TYPE, queue_system="none",
        max_converted_nodes=6, monitored_namespaces="dev, notebook",
    )  # fmt: skip


def run_for(site: Site, runs: int, seconds: float = 60) -> None:
    for _ in range(runs):
        site.run()
        site.sandbox.tick(seconds)


def test_workshop_without_a_queue_system_gets_the_fewest_nodes_and_returns_all(
    sandbox: Sandbox, site: Site
) -> None:
    people = add_workshop(sandbox, queue_system="none")
    sandbox.tick(1)
    run_for(site, 8)
    assert len(site.lent()) == LEAST
    assert all(site.pods().values())
    assert not site.run().plan.errors
    sandbox.finish_pods(people, "dev")
    run_for(site, 12)
    assert site.lent() == []
    assert not sandbox.violations


def test_pods_of_other_namespaces_never_run_on_a_lent_node(sandbox: Sandbox, site: Site) -> None:
    """The pods wait and request no node, because their namespace is not monitored."""
    add_workshop(sandbox, queue_system="none")
    sandbox.add_pods(5, "others", cpu="4", memory="16G", name="other")
    sandbox.tick(1)
    run_for(site, 8)
    assert len(site.lent()) == LEAST
    assert set(site.pods("others").values()) == {""}


def test_pod_that_fits_no_node_type_causes_no_conversion(sandbox: Sandbox, site: Site) -> None:
    sandbox.add_pods(1, "dev", cpu="500", memory="1G", name="giant")
    sandbox.tick(1)
    run_for(site, 3)
    assert site.lent() == []
    assert site.registry.last_run.queues["dev"].code != Reason.LACKS_NODES.name


def test_scheduler_that_judges_no_pod_gets_no_node(sandbox: Sandbox, site: Site) -> None:
    """kube-scheduler is down and sets no condition, so that dnm cannot know what pods lack."""
    add_workshop(sandbox, queue_system="none")
    site.run()
    assert site.lent() == [] and not site.registry.requests


def test_namespace_without_queue_system_is_served_beside_a_queue(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """YuniKorn's limits contain only the nodes lent to its queue, and are as before at the end."""
    build_site(sandbox, 12, "none")
    sandbox.set_queues(WORKSHOP_QUEUES)
    before = sandbox.queues_text()
    site = Site(
        sandbox, tmp_path / "site", monitored_namespaces="dev, notebook", max_converted_nodes=8,
        sections=f"{NODE_TYPE}\n[namespace:notebook]\nqueue_system = none\n",
    )  # fmt: skip

    def tolerating(namespace: str) -> dict[str, Any]:
        return {"tolerations": [{"key": LENT, "operator": "Equal", "value": namespace}]}

    queued = sandbox.add_pods(40, "dev", queue=QUEUE, cpu="4", memory="16G", spec=tolerating("dev"))
    plain = sandbox.add_pods(20, "notebook", cpu="4", memory="16G", spec=tolerating("notebook"))
    sandbox.tick(1)
    run_for(site, 8)
    assert all(site.pods("dev").values()) and all(site.pods("notebook").values())
    by_namespace = [entry.namespace for entry in site.registry.nodes.values()]
    lent = by_namespace.count("dev")
    assert (lent, by_namespace.count("notebook")) == (3, 2)
    assert site.registry.last_run.queues[QUEUE].limit["cpu"] == (80 + lent * 128) * 1000
    sandbox.finish_pods(queued, "dev")
    sandbox.finish_pods(plain, "notebook")
    run_for(site, 14)
    assert site.lent() == [] and sandbox.queues_text() == before
    assert not sandbox.violations
