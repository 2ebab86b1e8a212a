"""The limits before and after the fences: what they are computed from, and when they can't be."""

from __future__ import annotations

import msgspec

from dnm.model.cluster import ConfigMap
from dnm.model.registry import Phase
from dnm.plan.limits import plan_limits
from dnm.plan.queue_wants import floors, serving_sizes
from dnm.queues.source import LEDGER_ANNOTATION
from tests.builders import COUNTED, QUEUE
from tests.plan.worlds import (
    BASELINE,
    LONG_AGO,
    SMALL,
    UNREAD,
    World,
    fenced,
    pods,
    queue_map,
    serving,
)


def test_only_nodes_of_this_instance_that_serve_are_in_a_limit() -> None:
    world = World().lent("a001").lent("a002", Phase.RELEASING).lent("a003", Phase.FAILED)
    world.lent("a004", owner="validation").lent("a005", queue="root.other", counted={"vcore": 1})
    assert serving_sizes(world.config, world.registry) == {
        QUEUE: {"a001": COUNTED},
        "root.other": {"a005": {"vcore": 1}},
    }


def test_no_limit_shrinks_below_what_is_allocated() -> None:
    demand = World().with_pods(*pods(3, SMALL, node="k1")).known().demand
    assert demand is not None and floors(demand)[QUEUE]["vcore"] == 3000


def test_a_limit_is_its_baseline_plus_what_serves() -> None:
    joined = World().lent("a001", Phase.JOINING).node("a001", mark=None)
    limits = joined.limits()
    assert limits.is_changed
    assert limits.limits[QUEUE].max["vcore"] == BASELINE["vcore"] + COUNTED["vcore"]
    assert "+" in limits.diff and "queues.yaml (planned)" in limits.diff


def test_the_limits_shrink_by_the_nodes_that_are_fenced_now() -> None:
    idle = serving(idle_since=LONG_AGO)
    grown = BASELINE["vcore"] + COUNTED["vcore"]
    assert idle.standing().limits[QUEUE].max["vcore"] == grown
    assert idle.limits().limits[QUEUE].max["vcore"] == BASELINE["vcore"]


def test_where_nothing_is_fenced_the_edit_is_planned_once() -> None:
    fenced_ = serving().fenced()
    limits = plan_limits(fenced_)
    assert fenced_.standing.foreseen is not None
    assert (
        limits.edit is fenced_.standing.foreseen.edit
        and not limits.is_changed
        and limits.diff == ""
    )


def _unreadable_ledger() -> ConfigMap:
    return msgspec.structs.replace(
        queue_map({"a001": dict(COUNTED)}), annotations={LEDGER_ANNOTATION: "{not json"}
    )


def test_a_document_that_can_not_be_edited_says_so_before_anything_is_fenced() -> None:
    world = serving(idle_since=LONG_AGO).set(maps=(_unreadable_ledger(), None))
    assert world.standing().refusal and world.limits().refusal
    assert not world.limits().is_changed


def test_what_is_not_known_asks_nothing_of_the_document() -> None:
    for unread in ("pods", "maps"):
        limits = serving().set(**{unread: UNREAD}).limits()
        assert limits.edit is None and limits.action is None and not limits.is_changed


def test_a_limit_that_a_person_set_below_what_is_lent_is_fixed() -> None:
    """No node raises it, so none is asked for its sake."""
    text = queue_map({"a001": COUNTED}).data["queues.yaml"]
    lowered = text.replace("vcore: 208", "vcore: 100").replace("vcore: 136", "vcore: 8")
    assert lowered != text
    document = msgspec.structs.replace(queue_map({"a001": COUNTED}), data={"queues.yaml": lowered})
    standing = serving().set(maps=(document, None)).standing()
    assert standing.limits[QUEUE].fixed == {"vcore"}
    assert fenced().standing().limits[QUEUE].fixed == frozenset()
