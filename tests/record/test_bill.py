"""Tests of the usage report: manually computed numbers, and parts of a month that add up to it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.charge import Charge
from dnm.model.history import SCHEMA, HistoryLine, Operation
from dnm.model.registry import Registry
from dnm.record.bill import Biller, Lend, sums_of
from dnm.record.recording import record_operation
from dnm.record.transitions import Cause
from tests.builders import QUEUE, a_lent_node

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
MOST = 4000  # millicores that a user's pods request


def at(hours: float, kind: str, event: str, name: str = "a001", **fields: Any) -> HistoryLine:
    values: dict[str, Any] = {
        "queue": QUEUE, "node_type": "a", "namespace": "dev", "number": 1, **fields,
    }  # fmt: skip
    return HistoryLine(schema=SCHEMA, time=BEGIN + timedelta(hours=hours), run="r",
                       instance="prod", kind=kind, event=event, object=name, **values)  # fmt: skip


def bill(
    *lines: HistoryLine, since: float = 0, until: float = 744, registry: Registry | None = None
) -> tuple[Lend, ...]:
    biller = Biller(BEGIN + timedelta(hours=since), BEGIN + timedelta(hours=until))
    for line in lines:
        biller.add(line)
    now = BEGIN + timedelta(hours=max(until, 744 if registry is None else until))
    return biller.close(registry or Registry(), now)


LENT = (
    at(1, "request", "requested", "r1", numbers={"count": 1}),
    at(1.25, "node", "lent", after="joining", number=7,
       numbers={"request": "r1", "account": "proj"}),
    at(1.5, "node", "joined", before="joining", after="serving",
       numbers={"counted": {"cpu": 8000, "memory": 2**34}}),
    at(5, "node", "fenced", before="serving", after="releasing", numbers={"idle_seconds": 900}),
    at(5.5, "node", "returning", before="releasing", after="returning"),
)  # fmt: skip
BACK = at(6.25, "node", "returned", before="returning",
          numbers={"account": "proj", "used": {"cpu": 36_000_000}})  # fmt: skip


def hours_of(lend: Lend) -> tuple[float, ...]:
    return tuple(round(each, 6) for each in (lend.hours, lend.booting, lend.used_hours, lend.idle))


def test_lend_is_charged_from_its_request_until_its_return() -> None:
    (lend,) = bill(*LENT, BACK)
    assert (lend.account, lend.namespace, lend.request, lend.line) == ("proj", "dev", "r1", 7)
    assert hours_of(lend) == (5.25, 0.5 + 0.75, 3.75, 0.25)
    assert lend.used == {"cpu": 36_000_000} and lend.size["cpu"] == 8000
    (total,) = sums_of([lend], {"a001": 8.0})
    assert (total.lends, total.lent, total.billed) == (1, 5.25, 42.0)
    (unweighted,) = sums_of([lend], {})
    assert unweighted.billed is None


@pytest.mark.parametrize(
    ("since", "until", "hours"),
    [
        (0, 2, (1, 0.5, 0.5, 0)), (2, 4.5, (2.5, 0, 2.5, 0)), (4.5, 744, (1.75, 0.75, 0.75, 0.25)),
        (6.25, 744, None), (0, 1, None),
    ],
)  # fmt: skip
def test_usage_report_contains_only_the_requested_span(
    since: float, until: float, hours: tuple[float, ...] | None
) -> None:
    lends = bill(*LENT, BACK, since=since, until=until)
    assert [hours_of(lend) for lend in lends] == ([hours] if hours else [])


def test_pod_requests_are_divided_by_serving_time() -> None:
    months = [bill(*LENT, BACK, since=0, until=3), bill(*LENT, BACK, since=3, until=744)]
    parts = [month.used or {} for (month,) in months]
    assert parts[0]["cpu"] == pytest.approx(14_400_000)
    assert sum(part["cpu"] for part in parts) == pytest.approx(36_000_000)


def test_current_lend_is_charged_until_now() -> None:
    since = BEGIN + timedelta(hours=1.5)
    charge = Charge(account="proj", since=since, rate={"cpu": 1000})
    entry = a_lent_node(charge=charge, idle_since=BEGIN + timedelta(hours=3))
    (lend,) = bill(*LENT[:3], until=4, registry=Registry(nodes={"a001": entry}))
    assert lend.end is None and hours_of(lend) == (3, 0.5, 1.5, 1)
    assert lend.used == {"cpu": 2.5 * 3600 * 1000}


def test_forgotten_node_is_charged_for_the_use_of_its_pods() -> None:
    since = BEGIN + timedelta(hours=1.5)
    charge = Charge(account="proj", since=since, rate={"cpu": 1000})
    before = Registry(nodes={"a001": a_lent_node(charge=charge)})
    cause = Cause(now=BEGIN + timedelta(hours=4), run="r", instance="prod")
    done = Operation(verb="forget", object="a001", requester="erin")
    after = record_operation(before, Registry(), done, cause)
    (lend,) = bill(*LENT[:3], *after.memory.unwritten)
    assert (lend.account, lend.end, lend.used) == ("proj", cause.now, {"cpu": 2.5 * 3600 * 1000})


def test_moved_node_keeps_its_account() -> None:
    moved = at(3, "node", "moved", before="moving", after="serving", queue="root.two",
               namespace="two")  # fmt: skip
    back = at(6, "node", "returned", before="returning", queue="root.two", namespace="two")
    first, second = bill(*LENT[:3], moved, back)
    assert [lend.account for lend in (first, second)] == ["proj", "proj"]
    assert [lend.namespace for lend in (first, second)] == ["dev", "two"]
    assert first.hours + second.hours == 5 and second.booting == 0


def test_lend_without_account_reports_no_use() -> None:
    lines = [msgspec.structs.replace(LENT[1], numbers={"request": "r1"}), *LENT[2:]]
    (lend,) = bill(LENT[0], *lines, at(6.25, "node", "returned", before="returning"))
    assert lend.account == "" and lend.used is None and hours_of(lend) == (5.25, 1.25, 3.75, 0.25)


# --- a month of many lends ----------------------------------------------------------------------


def a_month(seed: int) -> list[HistoryLine]:
    """Draws the history of lends of twelve nodes: some cross the month's ends, fail or move."""
    draw, lines, number = random.Random(seed), [], 0
    for node in (f"a{n:03}" for n in range(12)):
        hour = -draw.uniform(0, 60)
        while hour < 744:
            number += 1
            of: dict[str, Any] = {
                "name": node, "namespace": draw.choice(("dev", "ops")), "number": number,
            }  # fmt: skip
            account = draw.choice(("proj", "course", "-", ""))
            numbers = {"request": f"r{number}", **({"account": account} if account else {})}
            lines.append(at(hour, "request", "requested", f"r{number}"))
            hour += draw.uniform(0.05, 0.4)
            lines.append(at(hour, "node", "lent", after="joining", numbers=numbers, **of))
            used = 0
            hour += draw.uniform(0.05, 0.4)
            if draw.random() < 0.8:
                lines.append(at(hour, "node", "joined", after="serving", **of))
                served = draw.uniform(1, 40)
                idle = draw.choice((0, draw.uniform(0, served)))
                used = round((served - idle) * 3600 * draw.uniform(0, MOST))
                hour += served
                lines.append(at(hour, "node", "fenced", after="releasing",
                                numbers={"idle_seconds": idle * 3600}, **of))  # fmt: skip
            hour += draw.uniform(0, 1)
            lines.append(at(hour, "node", "returning", after="returning", **of))
            hour += draw.uniform(0.1, 0.6)
            lines.append(at(hour, "node", "returned", numbers=_charge_numbers(account, used), **of))
            hour += draw.uniform(0, 30)
    return sorted(lines, key=lambda line: line.time)


def _charge_numbers(account: str, cpu_seconds: int) -> dict[str, Any]:
    """Returns the field `numbers` of a history line that ends a lend charged to an account."""
    return {"account": account, "used": {"cpu": cpu_seconds}} if account else {}


@pytest.mark.parametrize("seed", range(9))
def test_parts_of_a_month_add_up_to_the_month(seed: int) -> None:
    """However the month is divided, each hour and each usage counts exactly once."""
    lines, border = a_month(seed), random.Random(seed).uniform(1, 743)
    full = bill(*lines)
    halves = bill(*lines, until=border) + bill(*lines, since=border)
    assert len(full) > 60 and len({lend.line for lend in full}) == len(full)
    sums, parts = ({lend.account: summed(lends, lend.account) for lend in lends}
                   for lends in (full, halves))  # fmt: skip
    assert sums.keys() == parts.keys() == {"proj", "course", "-", ""}
    for account, amounts in sums.items():
        assert parts[account] == pytest.approx(amounts), account


def summed(lends: tuple[Lend, ...], account: str) -> dict[str, float]:
    """Sums up an account's lends: the hours of each kind, and the CPU that pods requested."""
    total = Counter[str]()
    for lend in lends:
        if lend.account == account:
            total.update({"lent": lend.hours, "booting": lend.booting, "idle": lend.idle})
            total.update({"cpu": (lend.used or {}).get("cpu", 0)})
    assert 0 <= total["booting"] + total["idle"] <= total["lent"] + 1e-6
    return dict(total)
