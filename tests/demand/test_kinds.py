"""Equal pods are one kind, with how many wait and how many are bound."""

from __future__ import annotations

from dnm.demand.kinds import MOST_KINDS, list_kinds
from dnm.model.history import PodKind

SMALL, LARGE = {"vcore": 1000, "pods": 1}, {"memory": 10**9, "vcore": 4000, "pods": 1}


def test_equal_requests_are_one_kind_whatever_their_order() -> None:
    again = {"pods": 1, "vcore": 4000, "memory": 10**9}
    found = list_kinds([(LARGE, 2), (SMALL, 1)], [(again, 3)])
    assert found == (
        PodKind(request={"memory": 10**9, "vcore": 4000}, pending=2, bound=3),
        PodKind(request={"vcore": 1000}, pending=1, bound=0),
    )


def test_of_many_kinds_those_with_the_most_pods_are_kept() -> None:
    pending = [({"vcore": number}, number) for number in range(1, MOST_KINDS + 11)]
    found = list_kinds(pending, [])
    assert len(found) == MOST_KINDS
    assert min(one.pending for one in found) == 11


def test_nothing_is_no_kind() -> None:
    assert list_kinds([], []) == ()
