"""Claims: dnm claims a node in Slurm by a reservation and a drain, and releases both. No other
module drains or resumes nodes. Reservations for events or as locks (`reservation`) are no claims.

The reservation is an atomic test-and-set (`reserve_command`). The drain follows and outlasts it.
Its Reason contains dnm's mark and the operation. Then dnm reads both back. It undoes only a drain
and reservation that carry its mark, after reading them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dnm.converters.conversion import SLURM_PATIENCE, NodeConversion, NotClaimed
from dnm.converters.journal import PREVIOUS_DRAIN
from dnm.converters.marks import (
    drain_reason,
    foreign_reason,
    is_own_reason,
    is_predecessors_reason,
    plain_state,
    reason_of_drain,
)
from dnm.converters.reservation import own_reservations, release, reservations_of, uncharge
from dnm.converters.select import is_for_own_event, service_of
from dnm.converters.slurm.commands import IN_ANOTHER, SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmJob, SlurmNode
from dnm.model.errors import ConverterError

RESERVING = "reserving"  # key of the journal's facts: the reservation that dnm is about to make
# PLANNED stays until Slurm plans again; nothing starts on a drained and reserved node.
_WHILE_TAKEN = frozenset(("DRAIN", "RESERVED", "PLANNED"))
_WHILE_AWAY = _WHILE_TAKEN | {"NOT_RESPONDING", "INVALID_REG"}  # its slurmd has been stopped


def reserve(conversion: NodeConversion, flags: str = "") -> None:
    """Reserves the node. Raises NotClaimed if Slurm refuses. `flags` IGNORE_JOBS: jobs may run on
    the node, but the reservation lets no further job start. If the node is reserved for an event,
    dnm's reservation overlaps the event's, which keeps off other users' jobs. In both cases Slurm
    checks only that the name is free; dnm checks for jobs when it drains the node. If Slurm's
    answer is lost, an existing reservation with this name counts as this operation's. If another
    operation made it, the Reason of the drain shows that."""
    name = conversion.reservation
    existing = reservations_of(conversion)
    if any(reservation.name == name for reservation in existing):
        if conversion.journal.facts.get(RESERVING) == name:
            return
        raise NotClaimed(f"the reservation {name} is there already: another conversion has it")
    conversion.writer.remember({RESERVING: name})
    end, is_lost = _end_before(existing), False
    deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
    while True:
        allowed = IN_ANOTHER if _has_event(conversion, existing) else flags
        try:
            return conversion.slurm.create_reservation(name, conversion.node, end, allowed)
        except SlurmRefused as error:
            if not (is_lost and any(resv.name == name for resv in reservations_of(conversion))):
                conversion.writer.remember({RESERVING: ""})
                raise NotClaimed(f"Slurm refuses to reserve it: {error.answer}") from error
        except SlurmOutcomeUnknown as error:
            if time.monotonic() > deadline:
                raise
            is_lost = True
            conversion.log(f"outcome unknown, reads Slurm's state: {error}")
        conversion.wait(conversion.settings.poll_seconds)
        existing = reservations_of(conversion)
        if any(reservation.name == name for reservation in existing):
            return


def _has_event(conversion: NodeConversion, existing: tuple[Reservation, ...]) -> bool:
    node, instance, now = conversion.node, conversion.settings.instance, datetime.now(UTC)
    return any(
        is_for_own_event(resv, node, instance) and resv.start is not None and resv.start <= now
        for resv in existing
    )


def _end_before(existing: tuple[Reservation, ...]) -> datetime | None:
    """Returns the end for dnm's reservation: a minute before the next one of any owner, or None."""
    now = datetime.now(UTC)
    starts = [
        resv.start
        for resv in existing
        if resv.start and resv.start > now and not {"MAINT", "OVERLAP"} & set(resv.flags)
    ]
    return min(starts) - timedelta(minutes=1) if starts else None


class InSlurm(NamedTuple):
    """Slurm's record of the node, the jobs on it, and dnm's reservations of it."""

    node: SlurmNode
    jobs: Sequence[SlurmJob]
    own: Sequence[Reservation] = ()

    @property
    def in_service(self) -> bool | None:
        return service_of(self.node, self.jobs, self.own[0].name if self.own else "")

    def __str__(self) -> str:
        return f"{self.node.state.text}, {len(self.jobs)} job(s)"

    def refuse_work(self) -> None:
        """Raises ConverterError if Slurm has the node in service although it is lent."""
        if self.in_service:
            raise ConverterError(
                f"there is work on {self.node.name} ({self}) although it is "
                "lent: nothing is done to it; repeat when the work has ended"
            )

    def refuse_unknown(self) -> None:
        """Raises ConverterError if the state does not show whether the node is in service."""
        if self.in_service is None:
            raise ConverterError(
                f"whether Slurm has {self.node.name} in service can't be read "
                f"({self.node.state.text}): nothing is done; check the node and try again"
            )


def in_slurm(conversion: NodeConversion) -> InSlurm:
    """Reads node, reservations and, last, jobs, so that no job is missed. Raises SlurmError."""
    node, own = conversion.read_node(), own_reservations(conversion)
    return InSlurm(node, conversion.read_jobs(), own)


def drain(conversion: NodeConversion, may_work: bool = False) -> None:
    """Drains the node with dnm's mark. Raises NotClaimed if the node is no longer in the state in
    which it was chosen, e.g. because an administrator has drained it. With `may_work`, the node may
    run jobs, which dnm preempts later."""
    conversion.change_slurm(
        lambda: _drain(conversion, may_work),
        lambda: _is_drained_by(conversion, conversion.read_node()),
    )


def _drain(conversion: NodeConversion, may_work: bool) -> None:
    settings, operation = conversion.settings, conversion.journal.operation
    node = conversion.read_node()
    if refusal := foreign_reason(settings.machines, node):
        raise NotClaimed(refusal)
    node = plain_state(settings.machines, node)
    allowed = {"RESERVED", "COMPLETING"} if may_work else {"RESERVED"}
    if previous := conversion.journal.facts.get(PREVIOUS_DRAIN):
        if reason_of_drain(node) != previous:
            raise NotClaimed(f"its drain has changed, it was {previous!r}: {node.state.text}")
        allowed.add("DRAIN")
    if "PLANNED" in node.state.flags and _has_event(conversion, reservations_of(conversion)):
        allowed.add("PLANNED")  # Slurm plans for the time after the reservation
    bases = ("IDLE", "ALLOCATED", "MIXED") if may_work else ("IDLE", "DOWN" if previous else "IDLE")
    if node.state.base not in bases or node.state.flags - allowed:
        raise NotClaimed(f"it is {node.state.text} now {node.reason}".rstrip())
    reason = drain_reason(settings, operation)
    marks = _marks(node, f"dnm:{settings.instance} {operation}")
    conversion.slurm.drain(conversion.node, reason, marks)


def _marks(node: SlurmNode, mark: str) -> dict[str, str]:
    """Returns the changes of Comment and Extra (since Slurm 21.08) that put dnm's mark into the
    first of them that is free, and remove old marks of dnm."""
    texts = {"comment": node.comment} | ({"extra": node.extra or ""} if node.has_last_busy else {})
    free = [key for key, text in texts.items() if not text or text.startswith("dnm:")]
    return {**{key: "" for key in free if texts[key]}, **dict.fromkeys(free[:1], mark)}


def _own_marks(conversion: NodeConversion) -> Mapping[str, str]:
    """Returns the changes of Comment and Extra that clear this instance's mark in them."""
    node, own_mark = conversion.read_node(), f"dnm:{conversion.settings.instance} "
    texts = {"comment": node.comment, "extra": node.extra or ""}
    return {key: "" for key, text in texts.items() if text.startswith(own_mark)}


def _is_drained_by(conversion: NodeConversion, node: SlurmNode) -> bool:
    """Returns whether this conversion drained the node, by the mark and operation in the Reason."""
    reason = reason_of_drain(node)
    is_of_operation = f"op={conversion.journal.operation}" in reason.split()
    return is_of_operation and is_own_reason(conversion.settings, reason)


def check_claim(
    conversion: NodeConversion, may_be_away: bool = False, is_reserved: bool = True
) -> None:
    """Raises NotClaimed unless Slurm shows the node as claimed: this operation's drain, dnm's
    reservation, no job, and nothing allocated. A suspended job is seen only in the list of jobs and
    in allocated memory. With `may_be_away`, slurmd may be stopped. Without `is_reserved`, dnm has
    deleted the reservation already, and the drain alone holds the node."""
    state = in_slurm(conversion)
    node = plain_state(conversion.settings.machines, state.node)
    if not _is_drained_by(conversion, node):
        raise NotClaimed(f"it is {node.state.text} now, not drained by dnm: {node.reason!r}")
    is_down = may_be_away or PREVIOUS_DRAIN in conversion.journal.facts  # after a reboot by a test
    bases = ("IDLE", "DOWN") if is_down else ("IDLE",)
    allowed = _WHILE_AWAY if may_be_away else _WHILE_TAKEN
    if any(reservation.is_charged for reservation in state.own):
        allowed |= {"MAINTENANCE"}
    if node.state.base not in bases or node.state.flags - allowed:
        raise NotClaimed(f"it is {node.state.text}")
    if node.cpus_allocated or node.memory_allocated:
        raise NotClaimed(
            f"{node.cpus_allocated} CPUs and {node.memory_allocated} MB are allocated on it"
        )
    if state.jobs:
        raise NotClaimed(f"job {state.jobs[0].display_id} of {state.jobs[0].user} is on it")
    if is_reserved and not state.own:
        raise NotClaimed(f"the reservation {conversion.reservation} is gone")


def return_nodes(conversion: NodeConversion) -> str:
    """Removes this conversion's drain and reservation. Returns a note if another drain is left.
    Raises SlurmError if Slurm does not carry that out; the node then stays out of service."""
    node = conversion.read_node()
    is_drained = "DRAIN" in node.state.flags
    is_own = is_own_reason(conversion.settings, node.reason)
    if is_drained and is_own and not _is_drained_by(conversion, node):
        return "another conversion of this instance has it; it is left as it is"
    if (is_drained and is_own) or _lacks_its_drain(conversion, node):
        lift_drain(conversion)
    clear_marks(conversion)
    if conversion.journal.facts.get(RESERVING):
        release(conversion)
    return f"left drained: {node.reason}" if is_drained and not is_own else ""


def lift_drain(conversion: NodeConversion) -> str:
    """Resumes the node and clears dnm's marks in one command. The caller has checked that the drain
    is dnm's. First ends the charge of dnm's reservation, so that this holds the node by itself. If
    a test replaced an administrator's drain, restores that drain instead."""
    if previous := conversion.journal.facts.get(PREVIOUS_DRAIN):
        return _leave_drained(conversion, previous)
    uncharge(conversion)
    settings, marks = conversion.settings, _own_marks(conversion)

    def is_lifted() -> bool:
        # scontrol repeats a command after a lost answer. A slurmctld that has just started knows no
        # state and refuses the second one. Another drain may be set by then.
        reason = reason_of_drain(conversion.read_node())
        return not (is_own_reason(settings, reason) or is_predecessors_reason(settings, reason))

    conversion.change_slurm(lambda: conversion.slurm.resume(conversion.node, marks), is_lifted)
    return "in service"


def settle_drain(
    conversion: NodeConversion, node: SlurmNode, is_own: bool, passing: str = ""
) -> str:
    """Lifts dnm's drain. If the node is faulty, instead gives it a drain without dnm's mark, which
    only an administrator lifts. dnm also replaces a drain with a Reason that begins with `passing`,
    since another program would lift it."""
    fault = conversion.settings.leave_drained
    is_own = is_own or _lacks_its_drain(conversion, node)
    is_drained = "DRAIN" in node.state.flags
    passes = passing and (not is_drained or node.reason.startswith(passing))
    if fault and (is_own or passes):
        return _leave_drained(conversion, f"faulty in Kubernetes: {fault}")
    if is_own:
        return lift_drain(conversion)
    if is_drained:
        conversion.log(note := f"left drained, since dnm did not drain it: {node.reason}")
        return note
    return "in service"


def _lacks_its_drain(conversion: NodeConversion, node: SlurmNode) -> bool:
    """Returns whether a node that must stay drained lost its drain when dnm was killed."""
    stays = conversion.settings.leave_drained or PREVIOUS_DRAIN in conversion.journal.facts
    return bool(stays and "DRAIN" not in node.state.flags and own_reservations(conversion))


def _leave_drained(conversion: NodeConversion, reason: str) -> str:
    """Drains a node permanently. Resumes a DOWN node first, while the reservation holds it."""
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
    """Clears dnm's marks in Comment and Extra, which remain if another client lifts dnm's drain."""
    conversion.change_slurm(
        lambda: conversion.slurm.mark(conversion.node, _own_marks(conversion)),
        lambda: not _own_marks(conversion),
    )
