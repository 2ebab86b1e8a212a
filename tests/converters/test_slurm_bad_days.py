"""Tests of node-convert on a real Slurm with failures: kills, restarts, errors, preemption."""

from __future__ import annotations

import json
import shutil
import signal
import time
from functools import reduce
from pathlib import Path

import pytest

from tests.night import by_night
from tests.real_slurm_hooks import write_lab_hooks
from tests.slurm_lab import NODES, SlurmSite, finished, is_running, needs_slurm

pytestmark = needs_slurm


def test_preempted_job_runs_again(site: SlurmSite) -> None:
    """dnm claims the node before it ends and requeues the job. It preempts only jobs of the user
    and account that the site configures."""
    lab = site.lab
    allowed = {"PREEMPT_USER": "games", "PREEMPT_ACCOUNT": "fill", "PREEMPT_GRACE_SECONDS": "1"}
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=games", "-A", "fill")
    pinned = ("--mem=100", "--uid=games", "-A", "fill")
    fixed = lab.submit("-w", "a002", "-n1", "--no-requeue", *pinned)
    wide = lab.submit("-w", "a003,a004", "-N2", "-n2", *pinned)
    other = lab.submit("-w", "a005", "-n1", "--mem=100", "--uid=games", "-A", "paying")
    kept = (fixed, wide, other)
    lab.wait_for(lambda: all(is_running(lab, name) for name in (job, *kept)))
    results = site.verdicts(**allowed)
    assert [results[f"a00{number}"][0] for number in range(1, 6)] == [
        "PREEMPT", "PREEMPT", "SKIP", "SKIP", "SKIP",
    ]  # fmt: skip
    assert "spans several nodes" in results["a003"][1]
    assert site.verdicts()["a001"][0] == "SKIP"  # no user is configured, so no job may be preempted

    arguments = ("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    refused = site.run(*arguments, **allowed)
    assert refused.returncode == 1 and "--allow-preempt" in refused.stderr
    assert is_running(lab, job)
    for node in ("a002", "a003", "a005"):
        refused = site.run("--set", "k8s", "--node-name", node, "--allow-preempt", **allowed)
        assert refused.returncode == 1, refused.stderr
    assert all(is_running(lab, name) for name in kept)

    lent = site.run(*arguments, "--allow-preempt", **allowed)
    assert (lent.returncode, lent.stdout) == (0, "a001\n"), lent.stderr
    assert lent.stderr.index("a001: claim: begins") < lent.stderr.index("sends TERM to job")
    site.assert_lent("a001")
    requeued = lab.run("scontrol", "-o", "show", "job", job)
    assert " JobState=PENDING " in requeued and " Restarts=1 " in requeued
    # Slurm would start it again two minutes after the requeue; the test does not wait for that.
    lab.run("scontrol", "update", f"jobid={job}", "ReqNodeList=a006", "StartTime=now")
    lab.wait_for(lambda: is_running(lab, job))
    assert all(is_running(lab, name) for name in kept)
    returned = site.run("--set", "batch", "--node-name", "a001")
    assert returned.returncode == 0, returned.stderr


def test_conversion_survives_a_restart_of_slurmctld(site: SlurmSite) -> None:
    lab = site.lab
    lending = site.start("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    lab.wait_for(lambda: "DRAIN" in lab.client.read_node("a001").state.flags)
    lab.stop_controller()
    for arguments in (("--list",), ("--set", "k8s", "--node-name", "a002")):
        refused = site.run(*arguments)
        assert refused.returncode == 1
        assert "controller does not answer" in refused.stderr, refused.stderr
    lab.start_controller()
    answer = finished(lending)
    assert answer.returncode == 0, answer.stderr
    site.assert_lent("a001")

    returning = site.start("--set", "batch", "--node-name", "a001")
    lab.wait_for(lambda: "reset a001" in site.hook_calls)
    lab.stop_controller()
    time.sleep(0.5)
    lab.start_controller()
    answer = finished(returning)
    assert answer.returncode == 0, answer.stderr
    site.assert_in_service("a001")


REPEATING_SCONTROL = """#!/bin/sh
@SCONTROL@ "$@" || exit
case "$*" in *state=resume*)
    touch @SEEN@
    while ! [ -e @SEEN@.go ]; do sleep 0.05; done
    exec @SCONTROL@ "$@"
esac
"""


def test_repeated_resume_across_a_restart_succeeds(site: SlurmSite) -> None:
    """scontrol repeats a command if slurmctld stops before it answers. A slurmctld that has just
    started refuses the repeated resume, since it does not know the node's state yet."""
    lab = site.lab
    assert site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev").returncode == 0
    programs, seen = site.directory / "bin", site.directory / "resumed"
    programs.mkdir()
    scontrol = shutil.which("scontrol", path=lab.environ["PATH"])
    words = {"@SCONTROL@": scontrol or "", "@SEEN@": str(seen)}
    script = reduce(lambda text, word: text.replace(word, words[word]), words, REPEATING_SCONTROL)
    (programs / "scontrol").write_text(script)
    (programs / "scontrol").chmod(0o755)
    path = f"{programs}:{lab.environ['PATH']}"
    returning = site.start("--set", "batch", "--node-name", "a001", PATH=path)
    lab.wait_for(seen.exists)
    lab.stop_controller()
    lab.stop_slurmd("a001")  # so that its state stays unknown for a while
    lab.start_controller()
    lab.wait_for(lambda: lab.client.read_node("a001").state.base == "UNKNOWN")
    seen.with_suffix(".go").touch()
    time.sleep(1)
    lab.start_slurmd("a001")
    answer = finished(returning)
    assert answer.returncode == 0, answer.stderr
    assert "does not know the state of a001 yet" in answer.stderr
    site.assert_in_service("a001")


def test_return_killed_after_resume_waits_for_the_node(
    site: SlurmSite,
) -> None:
    """After a resume, slurmd may not have answered yet. Slurm then does not know whether the node
    is in service."""
    lab = site.lab
    assert site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev").returncode == 0
    killed = site.run("--set", "batch", "--node-name", "a001", DNM_FAULT="slurm.resume:after:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    lab.stop_slurmd("a001")
    lab.wait_for(lambda: "NOT_RESPONDING" in lab.client.read_node("a001").state.flags)
    again = site.start("--set", "batch", "--node-name", "a001")
    time.sleep(2)
    assert again.poll() is None, again.communicate()
    lab.start_slurmd("a001")
    answer = finished(again)
    assert answer.returncode == 0, answer.stderr
    site.assert_in_service("a001")


def test_reopened_node_is_drained_before_its_reset(site: SlurmSite) -> None:
    """Pods have started since an earlier return failed, so the next one drains the node again."""
    sandbox = site.sandbox
    assert site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev").returncode == 0
    reset = site.hooks / "reset"
    good = reset.read_text()
    reset.write_text("#!/bin/sh\necho the BMC does not answer\nexit 1\n")
    assert site.run("--set", "batch", "--node-name", "a001").returncode == 1
    sandbox.cordon("a001", on=False)
    sandbox.add_namespace("dev")
    sandbox.create(bound_pod("served"))
    assert sandbox.get("pods", "served", "dev") is not None
    reset.write_text(good)
    answer = site.run("--resume")
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.index("a001: drain: begins") < answer.stderr.index("a001: reset: begins")
    assert sandbox.get("pods", "served", "dev") is None  # evicted
    site.assert_in_service("a001")


def bound_pod(name: str) -> dict[str, object]:
    """Returns a pod on a001 that a StatefulSet controls, so that it may be evicted. The sandbox has
    no StatefulSets, so it does not delete the pod for lack of its owner."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "u"}
    metadata = {"name": name, "namespace": "dev", "labels": {"app": name},
                "ownerReferences": [{**owner, "controller": True}]}  # fmt: skip
    spec = {"nodeName": "a001", "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def return_manually(site: SlurmSite, node: str) -> None:
    lab = site.lab
    if not lab.has_slurmd(node):
        lab.start_slurmd(node)
    lab.run("scontrol", "update", f"nodename={node}", "state=resume", "comment=")
    lab.run("scontrol", "delete", f"ReservationName=k8s-{node}")
    lab.wait_for(lambda: lab.client.read_node(node).state.text == "IDLE")


def test_outdated_journal_does_not_touch_the_node(site: SlurmSite) -> None:
    """After the failed lend, an administrator returned the node to Slurm and later drained it."""
    lab, reset = site.lab, site.hooks / "reset"
    good = reset.read_text()
    for hook in ("join", "reset"):
        (site.hooks / hook).write_text("#!/bin/sh\nexit 1\n")
    lending = site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert lending.returncode == 1
    return_manually(site, "a001")
    reason = "admin: disk swap, hands inside"
    lab.run("scontrol", "update", "nodename=a001", "state=drain", f"reason={reason}")
    reset.write_text(good)
    begun = len(site.hook_calls)
    answer = site.run("--resume")
    assert "nothing is done" in answer.stderr and len(site.hook_calls) == begun, answer.stderr
    assert lab.client.read_node("a001").reason.startswith(reason)


def test_node_returned_by_another_host_is_not_reset(site: SlurmSite, tmp_path: Path) -> None:
    """While this host's hooks run before the reset, another host returns the node; jobs start."""
    lab, other = site.lab, SlurmSite(site.lab, site.sandbox, tmp_path / "other")
    began, ends = tmp_path / "began", tmp_path / "ends"
    leave = other.hooks / "leave"
    leave.write_text(f"#!/bin/sh\ntouch {began}\nwhile [ ! -e {ends} ]; do sleep 0.1; done\n")
    leave.chmod(0o755)
    assert site.run("--set", "k8s", "--node-name", "a001", "--namespace", "dev").returncode == 0
    arguments = ("--set", "batch", "--node-name", "a001")
    late = other.begin(*arguments)
    lab.wait_for(began.exists)
    assert site.run(*arguments).returncode == 0
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=games")
    lab.wait_for(lambda: is_running(lab, job))
    ends.touch()
    answer = late.wait()
    assert "it is not touched" in answer.err and not other.hook_calls, answer.err
    assert is_running(lab, job)
    again = other.run(*arguments)
    assert again.returncode == 0 and "Slurm has it in service" in again.stderr


def test_node_resumed_before_ready_is_not_lent(site: SlurmSite) -> None:
    lab = site.lab
    arguments = ("--set", "k8s", "--node-name", "a002", "--namespace", "dev")
    assert site.run(*arguments, DNM_FAULT="convert.ready:before:kill").returncode < 0
    return_manually(site, "a002")
    job = lab.submit("-w", "a002", "-n1", "--mem=100", "--uid=games")
    lab.wait_for(lambda: is_running(lab, job))
    answer = site.run("--set", "k8s", "--node-type", "a", "--num-nodes", "1", "--namespace", "dev")
    assert "a002" not in answer.stdout.split() or answer.returncode == 1, answer
    assert "Kubernetes has it too" in answer.stderr, answer.stderr
    assert is_running(lab, job)


def test_node_is_printed_before_it_is_changed(site: SlurmSite) -> None:
    """dnm reads from the output which node a lend begins to change, even if the call is killed."""
    (site.hooks / "join").write_text("#!/bin/sh\nexec sleep 60\n")
    lending = site.start("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert lending.stdout is not None
    assert lending.stdout.readline() == "a001\n"
    for _ in range(2):  # the second ends the hook
        lending.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    finished(lending)
    (site.hooks / "join").write_text("#!/bin/sh\n")
    assert site.run("--set", "batch", "--node-name", "a001").returncode == 0
    site.assert_in_service("a001")


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


@pytest.mark.parametrize("every", by_night(2, 1))
def test_repetition_after_a_kill_at_any_stage_succeeds(site: SlurmSite, every: int) -> None:
    """Each fault point is played on a node of its own, for lends and returns; by day every second
    point. Half of the returns are repeated by `--resume`."""
    lab = site.lab
    nodes = NODES[::every]
    assert len(LEND_POINTS) == len(RETURN_POINTS) == len(NODES)

    def kill_all(direction: str, points: tuple[str, ...]) -> None:
        processes = [
            site.begin(
                "--set", direction, "--node-name", node, "--namespace", "dev",
                DNM_FAULT=fault(point),
            )
            for node, point in zip(nodes, points, strict=True)
        ]  # fmt: skip
        for process, node, point in zip(processes, nodes, points, strict=True):
            answer = process.wait()
            assert answer.was_killed, (node, point, answer.err)

    def repeat_all(direction: str) -> None:
        half = len(nodes) // 2 if direction == "batch" else len(nodes)
        processes = [
            site.begin("--set", direction, "--node-name", node, "--namespace", "dev")
            for node in nodes[:half]
        ]
        processes += [site.begin("--resume", "--node-name", node) for node in nodes[half:]]
        for process, node in zip(processes, nodes, strict=True):
            answer = process.wait()
            assert answer.code == 0, (node, answer.err)

    kill_all("k8s", LEND_POINTS[::every])
    repeat_all("k8s")
    site.assert_lent(*nodes)
    assert site.kube_nodes == set(nodes)
    jobs = [lab.submit("-w", node, "-n1", "--mem=100", script="true") for node in nodes[:6]]
    kill_all("batch", RETURN_POINTS[every - 1 :: every])
    repeat_all("batch")
    site.assert_in_service(*nodes)
    for job in jobs:  # each waited for its node, began there once, and ran to its end
        lab.wait_for(lambda job=job: lab.client.read_job(job).state == "COMPLETED")  # type: ignore[misc]
        assert " Restarts=0 " in lab.run("scontrol", "-o", "show", "job", job)
    assert site.kube_nodes == set()
    assert not lab.client.read_reservations()
    assert site.run("--resume").stderr == "nothing to resume\n"


def test_failures_are_rolled_back_or_report_the_next_step(site: SlurmSite, tmp_path: Path) -> None:
    lab = site.lab
    sites = {
        name: SlurmSite(lab, site.sandbox, tmp_path / name, **settings)
        for name, settings in {
            "rolled": {},
            "unreached": {},
            "unbooted": {"boot_timeout_seconds": 2},
        }.items()
    }
    (sites["rolled"].hooks / "join").write_text("#!/bin/sh\necho 'no image'\nexit 1\n")
    (sites["unreached"].hooks / "reach").write_text("#!/bin/sh\nexit 1\n")
    (sites["unbooted"].hooks / "join").write_text("#!/bin/sh\nexit 1\n")
    (sites["unbooted"].hooks / "reset").write_text("#!/bin/sh\nexit 0\n")
    node_of = dict(zip(sites, NODES, strict=False))
    processes = {
        name: made.start("--set", "k8s", "--node-name", node_of[name], "--namespace", "dev")
        for name, made in sites.items()
    }
    answers = {name: finished(process) for name, process in processes.items()}
    assert {answer.returncode for answer in answers.values()} == {1}
    assert "failed (exit 1): no image; it was returned" in answers["rolled"].stderr
    assert "returned to Slurm" in answers["unreached"].stderr
    assert sites["unreached"].hook_calls == []
    site.assert_in_service(node_of["rolled"], node_of["unreached"])

    # A failed node pauses for a while (test_failures.py), and a success ends that.
    def failures(name: str) -> str:
        (path,) = (tmp_path / name).rglob(f"{node_of[name]}.json")
        return str(json.loads(path.read_text())["facts"]["failures"])

    assert {failures(name) for name in sites} == {"1"}
    node = lab.client.read_node(node_of["unbooted"])
    assert "DRAIN" in node.state.flags and node.reason.startswith("dnm:test ")
    assert f"--set batch --node-name {node.name}" in answers["unbooted"].stderr
    assert "slurmd has not registered again" in answers["unbooted"].stderr
    write_lab_hooks(sites["rolled"].hooks, lab.directory, site.sandbox.url, {"cpu": "8"})
    name = node_of["rolled"]
    again = sites["rolled"].run("--set", "k8s", "--node-name", name, "--namespace", "dev")
    assert again.returncode == 0, again.stderr
    assert failures("rolled") == "0"
    site.assert_lent(name)
    lab.run("scontrol", "update", f"nodename={name}", "state=drain", "reason=admin: fan")
    returned = sites["rolled"].run("--set", "batch", "--node-name", name)
    assert returned.returncode == 0 and "left drained" in returned.stderr, returned.stderr
    # Newer versions append " : Not responding", because its slurmd is away.
    assert lab.client.read_node(name).reason.startswith("admin: fan")

    lab.start_slurmd(node_of["unbooted"])
    again = sites["unbooted"].run("--resume")
    assert again.returncode == 0, again.stderr
    site.assert_in_service(node_of["unbooted"])
    assert not lab.client.read_reservations()


def test_stop_ends_between_stages_and_can_continue(site: SlurmSite) -> None:
    join = site.hooks / "join"
    join.write_text(join.read_text().replace("set -eu\n", "set -eu\nsleep 1.5\n"))
    lending = site.start("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    site.lab.wait_for(lambda: "prepare a001" in site.hook_calls)
    time.sleep(0.7)
    lending.send_signal(signal.SIGTERM)
    answer = finished(lending)
    assert answer.returncode == 1 and "stopped by a signal" in answer.stderr, answer.stderr
    again = site.run("--set", "k8s", "--node-type", "a", "--num-nodes", "1", "--namespace", "dev")
    assert (again.returncode, again.stdout) == (0, "a001\n"), again.stderr
    site.assert_lent("a001")
    assert site.run("--set", "batch", "--node-name", "a001").returncode == 0


def test_job_of_an_interrupted_preemption_is_requeued(site: SlurmSite) -> None:
    lab = site.lab
    allowed = {"PREEMPT_USER": "games", "PREEMPT_ACCOUNT": "fill", "PREEMPT_GRACE_SECONDS": "1"}
    job = lab.submit("-w", "a001", "-n1", "--mem=100", "--uid=games", "-A", "fill")
    lab.wait_for(lambda: is_running(lab, job))
    killed = site.run(
        "--set", "k8s", "--node-name", "a001", "--allow-preempt", **allowed,
        DNM_FAULT="slurm.terminate_job:after:kill",
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    answer = site.run("--set", "batch", "--node-name", "a001", **allowed)
    assert answer.returncode == 0, answer.stderr
    assert lab.client.read_job(job).state == "PENDING"
    lab.wait_for(lambda: lab.client.read_node("a001").state.text == "IDLE")
    site.assert_in_service("a001")
