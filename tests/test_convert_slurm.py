"""node-convert on a real Slurm, with the sandbox as Kubernetes and hooks that join and leave it."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dnm.convert.lab import SlurmLab
from dnm.convert.select import Verdict, judge_nodes
from dnm.convert.to_k8s import STAGES
from dnm.slurm_text import Reservation, SlurmNode
from tests.slurm_lab import NODES, SlurmSite, finished, make_site, needs_slurm

pytestmark = needs_slurm


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SlurmSite]:
    with make_site(tmp_path) as made:
        yield made


def test_every_verdict_with_the_state_really_produced(site: SlurmSite) -> None:
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
    lab.submit("-w", "a004", "--exclusive", "-t", "30", "--uid=nobody")
    mixed = lab.submit("-w", "a005", "-n1", "--mem=100", "--uid=nobody")
    (lab.directory / "hold-a006").touch()
    lab.submit("-w", "a006", "-n1", "--mem=100", script="true")
    lab.run("scontrol", "update", "nodename=a007", "state=down", "reason=fan")
    reserve("works", "a008", "now", "Flags=MAINT,IGNORE_JOBS")
    suspended = lab.submit("-w", "a009", "-n1", "--mem=100")
    lab.run("scontrol", "update", "nodename=a010", "state=fail", "reason=ecc")
    planned = lab.submit("-w", "a004,b001", "-N2", "--exclusive", "-t", "10")
    jobs = lab.client.read_jobs_on
    lab.wait_for(lambda: bool(jobs("a004") and jobs("a005") and jobs("a009")), 10)
    lab.run("scontrol", "suspend", suspended)
    lab.wait_for(lambda: lab.client.read_node("a006").state.text == "IDLE+COMPLETING", 10)
    lab.wait_for(lambda: "PLANNED" in lab.client.read_node("b001").state.flags, 15)
    lab.wait_for(lambda: "MAINTENANCE" in lab.client.read_node("a008").state.flags, 10)

    found = site.verdicts()
    assert found == {
        "a001": ("SKIP", "state flag DRAIN: bad State=IDLE disk"),
        "a002": ("SKIP", "reservation class"),
        "a003": ("SKIP", "reservation soon"),
        "a004": ("SKIP", f"planned for pending job {planned}"),
        "a005": ("SKIP", f"not idle (MIXED): job {mixed} of nobody"),
        "a006": ("SKIP", "a job is still completing"),
        "a007": ("SKIP", "not idle (DOWN): fan"),
        "a008": ("SKIP", "reservation works"),
        "a009": ("SKIP", f"not idle (IDLE): job {suspended} of root"),
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
    # The judgement of the conversion is the same: nothing but b002 can be had, and it is.
    for name in ("a001", "a002", "a003", "a004", "a006", "a009", "b001"):
        refused = site.run("--set", "k8s", "--node-name", name)
        assert refused.returncode == 1 and found[name][1] in refused.stderr, refused.stderr
    assert site.hook_calls == []


def is_running(lab: SlurmLab, job: str) -> bool:
    return lab.client.read_job(job).state == "RUNNING"


def foreign(lab: SlurmLab) -> tuple[list[SlurmNode], list[Reservation]]:
    """What administrators have put there, for a comparison before and after."""
    nodes = [node for node in lab.client.read_nodes() if node.reason.startswith("admin")]
    return (
        [(node.name, node.state.base, "DRAIN" in node.state.flags, node.reason) for node in nodes],  # type: ignore[misc]
        [one for one in lab.client.read_reservations() if one.name.startswith("admin")],
    )


def put_foreign_things(lab: SlurmLab) -> None:
    lab.run("scontrol", "update", "nodename=a010", "state=drain", "reason=admin: fans")
    lab.run(
        "scontrol", "create", "reservation", "ReservationName=admin-class", "Nodes=a009",
        "StartTime=now", "Duration=60", "Users=nobody",
    )  # fmt: skip


def test_a_node_is_lent_and_returned_with_jobs_before_and_after(site: SlurmSite) -> None:
    lab = site.lab
    put_foreign_things(lab)
    before = foreign(lab)
    staying = lab.submit("-w", "b001", "-n1", "--mem=100", "--uid=nobody")
    first = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=nobody", script="sleep 1")
    lab.wait_for(lambda: is_running(lab, first) and is_running(lab, staying), 10)
    refused = site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert refused.returncode == 1 and f"job {first}" in refused.stderr
    lab.wait_for(lambda: lab.client.read_job(first).state == "COMPLETED", 10)
    lab.wait_for(lambda: lab.client.read_node("a001").state.text == "IDLE", 10)

    lent = site.run("--set", "k8s", "--node-type", "a", "--num-nodes", "2", "--namespace", "dev")
    assert lent.returncode == 0, lent.stderr
    nodes = sorted(lent.stdout.split())
    assert len(nodes) == 2
    site.assert_lent(*nodes)
    waiting = lab.submit("-w", nodes[0], "-n1", "--mem=100", "--uid=nobody", script="true")

    by_hand = site.run("--set", "k8s", "--node-name", nodes[0], "--namespace", "dev")
    assert by_hand.returncode == 1 and "lent or being lent" in by_hand.stderr
    returned = site.run(
        "--set", "batch", "--node-type", "a", "--num-nodes", "2", "--output", "json"
    )
    assert returned.returncode == 0, returned.stderr
    document = json.loads(returned.stdout)
    assert document["schema"] == "node-convert.result/1"
    assert sorted((one["node"], one["result"]) for one in document["nodes"]) == [
        (node, "ok") for node in nodes
    ]
    assert [one["stage"] for one in document["nodes"][0]["stages"]] == [
        "check", "drain", "reset", "delete", "boot", "health", "return",
    ]  # fmt: skip
    site.assert_in_service(*nodes)
    lab.wait_for(lambda: lab.client.read_job(waiting).state == "COMPLETED", 15)

    resets = [call for call in site.hook_calls if call.startswith("reset")]
    again = site.run("--set", "batch", "--node-name", nodes[0])
    assert again.returncode == 0 and "in service" in again.stderr
    assert [call for call in site.hook_calls if call.startswith("reset")] == resets
    assert is_running(lab, staying)
    assert foreign(lab) == before


def test_nothing_is_done_to_nodes_of_others(site: SlurmSite) -> None:
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
        lab.wait_for(lambda: lab.client.read_node("a002").state.text == "IDLE", 10)
    assert site.kube_nodes == {"a010", "a002"}
    assert lab.client.read_node("a002").state.text == "IDLE"
    assert not [one for one in lab.client.read_reservations() if one.name.startswith("k8s")]
    assert foreign(lab) == before
    assert site.hook_calls == []


def test_a_job_between_select_and_claim_is_never_on_a_converted_node(site: SlurmSite) -> None:
    """50 races: the job is submitted after the node was judged OK, and the claim follows after a
    moment that differs each time. Whoever wins, the other one must have lost."""
    from dnm.convert.conversion import Control, Conversion, run_stages
    from dnm.convert.journal import Book, Direction, Journal, JournalStore, new_operation
    from dnm.convert.listing import read_facts
    from dnm.convert.settings import load_settings
    from dnm.convert.to_batch import undo_claim
    from dnm.errors import ConverterError

    lab = site.lab
    settings = load_settings({}, lab.environ | {"DNM_CONFIG": str(site.config)})
    store = JournalStore(site.directory / "state")
    chance = random.Random(11)
    pauses = {(node, turn): chance.uniform(0, 0.5) for node in NODES[:10] for turn in range(5)}
    outcomes: list[str] = []

    def race(node: str) -> None:
        for turn in range(5):
            lab.wait_for(lambda: lab.client.read_node(node).state.text == "IDLE", 20)
            facts = read_facts(lab.client)
            judged = {one.node.name: one for one in judge_nodes(facts, settings.rules())}
            assert judged[node].verdict is Verdict.OK, judged[node]
            job = lab.submit("-w", node, "-n1", "--mem=100", "--uid=nobody", script="sleep 0.3")
            time.sleep(pauses[node, turn])
            journal = Journal(
                node=node,
                operation=new_operation(),
                direction=Direction.K8S,
                instance="test",
                begun=facts.read_at,
            )
            conversion = Conversion(settings, Book(store, journal), Control(), lambda text: None)
            conversion.slurm = lab.client
            try:
                run_stages(conversion, STAGES[:2])
                assert not lab.client.read_jobs_on(node), f"{node} was taken with a job on it"
                assert lab.client.read_job(job).state in ("PENDING", "COMPLETED")
                outcomes.append("node")
            except ConverterError:
                outcomes.append("job")
            undo_claim(conversion)
            lab.wait_for(lambda job=job: lab.client.read_job(job).state == "COMPLETED", 20)  # type: ignore[misc]

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(race, NODES[:10]))
    print(f"races won by the node: {outcomes.count('node')}, by the job: {outcomes.count('job')}")
    assert len(outcomes) == 50
    assert set(outcomes) == {"node", "job"}
    assert not lab.client.read_reservations()


def test_two_converters_never_claim_one_node_twice(site: SlurmSite, tmp_path: Path) -> None:
    """Different instances and state directories, one reservation name: only Slurm keeps them
    apart."""
    other = SlurmSite(site.lab, site.sandbox, tmp_path / "other", instance="other")
    arguments = ("--set", "k8s", "--node-type", "a", "--num-nodes", "7", "--namespace", "dev")
    answers = [finished(one) for one in [made.start(*arguments) for made in (site, other)]]
    mine, others = (set(answer.stdout.split()) for answer in answers)
    assert len(mine | others) == 10 and not mine & others, [one.stderr for one in answers]
    joins = [call for made in (site, other) for call in made.hook_calls if "join" in call]
    assert sorted(joins) == sorted(f"join {node}" for node in NODES[:10])
    foreign_one = min(others)
    answer = site.run("--set", "batch", "--node-name", foreign_one)
    assert answer.returncode == 1 and "lent by instance 'other'" in answer.stderr
    assert foreign_one in site.kube_nodes
    returns = [
        (made, nodes, made.start("--set", "batch", "--node-type", "a", "--num-nodes", "10"))
        for made, nodes in ((site, mine), (other, others))
    ]
    for made, nodes, process in returns:
        assert set(finished(process).stdout.split()) == nodes, made.directory
    site.assert_in_service(*NODES[:10])


def test_a_preempted_job_runs_again(site: SlurmSite) -> None:
    """Claimed before the job is touched, TERM, requeue; and only what the site has named."""
    lab = site.lab
    allowed = {"PREEMPT_USER": "nobody", "PREEMPT_ACCOUNT": "fill", "PREEMPT_GRACE_SECONDS": "1"}
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=nobody", "-A", "fill")
    pinned = ("--mem=100", "--uid=nobody", "-A", "fill")
    fixed = lab.submit("-w", "a002", "-n1", "--no-requeue", *pinned)
    wide = lab.submit("-w", "a003,a004", "-N2", "-n2", *pinned)
    other = lab.submit("-w", "a005", "-n1", "--mem=100", "--uid=nobody", "-A", "paying")
    kept = (fixed, wide, other)
    lab.wait_for(lambda: all(is_running(lab, one) for one in (job, *kept)), 10)
    found = site.verdicts(**allowed)
    assert [found[f"a00{number}"][0] for number in range(1, 6)] == [
        "PREEMPT", "PREEMPT", "SKIP", "SKIP", "SKIP",
    ]  # fmt: skip
    assert "spans several nodes" in found["a003"][1]
    assert site.verdicts()["a001"][0] == "SKIP"  # nobody is named, so nobody may be preempted

    arguments = ("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    refused = site.run(*arguments, **allowed)
    assert refused.returncode == 1 and "--allow-preempt" in refused.stderr
    assert is_running(lab, job)
    for node in ("a002", "a003", "a005"):
        refused = site.run("--set", "k8s", "--node-name", node, "--allow-preempt", **allowed)
        assert refused.returncode == 1, refused.stderr
    assert all(is_running(lab, one) for one in kept)

    lent = site.run(*arguments, "--allow-preempt", **allowed)
    assert (lent.returncode, lent.stdout) == (0, "a001\n"), lent.stderr
    assert lent.stderr.index("a001: claim: begins") < lent.stderr.index("sends TERM to job")
    site.assert_lent("a001")
    requeued = lab.client.read_job(job)
    assert (requeued.state, requeued.restarts) == ("PENDING", 1)
    # Slurm would start it again two minutes after the requeue; the test does not wait for that.
    lab.run("scontrol", "update", f"jobid={job}", "ReqNodeList=a006", "StartTime=now")
    lab.wait_for(lambda: is_running(lab, job), 15)
    assert all(is_running(lab, one) for one in kept)
    returned = site.run("--set", "batch", "--node-name", "a001")
    assert returned.returncode == 0, returned.stderr


def test_slurmctld_goes_and_comes_back_in_the_middle(site: SlurmSite) -> None:
    lab = site.lab
    lending = site.start("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    lab.wait_for(lambda: "DRAIN" in lab.client.read_node("a001").state.flags, 10)
    lab.stop_controller()
    begun = time.monotonic()
    for arguments in (("--list",), ("--set", "k8s", "--node-name", "a002")):
        refused = site.run(*arguments)
        assert refused.returncode == 1
        assert "controller does not answer" in refused.stderr, refused.stderr
    assert time.monotonic() - begun < 20  # other commands of Slurm take ten seconds each
    lab.start_controller()
    answer = finished(lending)
    assert answer.returncode == 0, answer.stderr
    site.assert_lent("a001")

    returning = site.start("--set", "batch", "--node-name", "a001")
    lab.wait_for(lambda: "reset a001" in site.hook_calls, 10)
    lab.stop_controller()
    time.sleep(0.5)
    lab.start_controller()
    answer = finished(returning)
    assert answer.returncode == 0, answer.stderr
    site.assert_in_service("a001")


def test_a_crash_of_slurmctld_that_forgets_the_claim_is_noticed(site: SlurmSite) -> None:
    """Acknowledged is not durable: the second look, after Slurm has saved its state, finds out."""
    slow = SlurmSite(site.lab, site.sandbox, site.directory / "slow", verify_seconds=5)
    lab = site.lab
    time.sleep(5)  # Slurm has saved the state without a claim
    lending = slow.start("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    lab.wait_for(lambda: "DRAIN" in lab.client.read_node("a001").state.flags, 10)
    lab.stop_controller(signal.SIGKILL)
    lab.start_controller()
    answer = finished(lending)
    lab.wait_for(lambda: lab.client.read_node("a001").state.base == "IDLE", 10)
    if answer.returncode == 0:
        slow.assert_lent("a001")  # it had been saved after all
        assert slow.run("--set", "batch", "--node-name", "a001").returncode == 0
    else:
        assert "join a001" not in slow.hook_calls
    slow.assert_in_service("a001")


LEND_POINTS = (
    "convert.claim:before", "slurm.create_reservation:before", "slurm.create_reservation:after",
    "slurm.drain:after", "convert.claim:after", "convert.verify:after", "convert.reach:after",
    "hook.start:after", "hook.let_go:after:kill:2", "convert.prepare:after", "convert.join:after",
    "convert.ready:after",
)  # fmt: skip
RETURN_POINTS = (
    "convert.check:after", "kube.patch_node:after", "convert.drain:after", "hook.let_go:after",
    "convert.reset:after", "kube.delete_node:after", "convert.delete:after", "convert.boot:after",
    "convert.health:after", "slurm.resume:after", "slurm.delete_reservation:after",
    "convert.return:after",
)  # fmt: skip


def fault(point: str) -> str:
    return point if ":kill" in point else f"{point}:kill"


def test_killed_at_every_stage_it_ends_right_when_repeated(site: SlurmSite) -> None:
    """One node for each point, both directions; the second half of them is taken up by --resume."""
    lab = site.lab
    nodes = NODES
    assert len(LEND_POINTS) == len(RETURN_POINTS) == len(nodes)

    def kill_all(direction: str, points: tuple[str, ...]) -> None:
        processes = [
            site.start(
                "--set", direction, "--node-name", node, "--namespace", "dev",
                DNM_FAULT=fault(point),
            )
            for node, point in zip(nodes, points, strict=True)
        ]  # fmt: skip
        for process, node, point in zip(processes, nodes, points, strict=True):
            answer = finished(process)
            assert answer.returncode == -signal.SIGKILL, (node, point, answer.stderr)

    def repeat_all(direction: str) -> None:
        half = len(nodes) // 2
        processes = [
            site.start("--set", direction, "--node-name", node, "--namespace", "dev")
            for node in nodes[:half]
        ]
        processes += [site.start("--resume", "--node-name", node) for node in nodes[half:]]
        for process, node in zip(processes, nodes, strict=True):
            answer = finished(process)
            assert answer.returncode == 0, (node, answer.stderr)

    kill_all("k8s", LEND_POINTS)
    repeat_all("k8s")
    site.assert_lent(*nodes)
    assert site.kube_nodes == set(nodes)
    kill_all("batch", RETURN_POINTS)
    repeat_all("batch")
    site.assert_in_service(*nodes)
    assert site.kube_nodes == set()
    assert not lab.client.read_reservations()
    assert site.run("--resume").stderr == "nothing to resume\n"
