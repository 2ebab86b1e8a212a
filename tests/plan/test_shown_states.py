"""`node_conditions`: what Slurm says of a node, as its Node is to show it, and when nothing is
written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dnm.model.batch import BatchNode, SlurmReason
from dnm.model.lent import Phase
from dnm.model.node import BATCH_TAINT, Mark, ShownState
from dnm.model.node_type import Taint
from dnm.model.plan import ReturnNode, ShowState
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.inputs import needs_batch_side
from dnm.plan.rules.node_conditions import list_shown
from tests.builders import FENCED, QUEUE, a_batch_node, a_config, a_lent_node, a_node, facts
from tests.plan.worlds import LONG_AGO, World

AT = datetime(2026, 3, 2, 11, 0, 12, tzinfo=UTC)
OURS = SlurmReason(text="dnm:prod op=1", by="slurm", since=AT, instance="prod")
BAD_DISK = SlurmReason(text="bad disk", by="root", since=AT)
OURS_LINE = "dnm:prod op=1 [slurm@2026-03-02T11:00:12Z]"
DISK_LINE = "bad disk [root@2026-03-02T11:00:12Z]"
LENT = ShownState(states=("Down", "Drain"), text=f"DOWN+DRAIN+RESERVED: {OURS_LINE}")
NO_PODS = PodList(pods=())
STRANGER = Mark(instance="validation", node_type="a", namespace="dev", queue=QUEUE)


def row(state: str = "DOWN+DRAIN+RESERVED", said: SlurmReason | None = OURS) -> BatchNode:
    return BatchNode(name="a001", state=state, verdict="SKIP", slurm_reason=said)


def shown(
    batch: BatchNode | None = None, is_on: bool = True, entry: Any = ..., **node: Any
) -> list[ShowState]:
    entry = a_lent_node() if entry is ... else entry
    registry = Registry(nodes={"a001": entry} if entry else {})
    rows = [batch] if batch else []
    return list_shown(a_config(node_conditions=is_on), registry, facts([a_node(**node)], rows))


@pytest.mark.parametrize(
    ("batch", "states", "text", "message", "drain_reason"),
    [
        pytest.param(row(), LENT.states, LENT.text, OURS_LINE, "DrainedByDnm", id="lent"),
        pytest.param(
            row("IDLE+DRAIN", BAD_DISK), ("Drain", "Idle"), f"IDLE+DRAIN: {DISK_LINE}",
            DISK_LINE, "DrainedByAnother", id="an-administrator's-drain",
        ),
        pytest.param(row("IDLE+DRAIN", None), ("Drain", "Idle"), "IDLE+DRAIN", "", "", id="unsaid"),
        pytest.param(row("MIXED", None), ("Mixed",), "MIXED", "", "", id="no-flag"),
        pytest.param(row("UNKNOWN", None), ("Unknown",), "UNKNOWN", "", "", id="slurm's-unknown"),
        pytest.param(
            row("IDLE+COMPLETING+FAIL+INVALID_REG+MAINTENANCE+NOT_RESPONDING+POWERED_DOWN", None),
            ("Completing", "Fail", "Idle", "InvalidReg", "Maintenance", "NotResponding"),
            "IDLE+COMPLETING+FAIL+INVALID_REG+MAINTENANCE+NOT_RESPONDING+POWERED_DOWN", "", "",
            id="flags",
        ),
    ],
)  # fmt: skip
def test_a_state_has_the_operator_s_names(
    batch: BatchNode, states: tuple[str, ...], text: str, message: str, drain_reason: str
) -> None:
    wanted = ShownState(states=states, text=text)
    (found,) = shown(batch)
    assert found == ShowState(
        node="a001", wanted=wanted, message=message, drain_reason=drain_reason
    )
    assert shown(batch, shown=wanted) == [], "at rest nothing is written"


STALE = ShownState(states=("Idle",), text="IDLE")
OFF = ShowState(node="a001", wanted=None, standing=("Idle",))
FENCE = Taint(key=BATCH_TAINT, effect="NoSchedule")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, [], id="not-in-the-list"),
        pytest.param({"batch": row("RESERVED", None)}, [], id="a-hidden-base"),
        pytest.param({"batch": row("ABSENT", None)}, [], id="no-record"),
        pytest.param({"batch": row("GIBBERISH", None)}, [], id="gibberish"),
        pytest.param({"batch": row(), "unreadable": "its allocatable"}, [], id="unread-node"),
        pytest.param({"batch": row(), "mark": STRANGER}, [], id="another's-mark"),
        pytest.param({"batch": row(), "entry": a_lent_node(owner="x")}, [], id="another's-entry"),
        pytest.param({"entry": None}, [], id="marked-and-not-recorded"),
        pytest.param({"entry": None, "mark": STRANGER}, [], id="lent-by-another"),
        pytest.param({"entry": None, "mark": None}, [OFF], id="back-with-batch"),
        pytest.param({"entry": None, "mark": None, "is_on": False}, [],
            id="another-without-the-right"),
        pytest.param({"batch": row(), "is_on": False}, [OFF], id="switched-off"),
        pytest.param({"batch": row("IDLE+DRAIN", None), "mark": None}, [ShowState(node="a001",
                wanted=ShownState(states=("Drain", "Idle"), text="IDLE+DRAIN"),
                standing=("Idle",))], id="a-transition"),
    ],
)  # fmt: skip
def test_what_is_not_known_stays_as_it_was(
    given: dict[str, Any], expected: list[ShowState]
) -> None:
    assert shown(**given, shown=STALE) == expected


def test_a_node_that_shows_nothing_has_nothing_to_take_off() -> None:
    assert shown(entry=None, mark=None) == shown(row(), is_on=False) == []


def test_a_batch_side_that_could_not_be_read_says_nothing() -> None:
    unread = facts([a_node()], batch=None)
    lent = Registry(nodes={"a001": a_lent_node()})
    for one in (unread, facts([], [row()]), facts([a_node("k1", mark=None)], [row()])):
        assert list_shown(a_config(node_conditions=True), lent, one) == []


def test_the_node_of_a_machine_that_slurm_has_shows_it_while_it_returns() -> None:
    node = a_node(taints=(FENCE,), mark=None)
    returning = Registry(nodes={"a001": a_lent_node(Phase.RETURNING)})
    found = list_shown(
        a_config(node_conditions=True), returning,
        facts([], [row()], with_batch={"a001": node}),
    )  # fmt: skip
    assert [one.wanted for one in found] == [LENT]


def test_all_that_counts_is_done_before_anything_is_shown() -> None:
    away = a_batch_node(in_service=False)
    world = World().configured(node_conditions=True)
    world.lent("a001", Phase.RETURNING, retry_after=LONG_AGO)
    world.node("a001", is_cordoned=True, mark=FENCED).set(batch={"a001": away})
    kinds = [type(action) for action in world.plan().actions]
    assert kinds[-2:] == [ReturnNode, ShowState]


@pytest.mark.parametrize("is_on", [True, False])
def test_the_batch_side_is_asked_in_every_run_while_nodes_are_lent(is_on: bool) -> None:
    config = a_config(node_conditions=is_on)
    serves = Registry(nodes={"a001": a_lent_node()})
    assert needs_batch_side(config, serves, [a_node()], NO_PODS) is is_on
    assert not needs_batch_side(config, Registry(), [], NO_PODS)


# --- somebody else's drain -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "is_on", "is_told"),
    [
        pytest.param(row("IDLE+DRAIN", BAD_DISK), True, True, id="drained-by-another"),
        pytest.param(row("IDLE+DRAIN", BAD_DISK), False, False, id="not-looked-at-in-every-run"),
        pytest.param(row("IDLE+DRAIN", OURS), True, False, id="our-drain"),
        pytest.param(row("IDLE+DRAIN", None), True, False, id="nobody-says-whose"),
        pytest.param(row("DOWN", BAD_DISK), True, False, id="down-is-no-drain"),
    ],
)
def test_another_s_drain_is_told_and_changes_no_decision(
    batch: BatchNode, is_on: bool, is_told: bool
) -> None:
    world = World().lent("a001").node("a001").configured(node_conditions=is_on)
    world.set(batch={"a001": batch})
    plan = world.plan()
    plain = World().lent("a001").node("a001").set(batch={"a001": row("IDLE+DRAIN", OURS)}).plan()
    (verdict,), (other,) = plan.nodes, plain.nodes
    assert (verdict.verdict, verdict.reason) == (other.verdict, other.reason)
    sentence = f"drained in Slurm by another, and stays so when it is back: {DISK_LINE}"
    assert (sentence in verdict.sentence) is is_told
    assert (f"a001 is {sentence}" in plan.notes) is is_told
    kinds = [type(action) for action in plan.actions if not isinstance(action, ShowState)]
    assert kinds == [type(action) for action in plain.actions]
