"""Tests of machines that always have a Node: while a taint gives it to Slurm, dnm ignores it."""

from __future__ import annotations

from typing import Any

import pytest

from dnm.model.lent import Phase
from dnm.model.node_type import Taint
from dnm.model.reason import Reason
from tests.builders import a_batch_node
from tests.plan.worlds import World

FENCE = Taint(key="dynamic-node-manager/batch", effect="NoSchedule")


def world(phase: Phase, in_service: bool, *taints: Taint) -> World:
    made = World().lent("a001", phase).node("a001", mark=None, taints=taints)
    made.batch = {**made.batch, "a001": a_batch_node(in_service=in_service)}
    return made


@pytest.mark.parametrize(
    ("phase", "in_service", "taints", "after"),
    [
        pytest.param(Phase.RETURNING, True, (FENCE,), None, id="back"),
        pytest.param(Phase.RETURNING, False, (FENCE,), Phase.RETURNING, id="on-its-way-back"),
        pytest.param(Phase.RETURNING, True, (), Phase.FAILED, id="offered-to-both"),
        pytest.param(Phase.JOINING, False, (FENCE,), Phase.JOINING, id="not-open-yet"),
        pytest.param(Phase.JOINING, False, (), Phase.SERVING, id="open"),
        pytest.param(
            Phase.JOINING, False, (Taint(key=FENCE.key, effect="PreferNoSchedule"),), Phase.SERVING,
            id="taint-without-an-effect",
        ),
    ],
)  # fmt: skip
def test_taint_decides_which_side_has_an_always_joined_node(
    phase: Phase, in_service: bool, taints: Any, after: Phase | None
) -> None:
    plan = world(phase, in_service, *taints).plan()
    entry = plan.registry.nodes.get("a001")
    assert (entry.phase if entry else None) is after
    if after is None:
        assert plan.nodes[0].reason is Reason.RETURNED
