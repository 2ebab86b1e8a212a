"""Test of etc/admission-policy.yaml: it keeps pods of other namespaces off lent nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.http_api import ApiError
from tests.real.rig import Rig
from tests.real.site import plain_pod
from tests.real.unmanaged import (
    EVERYTHING,
    GUEST,
    KEY,
    apply_policies,
    create,
    make_guest,
    pods_of,
    refusal,
    toleration,
)


@pytest.fixture
def policy_rig(plain_rig: Rig) -> Iterator[Rig]:
    rig = plain_rig
    make_guest(rig)
    wide: dict[str, Any] = {"tolerations": [EVERYTHING]}
    rig.wait_for(lambda: not refusal(rig, GUEST, **wide), "no policy of another test is left")
    create(rig, GUEST, "older", **wide)
    apply_policies(rig)
    yield rig
    rig.remove_guards()
    rig.remove_work()


def test_policy_adds_the_toleration_and_changes_nothing_else(policy_rig: Rig) -> None:
    selector = {"kubernetes.io/os": "linux"}
    own = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    rows = {"none": [], "another": [own], "this one": [toleration("dev")]}
    for name, tolerations in rows.items():
        manifest = plain_pod("tried", "1", "1Gi", nodeSelector=selector, tolerations=tolerations)
        created = policy_rig.api.post(f"{pods_of('dev')}?dryRun=All", manifest)
        result = [
            item for item in created["spec"]["tolerations"] if item.get("key") in (KEY, "gpu")
        ]
        expected = [item for item in tolerations if item["key"] == "gpu"] + [toleration("dev")]
        assert result == expected, name
        assert created["spec"]["nodeSelector"] == selector
    created = policy_rig.api.post(f"{pods_of(GUEST)}?dryRun=All", plain_pod("tried", "1", "1Gi"))
    assert not [item for item in created["spec"]["tolerations"] if item["key"] == KEY]


def test_policy_refuses_a_toleration_of_other_lent_nodes(policy_rig: Rig) -> None:
    rows = [
        toleration("notebook"),
        {"key": KEY, "operator": "Exists"},
        {"key": KEY, "operator": "Exists", "effect": "NoExecute"},
        EVERYTHING,
        {"operator": "Exists", "effect": "NoSchedule"},
    ]
    for namespace in ("dev", GUEST):
        for row in rows:
            message = refusal(policy_rig, namespace, tolerations=[row])
            assert f"namespace {namespace} may tolerate the taint {KEY} only" in message, row
    assert "may tolerate" in refusal(policy_rig, GUEST, tolerations=[toleration("dev")])
    assert not refusal(policy_rig, "kube-system", tolerations=rows)


def test_policy_accepts_tolerations_that_let_no_pod_onto_a_lent_node(policy_rig: Rig) -> None:
    rows = [
        {"key": "gpu", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"operator": "Exists", "effect": "PreferNoSchedule"},
    ]
    assert not refusal(policy_rig, GUEST, tolerations=rows)
    assert not refusal(policy_rig, GUEST)


def test_policy_refuses_a_named_node_but_to_kubelets(policy_rig: Rig) -> None:
    assert "may not have spec.nodeName" in refusal(policy_rig, GUEST, nodeName="k1")
    kubelet = {"Impersonate-User": "system:node:k1", "Impersonate-Group": "system:masters"}
    manifest = plain_pod("static", "1", "1Gi", nodeName="k1")
    policy_rig.api.ask("POST", f"{pods_of(GUEST)}?dryRun=All", manifest, **kubelet)


def test_older_pod_can_be_changed_but_gets_no_further_toleration(policy_rig: Rig) -> None:
    path = f"{pods_of(GUEST)}/older"
    labels = {"metadata": {"labels": {"changed": "yes"}}}
    assert policy_rig.api.patch(path, labels)["metadata"]["labels"]["changed"] == "yes"
    tolerations = [*policy_rig.api.get(path)["spec"]["tolerations"], toleration("dev")]
    with pytest.raises(ApiError, match="may tolerate the taint"):
        policy_rig.api.patch(path, {"spec": {"tolerations": tolerations}})


def test_only_pods_of_the_namespace_run_on_its_lent_node(policy_rig: Rig) -> None:
    """All three nodes have the same label. Pods of guest fill both other nodes, and one waits; the
    pods of dev then run on the lent node, as does a DaemonSet of kube-system."""
    rig = policy_rig
    rig.add_node("a001", 128)
    taint = {"key": KEY, "value": "dev", "effect": "NoSchedule"}
    rig.api.patch("/api/v1/nodes/a001", {"spec": {"taints": [taint]}})
    rig.api.delete(f"{pods_of(GUEST)}/older")
    for number in range(3):
        rig.api.post(pods_of(GUEST), plain_pod(f"wide-{number}", "60", "1Gi"))
    rig.wait_for(lambda: rig.running(GUEST) == 2, "two pods of guest run")
    rig.api.post(pods_of("dev"), plain_pod("wide", "60", "1Gi"))
    labels = {"app": "agent"}
    manifest = plain_pod("agent", "1", "1Gi", labels=labels, tolerations=[EVERYTHING])
    template = {"metadata": {"labels": labels}, "spec": manifest["spec"]}
    daemons = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    rig.api.post(
        daemons,
        {"metadata": {"name": "agent"},
         "spec": {"selector": {"matchLabels": labels}, "template": template}},
    )  # fmt: skip
    rig.wait_for(lambda: rig.running("dev") == 1, "the pod of dev runs")
    rig.wait_for(
        lambda: rig.running("kube-system") == 3, "a pod of the DaemonSet runs on each node"
    )
    nodes = {pod["spec"].get("nodeName") for pod in rig.pods(GUEST)}
    assert nodes == {"k1", "k2", None}
    assert [pod["spec"]["nodeName"] for pod in rig.pods("dev")] == ["a001"]
    rig.api.delete(f"{daemons}/agent", {"propagationPolicy": "Background"})
    rig.wait_for(lambda: not rig.pods("kube-system"), "its pods are gone")
