"""May a pod be on a node, and how pods share nodes: tables and properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.demand.constraints import (
    HOSTNAME,
    Place,
    keeps_apart,
    meets,
    needs_one_domain,
    tolerates,
    why_not,
)
from dnm.model.cluster import NodeSelectorTerm, PodAffinityTerm, PodShape, Requirement, Toleration
from dnm.model.config import Taint
from dnm.sizing.packing import Item, Kind, Packing, Problem, Room, least_nodes

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
def test_tolerates(toleration: Toleration, expected: bool) -> None:
    assert tolerates((toleration,), NO_SCHEDULE) is expected


def test_nobody_needs_to_tolerate_a_preference() -> None:
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
def test_meets(operator: str, values: tuple[str, ...], label: str | None, expected: bool) -> None:
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


HERE = Place(labels={"zone": "a", HOSTNAME: "n1"}, taints=(NO_SCHEDULE,), name="n1")
TO_COME = Place(labels={"zone": "a", HOSTNAME: ""})
OK = (Toleration(key="k", operator="Exists"),)
X = (("app", "x"),)


@pytest.mark.parametrize(
    ("pod", "place", "expected"),
    [
        pytest.param(shape(tolerations=OK), HERE, "", id="fits"),
        pytest.param(shape(), HERE, "does not tolerate the taint k=v:NoSchedule", id="taint"),
        pytest.param(shape(node_selector=(("zone", "b"),)), TO_COME, "selects zone=b", id="select"),
        pytest.param(shape(node_affinity=(term("zone", "b"), term("zone", "a"))), TO_COME, "",
                     id="one of the terms"),
        pytest.param(shape(node_affinity=(NodeSelectorTerm(),)), TO_COME, "has a node affinity",
                     id="an empty term selects nothing"),
        pytest.param(shape(tolerations=OK, node_affinity=(named("In", "n1"),)), HERE, "",
                     id="its own node"),
        pytest.param(shape(node_affinity=(named("In", "n1"),)), TO_COME, "has a node affinity",
                     id="a node to come has no name yet"),
        pytest.param(shape(node_affinity=(named("NotIn", "n1"),)), TO_COME, "",
                     id="a node to come is not the one to avoid"),
        pytest.param(shape(node_selector=((HOSTNAME, "n1"),)), TO_COME, "selects", id="host name"),
        pytest.param(shape(spread_keys=("rack",)), TO_COME, "spreads over rack", id="spread"),
        pytest.param(shape(spread_keys=("zone", HOSTNAME)), TO_COME, "", id="spread, labelled"),
        pytest.param(shape(pod_affinity=(beside("zone", anti=False),)), TO_COME,
                     "must be beside other pods", id="beside others, a new node"),
        pytest.param(shape(tolerations=OK, pod_affinity=(beside(HOSTNAME, anti=False),)), HERE, "",
                     id="beside others, a node that is there"),
        pytest.param(shape(pod_affinity=(beside("rack", anti=False),), labels=X), TO_COME,
                     "has a pod affinity over rack", id="beside its like, by a label that lacks"),
        pytest.param(shape(pod_affinity=(beside("zone", anti=False),), labels=X), TO_COME, "",
                     id="beside its like, a new node"),
        pytest.param(shape(pod_affinity=(beside("rack", anti=True),)), TO_COME, "",
                     id="apart from others"),
    ],
)  # fmt: skip
def test_why_not(pod: PodShape, place: Place, expected: str) -> None:
    assert why_not(pod, (), place).startswith(expected)
    assert bool(why_not(pod, (), place)) is bool(expected)


def test_all_volumes_must_be_reachable() -> None:
    near, far = (term("zone", "a"),), (term("zone", "b"),)
    assert why_not(shape(), (near,), TO_COME) == ""
    assert why_not(shape(), (near, far), TO_COME) == "has a volume that is bound to other nodes"


@pytest.mark.parametrize(
    ("pod", "apart", "one_domain"),
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
def test_pods_that_can_not_share_a_node(pod: PodShape, apart: bool, one_domain: bool) -> None:
    assert keeps_apart(pod, "dev") is apart
    assert needs_one_domain(pod, "dev") is one_domain


# --- packing ----------------------------------------------------------------------------------

amounts = st.integers(0, 12)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    axes = draw(st.integers(1, 3))
    kinds = [
        Kind(room=tuple(draw(st.integers(4, 12)) for _ in range(axes)), budgets=(number,))
        for number in range(draw(st.integers(0, 2)))
    ]
    items = []
    for _ in range(draw(st.integers(0, 4))):
        request = tuple(draw(st.integers(0, 8)) for _ in range(axes))
        usable = [
            number
            for number, kind in enumerate(kinds)
            if all(ask <= have for ask, have in zip(request, kind.room, strict=True))
        ]
        tokens = draw(st.sampled_from((frozenset(), frozenset({"port"}), frozenset({"own"}))))
        items.append(
            Item(
                request=request,
                count=draw(st.integers(1, 6)),
                places=draw(st.frozensets(st.sampled_from((0, 1)))),
                kinds=tuple(usable),
                tokens=tokens,
                blocked=draw(st.frozensets(st.sampled_from((0, 1, 2)))) if tokens else frozenset(),
                one_new=draw(st.booleans()),
            )
        )
    return Problem(
        items=tuple(items),
        rooms=tuple(
            Room(free=tuple(draw(amounts) for _ in range(axes)), place=draw(st.integers(0, 1)))
            for _ in range(draw(st.integers(0, 3)))
        ),
        kinds=tuple(kinds),
        budgets=tuple(draw(st.integers(0, 9)) for _ in kinds),
    )


def check(problem: Problem, packing: Packing) -> None:
    rooms = len(problem.rooms)
    free = [list(room.free) for room in problem.rooms]
    free += [list(problem.kinds[kind].room) for kind in packing.opened]
    tokens: list[set[str]] = [set() for _ in free]
    for item, placed, left in zip(problem.items, packing.placed, packing.left, strict=True):
        assert left >= 0 and sum(count for _, count in placed) + left == item.count
        assert not item.one_new or sum(room >= rooms for room, _ in placed) <= 1
        for room, count in placed:
            assert count > 0
            if room < rooms:
                assert problem.rooms[room].place in item.places
                assert room not in item.blocked
            else:
                assert packing.opened[room - rooms] in item.kinds
            if item.tokens:
                assert count == 1
                assert tokens[room].isdisjoint(item.tokens)
                tokens[room] |= item.tokens
            for axis, ask in enumerate(item.request):
                free[room][axis] -= ask * count
    assert all(amount >= 0 for room in free for amount in room)
    for number, budget in enumerate(problem.budgets):
        assert packing.opened.count(number) <= budget


@settings(max_examples=300, deadline=None)
@given(problems())
def test_a_packing_keeps_every_rule(problem: Problem) -> None:
    check(problem, least_nodes(problem))


@settings(max_examples=100, deadline=None)
@given(problems())
def test_the_same_problem_has_the_same_answer(problem: Problem) -> None:
    assert least_nodes(problem) == least_nodes(problem)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_what_was_left_does_not_fit_any_new_node_that_can_be_had(problem: Problem) -> None:
    packing = least_nodes(problem)
    for item, left in zip(problem.items, packing.left, strict=True):
        if left and not item.one_new and not item.tokens:
            assert all(packing.opened.count(kind) == problem.budgets[kind] for kind in item.kinds)


def test_pods_that_fit_what_is_there_open_nothing() -> None:
    item = Item(request=(2,), count=5, places=frozenset({0}), kinds=(0,))
    problem = Problem(items=(item,), rooms=(Room(free=(10,), place=0),), kinds=(Kind(room=(10,)),))
    assert least_nodes(problem) == Packing(opened=(), placed=(((0, 5),),), left=(0,))


def test_nodes_that_are_wanted_anyway_are_filled_first() -> None:
    item = Item(request=(2,), count=5, places=frozenset(), kinds=(0,))
    problem = Problem(items=(item,), kinds=(Kind(room=(10,)),), opened=(0, 0))
    assert least_nodes(problem).opened == (0, 0)


def test_a_first_fit_that_wastes_a_node_is_searched_again() -> None:
    """The largest first makes 5+5, 4+4, 3+3+3, 3; three nodes of 10 hold 5+5, 4+3+3, 4+3+3."""
    items = tuple(
        Item(request=(size,), count=count, places=frozenset(), kinds=(0,))
        for size, count in ((5, 2), (4, 2), (3, 4))
    )
    problem = Problem(items=items, kinds=(Kind(room=(10,)),))
    assert len(least_nodes(problem).opened) == 3
