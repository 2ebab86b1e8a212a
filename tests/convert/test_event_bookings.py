"""Which nodes are booked for an event: those that can be lent when it begins."""

from __future__ import annotations

from argparse import Namespace
from datetime import timedelta

from dnm.convert.claimed import Claimed
from dnm.convert.event_bookings import list_candidates
from dnm.convert.select import SlurmFacts
from dnm.convert.settings import Settings
from dnm.model.cluster import BatchClaim
from tests.convert.test_failures import a_journal
from tests.convert.test_select import NOW, node

BEGINS = NOW + timedelta(hours=2)
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
