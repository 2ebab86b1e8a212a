"""Planned events of a site: the entries of a calendar and their occurrences, and the names of the
reservations that dnm makes in Slurm before an event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from dnm.model.value import Value


class CalendarEvent(Value, omit_defaults=True):
    """A planned need of a namespace for equal pods or for nodes, once or on some days of each week.

    `begins` and `ends` are local times of `zone`, without an offset. `weekly` has the days, Monday
    is 0; the first occurrence is at `begins` or later. `last` is the last day on which an
    occurrence begins; None: there is no last day. `request` is that of one pod."""

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
    """The content of a calendar: its events, and the errors of unreadable events by event name.
    `is_complete` is False if it may have further events that could not be read."""

    events: tuple[CalendarEvent, ...] = ()
    unread: Mapping[str, tuple[str, ...]] = {}
    is_complete: bool = True


class KeptCalendar(Value):
    """The current events of a calendar. An unreadable event is included as it was last read.
    `troubles`: messages about unreadable events. `is_too_large`: there are too many events."""

    events: tuple[CalendarEvent, ...] = ()
    troubles: tuple[str, ...] = ()
    is_too_large: bool = False


class Window(Value):
    """An occurrence of an event: `[begins, ends)` in UTC."""

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
    """A request to reserve `count` nodes of a type for an occurrence. `leave_out` is a host list of
    nodes that must not be reserved."""

    name: str
    node_type: str
    count: int
    begins: datetime
    ends: datetime
    leave_out: str = ""


def occurrence_name(event: str, begins: datetime, instance: str) -> str:
    """Returns the name of an occurrence; the names of its reservations are this and the node."""
    return f"{PREFIX}{event}-{begins.astimezone(UTC):%Y%m%dT%H%M}-{_mark(instance)}"


def occurrence_of(reservation: str, node: str, instance: str) -> str:
    """Returns the occurrence's name from a node's reservation; empty for other reservations."""
    name = reservation.removesuffix(f"-{node}")
    return name if name != reservation and is_occurrence(name, instance) else ""


def is_occurrence(name: str, instance: str) -> bool:
    """Returns whether this instance uses the name for the reservations of an occurrence."""
    match = re.fullmatch(_EVENT_RESERVATION, name)
    return match is not None and match[1] == _mark(instance)


def is_late(begins: datetime | None, wanted: datetime) -> bool:
    """Returns whether a reservation begins over 5 minutes after `wanted` and must be changed. A
    shorter delay is normal, as lending may now take longer. An unknown begin is not late."""
    return begins is not None and begins > wanted + _LATE


def _mark(instance: str) -> str:
    from hashlib import sha256  # as in dnm.model.lease

    return sha256(instance.encode()).hexdigest()[:6]
