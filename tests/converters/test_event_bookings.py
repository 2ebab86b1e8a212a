"""Which nodes are booked for an event: those that can be lent when it begins."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime, timedelta
from typing import Any

from dnm.converters.claimed import Claimed
from dnm.converters.event_bookings import book_nodes, list_candidates, list_late
from dnm.converters.select import SlurmFacts
from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmRefused
from dnm.converters.slurm.text import Reservation
from dnm.model.batch import BatchClaim
from dnm.model.calendar import booking_name
from tests.converters.test_failures import a_journal
from tests.converters.test_select import NOW, node

HOUR = timedelta(hours=1)
BEGINS = NOW + 2 * HOUR
JOURNALS = {
    "a001": a_journal(failures=3),  # rests for 80 minutes
    "a002": a_journal(failures=4),  # for 160
    "a003": a_journal(failures=1, at=NOW - timedelta(hours=1)),  # has rested
}
UNREADABLE = {"a004": BatchClaim(instance="prod", error="the journal can't be read")}


def booked(claimed: Claimed, **states: str) -> list[str]:
    names = ("a001", "a002", "a003", "a004", "a005", "a006", "b001")
    nodes = tuple(node(name, states.get(name, "IDLE")) for name in names)
    facts = SlurmFacts(nodes=nodes, jobs=(), reservations=(), read_at=NOW)
    options = Namespace(node_type="a", exclude=frozenset(("a006",)), begins=BEGINS)
    return list_candidates(facts, claimed, Settings(), options)


def test_a_node_that_rests_after_failures_comes_last_or_not_at_all() -> None:
    claimed = Claimed(UNREADABLE, JOURNALS)
    assert booked(claimed, a005="ALLOCATED") == ["a003", "a005", "a001", "a004"]
    assert booked(Claimed(), a005="DOWN") == ["a001", "a002", "a003", "a004"]


NAME = booking_name("w", BEGINS, "test")


class Slurm:
    """Its reservations, by their names; where a job may run it refuses what begins too early."""

    def __init__(self, **begins: datetime) -> None:
        self.begins = {f"{NAME}-{node}": at for node, at in begins.items()}
        self.busy_until = {"a001": BEGINS + HOUR}

    def move_booking(self, name: str, begins: datetime, until: datetime) -> None:
        if begins < self.busy_until.get(name[-4:], begins):
            raise SlurmRefused("x", "Requested nodes are busy")
        self.begins[name] = begins

    def book(self, name: str, node: str, begins: datetime, until: datetime) -> None:
        if name in self.begins:
            raise SlurmRefused("x", "Duplicate reservation name")
        if begins < self.busy_until.get(node, begins):
            raise SlurmRefused("x", "Requested nodes are busy")
        self.begins[name] = begins


def test_what_is_booked_from_too_late_on_is_booked_anew_and_never_lost() -> None:
    """First of all nodes; of one Slurm refuses that, another is taken, and it stays as it was."""
    soon = BEGINS + timedelta(minutes=4)
    slurm: Any = Slurm(a001=BEGINS + HOUR, a002=BEGINS + HOUR, a003=soon)
    held = tuple(
        Reservation(name=name, start=at, end=BEGINS + 8 * HOUR, nodes=(name[-4:],))
        for name, at in slurm.begins.items()
    )
    shared = Reservation(name=f"{NAME}-a004", start=BEGINS + HOUR, end=None, nodes=("a004", "a005"))
    held = (*held, shared)  # nobody's booking
    facts = SlurmFacts(nodes=(), jobs=(), reservations=held, read_at=NOW)
    options = Namespace(book=NAME, num_nodes=2, begins=BEGINS, until=BEGINS + 8 * HOUR)
    late = list_late(facts, options, "test")
    assert late == {"a001", "a002"}
    nodes = ["a000", "a001", "a002", "a003", "a004"]
    assert list(book_nodes(slurm, nodes, late, options)) == ["a002", "a000"]
    assert slurm.begins == {
        f"{NAME}-a000": BEGINS, f"{NAME}-a001": BEGINS + HOUR, f"{NAME}-a002": BEGINS,
        f"{NAME}-a003": soon,
    }  # fmt: skip
