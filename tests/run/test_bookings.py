"""An event whose nodes are booked in Slurm, by runs on a sandbox whose queue is never empty."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from tests.site import WORKSHOP_QUEUES, Site

HOUR = timedelta(hours=1)
BOOKED = {"event_reservations": "true"}


def booking_site(sandbox: Sandbox, directory: Path) -> Site:
    """Three machines and an event in two hours that wants two of them."""
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_machines(3)
    begins = Site(sandbox, directory).now() + 2 * HOUR
    event = (
        f"[event:stars]\nnamespace = dev\nnodes = 2\nfrom = {begins:%Y-%m-%d %H:%M}\n"
        f"until = {begins + HOUR:%Y-%m-%d %H:%M}\n"
    )
    return Site(sandbox, directory, sections=event, **BOOKED)


def test_booked_nodes_serve_when_the_event_begins_beside_jobs_that_wait(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = booking_site(sandbox, tmp_path)
    site.run()
    booked = sandbox.batch.reservations.by_name
    assert sorted(one.node for one in booked.values()) == ["a001", "a002"]
    for _ in range(9):
        sandbox.batch.submit(run_seconds=HOUR.total_seconds())
    for _ in range(115):
        sandbox.tick(60)
        result = site.run()
        assert not result.plan.errors
    serving = [name for name, one in site.registry.nodes.items() if one.phase is Phase.SERVING]
    assert sorted(serving) == ["a001", "a002"] and not sandbox.violations
    assert all(len(job.on) <= 1 for job in sandbox.batch.jobs.values())
    assert {name for job in sandbox.batch.jobs.values() for name in job.on} == {"a003"}


def test_what_the_calendar_knows_no_more_is_given_up_and_what_is_anothers_stays(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = booking_site(sandbox, tmp_path)
    span = sandbox.clock.now() + 7200, sandbox.clock.now() + 9000
    sandbox.batch.reserve("dnm-ev-stars-20270115T1000-000000-a001", "a001", span)
    assert len(site.run().outcome.actions) == 1  # type: ignore[union-attr]
    assert sorted(one.node for one in sandbox.batch.reservations.by_name.values()) == [
        "a001", "a002", "a003",
    ]  # fmt: skip
    assert not site.run().outcome.actions  # type: ignore[union-attr]
    site = Site(sandbox, tmp_path, **BOOKED)
    site.run()
    assert [one.node for one in sandbox.batch.reservations.by_name.values()] == ["a001"]
    assert not site.run().outcome.actions  # type: ignore[union-attr]
    assert not sandbox.violations
