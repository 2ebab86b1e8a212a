"""Tests of a ledger annotation that is lost or reset: dnm never adds a node's amount twice."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping

import pytest

from dnm.model.cluster import FieldOwner
from dnm.model.value import Resources
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.edit import edit_source
from dnm.queues.yunikorn.ledger import decode_ledger
from dnm.queues.yunikorn.rebase import LimitMeaning, rebase_document
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document
from dnm.queues.yunikorn.unsettled import NOT_OF_THIS_TEXT
from tests.night import sample_by_day
from tests.queue_kit import (
    NODE,
    ONE,
    ONE_LIMIT,
    TREE,
    TWO,
    A,
    B,
    change,
    config_map,
    edit,
    lend,
    lent_in,
    limit,
    nodes_of,
    notes_of,
    read,
    wants,
)
from tests.queue_trees import random_tree

Nodes = Mapping[str, Mapping[str, Resources]]


def edit_without_ledger(
    text: str, nodes: Nodes, last_ledger: str | None, **more: object
) -> DocumentEdit:
    """Returns the edit of a document without ledger, by a run that recorded `last_ledger`."""
    return edit(text, "", nodes, remembered=last_ledger, **more)  # type: ignore[arg-type]


def test_lost_ledger_is_rewritten_if_the_limits_are_unchanged() -> None:
    made = lend(TREE, TWO)
    again = edit_without_ledger(made.text, TWO, made.ledger)
    assert (again.text, again.ledger) == (made.text, made.ledger)
    assert notes_of(again) == (
        "the ledger is gone from the ConfigMap, and the limits are those that the last run "
        "recorded: dnm writes the recorded ledger again",
    )
    assert edit_without_ledger(made.text, {}, made.ledger).text == TREE
    assert edit_without_ledger(made.text, ONE, made.ledger).text == lend(TREE, ONE).text


def test_lost_ledger_is_rewritten_after_a_reapplied_manifest() -> None:
    made = lend(TREE, TWO)
    again = edit_without_ledger(TREE, TWO, made.ledger)
    assert (again.text, again.ledger) == (made.text, made.ledger)


def test_lost_ledger_restores_a_held_shrink() -> None:
    made = lend(TREE, ONE)
    busy = {A: {"vcore": 150_000}}
    held = edit(made.text, made.ledger, {}, floors=busy)
    assert limit(held, A) == "150"
    again = edit_without_ledger(held.text, {}, held.ledger, floors=busy)
    assert (again.text, again.ledger) == (held.text, held.ledger)
    assert edit_without_ledger(held.text, {}, held.ledger).text == TREE


def test_lost_ledger_restores_a_manually_lowered_limit() -> None:
    made = lend(TREE, TWO, adjust_guaranteed=False)
    braked = change(made.text, "max: {vcore: 336,", "max: {vcore: 10,")
    frozen = edit(braked, made.ledger, TWO, adjust_guaranteed=False)
    again = edit_without_ledger(frozen.text, TWO, frozen.ledger, adjust_guaranteed=False)
    assert (again.text, again.ledger) == (frozen.text, frozen.ledger)


def test_older_ledger_beside_newer_limits_is_replaced() -> None:
    """A tool restored only the annotation. By it, dnm would add a node twice (336 to 464)."""
    queue_edit, two = lend(TREE, ONE), lend(TREE, TWO)
    again = edit(two.text, queue_edit.ledger, TWO, remembered=two.ledger)
    assert (again.text, again.ledger) == (two.text, two.ledger)
    assert "older than its limits" in notes_of(again)[0]
    assert edit(two.text, queue_edit.ledger, {}, remembered=two.ledger).text == TREE


def test_lost_ledger_beside_an_unrecorded_text_needs_an_administrator() -> None:
    made = lend(TREE, TWO)
    asked = edit_without_ledger(f"# a comment\n{made.text}", TWO, made.ledger)
    assert "the document differs from the one that the last run recorded" in (asked.refusal or "")


def test_lost_ledger_of_another_instance_is_left_to_that_instance() -> None:
    theirs = lend(TREE, nodes_of(B, "m1"), instance="q")
    both = edit(theirs.text, theirs.ledger, ONE)
    assert "another instance's ledger is gone" in (
        edit_without_ledger(theirs.text, {}, theirs.record).refusal or ""
    )
    alone = lend(TREE, ONE)
    text = change(TREE, "max: {vcore: 80,", "max: {vcore: 90,")
    assert not edit_without_ledger(text, ONE, alone.record).refusal
    assert "which fits neither" in (edit_without_ledger(text, ONE, both.record).refusal or "")


UNDECIDED = [
    pytest.param("max: {vcore: 300,", "is 300, which fits neither", id="fits neither"),
    pytest.param("max: {vcore: 80,", "contains them, max vcore of", id="half and half"),
]


@pytest.mark.parametrize(("new", "why"), UNDECIDED)
def test_undecidable_limits_after_a_lost_ledger_need_an_administrator(new: str, why: str) -> None:
    made = lend(TREE, TWO, adjust_guaranteed=False)
    text = change(made.text, "max: {vcore: 336,", new)
    asked = edit_without_ledger(text, TWO, made.ledger)
    assert (asked.text, asked.is_changed) == (text, False)
    assert why in (asked.refusal or "")
    assert "dnm queues rebase --as total" in (asked.refusal or "")
    for reading, vcore in ((LimitMeaning.TOTAL, 0), (LimitMeaning.BASELINE, 256)):
        asking = wants(TWO, remembered=made.ledger)
        answered = rebase_document(read(text), asking, reading)
        if answered.refusal:  # 80 cannot contain 256
            assert reading is LimitMeaning.TOTAL and "less than the 256" in answered.refusal
            continue
        current = int(new.split()[2].rstrip(","))
        assert limit(answered, A) == str(current + vcore)
        again = edit(answered.text, answered.ledger, TWO, remembered=made.ledger)
        assert (again.text, lent_in(again.ledger)) == (answered.text, lent_in(answered.ledger))


def test_lent_nodes_without_a_recorded_ledger_need_an_administrator() -> None:
    """The registry was taken over from another tool, so no run has recorded the limits."""
    asked = edit_without_ledger(lend(TREE, ONE).text, ONE, None)
    assert "no run has recorded the limits from before" in (asked.refusal or "")


def test_limit_new_since_the_last_run_is_a_baseline_if_nothing_is_lent() -> None:
    """If nodes were lent before, dnm cannot know whether the new limit contains them."""
    limited = change(TREE, "- name: free", "- {name: free, resources: {max: {vcore: 200}}}")
    nodes = nodes_of("root.free", "n1")
    assert limit(edit_without_ledger(limited, nodes, ""), "root.free") == "328"
    later = lend(TREE, nodes).ledger
    assert "had no limits when the last run read them" in (
        edit_without_ledger(limited, nodes, later).refusal or ""
    )
    assert edit_without_ledger(TREE, nodes, later).ledger == later


# --- who wrote what ------------------------------------------------------------------------------


def test_ledger_section_of_another_instance_is_not_restored() -> None:
    """Once, instance p restored the ledger part that q had removed after a return, in each run, so
    that q's node stayed in `releasing`."""
    lent = lend(TREE, nodes_of("root.free", "n1"), instance="q")
    seen = edit(lent.text, lent.ledger, {}, instance="p")
    removed = edit(lent.text, lent.ledger, {}, instance="q", remembered=lent.record)
    assert removed.ledger == ""
    again = edit(removed.text, removed.ledger, {}, instance="p", remembered=seen.record)
    assert not again.is_changed and not again.refusal


def test_ledger_lost_with_two_instances_is_restored_by_the_newer_record() -> None:
    """Instance p wrote last, so that only p's record has the whole ledger; q waits for p."""
    first = lend(TREE, ONE, instance="p")
    second = edit(first.text, first.ledger, nodes_of(B, "m1"), instance="q", remembered="")
    third = edit(second.text, second.ledger, TWO, instance="p", remembered=first.record)
    waits = edit(third.text, "", nodes_of(B, "m1"), instance="q", remembered=second.record)
    assert waits.refusal and waits.text == third.text
    mended = edit(third.text, "", TWO, instance="p", remembered=third.record)
    assert (mended.text, mended.ledger) == (third.text, third.ledger)
    quiet = edit(mended.text, mended.ledger, nodes_of(B, "m1"), instance="q",
                 remembered=second.record)  # fmt: skip
    assert quiet.text == third.text and not quiet.refusal


@pytest.mark.parametrize("keeps", [True, False], ids=["apply", "replace"])
def test_older_export_without_ledger_is_not_treated_as_a_manifest(keeps: bool) -> None:
    """Queue B is at its baseline as in a manifest, but A's 208 contains a node of dnm."""
    queue_edit = lend(TREE, ONE)
    both = {**TWO, **nodes_of(B, "m1")}
    two = edit(queue_edit.text, queue_edit.ledger, both, remembered=queue_edit.record)
    asked = edit(queue_edit.text, two.ledger if keeps else "", both, remembered=two.record)
    assert "which dnm itself wrote earlier" in (asked.refusal or "")
    assert not asked.is_changed


def test_removed_limit_leaves_the_ledger_with_its_nodes() -> None:
    """Once, dnm kept the removed limit's nodes and lowered a limit that was set months later."""
    made = lend(TREE, {**ONE, **nodes_of(B, "m1")}, adjust_guaranteed=False)
    without = change(made.text, "max: {vcore: 208, memory: 576G}", "max: {memory: 576G}")
    taken = edit(without, made.ledger, nodes_of(B, "m1"), remembered=made.record,
                 adjust_guaranteed=False)  # fmt: skip
    assert '"vcore":["80"' not in taken.ledger
    removed = edit(taken.text, taken.ledger, {}, remembered=taken.record, adjust_guaranteed=False)
    later = change(removed.text, "max: {memory: 320G}", "max: {vcore: 208, memory: 320G}")
    again = edit(later, removed.ledger, {}, remembered=removed.record, adjust_guaranteed=False)
    assert again.text == later


def test_killed_write_with_a_lost_ledger_needs_an_administrator() -> None:
    """The killed run had recorded a return, but not written it: A's limit still has the node."""
    owner = FieldOwner(manager="dnm", operation="Update", keys=frozenset({"queues.yaml"}))
    made = lend(TREE, ONE)
    killed = edit(made.text, made.ledger, nodes_of(B, "m1"), remembered=made.record)
    result = config_map(made.text, owners=(owner,))
    for now in ({}, nodes_of(B, "m1")):
        asking = wants(now, remembered=killed.record)
        assert edit_source(resolve_document(result, None), asking).refusal


def test_ledger_without_checksums_is_read() -> None:
    """The next run adds the checksums to such a ledger and changes nothing else."""
    made = lend(TREE, ONE)
    stored = json.loads(made.ledger)
    for name in ("text", "origin", "totals"):
        del stored[name]
    bare = json.dumps(stored, separators=(",", ":"))
    again = edit(made.text, bare, ONE, remembered=bare)
    assert again.text == made.text and not notes_of(again)
    assert decode_ledger(again.ledger).text == decode_ledger(made.ledger).text
    assert edit(TREE, bare, ONE, remembered=bare).text == made.text
    assert edit(made.text, "", ONE, remembered=bare).text == made.text


MANIFESTS = FieldOwner(
    manager="kubectl-replace", operation="Update", keys=frozenset({"queues.yaml"})
)


@pytest.mark.parametrize("stands", ["none", "foreign", "older"])
def test_manifest_equal_to_an_earlier_edit_needs_an_administrator(stands: str) -> None:
    """Limits equal dnm's own earlier ones (208 is 80 and a node), but a manifest wrote them."""
    queue_edit = lend(TREE, ONE)
    foreign = lend(TREE, nodes_of(B, "z1"), instance="z")
    beside = {"none": "", "foreign": foreign.ledger, "older": lend(TREE, TWO).ledger}[stands]
    result = config_map(queue_edit.text, beside, owners=(MANIFESTS,))
    asked = edit_source(resolve_document(result, None), wants(ONE, remembered=queue_edit.record))
    assert "the last run recorded" in (asked.refusal or "") and asked.text == queue_edit.text


def test_older_annotation_with_a_manual_edit_needs_an_administrator() -> None:
    """Instance q returned its node, then its ledger was restored. Once, p subtracted it again."""
    alone = lend(TREE, ONE, instance="p")
    both = edit(alone.text, alone.ledger, nodes_of(B, "m1"), instance="q", remembered="")
    seen = edit(both.text, both.ledger, ONE, instance="p", remembered=alone.record)
    removed = edit(both.text, both.ledger, {}, instance="q", remembered=both.record)
    edited = change(removed.text, "max: {vcore: 208,", "max: {vcore: 272,")
    asked = edit(edited, both.ledger, {}, instance="q", remembered=removed.record)
    assert (
        "differs from the ledger that the last run recorded" in (asked.refusal or "")
        and asked.text == edited
    )
    put = FieldOwner(
        manager="kubectl-annotate", operation="Update", annotations=frozenset({LEDGER_ANNOTATION})
    )
    asking = wants(ONE, instance_id="p", remembered=seen.record)  # it has read nothing since
    for owners, is_asked in (((put,), True), ((), False)):
        result = config_map(edited, both.ledger, owners=owners)
        refusal = edit_source(resolve_document(result, None), asking).refusal
        assert ("another client than dnm wrote it" in (refusal or "")) is is_asked


def test_manual_edit_after_another_instance_wrote_is_accepted_by_that_instance() -> None:
    """Instance p did not see q's last ledger, so it waits until q has accepted the edit."""
    alone = lend(TREE, ONE, instance="p")
    both = edit(alone.text, alone.ledger, nodes_of(B, "m1"), instance="q", remembered="")
    edited = change(both.text, "max: {vcore: 208,", "max: {vcore: 272,")
    waits = edit(edited, both.ledger, ONE, instance="p", remembered=alone.record)
    assert waits.refusal
    mended = edit(edited, both.ledger, nodes_of(B, "m1"), instance="q", remembered=both.record)
    assert not mended.refusal and limit(mended, A) == "272"
    again = edit(mended.text, mended.ledger, {}, instance="p", remembered=alone.record)
    assert limit(again, A) == "144"


def test_older_export_after_a_full_manifest_needs_an_administrator() -> None:
    """After a manifest without ledger, an older export's 208 (80 and a node) is no baseline."""
    made = lend(TREE, ONE)
    replaced = config_map(TREE, owners=(MANIFESTS,))
    rest = edit_source(resolve_document(replaced, None), wants({}, remembered=made.record))
    assert rest.text == TREE and rest.ledger == ""
    asked = edit_without_ledger(made.text, ONE, rest.record)
    assert "which dnm itself wrote earlier" in (asked.refusal or "")
    assert not edit_without_ledger(TREE, ONE, rest.record).refusal


def test_export_with_nodes_of_another_instance_is_not_a_new_baseline() -> None:
    """Once, instance p took q's limit of 208, which contains q's node, for a baseline."""
    free = lend(TREE, nodes_of("root.free", "n1"), instance="p")
    both = edit(free.text, free.ledger, ONE, instance="q", remembered="")
    asked = edit_without_ledger(both.text, nodes_of("root.free", "n1"), free.record, instance="p")
    assert "another one than" in (asked.refusal or "") or "no limits" in (asked.refusal or "")
    assert not edit_without_ledger(
        TREE, nodes_of("root.free", "n1"), free.record, instance="p"
    ).refusal


def test_killed_return_beside_a_foreign_ledger_needs_an_administrator() -> None:
    """The killed run recorded the return, but the limit still has the node, in no ledger."""
    made = lend(TREE, ONE)
    killed = edit(made.text, made.ledger, {}, remembered=made.record)
    foreign = lend(TREE, nodes_of(B, "z1"), instance="z")
    asked = edit(made.text, foreign.ledger, {}, remembered=killed.record)
    assert asked.refusal and asked.text == made.text


def test_earlier_total_needs_an_administrator_even_if_nothing_is_lent() -> None:
    """An older export has 208, which is 80 and a node. Once, dnm took it for a baseline."""
    made = lend(TREE, ONE)
    noted = edit(made.text, made.ledger, {}, remembered=made.record).record
    for _ in range(3):  # idle runs
        rest = edit(TREE, "", {}, remembered=noted)
        assert not (rest.is_changed or rest.refusal) and rest.record == noted
        asked = edit(made.text, "", {}, remembered=noted)
        assert "wrote earlier" in (asked.refusal or "") and asked.record is None
    assert not edit(change(TREE, "{vcore: 80,", "{vcore: 81,"), "", {}, remembered=noted).refusal


def test_earlier_total_accepted_by_another_instance_needs_an_administrator() -> None:
    """Once, instance p took a limit with q's node for a baseline, which q must still question."""
    free = nodes_of("root.free", "p1")
    made = lend(TREE, nodes_of(B, "q1"), instance="q")
    returned = edit(made.text, made.ledger, {}, instance="q", remembered=made.record)
    alone = edit(TREE, "", free, instance="p")
    accepted = edit(made.text, alone.ledger, free, instance="p", remembered=alone.record)
    assert not accepted.refusal and accepted.text == made.text
    asked = edit(accepted.text, accepted.ledger, {}, instance="q", remembered=returned.record)
    assert "wrote earlier" in (asked.refusal or "")


@pytest.mark.parametrize("reading", LimitMeaning)
def test_answer_about_an_earlier_total_is_kept_if_nothing_is_lent(reading: LimitMeaning) -> None:
    made = lend(TREE, ONE)
    noted = edit(made.text, made.ledger, {}, remembered=made.record).record
    answered = rebase_document(read(made.text), wants({}, remembered=noted), reading)
    assert answered.is_answer and not answered.is_changed
    rest = edit(made.text, "", {}, remembered=answered.record)
    assert not rest.refusal and rest.record == answered.record
    asked = edit(made.text, made.ledger, {}, remembered=answered.record)
    assert "other baselines" in (asked.refusal or "")
    again = rebase_document(read(made.text), wants({}, remembered=answered.record), reading)
    assert not again.is_answer


def test_killed_return_before_another_instance_starts_needs_an_administrator() -> None:
    """Once, the limit with the node (208) was a baseline: the killed run recorded its return."""
    made = lend(TREE, ONE)
    killed = edit(made.text, made.ledger, {}, remembered=made.record)
    other = edit(made.text, "", nodes_of("root.free", "m1"), instance="test")
    asked = edit(other.text, other.ledger, {}, remembered=killed.record)
    assert "which dnm itself wrote earlier" in (asked.refusal or "")


def test_lent_amount_is_restored_after_another_instance_started_afresh() -> None:
    """A manifest without ledger has limits with q's node, which instance p takes for baselines. q
    restores its part of the ledger and adopts p's baselines."""
    free = nodes_of("root.free", "p1")
    alone = lend(TREE, free, instance="p")
    both = edit(alone.text, alone.ledger, ONE, instance="q")
    source_document = resolve_document(config_map(both.text, owners=(MANIFESTS,)), None)
    theirs = {**free, **nodes_of(B, "p2")}
    anew = edit_source(source_document, wants(theirs, instance_id="p", remembered=alone.record))
    assert not anew.refusal and limit(anew, B) == "192"
    again = edit(anew.text, anew.ledger, ONE, instance="q", remembered=both.record)
    assert again.text == anew.text and "the ledger is gone" in notes_of(again)[0]
    removed = edit(again.text, again.ledger, {}, instance="q", remembered=again.record)
    assert [limit(removed, A), limit(removed, B), limit(removed, "root.science")] == [
        "80",
        "192",
        "1128",
    ]


def test_repeated_text_with_another_baseline_needs_an_administrator() -> None:
    """The text equals an earlier one again, for which the record of prod has a baseline of 80. It
    is 208 by now, so the other instance asks an administrator."""
    own, other = (nodes_of("root.x", name, size={"vcore": 128_000}) for name in ("n1", "m1"))
    made = lend(ONE_LIMIT, own)
    both = edit(made.text, made.ledger, other, instance="test")
    seen = edit(both.text, both.ledger, own, remembered=made.record)
    raised = change(both.text, "vcore: 336", "vcore: 464")
    removed = edit(raised, both.ledger, {}, instance="test", remembered=both.record)
    assert removed.text == both.text
    more = {"root.x": {**own["root.x"], "n2": {"vcore": 64_000}}}
    wrong = edit_without_ledger(removed.text, more, seen.record)
    asked = edit(wrong.text, wrong.ledger, {}, instance="test", remembered=removed.record)
    assert not wrong.refusal and "it lacks nodes that the last run recorded" in (
        asked.refusal or ""
    )
    assert (asked.refusal or "").startswith(NOT_OF_THIS_TEXT)


@pytest.mark.parametrize("reading", LimitMeaning)
def test_rebase_answer_is_kept_after_a_killed_run(
    reading: LimitMeaning,
) -> None:
    """A run was killed, and a limit was edited. Once, each later run asked again, whatever the
    administrator had answered."""
    made = lend(TREE, ONE)
    noted = edit(made.text, made.ledger, TWO, remembered=made.record).record
    edited = change(made.text, f"vcore: {limit(made, A)}", "vcore: 400")
    asked = edit(edited, made.ledger, TWO, remembered=noted)
    assert "it differs from the ledger that the last run recorded" in (asked.refusal or "")
    asking = wants(TWO, remembered=noted)
    answered = rebase_document(read(edited, made.ledger), asking, reading)
    rest = edit(answered.text, answered.ledger, TWO, remembered=noted)
    assert not rest.refusal and rest.text == answered.text


def test_ledger_that_matches_a_manifest_by_chance_needs_an_administrator() -> None:
    """A ledger was restored, and a manifest set 208, by chance the limit with a lent node."""
    made = lend(TREE, ONE)
    manual = FieldOwner(
        manager="kubectl-annotate", operation="Update", annotations=frozenset({LEDGER_ANNOTATION})
    )
    result = config_map(made.text, made.ledger, owners=(MANIFESTS, manual))
    asked = edit_source(resolve_document(result, None), wants(ONE, remembered=made.record))
    assert "different clients wrote the ledger and the limits" in (asked.refusal or "")


# --- at any point of any history -----------------------------------------------------------------

HISTORIES = int(os.environ.get("DNM_HISTORIES", "50"))


@pytest.mark.parametrize("chunk", sample_by_day(8, range(8)))
def test_lost_ledger_in_a_random_history_never_changes_a_limit_twice(chunk: int) -> None:
    """In random histories of lends and returns, the ledger is lost at random points. The next edit
    gives the same document as without the loss, and a further edit changes nothing. After all
    returns the document is the first one, or dnm asks an administrator and writes nothing."""
    seed = int(os.environ.get("DNM_SEED", "20261121")) + chunk
    rng = random.Random(seed)
    asked = losses = 0
    for number in range(HISTORIES):
        text = random_tree(rng)
        result = play_history(rng, text, f"DNM_SEED={seed} tree {number}:\n{text}")
        losses, asked = losses + result[0], asked + result[1]
    print(f"DNM_SEED={seed - chunk} chunk {chunk}: {losses} losses, {asked} questions")
    assert losses > HISTORIES and asked == 0


def play_history(rng: random.Random, text: str, story: str) -> tuple[int, int]:
    paths = [path for path in read(text).tree.queues if path != "root"]
    lent: dict[str, dict[str, Resources]] = {}
    now, ledger, later = text, "", ""
    losses = asked = 0
    moves = [rng.choice(paths) for _ in range(rng.randint(1, 4))]
    steps = [("lend", path, f"n{number}") for number, path in enumerate(moves)]
    for verb, queue, node in [
        *steps,
        *(("return", q, n) for _, q, n in rng.sample(steps, len(steps))),
    ]:
        if verb == "lend":
            names = rng.sample(sorted(NODE), rng.randint(1, 4))
            lent.setdefault(queue, {})[node] = {name: NODE[name] for name in names}
        else:
            del lent[queue][node]
        expected = edit(now, ledger, lent, remembered=later)
        if rng.random() < 0.5:
            losses += 1
            made = edit(now, "", lent, remembered=later)
            if made.refusal:
                asked += 1
                assert made.text == now, story
                made = expected
            assert (made.text, made.ledger) == (expected.text, expected.ledger), story
        else:
            made = expected
        assert not made.refusal, story
        now, ledger, later = made.text, made.ledger, made.ledger
        for current in (ledger, ""):
            again = edit(now, current, lent, remembered=later)
            assert (again.text, again.ledger) == (now, ledger), story
    assert now.encode() == text.encode(), story
    return losses, asked


def test_rebase_is_accepted_beside_a_ledger_of_a_newer_dnm() -> None:
    """The error about a ledger of a newer dnm names this command, so it must succeed."""
    made = lend(TREE, ONE)
    newer = made.ledger.replace('"version":', '"version":9')
    asking = wants(ONE, remembered=newer)
    assert not rebase_document(read(made.text, newer), asking, LimitMeaning.TOTAL).refusal
