"""Tests of which writes the sandbox's API permits to a kubelet. A real API server decides this by
its plug-in NodeRestriction."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from dnm.lab.sandbox.cluster import Sandbox

OWN, OTHER = "/api/v1/nodes/a001", "/api/v1/nodes/a002"
CONFIGS = "/api/v1/namespaces/yunikorn/configmaps"


@pytest.fixture
def nodes(sandbox: Sandbox) -> Sandbox:
    for name in ("a001", "a002"):
        sandbox.add_node(name, taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    sandbox.set_queues("partitions: []")
    return sandbox


def send(sandbox: Sandbox, method: str, path: str, body: Any = None) -> tuple[int, str]:
    """Sends a request as the kubelet of a001. Returns the status and the API's message."""
    connection = http.client.HTTPConnection(urlsplit(sandbox.url).netloc, timeout=300)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": "Bearer system:node:a001", "Content-Type": kind}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    text = json.loads(answer.read()).get("message", "")
    connection.close()
    return answer.status, text


def of_metadata(**fields: Any) -> Any:
    return {"metadata": fields}


HUGE = {"status": {"allocatable": {"cpu": "9000000000000000"}}}
MARK = of_metadata(annotations={"dynamic-node-manager/instance": "other"})
WRITES = [
    pytest.param("PATCH", f"{OWN}/status", HUGE, 200, id="its own allocatable"),
    pytest.param("PATCH", OWN, MARK, 200, id="its own annotations, so our mark too"),
    pytest.param("PATCH", OWN, {"spec": {"unschedulable": True}}, 200, id="its own cordon"),
    pytest.param("PATCH", OWN, of_metadata(labels={"dev": "true"}), 200, id="a label of its own"),
    pytest.param("PATCH", OWN, of_metadata(labels={"topology.kubernetes.io/zone": "z"}), 200,
                 id="a label that is a kubelet's"),
    pytest.param("PATCH", OWN, of_metadata(labels={"node-restriction.kubernetes.io/x": "1"}), 403,
                 id="a label of node-restriction"),
    pytest.param("PATCH", OWN, of_metadata(labels={"dnm.node-restriction.kubernetes.io/x": "1"}),
                 403, id="and below it"),
    pytest.param("PATCH", OWN, of_metadata(labels={"node-role.kubernetes.io/x": "1"}), 403,
                 id="a label of Kubernetes that is no kubelet's"),
    pytest.param("PATCH", OWN, {"spec": {"taints": []}}, 403, id="its own taints"),
    pytest.param("PATCH", OTHER, MARK, 403, id="another node"),
    pytest.param("PATCH", f"{OTHER}/status", HUGE, 403, id="another node's allocatable"),
    pytest.param("DELETE", OWN, None, 403, id="deleting its own Node"),
    pytest.param("PATCH", f"{CONFIGS}/yunikorn-configs", {"data": {}}, 403, id="the queues"),
    pytest.param("GET", CONFIGS, None, 403, id="reading the queues"),
    pytest.param("GET", "/api/v1/nodes", None, 200, id="reading nodes"),
    pytest.param("GET", "/api/v1/namespaces/dev/pods", None, 403, id="reading pods"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status"), WRITES)
def test_kubelet_may_write_only_its_own_status(
    nodes: Sandbox, method: str, path: str, body: Any, status: int
) -> None:
    answered, text = send(nodes, method, path, body)
    assert answered == status, text
    assert status != 403 or "forbidden" in text


def test_kubelet_status_is_stored_unchecked(nodes: Sandbox) -> None:
    send(nodes, "PATCH", f"{OWN}/status", HUGE)
    node = nodes.get("nodes", "a001") or {}
    assert node["status"]["allocatable"]["cpu"] == "9P"
