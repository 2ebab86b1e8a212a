"""Taking a node from Slurm by a reservation and a drain, and giving it back. Nothing else drains or
resumes; bookings of events (`event_bookings`) and turns are reservations too.

The reservation is an atomic test-and-set (`reserve_command`). Then comes the drain, with our mark
and our operation in its reason, which is the fence that lasts; then both are read back. Undone is
only what carries our mark, and only by looking first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dnm.converters.conversion import SLURM_PATIENCE, NodeConversion, NotClaimed
from dnm.converters.journal import PREVIOUS_DRAIN
from dnm.converters.marks import (
    drain_reason,
    is_own_reason,
    is_predecessors_reason,
    plain_state,
    reason_of_drain,
    why_not_ours,
)
from dnm.converters.reservation import own_reservations, release, reservations_of, uncharge
from dnm.converters.select import is_own_booking, service_of
from dnm.converters.slurm.commands import IN_ANOTHER, SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmJob, SlurmNode
from dnm.model.errors import ConverterError

RESERVING = "reserving"  # key of the journal's facts: the reservation that we set out to make
# PLANNED stays until Slurm plans again; on a node that is drained and reserved nothing starts.
_WHILE_TAKEN = frozenset(("DRAIN", "RESERVED", "PLANNED"))
_WHILE_AWAY = _WHILE_TAKEN | {"NOT_RESPONDING", "INVALID_REG"}  # its slurmd has been stopped


def reserve(conversion: NodeConversion, flags: str = "") -> None:
    """Raises NotClaimed where Slurm says no. With IGNORE_JOBS it holds a node on which a job runs,
    so that no other can start. A node that is booked for an event is taken from under its booking,
    which keeps others' jobs away until the window is over; the name is given once all the same, and
    the drain looks again whether a job is there. After a lost answer the command may still be
    carried out: a reservation that is there then is taken for ours; should it be another's, the
    operation in the drain's reason tells."""
    name = conversion.reservation
    there = reservations_of(conversion)
    if any(one.name == name for one in there):
        if conversion.journal.facts.get(RESERVING) == name:
            return
        raise NotClaimed(f"the reservation {name} is there already: another conversion has it")
    conversion.book.remember({RESERVING: name})
    end, is_lost = _end_before(there), False
    deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
    while True:
        allowed = IN_ANOTHER if _is_booked(conversion, there) else flags
        try:
            return conversion.slurm.create_reservation(name, conversion.node, end, allowed)
        except SlurmRefused as error:
            if not (is_lost and any(one.name == name for one in reservations_of(conversion))):
                conversion.book.remember({RESERVING: ""})
                raise NotClaimed(f"Slurm does not let go of it: {error.answer}") from error
        except SlurmOutcomeUnknown as error:
            if time.monotonic() > deadline:
                raise
            is_lost = True
            conversion.say(f"outcome unknown, looks what is there: {error}")
        conversion.wait(conversion.settings.poll_seconds)
        there = reservations_of(conversion)
        if any(one.name == name for one in there):
            return


def _is_booked(conversion: NodeConversion, there: tuple[Reservation, ...]) -> bool:
    node, instance, now = conversion.node, conversion.settings.instance, datetime.now(UTC)
    return any(
        is_own_booking(one, node, instance) and one.start is not None and one.start <= now
        for one in there
    )


def _end_before(there: tuple[Reservation, ...]) -> datetime | None:
    """A minute before the node's next reservation, which ours must not overlap; the drain lasts."""
    now = datetime.now(UTC)
    starts = [
        one.start
        for one in there
        if one.start and one.start > now and not {"MAINT", "OVERLAP"} & set(one.flags)
    ]
    return min(starts) - timedelta(minutes=1) if starts else None


class InSlurm(NamedTuple):
    """What Slurm has of the machine, and which reservations of it are ours."""

    node: SlurmNode
    jobs: Sequence[SlurmJob]
    own: Sequence[Reservation] = ()

    @property
    def in_service(self) -> bool | None:
        return service_of(self.node, self.jobs, self.own[0].name if self.own else "")

    def __str__(self) -> str:
        return f"{self.node.state.text}, {len(self.jobs)} job(s)"

    def refuse_work(self) -> None:
        """Raises ConverterError for a lent node that Slurm works on."""
        if self.in_service:
            raise ConverterError(
                f"there is work on {self.node.name} ({self}) although it is "
                "lent: nothing is done to it; repeat when the work has ended"
            )

    def refuse_unknown(self) -> None:
        """Raises ConverterError for a node of which Slurm does not say whether it has it."""
        if self.in_service is None:
            raise ConverterError(
                f"whether Slurm has {self.node.name} in service can't be told "
                f"({self.node.state.text}): nothing is done; look at the node and try again"
            )


def in_slurm(conversion: NodeConversion) -> InSlurm:
    """Returns all of it, jobs last, so that what starts in between is seen. Raises SlurmError."""
    node, own = conversion.read_node(), own_reservations(conversion)
    return InSlurm(node, conversion.read_jobs(), own)


def drain(conversion: NodeConversion, may_work: bool = False) -> None:
    """Drains the node with our mark. Raises NotClaimed where the node is no longer what it was when
    it was chosen, also after a try whose outcome is unknown: a person may have drained it since.
    `may_work` where jobs are on it that will be preempted."""
    conversion.change_slurm(
        lambda: _drain(conversion, may_work),
        lambda: _is_drained_by(conversion, conversion.read_node()),
    )


def _drain(conversion: NodeConversion, may_work: bool) -> None:
    settings, operation = conversion.settings, conversion.journal.operation
    node = conversion.read_node()
    if why := why_not_ours(settings.machines, node):
        raise NotClaimed(why)
    node = plain_state(settings.machines, node)
    allowed = {"RESERVED", "COMPLETING"} if may_work else {"RESERVED"}
    if previous := conversion.journal.facts.get(PREVIOUS_DRAIN):
        if reason_of_drain(node) != previous:
            raise NotClaimed(f"it is no more drained as it was ({previous}): {node.state.text}")
        allowed.add("DRAIN")
    if "PLANNED" in node.state.flags and _is_booked(conversion, reservations_of(conversion)):
        allowed.add("PLANNED")  # for when the booking is over
    bases = ("IDLE", "ALLOCATED", "MIXED") if may_work else ("IDLE", "DOWN" if previous else "IDLE")
    if node.state.base not in bases or node.state.flags - allowed:
        raise NotClaimed(f"it is {node.state.text} by now {node.reason}".rstrip())
    reason = drain_reason(settings, operation)
    marks = _marks(node, f"dnm:{settings.instance} {operation}")
    conversion.slurm.drain(conversion.node, reason, marks)


def _marks(node: SlurmNode, mark: str) -> dict[str, str]:
    """Comment, else Extra (Slurm 21.08 and later), if free; marks that were left are cleared."""
    found = {"comment": node.comment} | (
        {"extra": node.extra or ""} if node.tells_last_busy else {}
    )
    free = [key for key, text in found.items() if not text or text.startswith("dnm:")]
    return {**{key: "" for key in free if found[key]}, **dict.fromkeys(free[:1], mark)}


def _own_marks(conversion: NodeConversion) -> Mapping[str, str]:
    """Returns the marks to be cleared: what is not ours stays."""
    node, ours = conversion.read_node(), f"dnm:{conversion.settings.instance} "
    found = {"comment": node.comment, "extra": node.extra or ""}
    return {key: "" for key, text in found.items() if text.startswith(ours)}


def _is_drained_by(conversion: NodeConversion, node: SlurmNode) -> bool:
    """Whether our mark is on its drain, with this operation."""
    reason = reason_of_drain(node)
    is_of_operation = f"op={conversion.journal.operation}" in reason.split()
    return is_of_operation and is_own_reason(conversion.settings, reason)


def check_claim(
    conversion: NodeConversion, may_be_away: bool = False, is_reserved: bool = True
) -> None:
    """Reads back everything that makes the node ours: drained by this operation, no job, nothing
    allocated, our reservation. `may_be_away` once its slurmd may have been stopped; `is_reserved`
    False once the reservation had to go, and the drain alone holds it. Raises NotClaimed. A
    suspended job shows in the jobs and the memory only."""
    found = in_slurm(conversion)
    node = plain_state(conversion.settings.machines, found.node)
    if not _is_drained_by(conversion, node):
        raise NotClaimed(f"it is {node.state.text} by now, not drained by us: {node.reason!r}")
    is_down = may_be_away or PREVIOUS_DRAIN in conversion.journal.facts  # by the boot of a test
    bases = ("IDLE", "DOWN") if is_down else ("IDLE",)
    allowed = _WHILE_AWAY if may_be_away else _WHILE_TAKEN
    if any(one.is_charged for one in found.own):
        allowed |= {"MAINTENANCE"}
    if node.state.base not in bases or node.state.flags - allowed:
        raise NotClaimed(f"it is {node.state.text}")
    if node.cpus_allocated or node.memory_allocated:
        raise NotClaimed(
            f"{node.cpus_allocated} CPUs and {node.memory_allocated} MB are allocated on it"
        )
    if found.jobs:
        raise NotClaimed(f"job {found.jobs[0].display_id} of {found.jobs[0].user} is on it")
    if is_reserved and not found.own:
        raise NotClaimed(f"the reservation {conversion.reservation} is gone")


def give_back(conversion: NodeConversion) -> str:
    """Undoes drain and reservation as far as they are this operation's; says what was left. Raises
    SlurmError where that can't be done now; the node then stays out of service."""
    node = conversion.read_node()
    is_drained = "DRAIN" in node.state.flags
    is_ours = is_own_reason(conversion.settings, node.reason)
    if is_drained and is_ours and not _is_drained_by(conversion, node):
        return "another conversion of ours has it; left as it is"
    if (is_drained and is_ours) or _lacks_its_drain(conversion, node):
        lift_drain(conversion)
    clear_marks(conversion)
    if conversion.journal.facts.get(RESERVING):
        release(conversion)
    return f"left drained: {node.reason}" if is_drained and not is_ours else ""


def lift_drain(conversion: NodeConversion) -> str:
    """Resumes the node and clears our marks in one command; whose drain it is, the caller knows.
    Until then the drain holds it, and the reservation again from before that. One that was there
    before ours is put back instead."""
    if previous := conversion.journal.facts.get(PREVIOUS_DRAIN):
        return _leave_drained(conversion, previous)
    uncharge(conversion)
    settings, marks = conversion.settings, _own_marks(conversion)

    def is_lifted() -> bool:
        # Patient: scontrol repeats a command whose answer was lost, and a slurmctld that was just
        # started refuses the second one while it knows no state yet. Another's may be there by now.
        reason = reason_of_drain(conversion.read_node())
        return not (is_own_reason(settings, reason) or is_predecessors_reason(settings, reason))

    conversion.change_slurm(lambda: conversion.slurm.resume(conversion.node, marks), is_lifted)
    return "in service"


def settle_drain(
    conversion: NodeConversion, node: SlurmNode, is_ours: bool, passing: str = ""
) -> str:
    """Lifts our drain, or where the node is sick makes it one of nobody's, for a person to resume.
    Another's stays, but of a sick node one that begins with `passing`: such are lifted unasked."""
    sick = conversion.settings.leave_drained
    is_ours = is_ours or _lacks_its_drain(conversion, node)
    is_drained = "DRAIN" in node.state.flags
    passes = passing and (not is_drained or node.reason.startswith(passing))
    if sick and (is_ours or passes):
        return _leave_drained(conversion, f"sick in Kubernetes: {sick}")
    if is_ours:
        return lift_drain(conversion)
    if is_drained:
        conversion.say(note := f"left drained, as somebody else wants it: {node.reason}")
        return note
    return "in service"


def _lacks_its_drain(conversion: NodeConversion, node: SlurmNode) -> bool:
    """Whether our reservation alone holds what is to stay drained: who did it was killed midway."""
    stays = conversion.settings.leave_drained or PREVIOUS_DRAIN in conversion.journal.facts
    return bool(stays and "DRAIN" not in node.state.flags and own_reservations(conversion))


def _leave_drained(conversion: NodeConversion, reason: str) -> str:
    """One that was away is DOWN, which only a resume ends: the reservation holds it meanwhile."""
    uncharge(conversion)
    marks = _own_marks(conversion)

    def is_left() -> bool:
        return reason_of_drain(conversion.read_node()).startswith(reason)

    if own_reservations(conversion):
        conversion.change_slurm(
            lambda: conversion.slurm.resume(conversion.node, {}),
            lambda: conversion.read_node().state.base != "DOWN",
        )
    conversion.change_slurm(lambda: conversion.slurm.drain(conversion.node, reason, marks), is_left)
    return f"left drained: {reason}"


def clear_marks(conversion: NodeConversion) -> None:
    """Clears the marks that are left where somebody else has lifted our drain."""
    conversion.change_slurm(
        lambda: conversion.slurm.mark(conversion.node, _own_marks(conversion)),
        lambda: not _own_marks(conversion),
    )
