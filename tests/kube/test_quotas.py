"""Tests of reading ResourceQuotas over HTTP, with the limits that a manifest has set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from tests.builders import a_config

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CPU, MEMORY = "requests.cpu", "requests.memory"


def writer(manager: str, operation: str, *fields: str) -> dict[str, Any]:
    owned: dict[str, Any] = (
        {"f:spec": {"f:hard": {f"f:{key}": {} for key in fields}}} if fields else {}
    )
    return {"manager": manager, "operation": operation, "apiVersion": "v1",
            "time": "2026-11-29T10:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:owner": {}}}, **owned}}  # fmt: skip


def applied(**hard: Any) -> dict[str, str]:
    return {LAST_APPLIED: json.dumps({"spec": {"hard": hard}})}


@pytest.mark.parametrize(
    ("annotations", "writers", "expected"),
    [
        ({}, [], {}),
        (applied(cpu="80"), [], {"cpu": "80"}),
        (applied(cpu=80, memory="320Gi", pods=0.5),
         [], {"cpu": "80", "memory": "320Gi", "pods": "0.5"}),
        ({LAST_APPLIED: "{"}, [], {}),
        ({LAST_APPLIED: '{"spec": {"hard": {"cpu": null}}}'}, [], {}),
        ({}, [writer("kubectl", "Apply", CPU, MEMORY)], {CPU: "300", MEMORY: "320Gi"}),
        ({}, [writer("kubectl", "Apply", CPU), writer("dnm", "Update", MEMORY)], {CPU: "300"}),
        ({}, [writer("argo", "Apply"), writer("kubectl-edit", "Update", CPU, MEMORY)], {}),
        ({}, [writer("helm", "Update", CPU, MEMORY)], {CPU: "300", MEMORY: "320Gi"}),
    ],
    ids=["none", "client-side", "numbers", "not-json", "null", "server-side", "one-limit",
         "annotation-alone", "helm"],
)  # fmt: skip
def test_manifest_has_the_limits_that_its_tool_set_last(
    sandbox: Sandbox, annotations: dict[str, str], writers: list[Any], expected: dict[str, str]
) -> None:
    sandbox.add_namespace("dev")
    metadata = {"name": "q", "namespace": "dev", "annotations": annotations}
    sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota",
                    "metadata": {**metadata, "managedFields": writers},
                    "spec": {"hard": {CPU: "300", MEMORY: "320Gi"}}})  # fmt: skip
    client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    (quota,) = client.typed_objects.read_quotas("dev")
    assert quota.manifest == expected


def test_time_of_a_change_is_that_of_the_last_new_value(sandbox: Sandbox) -> None:
    """managedFields have a new time after the first write of a value by a client; a write of equal
    values does not change it (apimachinery)."""
    sandbox.add_namespace("dev")
    client = KubeClient.connect(a_config(kubeconfig_path=sandbox.kubeconfig))
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {"hard": {CPU: "80"}}}  # fmt: skip
    client.requests.session.write("POST", "/api/v1/namespaces/dev/resourcequotas", body)
    times = []
    for text in ("80", "208", "208"):
        sandbox.tick(60)
        patch = {"spec": {"hard": {CPU: text}}}
        client.typed_objects.patch_object("ResourceQuota", "dev", "q", patch)
        (quota,) = client.typed_objects.read_quotas("dev")
        times.append(quota.changed)
    assert times[0] < times[1] == times[2]
