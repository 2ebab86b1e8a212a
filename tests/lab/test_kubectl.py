"""Tests that kubectl works with the sandbox, by the commands of an administrator."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.cluster import Sandbox
from tests.night import sample_by_day

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture
def site(live_sandbox: Sandbox) -> Sandbox:
    live_sandbox.add_node("k1")
    live_sandbox.add_node("k2")
    live_sandbox.add_pods(2, "dev")
    live_sandbox.set_queues("partitions: [{name: default, queues: [{name: root}]}]\n")
    return live_sandbox


def kubectl(sandbox: Sandbox, *arguments: str, given: str | None = None) -> str:
    """Returns kubectl's output. A failure of kubectl fails the test."""
    home = sandbox.directory / "home"
    environment = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "HOME": str(home)}
    done = subprocess.run(
        ["kubectl", *arguments], capture_output=True, text=True, timeout=300, input=given,
        env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"kubectl {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


KINDS = [
    ("nodes", "k1"), ("pods", "pod-0"), ("deployments", "web"), ("configmaps", "yunikorn-configs"),
    ("namespaces", "dev"),
]  # fmt: skip


def namespace_of(kind: str) -> list[str]:
    return {
        "pods": ["-n", "dev"],
        "deployments": ["-n", "dev"],
        "configmaps": ["-n", "yunikorn"],
    }.get(kind, [])


@pytest.mark.parametrize(("kind", "name"), sample_by_day(2, KINDS))
def test_kubectl_lists_describes_and_deletes_every_kind(
    site: Sandbox, kind: str, name: str
) -> None:
    pod = manifests.pod_manifest("web", "dev", {"cpu": "1"})
    site.create(manifests.deployment_manifest("web", "dev", 1, pod))
    where = namespace_of(kind)
    table = kubectl(site, "get", kind, *where)
    assert any(line.split()[0] == name for line in table.splitlines()[1:])
    listed = json.loads(kubectl(site, "get", kind, *where, "-o", "json"))
    assert name in [item["metadata"]["name"] for item in listed["items"]]
    assert (
        f"Name:               {name}".split()
        == kubectl(site, "describe", kind, name, *where).splitlines()[0].split()
    )
    kubectl(site, "delete", kind, name, *where)
    assert site.get(kind, name, where[1] if where else "") is None


def test_kubectl_apply_creates_and_changes_a_deployment(site: Sandbox, tmp_path: Path) -> None:
    pod = manifests.pod_manifest("web", "dev", {"cpu": "1"})
    for replicas in (2, 3):
        manifest = manifests.deployment_manifest("web", "dev", replicas, pod)
        kubectl(site, "apply", "-f", "-", given=json.dumps(manifest))
        kubectl(site, "rollout", "status", "deployment/web", "-n", "dev", "--timeout=300s")
    deployment = site.get("deployments", "web", "dev")
    assert deployment is not None and deployment["spec"]["replicas"] == 3


def test_numbers_are_stored_as_canonical_strings(site: Sandbox) -> None:
    pod = manifests.pod_manifest("n", "dev", {"cpu": 4, "memory": 1.5e9})  # type: ignore[dict-item]
    deployment = manifests.deployment_manifest("web", "dev", 1, {**pod, "kind": "Pod"})
    for manifest in (pod, deployment):
        kubectl(site, "apply", "-f", "-", given=json.dumps(manifest))
    result = json.loads(kubectl(site, "get", "pod", "n", "-n", "dev", "-o", "json"))
    asked = result["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"cpu": "4", "memory": "1500M"}


def test_kubectl_drains_and_changes_a_node(site: Sandbox) -> None:
    kubectl(site, "drain", "k1", "--force", "--ignore-daemonsets", "--timeout=300s")
    node = site.get("nodes", "k1")
    assert node is not None and node["spec"]["unschedulable"]
    assert all(pod["spec"].get("nodeName") != "k1" for pod in site.objects("pods"))
    kubectl(site, "uncordon", "k1")
    kubectl(site, "label", "node", "k1", "a=b")
    kubectl(site, "taint", "node", "k1", "x=y:NoSchedule")
    kubectl(site, "annotate", "node", "k1", "c=d")
    node = site.get("nodes", "k1")
    assert node is not None
    rows: list[Any] = [node["metadata"]["labels"]["a"], node["metadata"]["annotations"]]
    assert rows == ["b", {"c": "d"}]
    assert node["spec"]["taints"] == [{"key": "x", "value": "y", "effect": "NoSchedule"}]
    assert kubectl(site, "get", "nodes", "-l", "a=b", "-o", "name") == "node/k1\n"
