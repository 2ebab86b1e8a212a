"""Tests that namespaces of equal priority share scarce nodes fairly."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.node_type import NodeType
from dnm.model.pod import Toleration
from dnm.model.reason import Reason
from dnm.sizing.caps import ConversionBudget, NodePool, budget_of, count_left
from dnm.sizing.fair_shares import divide_fairly
from dnm.sizing.node_supply import IncomingNode
from dnm.sizing.queue_sizing import Sizing
from dnm.sizing.sizing import size_queues
from tests.scenes import (
    TAINT,
    budget,
    config,
    demand,
    node_supply,
    pods,
    policy,
    size,
    tree,
)

NAMES = ("one", "two", "three", "four")
NODE = size(100, 200)  # a pod that needs its own node of 128 cores


def sizing_of(
    wanted: dict[str, int],
    left: ConversionBudget,
    lent: dict[str, int] | None = None,
    priorities: dict[str, int] | None = None,
    types: tuple[str, ...] = ("a",),
) -> Sizing:
    """Returns the sizing for `wanted` pods of each namespace, each of which needs a node. The first
    namespace has waited longest. `lent` are joining nodes that existing pods will fill."""
    lent, priorities = lent or {}, priorities or {}
    conf = config(
        namespaces={
            name: policy(name, f"root.{name}", *types, priority=priorities.get(name, 0))
            for name in wanted
        },
        node_types={
            name: NodeType(name=name, size=size(128, 256), taints=(TAINT,)) for name in types
        },
    )  # fmt: skip
    queues = {"root": tree()["root"]}
    for name in wanted:
        queues[f"root.{name}"] = msgspec.structs.replace(
            tree()["root.anvil.dev"], path=f"root.{name}", parent="root"
        )
    some = [
        pod
        for rank, (name, count) in enumerate(wanted.items())
        for pod in pods(
            count + lent.get(name, 0), NODE, namespace=name, name=name, app=name,
            ago=1000 - 10 * rank,
            shape={"tolerations": (Toleration(key="dedicated", value=name),)},
        )
    ]  # fmt: skip
    incoming = [
        IncomingNode(node_type=types[0], namespace=name, queue=f"root.{name}")
        for name, count in lent.items()
        for _ in range(count)
    ]
    result = demand(some, conf, queues)
    return size_queues(conf, result, queues, node_supply(incoming=incoming), left)


def granted(sizing: Sizing) -> dict[str, int]:
    return {
        queue.removeprefix("root."): sum(item.granted.values())
        for queue, item in sizing.queues.items()
    }


CASES = [
    pytest.param({"one": 2000, "two": 3}, 4, {}, {"one": 2, "two": 2}, id="2000 and 3 at 4"),
    pytest.param({"one": 2000, "two": 1}, 4, {}, {"one": 3, "two": 1}, id="2000 and 1 at 4"),
    pytest.param({"one": 9, "two": 9}, 3, {}, {"one": 2, "two": 1}, id="the longest wait first"),
    pytest.param({"one": 9, "two": 9}, 1, {"one": 1}, {"one": 0, "two": 1}, id="the lent count"),
    pytest.param({"one": 9, "two": 9}, 4, {"one": 3}, {"one": 1, "two": 3}, id="up to the same"),
    pytest.param({"one": 9, "two": 0}, 4, {}, {"one": 4, "two": 0}, id="alone"),
    pytest.param({"one": 9, "two": 9}, 0, {}, {"one": 0, "two": 0}, id="none left"),
    pytest.param({"one": 2, "two": 2}, 4, {}, {"one": 2, "two": 2}, id="enough for both"),
]


@pytest.mark.parametrize(("wanted", "left", "lent", "expected"), CASES)
def test_namespaces_share_scarce_nodes_in_turns(
    wanted: dict[str, int], left: int, lent: dict[str, int], expected: dict[str, int]
) -> None:
    sizing = sizing_of(wanted, budget(total=left), lent)
    assert granted(sizing) == expected
    assert sum(sizing.queues["root.one"].wanted.values()) == wanted["one"]


def test_decision_names_the_cap_that_is_shared() -> None:
    sizing = sizing_of({"one": 9, "two": 9, "three": 9}, budget(total=2))
    details = {queue: verdict.detail for queue, verdict in sizing.verdicts.items()}
    assert "1 can be lent: max_converted_nodes is shared with other namesp" in details["root.one"]
    assert "0 can be lent: max_converted_nodes used up" in details["root.three"]
    assert sizing.verdicts["root.three"].reason is Reason.OUTRANKED


@pytest.mark.parametrize(
    "left",
    [budget(batch={"a": 4, "b": 0}), budget(per_type={"a": 4, "b": 0})],
    ids=["idle nodes", "cap of the type"],
)
def test_scarce_node_type_is_shared(left: ConversionBudget) -> None:
    sizing = sizing_of({"one": 2000, "two": 9}, left, types=("a", "b"))
    assert granted(sizing) == {"one": 2, "two": 2}


def test_second_node_type_replaces_the_share_of_a_scarce_type() -> None:
    sizing = sizing_of({"one": 9, "two": 2}, budget(batch={"a": 2, "b": 20}), types=("a", "b"))
    assert granted(sizing) == {"one": 9, "two": 2}
    assert {pool.namespace: count for queue in sizing.queues.values()
            for pool, count in queue.granted.items() if pool.node_type == "a"} == {
        "one": 1, "two": 1,
    }  # fmt: skip


def test_priority_precedes_the_fair_share() -> None:
    sizing = sizing_of({"one": 9, "two": 3}, budget(total=4), {"two": 5}, {"two": 1})
    assert granted(sizing) == {"one": 1, "two": 3}


counts = st.integers(0, 6)


@given(
    wanted=st.fixed_dictionaries(dict.fromkeys(NAMES, counts)),
    lent=st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 3))),
    priorities=st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 1))),
    cap=st.integers(0, 12),
)
def test_namespace_gets_no_node_before_a_namespace_with_fewer_nodes(
    wanted: dict[str, int], lent: dict[str, int], priorities: dict[str, int], cap: int
) -> None:
    """Lent nodes count too. A namespace gets a second scarce node only when each other namespace of
    its priority that can use one has a node."""
    got = granted(sizing_of(wanted, budget(total=cap), lent, priorities))
    assert sum(got.values()) == min(cap, sum(wanted.values()))
    for name in NAMES:
        for other in NAMES:
            if got[name] and got[other] < wanted[other]:
                assert priorities[name] >= priorities[other]
                if priorities[name] == priorities[other]:
                    assert lent[name] + got[name] <= lent[other] + got[other] + 1
    assert got == granted(sizing_of(wanted, budget(total=cap), lent, priorities))


POOLS = [NodePool(f"root.{name}", name, kind) for name in NAMES[:3] for kind in "ab"]


@given(
    claims=st.dictionaries(st.sampled_from(POOLS), counts),
    caps=st.tuples(counts, counts, counts),
    held=st.dictionaries(st.tuples(st.sampled_from(NAMES[:3]), st.sampled_from("ab")), counts),
)
def test_shares_respect_every_cap_and_leave_no_usable_node(
    claims: dict[NodePool, int], caps: tuple[int, int, int], held: dict[tuple[str, str], int]
) -> None:
    full, first, second = caps
    conf = config(
        max_converted_nodes=full,
        node_types={
            name: NodeType(name=name, size={}, max_nodes=most)
            for name, most in (("a", first), ("b", second))
        },
        namespaces={},
    )
    left = count_left(conf, (), {})
    shares = divide_fairly(left, claims, held, {})
    rest = left
    for pool, count in shares.items():
        assert count <= claims[pool]
        for _ in range(count):
            rest = rest.changed([pool], -1)
    assert all(count >= 0 for count in rest.left.values())
    for pool, count in claims.items():
        is_open = all(rest.left[bound.name] > 0 for bound in rest.bounds_of(pool))
        assert shares[pool] == count or not is_open
    assert divide_fairly(budget_of(()), claims, held, {}) == +Counter(claims)
