"""Planned events of a site: the entries of a calendar and their occurrences, and the names of the
reservations that dnm makes in Slurm before an event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from dnm.model.value import Value


class CalendarEvent(Value, omit_defaults=True):
    """A planned need of a namespace for equal pods or for nodes, once or on some days of each week.

    `begins` and `ends` are local times in the time zone `zone`. `weekly` lists the weekdays, with
    Monday as 0. The first occurrence is at `begins` or later. `last` is the last day on which one
    begins; None means no last day. `request` has the resources that one pod requests."""

    name: str
    namespace: str
    begins: datetime
    ends: datetime
    zone: str = "UTC"
    weekly: tuple[int, ...] = ()
    last: date | None = None
    pods: int = 0
    request: dict[str, int] = {}
    nodes: int = 0
    source: str = ""  # the file with the event; empty: the configuration


class CalendarReading(Value):
    """The result of reading a calendar: its valid events, and the errors of invalid ones by name.
    `is_complete` is False if the calendar may have more events, which could not be read."""

    events: tuple[CalendarEvent, ...] = ()
    unread: Mapping[str, tuple[str, ...]] = {}
    is_complete: bool = True


class KeptCalendar(Value):
    """The current events of a calendar, where an unreadable event is kept as it was last read.
    `troubles` are messages about unreadable events. `is_too_large`: there are too many events."""

    events: tuple[CalendarEvent, ...] = ()
    troubles: tuple[str, ...] = ()
    is_too_large: bool = False


class Window(Value):
    """An occurrence of an event. It lasts from `begins` until just before `ends`, both in UTC."""

    event: CalendarEvent
    begins: datetime
    ends: datetime


# --- reservations ahead of time ---------------------------------------------------------------

PREFIX = "dnm-ev-"
"""`dnm-ev-NAME-BEGIN-MARK-NODE`. Each node has its own reservation, so that dnm can add and remove
it alone, and Slurm does not replace a drained node. The mark names the instance. dnm does not touch
reservations of other instances."""
_LATE = timedelta(minutes=5)
_EVENT_RESERVATION = PREFIX + r"[a-z0-9-]{1,52}-\d{8}T\d{4}-([0-9a-f]{6})"


class EventReservation(Value):
    """A request to reserve `count` nodes of a type in Slurm for one occurrence of an event.
    `leave_out` is a Slurm hostlist of nodes that must not be reserved."""

    name: str
    node_type: str
    count: int
    begins: datetime
    ends: datetime
    leave_out: str = ""


def occurrence_name(event: str, begins: datetime, instance: str) -> str:
    """Returns the name of an event's occurrence, with which its reservations in Slurm begin."""
    return f"{PREFIX}{event}-{begins.astimezone(UTC):%Y%m%dT%H%M}-{_mark(instance)}"


def occurrence_of(reservation: str, node: str, instance: str) -> str:
    """Returns the name of the occurrence for which a reservation was made; empty if for none."""
    name = reservation.removesuffix(f"-{node}")
    return name if name != reservation and is_occurrence(name, instance) else ""


def is_occurrence(name: str, instance: str) -> bool:
    """Returns whether `name` has the form of this instance's names for an event's occurrences."""
    match = re.fullmatch(_EVENT_RESERVATION, name)
    return match is not None and match[1] == _mark(instance)


def is_late(begins: datetime | None, wanted: datetime) -> bool:
    """Returns whether a reservation begins over 5 minutes after `wanted` and must be changed. Less
    is normal, since the measured time to lend nodes varies. An unknown begin is not late."""
    return begins is not None and begins > wanted + _LATE


def _mark(instance: str) -> str:
    from hashlib import sha256  # as in dnm.model.lease

    return sha256(instance.encode()).hexdigest()[:6]
