"""Limits follow from the ledger: compared three ways, floors, loss, two instances, random trees."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping

import pytest

from dnm.model.cluster import QueueLimits
from dnm.model.errors import QueueError
from dnm.model.quantity import parse_yunikorn
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.value import Resources
from dnm.queues.baselines import Reading
from dnm.queues.edit import ANNOTATIONS_LIMIT, edit_source
from dnm.queues.ledger import decode_ledger, encode_ledger
from dnm.queues.rebase import rebase_document
from dnm.queues.source import resolve_document
from dnm.queues.tree import LimitPlace, check_rules, check_text, parse_tree
from tests.queue_kit import (
    NODE,
    TREE,
    A,
    B,
    change,
    config_map,
    edit,
    lend,
    nodes_of,
    read,
    remember,
    source,
)
from tests.queue_trees import random_tree

TREES = int(os.environ.get("DNM_TREES", "2500"))
ONE = nodes_of(A, "n1")
TWO = nodes_of(A, "n1", "n2")


def limit(made: QueueEdit, queue: str, resource: str = "vcore", kind: str = "max") -> str:
    return parse_tree(made.text).places[LimitPlace(queue, kind, resource)].text


# --- growing and shrinking -----------------------------------------------------------------------


def test_ancestors_go_along_by_the_same_amount_and_root_never() -> None:
    made = lend(TREE, ONE)
    assert [(one.queue, one.kind, one.resource, one.before, one.after) for one in made.changes] == [
        ("root.science", "guaranteed", "memory", "100G", "356G"),
        ("root.science", "guaranteed", "vcore", "40", "168"),
        ("root.science", "max", "memory", "4T", "4256G"),
        ("root.science", "max", "vcore", "1000", "1128"),
        (A, "guaranteed", "memory", "32G", "288G"),
        (A, "guaranteed", "vcore", "8", "136"),
        (A, "max", "memory", "320G", "576G"),
        (A, "max", "vcore", "80", "208"),
    ]
    numbers = made.numbers[A]
    assert numbers.limit == {"vcore": 208_000, "memory": 576 * 10**9}
    assert numbers.baseline == {"vcore": 80_000, "memory": 320 * 10**9}
    assert numbers.lent == NODE and numbers.others == {}
    assert made.numbers["root.science"].lent == NODE
    assert made.numbers[B].lent == {} and made.numbers[B].limit == made.numbers[B].baseline


def test_guaranteed_stays_where_the_site_says_so() -> None:
    made = lend(TREE, ONE, adjust_guaranteed=False)
    assert {one.kind for one in made.changes} == {"max"}
    switched = edit(made.text, made.ledger, ONE)
    assert limit(switched, A, kind="guaranteed") == "136"
    off_again = edit(switched.text, switched.ledger, ONE, adjust_guaranteed=False)
    assert off_again.text == made.text


def test_an_absent_limit_stays_absent() -> None:
    made = lend(TREE, nodes_of("root.free", "n1"))
    assert made.text == TREE and made.is_changed
    assert made.numbers["root.free"].limit == {}
    assert edit(made.text, made.ledger, {}).text == TREE


def test_a_queue_that_is_not_configured_grows_what_is_above_it() -> None:
    made = lend(TREE, nodes_of("root.science.dynamic", "n1"))
    assert {one.queue for one in made.changes} == {"root.science"}
    assert "is not in the queue document" in made.held["root.science.dynamic"]


def test_queues_outside_the_prefixes_are_left_alone() -> None:
    made = edit(TREE, "", {**ONE, **nodes_of(B, "n2")}, allowed_prefixes=(B,))
    assert {one.queue for one in made.changes} == {B, "root.science"}
    assert made.held[A] == "is outside allowed_queue_prefixes: left alone"
    # What was lent before the prefixes changed stays counted.
    before = lend(TREE, ONE)
    kept = edit(before.text, before.ledger, {}, allowed_prefixes=("root.free",))
    assert not kept.is_changed


FLOORS = [
    pytest.param({A: {"vcore": 150_000}}, "150", "what its pods have or need", id="allocated"),
    pytest.param({A: {"vcore": 500_000}}, "208", "what its pods have or need", id="above all"),
    pytest.param({A: {"vcore": 80_000}}, "80", "", id="just enough"),
]


@pytest.mark.parametrize(("floors", "text", "reason"), FLOORS)
def test_a_shrink_stops_at_what_pods_have(
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


def test_a_shrink_of_an_ancestor_stops_at_its_own_pods() -> None:
    made = lend(TREE, ONE)
    shrunk = edit(made.text, made.ledger, {}, floors={"root.science": {"vcore": 1_100_000}})
    assert limit(shrunk, "root.science") == "1100" and limit(shrunk, A) == "80"


BY_HAND = [
    pytest.param("max: {vcore: 64", "max: {vcore: 1100", "root.science", "1100", id="child max"),
    pytest.param(
        "guaranteed: {vcore: 136", "guaranteed: {vcore: 160", A, "80", id="guaranteed of its own"
    ),
    pytest.param(
        "          - name: free",
        "              - name: c\n"
        "                resources: {guaranteed: {memory: 60G, vcore: 30}}\n"
        "          - name: free",
        "root.science",
        "1000",
        id="guaranteed to children",
    ),
    pytest.param(
        "              - name: b",
        "                limits: [{limit: l, users: [u], maxresources: {vcore: 100}}]\n"
        "              - name: b",
        A,
        "100",
        id="a user's limit",
    ),
]


@pytest.mark.parametrize(("old", "new", "queue", "text"), BY_HAND)
def test_a_shrink_stops_at_what_was_written_meanwhile(
    old: str, new: str, queue: str, text: str
) -> None:
    made = lend(TREE, ONE)
    edited = change(made.text, old, new)
    assert check_text(edited) == ()
    shrunk = edit(edited, made.ledger, {})
    assert not shrunk.refusal and check_text(shrunk.text) == ()
    assert limit(shrunk, queue) == text
    assert edit(shrunk.text, shrunk.ledger, {}).is_changed is False


def test_never_all_zeros() -> None:
    """A person made all that is lent the whole limit; without nodes that would be zero."""
    small = change(TREE, "resources:\n                  max: {vcore: 64, memory: 256G}",
                   "resources:\n                  max: {vcore: 1m, memory: 1}")  # fmt: skip
    made = lend(small, nodes_of(B, "n1"))
    text = change(made.text, "vcore: 128001m", "vcore: 128")
    text = change(text, "memory: 256000000001", "memory: 256G")
    back = edit(text, made.ledger, {})
    assert limit(back, B) == "0" and limit(back, B, "memory") == "1"
    assert "zero throughout would mean no limit" in back.held[B]
    assert parse_tree(back.text).queues[B].max == {"vcore": 0, "memory": 1}
    assert not edit(back.text, back.ledger, {}).is_changed


def test_an_all_zero_limit_is_no_limit_and_stays() -> None:
    text = change(TREE, "max: {vcore: 64, memory: 256G}", "max: {vcore: 0, memory: 0}")
    made = lend(text, nodes_of(B, "n1"))
    assert {one.queue for one in made.changes} == {"root.science"}


def test_growth_that_a_zero_above_forbids_is_refused() -> None:
    text = change(TREE, "max: {vcore: 1000, memory: 4T}", "max: {vcore: 0, memory: 0}")
    text = text.replace("max: {vcore: 80, memory: 320G}", "max: {vcore: 0, memory: 0, pods: 5}")
    text = text.replace("max: {vcore: 64, memory: 256G}", "max: {}")
    text = text.replace("guaranteed: {vcore: 8, memory: 32G}", "guaranteed: {}")
    text = text.replace("guaranteed: {vcore: 40, memory: 100G}", "guaranteed: {}")
    assert check_text(text) == ()
    made = lend(text, ONE)
    assert limit(made, A) == "0" and limit(made, A, "pods") == "115"
    assert "the max of a queue above it is 0" in made.held[A]


# --- compared three ways -------------------------------------------------------------------------


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


# --- the ledger is lost --------------------------------------------------------------------------


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


def wants(nodes: Mapping[str, Mapping[str, Resources]], **more: object) -> QueueWants:
    values: dict[str, object] = {"instance_id": "prod", "nodes": nodes, **more}
    return QueueWants(**values)  # type: ignore[arg-type]


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


BROKEN = [
    pytest.param("{", "can't be read", id="no JSON"),
    pytest.param('{"version":2}', "of version 2, this dnm knows 1", id="newer"),
    pytest.param('{"version":1,"extra":1}', "unknown field `extra`", id="unknown field"),
    pytest.param(
        '{"version":1,"limits":{"root.a":{"max":{"vcore":"1.5"}}}}', "invalid", id="a bad number"
    ),
    pytest.param(
        '{"version":1,"limits":{"root.a":{"min":{"vcore":"1"}}}}', "neither max", id="a bad kind"
    ),
    pytest.param(
        '{"version":1,"instances":{"p":{"queues":{"root.a":{"n":0}}}}}', "index", id="no size"
    ),
    pytest.param(
        '{"version":1,"instances":{"p":{"queues":{"root.a":{"n":-1}}}}}', "no size -1", id="minus"
    ),
]


@pytest.mark.parametrize(("ledger", "reason"), BROKEN)
def test_a_broken_ledger_is_never_an_empty_one(ledger: str, reason: str) -> None:
    with pytest.raises(QueueError, match=reason):
        decode_ledger(ledger)
    refused = edit(TREE, ledger, {})
    assert reason in refused.refusal and refused.ledger == ledger
    mended = rebase_document(read(TREE, ledger), wants(ONE), Reading.BASELINE)
    assert mended.text == lend(TREE, ONE).text


# --- what a person says --------------------------------------------------------------------------


def test_rebase_takes_a_number_for_the_baseline() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 300,")
    answered = rebase_document(read(edited, made.ledger), wants(TWO), Reading.BASELINE, [A])
    assert [(one.queue, one.kind, one.resource, one.after) for one in answered.changes] == [
        (A, "max", "vcore", "556")
    ]
    assert edit(answered.text, answered.ledger, {}).text == change(TREE, "max: {vcore: 80,",
                                                                   "max: {vcore: 300,")  # fmt: skip


@pytest.mark.parametrize("reading", Reading)
@pytest.mark.parametrize("queues", [(), (A,)], ids=["all", "one"])
def test_a_limit_that_stands_as_it_was_written_is_not_declared(
    reading: Reading, queues: tuple[str, ...]
) -> None:
    made = lend(TREE, TWO)
    answered = rebase_document(read(made.text, made.ledger), wants(TWO), reading, queues)
    assert not answered.is_changed and not answered.refusal
    other = rebase_document(
        read(made.text, made.ledger), QueueWants(instance_id="other"), reading, queues
    )
    assert not other.is_changed and not other.refusal  # it lends nothing, so it has lost nothing


def test_a_second_call_of_rebase_does_nothing() -> None:
    made = lend(TREE, TWO)
    taken_over = rebase_document(read(made.text), wants(TWO), Reading.BASELINE)
    assert limit(taken_over, A) == "592"
    again = rebase_document(read(taken_over.text, taken_over.ledger), wants(TWO), Reading.BASELINE)
    assert not again.is_changed


@pytest.mark.parametrize("has_run", [True, False], ids=["after a run", "at once"])
def test_the_advice_on_a_changed_limit_is_right_to_the_letter(has_run: bool) -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 400,")
    seen = edit(edited, made.ledger, TWO)
    (note,) = seen.notes
    meant = note.split("If 400 was meant without them, write ")[1].split(":")[0]
    ledger = seen.ledger if has_run else made.ledger
    advised = change(edited, "max: {vcore: 400,", f"max: {{vcore: {meant},")
    followed = edit(advised, ledger, TWO)
    assert followed.text == advised
    assert [limit(followed, A, resource, kind) for kind in ("max", "guaranteed")
            for resource in ("vcore", "memory")] == ["656", "832G", "264", "544G"]  # fmt: skip
    back = edit(followed.text, followed.ledger, {})
    assert back.text == change(TREE, "max: {vcore: 80,", "max: {vcore: 400,")


def test_the_advice_on_a_limit_below_what_is_lent_is_right_to_the_letter() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 200,")
    frozen = edit(change(edited, "vcore: 264,", "vcore: 9,"), made.ledger, TWO)
    assert f"`dnm queues rebase --queue {A} --as baseline`" in frozen.held[A]
    followed = rebase_document(read(frozen.text, frozen.ledger), wants(TWO), Reading.BASELINE, [A])
    assert [limit(followed, A, resource, kind) for kind in ("max", "guaranteed")
            for resource in ("vcore", "memory")] == ["456", "832G", "265", "544G"]  # fmt: skip
    assert not followed.held
    back = edit(followed.text, followed.ledger, {})
    text = change(TREE, "max: {vcore: 80,", "max: {vcore: 200,")
    assert back.text == change(text, "guaranteed: {vcore: 8,", "guaranteed: {vcore: 9,")


def test_rebase_after_the_emergency_is_over() -> None:
    made = lend(TREE, ONE, adjust_guaranteed=False)
    edited = change(made.text, "max: {vcore: 208,", "max: {vcore: 10,")
    frozen = edit(edited, made.ledger, ONE, adjust_guaranteed=False)
    answered = rebase_document(
        read(frozen.text, frozen.ledger),
        wants(ONE, adjust_guaranteed=False),
        Reading.BASELINE,
        ["root.science.a"],
    )
    assert limit(answered, A) == "138" and not answered.held


REFUSED_REBASES = [
    pytest.param({"queues": ["root.nope"]}, "root.nope: no queue of the document", id="queue"),
    pytest.param({"forget": "prod"}, "no other instance 'prod'", id="itself"),
    pytest.param({"forget": "nobody"}, "no other instance 'nobody'; it has none", id="instance"),
]


@pytest.mark.parametrize(("more", "reason"), REFUSED_REBASES)
def test_a_rebase_that_makes_no_sense(more: dict[str, object], reason: str) -> None:
    made = lend(TREE, ONE)
    answered = rebase_document(
        read(made.text, made.ledger),
        wants(ONE),
        Reading.TOTAL,
        **more,  # type: ignore[arg-type]
    )
    assert reason in answered.refusal and not answered.is_changed


def test_an_instance_that_is_no_more_is_forgotten() -> None:
    made = lend(TREE, ONE)
    both = edit(made.text, made.ledger, nodes_of(A, "m1"), instance="old")
    answered = rebase_document(read(both.text, both.ledger), wants(ONE), None, forget="old")
    assert (answered.text, answered.ledger) == (made.text, made.ledger)


# --- two instances -------------------------------------------------------------------------------


def test_two_instances_share_a_document() -> None:
    first = lend(TREE, ONE)
    both = edit(first.text, first.ledger, nodes_of(A, "m1", "m2"), instance="test")
    assert limit(both, A) == "464" and limit(both, "root.science") == "1384"
    assert both.numbers[A].lent["vcore"] == 256_000
    assert both.numbers[A].others["vcore"] == 128_000
    assert not edit(both.text, both.ledger, ONE).is_changed
    second = edit(both.text, both.ledger, {})
    assert limit(second, A) == "336"
    assert edit(second.text, second.ledger, {}, instance="test").text == TREE


def test_an_instance_that_lends_nothing_leaves_no_trace() -> None:
    made = lend(TREE, ONE)
    assert not edit(made.text, made.ledger, {}, instance="test").is_changed
    assert not edit(TREE, "", {}).is_changed


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


# --- the annotation ------------------------------------------------------------------------------


def test_the_ledger_is_json_that_people_can_read() -> None:
    stored = json.loads(lend(TREE, ONE).ledger)
    assert stored["version"] == 1
    assert stored["instances"]["prod"]["queues"] == {A: {"n1": 0}}
    assert dict(zip(stored["resources"], stored["sizes"][0], strict=True)) == NODE
    assert stored["limits"][A]["max"] == {"vcore": "80", "memory": "320G"}


def test_what_was_written_stands_there_where_it_does_not_follow() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}})
    assert json.loads(held.ledger)["limits"] == {A: {"max": {"vcore": ["80", "150"]}}}
    assert encode_ledger(decode_ledger(held.ledger)) == held.ledger


def test_beyond_the_annotation_limit_nothing_grows_and_shrinking_goes_on() -> None:
    many: dict[str, Resources] = {
        f"node-with-a-long-name-{number:05}": {"vcore": number + 1} for number in range(4500)
    }
    made = lend(TREE, {A: many})
    assert len(made.ledger) < ANNOTATIONS_LIMIT
    more: dict[str, Resources] = {f"another-{number:05}": {"vcore": 5} for number in range(4500)}
    full = edit(made.text, made.ledger, {A: {**many, **more}})
    assert "Kubernetes allows 262144: no more nodes are counted" in full.refusal
    assert not full.is_changed
    crowded = resolve_document(
        config_map(
            made.text,
            annotations={
                **source(made.text, made.ledger).config_map.annotations,  # type: ignore[union-attr]
                "kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000,
            },
        ),
        None,
    )
    assert edit_source(crowded, wants({A: {**many, **nodes_of(A, "n1")[A]}})).refusal
    fewer = {name: many[name] for name in list(many)[:-1]}
    assert not edit_source(crowded, wants({A: fewer})).refusal


def test_a_document_beyond_the_size_of_a_config_map_is_refused() -> None:
    text = TREE + "# " + "x" * (1024 * 1024 - len(TREE) - 3) + "\n"
    text = change(text, "max: {vcore: 80,", "max: {vcore: 8000m,")
    made = edit(text, "", nodes_of(A, "n1"))
    assert "Kubernetes allows 1048576" in made.refusal


def test_limits_beyond_int64_are_refused() -> None:
    text = change(TREE, "max: {vcore: 64, memory: 256G}", "max: {pods: 9223372036854775807}")
    assert "outside what YuniKorn can count" in edit(text, "", nodes_of(B, "n1")).refusal


# --- random trees --------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(10))
def test_every_edit_of_a_random_tree_is_valid_and_leaves_no_trace(chunk: int) -> None:
    """Lend and return in any order, by two instances; every text on the way passes the rules, every
    limit is its baseline plus what is lent, and at the end the bytes are those of the beginning."""
    seed = int(os.environ.get("DNM_SEED", "20260901")) + chunk
    print(f"DNM_SEED={seed - chunk} chunk {chunk}")
    rng = random.Random(seed)
    for number in range(TREES // 10):
        text = random_tree(rng)
        try:
            assert_no_trace(rng, text)
        except AssertionError:
            print(f"tree {number} of seed {seed}:\n{text}")
            raise


def assert_no_trace(rng: random.Random, text: str) -> None:
    baseline = parse_tree(text).queues
    seen = remember(text)
    paths = [path for path in baseline if path != "root"]
    steps: list[tuple[str, str, str, Resources]] = []
    for number in range(rng.choice((1, 2, 3))):
        size = {
            name: rng.choice((1, 110, 64_000, 10**9 + rng.randrange(10**6), 2**38))
            for name in rng.sample(("vcore", "memory", "pods", "nvidia.com/gpu"), rng.randint(1, 4))
        }
        steps.append((rng.choice(("p", "q")), rng.choice(paths), f"n{number}", size))
    lent: dict[str, dict[str, dict[str, Resources]]] = {"p": {}, "q": {}}
    now, ledger = text, ""
    for step in [*steps, *rng.sample(steps, len(steps))]:
        instance, queue, node, size = step
        nodes = lent[instance].setdefault(queue, {})
        if node in nodes:
            del nodes[node]
        else:
            nodes[node] = size
        made = edit(now, ledger, lent[instance], instance=instance, remembered=seen)
        assert not made.refusal, made.refusal
        after = parse_tree(made.text)
        assert check_rules(after) == ()
        assert_limits(made, after.queues, baseline, lent)
        now, ledger = made.text, made.ledger
    assert now.encode() == text.encode()
    assert decode_ledger(ledger).entries == {}


def assert_limits(
    made: QueueEdit,
    after: Mapping[str, QueueLimits],
    baseline: Mapping[str, QueueLimits],
    lent: Mapping[str, Mapping[str, Mapping[str, Resources]]],
) -> None:
    for path, queue in after.items():
        before = baseline[path].max
        for resource, amount in queue.max.items():
            added = sum(
                size.get(resource, 0)
                for queues in lent.values()
                for below, nodes in queues.items()
                for size in nodes.values()
                if below == path or below.startswith(f"{path}.")
            )
            if path not in made.held:
                assert amount == before.get(resource, 0) + added
