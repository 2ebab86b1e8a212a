"""One value: text, tree, ledger and verdict, read once."""

from __future__ import annotations

import pytest

from dnm.queues.document import read_document
from dnm.queues.source import resolve_document
from tests.queue_kit import TREE, A, change, config_map, edit, lend, nodes_of, read


def test_a_refused_document_is_reported_and_not_touched() -> None:
    invalid = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: 8000, memory: 320G}")
    refused = edit(invalid, "", nodes_of(A, "n1"))
    assert "the queue document can't be edited as it stands, line 14" in refused.refusal
    assert refused.text == invalid and not refused.is_changed


def test_an_invalid_document_says_all_that_is_wrong_with_it_and_still_has_limits() -> None:
    document = read(change(TREE, "max: {vcore: 80,", "max: {vcore: 8000,"))
    assert [(found.rule, found.queue, found.line) for found in document.violations] == [
        ("R2", A, 14)
    ]
    assert document.limits[A].max["vcore"] == 8_000_000
    assert "line 14" in document.refusal and "dnm queues check" in document.refusal


def test_where_it_stands_is_said_before_what_is_wrong_with_it() -> None:
    invalid = change(TREE, "max: {vcore: 80,", "max: {vcore: 8000,")
    frozen = read_document(resolve_document(config_map(invalid, immutable=True), None))
    assert "immutable" in frozen.refusal


def test_a_ledger_that_can_not_be_read_is_told_and_counts_every_node() -> None:
    document = read(TREE, "{")
    assert "can't be read" in document.ledger_problem and not document.refusal
    assert document.is_counted("n1", "prod") and document.is_counted("n9", "nobody")


COUNTED = [
    pytest.param("n1", "prod", True, id="its own node"),
    pytest.param("n3", "prod", False, id="a node that is not lent"),
    pytest.param("n1", "other", False, id="a node of another instance"),
]


@pytest.mark.parametrize(("node", "instance", "is_counted"), COUNTED)
def test_a_node_is_counted_by_the_instance_that_lent_it(
    node: str, instance: str, is_counted: bool
) -> None:
    made = lend(TREE, nodes_of(A, "n1", "n2"))
    assert read(made.text, made.ledger).is_counted(node, instance) is is_counted


STATES = {
    "of the API": ({"resource_version": "7"}, ("yunikorn", "yunikorn-configs", "queues.yaml", "7")),
    "no resourceVersion": ({"resource_version": ""}, None),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "version"), STATES.values(), ids=STATES)
def test_a_state_of_the_document_is_told_by_its_resource_version(
    fields: dict[str, object], version: tuple[str, ...] | None
) -> None:
    found = resolve_document(config_map(TREE, **fields), None)
    assert found.version == version
    assert resolve_document(None, None).version is None
