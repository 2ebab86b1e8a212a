"""Reservations of the model's Slurm, whoever made them: what Slurm allows, and what is never right.

The shipped `--book` and `--unbook` (`dnm/converters/event_bookings.py`) are played on it by
`ModelSlurm`. Whose a reservation is, is known by who made it, never by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmJob, SlurmNode
from dnm.host.fault_points import fault_point
from dnm.model.errors import SlurmError
from dnm.model.slurm_state import NodeState

if TYPE_CHECKING:
    from tests.proof.edges import Weather
    from tests.proof.world import Machine, World

ADMIN = "admin"
FAILS = ("refused", "away", "lost", "killed", "killed after")  # how a command of Slurm's may end
_BUSY = "Error creating the reservation: Requested nodes are busy"
_OVERLAPS = "Error creating the reservation: Requested reservation overlaps with another"
_DUPLICATE = "Error creating the reservation: Duplicate reservation name"
_PAST = "Error creating the reservation: Invalid time specified"
_LOOKAHEAD = timedelta(days=1)  # a node that is reserved within it is not lent


class Reserved(msgspec.Struct, kw_only=True):
    """A node of one reservation. `maker`: an instance, or `ADMIN`."""

    name: str
    node: str
    begins: datetime
    ends: datetime
    maker: str

    def overlaps(self, begins: datetime, ends: datetime) -> bool:
        return self.begins < ends and begins < self.ends


def reserved_on(world: World, node: str) -> list[Reserved]:
    """All that are not over, however far ahead."""
    return [one for one in world.reserved.values() if one.node == node]


def reserve(
    world: World, new: Reserved, *, over_jobs: bool = False, over_others: bool = False
) -> str:
    """`scontrol create reservation`: empty, or Slurm's sentence where it refuses."""
    machine = world.machines[new.node]
    others = [one for one in reserved_on(world, new.node) if one.overlaps(new.begins, new.ends)]
    if new.begins < world.now:
        return _PAST
    if (others or machine.place != "batch") and not over_others:
        return _OVERLAPS  # with what its converter has reserved for a year
    if new.name in world.reserved:
        return _DUPLICATE
    if machine.has_job and machine.job_ends > new.begins and not over_jobs:
        return _BUSY
    world.reserved[new.name] = new
    return ""


def forget_those_over(world: World) -> None:
    """Slurm purges them itself."""
    for name in [name for name, one in world.reserved.items() if one.ends <= world.now]:
        del world.reserved[name]


def may_start(world: World, machine: Machine, limit: timedelta) -> bool:
    """Whether Slurm starts somebody's job there: none that would run into a reservation."""
    ends = world.now + limit
    return not any(one.begins < ends for one in reserved_on(world, machine.name))


def is_reserved_now(world: World, machine: Machine) -> bool:
    return any(one.begins <= world.now for one in reserved_on(world, machine.name))


def is_kept_from(world: World, machine: Machine, instance: str) -> bool:
    """Whether a converter of an instance leaves it alone for a reservation: every one but its own
    that has begun."""
    soon = [one for one in reserved_on(world, machine.name) if one.begins <= world.now + _LOOKAHEAD]
    return any(one.maker != instance or one.begins > world.now for one in soon)


def is_booked_now(world: World, machine: Machine, instance: str) -> bool:
    here = reserved_on(world, machine.name)
    return any(one.maker == instance and one.begins <= world.now for one in here)


def is_of_event(one: Reserved, event: str, begins: datetime) -> bool:
    """By the name that the documentation gives it: `dnm-ev-NAME-BEGIN-MARK-NODE`."""
    return one.name.startswith(f"dnm-ev-{event}-{begins:%Y%m%dT%H%M}-")


def look_for_lost_jobs(world: World) -> None:
    """A job under a reservation that has begun would end for it."""
    for one in world.reserved.values():
        if world.machines[one.node].has_job and one.begins <= world.now:
            world.broken.append(f"{one.name} has begun over the job on {one.node}")


def booked_twice(world: World) -> Iterator[str]:
    """Nodes of which one maker has two reservations for the same time."""
    for one, other in combinations(world.reserved.values(), 2):
        is_twice = one.node == other.node and one.maker == other.maker
        if is_twice and one.overlaps(other.begins, other.ends):
            yield f"{one.node} is in {one.name} and in {other.name} for the same time"


def taken_from_others(world: World) -> Iterator[str]:
    """What administrators have reserved stands as they made it until it is over."""
    for name, one in world.of_admins.items():
        if one.ends > world.now and world.reserved.get(name) != one:
            yield f"the reservation {name}, which is an administrator's, is changed or gone"


class ModelSlurm:
    """As `--book` and `--unbook` of one call see it; each command passes a fault point. `killed`:
    what is raised where the program is, with all that waits for it."""

    def __init__(
        self, world: World, instance: str, weather: Weather, killed: BaseException
    ) -> None:
        self.world, self.instance, self.weather = world, instance, weather
        self.killed = killed

    def check_controller(self) -> None:
        self._read()

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        self._read()
        return tuple(map(self._node, self.world.machines.values()))

    def read_reservations(self) -> tuple[Reservation, ...]:
        """With those that converters have made of the nodes that they hold."""
        self._read()
        world = self.world
        found = [
            Reservation(name=one.name, start=one.begins, end=one.ends, nodes=(one.node,))
            for one in world.reserved.values()
        ]
        held = [one.name for one in world.machines.values() if one.place != "batch"]
        year = world.now + timedelta(days=365)
        return (
            *found,
            *(
                Reservation(name=f"k8s-{name}", start=world.now, end=year, nodes=(name,))
                for name in held
            ),
        )

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        self._read()
        return ()  # a booking is refused by Slurm, not by who has read the jobs

    def book(self, name: str, node: str, begins: datetime, until: datetime) -> None:
        self._create(name, node, begins, until)

    def create_reservation(
        self, name: str, node: str, end: datetime | None = None, ignore_jobs: bool = False
    ) -> None:
        """Flags that pass over a job are there to be taken, and are judged."""
        year = self.world.now + timedelta(days=365)
        self._create(name, node, self.world.now, end or year, over_jobs=ignore_jobs)

    def create_overlapping_reservation(
        self, name: str, node: str, end: datetime | None = None
    ) -> None:
        year = self.world.now + timedelta(days=365)
        self._create(name, node, self.world.now, end or year, over_jobs=True, over_others=True)

    def move_booking(self, name: str, begins: datetime, until: datetime) -> None:
        def move() -> str:
            old = self.world.reserved.pop(name, None)
            if old is None:
                return "Requested reservation is invalid"
            if old.maker != self.instance:
                self.world.broken.append(f"{self.instance} moved {old.maker}'s {name}")
            answer = reserve(self.world, msgspec.structs.replace(old, begins=begins, ends=until))
            if answer:
                self.world.reserved[name] = old
            else:
                self.weather.effects.append(f"move {name}")
            return answer

        self._change("slurm.update_reservation", move)

    def delete_reservation(self, name: str) -> None:
        def delete() -> str:
            one = self.world.reserved.get(name)
            if one is None:
                return "Requested reservation is invalid"
            if one.maker != self.instance:
                self.world.broken.append(f"{self.instance} deleted {one.maker}'s {name}")
            del self.world.reserved[name]
            self.weather.effects.append(f"give up {name}")
            return ""

        self._change("slurm.delete_reservation", delete)

    def _create(
        self, name: str, node: str, begins: datetime, until: datetime, **flags: bool
    ) -> None:
        def create() -> str:
            new = Reserved(name=name, node=node, begins=begins, ends=until, maker=self.instance)
            answer = reserve(self.world, new, **flags)
            if not answer:
                self.world.booked += 1
                self.weather.effects.append(f"book {name}")
            return answer

        self._change("slurm.create_reservation", create)

    def _read(self) -> None:
        how = self._told()
        if how in ("refused", "away"):
            raise SlurmError(f"Slurm: {how}")
        try:
            with fault_point("slurm.read"):
                pass
        except OSError as error:
            raise SlurmError(str(error)) from error

    def _change(self, point: str, change: Callable[[], str]) -> None:
        """A command whose answer is lost was carried out, or was not."""
        how = self._told()
        if how == "away":
            raise SlurmOutcomeUnknown("Slurm: no answer")
        try:
            with fault_point(point):
                answer = "Access/permission denied" if how == "refused" else change()
        except OSError as error:
            raise SlurmError(str(error)) from error
        if how == "killed after":
            raise self.killed
        if answer:
            raise SlurmRefused(answer, answer)
        if how == "lost":
            raise SlurmOutcomeUnknown("Slurm: its answer is lost")

    def _told(self) -> str:
        how = self.weather.next_slurm()
        if how == "killed":
            raise self.killed
        return how

    def _node(self, machine: Machine) -> SlurmNode:
        base = "IDLE"
        if machine.is_down or machine.place in ("kubernetes", "returning"):
            base = "DOWN"
        elif machine.has_job:
            base = "ALLOCATED"
        flags = set()
        if machine.is_drained_by_admin or (machine.place != "batch" and not machine.in_service):
            flags.add("DRAIN")
        if is_reserved_now(self.world, machine):
            flags.add("RESERVED")
        state = NodeState(base=base, flags=frozenset(flags))
        return SlurmNode(name=machine.name, state=state, cpus_allocated=0, memory_allocated=0)
