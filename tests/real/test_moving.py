"""Tests of moving a lent node to another queue, on the real API server with YuniKorn."""

from __future__ import annotations

import json

from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import DEV, NOTEBOOK, PODS, pod

TYPE = """
[node_type:a]
labels = site/for={namespace}
taints = site/for={namespace}:NoSchedule
"""


def tied(name: str, queue: str, namespace: str, cpu: str) -> dict[str, object]:
    """Returns a pod that runs only on nodes lent to its namespace."""
    return pod(
        name, queue, cpu, "8Gi", nodeSelector={namespace: "true", "site/for": namespace},
        tolerations=[{"key": "site/for", "operator": "Equal", "value": namespace}],
    )  # fmt: skip


def test_idle_node_of_dev_runs_a_pod_of_notebook(rig: Rig, make_site: MakeSite) -> None:
    site = make_site(sections=TYPE, move_in_place="true", max_converted_nodes=1)
    (site.directory / "dress").write_text('{"site/for": "NAMESPACE"}')
    rig.create(PODS, tied("first", DEV, "dev", "100"))
    site.run_until(lambda: rig.running("dev") == 1 and site.lent, "dev's pod runs on a lent node")
    (name,) = site.lent
    uid, limits = rig.api.get(f"/api/v1/nodes/{name}")["metadata"]["uid"], rig.queues_text()
    rig.remove_pods("dev")
    rig.create("/api/v1/namespaces/notebook/pods", tied("second", NOTEBOOK, "notebook", "8"))
    site.run_until(lambda: rig.running("notebook") == 1, "notebook's pod runs on it")
    node = rig.api.get(f"/api/v1/nodes/{name}")
    labels, taints = node["metadata"]["labels"], node["spec"]["taints"]
    assert node["metadata"]["uid"] == uid, "it was not registered anew"
    assert (labels["notebook"], labels["site/for"], "dev" in labels) == ("true", "notebook", False)
    assert [(taint["key"], taint["value"]) for taint in taints] == [("site/for", "notebook")]
    assert [call for call in site.calls if "--set" in call] == [
        "--set k8s --node-type a --num-nodes 1 --namespace dev"
    ]
    assert rig.queues_text() != limits and rig.queue(DEV)["maxResource"]["vcore"] == 100_000
    lines = site.dnm("history", name, "-o", "json").stdout.splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert [event for event in events if event in ("moving", "moved")] == ["moving", "moved"]
