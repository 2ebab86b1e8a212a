"""Tests of history lines: one for each change of the registry, with its reason, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.cli.look.history import KINDS
from dnm.model.calendar import KeptCalendar
from dnm.model.history import Decision, HistoryLine, Memory, Operation
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import Pause
from dnm.model.plan import Plan, SetQueueLimits
from dnm.model.queue_edit import LimitChange, LimitNews, QueueEdit, QueueWants
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.rules.moving import MOVED, MOVING, STAYS
from dnm.record.recording import (
    MOST_UNWRITTEN,
    record_change,
    record_limits,
    record_operation,
    record_plan,
)
from dnm.record.transitions import Cause
from tests.builders import NOW, QUEUE, a_lent_node, a_request

MINUTE = timedelta(minutes=1)


def cause(minute: int = 0, **changes: Any) -> Cause:
    return Cause(**{"now": NOW + minute * MINUTE, "run": "r1", "instance": "prod", **changes})


def verdict_with(
    reason: ReasonText, node: str = "a001", verdict: Verdict = Verdict.KEEP
) -> dict[str, Any]:
    item = NodeVerdict(node=node, verdict=verdict, reason=reason, detail="so it is")
    return {"nodes": {node: item}}


def status(code: str, verdict: str = "wait") -> QueueStatus:
    return QueueStatus(
        limit={}, baseline={}, lent={}, used={}, pending={}, pending_pods=3, verdict=verdict,
        reason=f"since {code}", code=code,
    )  # fmt: skip


def seen(code: str, verdict: str = "wait") -> Registry:
    return Registry(last_run=RunRecord(queues={QUEUE: status(code, verdict)}))


def brief(line: HistoryLine) -> str:
    arrow = f" {line.before}>{line.after}" if line.before or line.after else ""
    return f"{line.kind} {line.event} {line.object}{arrow} {line.code}".strip()


def lines(before: Registry, after: Registry, why: Cause | None = None) -> list[str]:
    history_lines = record_change(before, after, why or cause()).memory.unwritten
    return [brief(line) for line in history_lines]


NODE = a_lent_node
MOVES = a_lent_node(Phase.MOVING, to="two")
EMPTY = Registry()


def nodes(**entries: Any) -> Registry:
    return Registry(nodes=entries)


JOINS, LEAVES, RETURNS = NODE(Phase.JOINING), NODE(Phase.RELEASING), NODE(Phase.RETURNING)
# change of a001 and its verdict -> the line, without its name and the verdict's code
OF_A_NODE: dict[str, tuple[LentNode | None, LentNode | None, ReasonText | None, str]] = {
    "joined": (JOINS, NODE(), Reason.JOINED, "joined joining>serving"),
    "fenced": (NODE(), LEAVES, Reason.IDLE_LONG_ENOUGH, "fenced serving>releasing"),
    "un-fenced": (LEAVES, NODE(), Reason.DEMAND_RETURNED, "unfenced releasing>serving"),
    "moving": (NODE(), MOVES, MOVING, "moving serving>moving"),
    "moved": (MOVES, NODE(namespace="two"), MOVED, "moved moving>serving"),
    "stays": (MOVES, NODE(), STAYS, "unfenced moving>serving"),
    "turned-back": (MOVES, NODE(Phase.MOVING, to="two", is_back=True), MOVING,
                    "turned-back moving>moving"),
    "emptying": (NODE(), NODE(leaves="overdue"), Reason.LEAVING, "emptying serving>serving"),
    "returned manually": (NODE(leaves="manual"), NODE(leaves="manual"), Reason.LEAVING,
                         "emptying serving>serving"),
    "returned manually, empty": (NODE(leaves="manual"), LEAVES, Reason.LEAVING,
                                "fenced serving>releasing"),
    "kept": (NODE(leaves="for-jobs"), NODE(), Reason.IN_USE, "kept serving>serving"),
    "emptied": (NODE(leaves="spent"), LEAVES, Reason.LEAVING, "fenced serving>releasing"),
    "returning": (LEAVES, RETURNS, Reason.RETURNING, "returning releasing>returning"),
    "returned": (RETURNS, None, Reason.RETURNED, "returned returning>"),
    "gone": (NODE(), None, Reason.LEFT, "forgotten serving>"),
    "a return that failed": (RETURNS, NODE(Phase.RETURNING, error="exit 3"), None,
                             "return-failed returning>returning"),
    "failed": (JOINS, NODE(Phase.FAILED, error="late"), Reason.LATE, "failed joining>failed"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_A_NODE)
def test_node_transition_is_a_history_line_with_its_reason(name: str) -> None:
    old, new, reason, output = OF_A_NODE[name]
    event, phases = output.split()
    line = f"node {event} a001 {phases} {reason.name if reason else ''}".strip()
    before, after = (nodes(**({"a001": node} if node else {})) for node in (old, new))
    why: dict[str, Any] = verdict_with(reason) if reason else {}
    check_recorded(before, after, {**why, "fenced": frozenset({"a001"})}, [line])


ASKED = Registry(requests=(a_request(),))
BACKS_OFF = Registry(backoffs={"a": Backoff(failures=2, until=NOW, ask_at_most=1)})
CHANGED = LimitNews(queue=QUEUE, text="max vcore was changed to 99")
RESET = LimitNews(queue=QUEUE, text="back at its baseline (max vcore)", is_reset=True)
CASES: dict[str, tuple[Registry, Registry, dict[str, Any], list[str]]] = {
    "nothing": (EMPTY, EMPTY, {}, []),
    "lent": (ASKED, nodes(a001=JOINS), {}, ["node lent a001 >joining"]),
    "lent and joined at once": (
        ASKED, nodes(a001=NODE()), verdict_with(Reason.JOINED),
        ["node lent a001 >joining JOINED", "node joined a001 joining>serving JOINED"]),
    "adopted": (
        EMPTY, nodes(a001=JOINS),
        {"adopted": ("a001",)},
        ["node adopted a001 >joining"]),
    "requested": (EMPTY, ASKED, {}, ["request requested r1"]),
    "a converter that failed": (
        ASKED, Registry(requests=(a_request(error="exit 1"),)), {}, ["request failed r1"]),
    "one of two came": (
        Registry(requests=(a_request(count=2),)), nodes(a001=JOINS), {},
        ["request given-up r1", "node lent a001 >joining"]),
    "a failure is not repeated": (
        Registry(requests=(a_request(is_abandoned=True, error="exit 1"),)), EMPTY, {}, []),
    "a cap in effect": (
        seen("ENOUGH", "keep"), seen("CAPPED"), {},
        [f"queue wait {QUEUE} keep ENOUGH>wait CAPPED CAPPED"]),
    "returned manually, and fenced before": (
        nodes(a001=NODE(leaves="manual")), nodes(a001=NODE(leaves="manual")),
        verdict_with(Reason.LEAVING), []),
    "a cap still in effect": (seen("CAPPED"), seen("CAPPED"), {}, []),
    "a breaker opens": (
        EMPTY, Registry(breakers={QUEUE: Breaker(unused=3, tripped_at=NOW, trips=1)}), {},
        [f"breaker opened {QUEUE} closed>open BREAKER"]),
    "a breaker closes": (
        Registry(breakers={QUEUE: Breaker(unused=3, tripped_at=NOW)}),
        Registry(breakers={QUEUE: Breaker(unused=2)}), {},
        [f"breaker closed {QUEUE} open>closed"]),
    "one that went unused is no trip": (
        EMPTY, Registry(breakers={QUEUE: Breaker(unused=1)}), {}, []),
    "a back-off begins": (EMPTY, BACKS_OFF, {}, ["backoff begun a BACKOFF"]),
    "a back-off is over": (BACKS_OFF, EMPTY, {}, ["backoff over a"]),
    "a pause": (
        EMPTY, Registry(pause=Pause(since=NOW, reason="maintenance")), {}, ["pause begun dnm"]),
    "re-applied": (
        EMPTY, EMPTY, {"limit_news": (RESET,)}, [f"limit re-applied {QUEUE}"]),
    "found changed": (EMPTY, EMPTY, {"limit_news": (CHANGED,)}, [f"limit found-changed {QUEUE}"]),
    "found once": (
        Registry(last_run=RunRecord(notes=(CHANGED.note,))), EMPTY, {"limit_news": (CHANGED,)}, []),
    "a calendar": (
        EMPTY, Registry(calendars={"w.ini": KeptCalendar(troubles=("is cut off",))}), {},
        ["calendar unreadable w.ini"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_registry_difference_is_recorded_as_history_lines(name: str) -> None:
    check_recorded(*CASES[name])


def check_recorded(
    before: Registry, after: Registry, why: dict[str, Any], expected: list[str]
) -> None:
    assert lines(before, after, cause(**why)) == expected
    registry = record_change(before, after, cause(**why))
    assert {line.kind for line in registry.memory.unwritten} <= {*KINDS}, "dnm history --kind"
    again = record_change(registry, registry, cause(1))
    assert again == registry, "told once"


def test_pause_end_is_recorded_once_its_time_has_passed() -> None:
    pause = Pause(since=NOW, until=NOW + 5 * MINUTE)
    paused = record_change(EMPTY, Registry(pause=pause), cause())
    assert lines(paused, paused, cause(4))[1:] == []
    assert lines(paused, paused, cause(6))[1:] == ["pause over dnm"]


def test_history_line_contains_decision_numbers_and_lend_reason() -> None:
    decision = Decision(pending_pods=3, used={"cpu": 1}, wanted={"a": 2}, pods=("dev/p1",))
    before = seen("LACKS_QUOTA", "convert")
    asked = record_change(
        before, replace(before, requests=(a_request(),)), cause(decisions={QUEUE: decision})
    )
    [request] = asked.memory.unwritten
    assert request.reason == "since LACKS_QUOTA" and request.code == "LACKS_QUOTA"
    assert request.numbers["pending_pods"] == 3 and request.numbers["pods"] == ["dev/p1"]
    arrived = replace(asked, requests=(), nodes={"a001": NODE(Phase.JOINING)})
    lent = record_change(asked, arrived, cause(2)).memory.unwritten[-1]
    assert (lent.reason, lent.numbers) == ("since LACKS_QUOTA", {"request": "r1"})


def test_hours_of_a_moved_node_are_counted_for_each_queue() -> None:
    lent = record_change(EMPTY, nodes(a001=MOVES), cause())
    there = NODE(queue="root.two", namespace="two", moved_at=NOW + 10 * MINUTE)
    moved = record_change(lent, replace(lent, nodes={"a001": there}), cause(10))
    back = record_change(moved, replace(moved, nodes={}), cause(15)).memory.totals
    assert back.lent_seconds == {QUEUE: {"a": 600.0}, "root.two": {"a": 300.0}}
    assert back.moves == {"a": 1}


def test_conversions_returns_and_durations_are_counted() -> None:
    asked = record_change(EMPTY, Registry(requests=(a_request(),)), cause())
    lent = record_change(
        asked, replace(asked, requests=(), nodes={"a001": NODE(Phase.JOINING)}), cause(3)
    )
    serving = record_change(lent, replace(lent, nodes={"a001": NODE()}), cause(5))
    back = record_change(
        serving, replace(serving, nodes={}), cause(64, **verdict_with(Reason.RETURNED))
    )
    totals = back.memory.totals
    assert totals.conversions == {"a": {"joined": 1}}
    assert totals.reversions == {"a": {"returned": 1}}
    assert totals.lent_seconds == {QUEUE: {"a": 61 * 60.0}}
    durations = totals.conversion_seconds["a"]
    assert (durations.number, durations.total) == (1, 300.0)
    assert durations.counts == (0, 0, 1, 1, 1, 1, 1, 1)
    assert (back.memory.lent, back.memory.asked) == ({}, {})
    abandoned = record_change(Registry(requests=(a_request(count=3),)), EMPTY, cause(5))
    assert abandoned.memory.totals.conversions == {"a": {"failed": 3}}
    assert back.memory.unwritten[-1].numbers == {"lent_seconds": 61 * 60}


def test_manual_command_is_a_single_line_with_author_and_reason() -> None:
    before = nodes(a001=NODE(Phase.FAILED, error="late"))
    operation = Operation(
        verb="reset", object="a001", requester="erin", host="mgmt1", reason="cable replaced"
    )
    after = record_operation(before, nodes(a001=NODE(Phase.RETURNING)), operation, cause())
    [line] = after.memory.unwritten
    assert brief(line) == "verb reset a001 failed>returning"
    assert (line.requester, line.host, line.reason) == ("erin", "mgmt1", "cable replaced")
    assert (line.node_type, line.namespace, line.queue) == ("a", "dev", QUEUE)


def test_unwritten_history_lines_are_bounded() -> None:
    registry = EMPTY
    for number in range(MOST_UNWRITTEN + 50):
        other = seen("A" if number % 2 else "B")
        registry = record_change(registry, replace(other, memory=registry.memory), cause())
    assert len(registry.memory.unwritten) == MOST_UNWRITTEN
    assert registry.memory.unwritten[-1].number == MOST_UNWRITTEN + 50


# --- limits: true once the document says so ---------------------------------------------------


def change(before: str, after: str) -> LimitChange:
    return LimitChange(queue=QUEUE, kind="max", resource="vcore", before=before, after=after)


def plan_with(*changes: LimitChange, registry: Registry = EMPTY) -> Plan:
    edit = QueueEdit(changes=changes)
    action = SetQueueLimits(wants=QueueWants(instance_id="prod"), edit=edit)
    return Plan(registry=registry, actions=(action,) if changes else ())


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        pytest.param(EMPTY, replace(EMPTY, pause=Pause(since=NOW)), {}, id="paused-now"),
        pytest.param(seen("ENOUGH"), seen("CAPPED"), {}, id="another-verdict"),
        pytest.param(EMPTY, EMPTY, {"limit_news": (CHANGED,)}, id="news"),
        pytest.param(
            replace(EMPTY, memory=Memory(is_paused=True)),
            replace(EMPTY, memory=Memory(is_paused=True)), {}, id="no-longer-paused",
        ),
    ],
)  # fmt: skip
def test_quiet_plan_records_nothing_and_any_other_plan_does(
    before: Registry, after: Registry, why: dict[str, Any]
) -> None:
    for same in (before, after):
        quiet = record_plan(same, plan_with(registry=same), cause(), ())
        again = record_plan(quiet.registry, plan_with(registry=quiet.registry), cause(), ())
        assert again == plan_with(registry=quiet.registry)
    registry = record_plan(before, plan_with(registry=after), cause(**why), ()).registry
    assert registry.memory.unwritten


def test_written_limit_is_recorded_once() -> None:
    intended = record_plan(EMPTY, plan_with(change("80", "208")), cause(), ()).registry
    assert intended.memory.unwritten == ()
    written = record_limits(intended, [change("80", "208")], cause())
    [line] = written.memory.unwritten
    assert (line.before, line.after) == ("max vcore 80", "max vcore 208")
    assert written.memory.intended == ()


@pytest.mark.parametrize(
    ("planned_next", "is_read", "expected"),
    [
        pytest.param((), True, ["max vcore 208"], id="it-was-written"),
        pytest.param((change("80", "208"),), True, [], id="it-was-not"),
        pytest.param((change("208", "336"),), True, ["max vcore 208"], id="and-the-next-begins"),
        pytest.param((), False, [], id="not-known-yet"),
    ],
)
def test_next_run_detects_if_a_killed_run_wrote_its_limits(
    planned_next: tuple[LimitChange, ...], is_read: bool, expected: list[str]
) -> None:
    left = record_plan(EMPTY, plan_with(change("80", "208")), cause(), ()).registry
    undecided = () if is_read else (QUEUE,)
    after = record_plan(left, plan_with(*planned_next, registry=left), cause(1), undecided).registry
    assert [line.after for line in after.memory.unwritten] == expected
    if not is_read:
        late = record_plan(after, plan_with(registry=after), cause(2), ()).registry
        assert [line.after for line in late.memory.unwritten] == ["max vcore 208"]


def test_limits_of_an_unread_queue_are_recorded_later() -> None:
    """A killed run may have written both limits. The next ones read one queue, and write it."""
    both = [change("80", "208"), replace(change("80", "208"), queue="root.other")]
    left = record_plan(EMPTY, plan_with(*both), cause(), ()).registry
    more = replace(both[1], before="208", after="336")
    after = record_plan(left, plan_with(more, registry=left), cause(1, run="r2"), (QUEUE,)).registry
    assert [line.queue for line in after.memory.unwritten] == ["root.other"]
    written = record_limits(after, [more], cause(1, run="r2"))
    assert [line.queue for line in written.memory.intended] == [QUEUE]
    late = record_plan(written, plan_with(registry=written), cause(2, run="r3"), ()).registry
    lines = [(line.queue, line.after) for line in late.memory.unwritten]
    assert lines == [
        ("root.other", "max vcore 208"), ("root.other", "max vcore 336"), (QUEUE, "max vcore 208"),
    ]  # fmt: skip
    assert not late.memory.intended
    again = record_limits(after, [*both[:1], more], cause(1, run="r2"))
    assert not again.memory.intended, "this run has written the queue"
