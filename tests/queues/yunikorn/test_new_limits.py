"""Tests of bounds on new limits: reasons why a limit does not shrink or grow further."""

from __future__ import annotations

import pytest

from dnm.model.value import Resources
from dnm.queues.yunikorn.tree import parse_tree
from tests.queue_kit import ONE, TREE, A, B, change, check_text, edit, lend, limit, nodes_of

FLOORS = [
    pytest.param({A: {"vcore": 150_000}}, "150", "what its pods have or need", id="allocated"),
    pytest.param({A: {"vcore": 500_000}}, "208", "what its pods have or need", id="above all"),
    pytest.param({A: {"vcore": 80_000}}, "80", "", id="just enough"),
]


@pytest.mark.parametrize(("floors", "text", "reason"), FLOORS)
def test_shrink_stops_at_the_allocated_amount(
    floors: dict[str, Resources], text: str, reason: str
) -> None:
    made = lend(TREE, ONE)
    shrunk = edit(made.text, made.ledger, {}, floors=floors)
    assert not shrunk.refusal
    assert limit(shrunk, A) == text
    assert limit(shrunk, A, "memory") == "320G"
    assert reason in shrunk.held.get(A, "")
    assert bool(reason) == bool(shrunk.held)
    again = edit(shrunk.text, shrunk.ledger, {}, floors=floors)
    assert not again.is_changed
    assert edit(again.text, again.ledger, {}).text == TREE


def test_shrink_of_an_ancestor_stops_at_its_own_pods() -> None:
    made = lend(TREE, ONE)
    shrunk = edit(made.text, made.ledger, {}, floors={"root.science": {"vcore": 1_100_000}})
    assert limit(shrunk, "root.science") == "1100" and limit(shrunk, A) == "80"


MANUAL = {
    "child max": ("max: {vcore: 64", "max: {vcore: 1100", "root.science", "1100"),
    "guaranteed of its own": ("guaranteed: {vcore: 136", "guaranteed: {vcore: 160", A, "80"),
    "guaranteed to children": (
        "          - name: free",
        "              - name: c\n"
        "                resources: {guaranteed: {memory: 60G, vcore: 30}}\n"
        "          - name: free",
        "root.science", "1000"),
    "a user's limit": (
        "              - name: b",
        "                limits: [{limit: l, users: [u], maxresources: {vcore: 100}}]\n"
        "              - name: b",
        A, "100"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "queue", "text"), MANUAL.values(), ids=MANUAL)
def test_shrink_stops_at_values_written_meanwhile(
    old: str, new: str, queue: str, text: str
) -> None:
    made = lend(TREE, ONE)
    edited = change(made.text, old, new)
    assert check_text(edited) == ()
    shrunk = edit(edited, made.ledger, {})
    assert not shrunk.refusal and check_text(shrunk.text) == ()
    assert limit(shrunk, queue) == text
    assert edit(shrunk.text, shrunk.ledger, {}).is_changed is False


def test_limit_of_all_zeros_is_never_written() -> None:
    """An administrator set the limit to the lent amount, so without nodes it would be zero."""
    small = change(TREE, "resources:\n                  max: {vcore: 64, memory: 256G}",
                   "resources:\n                  max: {vcore: 1m, memory: 1}")  # fmt: skip
    made = lend(small, nodes_of(B, "n1"))
    text = change(made.text, "vcore: 128001m", "vcore: 128")
    text = change(text, "memory: 256000000001", "memory: 256G")
    back = edit(text, made.ledger, {})
    assert limit(back, B) == "0" and limit(back, B, "memory") == "1"
    assert "zero in all resources would mean no limit" in back.held[B]
    assert parse_tree(back.text).queues[B].max == {"vcore": 0, "memory": 1}
    assert not edit(back.text, back.ledger, {}).is_changed


def test_growth_below_a_zero_limit_is_refused() -> None:
    text = change(TREE, "max: {vcore: 1000, memory: 4T}", "max: {vcore: 0, memory: 0}")
    text = text.replace("max: {vcore: 80, memory: 320G}", "max: {vcore: 0, memory: 0, pods: 5}")
    text = text.replace("max: {vcore: 64, memory: 256G}", "max: {}")
    text = text.replace("guaranteed: {vcore: 8, memory: 32G}", "guaranteed: {}")
    text = text.replace("guaranteed: {vcore: 40, memory: 100G}", "guaranteed: {}")
    assert check_text(text) == ()
    made = lend(text, ONE)
    assert limit(made, A) == "0" and limit(made, A, "pods") == "115"
    assert "the max of a queue above it is 0" in made.held[A]


# --- through a queue that has no limits of its own, and below one that stays ----------------------

DEEP = """\
partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: s
            resources:
              guaranteed: {vcore: 60}
              max: {vcore: 1000}
            queues:
              - name: mid
                queues:
                  - name: x
                    resources: {guaranteed: {vcore: 16}, max: {vcore: 80}}
                  - name: z
                    resources: {guaranteed: {vcore: 40}, max: {vcore: 100}}
"""
X, Z = "root.s.mid.x", "root.s.mid.z"
CORES: Resources = {"vcore": 128_000}
TWO_IN_X = nodes_of(X, "n1", "n2", size=CORES)


def test_shrink_stops_at_guarantees_below_a_queue_without_limits() -> None:
    made = lend(DEEP, TWO_IN_X)
    text = change(made.text, "guaranteed: {vcore: 272}", "guaranteed: {vcore: 9}")
    text = change(
        text,
        "{guaranteed: {vcore: 40}, max: {vcore: 100}}",
        "{guaranteed: {vcore: 240}, max: {vcore: 1200}}",
    )
    less = edit(text, made.ledger, nodes_of(X, "n1", size=CORES))
    assert not less.refusal
    assert limit(less, "root.s", kind="guaranteed") == "249"
    assert limit(less, "root.s") == "1200"
    assert "249 is guaranteed to the queues below it" in less.held["root.s"]
    assert "1200 is the limit of a queue below it" in less.held["root.s"]


def document_below_a_fixed_limit() -> tuple[str, str]:
    """Returns a document in which `mid` and `x` were set below the lent amount, and its ledger."""
    narrow = change(
        DEEP, "- name: mid\n", "- name: mid\n                resources: {max: {vcore: 300}}\n"
    )
    made = lend(narrow, TWO_IN_X)
    text = change(made.text, "max: {vcore: 556}", "max: {vcore: 200}")
    return change(
        text,
        "{guaranteed: {vcore: 272}, max: {vcore: 336}}",
        "{guaranteed: {vcore: 40}, max: {vcore: 150}}",
    ), made.ledger


def test_growth_stops_at_the_tightest_ancestor() -> None:
    text, ledger = document_below_a_fixed_limit()
    both = {**TWO_IN_X, **nodes_of(Z, "n3", size=CORES)}
    made = edit(text, ledger, both)
    assert not made.refusal and check_text(made.text) == ()
    assert limit(made, Z) == "200" and limit(made, "root.s") == "1384"
    assert limit(made, Z, kind="guaranteed") == "40"
    assert (
        "max vcore stays at 200 instead of 228: the max of a queue above it is 200"
        in (made.held[Z])
    )
    assert "guaranteed vcore does not grow:" in made.held[Z]
    again = edit(made.text, made.ledger, both)
    assert not again.is_changed
