"""Tests of the changes by `dnm lend`, `extend` and `return`, and of every refusal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.model.config import NamespacePolicy
from dnm.model.departure import OVERRIDES_STAY, Eviction, Leaving
from dnm.model.lent import Phase
from dnm.model.orders import Keeping, LendOrder
from dnm.model.registry import Registry
from dnm.verbs.lending import (
    USUAL,
    LendArguments,
    extend,
    lend,
    nodes_to_return,
    orders_of,
    refuse_eviction,
    return_nodes,
)
from dnm.verbs.refusal import Refusal
from tests.builders import FENCED, NOW, QUEUE, a_config, a_lent_node, a_node, a_request
from tests.verbs import sentence

LATER = NOW + timedelta(hours=9)
DEV = NamespacePolicy(name="dev", queue=QUEUE, node_types=("a",), max_nodes=3)
CONFIG = a_config(namespaces={"dev": DEV}, exclude_nodes=frozenset({"a009"}))
TYPES = {**CONFIG.node_types, "b": replace(CONFIG.node_types["a"], name="b")}
BOTH = replace(CONFIG, node_types=TYPES, namespaces={"dev": replace(DEV, node_types=("a", "b"))})
ORDER = LendOrder(
    id="o1",
    node_type="a",
    namespace="dev",
    count=2,
    since=NOW,
    until=LATER,
    requester="kim on mgmt1",
)
REGISTRY = Registry(
    nodes={
        "a001": a_lent_node(order="o1", stays_until=LATER),
        "a002": a_lent_node(Phase.FAILED, error="it burns"),
        "a003": a_lent_node(Phase.RETURNING),
        "a004": a_lent_node(owner="other"),
        "a005": a_lent_node(),
        "a006": a_lent_node(leaves=Leaving.MANUAL),
    },
    held=("a005",),
    orders=(ORDER,),
    excluded={"a008": Keeping(since=NOW, until=LATER)},
)


def orders(config: Any = CONFIG, **words: Any) -> Any:
    return orders_of(
        config, REGISTRY, LendArguments(**{"namespace": "dev", **words}), "kim on h", NOW
    )


# --- lend ------------------------------------------------------------------------------------

NOT_LENT: dict[str, tuple[dict[str, Any], str]] = {
    "namespace": ({"namespace": "x", "count": 1}, "namespace 'x' is not monitored; monitored: dev"),
    "nothing": ({}, "write how many nodes, or which: dnm lend 2, or --node a001"),
    "unequal, of one": (
        {"count": 1, "nodes": ("a050", "a051")},
        "1 node is requested, but --node names 2: leave out the number, or name as many nodes",
    ),
    "unequal": (
        {"count": 2, "nodes": ("a050",)},
        "2 nodes are requested, but --node names 1: leave out the number, or name as many nodes",
    ),
    "type": (
        {"count": 1, "node_type": "q"},
        "nodes of type q are not lent to dev; its types: a",
    ),
    "no type": (
        {"nodes": ("x1",)},
        "x1: nodes of no known type are not lent to dev; its types: a",
    ),
    "two types": (
        {"nodes": ("a050", "x1")},
        "x1: nodes of no known type are not lent to dev; its types: a",
    ),
    "lent": ({"nodes": ("a001",)}, "a001 is lent to dev already: `dnm extend a001` keeps it there"),
    "kept out": (
        {"nodes": ("a009",)},
        "a009 is excluded from lending: exclude_nodes names it",
    ),
    "excluded, and forced": (
        {"nodes": ("a008",), "is_forced": True},
        "a008 is excluded from lending: an administrator excluded it until 2026-03-02 21:00 UTC: "
        "dnm unexclude a008",
    ),
    "cap": (
        {"count": 4, "is_forced": True},
        "4 nodes can never be lent: max_nodes of namespace dev is 3; request fewer nodes",
    ),
    "cap of all": (
        {"count": 31},
        "31 nodes can never be lent: max_converted_nodes is 30; max_nodes of namespace dev is 3; "
        "request fewer nodes",
    ),
}


@pytest.mark.parametrize(("words", "why"), NOT_LENT.values(), ids=NOT_LENT)
def test_impossible_lend_is_refused(words: dict[str, Any], why: str) -> None:
    assert sentence(orders(**words)) == why


def test_order_records_namespace_end_and_author() -> None:
    (order,) = orders(count=2, reason="a course")
    assert (order.node_type, order.count, order.nodes, order.reason) == ("a", 2, (), "a course")
    assert (
        order.until - order.since == USUAL and order.requester == "kim on h" and not order.is_forced
    )
    (order,) = orders(nodes=("a050", "a051"), until=LATER, is_forced=True)
    assert (order.count, order.nodes, order.until) == (2, ("a050", "a051"), LATER)
    assert order.is_forced


def test_nodes_of_two_types_become_two_orders() -> None:
    first, second = orders(BOTH, nodes=("a050", "b001", "b002"))
    assert (first.node_type, first.nodes, first.count) == ("a", ("a050",), 1)
    assert (second.node_type, second.nodes, second.count) == ("b", ("b001", "b002"), 2)
    assert first.id != second.id and first.until == second.until
    cap = "4 nodes can never be lent: max_nodes of namespace dev is 3; request fewer nodes"
    assert sentence(orders(BOTH, nodes=("a051", "a052", "b003", "b004"))) == cap
    why = "b[003-004] are not of type a; omit --type if you name nodes"
    assert sentence(orders(BOTH, nodes=("a051", "b003", "b004"), node_type="a")) == why


def test_node_of_a_current_order_is_not_ordered_again() -> None:
    (order,) = orders(nodes=("a050",))
    after = lend(CONFIG, REGISTRY, order)
    assert isinstance(after, Registry) and after.orders == (ORDER, order)
    assert sentence(lend(CONFIG, after, replace(order, id="o3"))) == (
        f"a050 is requested already, by {order.id} of kim on h: `dnm extend {order.id}` keeps it "
        "for longer"
    )
    over = replace(order, since=order.until)
    assert isinstance(lend(CONFIG, after, over), Registry), "that order's time is over"


# --- extend ----------------------------------------------------------------------------------

LENT = "a[001-006]"
NOT_EXTENDED = {
    "not lent": ("a099", f"'a099' is not a node that this instance has lent; lent nodes: {LENT}"),
    "another's": ("a004", f"'a004' is not a node that this instance has lent; lent nodes: {LENT}"),
    "failed": ("a002", "a002 is being returned already (failed)"),
    "returning": ("a003", "a003 is being returned already (returning)"),
    "returned": ("a006", "a006 is being returned already (serving)"),
}


@pytest.mark.parametrize(("name", "why"), NOT_EXTENDED.values(), ids=NOT_EXTENDED)
def test_invalid_extend_is_refused(name: str, why: str) -> None:
    assert sentence(extend(CONFIG, REGISTRY, name, LATER)) == why


@pytest.mark.parametrize("phase", [Phase.SERVING, Phase.RELEASING])
@pytest.mark.parametrize("leaves", OVERRIDES_STAY)
def test_returning_node_is_not_extended(phase: Phase, leaves: str) -> None:
    before = Registry(nodes={"a001": a_lent_node(phase, leaves=leaves)})
    answer = sentence(extend(CONFIG, before, "a001", LATER))
    assert answer == f"a001 is being returned already ({phase.value})"


def test_order_is_extended_with_its_nodes_and_requests() -> None:
    """The order, its requests and its nodes get the new end, except for nodes that leave."""
    returned = a_lent_node(order="o1", leaves=Leaving.MANUAL)
    coming = a_request(order="o1", stays_until=LATER)
    nodes = {**REGISTRY.nodes, "a021": returned}
    before = replace(REGISTRY, nodes=nodes, requests=(coming, a_request(id="r2")))
    until = LATER + timedelta(hours=3)
    after = extend(CONFIG, before, "o1", until)
    assert isinstance(after, Registry)
    assert [order.until for order in after.orders] == [until]
    assert after.nodes["a001"].stays_until == after.requests[0].stays_until == until
    untouched = {name: entry for name, entry in after.nodes.items() if name != "a001"}
    assert untouched == {name: entry for name, entry in nodes.items() if name != "a001"}
    assert after.requests[1] == before.requests[1]


# --- return ----------------------------------------------------------------------------------

NOT_RETURNED = {
    "not lent": ("a099", f"'a099' is not a node that this instance has lent; lent nodes: {LENT}"),
    "another's": ("a004", f"'a004' is not a node that this instance has lent; lent nodes: {LENT}"),
    "failed": ("a002", "a002 has failed: `dnm reset a002` returns it; it burns"),
    "returning": ("a003", "a003 is being returned already"),
    "held": ("a005", "a005 is held: `dnm unhold a005` first"),
}


@pytest.mark.parametrize(("name", "why"), NOT_RETURNED.values(), ids=NOT_RETURNED)
def test_invalid_return_is_refused(name: str, why: str) -> None:
    assert sentence(nodes_to_return(CONFIG, REGISTRY, (), ("a001", name))) == why
    if name != "a004":  # another instance's node is no mistake of the administrator
        assert isinstance(return_nodes(CONFIG, REGISTRY, name, NOW), Refusal), "nor under the lock"


STUCK = {name: NOT_RETURNED[name] for name in ("failed", "returning", "held")}


@pytest.mark.parametrize(("name", "why"), STUCK.values(), ids=STUCK)
def test_order_ends_even_if_its_nodes_cannot_be_returned(name: str, why: str) -> None:
    """If the order did not end, the next run would lend another node in place of a returned one."""
    stuck = replace(REGISTRY.nodes[name], order="o1", stays_until=LATER)
    before = replace(REGISTRY, nodes={**REGISTRY.nodes, name: stuck})
    going = nodes_to_return(CONFIG, before, ("o1",), ("a001",))
    assert not isinstance(going, Refusal)
    assert (going.nodes, going.orders) == (("a001",), ("o1",))
    assert [refusal.sentence for refusal in going.left] == [why]
    after = return_nodes(CONFIG, before, "o1", NOW)
    assert isinstance(after, Registry) and after.orders == ()
    assert after.nodes[name] == replace(stuck, stays_until=NOW), "should it mend"


@pytest.mark.parametrize("eviction", [None, Eviction(since=NOW)], ids=["empty", "evicted"])
def test_returned_node_leaves_and_its_order_shrinks(eviction: Eviction | None) -> None:
    ordered = replace(ORDER, nodes=("a001", "a050"))
    before = replace(REGISTRY, orders=(ordered,))
    after = return_nodes(CONFIG, before, "a001", NOW, eviction)
    assert isinstance(after, Registry)
    entry = after.nodes["a001"]
    assert (entry.leaves, entry.stays_until, entry.order) == (Leaving.MANUAL, None, "")
    assert entry.eviction == eviction
    assert [(order.count, order.nodes) for order in after.orders] == [(1, ("a050",))]
    assert return_nodes(CONFIG, after, "a001", NOW, eviction) == after, "said twice"
    last = return_nodes(CONFIG, after, "a001", NOW)
    assert isinstance(last, Registry) and last.nodes["a001"].eviction is None, "the last word holds"
    alone = return_nodes(CONFIG, replace(before, orders=(replace(ORDER, count=1),)), "a001", NOW)
    assert isinstance(alone, Registry) and alone.orders == ()


def test_pending_nodes_of_a_returned_order_are_not_kept() -> None:
    """A node that joins later is returned once idle, and does not count as unused."""
    other = a_request(id="r2", order="o2", stays_until=LATER)
    requests = (a_request(order="o1", stays_until=LATER), other)
    after = return_nodes(CONFIG, replace(REGISTRY, requests=requests), "o1", NOW)
    assert isinstance(after, Registry)
    assert after.requests == (replace(requests[0], stays_until=NOW), other)
    again = return_nodes(CONFIG, after, "o1", NOW)
    assert again == after, "an order that is gone ends with the last that came of it"


@pytest.mark.parametrize(
    ("node", "is_refused"),
    [
        pytest.param(None, False, id="removed"),
        pytest.param(a_node(), False, id="open"),
        pytest.param(a_node(is_cordoned=True, mark=FENCED), False, id="our-fence"),
        pytest.param(a_node(is_cordoned=True), True, id="an-administrator's"),
    ],
)
def test_evict_is_refused_behind_a_cordon_of_an_administrator(node: Any, is_refused: bool) -> None:
    refusal = refuse_eviction("a001", node)
    assert (refusal is not None) is is_refused
    if refusal is not None:
        assert sentence(refusal) == (
            "a001 is cordoned by an administrator, so dnm does not fence it and evicts no pod: "
            "`kubectl uncordon a001` first, or `kubectl drain a001`"
        )
