"""Tests of the price of lending: node-minutes that waiting jobs lacked, by the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.history import ALL, JOBS, NONE, UNKNOWN, HistoryLine, Memory
from dnm.model.registry import Registry
from dnm.record.price import SeenPrice
from tests.builders import QUEUE, a_lent_node
from tests.record.test_accounts import BEGIN, account_for, at

HOUR = 3600.0
DAY = 24.0


def lent(node: str, begin: float, end: float, **fields: Any) -> list[HistoryLine]:
    """Returns the history of a node that is lent and used from `begin` to `end`."""
    return [
        at(begin, "node", "lent", node, after="joining", **fields),
        at(begin, "node", "joined", node, before="joining", after="serving", **fields),
        at(end, "node", "fenced", node, before="serving", after="releasing", **fields),
        at(end, "node", "returned", node, before="releasing", **fields),
    ]


def look(hours: float, before: str, after: str, **more: Any) -> HistoryLine:
    node_type = more.pop("node_type", "a")
    event = more.pop("event", "wait")
    return at(
        hours, JOBS, event, node_type, before=before, after=after, node_type=node_type, **more
    )


def hours(*lines: HistoryLine, **more: Any) -> tuple[float, float, float, float]:
    """Returns the node-hours lent, with known jobs, paid by jobs, and used by pods."""
    (seen_price,) = account_for(*lines, days=1, **more).prices
    return (
        seen_price.lent / HOUR,
        seen_price.known / HOUR,
        seen_price.paid / HOUR,
        seen_price.used / HOUR,
    )


TWO = [*lent("a001", 2, 6), *lent("a002", 4, 8)]
PRICES = {
    "no line of jobs, as in an older record": ((), (8, 0, 0, 0)),
    "none waits": ((look(2, UNKNOWN, NONE),), (8, 8, 0, 8)),
    "as many as are lent": ((look(2, UNKNOWN, ALL),), (8, 8, 8, 8)),
    "one": ((look(2, UNKNOWN, "1"),), (8, 8, 6, 8)),
    "more than are lent": ((look(2, UNKNOWN, "16"),), (8, 8, 8, 8)),
    "for an hour": ((look(2, UNKNOWN, NONE), look(4, NONE, ALL), look(5, ALL, NONE)), (8, 8, 2, 8)),
    "known from five on": ((look(5, UNKNOWN, "1"),), (8, 4, 3, 4)),
    "known until five": ((look(2, UNKNOWN, "1"), look(5, "1", UNKNOWN)), (8, 4, 3, 4)),
    "as it was before the first line": ((look(5, ALL, NONE),), (8, 8, 4, 8)),
    "no record from three to five": (
        (look(2, UNKNOWN, ALL),
         look(5, ALL, ALL, event="unseen", numbers={"since": "2026-03-02T03:00:00+00:00"})),
        (8, 5, 5, 5),
    ),
    "no record after an unreadable time": (
        (look(2, UNKNOWN, ALL), look(5, ALL, ALL, event="unseen", numbers={"since": "long"})),
        (8, 4, 4, 4),  # nothing is recorded before it
    ),
    "an amount that is none": ((look(2, UNKNOWN, "many"), look(5, "many", "-3")), (8, 0, 0, 0)),
    "another host recorded it from two to five": (
        (look(2, UNKNOWN, NONE), look(5, ALL, "1")), (8, 4, 3, 4),
    ),
    "of another type": ((look(2, UNKNOWN, ALL, node_type="b"),), (8, 0, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", PRICES)
def test_price_of_two_nodes_for_four_hours(name: str) -> None:
    lines, expected = PRICES[name]
    assert hours(*TWO, *lines) == pytest.approx(expected)


def test_job_amount_before_the_span_is_taken_from_the_registry() -> None:
    registry = Registry(memory=Memory(jobs={"a": ALL, "b": NONE}))
    assert hours(*TWO, registry=registry) == pytest.approx((8, 8, 8, 8))


def test_job_amount_of_another_host_is_taken_from_the_registry() -> None:
    registry = Registry(memory=Memory(jobs={"a": ALL}))
    line = look(2, UNKNOWN, NONE)
    assert hours(*TWO, line, registry=registry) == pytest.approx((8, 0, 0, 0))
    assert hours(*TWO, line, look(5, NONE, ALL), registry=registry) == pytest.approx((8, 8, 4, 8))


def test_price_is_unknown_after_the_last_run() -> None:
    assert hours(*TWO, look(2, UNKNOWN, ALL), unseen=5) == pytest.approx((8, 4, 4, 4))
    registry = Registry(memory=Memory(jobs={"a": ALL}))
    assert hours(*TWO, registry=registry, unseen=-9) == pytest.approx((8, 0, 0, 0))


def test_each_node_type_has_its_own_price() -> None:
    lines = [*lent("a001", 2, 6), *lent("b001", 2, 3, node_type="b"), look(2, UNKNOWN, ALL)]
    assert account_for(*lines, days=1).prices == (
        SeenPrice(node_type="a", lent=4 * HOUR, known=4 * HOUR, paid=4 * HOUR, used=4 * HOUR),
        SeenPrice(node_type="b", lent=HOUR, known=0.0, paid=0.0, used=0.0),
    )


def asked(pods: int, count: int, cores: int) -> HistoryLine:
    numbers = {"count": count, "pending_pods": pods, "pending": {"cpu": pods * cores * 1000}}
    return at(1, "request", "requested", "r1", numbers=numbers)


SIZE = {"counted": {"cpu": 128_000, "pods": 110}}


@pytest.mark.parametrize(
    ("request_line", "pods"),
    [
        pytest.param(asked(20, 2, 4), 10, id="half of them"),
        pytest.param(asked(75, 1, 4), 32, id="as many as it takes"),
        pytest.param(asked(500, 1, 1), 110, id="as many as a kubelet takes"),
        pytest.param(asked(0, 1, 4), 1, id="a buffer"),
        pytest.param(asked(3, 1, 200), 1, id="larger than it"),
    ],
)
def test_pods_had_a_node_from_joining_until_its_idle_time(
    request_line: HistoryLine, pods: int
) -> None:
    """Pods use a node from its join until it is idle before its fence, also after a move."""
    result = hours(
        request_line,
        at(2, "node", "lent", after="joining", numbers={"request": "r1"}),
        at(3, "node", "joined", before="joining", after="serving", numbers=SIZE),
        at(5, "node", "fenced", before="serving", after="releasing",
           numbers={"idle_seconds": 1800}),
        at(6, "node", "unfenced", before="releasing", after="serving"),
        at(7, "node", "moving", before="serving", after="moving"),
        at(8, "node", "moved", before="moving", after="serving", queue="root.two"),
        at(9, "node", "fenced", before="serving", after="releasing", numbers={"idle_seconds": 9e9}),
        at(10, "node", "unfenced", before="releasing", after="serving"),
        at(11, "node", "returned", before="serving"),
        look(2, UNKNOWN, NONE),
    )  # fmt: skip
    assert result == pytest.approx((9, 9, 0, pods * (1.5 + 1 + 1)))


def test_current_node_is_used_until_its_idle_time() -> None:
    registry = Registry(
        nodes={
            "a001": a_lent_node(since=BEGIN, idle_since=BEGIN + timedelta(hours=6)),
            "a002": a_lent_node(since=BEGIN + timedelta(hours=4)),
        },
        memory=Memory(jobs={"a": NONE}),
    )
    assert hours(registry=registry) == pytest.approx((24 + 20, 44, 0, 6 + 20))


amounts = st.sampled_from((UNKNOWN, NONE, ALL, "1", "2", "4"))
spans = st.tuples(st.floats(-3, DAY), st.floats(-3, DAY)).map(sorted)


@given(
    st.lists(spans, max_size=6),
    st.lists(st.tuples(st.floats(0, DAY), amounts, st.booleans()), max_size=6),
    st.none() | st.floats(0, DAY),
)
def test_paid_time_is_within_observed_time_and_that_within_lent_time(
    stays: list[list[float]],
    looks: list[tuple[float, str, bool]],
    unseen: float | None,
) -> None:
    lines, last = [], UNKNOWN
    for number, (begin, end) in enumerate(stays):
        lines += lent(f"a{number:03}", begin, end)
    for when, after, is_unseen in sorted(looks):
        numbers = {"since": (BEGIN + timedelta(hours=when / 2)).isoformat()} if is_unseen else {}
        event = "unseen" if is_unseen else "wait"
        lines.append(look(when, last, after, event=event, numbers=numbers))
        last = after
    accounts = account_for(*lines, days=1, unseen=unseen)
    for price in accounts.prices:
        assert 0 <= price.paid <= price.known + 1e-6 <= price.lent + 2e-6
        assert price.used <= price.known + 1e-6  # one pod on each
    total = sum(seen_price.lent for seen_price in accounts.prices)
    assert total == pytest.approx(sum(accounts.node_seconds().values()), abs=1e-3)
    if all(after == UNKNOWN for _, after, _ in looks):
        assert all(
            seen_price.known == seen_price.paid == seen_price.used == 0
            for seen_price in accounts.prices
        )
    if not {after for _, after, _ in looks} & {ALL, "1", "2", "4"}:
        assert all(seen_price.paid == 0 for seen_price in accounts.prices)


def test_jobs_pay_for_lent_nodes_of_every_queue() -> None:
    """Waiting jobs of a partition lack each lent node that they could use, of whatever queue."""
    lines = [*lent("a001", 2, 4), *lent("a002", 2, 4, queue="root.two"), look(2, UNKNOWN, ALL)]
    accounts = account_for(*lines, days=1)
    assert {stay.queue for stay in accounts.stays} == {QUEUE, "root.two"}
    assert [price.paid for price in accounts.prices] == [4 * HOUR]
