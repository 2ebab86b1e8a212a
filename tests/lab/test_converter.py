"""Tests of the sandbox's `node-convert`: its contract, its failures, and forbidden effects."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import pytest

from dnm.converter.node_list import parse_list
from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.cluster import Sandbox

LEND = ("--set", "k8s", "--node-type", "a", "--namespace", "dev", "--num-nodes")


def run(sandbox: Sandbox, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Runs the executable. Returns (exit code, stdout, stderr)."""
    done = subprocess.run(
        [str(sandbox.node_convert_path), *arguments], capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def nodes(sandbox: Sandbox) -> list[str]:
    return [node["metadata"]["name"] for node in sandbox.objects("nodes")]


def places(sandbox: Sandbox) -> dict[str, str]:
    return {machine.name: machine.place for machine in sandbox.batch.machines.values()}


# --- the contract ----------------------------------------------------------------------------


def test_sandbox_converter_lends_and_returns_a_node(sandbox: Sandbox) -> None:
    sandbox.add_machine_type(
        labels={"pool": "{namespace}"}, more={"example.com/x": "2"},
        taints=[{"key": "for", "value": "{namespace}", "effect": "NoSchedule"}],
    )  # fmt: skip
    sandbox.add_machines(3)
    code, out, err = run(sandbox, *LEND, "2", RES_NAME="site", DNM_INSTANCE="prod")
    assert (code, out) == (0, "a001\na002\n")
    assert "a001: claimed" in err
    sandbox.tick()
    assert nodes(sandbox) == ["a001", "a002"]
    node = sandbox.get("nodes", "a001")
    assert node is not None
    labels = node["metadata"]["labels"]
    assert (labels["dev"], labels["pool"]) == ("true", "dev")
    assert node["spec"]["taints"] == [{"key": "for", "value": "dev", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"] == {
        "cpu": "128", "memory": "256G", "pods": "110", "example.com/x": "2",
    }  # fmt: skip
    assert sandbox.batch.machines["a001"].reserved == "site-a001"
    assert run(sandbox, "--set", "batch", "--node-name", "a001")[:2] == (0, "a001\n")
    assert nodes(sandbox) == ["a002"]
    assert places(sandbox) == {"a001": "batch", "a002": "kubernetes", "a003": "batch"}
    assert sandbox.violations == []
    call = sandbox.conversion.calls[0]
    assert call.environment["DNM_INSTANCE"] == "prod" and call.arguments[0] == "--set"


def test_longest_idle_nodes_are_lent_first(sandbox: Sandbox) -> None:
    sandbox.add_machines(3)
    sandbox.batch.machines["a003"].idle_since -= 100
    assert run(sandbox, *LEND, "1")[1] == "a003\n"


def prepare_states(sandbox: Sandbox) -> None:
    sandbox.add_machines(7)
    batch = sandbox.batch
    batch.min_idle_seconds = 600
    for machine in batch.machines.values():
        machine.idle_since -= 700
    batch.start_job(["a002"])
    batch.start_job(["a003"])
    batch.drain("a004", "fan is broken")
    batch.set_down("a005")
    batch.machines["a006"].reserved = "maintenance"
    batch.machines["a007"].idle_since = sandbox.clock.now()


STATES = {
    "a001": ("IDLE", "OK", True),
    "a002": ("ALLOCATED", "SKIP", True),
    "a003": ("ALLOCATED", "SKIP", True),
    "a004": ("IDLE+DRAIN", "SKIP", False),
    "a005": ("DOWN", "SKIP", False),
    "a006": ("IDLE+RESERVED", "SKIP", False),
    "a007": ("IDLE", "SKIP", True),
}


@pytest.mark.parametrize("options", [(), ("--output", "json")], ids=["text", "json"])
def test_sandbox_list_reports_state_and_verdict(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    prepare_states(sandbox)
    code, out, _ = run(sandbox, "--list", *options)
    listed = parse_list(out.encode())
    assert code == 0 and listed is not None
    results = {name: (node.state, node.verdict) for name, node in listed.nodes.items()}
    assert results == {name: row[:2] for name, row in STATES.items()}
    assert "fan is broken" in listed.nodes["a004"].reason
    if options:
        services = {name: node.in_service for name, node in listed.nodes.items()}
        assert services == {name: row[2] for name, row in STATES.items()}
        assert listed.nodes["a001"].partitions == ("batch",) and listed.waiting == ()


def test_sandbox_list_reports_waiting_jobs(sandbox: Sandbox) -> None:
    """One job needs more nodes than exist, and another one waits for its turn."""
    prepare_states(sandbox)
    for nodes in (50, 2):
        sandbox.batch.submit(nodes)
    listed = parse_list(run(sandbox, "--list", "--output", "json")[1].encode())
    assert listed is not None and isinstance(listed.waiting, tuple)
    assert [(item.node_type, item.jobs, item.nodes) for item in listed.waiting] == [("a", 2, 52)]


REFUSED = [
    pytest.param((), 2, "one of --set and --list", id="nothing to do"),
    pytest.param(("--set", "moon"), 2, "invalid choice", id="unknown direction"),
    pytest.param((*LEND, "0"), 2, "at least 1", id="no nodes"),
    pytest.param(("--set", "batch"), 2, "--node-name", id="no name"),
    pytest.param(("--set", "k8s", "--node-type", "q"), 1, "no nodes of type q", id="no such type"),
    pytest.param(
        ("--set", "batch", "--node-name", "q"), 1, "knows no such node", id="no such node"
    ),
    pytest.param(("--set", "k8s", "--node-name", "a002"), 1, "job", id="a node with a job"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), REFUSED)
def test_invalid_converter_call_is_refused(
    sandbox: Sandbox, arguments: tuple[str, ...], code: int, words: str
) -> None:
    prepare_states(sandbox)
    answered, out, err = run(sandbox, *arguments)
    assert (answered, out) == (code, "")
    assert words in err


def test_sandbox_list_can_fail_on_request(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    sandbox.behave(direction="list", exit_code=1, stdout="", stderr="slurmctld is away\n")
    assert run(sandbox, "--list") == (1, "", "slurmctld is away\n")
    assert run(sandbox, "--list")[0] == 0


# --- time ------------------------------------------------------------------------------------


def test_node_joins_in_stages(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    timing = sandbox.timing
    timing.convert, timing.join, timing.ready = 100, 10, 20
    begun = sandbox.clock.now()
    assert sandbox.node_convert(*LEND, "1").exit_code == 0
    assert sandbox.clock.now() - begun == pytest.approx(100)

    def seen() -> bool | None:
        node = sandbox.get("nodes", "a001")
        return None if node is None else manifests.is_ready(node)

    steps = [seen()]
    for seconds in (9, 1, 19, 1):
        sandbox.tick(seconds)
        steps.append(seen())
    assert steps == [None, None, False, False, True]


def test_jobs_wait_run_and_end(sandbox: Sandbox) -> None:
    sandbox.add_machines(2)
    for nodes_wanted, seconds in ((2, 60), (1, 30)):
        sandbox.batch.submit(nodes_wanted, run_seconds=seconds)
    counts = []
    for seconds in (0, 59, 1, 29, 1):
        sandbox.tick(seconds)
        counts.append(sum(len(job.on) for job in sandbox.batch.jobs.values()))
    assert counts == [2, 2, 1, 1, 0]


# --- what can go wrong -----------------------------------------------------------------------

# behaviour -> exit code, stdout, Nodes at once, Nodes later, machines out of service
FAILURES = [
    pytest.param({"act": False}, 1, "", 0, 0, 0, id="fails and touches nothing"),
    pytest.param({"stuck": True}, 1, "", 0, 0, 2, id="fails and leaves the nodes claimed"),
    pytest.param({"exit_code": 1}, 1, "a001\na002\n", 2, 2, 2, id="reports failure, but joined"),
    pytest.param({"act": False, "exit_code": 0, "stdout": "a001\na002\n"}, 0, "a001\na002\n", 0, 0,
                 0, id="reports success, but none joined"),
    pytest.param({"short": 1}, 1, "a001\n", 1, 1, 1, id="brings too few nodes"),
    pytest.param({"late_seconds": 300}, 0, "a001\na002\n", 0, 2, 2, id="brings nodes late"),
    pytest.param({"stdout": "\x1b[2Jwhat?\n"}, 0, "\x1b[2Jwhat?\n", 2, 2, 2, id="prints garbage"),
]  # fmt: skip


@pytest.mark.parametrize(("behaviour", "code", "out", "at_once", "later", "is_gone"), FAILURES)
def test_failing_lend_has_the_configured_effects(
    sandbox: Sandbox, behaviour: dict[str, Any], code: int, out: str, at_once: int, later: int,
    is_gone: int,
) -> None:  # fmt: skip
    sandbox.add_machines(2)
    sandbox.behave(**behaviour)
    assert run(sandbox, *LEND, "2")[:2] == (code, out)
    sandbox.tick()
    assert len(nodes(sandbox)) == at_once
    sandbox.tick(300)
    assert len(nodes(sandbox)) == later
    in_service = [m for m in sandbox.batch.machines.values() if sandbox.batch.is_in_service(m)]
    assert len(in_service) == 2 - is_gone
    assert sandbox.violations == []


@pytest.mark.parametrize(
    ("behaviour", "node_left", "place"),
    [
        pytest.param({"act": False}, True, "kubernetes", id="touches nothing"),
        pytest.param({"stuck": True}, False, "returning", id="does not boot"),
        pytest.param({"exit_code": 1}, False, "batch", id="reports a failure, but it is back"),
    ],
)
def test_failing_return_is_repeatable(
    sandbox: Sandbox, behaviour: dict[str, Any], node_left: bool, place: str
) -> None:
    sandbox.add_machines(1)
    sandbox.node_convert(*LEND, "1")
    sandbox.tick()
    sandbox.behave(direction="batch", **behaviour)
    assert run(sandbox, "--set", "batch", "--node-name", "a001")[0] == 1
    assert (bool(nodes(sandbox)), places(sandbox)["a001"]) == (node_left, place)
    if place != "batch":
        assert run(sandbox, "--set", "batch", "--node-name", "a001")[0] == 0
    assert (nodes(sandbox), places(sandbox)) == ([], {"a001": "batch"})
    assert sandbox.violations == []


def test_hanging_converter_ignores_sigterm_and_has_a_child(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    sandbox.behave(hang="before")
    process = subprocess.Popen(
        [str(sandbox.node_convert_path), *LEND, "1"], stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        lines = [process.stderr.readline(), process.stderr.readline()]
        child = int(lines[1].rsplit(maxsplit=1)[1])
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        assert process.poll() is None
        os.kill(child, 0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert places(sandbox) == {"a001": "leaving"} and nodes(sandbox) == []
    assert run(sandbox, "--set", "batch", "--node-name", "a001")[0] == 0
    assert places(sandbox) == {"a001": "batch"}


@pytest.mark.parametrize("detached", [False, True])
def test_killed_converter_leaves_a_conversion_half_done(
    live_sandbox: Sandbox, detached: bool
) -> None:
    live_sandbox.add_machines(1)
    live_sandbox.timing.convert = 0.3
    live_sandbox.behave(detached=detached)
    with subprocess.Popen(
        [str(live_sandbox.node_convert_path), *LEND, "1"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "claimed" in process.stderr.readline()
        process.kill()
    deadline = time.monotonic() + (300 if detached else 0.5)
    while not nodes(live_sandbox) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert bool(nodes(live_sandbox)) is detached


def test_converter_that_died_during_its_request_is_not_running(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    with subprocess.Popen(["true"]) as process:
        pass
    sandbox.conversion.begin([*LEND, "1"], {"DNM_INSTANCE": "site"}, process.pid)
    machine = sandbox.batch.machines["a001"]
    assert machine.place == "leaving" and not sandbox.conversion.is_at_work(machine)


def test_stopped_sandbox_is_reported_in_a_sentence(sandbox: Sandbox) -> None:
    sandbox.stop()
    code, out, err = run(sandbox, "--list")
    assert (code, out) == (1, "") and "can't be asked" in err and "Traceback" not in err


# --- what must never happen ------------------------------------------------------------------


def kinds(sandbox: Sandbox) -> list[tuple[str, str]]:
    return [(violation.kind, violation.node) for violation in sandbox.violations]


def test_needless_return_is_recorded_and_changes_nothing(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    sandbox.batch.start_job(["a001"])
    assert run(sandbox, "--set", "batch", "--node-name", "a001")[0] == 0
    assert len(sandbox.batch.jobs) == 1
    assert kinds(sandbox) == [("needless-return", "a001")]


def test_job_on_a_converted_node_is_recorded_as_a_violation(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    begun = sandbox.conversion.begin((*LEND, "1"), {})
    sandbox.batch.start_job(["a001"])
    assert begun.operation is not None
    sandbox.finish_conversion(begun.operation)
    assert kinds(sandbox) == [("job-killed", "a001")]


@pytest.mark.parametrize("way", ["converter", "api"])
def test_pods_deleted_with_their_node_are_recorded_as_a_violation(
    sandbox: Sandbox, way: str
) -> None:
    sandbox.add_machines(1)
    sandbox.node_convert(*LEND, "1")
    sandbox.tick()
    done, running = sandbox.add_pods(2, "dev")
    sandbox.tick()
    sandbox.finish_pods([done], "dev")

    def delete() -> None:
        if way == "converter":
            sandbox.node_convert("--set", "batch", "--node-name", "a001")
        else:
            from tests.lab.test_api import raw

            raw(sandbox, "DELETE", "/api/v1/nodes/a001")

    delete()
    assert kinds(sandbox) == [("pods-killed", "a001")]
    assert f"1 pods ran on it, {running}" in sandbox.violations[0].detail


def test_node_used_by_both_clusters_is_recorded_once(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    sandbox.node_convert(*LEND, "1")
    sandbox.tick()
    sandbox.batch.release(sandbox.batch.machines["a001"])
    sandbox.tick()
    sandbox.tick()
    assert kinds(sandbox) == [("two-owners", "a001")]


def test_manual_actions_of_administrators_are_no_violation(sandbox: Sandbox) -> None:
    sandbox.add_machines(2)
    sandbox.node_convert(*LEND, "2")
    sandbox.tick()
    sandbox.batch.drain("a001", "look at the fan")
    sandbox.return_manually("a001")
    sandbox.return_manually("a002")
    sandbox.join_manually("a002", "dev")
    sandbox.tick()
    assert nodes(sandbox) == ["a002"]
    assert sandbox.batch.state_of(sandbox.batch.machines["a001"]) == "IDLE+DRAIN"
    assert sandbox.violations == []


# --- nodes that are kept out ---------------------------------------------------------------------


def test_excluded_node_is_not_taken_by_the_sandbox_converter(sandbox: Sandbox) -> None:
    sandbox.add_machine_type()
    sandbox.add_machines(3)
    assert run(sandbox, *LEND, "2", "--exclude", "a[001-002]")[:2] == (1, "a003\n")
    assert run(sandbox, *LEND, "2", "--exclude", "a[")[0] == 1
    assert run(sandbox, "--set", "batch", "--node-name", "a003", "--exclude", "a001")[0] == 2
    listed = parse_list(run(sandbox, "--list", "--output", "json")[1].encode())
    assert listed is not None and listed.leaves_out
    assert listed.nodes["a001"].features == ()
