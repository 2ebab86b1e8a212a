"""Tests of reserving nodes in Slurm for an event, so that they can be lent when it begins."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dnm.converters.claimed import Claimed
from dnm.converters.event_reservations import (
    list_candidates,
    list_late,
    reserve,
    reserve_nodes,
    unreserve,
)
from dnm.converters.select import SlurmFacts
from dnm.converters.settings import Settings
from dnm.converters.slurm.commands import SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmNode
from dnm.model.batch import BatchClaim
from dnm.model.calendar import occurrence_name
from dnm.model.errors import ConverterError
from tests.converters.test_failures import a_journal
from tests.converters.test_select import NOW, node, reservation

HOUR = timedelta(hours=1)
BEGINS = NOW + 2 * HOUR
JOURNALS = {
    "a001": a_journal(failures=3),  # waits for 80 minutes
    "a002": a_journal(failures=4),  # for 160
    "a003": a_journal(failures=1, at=NOW - timedelta(hours=1)),  # has waited long enough
}
UNREADABLE = {"a004": BatchClaim(instance="prod", error="the journal can't be read")}


def reserved(claimed: Claimed, *changed: SlurmNode, held: str = "", **states: str) -> list[str]:
    names = ("a001", "a002", "a003", "a004", "a005", "a006", "b001")
    nodes = {name: node(name, states.get(name, "IDLE")) for name in names}
    nodes |= {slurm_node.name: slurm_node for slurm_node in changed}
    own = (reservation(f"k8s-{held}", -HOUR, held),) if held else ()
    facts = SlurmFacts(nodes=tuple(nodes.values()), jobs=(), reservations=own, read_at=NOW)
    options = Namespace(node_type="a", exclude=frozenset(("a006",)), begins=BEGINS)
    return list_candidates(facts, claimed, Settings(), options)


def test_node_with_a_pause_is_reserved_last_or_excluded() -> None:
    claimed = Claimed(UNREADABLE, JOURNALS)
    assert reserved(claimed, a005="ALLOCATED") == ["a003", "a005", "a001", "a004"]
    assert reserved(Claimed(), a005="DOWN") == ["a001", "a002", "a003", "a004"]


def test_lent_foreign_or_drained_node_is_not_reserved() -> None:
    assert reserved(Claimed(), held="a001", a002="IDLE+DRAIN", a003="IDLE+PLANNED") == [
        "a003", "a004", "a005",
    ]  # fmt: skip
    podded = node("a001", comment='{"namespace":"slurm","podName":"b-0","node":"a001"}')
    assert reserved(Claimed(), podded) == ["a002", "a003", "a004", "a005"]


NAME = occurrence_name("w", BEGINS, "test")


class Slurm:
    """A Slurm with reservations by name. It refuses one that begins while a job may still run."""

    def __init__(self, **begins: datetime) -> None:
        self.begins = {f"{NAME}-{node}": at for node, at in begins.items()}
        self.busy_until = {"a001": BEGINS + HOUR}

    def move_reservation(self, name: str, begins: datetime, until: datetime) -> None:
        if begins < self.busy_until.get(name[-4:], begins):
            raise SlurmRefused("x", "Requested nodes are busy")
        self.begins[name] = begins

    def create_reservation(self, name: str, node: str, end: datetime, *, start: datetime) -> None:
        if name in self.begins:
            raise SlurmRefused("x", "Duplicate reservation name")
        if start < self.busy_until.get(node, start):
            raise SlurmRefused("x", "Requested nodes are busy")
        self.begins[name] = start

    def read_reservations(self) -> list[Reservation]:
        return [
            Reservation(name=name, start=at, end=BEGINS + 8 * HOUR, nodes=(name[-4:],))
            for name, at in self.begins.items()
        ]

    def delete_reservation(self, name: str) -> None:
        del self.begins[name]


def test_unreserve_deletes_only_reservations_of_the_occurrence() -> None:
    slurm: Any = Slurm(a001=BEGINS, a002=BEGINS)
    other = {f"{occurrence_name('w', BEGINS, item)}-a003": BEGINS for item in ("other", "test2")}
    other[f"{occurrence_name('x', BEGINS, 'test')}-a004"] = BEGINS
    slurm.begins |= other
    settings = Settings(instance="test")
    unreserve(Namespace(unreserve=NAME, exclude=frozenset(("a001",))), settings, slurm)
    assert slurm.begins == {f"{NAME}-a001": BEGINS, **other}
    theirs = occurrence_name("w", BEGINS, "other")
    with pytest.raises(ConverterError, match="is not an event reservation of test"):
        unreserve(Namespace(unreserve=theirs, exclude=frozenset()), settings, slurm)
    with pytest.raises(ConverterError, match="is not an event reservation of test"):
        reserve(Namespace(reserve=theirs), settings, slurm)


def test_late_reservation_is_moved_and_never_lost() -> None:
    """dnm first tries to move reservations that begin late; if Slurm refuses, they stay as is."""
    soon = BEGINS + timedelta(minutes=4)
    slurm: Any = Slurm(a001=BEGINS + HOUR, a002=BEGINS + HOUR, a003=soon)
    shared = Reservation(name=f"{NAME}-a004", start=BEGINS + HOUR, end=None, nodes=("a004", "a005"))
    held = (*slurm.read_reservations(), shared)  # a reservation of no event
    facts = SlurmFacts(nodes=(), jobs=(), reservations=held, read_at=NOW)
    options = Namespace(reserve=NAME, num_nodes=2, begins=BEGINS, until=BEGINS + 8 * HOUR)
    late = list_late(facts, options, "test")
    assert late == {"a001", "a002"}
    nodes = ["a000", "a001", "a002", "a003", "a004"]
    assert list(reserve_nodes(slurm, nodes, late, options)) == ["a002", "a000"]
    assert slurm.begins == {
        f"{NAME}-a000": BEGINS, f"{NAME}-a001": BEGINS + HOUR, f"{NAME}-a002": BEGINS,
        f"{NAME}-a003": soon,
    }  # fmt: skip
