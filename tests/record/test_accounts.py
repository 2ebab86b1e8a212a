"""Tests of the figures that dnm computes from the history of a time span, by manual computation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dnm.model.history import SCHEMA, HistoryLine, Lent, Memory
from dnm.model.registry import Registry
from dnm.record.accounts import Accounts, Bookkeeper, percentile
from tests.builders import QUEUE, a_lent_node

BEGIN = datetime(2026, 3, 2, 0, 0, tzinfo=UTC)  # a Monday, week 10


def at(hours: float, kind: str, event: str, name: str = "a001", **fields: Any) -> HistoryLine:
    values: dict[str, Any] = {"queue": QUEUE, "node_type": "a", **fields}
    return HistoryLine(schema=SCHEMA, number=1, time=BEGIN + timedelta(hours=hours), run="r",
                       instance="prod", kind=kind, event=event, object=name, **values)  # fmt: skip


def verdict(hours: float, code: str, pods: int, why: str = "") -> HistoryLine:
    numbers = {"pending_pods": pods, "limit": {"cpu": 80_000}, "used": {"cpu": 1000 * pods}}
    return at(hours, "queue", "wait", QUEUE, code=code, reason=why, numbers=numbers)


def account_for(
    *lines: HistoryLine, registry: Registry | None = None, days: float = 14,
    unseen: float | None = None,
) -> Accounts:  # fmt: skip
    keeper = Bookkeeper(BEGIN)
    for line in sorted(lines, key=lambda line: line.time):
        keeper.add(line)
    unseen_since = None if unseen is None else BEGIN + timedelta(hours=unseen)
    return keeper.close(registry or Registry(), BEGIN + timedelta(days=days), unseen_since)


A_STAY = (
    at(1, "request", "requested", "r1", numbers={"count": 1}),
    at(1.25, "node", "lent", after="joining", numbers={"request": "r1"}),
    at(1.5, "node", "joined", before="joining", after="serving"),
    at(5, "node", "fenced", before="serving", after="releasing", numbers={"idle_seconds": 900}),
    at(5.5, "node", "returning", before="releasing", after="returning"),
    at(6.25, "node", "returned", before="returning", numbers={"lent_seconds": 18_000}),
)


def test_single_lend_is_accounted_from_its_history_lines() -> None:
    accounts = account_for(*A_STAY)
    (stay,) = accounts.stays
    assert (stay.node, stay.end) == ("a001", BEGIN + timedelta(hours=6.25))
    assert [phase for phase, _ in stay.phases] == ["joining", "serving", "releasing", "returning"]
    assert accounts.node_seconds() == {("2026-W10", QUEUE, "a"): 5 * 3600}
    assert accounts.to_serving == {"a": (1800,)} and accounts.idle_seconds == {QUEUE: 900}
    assert accounts.conversions == accounts.returns == {(QUEUE, "a"): 1}
    assert not accounts.failures and not accounts.failed_returns


def test_moved_node_is_accounted_to_each_queue() -> None:
    moved = at(3, "node", "moved", before="moving", after="serving", queue="root.two")
    back = at(6, "node", "returned", before="returning", queue="root.two")
    accounts = account_for(*A_STAY[:3], moved, back)
    assert accounts.node_seconds() == {
        ("2026-W10", QUEUE, "a"): 1.75 * 3600, ("2026-W10", "root.two", "a"): 3 * 3600,
    }  # fmt: skip
    assert accounts.returns == {("root.two", "a"): 1}


COMPUTED = {
    "taken in": (
        [at(1.25, "verb", "adopt", after="joining"), *A_STAY[2:]],
        [(1.25, 6.25)],
    ),
    "forgotten": (
        [*A_STAY[:3], at(4, "verb", "forget", before="serving")],
        [(1.25, 4)],
    ),
    "forgotten, and lent again": (
        [*A_STAY[:3], at(4, "verb", "forget", before="serving"),
         at(5, "node", "lent", after="joining"), at(6, "node", "returned", before="joining")],
        [(1.25, 4), (5, 6)],
    ),
    "its end is recorded on another host": (A_STAY[:4], [(1.25, 5)]),
    "its return and lend are recorded there": (
        [*A_STAY[:3], at(5, "node", "lent", after="joining"), *A_STAY[5:]],
        [(1.25, 1.5), (5, 6.25)],
    ),
    "a verb without a queue": (
        [at(4, "verb", "forget", before="serving", queue="", node_type="")], [],
    ),
    "kept": ([at(4, "verb", "hold", before="serving", after="serving")], []),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "spans"), COMPUTED.values(), ids=COMPUTED)
def test_lends_with_missing_history_lines_are_accounted(
    lines: list[HistoryLine], spans: list[tuple[float, float]]
) -> None:
    hours = timedelta(hours=1)
    stays = account_for(*lines).stays
    assert [((stay.begin - BEGIN) / hours, stay.end and (stay.end - BEGIN) / hours)
            for stay in stays] == spans  # fmt: skip


def test_lend_is_divided_at_monday_midnight() -> None:
    sunday = 7 * 24 - 2
    accounts = account_for(
        at(sunday, "node", "lent", after="joining"),
        at(sunday + 5, "node", "returned", before="returning"),
    )
    assert accounts.node_seconds() == {
        ("2026-W10", QUEUE, "a"): 2 * 3600, ("2026-W11", QUEUE, "a"): 3 * 3600,
    }  # fmt: skip


def test_lend_begun_before_the_span_starts_by_its_return_line() -> None:
    line = at(3, "node", "returned", before="returning", numbers={"lent_seconds": 3600})
    (stay,) = account_for(line).stays
    assert stay.begin == BEGIN + timedelta(hours=2)
    older = at(3, "node", "returned", before="returning", numbers={"lent_seconds": 9e9})
    assert account_for(older).stays[0].begin == BEGIN


def test_current_lends_are_taken_from_the_registry() -> None:
    since = BEGIN + timedelta(days=1)
    memory = Memory(lent={"a001": Lent(since=since)})
    registry = Registry(nodes={"a001": a_lent_node(), "a002": a_lent_node()}, memory=memory)
    accounts = account_for(registry=registry, days=2)
    assert [(stay.node, stay.begin, stay.end) for stay in accounts.stays] == [
        ("a001", since, None), ("a002", a_lent_node().since, None),
    ]  # fmt: skip


FAILURES = {
    "given up": (at(1, "request", "given-up", "r1", numbers={"missing": 3}), "failures", 3),
    "never joined": (at(1, "node", "failed", before="joining", after="failed"), "failures", 1),
    "no way back": (at(1, "node", "return-failed", before="returning"), "failed_returns", 1),
    "stuck": (at(1, "node", "failed", before="returning", after="failed"), "failed_returns", 1),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_counted_by_queue_and_type(name: str) -> None:
    line, counted, number = FAILURES[name]
    accounts = account_for(line)
    counts = {key: getattr(accounts, key) for key in ("failures", "failed_returns")}
    assert counts[counted] == {(QUEUE, "a"): number} and sum(map(len, counts.values())) == 1


def test_queue_waits_are_recorded_with_their_reasons() -> None:
    accounts = account_for(
        verdict(1, "LACKS_QUOTA", 9, "needs quota"),
        verdict(1.5, "CAPPED", 20, "a cap is reached"),
        at(3.5, "node", "joined", before="joining", after="serving"),
        verdict(4, "ENOUGH", 0),
        verdict(9, "CAPPED", 5, "a cap is reached"),
    )
    first, last = accounts.waits
    assert (first.begin, first.served, first.end) == tuple(
        BEGIN + timedelta(hours=hours) for hours in (1, 3.5, 4)
    )
    assert first.reasons == {"LACKS_QUOTA": 1800, "CAPPED": 9000} and first.most_pods == 20
    assert first.why == "a cap is reached"
    assert last.end is None and accounts.longest_waits == [last, first]
    rest = (14 * 24 - 9) * 3600
    assert accounts.refused == {(QUEUE, "CAPPED"): (2, 9000 + rest)}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([7], 0.95, 7), (range(1, 101), 0.5, 51), (range(1, 101), 0.95, 96)],
    ids=str,
)
def test_percentile_of_sorted_values(values: Any, share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected
