"""Tests of reading workloads that lack pods: the number of the missing pods, and their requests."""

from __future__ import annotations

from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.quota import ResourceQuota
from dnm.model.workload import LackingPods
from tests.builders import a_config

API = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1", "LimitRange": "v1"}
PLURAL = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "Job": "jobs"}
LABELS = {"app": "x"}
DONE = [{"type": "Complete", "status": "True"}]


def template(*containers: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"c{n}", "image": "x", **item} for n, item in enumerate(containers or ({},))]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": named}}


def read(sandbox: Sandbox, kind: str, status: dict[str, Any], **spec: Any) -> list[LackingPods]:
    """Creates one workload; returns which pods dnm finds missing in its namespace."""
    full = {"selector": {"matchLabels": LABELS}, "template": template(), **spec}
    metadata = {"name": "w", "namespace": "dev"}
    sandbox.create({"apiVersion": API[kind], "kind": kind, "metadata": metadata,
                    "spec": {**full, "minReadySeconds": 1}})  # fmt: skip

    def change(item: Any) -> None:
        item["spec"], item["status"] = full, status  # the spec has generation 2

    sandbox.edit(PLURAL[kind], "w", change, "dev")
    client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    return client.typed_objects.read_lacking("dev")


@pytest.mark.parametrize(
    ("kind", "spec", "status", "expected"),
    [
        ("StatefulSet", {"replicas": 75}, {"replicas": 20}, 55),
        ("StatefulSet", {}, {}, 1),
        ("StatefulSet", {"replicas": 3}, {"replicas": 5}, 0),
        ("Job", {"parallelism": 75, "completions": 75}, {"active": 20}, 55),
        ("Job", {"parallelism": 75, "completions": 75}, {"active": 10, "succeeded": 60}, 5),
        ("Job", {"parallelism": 4}, {"active": 1}, 3),
        ("Job", {}, {}, 1),
        ("Job", {"parallelism": 9, "suspend": True}, {}, 0),
        ("Job", {"parallelism": 9}, {"conditions": DONE}, 0),
        ("Job", {"parallelism": 0}, {}, 0),
        ("Job", {"parallelism": 4}, {"active": 1, "succeeded": 1}, 0),
        ("Job", {"parallelism": 4, "managedBy": "kueue.x-k8s.io/multikueue"}, {}, 0),
        ("Job", {"parallelism": 4, "managedBy": "kubernetes.io/job-controller"}, {}, 4),
        ("Job", {"parallelism": 9, "podReplacementPolicy": "Failed"},
         {"active": 2, "terminating": 3}, 4),
        ("Job", {"parallelism": 9}, {"active": 2, "terminating": 3}, 7),
        ("Job", {"parallelism": 9, "completions": 9, "completionMode": "Indexed"},
         {"active": 1, "succeeded": 2, "failedIndexes": "1,3-5"}, 2),
        ("ReplicaSet", {"replicas": 50}, {"replicas": 10, "observedGeneration": 1}, 0),
        ("ReplicaSet", {"replicas": 50}, {"replicas": 10, "observedGeneration": 2}, 40),
    ],
    ids=["refused", "defaults", "too-many", "job", "job-nearly-done", "work-queue", "job-defaults",
         "suspended", "done", "no-parallelism", "work-queue-ends", "other-controller",
         "own-controller", "waits-for-ends", "replaces-at-once", "failed-indexes", "being-created",
         "observed"],
)  # fmt: skip
def test_workload_lacks_spec_minus_status(
    sandbox: Sandbox, kind: str, spec: dict[str, Any], status: dict[str, Any], expected: int
) -> None:
    sandbox.add_namespace("dev")
    assert sum(pods.count for pods in read(sandbox, kind, status, **spec)) == expected


def test_pods_get_the_defaults_of_limit_ranges(sandbox: Sandbox) -> None:
    """A container without a request gets its own limit as request, else the LimitRange's."""
    sandbox.add_namespace("dev")
    item = {"type": "Container", "defaultRequest": {"cpu": "250m", "memory": "1Gi"},
            "default": {"cpu": "1", "memory": "2Gi"}}  # fmt: skip
    metadata = {"name": "r", "namespace": "dev"}
    sandbox.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata,
                    "spec": {"limits": [{"type": "Pod"}, item]}})  # fmt: skip
    containers: tuple[dict[str, Any], ...] = (
        {"resources": {"requests": {"cpu": "2"}}},
        {"resources": {"limits": {"cpu": "3"}}},
        {},
    )
    (pods,) = read(sandbox, "StatefulSet", {}, replicas=1, template=template(*containers))
    assert pods.shape.request == {"pods": 1, "cpu": 5250, "memory": 3 * 2**30}
    assert pods.limits == {"pods": 1, "cpu": 5000, "memory": 6 * 2**30}


SIZED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}
QUOTA = ResourceQuota(namespace="dev", name="q", version="1", hard={"cpu": "9", "pods": "9"})
OF_LIMITS = ResourceQuota(namespace="dev", name="q", version="1", hard={"limits.memory": "9Gi"})


@pytest.mark.parametrize(
    ("resources", "rule", "quota", "expected"),
    [
        (SIZED, {}, QUOTA, False),
        (SIZED, {}, OF_LIMITS, False),
        ({}, {}, QUOTA, True),
        ({"limits": {"cpu": "1"}}, {}, QUOTA, False),
        ({"limits": {"cpu": "1"}}, {}, OF_LIMITS, True),
        ({}, {"defaultRequest": {"cpu": "1"}}, QUOTA, False),
        (SIZED, {"max": {"cpu": "3"}}, QUOTA, False),
        (SIZED, {"max": {"cpu": "2900m"}}, QUOTA, True),
        (SIZED, {"type": "Pod", "max": {"cpu": "6"}}, QUOTA, False),
        (SIZED, {"type": "Pod", "max": {"cpu": "5"}}, QUOTA, True),
        ({"requests": {"cpu": "1"}}, {"max": {"cpu": "3"}}, QUOTA, True),
        (SIZED, {"min": {"cpu": "1"}}, QUOTA, False),
        (SIZED, {"min": {"memory": "1025Mi"}}, QUOTA, True),
        (SIZED, {"min": {"ephemeral-storage": "1"}}, QUOTA, True),
        (SIZED, {"maxLimitRequestRatio": {"cpu": "3"}}, QUOTA, False),
        (SIZED, {"maxLimitRequestRatio": {"cpu": "2500m"}}, QUOTA, True),
        ({"requests": {"cpu": "1"}}, {"maxLimitRequestRatio": {"cpu": "2"}}, QUOTA, True),
    ],
)
def test_pods_that_no_quota_admits_are_invalid(
    sandbox: Sandbox, resources: dict[str, Any], rule: dict[str, Any], quota: ResourceQuota,
    expected: bool,
) -> None:  # fmt: skip
    sandbox.add_namespace("dev")
    metadata = {"name": "r", "namespace": "dev"}
    sandbox.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata,
                    "spec": {"limits": [{"type": "Container", **rule}]}})  # fmt: skip
    two = template({"resources": resources}, {"resources": resources})
    (pods,) = read(sandbox, "StatefulSet", {}, replicas=4, template=two)
    assert pods.is_invalid([quota]) is expected


def test_workload_with_pods_is_valid(sandbox: Sandbox) -> None:
    """Existing pods show that a webhook adds the requests that the template lacks."""
    sandbox.add_namespace("dev")
    (pods,) = read(sandbox, "StatefulSet", {"replicas": 1}, replicas=4)
    assert not pods.is_invalid([QUOTA])


def test_template_with_many_containers_is_cut_off(sandbox: Sandbox) -> None:
    sandbox.add_namespace("dev")
    wide = template(*[{}] * 101)
    (pods,) = read(sandbox, "StatefulSet", {}, replicas=4, template=wide)
    assert pods.shape.is_cut


def test_only_the_first_workloads_of_a_namespace_count(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished Jobs do not count. Too many workloads are no error, or a tenant could stop dnm."""
    monkeypatch.setattr("dnm.kube.workloads.MOST_OBJECTS", 2)
    monkeypatch.setattr("dnm.kube.typed_objects.MOST_OBJECTS", 2)
    sandbox.add_namespace("dev")
    for number in range(7):
        metadata = {"name": f"j{number}", "namespace": "dev"}
        status = {"conditions": DONE} if number < 4 else {}
        sandbox.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
                        "spec": {"template": template()}, "status": status})  # fmt: skip
    client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    assert [pods.name for pods in client.typed_objects.read_lacking("dev")] == ["j4", "j5"]


def test_only_so_many_bytes_of_templates_count(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnm.kube.workloads._MOST_BYTES", 500)
    sandbox.add_namespace("dev")
    for number, text in enumerate("aabb"):
        metadata = {"name": f"j{number}", "namespace": "dev"}
        env = [{"name": "TEXT", "value": 200 * text}]
        sandbox.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
                        "spec": {"template": template({"env": env})}})  # fmt: skip
    client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    lacking = client.typed_objects.read_lacking("dev")
    assert [pods.shape.is_cut for pods in lacking] == [False, False, True, True]


@pytest.mark.parametrize(
    ("since", "raised", "wait", "expected"),
    [
        ("2026-11-29T10:00:00Z", "2026-11-29T10:03:00Z", 1000, "2026-11-29T10:06:10Z"),
        ("2026-11-29T10:00:00Z", "2026-11-29T12:00:00Z", 1000, "2026-11-29T12:16:50Z"),
        ("2026-11-29T10:00:00Z", "2026-11-29T12:00:00Z", 60, "2026-11-29T12:01:10Z"),
        ("2026-11-29T10:00:00Z", "2026-11-29T09:00:00Z", 1000, "2026-11-29T09:00:10Z"),
    ],
    ids=["as-long-again", "longest", "job", "raised-before"],
)
def test_next_try_comes_after_as_long_again(
    since: str, raised: str, wait: int, expected: str
) -> None:
    from datetime import timedelta

    from dnm.model.pod import PodShape

    pods = LackingPods(
        kind="ReplicaSet", namespace="dev", name="w", count=1, shape=PodShape(request={}),
        limits={}, since=since, longest_wait=timedelta(seconds=wait),
    )  # fmt: skip
    assert pods.next_try(raised) == expected
