"""What the model's Slurm adds to the sandbox's reservations; its judges see what must not be."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dnm.lab.sandbox.reservations import Reservation
from tests.proof.reserving import ADMIN, booked_twice, reserve, taken_from_others
from tests.proof.world import BEGIN, World

HOUR = timedelta(hours=1)


def at(begins: float, ends: float, name: str = "new", maker: str = "east") -> Reservation:
    """Of a001, in hours from the beginning."""
    since, until = ((BEGIN + hours * HOUR).timestamp() for hours in (begins, ends))
    return Reservation(name=name, node="a001", instance=maker, begins=since, ends=until)


def world_with(*there: Reservation, job_hours: float = 0.0, place: str = "batch") -> World:
    world = World()
    world.jobs_are_limited = True
    machine = world.machines["a001"]
    machine.place, machine.has_job = place, bool(job_hours)
    machine.job_ends = BEGIN + job_hours * HOUR
    world.reservations.by_name = {one.name: one for one in there}
    return world


# the world, a new one from the first hour to the second -> Slurm's words
REFUSED = {
    "free": (world_with(), ""),
    "before another": (world_with(at(2, 3, "other")), ""),
    "behind another": (world_with(at(0, 1, "other")), ""),
    "into another": (world_with(at(1.5, 3, "other")), "overlaps"),
    "of the same name": (world_with(at(5, 6)), "Duplicate"),
    "a job ends before it": (world_with(job_hours=1), ""),
    "a job may run into it": (world_with(job_hours=1.1), "busy"),
    "it is lent": (world_with(place="kubernetes"), "overlaps"),
}


@pytest.mark.parametrize(("world", "words"), REFUSED.values(), ids=REFUSED)
def test_slurm_refuses_what_it_can_not_keep(world: World, words: str) -> None:
    answer = reserve(world, at(1, 2))
    assert words in answer and bool(answer) == bool(words)
    assert not list(booked_twice(world)) and (world.reserved.get("new") == at(1, 2)) != bool(words)


def test_nothing_is_reserved_in_the_past() -> None:
    world = world_with()
    world.advance(7200)
    assert "Invalid time" in reserve(world, at(1, 3)) and not world.reserved


def test_no_job_starts_that_would_run_into_one_and_it_is_gone_when_it_is_over() -> None:
    """Jobs last ten minutes, three hours and two days, in turns."""
    world = world_with(at(1, 2))
    for name, machine in world.machines.items():
        machine.is_down = name != "a001"
    world.waiting_jobs = 2
    world.advance(1)
    assert world.machines["a001"].has_job and world.waiting_jobs == 1
    world.advance(1800)
    assert not world.machines["a001"].has_job
    world.advance(5600)
    world.settle()
    assert not world.reserved and world.machines["a001"].has_job and not world.broken


def test_what_must_not_be_is_seen() -> None:
    world = world_with(at(1, 3, "one"), at(2, 4, "two"), at(2, 4, "three", "west"))
    assert list(booked_twice(world)) == ["a001 is in one and in two for the same time"]
    assert not reserve(world, at(1, 2, "four"), over_others=True)
    theirs = at(5, 6, "theirs", ADMIN)
    world.of_admins = {"theirs": theirs}
    assert "theirs" in next(taken_from_others(world))
    world.reserved["theirs"] = theirs
    assert not list(taken_from_others(world))
    world.machines["a001"].has_job, world.machines["a001"].job_ends = True, BEGIN + 9 * HOUR
    world.advance(3600)
    world.settle()
    assert "one has begun over the job on a001" in world.broken
