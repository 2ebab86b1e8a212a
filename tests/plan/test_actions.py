"""Tests of the actions of a plan: which follow from its decisions, and their order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.lent import Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.plan import (
    EndConverter,
    Fence,
    MarkNode,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.plan.actions import list_actions
from tests.builders import COUNTED, FENCED, MARK, NOW, a_batch_node, a_request
from tests.plan.worlds import LONG_AGO, World, pods, queue_map


@pytest.mark.parametrize(
    ("phase", "seen", "expected"),
    [
        pytest.param(Phase.JOINING, {"mark": MARK, "is_ready": False}, (), id="joins-marked"),
        pytest.param(Phase.JOINING, {"mark": None, "is_ready": False}, ("mark",), id="joins"),
        pytest.param(Phase.SERVING, {"mark": MARK}, (), id="serves-marked"),
        pytest.param(Phase.SERVING, {"mark": None}, ("mark",), id="serves-and-lost-its-mark"),
        pytest.param(Phase.SERVING, {"mark": msgspec.structs.replace(MARK, queue="root.other")},
            ("mark",), id="serves-with-a-mark-of-another-queue"),
        pytest.param(Phase.RELEASING, {"mark": FENCED, "is_cordoned": True}, (),
            id="fenced-and-marked"),
        pytest.param(Phase.RELEASING, {"mark": MARK}, ("fence",), id="to-be-fenced"),
        pytest.param(Phase.RELEASING, {"mark": None}, ("mark", "fence"),
            id="to-be-fenced-lost-its-mark"),
        pytest.param(Phase.RELEASING,
            {"mark": msgspec.structs.replace(FENCED, namespace="other"), "is_cordoned": True},
            ("mark",), id="fenced-with-a-mark-of-another-namespace"),
        pytest.param(Phase.FAILED, {"mark": None, "is_ready": False}, (), id="failed"),
        pytest.param(Phase.SERVING, {"mark": FENCED, "is_cordoned": True}, ("unfence",),
            id="left-fenced"),
        pytest.param(Phase.SERVING, {"mark": FENCED}, ("unfence",),
            id="uncordoned-with-a-fence-in-its-mark"),
    ],
)  # fmt: skip
def test_marks_and_fences_follow_the_registry(
    phase: Phase, seen: dict[str, Any], expected: tuple[str, ...]
) -> None:
    world = World().lent("a001", phase, since=NOW).node("a001", **seen)
    world.set(batch={"a001": a_batch_node(in_service=None)})
    words = {
        MarkNode(node="a001", mark=MARK): "mark",
        Fence(node="a001"): "fence",
        Unfence(node="a001"): "unfence",
    }
    rows = list_actions(world.decided())
    kinds = (MarkNode, Fence, Unfence)
    assert tuple(words[action] for action in rows if isinstance(action, kinds)) == expected


def test_fenced_node_without_mark_serves_on_and_is_marked_again() -> None:
    """Without dnm's mark, its cordon looks like an administrator's, who has to lift it."""
    world = World().lent("a001", Phase.RELEASING, since=NOW)
    world.node("a001", mark=None, is_cordoned=True).set(maps=(queue_map(), None))
    decided = world.decided()
    assert decided.conversions.registry.nodes["a001"].phase is Phase.SERVING
    rows = list_actions(decided)
    assert [type(action) for action in rows] == [MarkNode, SetQueueLimits]
    assert MarkNode(node="a001", mark=MARK) in rows


def test_actions_are_ordered_so_that_capacity_grows_before_limits() -> None:
    process = ConverterProcess(pid=7, start_ticks=1)
    hangs = a_request(id="r0", converter=process, since=NOW - timedelta(hours=3))
    world = World().configured(max_reversions_per_run=9, max_converted_nodes=20)
    world.recorded(requests=(hangs,))
    world.lent("a001", Phase.JOINING).node("a001", mark=None)
    world.lent("a002", was_used=True).node("a002", is_cordoned=True, mark=FENCED)
    world.lent("a003", Phase.RELEASING, was_used=True, since=NOW).node("a003")
    removed = Phase.RETURNING
    world.lent("a004", removed, retry_after=LONG_AGO).node("a004", mark=FENCED, is_cordoned=True)
    world.set(maps=(queue_map({"a002": COUNTED}), None))
    world.with_pods(*pods(9, namespace="dev"), *pods(1, node="a002"))
    batch = {f"a{n:03}": a_batch_node(f"a{n:03}") for n in range(50, 60)}
    world.set(batch={**batch, "a004": a_batch_node("a004", in_service=False)})
    world.with_facts(running_converters=frozenset([process]))
    kinds = [type(action) for action in list_actions(world.decided())]
    order = [EndConverter, MarkNode, Unfence, SetQueueLimits, Fence, StartConversion, ReturnNode]
    assert [kind for kind in order if kind in kinds] == list(dict.fromkeys(kinds))
    assert {EndConverter, MarkNode, Unfence, SetQueueLimits, ReturnNode} <= set(kinds)


@pytest.mark.parametrize(
    ("minutes", "is_running", "ended"),
    [
        pytest.param(31, True, True, id="hangs"),
        pytest.param(30, True, False, id="has-its-time"),
        pytest.param(31, False, False, id="has-ended"),
    ],
)
def test_converter_is_ended_after_its_timeout_only(
    minutes: int, is_running: bool, ended: bool
) -> None:
    process = ConverterProcess(pid=7, start_ticks=1)
    since = NOW - timedelta(minutes=minutes)
    world = World().recorded(requests=(a_request(id="r0", converter=process, since=since),))
    world.with_facts(running_converters=frozenset([process]) if is_running else frozenset())
    result = EndConverter(key="r0", process=process) in list_actions(world.decided())
    assert result is ended
