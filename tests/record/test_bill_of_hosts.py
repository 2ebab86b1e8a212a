"""Tests of usage reports for lends without a start or an end in this host's history, because
another host acted, and for moved lends. Each account pays for the recorded time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from dnm.model.charge import Charge
from dnm.model.history import HistoryLine, Lent, Memory
from dnm.model.lent import Phase
from dnm.model.lent_state import Returning
from dnm.model.registry import Registry
from dnm.record.accounts import Bookkeeper
from dnm.record.bill import Biller
from dnm.record.transitions import Cause, list_transitions
from tests.builders import NOW, a_lent_node
from tests.plan.test_moves import fenced, moving
from tests.record.test_bill import BEGIN, LENT, at, bill

HOUR = timedelta(hours=1)


def stays(*lines: HistoryLine, registry: Registry | None = None, until: int = 744) -> Any:
    account_for = Bookkeeper(BEGIN)
    for line in lines:
        account_for.add(line)
    return account_for.close(registry or Registry(), BEGIN + timedelta(hours=until)).stays


def test_lend_without_a_recorded_end_is_not_charged_further() -> None:
    (stay,) = stays(*LENT[:3])
    assert stay.end == BEGIN + timedelta(hours=1.5)
    assert bill(*LENT[:3], since=24, until=744) == (), "not lent, and billed for the whole month"


def test_time_between_two_lends_is_not_charged() -> None:
    again = at(700, "node", "lent", after="joining", number=9, numbers={"account": "other"})
    assert stays(*LENT[:3], again)[0].end == BEGIN + timedelta(hours=1.5)
    first = next(
        lend for lend in bill(*LENT[:3], again, since=0, until=701) if lend.account == "proj"
    )
    assert first.hours < 2, first.hours


def test_lend_without_a_recorded_start_begins_at_its_registry_time() -> None:
    since = BEGIN + timedelta(hours=1)
    entry = a_lent_node(charge=Charge(account="proj", since=since, rate={"cpu": 1000}))
    registry = Registry(nodes={"a001": entry}, memory=Memory(lent={"a001": Lent(since=since)}))
    assert [stay.begin for stay in stays(registry=registry, until=10)] == [since]
    (lend,) = bill(until=10, registry=registry)
    assert (lend.account, lend.hours) == ("proj", 9)


def test_use_before_a_move_belongs_to_the_first_namespace() -> None:
    charge = Charge(account="proj", since=NOW - HOUR, rate={}, used={"cpu": 3_600_000})
    world = moving(node=fenced("notebook"), charge=charge)
    before = world.registry
    after = world.plan().registry
    assert (
        after.nodes["a001"].phase is Phase.SERVING and after.nodes["a001"].namespace == "notebook"
    )
    cause = Cause(now=NOW, run="r", instance="prod")
    lines = [
        transition
        for transition in list_transitions(before, after, cause)
        if transition.object == "a001"
    ]
    assert [line.event for line in lines] == ["moved"]
    removed = Registry(
        nodes={"a001": msgspec.structs.replace(after.nodes["a001"], state=Returning(since=NOW))}
    )
    lines += list_transitions(removed, Registry(), Cause(now=NOW + HOUR, run="r", instance="prod"))
    lent = [msgspec.structs.replace(line, time=NOW - 2 * HOUR) for line in LENT[:3]]
    biller = Biller(NOW - 24 * HOUR, NOW + 24 * HOUR)
    for line in (*lent, *lines):
        biller.add(line)
    first, second = biller.close(Registry(), NOW + 24 * HOUR)
    assert (first.namespace, second.namespace) == ("dev", "notebook")
    rows = [(lend.used or {}).get("cpu", 0) for lend in (first, second)]
    assert rows == [3_600_000, 0], rows
