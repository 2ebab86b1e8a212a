"""What a person says of the limits."""

from __future__ import annotations

import pytest

from dnm.model.queue_edit import QueueWants
from dnm.queues.rebase import Reading, rebase_document
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
    read,
    told,
    wants,
)


def test_rebase_takes_a_number_for_the_baseline() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 300,")
    answered = rebase_document(read(edited, made.ledger), wants(TWO), Reading.BASELINE, [A])
    assert [(one.queue, one.kind, one.resource, one.after) for one in answered.changes] == [
        (A, "max", "vcore", "556")
    ]
    assert edit(answered.text, answered.ledger, {}).text == change(TREE, "max: {vcore: 80,",
                                                                   "max: {vcore: 300,")  # fmt: skip


def test_rebase_takes_a_number_for_the_total() -> None:
    made = lend(TREE, TWO)
    edited = change(made.text, "max: {vcore: 336,", "max: {vcore: 300,")
    answered = rebase_document(read(edited, made.ledger), wants(TWO), Reading.TOTAL, [A])
    assert answered.text == edited
    assert edit(answered.text, answered.ledger, {}).text == change(TREE, "max: {vcore: 80,",
                                                                   "max: {vcore: 44,")  # fmt: skip


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
    assert (answered.text, told(answered.ledger)) == (made.text, told(made.ledger))
