"""What each limit would be without lent nodes: compared three ways."""

from __future__ import annotations

from tests.queue_kit import (
    ONE,
    TREE,
    TWO,
    A,
    change,
    edit,
    lend,
    limit,
    nodes_of,
)


def test_untouched_is_rest() -> None:
    made = lend(TREE, TWO)
    again = edit(made.text, made.ledger, TWO)
    assert (again.text, again.ledger, again.is_changed) == (made.text, made.ledger, False)
    assert not again.notes and not again.held and not again.changes


def test_a_manifest_applied_again_gets_what_is_lent_again() -> None:
    made = lend(TREE, TWO)
    again = edit(TREE, made.ledger, TWO)
    assert (again.text, again.ledger) == (made.text, made.ledger)
    assert [note.split(":")[0] for note in again.notes] == ["root.science", A]
    assert "a manifest was applied again" in again.notes[0]


def test_a_manifest_applied_again_while_a_node_leaves() -> None:
    made = lend(TREE, TWO)
    assert edit(TREE, made.ledger, ONE).text == lend(TREE, ONE).text


def test_a_manifest_with_one_new_number_is_known_by_the_others() -> None:
    """Memory is back at its baseline, so the new vcore came with the same manifest."""
    made = lend(TREE, ONE)
    manifest = change(TREE, "max: {vcore: 80,", "max: {vcore: 90,")
    again = edit(manifest, made.ledger, ONE)
    assert limit(again, A) == "218"
    assert edit(again.text, again.ledger, {}).text == manifest


def test_one_number_back_at_its_baseline_leaves_the_others_as_they_were_written() -> None:
    made = lend(TREE, TWO, adjust_guaranteed=False)
    by_hand = change(made.text, "max: {vcore: 336,", "max: {vcore: 80,")
    again = edit(by_hand, made.ledger, TWO, adjust_guaranteed=False)
    assert again.text == made.text
    assert [(one.kind, one.resource, one.after) for one in again.changes] == [
        ("max", "vcore", "336")
    ]


def test_a_total_of_just_what_is_lent_is_a_baseline_of_nothing() -> None:
    made = lend(TREE, TWO)
    text = change(made.text, "max: {vcore: 336,", "max: {vcore: 256,")
    text = change(text, "guaranteed: {vcore: 264,", "guaranteed: {vcore: 256,")
    again = edit(text, made.ledger, TWO)
    assert again.text == text and not again.held and not again.limits[A].fixed
    assert again.numbers[A].baseline["vcore"] == 0


def test_any_other_value_is_a_persons_new_total() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336, memory: 832G}", "max: {vcore: 300, memory: 832G}")
    seen = edit(edited, made.ledger, TWO)
    assert seen.text == edited and seen.is_changed
    assert seen.numbers[A].baseline["vcore"] == 44_000
    assert "max vcore was changed to 300" in seen.notes[0]
    assert "without lent nodes that is 44" in seen.notes[0]
    assert "write 556: with the 256 that is lent now" in seen.notes[0]
    assert not edit(seen.text, seen.ledger, TWO).notes
    one = edit(seen.text, seen.ledger, ONE)
    assert limit(one, A) == "172" and limit(one, A, "memory") == "576G"
    assert limit(edit(one.text, one.ledger, {}), A) == "44"


def test_a_total_below_what_is_lent_is_left_alone() -> None:
    """An emergency brake by hand: dnm does not fight it, and takes it for the baseline at last."""
    made = lend(TREE, TWO)
    edited = change(made.text, "guaranteed: {vcore: 264,", "guaranteed: {vcore: 9,")
    edited = change(edited, "max: {vcore: 336,", "max: {vcore: 10,")
    frozen = edit(edited, made.ledger, TWO)
    assert frozen.text == edited
    assert "was set to 10, less than what is lent" in frozen.held[A]
    for nodes in (ONE, TWO, nodes_of(A, "n1", "n2", "n3")):
        frozen = edit(frozen.text, frozen.ledger, nodes)
        assert limit(frozen, A) == "10" and limit(frozen, A, kind="guaranteed") == "9"
    released = edit(frozen.text, frozen.ledger, {})
    assert limit(released, A) == "10" and not released.held
    assert limit(edit(released.text, released.ledger, ONE), A) == "138"


def test_a_new_limit_while_nodes_are_lent_is_a_total() -> None:
    made = lend(TREE, ONE)
    edited = change(made.text, "memory: 576G}", "memory: 576G, pods: 200}")
    seen = edit(edited, made.ledger, ONE)
    assert seen.text == edited
    assert limit(edit(seen.text, seen.ledger, {}), A, "pods") == "90"


def test_a_limit_that_a_person_removed_stays_away() -> None:
    made = lend(TREE, ONE)
    edited = change(made.text, "max: {vcore: 208, memory: 576G}", "max: {memory: 576G}")
    seen = edit(edited, made.ledger, ONE)
    assert seen.text == edited
    back = edit(seen.text, seen.ledger, {})
    assert back.text == change(TREE, "max: {vcore: 80, memory: 320G}", "max: {memory: 320G}")


def test_the_baselines_own_characters_come_back() -> None:
    text = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: '0080', memory: 1 Ti}")
    made = lend(text, ONE)
    assert (limit(made, A), limit(made, A, "memory")) == ("208", "1323741824Ki")
    assert edit(made.text, made.ledger, {}).text == text


def test_a_manifest_after_a_shrink_that_was_held_is_no_news() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}})
    assert limit(held, A) == "150"
    applied = edit(TREE, held.ledger, {})
    assert applied.text == TREE and applied.notes == ()
