"""The workshop with the shipped node-convert on a real Slurm, and evictions as the API answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnm.convert.lab import SlurmLab
from tests.real.account import KUBECONFIG
from tests.real.http_api import Json
from tests.real.rig import QUEUES, Rig
from tests.real.site import pod
from tests.real.slurm_site import SlurmSite
from tests.slurm_lab import is_running, put_back, the_lab

DEV = "root.research.services.dev"


@pytest.fixture
def lab() -> Iterator[SlurmLab]:
    lab = the_lab()
    try:
        yield lab
    finally:
        put_back(lab)


@pytest.fixture
def site(rig: Rig, lab: SlurmLab, tmp_path: Path) -> SlurmSite:
    return SlurmSite(rig, tmp_path / "site", KUBECONFIG, lab, more="drain_timeout_seconds = 4")


def test_a_workshop_on_slurm_nodes(rig: Rig, site: SlurmSite) -> None:
    lab = site.lab
    print("Slurm:", lab.run("scontrol", "--version"))
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=nobody")
    lab.wait_for(lambda: is_running(lab, job), 10)
    for number in range(75):
        rig.api.post("/api/v1/namespaces/dev/pods", pod(f"w{number:02}", DEV, "4", "16Gi"))
    site.run_until(lambda: rig.running("dev") == 75, "every pod of the workshop runs", 120)
    assert len(site.lent) == 4 and "a001" not in site.lent
    assert rig.queue(DEV)["maxResource"]["vcore"] == (100 + 4 * 128) * 1000
    rig.api.ask("DELETE", "/api/v1/namespaces/dev/pods")
    site.run_until(site.has_given_back, "every node is back", 120)
    assert rig.queues_text() == QUEUES and rig.nodes() == {"k1", "k2"}
    assert is_running(lab, job)
    site.assert_slurm_is_clean()


# --- evictions -----------------------------------------------------------------------------------


@pytest.fixture
def lent(rig: Rig, site: SlurmSite) -> Iterator[str]:
    """A node that `node-convert` lent, ready for pods."""
    answer = site.convert("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert answer.returncode == 0, answer.stderr
    node = answer.stdout.strip()
    rig.wait_for(lambda: node in rig.ready_nodes(), f"{node} is Ready")
    yield node
    rig.remove_guards()
    rig.remove_work()
    again = site.convert("--set", "batch", "--node-name", node)
    assert again.returncode == 0, again.stderr


def owned(rig: Rig, node: str, name: str, **more: object) -> Json:
    """A pod of a ReplicaSet on that node, so that eviction loses nothing."""
    manifest = pod(name, DEV, "1", "1Gi", nodeSelector={"kubernetes.io/hostname": node})
    manifest["metadata"]["labels"] |= {"app": name, "tier": "any"}
    path = "/apis/apps/v1/namespaces/dev/replicasets"
    rig.api.post(
        path,
        {
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": manifest["metadata"]["labels"], **more},
                    "spec": manifest["spec"],
                },
            },
        },
    )
    rig.wait_for(lambda: rig.running("dev") == 1, f"the pod of {name} runs")
    return rig.pods("dev")[0]


def budget(rig: Rig, name: str, labels: dict[str, str], least: int = 1) -> None:
    path = "/apis/policy/v1/namespaces/dev/poddisruptionbudgets"
    spec = {"minAvailable": least, "selector": {"matchLabels": labels}}
    rig.api.post(path, {"metadata": {"name": name}, "spec": spec})
    rig.wait_for(
        lambda: rig.api.get(f"{path}/{name}").get("status", {}).get("observedGeneration"),
        f"the budget {name} is counted",
    )


def test_an_exhausted_budget_holds_the_node(rig: Rig, site: SlurmSite, lent: str) -> None:
    """429: the node keeps its pod and is uncordoned again."""
    owned(rig, lent, "web")
    budget(rig, "web", {"app": "web"})
    answer = site.convert("--set", "batch", "--node-name", lent)
    assert answer.returncode == 1 and "disruption budget" in answer.stderr, answer
    assert rig.running("dev") == 1
    assert not rig.api.get(f"/api/v1/nodes/{lent}")["spec"].get("unschedulable")


def test_two_budgets_for_one_pod_are_a_no_with_their_own_sentence(
    rig: Rig, site: SlurmSite, lent: str
) -> None:
    """The API says 500, which is no failure of the server: it will never evict such a pod."""
    owned(rig, lent, "web")
    budget(rig, "first", {"app": "web"}, 0)
    budget(rig, "second", {"tier": "any"}, 0)
    answer = site.convert("--set", "batch", "--node-name", lent)
    assert answer.returncode == 1, answer
    assert "more than one PodDisruptionBudget" in answer.stderr, answer.stderr
    assert "remove one of them" in answer.stderr and "500" not in answer.stderr, answer.stderr
    assert rig.running("dev") == 1
    assert not rig.api.get(f"/api/v1/nodes/{lent}")["spec"].get("unschedulable")


def test_a_pod_with_a_finalizer_holds_the_node_until_it_is_gone(
    rig: Rig, site: SlurmSite, lent: str
) -> None:
    import signal

    found = owned(rig, lent, "slow")
    path = f"/api/v1/namespaces/dev/pods/{found['metadata']['name']}"
    rig.api.delete("/apis/apps/v1/namespaces/dev/replicasets/slow?propagationPolicy=Orphan")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "slow", "controller": True,
             "uid": found["metadata"]["ownerReferences"][0]["uid"]}  # fmt: skip
    rig.servers["kwok"].send(signal.SIGSTOP)
    try:
        change = {"finalizers": ["example.org/backup"], "ownerReferences": [owner]}
        rig.api.patch(path, {"metadata": change})
        answer = site.convert("--set", "batch", "--node-name", lent)
        assert answer.returncode == 1 and found["metadata"]["name"] in answer.stderr, answer
        assert rig.api.get(path)["metadata"]["deletionTimestamp"]
        assert lent in rig.nodes()
        # Its finalizer goes while the next call waits.
        gone = threading.Timer(1, lambda: rig.remove_pods("dev"))
        gone.start()
        answer = site.convert("--set", "batch", "--node-name", lent)
        gone.join()
        assert answer.returncode == 0 and lent not in rig.nodes(), answer.stderr
    finally:
        rig.servers["kwok"].send(signal.SIGCONT)


def test_an_unhealthy_pod_goes_although_its_budget_is_exhausted(
    rig: Rig, site: SlurmSite, lent: str
) -> None:
    """unhealthyPodEvictionPolicy AlwaysAllow; by default one that is not Ready is held."""
    found = owned(rig, lent, "sick")
    name = found["metadata"]["name"]
    conditions = [{"type": "Ready", "status": "False"}]
    budget(rig, "sick", {"app": "sick"})
    rig.api.patch(
        f"/api/v1/namespaces/dev/pods/{name}/status", {"status": {"conditions": conditions}},
        "strategic",
    )  # fmt: skip
    answer = site.convert("--set", "batch", "--node-name", lent)
    assert answer.returncode == 1 and "disruption budget" in answer.stderr, answer
    path = "/apis/policy/v1/namespaces/dev/poddisruptionbudgets/sick"
    rig.api.patch(path, {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
    answer = site.convert("--set", "batch", "--node-name", lent)
    assert answer.returncode == 0 and lent not in rig.nodes(), answer.stderr
