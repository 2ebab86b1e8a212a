"""What a reservation ahead of time for an event is called in Slurm, and whose it is.

`dnm-ev-NAME-BEGIN-MARK-NODE`: one node each, so that each comes and goes by itself, and Slurm
replaces none that is drained. The mark tells the instance: whatever else is called `dnm-ev-` is
another's, and left alone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from dnm.model.value import Value

PREFIX = "dnm-ev-"
_LATE = timedelta(minutes=5)
_BOOKING = re.compile(PREFIX + r"[a-z0-9-]{1,52}-\d{8}T\d{4}-([0-9a-f]{6})")


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
    match = _BOOKING.fullmatch(name)
    return match is not None and match[1] == _mark(instance)


def is_late(begins: datetime | None, wanted: datetime) -> bool:
    """Whether a booking begins so much later than wanted that it is made anew: what is learned of
    lending grows by seconds. One of which nobody says when it begins does not."""
    return begins is not None and begins > wanted + _LATE


def _mark(instance: str) -> str:
    from hashlib import sha256  # as in dnm.model.state

    return sha256(instance.encode()).hexdigest()[:6]
