"""Tests of placing pods on nodes, and of packing several pods on the fewest nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.demand.constraints import (
    HOSTNAME,
    NodeTraits,
    describe_misfit,
    has_anti_affinity,
    meets,
    needs_single_domain,
    tolerates,
)
from dnm.model.node_type import Taint
from dnm.model.pod import NodeSelectorTerm, PodAffinityTerm, PodShape, Requirement, Toleration
from dnm.sizing.packing import least_nodes
from dnm.sizing.packing_problem import Bin, BinType, Item, Packing, Problem

NO_SCHEDULE = Taint(key="k", value="v", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration(key="k", value="v"), True, id="equal"),
        pytest.param(Toleration(key="k", value="w"), False, id="another value"),
        pytest.param(Toleration(key="x", value="v"), False, id="another key"),
        pytest.param(Toleration(key="k", operator="Exists"), True, id="exists"),
        pytest.param(Toleration(key="x", operator="Exists"), False, id="exists, another key"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(value="v"), False, id="no key tolerates all only with Exists"),
        pytest.param(Toleration(key="k", value="v", effect="NoSchedule"), True, id="its effect"),
        pytest.param(Toleration(key="k", value="v", effect="NoExecute"), False, id="other effect"),
    ],
)
def test_toleration_matches_a_taint(toleration: Toleration, expected: bool) -> None:
    assert tolerates((toleration,), NO_SCHEDULE) is expected


def test_preferred_taint_needs_no_toleration() -> None:
    assert tolerates((), Taint(key="k", effect="PreferNoSchedule"))
    assert not tolerates((), Taint(key="k", effect="NoExecute"))


@pytest.mark.parametrize(
    ("operator", "values", "label", "expected"),
    [
        pytest.param("In", ("a", "b"), "a", True, id="In"),
        pytest.param("In", ("a",), "c", False, id="In, not among them"),
        pytest.param("In", ("a",), None, False, id="In, no label"),
        pytest.param("NotIn", ("a",), "b", True, id="NotIn"),
        pytest.param("NotIn", ("a",), "a", False, id="NotIn, among them"),
        pytest.param("NotIn", ("a",), None, True, id="NotIn, no label"),
        pytest.param("Exists", (), "", True, id="Exists, empty"),
        pytest.param("Exists", (), None, False, id="Exists, no label"),
        pytest.param("DoesNotExist", (), None, True, id="DoesNotExist"),
        pytest.param("DoesNotExist", (), "a", False, id="DoesNotExist, label"),
        pytest.param("Gt", ("3",), "4", True, id="Gt"),
        pytest.param("Gt", ("4",), "4", False, id="Gt, equal"),
        pytest.param("Lt", ("10",), "9", True, id="Lt is about numbers"),
        pytest.param("Lt", ("x",), "9", False, id="Lt, no number"),
        pytest.param("Gt", ("3",), None, False, id="Gt, no label"),
        pytest.param("Near", ("a",), "a", False, id="an operator of tomorrow is not met"),
    ],
)
def test_requirement_matches_a_label(
    operator: str, values: tuple[str, ...], label: str | None, expected: bool
) -> None:
    labels = {} if label is None else {"key": label}
    assert meets(Requirement(key="key", operator=operator, values=values), labels) is expected


def shape(**constraints: Any) -> PodShape:
    return PodShape(request={"pods": 1}, **constraints)


def term(key: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(expressions=(Requirement(key=key, operator="In", values=values),))


def named(operator: str, *names: str) -> NodeSelectorTerm:
    field = Requirement(key="metadata.name", operator=operator, values=names)
    return NodeSelectorTerm(fields=(field,))


def beside(key: str, anti: bool, label: str = "x", **more: Any) -> PodAffinityTerm:
    like = (Requirement(key="app", operator="In", values=(label,)),)
    return PodAffinityTerm(topology_key=key, anti=anti, expressions=like, **more)


HERE = NodeTraits(labels={"zone": "a", HOSTNAME: "n1"}, taints=(NO_SCHEDULE,), name="n1")
NEW = NodeTraits(labels={"zone": "a", HOSTNAME: ""})
OK = (Toleration(key="k", operator="Exists"),)
X = (("app", "x"),)


@pytest.mark.parametrize(
    ("pod", "traits", "expected"),
    [
        pytest.param(shape(tolerations=OK), HERE, "", id="fits"),
        pytest.param(shape(), HERE, "does not tolerate the taint k=v:NoSchedule", id="taint"),
        pytest.param(shape(node_selector=(("zone", "b"),)), NEW, "selects zone=b", id="select"),
        pytest.param(shape(node_affinity=(term("zone", "b"), term("zone", "a"))), NEW, "",
                     id="one of the terms"),
        pytest.param(shape(node_affinity=(NodeSelectorTerm(),)), NEW, "has a node affinity",
                     id="an empty term selects nothing"),
        pytest.param(shape(tolerations=OK, node_affinity=(named("In", "n1"),)), HERE, "",
                     id="its own node"),
        pytest.param(shape(node_affinity=(named("In", "n1"),)), NEW, "has a node affinity",
                     id="a node to come has no name yet"),
        pytest.param(shape(node_affinity=(named("NotIn", "n1"),)), NEW, "",
                     id="a node to come is not the one to avoid"),
        pytest.param(shape(node_selector=((HOSTNAME, "n1"),)), NEW, "selects", id="host name"),
        pytest.param(shape(spread_keys=("rack",)), NEW, "spreads over rack", id="spread"),
        pytest.param(shape(spread_keys=("zone", HOSTNAME)), NEW, "", id="spread, labelled"),
        pytest.param(shape(pod_affinity=(beside("zone", anti=False),)), NEW,
                     "must be beside other pods", id="affinity, a new node"),
        pytest.param(shape(tolerations=OK, pod_affinity=(beside(HOSTNAME, anti=False),)), HERE, "",
                     id="affinity, an existing node"),
        pytest.param(shape(pod_affinity=(beside("rack", anti=False),), labels=X), NEW,
                     "has a pod affinity over rack", id="beside its like, by a label that lacks"),
        pytest.param(shape(pod_affinity=(beside("zone", anti=False),), labels=X), NEW, "",
                     id="beside its like, a new node"),
        pytest.param(shape(pod_affinity=(beside("rack", anti=True),)), NEW, "",
                     id="apart from others"),
    ],
)  # fmt: skip
def test_unfit_reason_names_the_unmet_constraint(
    pod: PodShape, traits: NodeTraits, expected: str
) -> None:
    assert (describe_misfit(pod, (), traits) or "").startswith(expected)
    assert bool(describe_misfit(pod, (), traits)) is bool(expected)


def test_all_volumes_must_be_reachable() -> None:
    near, far = (term("zone", "a"),), (term("zone", "b"),)
    assert describe_misfit(shape(), (near,), NEW) is None
    assert describe_misfit(shape(), (near, far), NEW) == "has a volume that is bound to other nodes"


@pytest.mark.parametrize(
    ("pod", "has_anti", "one_domain"),
    [
        pytest.param(shape(), False, False, id="plain"),
        pytest.param(shape(host_ports=(80,)), True, False, id="a host port"),
        pytest.param(shape(pod_affinity=(beside(HOSTNAME, True),), labels=X), True, False,
                     id="apart by host"),
        pytest.param(shape(pod_affinity=(beside("zone", True),), labels=X), True, True,
                     id="apart by zone"),
        pytest.param(shape(pod_affinity=(beside(HOSTNAME, True, "y"),), labels=X), False, False,
                     id="apart from others"),
        pytest.param(shape(pod_affinity=(beside(HOSTNAME, False),), labels=X), False, True,
                     id="together on a host"),
        pytest.param(shape(pod_affinity=(beside("zone", False),), labels=X), False, False,
                     id="together in a zone"),
        pytest.param(
            shape(pod_affinity=(beside(HOSTNAME, True, namespaces=("other",)),), labels=X),
            False, False, id="apart from its like elsewhere"),
    ],
)  # fmt: skip
def test_pods_that_must_not_share_a_node_are_recognized(
    pod: PodShape, has_anti: bool, one_domain: bool
) -> None:
    assert has_anti_affinity(pod, "dev") is has_anti
    assert needs_single_domain(pod, "dev") is one_domain


# --- packing ----------------------------------------------------------------------------------

amounts = st.integers(0, 12)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    axes = draw(st.integers(1, 3))
    bin_types = [
        BinType(free=tuple(draw(st.integers(4, 12)) for _ in range(axes)), budgets=(str(number),))
        for number in range(draw(st.integers(0, 2)))
    ]
    items = []
    for _ in range(draw(st.integers(0, 4))):
        request = tuple(draw(st.integers(0, 8)) for _ in range(axes))
        usable = [
            number
            for number, bin_type in enumerate(bin_types)
            if all(ask <= have for ask, have in zip(request, bin_type.free, strict=True))
        ]
        exclusive = draw(st.sampled_from((frozenset(), frozenset({"port"}), frozenset({"own"}))))
        items.append(
            Item(
                request=request,
                count=draw(st.integers(1, 6)),
                node_classes=draw(st.frozensets(st.sampled_from((0, 1)))),
                bin_types=tuple(usable),
                exclusive=exclusive,
                blocked_bins=draw(st.frozensets(st.sampled_from((0, 1, 2))))
                if exclusive
                else frozenset(),
                single_new_bin=draw(st.booleans()),
            )
        )
    return Problem(
        items=tuple(items),
        bins=tuple(
            Bin(free=tuple(draw(amounts) for _ in range(axes)), node_class=draw(st.integers(0, 1)))
            for _ in range(draw(st.integers(0, 3)))
        ),
        bin_types=tuple(bin_types),
        budgets={str(number): draw(st.integers(0, 9)) for number in range(len(bin_types))},
    )


def check(problem: Problem, packing: Packing) -> None:
    bins = len(problem.bins)
    free = [list(item.free) for item in problem.bins]
    free += [list(problem.bin_types[bin_type].free) for bin_type in packing.opened]
    exclusive: list[set[str]] = [set() for _ in free]
    for item, placed, left in zip(problem.items, packing.placed, packing.left, strict=True):
        assert left >= 0 and sum(count for _, count in placed) + left == item.count
        assert not item.single_new_bin or sum(item >= bins for item, _ in placed) <= 1
        for number, count in placed:
            assert count > 0
            if number < bins:
                assert problem.bins[number].node_class in item.node_classes
                assert number not in item.blocked_bins
            else:
                assert packing.opened[number - bins] in item.bin_types
            if item.exclusive:
                assert count == 1
                assert exclusive[number].isdisjoint(item.exclusive)
                exclusive[number] |= item.exclusive
            for axis, ask in enumerate(item.request):
                free[number][axis] -= ask * count
    assert all(amount >= 0 for row in free for amount in row)
    for name, budget in problem.budgets.items():
        assert packing.opened.count(int(name)) <= budget


@settings(max_examples=300, deadline=None)
@given(problems())
def test_packing_respects_every_constraint(problem: Problem) -> None:
    """Nodes have no more than they can hold, and no unpacked pod fits on an available node."""
    packing = least_nodes(problem)
    check(problem, packing)
    assert least_nodes(problem) == packing
    for item, left in zip(problem.items, packing.left, strict=True):
        if left and not item.single_new_bin and not item.exclusive:
            assert all(
                packing.opened.count(bin_type) == problem.budgets[str(bin_type)]
                for bin_type in item.bin_types
            )


def test_pods_that_fit_existing_nodes_open_no_node() -> None:
    item = Item(request=(2,), count=5, node_classes=frozenset({0}), bin_types=(0,))
    problem = Problem(
        items=(item,), bins=(Bin(free=(10,), node_class=0),), bin_types=(BinType(free=(10,)),)
    )
    assert least_nodes(problem) == Packing(opened=(), placed=(((0, 5),),), left=(0,))


def test_full_node_gets_no_pod() -> None:
    item = Item(request=(2,), count=5, node_classes=frozenset({0}), bin_types=(0,))
    problem = Problem(
        items=(item,), bins=(Bin(free=(1,), node_class=0),), bin_types=(BinType(free=(10,)),)
    )
    assert least_nodes(problem).opened == (0,)


def test_requested_nodes_are_kept_without_pods() -> None:
    problem = Problem(items=(), bin_types=(BinType(free=(10,)),), opened=(0,))
    assert least_nodes(problem).opened == (0,)


def test_already_requested_nodes_are_filled_first() -> None:
    item = Item(request=(2,), count=5, node_classes=frozenset(), bin_types=(0,))
    problem = Problem(items=(item,), bin_types=(BinType(free=(10,)),), opened=(0, 0))
    assert least_nodes(problem).opened == (0, 0)


def test_pods_of_a_topology_domain_get_a_single_new_node() -> None:
    """Two new nodes are open for other pods. The group goes to the second one, which is fuller."""
    requests = {(6, 0): (0,), (8, 0): (0, 1), (2, 0): (0, 1), (0, 1): (0, 1)}  # so two orders
    items = tuple(
        Item(request=request, count=3 if request == (2, 0) else 1, node_classes=frozenset(),
             bin_types=types, single_new_bin=request == (2, 0))
        for request, types in requests.items()
    )  # fmt: skip
    bin_types = (BinType(free=(10, 10)), BinType(free=(99, 10)))
    assert least_nodes(Problem(items=items, bin_types=bin_types)).left == (0, 0, 1, 0)
