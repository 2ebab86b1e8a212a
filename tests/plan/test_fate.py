"""Tests of the order of the decision table for lent nodes: if two rows match, the upper one
decides. Each pair of neighbours that can both match has a case in which the order matters."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from dnm.model.departure import Eviction, Leaving
from dnm.model.lent import Phase
from dnm.model.orders import Pause
from dnm.model.pod import PodList
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import NodeVerdict, Objection, Verdict
from dnm.plan.decision_table import TABLE, At, Case, NodeDecision, Row, decide_node, situations_of
from tests.builders import NOW, a_batch_node
from tests.plan.worlds import LONG_AGO, SMALL, UNREAD, World, fenced, pods, queue_map, serving

LATER = NOW + timedelta(hours=1)
PAUSED = Pause(since=LONG_AGO, reason="rack 7")
WANTED = NodeVerdict(node="a001", verdict=Verdict.KEEP, reason=Reason.DEMAND_RETURNED)
BLIND = PodList(pods=(), unreadable={"dev": "forbidden"})


class Spec(NamedTuple):
    """A world with a node, and the expected decision. `refusal` is why limits cannot change."""

    name: str
    world: World
    decision: NodeDecision
    reason: ReasonText
    refusal: str = ""
    wanted: NodeVerdict | None = None
    detail: str = ""
    has_ceased: bool = False  # leaves in this run

    def case(self) -> Case:
        inputs, seen = self.world.inputs(), self.world.advanced()
        refused = Objection(reason=Reason.QUEUE_UNREADABLE, detail=self.refusal)
        entry = seen.registry.nodes["a001"]
        return Case(
            name="a001", entry=replace(entry, departure=None) if self.has_ceased else entry,
            seen=seen.nodes["a001"], inputs=inputs, registry=seen.registry,
            objection=refused if self.refusal else None, wanted=self.wanted,
        )  # fmt: skip


def idle(**changes: object) -> World:
    return serving(idle_since=LONG_AGO, **changes)


def eviction() -> World:
    """Builds a serving node with a pod, for which an administrator requested an eviction."""
    world = serving(leaves=Leaving.MANUAL, eviction=Eviction(since=LONG_AGO), was_used=True)
    return world.with_pods(*pods(1, SMALL, node="a001"))


def fenced_for(**changes: object) -> World:
    return fenced().lent("a001", Phase.RELEASING, was_used=True, **changes)


def counted() -> World:
    """Builds a fenced node that the limits of the queue document still contain."""
    return fenced().set(maps=(queue_map({"a001": {"cpu": 128_000}}), None))


def returning(world: World) -> World:
    """Builds a node that an administrator holds, in phase `returning`, while no converter runs."""
    return world.lent("a001", Phase.RETURNING, was_used=True).recorded(held=("a001",))


CASES = (
    Spec("idle and held, in a pause", idle().recorded(held=("a001",), pause=PAUSED),
         NodeDecision.STAYS, Reason.HELD),
    Spec("idle and held, to leave no more", idle(leaves=Leaving.MANUAL).recorded(held=("a001",)),
         NodeDecision.STAYS, Reason.HELD, has_ceased=True),
    Spec("idle, to leave no more, in a pause", idle(leaves=Leaving.MANUAL).recorded(pause=PAUSED),
         NodeDecision.STAYS, Reason.IDLE, has_ceased=True),
    Spec("idle in a pause, without a document", idle().recorded(pause=PAUSED).set(maps=UNREAD),
         NodeDecision.PAUSED, Reason.PAUSED, refusal="not found"),
    Spec("idle, without a document, pods unread", idle().set(maps=UNREAD, pods=BLIND),
         NodeDecision.WAITS, Reason.QUEUE_UNREADABLE, refusal="not found", detail="not found"),
    Spec("idle, to leave, pods unread", idle(leaves=Leaving.MANUAL).set(pods=BLIND),
         NodeDecision.WAITS, Reason.DEMAND_UNREADABLE),
    Spec("idle, to leave", idle(leaves=Leaving.MANUAL), NodeDecision.RELEASED, Reason.LEAVING),
    Spec("used, its pods to go", eviction(), NodeDecision.EMPTIES, Reason.LEAVING),
    Spec("used, to leave, in a pause", eviction().recorded(pause=PAUSED),
         NodeDecision.PAUSED, Reason.PAUSED),
    Spec("fenced and held, lent for a time", fenced_for(stays_until=LATER).recorded(held=("a001",)),
         NodeDecision.STAYS, Reason.HELD),
    Spec("fenced, lent for a time, can't be shrunk", fenced_for(stays_until=LATER),
         NodeDecision.STAYS, Reason.ASKED_FOR, refusal="not found"),
    Spec("fenced and wanted, can't be shrunk", fenced(),
         NodeDecision.STAYS, Reason.QUEUE_UNREADABLE, refusal="not found", wanted=WANTED),
    Spec("fenced and wanted, Slurm mute", fenced().set(batch=UNREAD),
         NodeDecision.STAYS, Reason.DEMAND_RETURNED, wanted=WANTED),
    Spec("fenced and empty, Slurm mute, still counted", counted().set(batch=UNREAD),
         NodeDecision.WAITS, Reason.UNKNOWN),
    Spec("fenced and empty, offered to Slurm, still counted",
         counted().set(batch={"a001": a_batch_node(in_service=True)}),
         NodeDecision.OFFERED, Reason.FENCED),
    Spec("fenced and empty, still counted, in a pause", counted().recorded(pause=PAUSED),
         NodeDecision.WAITS, Reason.FENCED),
    Spec("returning and held, still counted", returning(counted()),
         NodeDecision.WAITS, Reason.RETRY),
    Spec("returning and held, in a pause", returning(fenced().recorded(pause=PAUSED)),
         NodeDecision.WAITS, Reason.HELD),
    Spec("fenced and empty, in a pause", fenced().recorded(pause=PAUSED),
         NodeDecision.PAUSED, Reason.PAUSED),
    Spec("fenced and empty", fenced(), NodeDecision.RETURNS, Reason.RETURNING),
)  # fmt: skip


@pytest.mark.parametrize("expected", [pytest.param(case, id=case.name) for case in CASES])
def test_earlier_row_of_decision_table_wins(expected: Spec) -> None:
    result = decide_node(expected.case())
    assert result is not None
    assert (result[0], result[1].reason) == (expected.decision, expected.reason)
    assert expected.detail in result[1].detail


def neighbours(up: set[At]) -> list[tuple[Row, Row]]:
    """Returns the pairs of adjacent rows among those that apply at these points of a plan."""
    rows = [row for row in TABLE if up & {*row.at}]
    return list(pairwise(rows))


ALL = [*neighbours({At.IDLE}), *neighbours({At.LEAVING}), *neighbours({At.FENCED, At.EMPTY})]


# Never both: the first row requires the opposite of the second.
EXCLUSIVE = {("_slurm_is_unknown", "_is_in_service"), ("_is_paused_unfenced", "_evicts_pods")}


def test_each_compatible_pair_of_decision_rows_has_a_case() -> None:
    open_pairs = {(pair.speaks.__name__, other.speaks.__name__) for pair, other in ALL}
    for reported in CASES:
        case = reported.case()
        for neighbour, other in neighbours(situations_of(case)):
            above, below = neighbour.speaks(case), other.speaks(case)
            if above and below and (neighbour.decision, above) != (other.decision, below):
                open_pairs.discard((neighbour.speaks.__name__, other.speaks.__name__))
    assert open_pairs == EXCLUSIVE
