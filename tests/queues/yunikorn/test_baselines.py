"""Tests of how dnm finds the baselines of changed limits, and of an administrator's answer."""

from __future__ import annotations

import pytest

from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn.rebase import LimitMeaning, rebase_document
from tests.queue_kit import (
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
    notes_of,
    read,
    wants,
)


def test_reapplied_manifest_gets_the_lent_nodes_again() -> None:
    made = lend(TREE, TWO)
    again = edit(TREE, made.ledger, TWO)
    assert (again.text, again.ledger) == (made.text, made.ledger)
    assert [note.split(":")[0] for note in notes_of(again)] == ["root.science", A]
    assert "a manifest was applied again" in notes_of(again)[0]


def test_reapplied_manifest_during_a_return_gets_the_remaining_nodes() -> None:
    made = lend(TREE, TWO)
    assert edit(TREE, made.ledger, ONE).text == lend(TREE, ONE).text


def test_single_limit_back_at_its_baseline_keeps_the_other_limits() -> None:
    made = lend(TREE, TWO, adjust_guaranteed=False)
    manual = change(made.text, "max: {vcore: 336,", "max: {vcore: 80,")
    again = edit(manual, made.ledger, TWO, adjust_guaranteed=False)
    assert again.text == made.text
    assert [(item.kind, item.resource, item.after) for item in again.changes] == [
        ("max", "vcore", "336")
    ]


def test_new_limit_beside_limits_at_their_baselines_is_a_new_baseline() -> None:
    """The memory is at its baseline, so the changed vcore of that queue is a new baseline too."""
    nodes = {**ONE, **nodes_of(B, "m1")}
    made = lend(TREE, nodes, adjust_guaranteed=False)
    text = change(made.text, "max: {vcore: 208, memory: 576G}", "max: {vcore: 90, memory: 320G}")
    again = edit(text, made.ledger, nodes, adjust_guaranteed=False)
    assert limit(again, A) == "218" and limit(again, B) == "192"
    back = edit(again.text, again.ledger, {}, adjust_guaranteed=False)
    assert back.text == change(TREE, "max: {vcore: 80,", "max: {vcore: 90,")


def test_total_equal_to_the_lent_amount_has_baseline_zero() -> None:
    made = lend(TREE, TWO)
    text = change(made.text, "max: {vcore: 336,", "max: {vcore: 256,")
    text = change(text, "guaranteed: {vcore: 264,", "guaranteed: {vcore: 256,")
    again = edit(text, made.ledger, TWO)
    assert again.text == text and not again.held and not again.limits[A].fixed
    assert again.numbers[A].baseline["vcore"] == 0
    queue_edit = rebase_document(read(text, made.ledger), wants(TWO), LimitMeaning.TOTAL)
    assert not queue_edit.refusal and queue_edit.numbers[A].baseline["vcore"] == 0


def test_any_other_limit_is_a_new_total() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336, memory: 832G}", "max: {vcore: 300, memory: 832G}")
    seen = edit(edited, made.ledger, TWO)
    assert seen.text == edited and seen.is_changed
    assert seen.numbers[A].baseline["vcore"] == 44_000
    assert "max vcore was changed to 300" in notes_of(seen)[0]
    assert "without lent nodes that is 44" in notes_of(seen)[0]
    assert "write 556, which includes the 256" in notes_of(seen)[0]
    assert not notes_of(edit(seen.text, seen.ledger, TWO))
    queue_edit = edit(seen.text, seen.ledger, ONE)
    assert limit(queue_edit, A) == "172" and limit(queue_edit, A, "memory") == "576G"
    assert limit(edit(queue_edit.text, queue_edit.ledger, {}), A) == "44"


def test_total_below_the_lent_amount_is_left_unchanged() -> None:
    """An administrator set an emergency limit. dnm does not raise it, and keeps it at the end."""
    made = lend(TREE, TWO)
    edited = change(made.text, "guaranteed: {vcore: 264,", "guaranteed: {vcore: 9,")
    edited = change(edited, "max: {vcore: 336,", "max: {vcore: 10,")
    frozen = edit(edited, made.ledger, TWO)
    assert frozen.text == edited
    assert "was set to 10, less than the lent amount" in frozen.held[A]
    for nodes in (ONE, TWO, nodes_of(A, "n1", "n2", "n3")):
        frozen = edit(frozen.text, frozen.ledger, nodes)
        assert limit(frozen, A) == "10" and limit(frozen, A, kind="guaranteed") == "9"
    released = edit(frozen.text, frozen.ledger, {})
    assert limit(released, A) == "10" and not released.held
    assert limit(edit(released.text, released.ledger, ONE), A) == "138"


def test_limit_added_while_nodes_are_lent_is_a_total() -> None:
    made = lend(TREE, ONE)
    edited = change(made.text, "memory: 576G}", "memory: 576G, pods: 200}")
    seen = edit(edited, made.ledger, ONE)
    assert seen.text == edited
    assert limit(edit(seen.text, seen.ledger, {}), A, "pods") == "90"


def test_removed_limit_is_not_restored() -> None:
    made = lend(TREE, ONE)
    edited = change(made.text, "max: {vcore: 208, memory: 576G}", "max: {memory: 576G}")
    seen = edit(edited, made.ledger, ONE)
    assert seen.text == edited
    back = edit(seen.text, seen.ledger, {})
    assert back.text == change(TREE, "max: {vcore: 80, memory: 320G}", "max: {memory: 320G}")


def test_baseline_keeps_its_spelling_after_a_return() -> None:
    text = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: '0080', memory: 1 Ti}")
    made = lend(text, ONE)
    assert (limit(made, A), limit(made, A, "memory")) == ("208", "1323741824Ki")
    assert edit(made.text, made.ledger, {}).text == text


def test_reapplied_manifest_after_a_held_shrink_causes_no_change() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}})
    assert limit(held, A) == "150"
    applied = edit(TREE, held.ledger, {})
    assert applied.text == TREE and notes_of(applied) == ()


# --- what a person says --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reading", "total", "baseline"),
    [(LimitMeaning.BASELINE, 556, 300), (LimitMeaning.TOTAL, 300, 44)],
)
def test_rebase_reads_a_limit_as_baseline_or_total(
    reading: LimitMeaning, total: int, baseline: int
) -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 300,")
    answered = rebase_document(read(edited, made.ledger), wants(TWO), reading, [A])
    assert answered.text == change(made.text, "max: {vcore: 336,", f"max: {{vcore: {total},")
    back = edit(answered.text, answered.ledger, {})
    assert back.text == change(TREE, "max: {vcore: 80,", f"max: {{vcore: {baseline},")


@pytest.mark.parametrize("reading", LimitMeaning)
@pytest.mark.parametrize("queues", [(), (A,)], ids=["all", "one"])
def test_rebase_of_unchanged_limits_declares_nothing(
    reading: LimitMeaning, queues: tuple[str, ...]
) -> None:
    made = lend(TREE, TWO)
    answered = rebase_document(read(made.text, made.ledger), wants(TWO), reading, queues)
    assert not answered.is_changed and not answered.refusal
    other = rebase_document(
        read(made.text, made.ledger), QueueWants(instance_id="other"), reading, queues
    )
    assert not other.is_changed and not other.refusal  # it lends nothing, so it has lost nothing


def test_second_rebase_changes_nothing() -> None:
    made = lend(TREE, TWO)
    taken_over = rebase_document(read(made.text), wants(TWO), LimitMeaning.BASELINE)
    assert limit(taken_over, A) == "592"
    again = rebase_document(
        read(taken_over.text, taken_over.ledger), wants(TWO), LimitMeaning.BASELINE
    )
    assert not again.is_changed


@pytest.mark.parametrize("has_run", [True, False], ids=["after a run", "at once"])
def test_printed_advice_on_a_changed_limit_works(has_run: bool) -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 400,")
    seen = edit(edited, made.ledger, TWO)
    (note,) = notes_of(seen)
    meant = note.split("If 400 was meant without them, write ")[1].split(",")[0]
    ledger = seen.ledger if has_run else made.ledger
    advised = change(edited, "max: {vcore: 400,", f"max: {{vcore: {meant},")
    followed = edit(advised, ledger, TWO)
    assert followed.text == advised
    assert [limit(followed, A, resource, kind) for kind in ("max", "guaranteed")
            for resource in ("vcore", "memory")] == ["656", "832G", "264", "544G"]  # fmt: skip
    back = edit(followed.text, followed.ledger, {})
    assert back.text == change(TREE, "max: {vcore: 80,", "max: {vcore: 400,")


def test_printed_advice_on_a_limit_below_the_lent_amount_works() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 200,")
    frozen = edit(change(edited, "vcore: 264,", "vcore: 9,"), made.ledger, TWO)
    assert f"`dnm queues rebase --queue {A} --as baseline`" in frozen.held[A]
    followed = rebase_document(
        read(frozen.text, frozen.ledger), wants(TWO), LimitMeaning.BASELINE, [A]
    )
    assert [limit(followed, A, resource, kind) for kind in ("max", "guaranteed")
            for resource in ("vcore", "memory")] == ["456", "832G", "265", "544G"]  # fmt: skip
    assert not followed.held
    back = edit(followed.text, followed.ledger, {})
    text = change(TREE, "max: {vcore: 80,", "max: {vcore: 200,")
    assert back.text == change(text, "guaranteed: {vcore: 8,", "guaranteed: {vcore: 9,")


REFUSED_REBASES = [
    pytest.param({"queues": ["root.nope"]}, "root.nope: no queue of the document", id="queue"),
]


@pytest.mark.parametrize(("more", "reason"), REFUSED_REBASES)
def test_meaningless_rebase_is_refused(more: dict[str, object], reason: str) -> None:
    made = lend(TREE, ONE)
    answered = rebase_document(
        read(made.text, made.ledger),
        wants(ONE),
        LimitMeaning.TOTAL,
        **more,  # type: ignore[arg-type]
    )
    assert reason in (answered.refusal or "") and not answered.is_changed
