"""Tests of the size with which dnm counts a lent node, whatever its kubelet reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.node import Node
from dnm.model.node_type import NodeType
from dnm.model.reason import Reason
from dnm.plan.phases import advance_node, grown, measure_node
from tests.builders import NOW, a_config, a_lent_node, a_node, facts

GPU = "nvidia.com/gpu"
DECLARED = {"cpu": 128_000, "memory": 256 * 10**9, GPU: 4}
HUGE = 9 * 10**15


def config(**changes: Any) -> Config:
    return a_config(node_types={"a": NodeType(name="a", size=DECLARED)}, **changes)


def offering(**changes: int) -> Node:
    names = {"gpu": GPU, "storage": "ephemeral-storage"}
    return a_node(allocatable={**DECLARED, **{names.get(k, k): v for k, v in changes.items()}})


@pytest.mark.parametrize(
    ("node", "differs", "is_reported"),
    [
        pytest.param(offering(), {}, False, id="as declared"),
        pytest.param(offering(cpu=127_000), {"cpu": 127_000}, False, id="less, as kubelets"),
        pytest.param(offering(cpu=140_800), {"cpu": 140_800}, False, id="at the tolerance"),
        pytest.param(offering(cpu=140_801), {}, True, id="above the tolerance"),
        pytest.param(offering(memory=HUGE), {}, True, id="a lie"),
        pytest.param(offering(gpu=HUGE), {}, True, id="a lie about devices"),
        pytest.param(offering(pods=110), {"pods": 110}, False, id="pods need no declaration"),
        pytest.param(offering(pods=HUGE), {"pods": 1000}, True, id="a lie about pods"),
        pytest.param(offering(storage=HUGE), {}, False, id="undeclared resources are not counted"),
    ],
)
def test_node_is_counted_by_its_offer_up_to_the_declared_size(
    node: Node, differs: dict[str, int], is_reported: bool
) -> None:
    size = measure_node(config(), "a", node)
    assert size is not None
    assert size.counted == {**DECLARED, **differs}
    assert bool(size.remark) == is_reported
    if is_reported:
        assert "a001 offers more than [node_type:a] declares" in size.remark


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "memory", GPU, "pods", "ephemeral-storage", "evil.io/x"]),
        st.integers(-(2**70), 2**70),
    ),
    st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 2**70)),
)
@example({"pods": 1001, "cpu": 1, "memory": 1, GPU: 1}, {})
def test_kubelet_cannot_raise_a_size_beyond_its_type(
    allocatable: dict[str, int], recorded: dict[str, int]
) -> None:
    node = a_node(allocatable=allocatable)
    size = measure_node(config(), "a", node)
    if size is None:
        assert any(allocatable.get(name, 0) <= 0 for name in DECLARED)
        return
    for results in (size.counted, grown(config(), "a", node, recorded).counted):
        assert all(0 < results[name] <= DECLARED[name] * 1.1 for name in DECLARED)
        assert results.keys() <= {*DECLARED, "pods"} and results.get("pods", 0) <= 1100


def test_node_that_offers_too_much_is_counted_as_declared_and_reported() -> None:
    entry = a_lent_node(Phase.JOINING)
    after = advance_node(config(), "a001", entry, facts([offering(memory=HUGE)]))
    assert after.verdict.reason is Reason.JOINED and after.entry is not None
    assert after.entry.counted == DECLARED and "9P memory, and 256G are counted" in after.remark


def test_recorded_size_above_the_declared_size_is_reduced() -> None:
    entry = a_lent_node(counted={**DECLARED, "memory": HUGE}, idle_since=NOW)
    after = advance_node(config(), "a001", entry, facts([offering()]))
    assert after.entry is not None and after.entry.counted == DECLARED
