"""Tests of `readiness_checks` over HTTP with the real client: what a run reads and which pods it
creates, in which order, and that a node gets no pods before its checks pass. Also a test of
`fault_conditions` from the Node's condition on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.checks.batch import check_faults
from dnm.checks.permissions import permissions
from dnm.checks.pods import check_opening
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.batch import BatchList
from dnm.model.departure import Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.opening import OPENING_TAINT
from tests.site import QUEUE, Site, set_up_workshop

MINUTE = timedelta(minutes=1).total_seconds()
STEPS = "readiness_checks = daemonsets within 5m, condition NetUp=True within 9m, images within 9m"
IMAGE = "site.example/workshop:2026"


@pytest.fixture
def make_site(sandbox: Sandbox, tmp_path: Path) -> Callable[..., Site]:
    def make(steps: str = STEPS, is_closed: bool = True) -> Site:
        taints = [{"key": OPENING_TAINT, "effect": "NoSchedule"}] if is_closed else []
        sandbox.add_machine_type("a", taints=taints)
        set_up_workshop(sandbox, 1)
        sandbox.add_node("k1", cpu="4", memory="16G")
        sections = f"[node_type:a]\ncpu = 128\nmemory = 256G\n{steps}\n"
        site = Site(sandbox, tmp_path / "site", sections=sections)
        sandbox.add_pods(75, "dev", queue=QUEUE, cpu="4", memory="16G")
        for pod in sandbox.objects("pods"):
            sandbox.edit("pods", pod["metadata"]["name"], with_image, "dev")
        return site

    return make


def node(site: Site) -> Any:
    return site.sandbox.get("nodes", "a001")


def with_image(pod: Any) -> None:
    pod["spec"]["containers"][0]["image"] = IMAGE


def entry(site: Site) -> LentNode:
    return site.registry.nodes["a001"]


def join(site: Site) -> None:
    """Plays runs until one has read what the checks of the joining node need."""
    for _ in range(9):
        site.run()
        site.sandbox.tick(MINUTE)
        lent = site.registry.nodes.get("a001")
        if lent is not None and lent.opening is not None and "ready" in lent.opening.held:
            site.run()
            return
    raise AssertionError(site.registry)


def set_up(site: Site, *, image: bool = True, condition: str = "True") -> None:
    def change(item: Any) -> None:
        item["status"].setdefault("conditions", []).append({"type": "NetUp", "status": condition})
        if image:
            item["status"]["images"] = [{"names": [IMAGE], "sizeBytes": 1}]

    site.sandbox.edit("nodes", "a001", change)


def pods_on(site: Site) -> list[str]:
    pods = site.sandbox.objects("pods")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == "a001"]


def is_closed(site: Site) -> bool:
    return any(item["key"] == OPENING_TAINT for item in node(site)["spec"].get("taints") or ())


def test_pods_start_only_after_all_readiness_checks_hold(make_site: Callable[..., Site]) -> None:
    site = make_site()
    join(site)
    assert is_closed(site) and entry(site).phase is Phase.JOINING
    assert pods_on(site) == ["dnm-images-a001"]
    assert "vcore: 80" in site.sandbox.queues_text()
    set_up(site)
    site.run()
    assert entry(site).phase is Phase.SERVING and not is_closed(site)
    assert "vcore: 208" in site.sandbox.queues_text()
    site.sandbox.tick(MINUTE)
    site.run()
    assert len(pods_on(site)) > 10 and "dnm-images-a001" not in pods_on(site)
    lines = (site.config.converted_nodes_path.parent / "history.jsonl").read_text().splitlines()
    joined = next(line for line in map(json.loads, lines) if line["event"] == "joined")
    assert set(joined["numbers"]["took"]) >= {"boot", "join", "images", "condition NetUp=True"}


MAIN = {"containers": [{"name": "main", "image": "x"}]}


def add_daemon_set(site: Site, key: str, selector: dict[str, str]) -> str:
    """Adds a DaemonSet and returns its uid."""
    namespace, _, name = key.partition("/")
    spec = {**MAIN, "nodeSelector": selector, "tolerations": [{"operator": "Exists"}]}
    made = site.sandbox.create({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": name}},
                 "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })  # fmt: skip
    return str(made["metadata"]["uid"])


def add_owned_pod(site: Site, key: str, uid: str) -> None:
    namespace, _, name = key.partition("/")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "here", "uid": uid}
    site.sandbox.create({
        "apiVersion": "v1", "kind": "Pod", "spec": {**MAIN, "nodeName": "a001"},
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
    })  # fmt: skip
    site.sandbox.tick(MINUTE)


def test_required_daemon_sets_select_the_node_and_are_no_tenant_pods(
    make_site: Callable[..., Site],
) -> None:
    site = make_site("readiness_checks = daemonsets")
    uid = add_daemon_set(site, "kube-system/here", {"dev": "true"})
    add_daemon_set(site, "kube-system/elsewhere", {"gpu": "yes"})
    add_daemon_set(site, "dev/never-ready", {"dev": "true"})
    join(site)
    opening = entry(site).opening
    assert opening is not None and opening.why == "DaemonSet kube-system/here has no pod there"
    add_owned_pod(site, "dev/forged", uid)
    site.run()
    assert entry(site).phase is Phase.JOINING
    add_owned_pod(site, "kube-system/here-1", uid)
    site.run()
    assert entry(site).phase is Phase.SERVING


def test_check_lists_the_daemon_sets_of_readiness_checks(make_site: Callable[..., Site]) -> None:
    site = make_site("readiness_checks = daemonsets")
    add_daemon_set(site, "kube-system/here", {})
    add_daemon_set(site, "dev/agent", {})
    with closing(KubeClient.connect(site.config)) as kube:
        required, left_out = check_opening(site.config, kube)
    assert required.text == "nodes of type a wait for these DaemonSets: kube-system/here"
    assert "do not wait for DaemonSets of monitored namespaces (dev/agent)" in left_out.text


@pytest.mark.parametrize("body", ["{}", '{"items": 7}', '{"kind": "DaemonSetList"}', "<html>"])
def test_malformed_daemon_set_list_opens_no_node(make_site: Callable[..., Site], body: str) -> None:
    site = make_site("readiness_checks = daemonsets")
    site.sandbox.fault("garbage", path="daemonsets", body=body, times=99)
    join(site)
    opening = entry(site).opening
    assert entry(site).phase is Phase.JOINING and opening is not None and opening.why


def test_images_are_awaited_without_the_permission_to_start_pods(
    make_site: Callable[..., Site],
) -> None:
    site = make_site()
    wanted = (
        permission
        for permission in permissions(site.config)
        if (permission.verb, permission.resource) != ("create", "pods")
    )
    site.sandbox.access.restrict(
        (permission.verb, permission.resource, permission.namespace or "*") for permission in wanted
    )
    join(site)
    set_up(site, image=False)
    site.run()
    opening = entry(site).opening
    assert opening is not None and "dnm may not pull it" in opening.why
    set_up(site)
    site.run()
    assert entry(site).phase is Phase.SERVING


def test_readiness_is_not_read_when_no_node_joins(make_site: Callable[..., Site]) -> None:
    site = make_site()
    join(site)
    set_up(site)
    site.run()
    site.run()
    site.sandbox.requests.clear()
    site.run()
    later = [str(pair) for pair in site.sandbox.requests.all()]
    assert later and not [name for name in later if "nodeName" in name or "nodes/a001" in name]


def test_faulty_node_is_emptied_but_not_returned_by_a_resuming_converter(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    set_up_workshop(sandbox, 1)
    sandbox.add_node("k1", cpu="4", memory="16G")
    site = Site(sandbox, tmp_path / "site", fault_conditions="condition GpuOk=False")
    sandbox.add_pods(30, "dev", queue=QUEUE, cpu="4", memory="16G")
    site.run_until_rest()
    assert site.registry.nodes["a001"].leaves is None

    def fail(node: Any) -> None:
        node["status"]["conditions"].append({"type": "GpuOk", "status": "False"})

    sandbox.edit("nodes", "a001", fail)
    message = ""
    for _ in range(8):
        result = site.run()
        message += "; ".join(result.outcome.errors if result.outcome else ())
        sandbox.tick(60)
    entry = site.registry.nodes["a001"]
    assert (entry.fault, entry.leaves) == ("GpuOk:False", Leaving.FAULTY)
    assert not [item for item in sandbox.objects("pods") if item["spec"].get("nodeName") == "a001"]
    assert "is faulty (GpuOk:False), and its converter can't leave it drained" in message
    assert sandbox.get("nodes", "a001") is not None and not sandbox.violations
    (finding,) = check_faults(site.config, BatchList(nodes={}))
    assert finding.text.startswith("the converter has no option --leave-drained")
    assert not list(check_faults(site.config, BatchList(nodes={}, leaves_drained=True)))
