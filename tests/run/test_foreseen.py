"""Tests of an event of the calendar, as runs on a sandbox: from the first lend to its end, and with
nodes reserved in Slurm."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ExitCode
from dnm.model.lent import Phase
from dnm.model.plan import StartConversion
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from dnm.run.looking import plan_pass
from tests.site import QUEUE, Site, set_up_workshop


def test_event_nodes_serve_at_its_begin_and_are_returned_at_its_end(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    set_up_workshop(sandbox, 3)
    begins = Site(sandbox, tmp_path).now() + timedelta(hours=2)
    site = Site(
        sandbox,
        tmp_path,
        sections=f"[event:stars]\nnamespace = dev\nnodes = 2\nfrom = {begins:%Y-%m-%d %H:%M}\n"
        f"until = {begins + timedelta(hours=1):%Y-%m-%d %H:%M}\n",
    )
    assert not site.run().plan.actions
    before = site.registry
    later = plan_pass(site.config, dict(os.environ), site.now, events_at=begins)
    (asked,) = [action for action in later.plan.actions if isinstance(action, StartConversion)]
    assert asked.request.count == 2 and site.registry == before
    (verdict,) = later.plan.queues
    assert verdict.queue == QUEUE and verdict.detail.startswith("event stars, ")
    sandbox.tick((begins - site.now() - timedelta(minutes=29)).total_seconds())
    site.run_until_rest()
    assert [node.phase for node in site.registry.nodes.values()] == [Phase.SERVING] * 2
    assert site.now() < begins
    assert len(site.registry.lend_times["a"].lends) == 2
    sandbox.tick((begins + timedelta(minutes=50) - site.now()).total_seconds())
    plan = site.run().plan
    assert not plan.actions and {node.reason for node in plan.nodes} == {Reason.KEPT_READY}
    sandbox.tick(timedelta(minutes=15).total_seconds())
    site.run_until_rest()
    assert not site.registry.nodes and len(site.registry.lend_times["a"].returns) == 2
    assert not sandbox.violations


def test_damaged_event_stays_in_effect_and_each_run_is_an_error(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    set_up_workshop(sandbox, 3)
    now = Site(sandbox, tmp_path).now()
    good = (
        f"[event:stars]\nnamespace = dev\nnodes = 2\nfrom = {now:%Y-%m-%d %H:%M}\n"
        f"until = {now + timedelta(hours=1):%Y-%m-%d %H:%M}\n"
    )
    Site(sandbox, tmp_path, sections=good).run_until_rest()
    sandbox.tick(timedelta(minutes=40).total_seconds())
    site = Site(sandbox, tmp_path, sections=good.replace("nodes = 2", "nodes = many"))
    for _ in range(2):
        result = site.run()
        assert result.outcome is not None
        assert any("[event:stars] nodes = many" in error for error in result.plan.errors)
        assert (result.exit_code, result.plan.actions) == (ExitCode.NEEDS_PERSON, ())
        assert {node.reason for node in result.plan.nodes} == {Reason.KEPT_READY}
    Site(sandbox, tmp_path, sections=good).run()
    lines = [json.loads(line) for line in (tmp_path / "state/history.jsonl").open()]
    rows = [line["event"] for line in lines if line["kind"] == "calendar"]
    assert rows == ["unreadable", "readable"]


def test_headroom_threshold_alone_lends_a_node_in_a_single_run(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """All pods run, and their demand exceeds `headroom`. Only the plan shows this need."""
    set_up_workshop(sandbox, 3)
    sandbox.add_node("k1", cpu="128", memory="512Gi")
    site = Site(sandbox, tmp_path, headroom="0.9")
    sandbox.tick(61)  # past the hourly run, which lists the batch side anyway
    assert not site.run().plan.actions
    sandbox.add_pods(19, "dev", queue=QUEUE, cpu="4", memory="4G")
    sandbox.tick(600)
    result = site.run()
    assert all(site.pods().values()) and result.exit_code == 0
    (verdict,) = result.plan.queues
    assert (verdict.verdict, verdict.reason) == (Verdict.CONVERT, Reason.NEARLY_FULL)
    assert [request.count for request in site.registry.requests] == [1] or site.lent()


# --- reserved in Slurm, where the queue of jobs is never empty ------------------------------------

HOUR = timedelta(hours=1)
RESERVED = {"event_reservations": "true"}


def reserving_site(sandbox: Sandbox, directory: Path) -> Site:
    """Builds a site with three machines and an event in two hours that needs two of them."""
    set_up_workshop(sandbox, 3)
    begins = Site(sandbox, directory).now() + 2 * HOUR
    event = (
        f"[event:stars]\nnamespace = dev\nnodes = 2\nfrom = {begins:%Y-%m-%d %H:%M}\n"
        f"until = {begins + HOUR:%Y-%m-%d %H:%M}\n"
    )
    return Site(sandbox, directory, sections=event, **RESERVED)


def test_reserved_nodes_serve_at_event_begin_beside_waiting_jobs(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = reserving_site(sandbox, tmp_path)
    site.run()
    reserved = sandbox.batch.reservations.by_name
    assert sorted(reservation.node for reservation in reserved.values()) == ["a001", "a002"]
    for _ in range(9):
        sandbox.batch.submit(run_seconds=HOUR.total_seconds())
    for _ in range(58):
        sandbox.tick(120)
        result = site.run()
        assert not result.plan.errors
    serving = [name for name, node in site.registry.nodes.items() if node.phase is Phase.SERVING]
    assert sorted(serving) == ["a001", "a002"] and not sandbox.violations
    assert all(len(job.on) <= 1 for job in sandbox.batch.jobs.values())
    assert {name for job in sandbox.batch.jobs.values() for name in job.on} == {"a003"}


def test_reservation_of_a_removed_event_is_deleted_and_foreign_ones_stay(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = reserving_site(sandbox, tmp_path)
    span = sandbox.clock.now() + 7200, sandbox.clock.now() + 9000
    sandbox.batch.reserve("dnm-ev-stars-20270115T1000-000000-a001", "a001", span)
    assert len(site.run().outcome.actions) == 1  # type: ignore[union-attr]
    assert sorted(entry.node for entry in sandbox.batch.reservations.by_name.values()) == [
        "a001", "a002", "a003",
    ]  # fmt: skip
    assert not site.run().outcome.actions  # type: ignore[union-attr]
    site.write(site.path, site.path.read_text().replace("nodes = 2", "nodes = 1"))
    site.run()
    assert [reservation.node for reservation in sandbox.batch.reservations.by_name.values()] == [
        "a001",
        "a002",
    ]
    site = Site(sandbox, tmp_path, **RESERVED)
    site.run()
    assert [reservation.node for reservation in sandbox.batch.reservations.by_name.values()] == [
        "a001"
    ]
    assert not site.run().outcome.actions  # type: ignore[union-attr]
    assert not sandbox.violations
