"""`opens_when` on a real API server, with real DaemonSets and before YuniKorn: what a node that
joins is kept closed for, what dnm starts on it, and that no pod is on it before it opens. The
kubelet is kwok's; what it has pulled, how its conditions are and how a probe ends is said here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.conftest import MakeSite
from tests.real.http_api import ApiError, Json
from tests.real.rig import QUEUES, Rig
from tests.real.site import Site, pod

DEV = "root.research.services.dev"
TAINT = "dynamic-node-manager/opening"
IMAGE = "registry.example/workshop:2026"
ROLE = "dynamic-node-manager-opening"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
STEPS = """
[node_type:a]
cpu = 128
memory = 256Gi
opens_when = {steps}
"""


@pytest.fixture
def bound_rig(rig: Rig) -> Iterator[Rig]:
    """With the role that is bound to nobody."""
    subject = {"kind": "ServiceAccount", "name": "dynamic-node-manager", "namespace": "yunikorn"}
    binding = {
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [subject],
    }
    rig.create(BINDING, binding)
    try:
        yield rig
    finally:
        rig.api.ask("DELETE", f"{BINDING}/{ROLE}")
        rig.api.ask("DELETE", DAEMONS)
        rig.remove_pods("kube-system")


def workshop(rig: Rig, make_site: MakeSite, steps: str) -> Site:
    """A queue that needs one node more; machines register with the taint."""
    site = make_site(sections=STEPS.format(steps=steps), max_converted_nodes=1)
    (site.directory / "dress").write_text(json.dumps({TAINT: ""}))
    for number in range(40):
        body = pod(f"w{number:02}", DEV, "4", "8Gi")
        body["spec"]["containers"][0]["image"] = IMAGE
        rig.create("/api/v1/namespaces/dev/pods", body)
    return site


def opening(site: Site) -> str:
    """What the last run found missing."""
    nodes = site.json("status")["nodes"]
    return str(nodes[0]["reason"]) if nodes else ""


def wait_for(site: Site, missing: str) -> str:
    site.run_until(lambda: missing in opening(site), missing, code=None)
    return str(site.lent[0])


def patch_node(rig: Rig, name: str, **status: Any) -> None:
    body = {"status": status}
    strategic = "application/strategic-merge-patch+json"
    rig.api.ask("PATCH", f"/api/v1/nodes/{name}/status", body, strategic)


def patch_pod(rig: Rig, path: str, status: Json) -> None:
    rig.api.ask("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")


def work_on(rig: Rig, name: str) -> list[str]:
    found = [
        one["metadata"]["name"] for one in rig.pods("dev") if one["spec"].get("nodeName") == name
    ]
    return [one for one in found if not one.startswith("dnm-")]


def bind_daemons(rig: Rig, node: str) -> bool:
    """As the scheduler of DaemonSets' pods does, which the rig has not."""
    made = [one for one in rig.pods("kube-system") if not one["spec"].get("nodeName")]
    for one in made:
        path = f"/api/v1/namespaces/kube-system/pods/{one['metadata']['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        rig.create(path, {"metadata": {"name": one["metadata"]["name"]}, "target": target})
    return bool(made)


def daemon_set(name: str, **spec: Any) -> Json:
    labels = {"app": name}
    container = {"name": "main", "image": "x"}
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container],
                    "tolerations": [{"operator": "Exists"}],
                    **spec,
                },
            },
        },
    }


def test_the_whole_list(bound_rig: Rig, make_site: MakeSite) -> None:
    rig = bound_rig
    rig.create("/api/v1/namespaces/kube-system/podtemplates", {
        "metadata": {"name": "check", "namespace": "kube-system"},
        "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
    })  # fmt: skip
    rig.create(DAEMONS, daemon_set("driver", nodeSelector={"driver": "wanted"}))
    steps = "daemonset kube-system/driver, condition NetUp=True, images, probe kube-system/check"
    site = workshop(rig, make_site, steps)
    name = wait_for(site, "DaemonSet kube-system/driver has no pod there")
    assert rig.queue(DEV)["maxResource"]["vcore"] == 100_000, "the queue grows when it opens"
    rig.api.ask("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {"driver": "wanted"}}},
                "application/merge-patch+json")  # fmt: skip
    site.run_until(lambda: bind_daemons(rig, name), "the controller has made its pod", code=None)
    wait_for(site, "the condition NetUp is not there")
    up = {"type": "NetUp", "status": "True", "reason": "x", "message": "x"}
    patch_node(rig, name, conditions=[up])
    patch_node(rig, name, conditions=[{**up, "status": "False"}])
    wait_for(site, "the condition NetUp is False")
    patch_node(rig, name, conditions=[up])
    wait_for(site, "the probe kube-system/check")
    (puller,) = (one for one in rig.pods("dev") if one["metadata"]["name"] == f"dnm-images-{name}")
    assert puller["spec"]["nodeName"] == name, "kwok runs it at once: its image is pulled"
    assert [one["image"] for one in puller["spec"]["containers"]] == [IMAGE]
    probe = f"/api/v1/namespaces/kube-system/pods/dnm-probe-{name}"
    site.run_until(lambda: rig.api.get(probe)["spec"]["nodeName"] == name, "the probe is there")
    assert not work_on(rig, name)
    patch_pod(rig, probe, {"phase": "Succeeded"})
    site.run_until(lambda: rig.running("dev") == 40, "every pod runs", code=None)
    assert work_on(rig, name) and rig.queue(DEV)["maxResource"]["vcore"] > 100_000
    taints = rig.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints") or []
    assert not [one for one in taints if one["key"] == TAINT]
    took = site.json("explain", name)["opening"]["took_seconds"]
    assert set(took) == {"boot", "join", *steps.split(", ")}, took
    with pytest.raises(ApiError):
        rig.api.get(probe)
    rig.remove_pods("dev")
    site.run_until(site.has_given_back, "it is back", code=None)
    assert rig.queues_text() == QUEUES


FAILING = [
    pytest.param("daemonset kube-system/late within 2s", "has no pod there", id="daemon-set"),
    pytest.param("condition NetUp=True within 2s", "NetUp is not there", id="condition"),
    pytest.param("images within 2s", f"image {IMAGE} is not on it", id="image"),
]


@pytest.mark.parametrize(("steps", "missing"), FAILING)
def test_what_does_not_come_goes_back(
    bound_rig: Rig, make_site: MakeSite, steps: str, missing: str
) -> None:
    rig = bound_rig
    rig.create(DAEMONS, daemon_set("late", nodeSelector={"never": "there"}))
    site = workshop(rig, make_site, steps)
    runs = site.run_until(
        lambda: any("--set batch" in one for one in site.calls), "back", code=None
    )
    site.run_until(site.has_given_back, "back", code=None)
    said = " ".join(f"{run.stdout}{run.stderr}" for run in runs)
    assert "could not be opened to pods, and goes back" in said and missing in said
    assert rig.queues_text() == QUEUES and not [
        w for w in rig.pods("dev") if w["spec"].get("nodeName", "").startswith("a")
    ]


def test_without_the_role_it_is_said_and_nothing_opens(rig: Rig, make_site: MakeSite) -> None:
    site = workshop(rig, make_site, "daemonset kube-system/driver")
    told = [one["text"] for one in site.json("check", code=None)["checks"]]
    assert any("list daemonsets" in one for one in told)
    name = wait_for(site, "list daemonsets")
    assert not work_on(rig, name)
