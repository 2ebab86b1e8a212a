"""What each limit would be without lent nodes: compared three ways, and after a lost ledger."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dnm.model.quantity import parse_yunikorn
from dnm.model.queue_edit import QueueEdit
from dnm.model.value import Resources
from dnm.queues.baselines import Reading
from dnm.queues.ledger import decode_ledger
from dnm.queues.rebase import rebase_document
from dnm.queues.tree import parse_tree
from tests.queue_kit import (
    NODE,
    ONE,
    TREE,
    TWO,
    A,
    B,
    change,
    edit,
    lend,
    limit,
    nodes_of,
    read,
    remember,
    wants,
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


def lost(text: str, nodes: Mapping[str, Mapping[str, Resources]], **more: object) -> QueueEdit:
    return edit(text, "", nodes, **more)


def amounts_in(ledger: str) -> object:
    """A ledger but for the style of its numbers: the characters of a lost baseline are lost."""
    decoded = decode_ledger(ledger)
    entries = {
        place: [parse_yunikorn(place.resource, text) for text in entry]
        for place, entry in decoded.entries.items()
    }
    return decoded.sections, entries


def test_a_lost_ledger_is_rebuilt_where_the_text_still_contains_what_is_lent() -> None:
    made = lend(TREE, TWO)
    was = remember(made.text, lent={A: made.numbers[A].lent}, baseline_text=TREE)
    rebuilt = lost(made.text, TWO, remembered=was)
    assert rebuilt.text == made.text
    assert amounts_in(rebuilt.ledger) == amounts_in(made.ledger)
    leaving = lost(made.text, {}, remembered=was)
    assert parse_tree(leaving.text).queues == parse_tree(TREE).queues


def test_a_lost_ledger_is_rebuilt_where_the_text_was_replaced_too() -> None:
    made = lend(TREE, TWO)
    was = remember(made.text, lent={A: made.numbers[A].lent}, baseline_text=TREE)
    rebuilt = lost(TREE, TWO, remembered=was)
    assert (rebuilt.text, rebuilt.ledger) == (made.text, made.ledger)


def test_the_first_growth_after_a_person_changed_the_baseline() -> None:
    raised = change(TREE, "max: {vcore: 80,", "max: {vcore: 90,")
    assert limit(lost(raised, ONE, remembered=remember(TREE)), A) == "218"


def test_the_first_growth_took_effect_and_its_ledger_was_lost_at_once() -> None:
    made = lend(TREE, ONE)
    assert lost(made.text, ONE, remembered=remember(TREE)).text == made.text


UNDECIDED = [
    pytest.param("max: {vcore: 300,", "is 300, which fits neither", id="fits neither"),
    pytest.param("max: {vcore: 80,", "contains them", id="half and half"),
]


@pytest.mark.parametrize(("new", "why"), UNDECIDED)
def test_what_can_not_be_decided_is_asked(new: str, why: str) -> None:
    made = lend(TREE, TWO, adjust_guaranteed=False)
    was = remember(made.text, lent={A: made.numbers[A].lent}, baseline_text=TREE)
    text = change(made.text, "max: {vcore: 336,", new)
    asked = lost(text, TWO, remembered=was)
    assert (asked.text, asked.is_changed) == (text, False)
    assert why in asked.refusal
    assert "dnm queues rebase --as total" in asked.refusal
    for reading, vcore in ((Reading.TOTAL, None), (Reading.BASELINE, 256)):
        answered = rebase_document(read(text), wants(TWO, remembered=was), reading)
        if answered.refusal:  # 80 can't contain 256
            assert reading is Reading.TOTAL and "less than the 256" in answered.refusal
            continue
        stands = parse_tree(text).queues[A].max["vcore"] // 1000
        assert limit(answered, A) == str(stands + (vcore or 0))
        assert not edit(answered.text, answered.ledger, TWO).is_changed


def test_nodes_that_no_run_remembers_are_asked_about() -> None:
    """As after taking over another tool's registry."""
    asked = lost(lend(TREE, ONE).text, ONE, remembered={})
    assert "no run has yet noted what root.science.a was before" in asked.refusal


def test_a_limit_that_is_new_since_the_last_run() -> None:
    """With nothing lent it is a baseline; with a lost ledger it is not known what it contains."""
    limited = change(TREE, "- name: free", "- {name: free, resources: {max: {vcore: 200}}}")
    nodes = nodes_of("root.free", "n1")
    assert limit(lost(limited, nodes, remembered=remember(TREE)), "root.free") == "328"
    was = remember(TREE, lent={"root.free": NODE})
    assert "had no limit when it was last seen" in lost(limited, nodes, remembered=was).refusal


def test_monitored_queues_below_each_other_are_not_counted_twice() -> None:
    nodes = {**ONE, **nodes_of("root.science", "n2")}
    made = lend(TREE, nodes)
    lent: dict[str, Resources] = {queue: made.numbers[queue].lent for queue in (A, "root.science")}
    was = remember(made.text, lent=lent, baseline_text=TREE)
    rebuilt = lost(made.text, nodes, remembered=was)
    assert amounts_in(rebuilt.ledger) == amounts_in(made.ledger)


def test_both_ledgers_are_lost_and_both_instances_find_themselves() -> None:
    first = lend(TREE, ONE)
    both = edit(first.text, first.ledger, nodes_of(B, "m1"), instance="test")
    was = {
        "prod": remember(both.text, lent={A: both.numbers[A].lent or NODE}, baseline_text=TREE),
        "test": remember(both.text, lent={B: both.numbers[B].lent}, baseline_text=TREE),
    }
    for order in (["prod", "test"], ["test", "prod"]):
        text, ledger = both.text, ""
        for instance in order:
            nodes = ONE if instance == "prod" else nodes_of(B, "m1")
            made = edit(text, ledger, nodes, instance=instance, remembered=was[instance])
            assert not made.refusal
            text, ledger = made.text, made.ledger
        assert text == both.text
        assert amounts_in(ledger) == amounts_in(both.ledger)


def test_a_lost_ledger_and_a_guarantee_smaller_than_what_was_lent_is_asked_about() -> None:
    made = lend(TREE, TWO)
    text = change(made.text, "guaranteed: {vcore: 264,", "guaranteed: {vcore: 9,")
    was = remember(made.text, lent={A: made.numbers[A].lent}, baseline_text=TREE)
    asked = edit(text, "", TWO, remembered=was)
    assert f"guaranteed vcore of {A} is less than them" in asked.refusal


def test_a_manifest_after_a_shrink_that_was_held_is_no_news() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}})
    assert limit(held, A) == "150"
    applied = edit(TREE, held.ledger, {})
    assert applied.text == TREE and applied.notes == ()
