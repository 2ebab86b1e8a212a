"""Tests of reserving nodes for an event in a real Slurm: refused if a job may still run, lent from
the reservation, and released by name. Other reservations stay."""

from __future__ import annotations

import itertools
import signal
import time
from datetime import UTC, datetime, timedelta

from dnm.model.calendar import occurrence_name
from tests.night import night
from tests.slurm_lab import SlurmSite, needs_other_slurm

pytestmark = needs_other_slurm

LEAVE = "a[004-010]"  # the tests do not need these


def reserve(site: SlurmSite, begins: datetime, count: int, **environment: str) -> list[str]:
    name = occurrence_name("w", begins, "test")
    times = [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (begins, begins + timedelta(hours=1))]
    answer = site.run(
        "--reserve", name, "--node-type", "a", "--num-nodes", str(count), "--from", times[0],
        "--until", times[1], "--exclude", LEAVE, **environment,
    )  # fmt: skip
    return [*answer.stdout.split(), f"exit {answer.returncode}", *answer.stderr.split()[:9]]


def reservations(site: SlurmSite) -> dict[str, tuple[str, ...]]:
    return {
        reservation.name: reservation.nodes for reservation in site.lab.client.read_reservations()
    }


def test_reservation_waits_for_running_jobs(site: SlurmSite) -> None:
    lab = site.lab
    begins = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    long = lab.submit("-w", "a001", "--exclusive", "-t", "120")
    short = lab.submit("-w", "a002", "--exclusive", "-t", "10")
    lab.wait_for(lambda: lab.client.read_job(short).state == "RUNNING")
    lab.wait_for(lambda: lab.client.read_job(long).state == "RUNNING")
    assert reserve(site, begins, 3) == ["a003", "a002", "exit 1"]
    name = occurrence_name("w", begins, "test")
    assert reservations(site) == {f"{name}-a002": ("a002",), f"{name}-a003": ("a003",)}
    assert reserve(site, begins, 2)[-1] == "exit 1"  # jobs have them, and a001 is busy
    into = lab.submit("-w", "a003", "--exclusive", "-t", "120")
    before = lab.submit("-w", "a003", "--exclusive", "-t", "10")
    lab.wait_for(lambda: lab.client.read_job(before).state == "RUNNING")
    assert lab.client.read_job(into).state == "PENDING"
    assert {lab.client.read_job(name).state for name in (long, short)} == {"RUNNING"}
    verdicts = site.verdicts()
    assert verdicts["a003"][0] == "SKIP" and verdicts["a010"] == ("OK", "-")


def test_late_reservation_is_moved_if_no_job_conflicts(
    site: SlurmSite,
) -> None:
    """If lending takes longer than expected, reservations must begin earlier. dnm moves each by one
    call, so that its node is reserved all the time."""
    lab = site.lab
    occurrence = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=90)
    name = occurrence_name("w", occurrence, "test")
    times = [occurrence - timedelta(minutes=minutes) for minutes in (10, 60)]

    def ask(begins: datetime, **environment: str) -> tuple[list[str], int]:
        answer = site.run(
            "--reserve", name, "--node-type", "a", "--num-nodes", "2", "--exclude", LEAVE,
            "--from", f"{begins:%Y-%m-%dT%H:%M:%SZ}",
            "--until", f"{occurrence + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}", **environment,
        )  # fmt: skip
        return answer.stdout.split(), answer.returncode

    assert ask(times[0]) == (["a001", "a002"], 0)
    job = lab.submit("-w", "a001", "--exclusive", "-t", "60")
    lab.wait_for(lambda: lab.client.read_job(job).state == "RUNNING")
    killed = ask(times[1], DNM_FAULT="slurm.update_reservation:before:kill:1")
    assert killed == ([], -signal.SIGKILL)
    lines, code = ask(times[1])
    assert (sorted(lines), code) == (["a002", "a003"], 0)
    begins = {
        reservation.nodes[0]: reservation.start for reservation in lab.client.read_reservations()
    }
    assert begins == {"a001": times[0], "a002": times[1], "a003": times[1]}
    assert lab.client.read_job(job).state == "RUNNING"


@night
def test_reserved_node_is_lent_and_the_rest_released(site: SlurmSite) -> None:
    lab = site.lab
    begins = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=40)
    assert reserve(site, begins, 2) == ["a001", "a002", "exit 0"]
    other = f"{occurrence_name('w', begins, 'other')}-a003"
    lab.client.create_reservation(other, "a003", begins + timedelta(hours=1), start=begins)
    assert site.verdicts()["a001"] == (
        "SKIP",
        f"reservation {occurrence_name('w', begins, 'test')}-a001",
    )
    time.sleep((begins - datetime.now(UTC)).total_seconds() + 1)
    lab.wait_for(lambda: "RESERVED" in lab.client.read_node("a002").state.flags)
    verdicts = site.verdicts()
    assert [verdicts[name][0] for name in ("a001", "a002", "a003")] == ["OK", "OK", "SKIP"]
    job = lab.submit("-w", "a002", "--exclusive", "-t", "1")
    lent = site.run("--set", "k8s", "--node-type", "a", "--num-nodes", "1", "--namespace", "dev")
    assert lent.stdout.split() == ["a001"], lent.stderr  # before a010, which is free
    site.assert_lent("a001")
    assert lab.client.read_job(job).state == "PENDING"
    name = occurrence_name("w", begins, "test")
    done = site.run("--unreserve", name, "--exclude", "a001")
    assert done.stdout.split() == ["a002"]
    lab.wait_for(lambda: lab.client.read_job(job).state == "RUNNING")
    assert other in reservations(site)
    assert site.run("--unreserve", occurrence_name("w", begins, "other")).returncode == 1
    back = site.run("--set", "batch", "--node-name", "a001")
    assert back.returncode == 0, back.stderr
    assert f"{name}-a001" in reservations(site)  # its event is not over
    assert site.run("--unreserve", name).stdout.split() == ["a001"]
    site.assert_in_service("a001")


def test_kill_at_any_change_leaves_no_extra_reservation(site: SlurmSite) -> None:
    """A call after the kill reserves just the missing nodes, and `--unreserve` releases all."""
    begins = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    name = occurrence_name("w", begins, "test")
    counts = []
    for number, when in itertools.product((1, 2), ("before", "after")):
        fault = f"{when}:kill:{number}"
        killed = reserve(site, begins, 2, DNM_FAULT=f"slurm.create_reservation:{fault}")
        assert f"exit {-signal.SIGKILL}" in killed
        counts.append(len(reservations(site)))
        if missing := 2 - counts[-1]:
            assert reserve(site, begins, missing)[-1] == "exit 0"
        assert sorted(reservations(site)) == [f"{name}-a001", f"{name}-a002"]
        done = site.run("--unreserve", name, DNM_FAULT=f"slurm.delete_reservation:{fault}")
        assert done.returncode == -signal.SIGKILL
        counts.append(len(reservations(site)))
        assert site.run("--unreserve", name).returncode == 0
        assert not reservations(site)
    assert counts == [0, 2, 1, 1, 1, 1, 2, 0]


def test_invalid_reservation_name_is_refused(site: SlurmSite) -> None:
    begins = datetime.now(UTC) + timedelta(hours=1)
    for name in ("dnm-ev-w", occurrence_name("w", begins, "other")):
        answer = site.run("--unreserve", name)
        assert answer.returncode == 1 and "is not an event reservation of test" in answer.stderr
    answer = site.run("--reserve", occurrence_name("w", begins, "test"), "--node-type", "a")
    assert answer.returncode == 2 and "--reserve needs --node-type" in answer.stderr
    assert not reservations(site)
