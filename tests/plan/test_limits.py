"""Tests of the limits of queues before and after nodes are fenced, and when they are unknown."""

from __future__ import annotations

import msgspec

from dnm.model.lent import Phase
from dnm.model.plan import Plan, SetQueueLimits, StartConversion
from dnm.model.reason import Reason
from dnm.model.registry import QueueStatus, RunRecord
from dnm.model.verdict import Verdict
from dnm.plan.limits import diff_of, floors, plan_limits, serving_sizes
from dnm.queues.yunikorn.document_edit import DocumentEdit
from tests.builders import COUNTED, QUEUE, SIZE
from tests.plan.worlds import (
    BASELINE,
    LONG_AGO,
    SMALL,
    World,
    fenced,
    pods,
    queue_map,
    serving,
    wanting,
)
from tests.site import WORKSHOP_QUEUES


def planned_edit(plan: Plan) -> DocumentEdit:
    (edit,) = (action.edit for action in plan.actions if isinstance(action, SetQueueLimits))
    assert isinstance(edit, DocumentEdit)
    return edit


def test_limit_contains_only_serving_nodes_of_this_instance() -> None:
    world = World().lent("a001").lent("a002", Phase.RELEASING).lent("a003", Phase.FAILED)
    world.lent("a004", owner="validation").lent("a005", queue="root.other", counted={"cpu": 1})
    assert serving_sizes(world.config, world.registry) == {
        QUEUE: {"a001": COUNTED},
        "root.other": {"a005": {"cpu": 1}},
    }


def test_limit_does_not_shrink_below_the_allocated_amount() -> None:
    demand = World().with_pods(*pods(3, SMALL, node="k1")).inputs().demand
    assert demand is not None and floors(demand)[QUEUE]["cpu"] == 3000


def test_limit_is_baseline_plus_serving_nodes() -> None:
    joined = World().lent("a001", Phase.JOINING).node("a001", mark=None)
    decided = joined.decided()
    limits, diff = decided.limits, diff_of(decided.inputs.queues, decided.limits)
    assert limits.is_changed
    assert limits.limits[QUEUE].max["cpu"] == BASELINE["cpu"] + COUNTED["cpu"]
    assert "+" in diff and "queues.yaml (planned)" in diff


def test_limit_shrinks_by_nodes_that_are_fenced_in_the_run() -> None:
    idle = serving(idle_since=LONG_AGO)
    grown = BASELINE["cpu"] + COUNTED["cpu"]
    assert idle.current().limits[QUEUE].max["cpu"] == grown
    assert idle.limits().limits[QUEUE].max["cpu"] == BASELINE["cpu"]


def test_edit_of_limits_is_planned_once_without_fences() -> None:
    inputs, current = serving().inputs(), serving().current()
    limits = plan_limits(inputs, current.registry, current)
    assert current.projected is not None and limits.edit is current.projected.edit
    assert not limits.is_changed and diff_of(inputs.queues, limits) == ""


def test_limit_lowered_manually_below_the_lent_amount_is_fixed() -> None:
    """An administrator set it below the lent amount. dnm keeps it, so no node would raise it."""
    text = queue_map({"a001": COUNTED}).data["queues.yaml"]
    lowered = text.replace("vcore: 208", "vcore: 100").replace("vcore: 136", "vcore: 8")
    assert lowered != text
    document = msgspec.structs.replace(queue_map({"a001": COUNTED}), data={"queues.yaml": lowered})
    current = serving().set(maps=(document, None)).current()
    assert current.limits[QUEUE].fixed == {"cpu"}
    assert fenced().current().limits[QUEUE].fixed == frozenset()


# --- what can't be written -----------------------------------------------------------------------

ESCAPED = WORKSHOP_QUEUES.replace("vcore: 80", 'vcore: "\\x38\\x30"')
CLOSED = WORKSHOP_QUEUES.replace("vcore: 80", "vcore: 80\n                    pods: 0")


def test_queue_with_unwritable_growth_gets_no_node() -> None:
    plan = wanting(3).set(maps=(queue_map(text=ESCAPED), None)).plan()
    (verdict,) = (queue for queue in plan.queues if queue.queue == QUEUE)
    assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, Reason.QUEUE_UNREADABLE)
    assert f"line 22: max vcore of {QUEUE} is written with escapes" in verdict.detail
    assert not any(isinstance(action, StartConversion) for action in plan.actions)
    assert plan.needs_person and f"{QUEUE} gets no node: line 22" in plan.errors[0]
    assert "line 22" in plan.status[QUEUE].reason
    assert not wanting(3).plan().needs_person


def test_joining_nodes_count_with_requested_nodes_in_the_overflow_check() -> None:
    for free, is_enough in ((4, True), (3, False)):
        most = 2**63 - 1 - free * SIZE["memory"]
        text = WORKSHOP_QUEUES.replace("memory: 320G", f"memory: {most}")
        world = wanting(4).set(maps=(queue_map(text=text), None))
        for name in ("a001", "a002", "a003"):
            world.lent(name, Phase.JOINING)
        plan = world.plan()
        assert ("more than YuniKorn can count" in "".join(plan.errors)) is not is_enough
        assert any(isinstance(action, StartConversion) for action in plan.actions) is is_enough


def test_unwritable_limit_still_releases_the_nodes_from_the_ledger() -> None:
    document = queue_map({"a001": dict(COUNTED)})
    text = document.data["queues.yaml"].replace("vcore: 208", 'vcore: "20\\x38"')
    world = fenced().set(maps=(msgspec.structs.replace(document, data={"queues.yaml": text}), None))
    plan = world.plan()
    edit = planned_edit(plan)
    assert 'vcore: "20\\x38"' in edit.text and "memory: 320G" in edit.text
    assert "a001" not in edit.ledger
    assert plan.needs_person and "a limit can't be changed" in plan.errors[0]


def test_queue_closed_by_pods_0_gets_no_node() -> None:
    """`pods: 0` closes a queue in YuniKorn: dnm neither lends for it nor opens it."""
    plan = wanting(3).set(maps=(queue_map(text=CLOSED), None)).plan()
    assert not any(isinstance(action, StartConversion) for action in plan.actions)
    (verdict,) = (queue for queue in plan.queues if queue.queue == QUEUE)
    assert f"no new node raises the pods limit of {QUEUE}" in verdict.sentence
    joined = serving().set(maps=(queue_map(text=CLOSED), None)).plan()
    edit = planned_edit(joined)
    assert "pods: 0\n" in edit.text and "vcore: 208" in edit.text


def test_reopened_queue_has_its_new_limit_plus_lent_nodes() -> None:
    closed = queue_map({"a001": dict(COUNTED)}, text=CLOSED)
    text = closed.data["queues.yaml"].replace("pods: 0", "pods: 50")
    document = msgspec.structs.replace(closed, data={"queues.yaml": text})
    edit = planned_edit(serving().set(maps=(document, None)).plan())
    assert f"pods: {50 + COUNTED['pods']}" in edit.text


def test_written_ledger_is_recorded_in_case_the_annotation_is_lost() -> None:
    plan = serving().set(maps=(queue_map(), None)).plan()
    edit = planned_edit(plan)
    assert plan.registry.last_run.ledger == edit.ledger != ""
    document = msgspec.structs.replace(queue_map(), data={"queues.yaml": edit.text})
    again = serving().recorded(last_run=plan.registry.last_run).set(maps=(document, None)).plan()
    edit = planned_edit(again)
    assert (edit.text, edit.ledger) == (document.data["queues.yaml"], plan.registry.last_run.ledger)
    assert "the ledger is gone from the ConfigMap" in again.notes[0]


def test_registry_of_an_older_dnm_without_ledger_needs_an_administrator() -> None:
    """Without a ledger, limits are baselines only if nothing was lent; else dnm has to ask."""
    bare = serving().set(maps=(queue_map(), None))
    assert not bare.plan().needs_person
    status = QueueStatus(
        limit={}, baseline={}, lent={"cpu": 1}, used={}, pending={}, pending_pods=0, verdict="",
        reason="",
    )  # fmt: skip
    asked = bare.recorded(last_run=RunRecord(queues={QUEUE: status})).plan()
    assert asked.needs_person and "has no ledger of this instance" in asked.errors[0]
