"""Tests of bridge-convert beside a controller that acts like slurm-bridge, on a real Slurm.

dnm is the command with its own account, and the converter the shipped program. No job is lost: job
and pod stay on their node until the test ends them. DNM_PROOF_ROUNDS=50 plays fifty rounds of
random jobs; by default two."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.converters.bridge_world import LABEL as EXTERNAL
from tests.converters.bridge_world import PARTITIONS, TAKEN
from tests.real.cluster import QUEUES
from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.second_writer import SecondWriter
from tests.real.site import PODS, add_pods
from tests.real.slurm_bridge import (
    BRIDGED_PODS,
    JOB,
    MANAGED,
    NAMESPACE,
    SCHEDULER,
    Bridge,
    BridgedSlurm,
)
from tests.real.slurm_site import StandingSite
from tests.slurm_lab import end_with_us, is_running

ROUNDS = int(os.environ.get("DNM_PROOF_ROUNDS", "2"))
BARE = "s001"  # the node of Slurm that slurm-bridge does not manage
NAMES = ("a001", "a002", "a003", "a004")
AT_ONCE = 3  # jobs of a round: at least one node is idle until nodes are lent


@pytest.fixture(scope="module")
def slurm() -> Iterator[BridgedSlurm]:
    directory = Path(tempfile.mkdtemp(prefix="dnm-bridge-"))
    slurm = BridgedSlurm(directory, (BARE,))
    end = end_with_us(directory)
    try:
        slurm.start()
        yield slurm
    finally:
        end()


@pytest.fixture
def bridge(rig: Rig, slurm: BridgedSlurm) -> Iterator[Bridge]:
    with at_work(rig, slurm, Bridge) as bridge:
        yield bridge


@contextmanager
def at_work(rig: Rig, slurm: BridgedSlurm, kind: type[Bridge]) -> Iterator[Bridge]:
    """Yields a running slurm-bridge controller, with all machines idle in Slurm."""
    rig.note_versions({"Slurm": slurm.release})
    rig.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    metadata = {"labels": {EXTERNAL: "yes"}, "annotations": {PARTITIONS: "b,c"}}
    for name in NAMES:
        rig.add_node(name, cpu=128)
        rig.api.patch(f"/api/v1/nodes/{name}", {"metadata": metadata})
    rig.wait_for(lambda: rig.ready_nodes() >= set(NAMES), "the machines are Ready")
    try:
        with kind(rig, slurm) as bridge:
            rig.wait_for(
                lambda: all(MANAGED in taints(rig, name) for name in NAMES),
                "slurm-bridge has all machines",
            )
            with SecondWriter(rig, NAMES):
                yield bridge
    finally:
        rig.remove_pods(NAMESPACE)
        slurm.forget_external()


@pytest.fixture
def site(rig: Rig, slurm: BridgedSlurm, bridge: Bridge, tmp_path: Path) -> StandingSite:
    return StandingSite(
        rig, tmp_path / "site", slurm, "bridge-convert", max_converted_nodes=len(NAMES)
    )


def node_of(rig: Rig, name: str) -> Json:
    results: Json = rig.api.get(f"/api/v1/nodes/{name}")
    return results


def taints(rig: Rig, name: str) -> list[Json]:
    rows: list[Json] = node_of(rig, name)["spec"].get("taints", [])
    return rows


def assert_open(rig: Rig, slurm: BridgedSlurm, name: str) -> None:
    """Checks that only the namespace has the node, and that Slurm has no record of it."""
    node = node_of(rig, name)
    assert node["metadata"]["labels"]["dev"] == "true" and not node["spec"].get("taints"), node
    assert not node["spec"].get("unschedulable") and EXTERNAL not in node["metadata"]["labels"]
    assert name not in slurm.nodes_now()


def assert_back(rig: Rig, slurm: BridgedSlurm, name: str) -> None:
    """Checks that slurm-bridge has the node again, and that no side has anything of dnm."""
    node, record = node_of(rig, name), slurm.nodes_now()[name]
    assert node["metadata"]["labels"][EXTERNAL] == "yes", node
    assert "dev" not in node["metadata"]["labels"], node
    annotations = node["metadata"]["annotations"]
    assert annotations[PARTITIONS] == "b,c" and TAKEN not in annotations, node
    assert not [
        annotation for annotation in annotations if annotation.startswith("dynamic-node-manager/")
    ], node
    assert node["spec"]["taints"] == [MANAGED] and not node["spec"].get("unschedulable"), node
    assert "EXTERNAL" in record["state"] and "DRAIN" not in record["state"], record
    assert record["features"] == ["b", "c"], record
    assert not record["comment"] and not record["extra"], record
    assert not [entry for entry in slurm.read("reservations") if entry["node_list"] == name]


class Work:
    """Pods that Slurm schedules. `lost` describes each pod that did not run to its end."""

    def __init__(self, rig: Rig, bridge: Bridge) -> None:
        self.api, self.slurm, self.bridge = rig.api, bridge.slurm, bridge
        self.begun: dict[str, str] = {}  # pod -> its uid
        self.nodes: dict[str, str] = {}  # pod -> the node of its job
        self.lost: list[str] = []
        self.count = 0

    def begin(self) -> str:
        self.count += 1
        name = f"job-{self.count}"
        spec = {
            "schedulerName": SCHEDULER, "containers": [{"name": "main", "image": "none"}],
            "tolerations": [{"key": MANAGED["key"], "operator": "Exists"}],
        }  # fmt: skip
        made = self.api.post(BRIDGED_PODS, {"metadata": {"name": name}, "spec": spec})
        self.begun[name] = made["metadata"]["uid"]
        return name

    def end(self, name: str) -> None:
        """Ends a pod, and with it the job."""
        self.check_pods()
        del self.begun[name]
        self.nodes.pop(name, None)
        self.bridge.end(name)

    def check_pods(self) -> dict[str, str]:
        """Records lost pods. Returns pod -> the node on which it runs."""
        pods = {item["metadata"]["name"]: item for item in self.api.get(BRIDGED_PODS)["items"]}
        jobs = self.slurm.jobs_now()  # after the pods, since a job runs before its pod has a node
        for name, uid in self.begun.items():
            text = _describe_loss(pods.get(name), uid, self.nodes.get(name), jobs)
            if text:
                self.lost.append(f"{name}: {text}")
            elif node := pods[name]["spec"].get("nodeName"):
                self.nodes[name] = node
        return self.nodes


def _describe_loss(pod: Json | None, uid: str, known: str | None, jobs: dict[str, Json]) -> str:
    if pod is None or pod["metadata"]["uid"] != uid or "deletionTimestamp" in pod["metadata"]:
        return "its pod is gone"
    node = pod["spec"].get("nodeName")
    if node is None:
        return ""
    job = jobs[pod["metadata"]["labels"][JOB]]
    if job["job_state"] != ["RUNNING"] or job["restart_cnt"]:
        return f"its job is {job['job_state']}, and was started again {job['restart_cnt']} times"
    if not node == job["nodes"] == (known or node):
        return f"it was on {known}, is on {node}, and its job on {job['nodes']}"
    return ""


def people(rig: Rig, count: int) -> dict[str, str]:
    """Adds pods of a workshop; returns name -> uid. 25 fit into the queue, and 16 on a node."""
    return {
        add_pod["metadata"]["name"]: add_pod["metadata"]["uid"] for add_pod in add_pods(rig, count)
    }


def uids(rig: Rig) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in rig.pods("dev")}


def test_workshop_beside_slurm_bridge_loses_no_job(
    rig: Rig, slurm: BridgedSlurm, bridge: Bridge, site: StandingSite
) -> None:
    """Two of four machines are lent. A job runs on a third one, and one on Slurm's own machine."""
    own = slurm.submit("-w", BARE, "-p", "main", "-n1", script="sleep 3000")
    slurm.wait_for(lambda: is_running(slurm, own), 60)
    work = Work(rig, bridge)
    job = work.begin()
    rig.wait_for(work.check_pods, "the job runs")
    made = people(rig, 50)
    site.run_until(lambda: rig.running("dev") == 50, "every pod of the workshop runs", 120)
    lent = site.lent
    assert len(lent) == 2 and work.nodes[job] not in lent
    for name in lent:
        assert_open(rig, slurm, name)
    assert uids(rig) == made, "no pod of the workshop was evicted"
    rig.api.ask("DELETE", PODS)
    site.run_until(lambda: not site.lent, "every node is returned", 120)
    assert rig.queues_text() == QUEUES
    for name in NAMES:
        assert_back(rig, slurm, name)
    assert list(work.check_pods()) == [job] and not work.lost and not bridge.ended
    assert is_running(slurm, own)
    assert all("Requested nodes are busy" in name for name in bridge.refused), bridge.refused


@contextmanager
def random_jobs(work: Work, chance: random.Random) -> Iterator[None]:
    """Starts and ends jobs until the block ends; then checks that none was lost."""
    ended = threading.Event()
    failed: list[BaseException] = []
    until: dict[str, float] = {}

    def step() -> None:
        if len(work.begun) < AT_ONCE and not ended.is_set() and chance.random() < 0.4:
            work.begin()
        for name in list(work.check_pods()):
            if time.monotonic() > until.setdefault(name, time.monotonic() + chance.uniform(2, 12)):
                work.end(name)

    def run() -> None:
        try:
            while work.begun or not ended.is_set():
                step()
                time.sleep(0.5)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(120)
        assert not thread.is_alive() and not failed, (work.begun, failed)


def test_no_job_is_lost_while_new_jobs_arrive(
    rig: Rig, slurm: BridgedSlurm, bridge: Bridge, site: StandingSite
) -> None:
    work, lent = Work(rig, bridge), 0
    for number in range(ROUNDS):
        chance = random.Random(number)
        with random_jobs(work, chance):
            time.sleep(chance.uniform(0, 4))
            made = people(rig, count := chance.choice((30, 40, 50)))
            runs = site.run_until(
                lambda: rig.running("dev") == count, "every pod runs", 120, code=None
            )
            # If a job starts on a chosen node before its reservation, dnm takes others.
            errors = [line for run in runs for line in run.stderr.splitlines() if line]
            assert all("error: action=convert" in line for line in errors), errors
            names = site.lent
            assert uids(rig) == made, "no pod of the workshop was evicted"
            for name in names:
                assert_open(rig, slurm, name)
            rig.api.ask("DELETE", PODS)
            site.run_until(lambda: not site.lent, "every node is returned", 120)
        lent += len(names)
        assert not work.lost and not bridge.ended, (work.lost, bridge.ended)
        assert rig.queues_text() == QUEUES
        for name in NAMES:
            assert_back(rig, slurm, name)
        print(
            f"rounds: {number + 1}; jobs: {work.count}, none lost; nodes lent: {lent}", flush=True
        )


def test_bridged_node_is_lent_and_returned_manually(
    rig: Rig, slurm: BridgedSlurm, bridge: Bridge, site: StandingSite
) -> None:
    """bridge-convert refuses a node with a job, and a return while a partition is missing."""
    work = Work(rig, bridge)
    job = work.begin()
    rig.wait_for(work.check_pods, "the job runs")
    busy = work.nodes[job]
    free = next(name for name in NAMES if name != busy)
    lend = ("--set", "k8s", "--namespace", "dev", "--node-name")
    answer = site.convert(*lend, busy)
    assert answer.returncode == 1 and f"job {job_id(rig, job)} of root" in answer.stderr, answer
    answer = site.convert(*lend, free)
    assert answer.returncode == 0 and answer.stdout == f"{free}\n", answer
    assert_open(rig, slurm, free)
    slurm.run("scontrol", "delete", "PartitionName=c")
    answer = site.convert("--set", "batch", "--node-name", free)
    assert answer.returncode == 1 and "Slurm has no partition c, which" in answer.stderr, answer
    assert_open(rig, slurm, free)
    slurm.run("scontrol", "create", "PartitionName=c", "Nodes=c")
    answer = site.convert("--set", "batch", "--node-name", free)
    assert answer.returncode == 0, answer
    assert_back(rig, slurm, free)
    assert list(work.check_pods()) == [job] and not work.lost and not bridge.ended


def job_id(rig: Rig, name: str) -> str:
    return str(rig.api.get(f"{BRIDGED_PODS}/{name}")["metadata"]["labels"][JOB])
