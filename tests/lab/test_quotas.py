"""Tests of ResourceQuotas in the sandbox: its API server refuses pods beyond them, and its
controllers report missing pods as kube-controller-manager does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.site import LENT, QUOTA, add_workshop, build_site
from dnm.lab.sandbox.store import ApiError
from tests.site import Site

REQUESTED, LIMITED = "requests.cpu=4,requests.memory=16G", "requests.cpu=80,requests.memory=320G"
REFUSAL = [  # as a real API server prints it
    'pods "late-0" is forbidden: exceeded quota: course',
    f"requested: {REQUESTED}",
    f"used: {LIMITED}",
    f"limited: {LIMITED}",
]
NODE_TYPE = f"""
[node_type:a]
labels = {LENT}={{namespace}}
taints = {LENT}={{namespace}}:NoSchedule
"""


@pytest.fixture
def course(sandbox: Sandbox) -> Sandbox:
    """Builds the site of `dnm sandbox up`: a quota for 20 pods, and a workshop of 75 pods."""
    build_site(sandbox, 12, "resource_quota")
    add_workshop(sandbox, queue_system="resource_quota")
    sandbox.tick(1)
    return sandbox


def quota(sandbox: Sandbox) -> Any:
    return sandbox.get("resourcequotas", "course", "dev")


def workload(sandbox: Sandbox, plural: str) -> Any:
    (item,) = sandbox.objects(plural, "dev")
    return item


def raise_quota(sandbox: Sandbox, cpu: str, memory: str) -> None:
    hard = {"requests.cpu": cpu, "requests.memory": memory}
    sandbox.edit("resourcequotas", "course", lambda item: item["spec"].update(hard=hard), "dev")


def test_pod_beyond_the_quota_is_refused_with_the_text_of_an_api_server(course: Sandbox) -> None:
    with pytest.raises(ApiError) as refused:
        course.add_pods(1, "dev", cpu="4", memory="16G", name="late")
    assert (refused.value.code, refused.value.message) == (403, ", ".join(REFUSAL))
    assert len(course.objects("pods", "dev")) == 20
    course.add_pods(1, "others", cpu="4", memory="16G", name="late")


def test_status_has_the_limits_and_the_exact_use(course: Sandbox) -> None:
    assert quota(course)["status"] == {"hard": QUOTA, "used": QUOTA}
    pods = [pod["metadata"]["name"] for pod in course.objects("pods", "dev")]
    course.edit("deployments", "session", lambda item: item["spec"].update(replicas=0), "dev")
    course.finish_pods(pods, "dev")
    course.tick(1)
    assert quota(course)["status"]["used"] == {"requests.cpu": "0", "requests.memory": "0"}


def test_replicaset_reports_refused_pods(course: Sandbox) -> None:
    """ReplicaSet and Deployment both have the condition, with the text of the first refusal."""
    replicaset = workload(course, "replicasets")
    assert (replicaset["spec"]["replicas"], replicaset["status"]["replicas"]) == (75, 20)
    (condition,) = replicaset["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert "exceeded quota: course" in condition["message"]
    assert workload(course, "deployments")["status"]["conditions"] == [condition]


def test_controller_tries_again_after_as_long_as_it_was_refused(course: Sandbox) -> None:
    course.tick(300)
    raise_quota(course, "400", "1600G")
    course.tick(1)
    assert len(course.objects("pods", "dev")) == 20
    course.tick(600)
    assert len(course.objects("pods", "dev")) == 75
    assert "conditions" not in workload(course, "replicasets")["status"]


def test_changed_annotation_ends_the_wait(course: Sandbox) -> None:
    course.tick(300)
    raise_quota(course, "400", "1600G")
    name = workload(course, "replicasets")["metadata"]["name"]
    course.edit(
        "replicasets", name, lambda item: item["metadata"].update(annotations={"a": "b"}), "dev"
    )
    course.tick(1)
    assert len(course.objects("pods", "dev")) == 75


def test_job_reports_its_active_pods_and_ends_with_them(sandbox: Sandbox) -> None:
    build_site(sandbox, 3, "resource_quota")
    requests = {"cpu": "8", "memory": "1G"}
    containers = [{"name": "main", "image": "x", "resources": {"requests": requests}}]
    sandbox.create({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep", "namespace": "dev"},
        "spec": {"parallelism": 30, "completions": 30,
                 "template": {"spec": {"containers": containers}}},
    })  # fmt: skip
    sandbox.tick(1)
    assert workload(sandbox, "jobs")["status"] == {"active": 10, "succeeded": 0}
    for _ in range(3):
        names = [pod["metadata"]["name"] for pod in sandbox.objects("pods", "dev")
                 if pod["status"]["phase"] == "Pending"]  # fmt: skip
        sandbox.finish_pods(names, "dev")
        sandbox.tick(60)
    assert workload(sandbox, "jobs")["status"] == {"active": 0, "succeeded": 30}
    sandbox.delete("jobs", "sweep", "dev")
    sandbox.tick(1)
    assert sandbox.objects("pods", "dev") == []


def test_workshop_gets_nodes_and_its_quota_is_restored(course: Sandbox, tmp_path: Path) -> None:
    """Plays what `dnm sandbox up --queue-system resource_quota --workshop` shows."""
    site = Site(course, tmp_path / "site", sections=NODE_TYPE, queue_system="resource_quota",
                max_converted_nodes=8, wake_workloads="true")  # fmt: skip
    before = quota(course)["spec"], quota(course)["metadata"].get("annotations")
    for _ in range(8):
        assert not site.run().plan.errors
        course.tick(60)
    assert len(site.lent()) == 5  # 16 pods on each
    assert len(site.pods()) == 75 and all(site.pods().values())
    assert quota(course)["spec"]["hard"] == {"requests.cpu": "720", "requests.memory": "1600G"}
    course.edit("deployments", "session", lambda item: item["spec"].update(replicas=0), "dev")
    for _ in range(12):
        assert not site.run().plan.errors
        course.tick(60)
    assert site.lent() == [] and not course.violations
    metadata = quota(course)["metadata"]
    assert (quota(course)["spec"], metadata.get("annotations") or None) == before
