"""Tests of reservations with a later begin in the sandbox's Slurm, by `--reserve` or manually."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.calendar import occurrence_name
from tests.lab.test_converter import LEND, run

HOUR = 3600.0


def name_of(sandbox: Sandbox, ahead: float, instance: str = "prod") -> str:
    begins = datetime.fromtimestamp(sandbox.clock.now() + ahead, UTC)
    return occurrence_name("stars", begins, instance)


def reserve_machines(
    sandbox: Sandbox, count: int, ahead: float = HOUR, instance: str = "prod"
) -> tuple[int, list[str], str]:
    now = sandbox.clock.now()
    times = [
        f"{datetime.fromtimestamp(now + seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for seconds in (ahead, ahead + HOUR)
    ]
    code, out, err = run(
        sandbox, "--reserve", name_of(sandbox, ahead, instance), "--node-type", "a", "--num-nodes",
        str(count), "--from", times[0], "--until", times[1], DNM_INSTANCE=instance,
    )  # fmt: skip
    return code, out.split(), err


def verdicts(sandbox: Sandbox, instance: str = "prod") -> dict[str, tuple[str, str, list[str]]]:
    _, out, _ = run(sandbox, "--list", "--output", "json", DNM_INSTANCE=instance)
    return {
        node["node"]: (node["state"], node["verdict"], node["reservations"])
        for node in json.loads(out)["nodes"]
    }


def test_node_with_a_possible_later_job_is_not_reserved(sandbox: Sandbox) -> None:
    sandbox.add_machines(3)
    sandbox.batch.start_job(["a001"], run_seconds=2 * HOUR)
    sandbox.batch.start_job(["a002"], run_seconds=HOUR / 2)
    assert reserve_machines(sandbox, 3) == (1, ["a003", "a002"], "")
    assert reserve_machines(sandbox, 3) == (1, [], "")
    sandbox.tick(HOUR / 2)
    jobs = [sandbox.batch.submit(run_seconds=seconds) for seconds in (HOUR / 4, HOUR, HOUR)]
    sandbox.tick()
    assert sandbox.batch.jobs[jobs[0]].on == ["a002"]
    assert not sandbox.batch.jobs[jobs[1]].on  # it would run into the reservation


def test_reserved_node_is_lent_and_the_remaining_reservation_is_released(sandbox: Sandbox) -> None:
    sandbox.add_machines(4)
    name = name_of(sandbox, HOUR)
    assert reserve_machines(sandbox, 2) == (0, ["a001", "a002"], "")
    assert reserve_machines(sandbox, 1, instance="other") == (0, ["a003"], "")
    assert verdicts(sandbox)["a001"] == ("IDLE", "SKIP", [f"{name}-a001"])
    sandbox.tick(HOUR)
    sandbox.batch.machines["a004"].idle_since -= 100  # the longest idle
    assert [verdict[1] for verdict in verdicts(sandbox).values()] == ["OK", "OK", "SKIP", "OK"]
    assert verdicts(sandbox)["a002"][0] == "IDLE+RESERVED"
    assert run(sandbox, *LEND, "1", DNM_INSTANCE="prod")[1] == "a001\n"
    removed = run(sandbox, "--unreserve", name, "--exclude", "a001", DNM_INSTANCE="prod")
    assert removed == (0, "a002\n", "")
    assert verdicts(sandbox)["a003"][2] and verdicts(sandbox)["a001"][2] == [f"{name}-a001"]
    sandbox.tick(HOUR)
    assert not sandbox.batch.reservations.by_name and not sandbox.violations


def test_foreign_reservation_is_not_changed(sandbox: Sandbox) -> None:
    sandbox.add_machines(2)
    now = sandbox.clock.now()
    name = name_of(sandbox, HOUR, "other")
    assert not sandbox.batch.reserve(f"{name}-a001", "a001", (now + HOUR, now + 2 * HOUR), "other")
    assert reserve_machines(sandbox, 2) == (1, ["a002"], "")
    for called in (name, "maintenance"):
        code, out, err = run(sandbox, "--unreserve", called, DNM_INSTANCE="prod")
        assert (code, out) == (1, "") and "is not an event reservation of prod" in err
    taken = sandbox.batch.unreserve(name, "prod")
    assert taken == ["a001"]
    assert [violation.kind for violation in sandbox.violations] == ["reservation-taken"]


def test_reservations_are_saved_with_the_machines(sandbox: Sandbox) -> None:
    sandbox.add_machines(1)
    assert reserve_machines(sandbox, 1, ahead=-60.0) == (1, [], "")
    assert reserve_machines(sandbox, 2) == (1, ["a001"], "")
    kept = json.loads(msgspec.json.encode(sandbox.batch.dump()))
    sandbox.batch.unreserve(name_of(sandbox, HOUR), "prod")
    sandbox.batch.load(kept)
    assert list(sandbox.batch.reservations.by_name) == [f"{name_of(sandbox, HOUR)}-a001"]
