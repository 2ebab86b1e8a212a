"""Tests of node-convert on a real Slurm. Kubernetes is the sandbox, which nodes join and leave by
the lab's hooks."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dnm.converters.conversion import NodeConversion, Sides, StopRequest, run_stages
from dnm.converters.journal import Direction, Journal, JournalStore, JournalWriter, new_operation
from dnm.converters.listing import read_facts
from dnm.converters.select import ListVerdict, judge_nodes
from dnm.converters.settings import load_settings
from dnm.converters.slurm.text import Reservation
from dnm.converters.to_batch import undo_claim
from dnm.converters.to_k8s import STAGES
from dnm.model.errors import ConverterError
from tests.night import by_night, night
from tests.real_slurm import SlurmLab
from tests.second_writer import second_writer
from tests.slurm_lab import NODES, SlurmSite, finished, is_running, needs_slurm

pytestmark = needs_slurm


def test_array_task_is_requeued_alone(site: SlurmSite) -> None:
    """In Slurm, the last task's own job id is also that of the whole array."""
    lab = site.lab
    array = lab.submit("-a", "1-3", "--exclusive", "-n1", "--uid=games")

    def tasks() -> dict[str, str]:
        return {job.id: job.state for job in lab.client.read_jobs()}

    names = [f"{array}_{number}" for number in (1, 2, 3)]
    lab.wait_for(lambda: tasks() == dict.fromkeys(names, "RUNNING"))
    lab.client.requeue_job(names[2])
    lab.wait_for(lambda: tasks()[names[2]] != "RUNNING")
    assert [tasks()[name] for name in names[:2]] == ["RUNNING", "RUNNING"]
    assert lab.client.read_job(names[0]).is_requeueable
    lab.client.cancel_job(names[1])
    lab.wait_for(lambda: tasks().get(names[1], "COMPLETING") == "COMPLETING")
    assert tasks()[names[0]] == "RUNNING"


def test_account_text_cannot_forge_a_job(site: SlurmSite) -> None:
    lab = site.lab
    names = ("x|y|main|1|100", "x\n9|9|running|root|y", "x")  # slurmctld shortens them
    jobs = [lab.submit("-H", "-n1", "-A", name, "--uid=games") for name in names]
    document = {job.id: job for job in lab.client.read_jobs()}
    assert document.keys() == set(jobs)
    assert [document[job].account for job in jobs] == [
        "x?y?main?1?100",
        "x?9?9?running?root?y",
        "x",
    ]
    assert {(job.user, job.partitions, job.nodes) for job in document.values()} == {
        ("games", ("main",), ())
    }


def test_each_real_node_state_has_its_verdict(site: SlurmSite) -> None:
    lab = site.lab

    def reserve(name: str, node: str, start: str, *more: str) -> None:
        lab.run(
            "scontrol", "create", "reservation", f"ReservationName={name}", f"Nodes={node}",
            f"StartTime={start}", "Duration=60", "Users=root", *more,
        )  # fmt: skip

    lab.run("scontrol", "update", "nodename=a001", "state=drain", "reason=bad State=IDLE disk")
    reserve("class", "a002", "now")
    reserve("soon", "a003", "now+1hour")
    reserve("later", "b002", "now+3days")
    lab.submit("-w", "a004", "--exclusive", "-t", "30", "--uid=games")
    mixed = lab.submit("-w", "a005", "-n1", "--mem=100", "--uid=games")
    (lab.directory / "hold-a006").touch()
    lab.submit("-w", "a006", "-n1", "--mem=100", script="true")
    lab.run("scontrol", "update", "nodename=a007", "state=down", "reason=fan")
    reserve("works", "a008", "now", "Flags=MAINT,IGNORE_JOBS")
    suspended = lab.submit("-w", "a009", "-n1", "--mem=100")
    lab.run("scontrol", "update", "nodename=a010", "state=fail", "reason=ecc")
    planned = lab.submit("-w", "a004,b001", "-N2", "--exclusive", "-t", "10")
    jobs = lab.client.read_jobs_on
    lab.wait_for(lambda: bool(jobs("a004") and jobs("a005") and jobs("a009")))
    lab.run("scontrol", "suspend", suspended)
    lab.wait_for(lambda: lab.client.read_node("a006").state.text == "IDLE+COMPLETING")
    lab.wait_for(lambda: "PLANNED" in lab.client.read_node("b001").state.flags)
    lab.wait_for(lambda: "MAINTENANCE" in lab.client.read_node("a008").state.flags)

    results = site.verdicts()
    assert results == {
        "a001": ("SKIP", "state flag DRAIN: bad State=IDLE disk"),
        "a002": ("SKIP", "reservation class"),
        "a003": ("SKIP", "reservation soon"),
        "a004": ("SKIP", f"planned for pending job {planned}"),
        "a005": ("SKIP", f"not idle (MIXED): job {mixed} of games"),
        "a006": ("SKIP", "a job is still completing"),
        "a007": ("SKIP", "not idle (DOWN): fan"),
        "a008": ("SKIP", "reservation works"),
        # Before 23.11 a suspended job does not show in the state of its node.
        "a009": (
            "SKIP",
            f"not idle ({'MIXED' if lab.version >= (23, 11) else 'IDLE'}): job {suspended} of root",
        ),
        "a010": ("SKIP", "state flag FAIL: ecc"),
        "b001": ("SKIP", f"planned for pending job {planned}"),
        "b002": ("OK", "-"),
    }
    assert site.verdicts("--node-name", "b002", RES_LOOKAHEAD_SECONDS="864000") == {
        "b002": ("SKIP", "reservation later")
    }
    verdict, reason = site.verdicts("--node-name", "b002", MIN_IDLE_SECONDS="86400")["b002"]
    assert verdict == "SKIP" and reason.startswith("idle only "), reason
    assert site.verdicts("--node-type", "b", PROTECT_LARGEST_PENDING="1")["b002"] == (
        "SKIP",
        f"pending job {planned} needs 2 nodes",
    )
    # The conversion's check agrees: only b002 is available, and it is lent.
    for name in ("a001", "a002", "a003", "a004", "a006", "a009", "b001"):
        refused = site.run("--set", "k8s", "--node-name", name)
        assert refused.returncode == 1 and results[name][1] in refused.stderr, refused.stderr
    assert site.hook_calls == []


def foreign(lab: SlurmLab) -> tuple[list[tuple[object, ...]], list[Reservation]]:
    """Returns drains and reservations of administrators, to compare them before and after."""
    nodes = [node for node in lab.client.read_nodes() if node.reason.startswith("admin")]
    return (
        [(node.name, node.state.base, "DRAIN" in node.state.flags, node.reason) for node in nodes],
        [
            reservation
            for reservation in lab.client.read_reservations()
            if reservation.name.startswith("admin")
        ],
    )


def put_foreign_things(lab: SlurmLab) -> None:
    lab.run("scontrol", "update", "nodename=a010", "state=drain", "reason=admin: fans")
    lab.run(
        "scontrol", "create", "reservation", "ReservationName=admin-class", "Nodes=a009",
        "StartTime=now", "Duration=60", "Users=games",
    )  # fmt: skip


def test_node_is_lent_and_returned_with_jobs_before_and_after(site: SlurmSite) -> None:
    lab = site.lab
    put_foreign_things(lab)
    before = foreign(lab)
    until_told = f"while ! [ -e {lab.directory}/end-first ]; do sleep 0.1; done"
    staying = lab.submit("-w", "b001", "-n1", "--mem=100", "--uid=games")
    first = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=games", script=until_told)
    lab.wait_for(lambda: is_running(lab, first) and is_running(lab, staying))
    refused = site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert refused.returncode == 1 and f"job {first}" in refused.stderr
    (lab.directory / "end-first").touch()
    lab.wait_for(lambda: lab.client.read_job(first).state == "COMPLETED")
    lab.wait_for(lambda: lab.client.read_node("a001").state.text == "IDLE")

    lent = site.run("--set", "k8s", "--node-type", "a", "--num-nodes", "2", "--namespace", "dev")
    assert lent.returncode == 0, lent.stderr
    nodes = sorted(lent.stdout.split())
    assert len(nodes) == 2
    site.assert_lent(*nodes)
    waiting = lab.submit("-w", nodes[0], "-n1", "--mem=100", "--uid=games", script="true")

    done = site.run("--set", "k8s", "--node-name", nodes[0], "--namespace", "dev")
    assert done.returncode == 1 and "lent or being lent" in done.stderr
    returned = site.run(
        "--set", "batch", "--node-type", "a", "--num-nodes", "2", "--output", "json"
    )
    assert returned.returncode == 0, returned.stderr
    document = json.loads(returned.stdout)
    assert document["schema"] == "node-convert.result/1"
    assert sorted((node["node"], node["result"]) for node in document["nodes"]) == [
        (node, "ok") for node in nodes
    ]
    assert [stage["stage"] for stage in document["nodes"][0]["stages"]] == [
        "check", "drain", "reset", "delete", "boot", "health", "return",
    ]  # fmt: skip
    site.assert_in_service(*nodes)
    lab.wait_for(lambda: lab.client.read_job(waiting).state == "COMPLETED")

    resets = [call for call in site.hook_calls if call.startswith("reset")]
    again = site.run("--set", "batch", "--node-name", nodes[0])
    assert again.returncode == 0 and "in service" in again.stderr
    assert [call for call in site.hook_calls if call.startswith("reset")] == resets
    assert is_running(lab, staying)
    assert foreign(lab) == before


def test_nodes_of_other_owners_are_not_touched(site: SlurmSite) -> None:
    lab = site.lab
    put_foreign_things(lab)
    before = foreign(lab)
    for node in ("a009", "a010", "a001"):
        answer = site.run("--set", "batch", "--node-name", node)
        assert answer.returncode == 0 and "skipped" in answer.stderr, answer.stderr
    site.sandbox.add_node("a010", cpu="8", memory="16Gi")
    answer = site.run("--set", "batch", "--node-name", "a010")
    assert answer.returncode == 1 and "is not lent by 'test'" in answer.stderr
    assert site.kube_nodes == {"a010"}
    site.sandbox.add_node("a002", cpu="8", memory="16Gi")
    for direction in ("k8s", "batch"):
        answer = site.run("--set", direction, "--node-name", "a002")
        assert answer.returncode == 1 and "Kubernetes has" in answer.stderr, answer.stderr
        lab.wait_for(lambda: lab.client.read_node("a002").state.text == "IDLE")
    assert site.kube_nodes == {"a010", "a002"}
    assert lab.client.read_node("a002").state.text == "IDLE"
    assert not [
        reservation
        for reservation in lab.client.read_reservations()
        if reservation.name.startswith("k8s")
    ]
    assert foreign(lab) == before
    assert site.hook_calls == []


@pytest.mark.parametrize("turns", by_night(2, 5))
def test_job_between_selection_and_claim_is_safe(site: SlurmSite, turns: int) -> None:
    """On ten nodes at once, a job is submitted after dnm found the node free, and dnm claims the
    node after a pause that differs each time. Exactly one of job and claim may get the node. The
    last job of each node surely runs before the claim, and the first job of two nodes has surely
    ended, so that both outcomes occur on any machine."""
    lab = site.lab
    settings = load_settings({}, lab.environ | {"DNM_CONFIG": str(site.config)})
    store = JournalStore(site.directory / "state")
    chance = random.Random(11)
    pauses = {(node, turn): chance.uniform(0, 0.5) for node in NODES[:10] for turn in range(turns)}
    outcomes: list[str] = []

    def has_begun(job: str) -> bool:
        return lab.client.read_job(job).state != "PENDING"

    def has_completed(job: str) -> bool:
        return lab.client.read_job(job).state == "COMPLETED"

    def race(node: str) -> None:
        for turn in range(turns):
            lab.wait_for(lambda: lab.client.read_node(node).state.text == "IDLE")
            facts = read_facts(lab.client)
            judged = {entry.node.name: entry for entry in judge_nodes(facts, settings)}
            assert judged[node].verdict is ListVerdict.OK, judged[node]
            is_late = turn == turns - 1
            script = "sleep 3" if is_late else "sleep 0.3"
            job = lab.submit("-w", node, "-n1", "--mem=100", "--uid=games", script=script)
            time.sleep(pauses[node, turn])
            if is_late:
                lab.wait_for(partial(has_begun, job))
            elif turn == 0 and node in NODES[:2]:
                lab.wait_for(partial(has_completed, job))
                lab.wait_for(lambda: lab.client.read_node(node).state.text == "IDLE")
            journal = Journal(
                node=node,
                operation=new_operation(),
                direction=Direction.K8S,
                instance="test",
                begun=facts.read_at,
            )
            conversion = NodeConversion(
                settings,
                JournalWriter(store, journal),
                StopRequest(),
                lambda text: None,
                Sides(slurm=lambda _: lab.client),
            )
            try:
                run_stages(conversion, STAGES[:2])
                assert not lab.client.read_jobs_on(node), f"{node} was taken with a job on it"
                assert lab.client.read_job(job).state in ("PENDING", "COMPLETED")
                outcomes.append("node")
            except ConverterError:
                outcomes.append("job")
            undo_claim(conversion)
            lab.wait_for(partial(has_completed, job))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(race, NODES[:10]))
    print(f"races won by the node: {outcomes.count('node')}, by the job: {outcomes.count('job')}")
    assert len(outcomes) == 10 * turns
    assert set(outcomes) == {"node", "job"}
    assert not lab.client.read_reservations()


def test_two_converters_never_claim_one_node_twice(site: SlurmSite, tmp_path: Path) -> None:
    """The converters have different instances and state directories, and use one reservation name.
    Only Slurm prevents a double claim."""
    other = SlurmSite(site.lab, site.sandbox, tmp_path / "other", instance="other")
    arguments = ("--set", "k8s", "--node-type", "a", "--num-nodes", "7", "--namespace", "dev")
    answers = [child.wait() for child in [made.begin(*arguments) for made in (site, other)]]
    mine, remaining = (set(answer.out.split()) for answer in answers)
    assert len(mine | remaining) == 10 and not mine & remaining, [answer.err for answer in answers]
    joins = [call for made in (site, other) for call in made.hook_calls if "join" in call]
    assert sorted(joins) == sorted(f"join {node}" for node in NODES[:10])
    foreign_one = min(remaining)
    answer = site.run("--set", "batch", "--node-name", foreign_one)
    assert answer.returncode == 1 and "lent by instance 'other'" in answer.stderr
    assert foreign_one in site.kube_nodes
    returns = [
        (made, nodes, made.begin("--set", "batch", "--node-type", "a", "--num-nodes", "10"))
        for made, nodes in ((site, mine), (other, remaining))
    ]
    for made, nodes, process in returns:
        assert set(process.wait().out.split()) == nodes, made.directory
    site.assert_in_service(*NODES[:10])


@night
def test_leftover_reason_is_no_mark(site: SlurmSite, tmp_path: Path) -> None:
    """Slurm 23.11 to 25.11 without slurmdbd keeps the Reason of a lifted drain; the installed one
    does not (test_reasons.py)."""
    other = SlurmSite(site.lab, site.sandbox, tmp_path / "other", instance="other")
    for made, node in ((site, "a001"), (other, "a002")):
        for direction in ("k8s", "batch"):
            answer = made.run("--set", direction, "--node-name", node, "--namespace", "dev")
            assert answer.returncode == 0, answer.stderr
    used = [site.lab.client.read_node(name) for name in ("a001", "a002")]
    kept = {node.name for node in used if node.reason}
    assert kept == ({"a001", "a002"} if (23, 11) <= site.lab.version < (26, 5) else set())
    assert site.run("--set", "k8s", "--node-name", "a003", "--namespace", "dev").returncode == 0
    arguments = ("--set", "batch", "--node-type", "a", "--num-nodes")
    answer = site.run(*arguments, "1")
    assert (answer.returncode, answer.stdout) == (0, "a003\n"), answer.stderr
    nothing_left = site.run(*arguments, "1")
    assert "no node of type a is lent" in nothing_left.stderr, nothing_left.stderr
    in_service = site.run("--set", "batch", "--node-name", "a002")
    assert in_service.returncode == 0 and "in service" in in_service.stderr, in_service.stderr


def lend_like_the_predecessor(site: SlurmSite, nodes: Sequence[str]) -> None:
    """Lends nodes as the predecessor's script did: one reservation, one Reason for each drain."""
    lab = site.lab
    for node in nodes:
        lab.run(
            "scontrol", "update", f"nodename={node}", "state=drain",
            "reason=batch node selected for k8s conversion",
        )  # fmt: skip
        lab.stop_slurmd(node)
        site.sandbox.add_node(node, cpu="8", memory="16Gi")
    lab.run(
        "scontrol", "create", "reservation", "ReservationName=k8s", f"Nodes={','.join(nodes)}",
        "StartTime=now", "Duration=INFINITE", "Users=root", "Flags=IGNORE_JOBS",
    )  # fmt: skip


def test_two_hosts_split_the_shared_reservation(site: SlurmSite, tmp_path: Path) -> None:
    """The hosts share no state directory. Only a lock in Slurm makes them take turns."""
    other = SlurmSite(site.lab, site.sandbox, tmp_path / "other")
    nodes = NODES[:4]
    lend_like_the_predecessor(site, nodes)
    processes = [
        made.begin("--set", "batch", "--node-name", node)
        for node, made in zip(nodes, [site, other] * 2, strict=True)
    ]
    answers = [process.wait() for process in processes]
    assert [answer.code for answer in answers] == [0] * 4, [answer.err for answer in answers]
    site.assert_in_service(*nodes)
    assert not site.lab.client.read_reservations()


@night
def test_abandoned_turn_ends_after_a_minute(site: SlurmSite, tmp_path: Path) -> None:
    """A conversion was killed while it held the lock for splitting the shared reservation."""
    lab = site.lab
    lend_like_the_predecessor(site, ("a001", "a002"))
    other = SlurmSite(lab, site.sandbox, tmp_path / "other")
    arguments = ("--set", "batch", "--node-name")
    killed = site.run(*arguments, "a001", DNM_FAULT="slurm.update_reservation:before:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any(reservation.name == "k8s_turn" for reservation in lab.client.read_reservations())
    for made, node in ((other, "a002"), (site, "a001")):
        answer = made.run(*arguments, node)
        assert answer.returncode == 0, answer.stderr
    site.assert_in_service("a001", "a002")
    assert not lab.client.read_reservations()


def test_shared_reservation_of_the_predecessor_is_emptied_by_node(
    site: SlurmSite,
) -> None:
    """Slurm before 23.02 can't remove one node from a reservation, so dnm splits it."""
    lab = site.lab
    nodes = ("a001", "a002", "a003")
    lend_like_the_predecessor(site, nodes)
    assert site.verdicts("--node-name", "a002")["a002"] == (
        "SKIP",
        "lent or being lent (reservation k8s)",
    )
    for position, node in enumerate(nodes, 1):
        answer = site.run("--set", "batch", "--node-name", node)
        assert answer.returncode == 0, answer.stderr
        site.assert_in_service(node)
        left = nodes[position:]
        reservations = lab.client.read_reservations()
        assert sorted(name for reservation in reservations for name in reservation.nodes) == list(
            left
        )
        shared = ["k8s"] if left else []
        split = [f"k8s-{other}" for other in left]
        can_leave = lab.version >= (23, 2)
        assert sorted(reservation.name for reservation in reservations) == (
            shared if can_leave else split
        )
        assert site.kube_nodes == set(left)
        for other in left:
            assert "DRAIN" in lab.client.read_node(other).state.flags


def test_pods_are_evicted_and_not_deleted_without_force(site: SlurmSite) -> None:
    sandbox = site.sandbox
    lent = site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert lent.returncode == 0, lent.stderr
    sandbox.add_namespace("dev")

    def pod(name: str, owner: str) -> None:
        version, _, kind = owner.rpartition(" ")
        owners = [{"apiVersion": version, "kind": kind, "name": "x", "uid": "u",
                   "controller": True}]  # fmt: skip
        sandbox.create(
            {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "dev", "labels": {"app": name},
                             "ownerReferences": owners if owner else []},
                "spec": {"nodeName": "a001", "containers": [{"name": "c", "image": "i"}]},
            }
        )  # fmt: skip

    pod("daemon", "apps/v1 DaemonSet")
    # This machine maps it to another node of Slurm.
    pod("slurmd", "slinky.slurm.net/v1beta1 NodeSet")
    arguments = ("--set", "batch", "--node-name", "a001")
    for words in (arguments, (*arguments, "--force")):
        refused = site.run(*words)
        assert refused.returncode == 1 and "pod dev/slurmd of a NodeSet" in refused.stderr
    sandbox.delete("pods", "slurmd", "dev")

    pod("alone", "")
    refused = site.run(*arguments)
    assert refused.returncode == 1 and "pod dev/alone" in refused.stderr
    node = sandbox.get("nodes", "a001")
    assert node is not None and not node["spec"].get("unschedulable")
    assert "reset a001" not in site.hook_calls
    sandbox.delete("pods", "alone", "dev")

    pod("served", "apps/v1 StatefulSet")
    sandbox.create(
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "dev"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "served"}}},
        }
    )  # fmt: skip
    hasty = site.config.with_name("hasty.ini")
    hasty.write_text(site.config.read_text().replace("[lab]", "[lab]\ndrain_timeout_seconds = 2"))
    refused = site.run(*arguments, "--force", DNM_CONFIG=str(hasty))
    assert refused.returncode == 1 and "disruption budget" in refused.stderr
    assert "reset a001" not in site.hook_calls
    returning = site.start("--resume")
    assert returning.stderr is not None
    events = ""
    for line in returning.stderr:
        events += line
        if "disruption budget" in line:
            break
    assert "disruption budget" in events
    assert sandbox.get("pods", "served", "dev") is not None
    sandbox.delete("poddisruptionbudgets", "keep", "dev")
    answer = finished(returning)
    assert answer.returncode == 0, events + answer.stderr
    site.assert_in_service("a001")


def test_node_that_another_client_writes_is_lent_and_returned(site: SlurmSite) -> None:
    with second_writer(site.sandbox):
        lent = site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
        assert lent.returncode == 0, lent.stderr
        site.assert_lent("a001")
        back = site.run("--set", "batch", "--node-name", "a001")
        assert back.returncode == 0, back.stderr
    site.assert_in_service("a001")
