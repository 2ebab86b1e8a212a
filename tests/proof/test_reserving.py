"""The judges of reservations see what must not be."""

from __future__ import annotations

from datetime import timedelta

from dnm.lab.sandbox.reservations import Reservation
from tests.proof.reserving import ADMIN, booked_twice, reserve, taken_from_others
from tests.proof.world import BEGIN, World

HOUR = timedelta(hours=1)


def at(begins: float, ends: float, name: str = "new", maker: str = "east") -> Reservation:
    """Of a001, in hours from the beginning."""
    since, until = ((BEGIN + hours * HOUR).timestamp() for hours in (begins, ends))
    return Reservation(name=name, node="a001", instance=maker, begins=since, ends=until)


def test_what_must_not_be_is_seen() -> None:
    world = World()
    world.jobs_are_limited = True
    there = (at(1, 3, "one"), at(2, 4, "two"), at(2, 4, "three", "west"))
    world.reservations.by_name = {one.name: one for one in there}
    assert list(booked_twice(world)) == ["a001 is in one and in two for the same time"]
    assert not reserve(world, at(1, 2, "four"), over_others=True)
    theirs = at(5, 6, "theirs", ADMIN)
    world.of_admins = {"theirs": theirs}
    assert "theirs" in next(taken_from_others(world))
    world.reserved["theirs"] = theirs
    assert not list(taken_from_others(world))
    world.batch.start_job(["a001"], run_seconds=9 * HOUR.total_seconds())
    world.advance(3600)
    world.settle()
    assert "one has begun over the job on a001" in world.broken
