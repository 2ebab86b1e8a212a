"""Tests that DaemonSet pods do not keep a node, and that a tenant's fake DaemonSet pod does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from tests.site import QUEUE, Site, set_up_workshop

HERE: dict[str, str] = {}
ELSEWHERE = {"pool": "elsewhere"}


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with a lent node, on which all pods have ended."""
    set_up_workshop(sandbox, 2)
    sandbox.add_node("k1", cpu="1", memory="4G")
    site = Site(sandbox, tmp_path / "site")
    sandbox.add_pods(4, "dev", queue=QUEUE, cpu="4", memory="16G", name="first")
    site.run_until_rest()
    assert site.lent() == ["a001"]
    for name in site.pods():
        sandbox.delete("pods", name, "dev")
    sandbox.tick(1)
    return site


def claim(site: Site, selector: dict[str, str]) -> None:
    """Creates a tenant's DaemonSet, and a pod on the lent node that names it as its owner."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x"}]}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {**spec, "nodeSelector": selector}}
    made = site.sandbox.create({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "dev"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
    })  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True,
             "uid": made["metadata"]["uid"]}  # fmt: skip
    site.sandbox.create({
        "apiVersion": "v1", "kind": "Pod", "spec": {**spec, "nodeName": "a001"},
        "metadata": {"name": "x", "namespace": "dev", "ownerReferences": [owner]},
    })  # fmt: skip
    site.sandbox.tick(1)


def run_for(site: Site, minutes: int) -> list[str]:
    """Plays a run each minute. Returns all errors."""
    errors: list[str] = []
    for _ in range(minutes):
        outcome = site.run().outcome
        errors += outcome.errors if outcome else ()
        site.sandbox.tick(60)
    return errors


@pytest.mark.parametrize(("selector", "is_kept"), [(HERE, False), (ELSEWHERE, True)])
def test_pod_that_pretends_to_be_of_a_daemon_set_keeps_its_node(
    site: Site, selector: dict[str, str], is_kept: bool
) -> None:
    claim(site, selector)
    run_for(site, 8)
    assert (site.lent() == ["a001"]) is is_kept
    assert ("x" in site.pods()) is is_kept
    assert site.sandbox.violations == []


def test_unreadable_daemon_sets_keep_the_node(site: Site) -> None:
    claim(site, HERE)
    site.sandbox.fault("status", path="daemonsets", code=403, times=99)
    site.run()
    result = site.run()
    assert any("list the DaemonSets" in error for error in result.plan.errors)
    run_for(site, 8)
    assert site.registry.nodes["a001"].phase is Phase.SERVING


def test_daemon_sets_are_read_only_if_a_decision_depends_on_them(site: Site) -> None:
    site.sandbox.add_pods(1, "dev", queue=QUEUE, cpu="4", memory="16G", name="second")
    site.sandbox.tick(1)
    site.run()
    site.sandbox.requests.clear()
    site.run()
    assert not site.sandbox.requests.lists("daemonsets")
