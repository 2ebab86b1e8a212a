"""Tests of caps in per cent of Slurm's nodes: their value in nodes, and their effect on a plan."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.config import Config
from dnm.model.node_type import NodeType
from dnm.model.reason import Reason, ReasonText
from dnm.model.share import Floor, Share
from dnm.model.value import Unreadable
from dnm.model.verdict import Verdict
from dnm.plan.cap_shares import resolve_shares
from tests.builders import QUEUE, SIZE, a_config
from tests.plan.worlds import World, namespace_policy, wanting

QUARTER = Share(percent=25)
SILENT = Unreadable(subject="batch", error="the converter's list did not answer")

OF = {
    "half": (50, 40, 20),
    "a part of a node is none": (5, 59, 2),
    "but the first": (5, 8, 1),
    "none of none": (25, 0, 0),
    "nothing": (0, 40, 0),
    "all": (100, 40, 40),
    "no part is lost to a float": (2.2, 500, 11),
    "nor where the product is below": (0.57, 10_000, 57),
}


@pytest.mark.parametrize(("percent", "total", "nodes"), OF.values(), ids=OF)
def test_percentage_is_rounded_to_an_integer_count_of_nodes(
    percent: float, total: int, nodes: int
) -> None:
    assert Share(percent=percent).of(total) == nodes


@given(st.integers(0, 100_000), st.integers(0, 20_000))
def test_cap_and_floor_percentages_add_up_to_all_nodes(thousandths: int, total: int) -> None:
    percent = thousandths / 1000
    cap, rest = Share(percent=percent).of(total), Floor(percent=100 - percent).of(total)
    assert cap + rest == total or (cap == 1 and thousandths * total < 100_000)


TYPES = {"a": NodeType(name="a", size=SIZE, max_nodes=QUARTER), "b": NodeType(name="b", size=SIZE)}
LISTED = dict.fromkeys([f"a{n}" for n in range(8)] + [f"b{n}" for n in range(4)] + ["x1"])


def site(**changes: Any) -> Config:
    config = a_config(node_types=TYPES, max_converted_nodes=Share(percent=50), **changes)
    namespaces = namespace_policy(config, max_nodes=QUARTER, node_types=("b",))
    return msgspec.structs.replace(config, namespaces=namespaces)


def test_percentage_cap_counts_only_nodes_of_its_types() -> None:
    """A node of no configured type is never lent, so it does not count."""
    config = resolve_shares(site(), LISTED)
    assert config.max_converted_nodes == 6 and not config.has_shares
    assert config.node_types["a"].max_nodes == 2 and config.node_types["b"].max_nodes is None
    assert config.namespaces["dev"].max_nodes == 1


@pytest.mark.parametrize("batch", [None, SILENT], ids=["not asked", "unreadable"])
def test_percentage_of_an_unknown_total_is_not_resolved(batch: Any) -> None:
    assert resolve_shares(site(), batch) == site()


def caps(cap: Share) -> dict[str, dict[str, Any]]:
    config = World().config
    types = {"a": msgspec.structs.replace(config.node_types["a"], max_nodes=cap)}
    return {
        "max_converted_nodes": {"max_converted_nodes": cap},
        "max_nodes of node type a": {"node_types": types},
        "max_nodes of namespace dev": {"namespaces": namespace_policy(config, max_nodes=cap)},
    }


@pytest.mark.parametrize("name", caps(QUARTER))
@pytest.mark.parametrize(("percent", "asked"), [(25, 2), (10, 1), (5, 1), (0, 0), (100, 3)])
def test_plan_requests_no_more_than_the_percentage_cap(
    name: str, percent: float, asked: int
) -> None:
    """Ten nodes of Slurm are idle, and pods need three of them."""
    conversions = wanting(3).configured(**caps(Share(percent=percent))[name]).converted()
    assert sum(request.count for request in conversions.requests) == asked
    if not asked:
        verdict = conversions.verdicts[QUEUE]
        assert verdict.reason is Reason.CAPPED and f"{name} used up" in verdict.detail


@pytest.mark.parametrize("name", caps(QUARTER))
@pytest.mark.parametrize(
    ("batch", "reason", "detail"),
    [
        (None, Reason.BATCH_NOT_ASKED, "the next run reads them"),
        (SILENT, Reason.NO_BATCH_NODE, SILENT.error),
    ],
    ids=["not asked", "unreadable"],
)
def test_nothing_is_lent_while_the_total_behind_a_percentage_is_unknown(
    name: str, batch: Any, reason: ReasonText, detail: str
) -> None:
    """dnm returns no lent node for that reason."""
    world = wanting(3).lent("a001").node("a001").configured(**caps(QUARTER)[name])
    plan = world.set(batch=batch).plan()
    assert not plan.registry.requests and "a001" in plan.registry.nodes
    verdict = plan.queues[0]
    assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, reason) and detail in verdict.detail
