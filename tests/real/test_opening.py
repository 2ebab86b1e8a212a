"""Tests of `readiness_checks` on a real API server, with real DaemonSets and YuniKorn: how long a
joining node stays closed to pods, which pods dnm starts on it, and failing checks. They verify with
every change of Nodes and pods that no pod is on a node before it opens. kwok plays the kubelets: an
image's name defines how a pod ends (`kwok.yaml`). The tests set conditions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.clocks import shifted
from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.http_api import ApiError, Json
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, Site, pod

TAINT = "dynamic-node-manager/opening"
SLOW, GONE = "registry.example/slow:1", "registry.example/gone:1"
CRASHES, FAILS = "registry.example/crashes:1", "registry.example/fails:1"
ROLE = "dynamic-node-manager-opening"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
TEMPLATES = "/api/v1/namespaces/kube-system/podtemplates"
STEPS = """
[node_type:a]
cpu = 128
memory = 256Gi
readiness_checks = {steps}
"""
PAST_EVERY_STEP = 16 * 60
PULL_SECONDS = 60  # of SLOW


class Watched:
    """A watch that records every change of Nodes and pods since its start."""

    def __init__(self, rig: Rig, directory: Path) -> None:
        self.rig = rig
        self.files = {kind: directory / f"{kind}.json" for kind in ("nodes", "pods")}
        self.processes = []
        for kind, file in self.files.items():
            version = rig.api.get(f"/api/v1/{kind}?limit=1")["metadata"]["resourceVersion"]
            path = f"/api/v1/{kind}?watch=1&resourceVersion={version}&timeoutSeconds=3000"
            with file.open("wb") as out:
                command = ["kubectl", "get", "--raw", path]
                self.processes.append(subprocess.Popen(command, stdout=out, env=rig.environment))

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def changes(self) -> list[Json]:
        lines = [line for file in self.files.values() for line in file.read_text().splitlines(True)]
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return sorted(rows, key=lambda entry: version_of(entry["object"]))

    def assert_none_before_opening(self) -> set[str]:
        """Checks that no pod was on a node before it opened. Returns the nodes with pods."""
        there = [
            item for kind in self.files for item in self.rig.api.get(f"/api/v1/{kind}")["items"]
        ]
        newest = max(map(version_of, there))
        self.rig.wait_for(
            lambda: version_of(self.changes()[-1]["object"]) >= newest, "all changes are reported"
        )
        closed: dict[str, bool] = {}
        bound: dict[str, str] = {}
        for change in self.changes():
            name = change["object"]["metadata"]["name"]
            if change["object"]["kind"] == "Node":
                taints = change["object"]["spec"].get("taints") or []
                is_closed = any(taint["key"] == TAINT for taint in taints)
                closed[name] = is_closed or change["type"] == "DELETED"
            elif name.startswith("w") and name not in bound:
                node = change["object"]["spec"].get("nodeName", "")
                if node.startswith("a"):
                    bound[name] = node
                    assert closed.get(node) is False, f"{name} came to {node} while it was closed"
        return set(bound.values())


def version_of(item: Json) -> int:
    return int(item["metadata"]["resourceVersion"])


@pytest.fixture
def bound_rig(rig: Rig) -> Iterator[Rig]:
    """Yields the real cluster, in which dnm's account also has a role that is optional."""
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
        rig.api.ask("DELETE", TEMPLATES)
        rig.remove_pods("kube-system")


@pytest.fixture
def watched(bound_rig: Rig, tmp_path: Path) -> Iterator[Watched]:
    result = Watched(bound_rig, tmp_path)
    yield result
    result.stop()


def workshop(rig: Rig, make_site: MakeSite, steps: str, image: str = "none") -> Site:
    """Makes a site with a queue that needs one more node, which registers with dnm's taint."""
    site = make_site(sections=STEPS.format(steps=steps), max_converted_nodes=1)
    (site.directory / "dress").write_text(json.dumps({TAINT: ""}))
    for number in range(40):
        body = pod(f"w{number:02}", DEV, "4", "8Gi")
        body["spec"]["containers"][0]["image"] = image
        rig.create(PODS, body)
    return site


def opening(site: Site) -> str:
    """Returns what the joining node still waits for, by `dnm status`."""
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


def bind_daemons(rig: Rig, node: str) -> bool:
    """Binds the pods of DaemonSets to the node, for which the test cluster has no scheduler."""
    made = [item for item in rig.pods("kube-system") if not item["spec"].get("nodeName")]
    for entry in made:
        path = f"/api/v1/namespaces/kube-system/pods/{entry['metadata']['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        rig.create(path, {"metadata": {"name": entry["metadata"]["name"]}, "target": target})
    return bool(made)


def daemon_set(name: str, image: str = "x", **spec: Any) -> Json:
    labels = {"app": name}
    container = {"name": "main", "image": image}
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


def probe_template(image: str) -> Json:
    return {
        "metadata": {"name": "check", "namespace": "kube-system"},
        "template": {"spec": {"containers": [{"name": "main", "image": image}]}},
    }


def test_node_opens_after_all_readiness_checks_of_a_real_cluster(
    bound_rig: Rig, make_site: MakeSite, watched: Watched
) -> None:
    """Plays a late DaemonSet, an image that takes a minute, a condition that flips, and a probe."""
    rig = bound_rig
    rig.create(TEMPLATES, probe_template("x"))
    rig.create(DAEMONS, daemon_set("driver", nodeSelector={"driver": "wanted"}))
    steps = "daemonset kube-system/driver, condition NetUp=True, images, probe kube-system/check"
    site = workshop(rig, make_site, steps, SLOW)
    name = wait_for(site, "DaemonSet kube-system/driver has no pod there")
    assert rig.queue(DEV)["maxResource"]["vcore"] == 100_000, "the queue grows at opening"
    rig.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"driver": "wanted"}}})
    site.run_until(lambda: bind_daemons(rig, name), "the controller has made its pod", code=None)
    wait_for(site, "the condition NetUp is not there")
    up = {"type": "NetUp", "status": "True", "reason": "x", "message": "x"}
    patch_node(rig, name, conditions=[up])
    site.run_until(lambda: "NetUp" not in opening(site), "it holds", code=None)
    (puller,) = (
        entry for entry in rig.pods("dev") if entry["metadata"]["name"] == f"dnm-images-{name}"
    )
    assert puller["spec"]["nodeName"] == name
    assert [container["image"] for container in puller["spec"]["containers"]] == [SLOW]
    patch_node(rig, name, conditions=[{**up, "status": "False"}])
    wait_for(site, "the condition NetUp is False")
    patch_node(rig, name, conditions=[up])
    wait_for(site, "the probe kube-system/check")
    probe = f"/api/v1/namespaces/kube-system/pods/dnm-probe-{name}"
    site.run_until(lambda: rig.api.get(probe)["spec"]["nodeName"] == name, "the probe is there")
    assert rig.queue(DEV)["maxResource"]["vcore"] == 100_000
    patch_pod(rig, probe, {"phase": "Succeeded"})
    site.run_until(lambda: rig.running("dev") == 40, "every pod runs", code=None)
    assert watched.assert_none_before_opening() == {name}
    assert rig.queue(DEV)["maxResource"]["vcore"] > 100_000
    took = site.json("explain", name)["opening"]["took_seconds"]
    assert set(took) == {"boot", "join", *steps.split(", ")}, took
    assert took["images"] >= PULL_SECONDS - 1, "whole seconds"
    assert took["probe kube-system/check"] >= took["condition NetUp=True"], "it held anew"
    assert took["condition NetUp=True"] >= took["daemonset kube-system/driver"]
    with pytest.raises(ApiError):
        rig.api.get(probe)
    rig.remove_pods("dev")
    site.run_until(site.has_returned_nodes, "it is returned", code=None)
    assert rig.queues_text() == QUEUES


CHECK = "probe kube-system/check"
NEVER = [
    pytest.param("daemonset kube-system/late", "x", "has no pod there", id="no-daemon"),
    pytest.param("daemonset kube-system/broken", "x",
                 "is not Ready there: CrashLoopBackOff: back-off 40s", id="daemon-never-ready"),
    pytest.param("condition NetUp=True", "x", "NetUp is not there", id="condition"),
    pytest.param("images", GONE, f"image {GONE} is not on it: ErrImagePull: gone:1: not found",
                 id="image"),
    pytest.param(CHECK, "x", f"the {CHECK} has failed: exit 3: no link", id="probe"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "image", "missing"), NEVER)
def test_node_with_a_missing_readiness_check_is_returned(
    bound_rig: Rig, make_site: MakeSite, watched: Watched, steps: str, image: str, missing: str
) -> None:
    """dnm waits for a check until its deadline, but returns the node at once if a probe fails."""
    rig = bound_rig
    rig.create(TEMPLATES, probe_template(FAILS))
    rig.create(DAEMONS, daemon_set("late", nodeSelector={"never": "there"}))
    rig.create(DAEMONS, daemon_set("broken", CRASHES, nodeSelector={"dev": "true"}))
    site = workshop(rig, make_site, f"{steps}, condition Ready=True", image)
    runs = []

    def is_returned() -> bool:
        for name in site.lent:
            bind_daemons(rig, name)
        if missing in opening(site) and steps != CHECK:
            site.variables |= shifted(PAST_EVERY_STEP)
        return any("--set batch" in call for call in site.calls)

    runs += site.run_until(is_returned, missing, code=None)
    assert bool(site.variables) == (steps != CHECK)
    rig.remove_pods("dev")  # else dnm lends another node: the back-off begins at a second failure
    site.run_until(site.has_returned_nodes, "it is returned", code=None)
    message = " ".join(f"{run.stdout}{run.stderr}" for run in runs)
    assert "did not pass its readiness checks and is returned" in message and missing in message
    assert not watched.assert_none_before_opening()
    assert rig.queues_text() == QUEUES
    history = (site.directory / "state" / "history.jsonl").read_text().splitlines()
    numbers = [json.loads(line).get("numbers", {}) for line in history]
    took = [set(number["took"]) for number in numbers if "took" in number]
    assert took == [{"boot", "join", "condition Ready=True"}], history


def test_missing_readiness_permission_is_reported_and_opens_no_node(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    watched = Watched(rig, tmp_path)
    site = workshop(rig, make_site, CHECK)
    rows = [row for row in site.json("check", code=None)["checks"] if row["result"] != "ok"]
    assert any("get podtemplates" in row["text"] for row in rows), rows
    missing = f"the {CHECK} has not run yet"
    runs = site.run_until(lambda: missing in opening(site), missing, code=None)
    assert any("permission to get podtemplates" in run.stderr for run in runs)
    assert not watched.assert_none_before_opening()
    watched.stop()
