"""Tests of which Workloads request lent nodes, in cases from a real Kueue 0.19.2, and of bounds."""

from __future__ import annotations

from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import NamespacePolicy
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.system import SYSTEM
from tests.queues.kueue.conftest import QUOTAS, Read, a_kueue_config
from tests.queues.kueue.objects import (
    LABEL,
    TAINT,
    TOLERATION,
    a_cluster_queue,
    a_flavor,
    a_group,
    a_local_queue,
    a_pod_set,
    a_workload,
    admitted,
    pending,
)

TOO_MUCH = (
    "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor permanent, "
    "previously considered podsets requests (0) + current podset request (300) > maximum capacity "
    "(80)"
)
USE = {"cpu": "60", "memory": "240G"}  # of 15 pods


def counts(facts: KueueFacts) -> list[tuple[str, int]]:
    counted = [item for item in facts.refused if not item.is_unhelped]
    return [(item.pod.name.split(" ")[0], item.count) for item in counted]


def condition(kind: str, status: str = "True", reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


def requiring(operator: str, *values: str) -> dict[str, Any]:
    """Returns a pod set with a required node affinity about the label of lent nodes."""
    expression = {"key": LABEL, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": required}}


ALONE = {
    "never-tried": (a_workload("w", [a_pod_set(75)]), 75),
    "tried": (a_workload("w", [a_pod_set(75)], status=pending(TOO_MUCH)), 75),
    "fits-own-quota": (a_workload("w", [a_pod_set(20)]), 0),
    "one-more-than-own-quota": (a_workload("w", [a_pod_set(21)]), 21),
    "finished-with-reserved-quota": (
        a_workload("w", [a_pod_set(75)], status={
            "conditions": [condition("QuotaReserved"),
                           condition("Finished", reason="OwnerNotFound")]}), 0),
    "inactive": (a_workload("w", [a_pod_set(75)], spec={"active": False}), 0),
    "admitted": (
        a_workload("w", [a_pod_set(30)],
                   status=admitted("a8", "lent", 30, {"cpu": "120", "memory": "480G"})), 0),
    "evicted": (
        a_workload("w", [a_pod_set(75)], status={
            "conditions": [condition("QuotaReserved", "False", "Pending"),
                           condition("Evicted", reason="Preempted")]}), 75),
    "of-another-namespace": (a_workload("w", [a_pod_set(75)], namespace="other"), 0),
    "of-no-local-queue": (a_workload("w", [a_pod_set(75)], spec={"queueName": "nosuch"}), 0),
    "uncovered-resource": (
        a_workload("w", [a_pod_set(75, spec={"overhead": {"example.org/gpu": "1"}})]), 0),
    "selector-excludes-lent-nodes": (
        a_workload("w", [a_pod_set(75, spec={"nodeSelector": {LABEL: "false"}})]), 0),
    "selector-requires-lent-nodes": (
        a_workload("w", [a_pod_set(4, spec={"nodeSelector": {"pool": "x", LABEL: "true"}})]), 4),
    "affinity-excludes-lent-nodes": (
        a_workload("w", [a_pod_set(75, spec=requiring("DoesNotExist"))]), 0),
    "affinity-requires-lent-nodes": (
        a_workload("w", [a_pod_set(75, spec=requiring("In", "true"))]), 75),
    "affinity-requires-another-value": (
        a_workload("w", [a_pod_set(75, spec=requiring("In", "false", "no"))]), 0),
    "affinity-excludes-the-value-of-lent-nodes": (
        a_workload("w", [a_pod_set(75, spec=requiring("NotIn", "true"))]), 0),
    "affinity-excludes-another-value": (
        a_workload("w", [a_pod_set(75, spec=requiring("NotIn", "false"))]), 75),
    "larger-than-the-cap": (a_workload("w", [a_pod_set(200)]), 0),
    "partial-within-the-cap": (a_workload("w", [a_pod_set(200, minCount=30)]), 200),
    "partial-that-fits-whole": (a_workload("w", [a_pod_set(75, minCount=30)]), 75),
    "more-pods-than-dnm-counts": (a_workload("w", [a_pod_set(2_000_000, cpu="0")]), 0),
}  # fmt: skip


@pytest.mark.parametrize(("workload", "pods"), ALONE.values(), ids=list(ALONE))
def test_workload_alone(read: Read, workload: dict[str, Any], pods: int) -> None:
    flavor = a_flavor("permanent", nodeLabels={"pool": "permanent"})
    assert sum(count for _, count in counts(read(workload, flavor))) == pods


def test_pods_get_selector_and_tolerations_of_their_flavor(read: Read) -> None:
    workload = a_workload("w", [a_pod_set(75, spec={"nodeSelector": {"disk": "ssd"}})])
    (pods,) = read(workload).refused
    assert dict(pods.pod.shape.node_selector) == {"disk": "ssd", LABEL: "true"}
    assert [item.key for item in pods.pod.shape.tolerations] == [TOLERATION["key"]]


def test_workload_that_is_being_deleted_requests_nothing(sandbox: Sandbox, read: Read) -> None:
    assert counts(read(a_workload("w", [a_pod_set(75)]))) == [("w", 75)]
    with sandbox.lock:
        sandbox.store.mark_deleted("workloads", "dev", "w")
    config = a_kueue_config(sandbox)
    assert not SYSTEM.collect(config, KubeClient.connect(config)).refused


@pytest.mark.parametrize(
    ("change", "sizes"),
    [
        pytest.param({}, [("first", 30), ("second", 40)], id="best-effort"),
        pytest.param({"queueingStrategy": "StrictFIFO"}, [("first", 30), ("second", 40)],
                     id="strict"),
        pytest.param({"stopPolicy": "Hold"}, [], id="stopped"),
    ],
)  # fmt: skip
def test_workloads_are_served_in_the_order_of_the_queue(
    read: Read, change: dict[str, Any], sizes: list[tuple[str, int]]
) -> None:
    facts = read(
        a_cluster_queue("a8", QUOTAS, **change),
        a_workload("second", [a_pod_set(40)], priority=1),
        a_workload("first", [a_pod_set(30)], priority=2),
    )
    assert counts(facts) == sizes


@pytest.mark.parametrize(
    ("strategy", "pods"), [("BestEffortFIFO", [("small", 40)]), ("StrictFIFO", [])]
)
def test_head_that_can_never_fit_blocks_a_strict_queue(
    read: Read, strategy: str, pods: list[tuple[str, int]]
) -> None:
    facts = read(
        a_cluster_queue("a8", QUOTAS, queueingStrategy=strategy),
        a_workload("large", [a_pod_set(500)], priority=2),
        a_workload("small", [a_pod_set(40)], priority=1),
    )
    assert counts(facts) == pods
    assert "dev/large" in dict(facts.left_out)


def test_pods_beyond_the_own_quota_request_nodes(read: Read) -> None:
    """The queue's own quota is for 20 pods. There are 28 single pods, each with a Workload."""
    plain = [a_workload(f"p{number:02}", [a_pod_set(1)]) for number in range(28)]
    assert len(counts(read(*plain))) == 8


def test_quota_of_admitted_workloads_is_not_free(read: Read) -> None:
    own = a_workload("own", [a_pod_set(15)], status=admitted("a8", "permanent", 15, USE))
    facts = read(own, a_workload("w", [a_pod_set(10)]))
    assert counts(facts) == [("w", 10)]
    assert facts.used == {"a8": {}}


def test_use_is_the_reserved_quota_of_lent_nodes(read: Read) -> None:
    amounts = {"cpu": "60", "memory": "240G"}
    finished = a_workload("old", [a_pod_set(15)], status=admitted("a8", "lent", 15, amounts))
    finished["status"]["conditions"].append(condition("Finished"))
    facts = read(
        finished,
        a_workload("own", [a_pod_set(15)], status=admitted("a8", "lent", 15, amounts)),
        a_workload("foreign", [a_pod_set(5)], namespace="other",
                   status=admitted("a8", "lent", 5, {"cpu": "20", "memory": "80G"})),
        a_workload("elsewhere", [a_pod_set(5)], status=admitted("b", "lent", 5, amounts)),
    )  # fmt: skip
    assert set(facts.used["a8"].values()) == {80_000, 320 * 10**9}


def test_each_pod_set_has_a_flavor_of_its_own(read: Read) -> None:
    """Within a Workload, the leader fits the queue's own quota, and the workers need lent nodes."""
    sets = [{**a_pod_set(1), "name": "leader"}, {**a_pod_set(40), "name": "workers"}]
    assert counts(read(a_workload("w", sets))) == [("w", 40)]


def test_resource_of_another_group_must_be_free(read: Read) -> None:
    licences = a_group({"permanent": {"example.org/licence": "3"}})
    queue = a_cluster_queue("a8", QUOTAS, resourceGroups=[a_group(QUOTAS), licences])

    def asking(name: str, count: int) -> dict[str, Any]:
        return a_workload(name, [a_pod_set(count, spec={"overhead": {"example.org/licence": "1"}})])

    facts = read(queue, asking("few", 3), asking("more", 4))
    assert counts(facts) == []
    assert [key for key, _ in facts.left_out] == ["dev/more"]


def test_flavor_with_an_untolerated_taint_has_no_free_quota(read: Read) -> None:
    tainted = a_flavor("permanent", nodeLabels={"pool": "p"}, nodeTaints=[{**TAINT, "key": "x"}])
    assert counts(read(tainted, a_workload("w", [a_pod_set(5)]))) == [("w", 5)]


def test_stopped_local_queue_requests_nothing(read: Read) -> None:
    assert counts(read(a_local_queue("a8", stopPolicy="Hold"),
                       a_workload("w", [a_pod_set(75)]))) == []  # fmt: skip


@pytest.mark.parametrize(
    ("locals_", "path"),
    [
        pytest.param([a_local_queue("a8")], "a8", id="one"),
        pytest.param([a_local_queue("b", namespace="other")], "dev", id="none-of-this-namespace"),
    ],
)
def test_namespace_without_a_map_has_the_queue_of_its_only_local_queue(
    read: Read, locals_: list[dict[str, Any]], path: str
) -> None:
    policy = NamespacePolicy(name="dev", queue="dev", node_types=("a",), queue_system="kueue")
    assert read(*locals_, namespaces={"dev": policy}).paths == {"dev": path}


@pytest.mark.parametrize("mapped", ["", "other"])
def test_two_namespaces_of_a_queue_without_a_map_are_not_counted_twice(
    read: Read, mapped: str
) -> None:
    """Each path would write the Cohort for itself, and take the nodes of the other out of it."""
    namespaces = {
        name: NamespacePolicy(name=name, queue="a8" if name == mapped else name, node_types=("a",),
                              queue_system="kueue")
        for name in ("dev", "other")
    }  # fmt: skip
    facts = read(
        a_local_queue("a8"), a_local_queue("a8", namespace="other"),
        a_workload("w", [a_pod_set(75)]), namespaces=namespaces,
    )  # fmt: skip
    assert counts(facts) == [("w", 75)]
    assert facts.paths == (
        {"dev": "dev", "a8": "a8"} if mapped else {"dev": "a8", "other": "other"}
    )
