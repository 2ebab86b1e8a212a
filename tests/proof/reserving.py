"""Reservations of the model's Slurm, which are the sandbox's own, and what is never right with one.

The shipped `--book` and `--unbook` (`dnm/converters/event_bookings.py`) are played on it by
`ModelSlurm`. Whose a reservation is, is known by who made it, never by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import Reservation as Listed
from dnm.converters.slurm.text import SlurmJob, SlurmNode
from dnm.host.fault_points import fault_point
from dnm.lab.sandbox.reservations import Reservation
from dnm.model.errors import SlurmError
from dnm.model.slurm_state import NodeState

if TYPE_CHECKING:
    from tests.proof.edges import Weather
    from tests.proof.world import Machine, World

ADMIN = ""  # as the sandbox has it
FAILS = ("refused", "away", "lost", "killed", "killed after")  # how a command of Slurm's may end


def reserve(
    world: World, new: Reservation, *, over_jobs: bool = False, over_others: bool = False
) -> str:
    """`scontrol create reservation`: empty, or Slurm's sentence where it refuses."""
    if over_others:
        world.reserved[new.name] = new
        return ""
    if over_jobs and not world.machines[new.node].reserved:
        return world.reservations.create(new, world.clock.now(), 0.0)
    return world.batch.reserve(new.name, new.node, (new.begins, new.ends), new.instance)


def is_of_event(one: Reservation, event: str, begins: datetime) -> bool:
    """By the name that the documentation gives it: `dnm-ev-NAME-BEGIN-MARK-NODE`."""
    return one.name.startswith(f"dnm-ev-{event}-{begins:%Y%m%dT%H%M}-")


def look_for_lost_jobs(world: World) -> None:
    """A job under a reservation that has begun would end for it."""
    for one in world.reserved.values():
        has_job = world.batch.jobs_on(world.machines[one.node])
        if has_job and one.begins <= world.now.timestamp():
            world.broken.append(f"{one.name} has begun over the job on {one.node}")


def booked_twice(world: World) -> Iterator[str]:
    """Nodes of which one maker has two reservations for the same time."""
    for one, other in combinations(world.reserved.values(), 2):
        if one.instance == other.instance and one.overlaps(other):
            yield f"{one.node} is in {one.name} and in {other.name} for the same time"


def taken_from_others(world: World) -> Iterator[str]:
    """What administrators have reserved stands as they made it until it is over."""
    for name, one in world.of_admins.items():
        if one.ends > world.now.timestamp() and world.reserved.get(name) != one:
            yield f"the reservation {name}, which is an administrator's, is changed or gone"


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


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

    def read_reservations(self) -> tuple[Listed, ...]:
        """With those that converters have made of the nodes that they hold."""
        self._read()
        world = self.world
        found = [
            Listed(name=one.name, start=at(one.begins), end=at(one.ends), nodes=(one.node,))
            for one in world.reserved.values()
        ]
        held = [one.name for one in world.machines.values() if one.place != "batch"]
        year = world.now + timedelta(days=365)
        return (
            *found,
            *(
                Listed(name=f"k8s-{name}", start=world.now, end=year, nodes=(name,))
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
            if old.instance != self.instance:
                self.world.broken.append(f"{self.instance} moved {old.instance}'s {name}")
            span = {"begins": begins.timestamp(), "ends": until.timestamp()}
            answer = reserve(self.world, msgspec.structs.replace(old, **span))
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
            if one.instance != self.instance:
                self.world.broken.append(f"{self.instance} deleted {one.instance}'s {name}")
            del self.world.reserved[name]
            self.weather.effects.append(f"give up {name}")
            return ""

        self._change("slurm.delete_reservation", delete)

    def _create(
        self, name: str, node: str, begins: datetime, until: datetime, **flags: bool
    ) -> None:
        def create() -> str:
            new = Reservation(
                name=name, node=node, begins=begins.timestamp(), ends=until.timestamp(),
                instance=self.instance,
            )  # fmt: skip
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
        base, *flags = self.world.batch.state_of(machine).split("+")
        state = NodeState(base=base, flags=frozenset(flags))
        return SlurmNode(name=machine.name, state=state, cpus_allocated=0, memory_allocated=0)
