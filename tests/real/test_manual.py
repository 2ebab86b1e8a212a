"""Tests of administrators' commands on real servers: lend, extend, return with and without
eviction, adopt, hold, exclude, pause of lends or returns. The history names operator and reason."""

from __future__ import annotations

import json

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.site import CONTROLLERS, DEV, Site, add_controller, pod

BUDGETS = "/apis/policy/v1/namespaces/dev/poddisruptionbudgets"


def served_by(rig: Rig, node: str) -> None:
    """Runs a ReplicaSet's pod on a node, with a PodDisruptionBudget that forbids its eviction."""
    manifest = pod("web", DEV, "1", "1Gi", nodeSelector={"kubernetes.io/hostname": node})
    add_controller(rig, "web", manifest)
    rig.wait_for(lambda: rig.running("dev") == 1, "the pod runs")
    put_budget(rig, 1)


def put_budget(rig: Rig, least: int) -> None:
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}}
    if least:
        rig.api.post(BUDGETS, {"metadata": {"name": "web"}, "spec": spec})
    else:
        rig.api.patch(f"{BUDGETS}/web", {"spec": {"minAvailable": least}})
    rig.wait_for(lambda: allowed(rig) == 1 - least, "the budget is counted")


def allowed(rig: Rig) -> int | None:
    status: Json = rig.api.get(f"{BUDGETS}/web").get("status", {})
    is_counted = status.get("observedGeneration") and status.get("currentHealthy")
    return int(status["disruptionsAllowed"]) if is_counted else None


def serving(site: Site) -> list[str]:
    nodes = site.json("status")["nodes"]
    return [node["node"] for node in nodes if node["phase"] == "serving"]


def is_cordoned(rig: Rig, node: str) -> bool:
    return bool(rig.api.get(f"/api/v1/nodes/{node}")["spec"].get("unschedulable"))


def plan_reason(site: Site, node: str) -> str:
    """Returns the reason that `dnm plan` shows for a node."""
    nodes = site.json("plan", code=None)["nodes"]
    return next((item["reason"] for item in nodes if item["node"] == node), "")


def history(site: Site, *words: str) -> list[Json]:
    message = site.dnm("history", *words, "-o", "json").stdout
    return [json.loads(line) for line in message.splitlines()]


def test_administrator_lends_and_returns_nodes_manually(rig: Rig, make_site: MakeSite) -> None:
    site = make_site()
    site.dnm("exclude", "a[001-002]", "--reason", "the grant's")
    site.dnm("lend", "2", "--namespace", "dev", "--for", "1h", "--reason", "course", "--now")
    site.run_until(lambda: serving(site) == ["a003", "a004"], "two nodes serve")
    site.dnm("extend", "a003", "--for", "3h", "--reason", "longer")

    # One node is held; for the other one a budget refuses the eviction.
    site.dnm("hold", "a003", "--reason", "a talk")
    refused = site.dnm("return", "a003", code=2)
    assert "a003 is held: `dnm unhold a003` first" in refused.stderr
    site.dnm("unhold", "a003")
    served_by(rig, "a004")
    refused = site.dnm("return", "a004", "--evict", code=2)
    assert "dev/web-" in refused.stderr and "not now: Cannot evict pod" in refused.stderr
    assert "there is no terminal: add --yes" in refused.stderr
    assert not is_cordoned(rig, "a004")
    site.dnm("return", "a004", "--evict", "--yes", "--now", "--reason", "a fan")
    for _ in range(2):
        site.dnm("run")
        assert is_cordoned(rig, "a004") and rig.running("dev") == 1
    assert "is not evicted: Cannot evict pod as it would violate" in plan_reason(site, "a004")
    put_budget(rig, 0)
    site.dnm("run")
    rig.api.ask("DELETE", f"{CONTROLLERS}/replicasets/web?propagationPolicy=Background")
    site.run_until(lambda: site.lent == ["a003"], "it is empty, and returned")
    assert site.machines.places()["a004"] == "batch"
    called = [call for call in site.calls if "--set batch" in call]
    assert called == ["--set batch --node-name a004"]

    # dnm shows a manually converted node, and manages it only after adopt.
    rig.shell(f"{site.directory}/node-convert --set k8s --node-name a008 --namespace dev")
    rig.wait_for(lambda: "a008" in rig.ready_nodes(), "a008 is Ready")
    site.dnm("pause", "--lending", "--reason", "maintenance")
    site.dnm("lend", "--namespace", "dev", "--node", "a005", "--now")
    assert "was moved to Kubernetes manually" in plan_reason(site, "a008")
    (waiting,) = [order for order in site.json("status")["orders"] if order["missing"]]
    assert "dnm is paused" in waiting["waiting_reason"] and not any(
        "a005" in call for call in site.calls
    )
    site.dnm("adopt", "a008", "--namespace", "dev", "--reason", "mine")
    site.run_until(lambda: serving(site) == ["a003", "a008"], "it serves")

    # A pause of returning: dnm fences nothing, and lends what was requested.
    site.dnm("pause", "--returning", "--force")  # replaces the other pause
    site.dnm("return", "a003", "--now")
    assert not is_cordoned(rig, "a003") and "dnm is paused" in plan_reason(site, "a003")
    site.run_until(lambda: serving(site) == ["a003", "a005", "a008"], "it is lent")
    site.dnm("resume")
    site.dnm("return", waiting["id"], "a008")
    site.run_until(site.has_returned_nodes, "every node is returned")
    assert rig.queues_text() == QUEUES and rig.nodes() == {"k1", "k2"}

    verbs = history(site, "--kind", "verb")
    rows = {(verb["event"], verb["object"], verb.get("reason", "")) for verb in verbs}
    assert rows >= {
        ("exclude", "a001", "the grant's"), ("extend", "a003", "longer"),
        ("hold", "a003", "a talk"), ("unhold", "a003", ""), ("return", "a004", "a fan"),
        ("pause", "", "maintenance"), ("adopt", "a008", "mine"), ("return", "a003", ""),
    }  # fmt: skip
    assert {verb["event"] for verb in verbs} >= {"lend", "resume"}
    assert all(verb["requester"] and verb["host"] for verb in verbs)
    evicting = [entry for entry in history(site, "a004") if entry["event"] == "evicting"]
    was_refused = ["no eviction was refused" not in entry["reason"] for entry in evicting]
    assert was_refused == [True, False], evicting
