"""Tests of configurations of Kueue that dnm refuses and `dnm check` reports, but Kueue accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.checks.findings import CheckResult, Finding
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import NamespacePolicy
from dnm.model.errors import KubeError, QueueError
from dnm.model.node_type import NodeType, Taint
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.queue_edit import QueueWants
from dnm.queues.kueue.admin import checks
from dnm.queues.kueue.simulated import SimulatedKueue
from dnm.queues.kueue.system import SYSTEM, KueueQueues
from tests.builders import NOW, SIZE, a_config
from tests.queues.kueue.conftest import QUOTAS, Read, a_kueue_config
from tests.queues.kueue.objects import (
    LABEL,
    a_cluster_queue,
    a_flavor,
    a_group,
    a_local_queue,
    a_pod_set,
    a_workload,
    an_object,
)

ROOT = Path(__file__).parents[3]
LENT = {"cpu": "0", "memory": "0"}
INACTIVE = {"conditions": [
    {"type": "Active", "status": "False", "reason": "FlavorNotFound",
     "message": "references missing ResourceFlavor(s): nosuch."},
]}  # fmt: skip


def a_cohort(name: str = "dnm-a8", **spec: Any) -> dict[str, Any]:
    return an_object("Cohort", name, spec)


def with_status(queue: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {**queue, "status": {**queue["status"], **status}}


USUAL = a_cluster_queue("a8", QUOTAS)
RECLAIMING = a_cluster_queue("b", QUOTAS, cohortName="university",
                             preemption={"reclaimWithinCohort": "Any"})  # fmt: skip
REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "another-cohort": ([a_cluster_queue("a8", QUOTAS, cohortName="university")], "cohortName"),
    "no-cohort": ([a_cluster_queue("a8", QUOTAS, cohortName=None)], "cohortName"),
    "flavor-not-listed": ([a_cluster_queue("a8", {"permanent": LENT})], "does not list"),
    "flavor-first": ([a_cluster_queue("a8", {"lent": LENT, "permanent": LENT})], "fills"),
    "flavor-without-labels": ([a_flavor(nodeLabels={})], "nodeLabels"),
    "flavor-with-topology": ([a_flavor(topologyName="racks")], "racks"),
    "inactive": ([with_status(USUAL, INACTIVE)], "nosuch"),
    "not-reported": ([with_status(USUAL, {"conditions": []})], "has not reported"),
    "held": ([a_cluster_queue("a8", QUOTAS, stopPolicy="HoldAndDrain")], "stopPolicy"),
    "no-namespaces": ([a_cluster_queue("a8", QUOTAS, namespaceSelector=None)],
                      "namespaceSelector"),
    "steered": ([with_status(USUAL, {"effectiveQuotas": {"resourceGroups": []}})],
                "DynamicQuotaOrchestrator"),
    "borrowing-limit-of-nothing": (
        [a_cluster_queue("a8", QUOTAS, resourceGroups=[a_group(QUOTAS, borrowingLimit="0")])],
        "borrowingLimit"),
    "borrowing-limit-below-a-node": (
        [a_cluster_queue("a8", QUOTAS, resourceGroups=[a_group(QUOTAS, borrowingLimit="100")])],
        "borrowingLimit"),
    "parent-with-reclaim": ([a_cohort(parentName="university"), RECLAIMING], "preemption"),
    "another-member": ([a_cluster_queue("b", QUOTAS, cohortName="dnm-a8")], "b would use"),
    "cohort-below": ([a_cohort("department", parentName="dnm-a8")], "department would use"),
}  # fmt: skip


def objection_of(facts: Any) -> str:
    objection = KueueQueues(facts=facts).growth_objection(
        QueueWants(instance_id="prod"), "a8", [SIZE]
    )
    return objection.detail if objection else ""


def findings_of(sandbox: Sandbox, facts: Any, **changes: Any) -> list[Finding]:
    config = a_kueue_config(sandbox, **changes)
    snapshot = Snapshot(taken_at=NOW, pods=PodList(pods=()), nodes=(), queue_facts=facts)
    kube = KubeClient.connect(config)
    return [*checks.check_limits(config, kube, snapshot), *checks.check_queues(config, snapshot)]


@pytest.mark.parametrize(("objects", "word"), REFUSED.values(), ids=list(REFUSED))
def test_fault_is_refused_by_the_run_and_by_check(
    sandbox: Sandbox, read: Read, objects: list[dict[str, Any]], word: str
) -> None:
    facts = read(*objects)
    assert word in objection_of(facts)
    failed = [item for item in findings_of(sandbox, facts) if item.result is CheckResult.FAILED]
    assert any(word in item.text for item in failed)
    assert all(item.remedy for item in failed)


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([], id="no-cohort-yet"),
        pytest.param([a_cohort()], id="an-empty-cohort"),
        pytest.param([a_cohort(parentName="university")], id="a-parent-without-reclaim"),
        pytest.param([RECLAIMING], id="reclaim-elsewhere"),
    ],
)
def test_ready_queue_passes(sandbox: Sandbox, read: Read, objects: list[dict[str, Any]]) -> None:
    facts = read(*objects)
    assert objection_of(facts) == ""
    assert [item.result for item in findings_of(sandbox, facts)] == [CheckResult.OK]


def test_missing_objects_are_refused(sandbox: Sandbox) -> None:
    config = a_kueue_config(sandbox)
    facts = SYSTEM.collect(config, KubeClient.connect(config))
    detail = objection_of(facts)
    assert "no ClusterQueue a8" in detail
    assert CheckResult.FAILED in {item.result for item in findings_of(sandbox, facts)}


def test_missing_flavor_is_refused(sandbox: Sandbox, read: Read) -> None:
    read()
    sandbox.delete("resourceflavors", "lent")
    config = a_kueue_config(sandbox)
    facts = SYSTEM.collect(config, KubeClient.connect(config))
    assert "there is no ResourceFlavor lent" in objection_of(facts)
    assert CheckResult.FAILED in {item.result for item in findings_of(sandbox, facts)}


def test_simulation_of_kueue_is_refused_with_the_next_step() -> None:
    with pytest.raises(QueueError, match="write queue_system = none into a copy of the ini"):
        SimulatedKueue(a_config(), {})


def test_server_without_the_version_is_reported(sandbox: Sandbox) -> None:
    sandbox.fault("status", path="kueue.x-k8s.io", code=404)
    config = a_kueue_config(sandbox)
    facts = SYSTEM.collect(config, KubeClient.connect(config))
    assert facts.unread is not None and "v1beta2" in facts.unread.error
    assert [item.result for item in findings_of(sandbox, facts)] == [CheckResult.FAILED]


@pytest.mark.parametrize(
    ("node_type", "word"),
    [
        pytest.param(NodeType(name="a", size=SIZE), "lacks the labels", id="no-label"),
        pytest.param(
            NodeType(name="a", size=SIZE, labels={LABEL: "{namespace}"}), "lacks the labels",
            id="another-value",
        ),
        pytest.param(
            NodeType(name="a", size=SIZE, labels={LABEL: "true"},
                     taints=(Taint(key="x", effect="NoExecute"),)), "toleration",
            id="taint-without-toleration",
        ),
    ],
)  # fmt: skip
def test_node_type_that_pods_of_the_flavor_cannot_use_is_reported(
    sandbox: Sandbox, read: Read, node_type: NodeType, word: str
) -> None:
    (finding,) = findings_of(sandbox, read(), node_types={"a": node_type})
    assert finding.result is CheckResult.FAILED and word in finding.text


def test_namespace_without_a_local_queue_is_reported(sandbox: Sandbox, read: Read) -> None:
    facts = read(a_local_queue("b"))
    (finding,) = findings_of(sandbox, facts)
    assert "LocalQueue" in finding.text


def test_webhook_that_does_not_answer_is_reported(sandbox: Sandbox, read: Read) -> None:
    sandbox.fault("status", path="cohorts", methods=("PATCH",), code=500)
    facts = read(a_workload("w", [a_pod_set(75)]))
    (error,) = facts.write_errors.values()
    assert error in objection_of(facts)
    assert "dry run" in findings_of(sandbox, facts)[0].text


def test_webhook_that_does_not_answer_is_reported_before_a_workload_waits(
    sandbox: Sandbox, read: Read
) -> None:
    facts = read()
    sandbox.fault("status", path="cohorts", methods=("PATCH",), code=500)
    finding, _ = findings_of(sandbox, facts)
    assert finding.result is CheckResult.FAILED and "dry run" in finding.text


def test_workloads_that_nodes_cannot_help_are_listed(sandbox: Sandbox, read: Read) -> None:
    facts = read(a_workload("w", [a_pod_set(999)]))
    config = a_kueue_config(sandbox)
    snapshot = Snapshot(taken_at=NOW, pods=PodList(pods=()), nodes=(), queue_facts=facts)
    shown = list(
        checks.check_demand(
            config, snapshot, PodList(pods=()), lambda _: Demand(queues={}, groups=(), nodes={})
        )
    )
    assert ["dev/w" in item.text for item in shown] == [True]


ROLE = next(yaml.safe_load_all((ROOT / "etc" / "rbac-kueue.yaml").read_text()))
VERBS = [
    (verb, kind) for rule in ROLE["rules"] for verb in rule["verbs"] for kind in rule["resources"]
]


def test_role_grants_exactly_the_permissions_of_a_run(sandbox: Sandbox) -> None:
    granted = {
        (verb, kind, name)
        for rule in ROLE["rules"]
        for verb in rule["verbs"]
        for kind in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }
    asked = checks.permissions(a_kueue_config(sandbox))
    assert {(item.verb, item.resource, item.name) for item in asked} == granted


def test_cohort_that_only_a_local_queue_names_needs_no_right_for_all_cohorts(
    sandbox: Sandbox,
) -> None:
    """dnm's role permits writing single Cohorts by name, not all of them."""
    policy = NamespacePolicy(name="dev", queue="dev", node_types=("a",), queue_system="kueue")
    asked = checks.permissions(a_kueue_config(sandbox, namespaces={"dev": policy}))
    assert "patch" not in {item.verb for item in asked}


def lend(sandbox: Sandbox) -> None:
    """Reads Kueue's objects and adds a lent node as a run does. Raises DnmError."""
    config = a_kueue_config(sandbox)
    kube = KubeClient.connect(config)
    if unread := SYSTEM.collect(config, kube).unread:
        raise KubeError(unread.error)
    wants = QueueWants(instance_id="prod", nodes={"a8": {"n1": SIZE}}, remembered="")
    for failure in SYSTEM.write(config, kube, wants, None, lambda: None).failed.values():
        raise KubeError(failure)


def test_role_suffices(sandbox: Sandbox, read: Read) -> None:
    read(a_workload("w", [a_pod_set(75)]))
    sandbox.access.restrict_to_manifests([ROLE])
    lend(sandbox)


@pytest.mark.parametrize(("verb", "kind"), VERBS)
def test_each_verb_of_the_role_is_needed(
    sandbox: Sandbox, read: Read, verb: str, kind: str
) -> None:
    read(a_workload("w", [a_pod_set(75)]))
    left = [
        {**rule, "verbs": [verb], "resources": [kind]}
        for rule in ROLE["rules"]
        for verb in rule["verbs"]
        for kind in rule["resources"]
    ]
    left = [rule for rule in left if (rule["verbs"], rule["resources"]) != ([verb], [kind])]
    sandbox.access.restrict_to_manifests([{**ROLE, "rules": left}])
    with pytest.raises(KubeError):
        lend(sandbox)
