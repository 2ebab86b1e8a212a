"""Tests of a workshop with node-convert on a real Slurm, and of evictions by a real API server."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.real.account import KUBECONFIG
from tests.real.cluster import QUEUES
from tests.real.http_api import Json
from tests.real.proxy import Seen, proxied
from tests.real.rig import Rig
from tests.real.shared import is_at_work, notes_of
from tests.real.site import (
    DEV,
    PODS,
    add_controller,
    add_pods,
    edit_file,
    pod,
    request_one_node,
    with_nodes,
)
from tests.real.slurm_site import SlurmSite
from tests.real_slurm import SlurmLab
from tests.slurm_lab import is_running


@pytest.fixture
def site(rig: Rig, lab: SlurmLab, tmp_path: Path) -> SlurmSite:
    return SlurmSite(rig, tmp_path / "site", KUBECONFIG, lab, drain_timeout_seconds=8)


def test_workshop_on_slurm_nodes_loses_no_job(rig: Rig, site: SlurmSite) -> None:
    lab = site.lab
    rig.note_versions({"Slurm": lab.release})
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=nobody")
    lab.wait_for(lambda: is_running(lab, job), 60)
    add_pods(rig, 75)
    site.run_until(lambda: rig.running("dev") == 75, "every pod of the workshop runs", 120)
    assert len(site.lent) == 4 and "a001" not in site.lent
    assert rig.queue(DEV)["maxResource"]["vcore"] == with_nodes(4)["vcore"]
    rig.api.ask("DELETE", PODS)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert rig.queues_text() == QUEUES and rig.nodes() == {"k1", "k2"}
    assert is_running(lab, job)
    site.assert_slurm_is_clean()


@pytest.mark.parametrize(
    "known", ["named", "serving", "serving, and it boots", "serving, and its marks are left"]
)
def test_node_returned_manually_belongs_to_the_instance_that_lends_it_next(
    rig: Rig, lab: SlurmLab, tmp_path: Path, known: str
) -> None:
    """Slurm's reservation decides which instance has the node. The first instance may have recorded
    it as serving, or only started the converter that lent it. Both instances serve dev. The first
    has no run in between, or one while the machine boots and has no Node. Marks of the first
    instance do not count, since the second one has reserved and drained the node."""
    # fmt: off
    east, west = (
        SlurmSite(
            rig, tmp_path / name, KUBECONFIG, lab, instance_id=name, max_converted_nodes=1,
            reversion_idle_seconds=3600 if name == "east" else 2, breaker_strikes=1000,
        )
        for name in ("east", "west")
    )
    # fmt: on
    other = ",".join(node for node in lab.nodes if node != "a001")
    job = lab.submit("-w", other, f"-N{len(lab.nodes) - 1}", "--exclusive", "--uid=nobody")
    lab.wait_for(lambda: is_running(lab, job), 60)

    boots = tmp_path / "boots"
    waits = f"import time\nwhile os.path.exists({str(boots)!r}):\n    time.sleep(0.1)\njoin(\n"
    edit_file(west.hooks / "join", "\njoin(\n", f"\n{waits}")

    def lend(site: SlurmSite) -> None:
        """Plays one run, in which the converter lends the only free node, and waits for its end."""
        request_one_node(rig)
        rig.wait_for(lambda: rig.running("dev") > 0, "some pods fit into the queue")
        site.dnm("run")
        if boots.exists():
            lab.wait_for(lambda: bool(lab.client.read_reservations()), 60)
            assert "a001" not in rig.nodes()
            east.dnm("run")
            assert east.lent == []
            boots.unlink()
        rig.wait_for(lambda: "a001" in rig.ready_nodes(), "a001 is Ready", 120)
        rig.wait_for(lambda: not any(map(is_at_work, notes_of(site))), "its converter ended", 60)

    lend(east)
    if known != "named":
        east.run_until(lambda: rig.running("dev") == 12, "every pod runs", 120)
    if "boots" in known:
        boots.touch()
    rig.remove_pods("dev")
    answer = east.convert("--set", "batch", "--node-name", "a001")
    assert answer.returncode == 0, answer.stderr
    if "marks" in known:
        marks = ("comment=dnm:east 1", "extra=dnm:east 1")
        lab.run("scontrol", "update", "nodename=a001", *marks)
    lend(west)
    for _ in range(3):
        for site in (east, west):
            site.dnm("run", code=None)
            limit = rig.queue(DEV)["maxResource"]  # never below the use of its pods
            for resource, amount in with_nodes(0).items():
                assert amount <= limit[resource] <= with_nodes(1)[resource], limit
            time.sleep(0.5)
    west.run_until(lambda: rig.running("dev") == 12, "every pod runs", 120)
    east.dnm("run", code=None)
    assert (east.lent, west.lent) == ([], ["a001"])
    assert rig.queue(DEV)["maxResource"] == with_nodes(1)
    rig.remove_pods("dev")
    west.run_until(west.has_returned_nodes, "it is returned", 120)
    assert rig.queues_text() == QUEUES and rig.nodes() == {"k1", "k2"}
    assert is_running(lab, job)
    west.assert_slurm_is_clean()


def test_mark_forged_by_a_kubelet_gives_its_node_to_no_instance(
    rig: Rig, lab: SlurmLab, tmp_path: Path
) -> None:
    """dnm trusts Slurm's reservation more than a mark on the Node. The instance that lent the node
    keeps it and reports the mark; the node serves as soon as the mark is gone."""
    east, west = (
        SlurmSite(
            rig, tmp_path / name, KUBECONFIG, lab, instance_id=name, join_timeout_seconds=3,
            max_converted_nodes=most,
        )
        for name, most in (("east", 1), ("west", 0))
    )  # fmt: skip
    request_one_node(rig)
    rig.wait_for(lambda: rig.running("dev") > 0, "some pods fit into the queue")
    east.dnm("run")
    rig.wait_for(lambda: len(rig.ready_nodes()) == 3, "a node that is lent is Ready", 120)
    (name,) = rig.nodes() - {"k1", "k2"}
    full = {"instance": "west", "node-type": "a", "namespace": "dev", "queue": DEV}
    west_s = {f"dynamic-node-manager/{key}": text for key, text in full.items()}
    there = rig.api.get(f"/api/v1/nodes/{name}")["metadata"].get("annotations", {})
    assert not there.keys() & west_s.keys()

    def mark(annotations: Mapping[str, str | None]) -> None:
        rig.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}})

    mark(west_s)
    message = ""
    patience = rig.patience(60)
    while "check the Node's annotations" not in message:
        assert not patience.is_over(), message
        answers = [site.dnm("run", code=None) for site in (west, east)]
        message = "".join(answer.stdout + answer.stderr for answer in answers)
    assert f"{name} has the mark of instance west" in message
    assert (east.lent, west.lent) == ([name], [])
    assert rig.queue(DEV)["maxResource"] == with_nodes(0)
    mark(dict.fromkeys(west_s))
    east.run_until(lambda: rig.running("dev") == 12, "every pod runs", 120)
    rig.remove_pods("dev")
    east.run_until(east.has_returned_nodes, "it is returned", 120)
    assert rig.queues_text() == QUEUES
    east.assert_slurm_is_clean()


def test_node_uncordoned_after_a_failed_return_is_fenced_and_returned(
    rig: Rig, lab: SlurmLab, tmp_path: Path
) -> None:
    """An administrator may uncordon the node so that pods can use it meanwhile."""
    site = SlurmSite(rig, tmp_path / "site", KUBECONFIG, lab, reversion_idle_seconds=2)
    request_one_node(rig)
    site.run_until(lambda: rig.running("dev") == 12, "every pod runs", 120)
    (name,) = site.lent
    reset = site.hooks / "reset"
    works = reset.read_text()
    reset.write_text("#!/bin/sh\necho 'the power supply does not answer' >&2\nexit 1\n")
    rig.remove_pods("dev")

    def has_failed() -> bool:
        return any("power supply" in node["error"] for node in site.json("status")["nodes"])

    site.run_until(has_failed, "its return fails", 60, code=None)
    reset.write_text(works)
    rig.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
    site.dnm("reset", name)
    site.run_until(site.has_returned_nodes, "it is returned", 120)
    assert rig.queues_text() == QUEUES and rig.nodes() == {"k1", "k2"}
    site.assert_slurm_is_clean()


def test_node_replaced_since_the_snapshot_is_not_changed(
    rig: Rig, lab: SlurmLab, tmp_path: Path
) -> None:
    """The Node is deleted and created again between dnm's read and its first write. dnm does not
    change the new Node by the old plan; the next run uses it."""
    site = SlurmSite(rig, tmp_path / "site", KUBECONFIG, lab, reversion_idle_seconds=2)
    request_one_node(rig)
    rig.wait_for(lambda: rig.running("dev") > 0, "some pods fit into the queue")
    site.dnm("run")
    rig.wait_for(lambda: len(rig.ready_nodes()) == 3, "a node that is lent is Ready", 120)
    rig.wait_for(lambda: not any(map(is_at_work, notes_of(site))), "its converter ended", 60)
    (name,) = rig.nodes() - {"k1", "k2"}
    path = f"/api/v1/nodes/{name}"
    made: list[str] = []

    def make_anew(seen: Seen) -> None:
        if seen.path.partition("?")[0] == path and not made:
            old = rig.api.get(path)
            rig.api.ask("DELETE", path)
            rig.wait_for(lambda: name not in rig.nodes(), f"{name} is gone")
            kept = {key: old["metadata"][key] for key in ("name", "labels")}
            new = rig.api.post("/api/v1/nodes", {"metadata": kept, "status": old["status"]})
            made.append(new["metadata"]["uid"])

    with proxied(rig, KUBECONFIG, tmp_path) as proxy:
        proxy.before = make_anew
        site.use_kubeconfig(proxy.kubeconfig)
        message = site.dnm("run", code=None).stderr
    assert made and "is not the one that was read" in message, message
    assert not [seen for seen in proxy.writes if path in seen.path]
    assert rig.queue(DEV)["maxResource"] == with_nodes(0)
    site.use_kubeconfig(KUBECONFIG)
    site.run_until(lambda: rig.running("dev") == 12, "every pod runs", 120)
    assert rig.queue(DEV)["maxResource"] == with_nodes(1)
    rig.remove_pods("dev")
    site.run_until(site.has_returned_nodes, "it is returned", 120)
    assert rig.queues_text() == QUEUES
    site.assert_slurm_is_clean()


# --- evictions -----------------------------------------------------------------------------------


@pytest.fixture
def lent(rig: Rig, site: SlurmSite) -> Iterator[str]:
    """Yields a node that `node-convert` has lent and that is Ready."""
    answer = site.convert("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert answer.returncode == 0, answer.stderr
    node = answer.stdout.strip()
    rig.wait_for(lambda: node in rig.ready_nodes(), f"{node} is Ready")
    yield node
    rig.remove_guards()
    rig.remove_work()
    again = site.convert("--set", "batch", "--node-name", node)
    assert again.returncode == 0, again.stderr


def owned(rig: Rig, node: str, name: str, kind: str = "replicasets") -> Json:
    """Returns a pod on the node that a controller would create again after an eviction."""
    there = {"kubernetes.io/hostname": node}
    manifest = pod(name, DEV, "1", "1Gi", nodeSelector=there, labels={"tier": "any"})
    add_controller(rig, name, manifest, kind=kind)
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


def test_exhausted_budget_keeps_the_node(rig: Rig, site: SlurmSite, lent: str) -> None:
    """The API answers 429 to the eviction. The node keeps its pod and is uncordoned again."""
    owned(rig, lent, "web")
    budget(rig, "web", {"app": "web"})
    answer = site.convert("--set", "batch", "--node-name", lent)
    assert answer.returncode == 1 and "disruption budget" in answer.stderr, answer
    assert rig.running("dev") == 1
    assert not rig.api.get(f"/api/v1/nodes/{lent}")["spec"].get("unschedulable")


def test_pod_with_two_budgets_is_refused_with_its_own_sentence(
    rig: Rig, site: SlurmSite, lent: str
) -> None:
    """The API server answers 500, since it can never evict a pod with two budgets."""
    owned(rig, lent, "web")
    budget(rig, "first", {"app": "web"}, 0)
    budget(rig, "second", {"tier": "any"}, 0)
    answer = site.convert("--set", "batch", "--node-name", lent)
    assert answer.returncode == 1, answer
    assert "more than one PodDisruptionBudget" in answer.stderr, answer.stderr
    assert "remove one of them" in answer.stderr and "500" not in answer.stderr, answer.stderr
    assert rig.running("dev") == 1
    assert not rig.api.get(f"/api/v1/nodes/{lent}")["spec"].get("unschedulable")


def test_pod_with_a_finalizer_keeps_the_node_until_its_deletion(
    rig: Rig, site: SlurmSite, lent: str
) -> None:
    """A StatefulSet creates its pod again only when the old one is deleted completely."""
    name = owned(rig, lent, "slow", "statefulsets")["metadata"]["name"]
    path = f"/api/v1/namespaces/dev/pods/{name}"

    def remove_when_cordoned() -> None:
        """Removes the pod once the node is cordoned; else the next pod would start there."""
        node = f"/api/v1/nodes/{lent}"
        rig.wait_for(lambda: rig.api.get(node)["spec"].get("unschedulable"), "a cordon", 300)
        rig.remove_pods("dev")

    rig.servers["kwok"].send(signal.SIGSTOP)
    try:
        rig.api.patch(path, {"metadata": {"finalizers": ["example.org/backup"]}})
        answer = site.convert("--set", "batch", "--node-name", lent)
        assert answer.returncode == 1 and name in answer.stderr, answer
        assert rig.api.get(path)["metadata"]["deletionTimestamp"]
        assert lent in rig.nodes()
        # Its finalizer is removed while the next call waits, for as long as a busy machine needs.
        config = Path(site.environment["DNM_CONFIG"])
        text = config.read_text().replace(
            "drain_timeout_seconds = 8", "drain_timeout_seconds = 300"
        )
        config.write_text(text)
        removed = threading.Thread(target=remove_when_cordoned)
        removed.start()
        answer = site.convert("--set", "batch", "--node-name", lent)
        removed.join()
        assert answer.returncode == 0 and lent not in rig.nodes(), answer.stderr
    finally:
        rig.servers["kwok"].send(signal.SIGCONT)


def test_pod_that_never_ends_keeps_the_node(rig: Rig, site: SlurmSite, lent: str) -> None:
    """The evicted pod never ends. The converter names it and does not reset the node."""
    name = owned(rig, lent, "stuck")["metadata"]["name"]
    rig.servers["kwok"].send(signal.SIGSTOP)
    try:
        answer = site.convert("--set", "batch", "--node-name", lent)
    finally:
        rig.servers["kwok"].send(signal.SIGCONT)
    assert answer.returncode == 1 and name in answer.stderr, answer
    assert lent in rig.nodes()
    assert not [call for call in site.hook_calls if call.startswith("reset")]


def test_unhealthy_pod_is_evicted_although_its_budget_is_exhausted(
    rig: Rig, site: SlurmSite, lent: str
) -> None:
    """The budget has unhealthyPodEvictionPolicy AlwaysAllow. By default such a pod is kept."""
    results = owned(rig, lent, "sick")
    name = results["metadata"]["name"]
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
