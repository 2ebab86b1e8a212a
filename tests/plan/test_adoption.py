"""Tests of Nodes that have this instance's mark but no record, or a record but another's mark."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.lent import Phase
from dnm.model.node import Mark
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.plan.facts import Facts
from dnm.plan.findings import adopt_marked
from dnm.plan.lendable import counted_as_lent
from tests.builders import MARK, NOW, QUEUE, a_batch_node, a_config, a_lent_node, a_node, facts
from tests.plan.whole import advance_node

AWAY, BACK, UNKNOWN = (a_batch_node(in_service=recorded) for recorded in (False, True, None))
CLAIMED = a_batch_node(in_service=False, claim=BatchClaim(instance="other"))
THEIRS = msgspec.structs.replace(MARK, instance="validation")

EVIDENCE = [
    pytest.param({"batch": [AWAY]}, True, id="out of Slurm's service"),
    pytest.param({"batch": [BACK]}, False, id="in Slurm's service"),
    pytest.param({"batch": []}, False, id="no batch node at all"),
    pytest.param({"batch": [UNKNOWN]}, None, id="Slurm does not report"),
    pytest.param({"lenders": {"a001": "prod"}}, True, id="counted for us"),
    pytest.param(
        {"lenders": {"a001": "other"}, "batch": [AWAY]}, False, id="counted for another instance"
    ),
    pytest.param({"batch": [CLAIMED]}, False, id="lent by another instance, in no ledger yet"),
    pytest.param(
        {"lenders": None, "batch": [CLAIMED]}, False, id="lent by another instance, no ledger"
    ),
    pytest.param({"lenders": None}, None, id="no ledger can be read"),
    pytest.param({"lenders": None, "batch": [AWAY]}, True, id="Slurm without a ledger"),
    pytest.param(
        {"unread_ledgers": frozenset({"x"})}, None, id="the ledger of a queue can not be read"
    ),
    pytest.param(
        {"lenders": {"a001": "prod"}, "unread_ledgers": frozenset({"x"})},
        True,
        id="counted for us in the ledger of another queue",
    ),
]


def facts_with_mark(
    mark: Mark | None = MARK, batch: list[BatchNode] | None = None, **changes: Any
) -> Facts:
    return facts([a_node(mark=mark)], batch, **changes)


@pytest.mark.parametrize(("evidence", "is_lent"), EVIDENCE)
def test_mark_is_adopted_only_if_slurm_and_ledger_agree(
    evidence: dict[str, Any], is_lent: bool | None
) -> None:
    result = adopt_marked(a_config(), (), facts_with_mark(**evidence))
    assert (set(result.nodes) == {"a001"}) is bool(is_lent)
    if is_lent is False:
        assert "neither ledger nor Slurm confirms it" in result.errors[0]
    if is_lent is None:
        assert "it waits until Slurm and the ledger can be read" in result.notes[0]
    counted = counted_as_lent(a_config(), Registry(), facts_with_mark(**evidence))
    assert counted == ([] if is_lent is False else [("a", "dev")])


def test_marked_node_is_not_adopted_while_slurm_is_unread() -> None:
    unread = msgspec.structs.replace(facts_with_mark(), batch=None)
    result = adopt_marked(a_config(), (), unread)
    assert not result.nodes and not result.errors and result.notes


def test_own_mark_adopts_the_node_again() -> None:
    result = adopt_marked(a_config(), (), facts_with_mark(batch=[AWAY]))
    entry = result.nodes["a001"]
    assert (entry.phase, entry.queue, entry.since, entry.owner) == (
        Phase.JOINING,
        QUEUE,
        NOW,
        "prod",
    )
    assert result.notes == ("node=a001 has this instance's mark and is recorded again",)


def test_mark_sets_neither_queue_nor_node_type() -> None:
    mark = Mark(instance="prod", node_type="g", namespace="dev", queue="root.somebody.else")
    entry = adopt_marked(a_config(), (), facts_with_mark(mark, [AWAY])).nodes["a001"]
    assert (entry.queue, entry.node_type) == (QUEUE, "a")


@pytest.mark.parametrize(
    ("mark", "recorded"),
    [
        pytest.param(None, (), id="no-mark"),
        pytest.param(MARK, ("a001",), id="recorded"),
        pytest.param(THEIRS, (), id="another-instance's"),
    ],
)
def test_unmarked_recorded_and_foreign_nodes_are_not_adopted(
    mark: Mark | None, recorded: tuple[str, ...]
) -> None:
    result = adopt_marked(a_config(), recorded, facts_with_mark(mark, [AWAY]))
    assert (result.nodes, result.notes, result.errors) == ({}, (), ())


def test_mark_for_an_unmonitored_namespace_is_an_error() -> None:
    mark = Mark(instance="prod", node_type="a", namespace="gone", queue=QUEUE)
    result = adopt_marked(a_config(), (), facts_with_mark(mark, [AWAY]))
    assert not result.nodes and "'gone', which is not monitored" in result.errors[0]


# --- a mark that contradicts the record ------------------------------------------------------


@pytest.mark.parametrize(
    "phase", [Phase.JOINING, Phase.SERVING, Phase.RELEASING, Phase.RETURNING, Phase.FAILED]
)
@pytest.mark.parametrize(
    "lenders", [{}, {"a001": "prod"}, {"a001": "third"}, None], ids=["none", "us", "third", "?"]
)
def test_foreign_mark_alone_does_not_remove_a_node_from_the_registry(
    phase: Phase, lenders: dict[str, str] | None
) -> None:
    after = advance_node(
        a_config(), "a001", a_lent_node(phase), facts_with_mark(THEIRS, [AWAY], lenders=lenders)
    )
    assert after.entry is not None
    assert "has the mark of instance validation" in after.remark


def test_joining_node_with_foreign_mark_fails_after_join_timeout() -> None:
    entry = a_lent_node(Phase.JOINING, since=NOW)
    after = advance_node(a_config(), "a001", entry, facts_with_mark(THEIRS, [AWAY]))
    assert (after.verdict.reason, after.entry) == (Reason.JOINING, entry)
    entry = a_lent_node(Phase.JOINING, since=NOW - a_config().join_timeout * 2)
    after = advance_node(a_config(), "a001", entry, facts_with_mark(THEIRS, [AWAY]))
    assert after.entry is not None and after.entry.phase is Phase.FAILED
    assert "dnm reset a001" in after.entry.error


def test_node_that_no_ledger_counts_keeps_joining() -> None:
    after = advance_node(a_config(), "a001", a_lent_node(), facts_with_mark(THEIRS, [AWAY]))
    assert after.entry is not None and after.entry.phase is Phase.JOINING
    assert after.entry.counted == {} and after.verdict.reason is Reason.JOINING


@pytest.mark.parametrize(("unread", "phase"), [("x", Phase.JOINING), (QUEUE, Phase.SERVING)])
def test_only_an_unread_ledger_of_the_own_queue_keeps_a_node_serving(
    unread: str, phase: Phase
) -> None:
    marked = facts_with_mark(THEIRS, [AWAY], unread_ledgers=frozenset({unread}))
    after = advance_node(a_config(), "a001", a_lent_node(), marked)
    assert after.entry is not None and after.entry.phase is phase


def test_node_that_another_instance_counts_leaves_the_registry() -> None:
    recorded = facts_with_mark(THEIRS, [AWAY], lenders={"a001": "validation"})
    after = advance_node(a_config(), "a001", a_lent_node(), recorded)
    assert after.entry is None and after.verdict.reason is Reason.FOREIGN


def test_mark_of_any_length_is_shortened_in_remarks() -> None:
    mark = msgspec.structs.replace(MARK, instance="v" * 5000)
    after = advance_node(a_config(), "a001", a_lent_node(), facts_with_mark(mark, [AWAY]))
    assert len(after.remark) < 200
