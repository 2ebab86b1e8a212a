"""Reservations in the sandbox's Slurm that begin later, and how the converter changes them.

As in Slurm, a reservation is refused if another one overlaps, if its name is in use, or if a job
may still run when it begins. No job starts that would run into it. It is deleted at its end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable
from datetime import datetime

import msgspec

LOOKAHEAD_SECONDS = 86_400.0  # a machine that is reserved within them is not lent
_EVENT_RESERVATION = re.compile(r"dnm-ev-.+-([0-9a-f]{6})")


class Reserved(msgspec.Struct, kw_only=True):
    """A reservation of one machine by the dnm `instance`; empty: by an administrator."""

    name: str
    node: str
    begins: float
    ends: float
    instance: str = ""

    def overlaps(self, other: Reserved) -> bool:
        return self.node == other.node and self.begins < other.ends and other.begins < self.ends


class Reservations:
    """All reservations, by name. Callers hold the store's lock."""

    def __init__(self) -> None:
        self.by_name: dict[str, Reserved] = {}

    def purge(self, now: float) -> None:
        self.by_name = {name: resv for name, resv in self.by_name.items() if resv.ends > now}

    def on(self, node: str) -> list[Reserved]:
        return [reservation for reservation in self.by_name.values() if reservation.node == node]

    def in_force(self, node: str, now: float) -> Reserved | None:
        return next((resv for resv in self.on(node) if resv.begins <= now), None)

    def holds_back(self, node: str, instance: str, now: float) -> Reserved | None:
        """Returns a reservation that forbids this instance to convert the machine. It is current or
        begins soon; a current one of this instance does not forbid."""
        soon = (resv for resv in self.on(node) if resv.begins <= now + LOOKAHEAD_SECONDS)
        return next(
            (resv for resv in soon if resv.instance != instance or resv.begins > now),
            None,
        )

    def may_start(self, node: str, until: float) -> bool:
        return all(reservation.begins >= until for reservation in self.on(node))

    def create(self, new: Reserved, now: float, busy_until: float) -> str:
        """Adds a reservation or returns Slurm's refusal. `busy_until`: when the node's jobs end."""
        if new.begins < now:
            return "Invalid time specified"
        if any(reservation.overlaps(new) for reservation in self.by_name.values()):
            return "Requested reservation overlaps with another reservation"
        if new.name in self.by_name:
            return "Duplicate reservation name"
        if busy_until > new.begins:
            return "Requested nodes are busy"
        self.by_name[new.name] = new
        return ""

    def delete_by_name(self, name: str, kept: Container[str]) -> Iterable[Reserved]:
        """Deletes reservations `NAME-NODE`, except of nodes in `kept`, and yields them."""
        for reservation in list(self.by_name.values()):
            if reservation.name == f"{name}-{reservation.node}" and reservation.node not in kept:
                del self.by_name[reservation.name]
                yield reservation


def is_event_reservation(name: str, instance: str) -> bool:
    """Returns whether the name is that of an event reservation by this instance (its hash)."""
    match = _EVENT_RESERVATION.fullmatch(name)
    return match is not None and match[1] == hashlib.sha256(instance.encode()).hexdigest()[:6]


def moment(text: str) -> float:
    """Returns the time in a text, with its zone, as seconds since 1970. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
