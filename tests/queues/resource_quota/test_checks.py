"""`dnm check` for ResourceQuotas, and what the rest of dnm does with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dnm.checks.findings import CheckResult, Finding
from dnm.checks.host import find_everything
from dnm.demand.demand import Demand, QueueDemand
from dnm.demand.reported import with_reported_use
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.site import LENT, build_site
from dnm.model.cluster import QueueFacts, RefusedPods
from dnm.model.config import NamespacePolicy
from dnm.model.pod import Pod, PodShape
from dnm.model.queue_edit import QueueWants
from dnm.queues import system_of
from dnm.queues.resource_quota.simulated import SimulatedQuotas
from tests.builders import NOW, a_config
from tests.site import Site

NODE_TYPE = f"""
[node_type:a]
labels = {LENT}={{namespace}}
taints = {LENT}={{namespace}}:NoSchedule
"""
HARD = {"requests.cpu": "80", "requests.memory": "320Gi"}


def findings(
    sandbox: Sandbox, directory: Path, spec: dict[str, Any], status: dict[str, Any] | None
) -> list[Finding]:
    """Returns the findings of `dnm check` about queues, with a quota unless `spec` is empty."""
    build_site(sandbox, 3, "none")
    if spec:
        metadata = {"name": "q", "namespace": "dev"}
        sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata,
                        "spec": spec, "status": status or {"hard": spec["hard"]}})  # fmt: skip
    site = Site(sandbox, directory / "site", sections=NODE_TYPE, queue_system="resource_quota")
    return [finding for finding in find_everything(site.path, dict(os.environ))
            if finding.check.startswith("queue")]  # fmt: skip


def selected(operator: str, *values: str) -> dict[str, Any]:
    term = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"matchExpressions": [term]}


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"hard": HARD}, None, ""),
        ({"hard": HARD, "scopes": ["NotTerminating"]}, None, ""),
        ({}, None, "has no ResourceQuota that nodes raise"),
        ({"hard": {"configmaps": "9"}}, None, "has no ResourceQuota that nodes raise"),
        ({"hard": HARD, "scopes": ["BestEffort"]}, None, "covers only some pods (BestEffort)"),
        ({"hard": HARD, "scopeSelector": selected("In", "high")}, None, "(PriorityClass In)"),
        ({"hard": {"limits.cpu": "9"}}, None, "limits only the limits of pods"),
        ({"hard": HARD}, {"hard": {"requests.cpu": "1"}}, "have no effect"),
    ],
    ids=["fine", "ordinary-scope", "none", "no-resource-of-nodes", "scope", "selector",
         "limits-alone", "controller-away"],
)  # fmt: skip
def test_check_reports_quotas_that_nodes_do_not_raise(
    sandbox: Sandbox, tmp_path: Path, spec: dict[str, Any], status: Any, expected: str
) -> None:
    shown = findings(sandbox, tmp_path, spec, status)
    problems = [finding.text for finding in shown if finding.result is not CheckResult.OK]
    assert any(expected in text for text in problems) if expected else not problems, shown


def test_check_reports_an_unreadable_quota_as_unreadable(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.fault("status", path="resourcequotas", methods=("GET",), code=503)
    shown = findings(sandbox, tmp_path, {}, None)
    problems = [finding.text for finding in shown if finding.result is not CheckResult.OK]
    assert any("503" in text for text in problems), shown
    assert not any("has no ResourceQuota" in text for text in problems)


def test_reported_use_counts_each_pod_once() -> None:
    """The quota reports 10 cores in use. dnm takes these, and adds no pods that it sees to them."""
    shape = PodShape(request={"cpu": 1000})
    pod = Pod(namespace="dev", name="w", shape=shape)
    demand = Demand(queues={"dev": QueueDemand(queue="dev", used={"cpu": 4000})}, groups=(),
                    nodes={})  # fmt: skip
    refused = (RefusedPods(pod=pod, count=3),)
    facts = QueueFacts(used={"dev": {"cpu": 10_000}}, refused=refused)
    assert with_reported_use(demand, facts, NOW).queues["dev"].used == {"cpu": 10_000}


def test_simulated_quota_grows_and_shrinks() -> None:
    policy = NamespacePolicy(
        name="dev", queue="dev", node_types=("a",), queue_system="resource_quota"
    )
    config, limits = a_config(namespaces={"dev": policy}), {"cpu": 80_000, "pods": 50}
    maps: Any = SimulatedQuotas(config, {"dev": limits})
    system = system_of(config)
    node = {"cpu": 64_000, "pods": 110}
    for nodes, cores in (({"a1": node}, 144_000), ({}, 80_000)):
        wants = QueueWants(instance_id="prod", nodes={"dev": nodes}, remembered="")
        system.write(config, maps, wants, None, lambda: None)
        queues = system.read_queues(config, system.collect(config, maps))
        assert queues.limits["dev"].max["cpu"] == cores
    assert queues.limits["dev"].max == limits
