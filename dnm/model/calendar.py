"""Events that a site knows beforehand: what stands in a calendar, when it is in force, and what a
reservation ahead of time for one is called in Slurm, and whose it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from dnm.model.value import Value


class CalendarEvent(Value, omit_defaults=True):
    """So many equal pods, or so many nodes, for a namespace, once or on some days of each week.

    `begins` and `ends` are wall times of `zone`, without an offset. `weekly`: days, Monday is 0;
    `begins` is then the first of them at the earliest. `last`: the last day on which it begins;
    None: it has no end. `request`: of one pod.
    """

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
    source: str = ""  # the file that it stands in; empty: the configuration


class CalendarReading(Value):
    """The content of a calendar: its events, and why others can't be read, by their names.
    `is_whole`: the calendar has no other content that might be an event."""

    events: tuple[CalendarEvent, ...] = ()
    unread: Mapping[str, tuple[str, ...]] = {}
    is_whole: bool = True


class KeptCalendar(Value):
    """What a calendar has said, as far as that is in force: of an event that can't be read now,
    what was read last. `troubles`: sentences about those."""

    events: tuple[CalendarEvent, ...] = ()
    troubles: tuple[str, ...] = ()


class Window(Value):
    """An occurrence of an event: `[begins, ends)` in UTC."""

    event: CalendarEvent
    begins: datetime
    ends: datetime


# --- reservations ahead of time ---------------------------------------------------------------

PREFIX = "dnm-ev-"
"""`dnm-ev-NAME-BEGIN-MARK-NODE`: one node each, so that each comes and goes by itself, and Slurm
replaces none that is drained. The mark tells the instance: whatever else begins so is another's,
and left alone."""
_LATE = timedelta(minutes=5)
_BOOKING = PREFIX + r"[a-z0-9-]{1,52}-\d{8}T\d{4}-([0-9a-f]{6})"


class Booking(Value):
    """So many nodes more of a type for one occurrence; `leave_out`: a host list, not these."""

    name: str
    node_type: str
    count: int
    begins: datetime
    ends: datetime
    leave_out: str = ""


def booking_name(event: str, begins: datetime, instance: str) -> str:
    """Returns the name of one occurrence's reservations, without the node."""
    return f"{PREFIX}{event}-{begins.astimezone(UTC):%Y%m%dT%H%M}-{_mark(instance)}"


def booking_on(reservation: str, node: str, instance: str) -> str:
    """Returns that name of a reservation of a node; empty where it is none of this instance's."""
    name = reservation.removesuffix(f"-{node}")
    return name if name != reservation and is_booking(name, instance) else ""


def is_booking(name: str, instance: str) -> bool:
    """Whether this is the name of an occurrence, and this instance's."""
    match = re.fullmatch(_BOOKING, name)
    return match is not None and match[1] == _mark(instance)


def is_late(begins: datetime | None, wanted: datetime) -> bool:
    """Whether a booking begins so much later than wanted that it is made anew: what is learned of
    lending grows by seconds. One of which nobody says when it begins does not."""
    return begins is not None and begins > wanted + _LATE


def _mark(instance: str) -> str:
    from hashlib import sha256  # as in dnm.model.lease

    return sha256(instance.encode()).hexdigest()[:6]
