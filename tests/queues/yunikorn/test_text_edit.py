"""Tests that an edit replaces single numbers and nothing else, in every style of YAML."""

from __future__ import annotations

import pytest
import yaml

from dnm.model.errors import QueueError
from dnm.model.value import Resources
from dnm.queues.yunikorn.files import judge_text
from dnm.queues.yunikorn.quantities import format_yunikorn
from dnm.queues.yunikorn.text_edit import read_again, replace_limits, why_not_changeable
from dnm.queues.yunikorn.tree import LimitPlace, check_rules, parse_tree
from dnm.queues.yunikorn.yaml_nodes import compose
from tests.queue_kit import (
    AMOUNT,
    CORPUS,
    NODE,
    TREE,
    A,
    change,
    check_text,
    edit,
    large_document,
    lend,
    nodes_of,
)

UNEDITABLE = {
    "several documents": (TREE + "---\nmore: 1\n", "several YAML documents (`---`)"),
    "a queue below root named root": (change(TREE, "name: free", "name: Root"),
        "line 18: root.root is named like root"),
    "root beside others": ("partitions: [{name: default, queues: [{name: root}, {name: b}]}]",
        "line 1: root.root is named like root"),
    "root in capitals beside others": (
        "partitions: [{name: default, queues: [{name: Root}, {name: b}]}]",
        "line 1: root.root is named like root"),
    "no partition": ("partitions: []", "no partition `default`"),
    "nothing": ("# nothing\n", "no partition `default`"),
    "another partition": ("partitions: [{name: gpu, queues: []}]", "no partition `default`"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), UNEDITABLE.values(), ids=UNEDITABLE)
def test_valid_document_that_dnm_cannot_edit_is_refused_with_a_reason(
    text: str, reason: str
) -> None:
    assert check_text(text) == ()
    refused = edit(text, "", {}, remembered=None)
    assert reason in (refused.refusal or "")
    assert (refused.text, refused.is_changed) == (text, False)
    judged = judge_text("x", text)
    assert any(
        reason in rule_violation.message for rule_violation in (*judged.advice, *judged.violations)
    )


def test_uneditable_tree_is_not_written() -> None:
    tree = parse_tree(TREE + "---\nmore: 1\n")
    with pytest.raises(QueueError, match="several YAML documents"):
        replace_limits(tree, {LimitPlace(A, "max", "vcore"): "81"})


SHARED = [
    pytest.param("max: &m {vcore: 80, memory: 320G}", "max: *m", id="the complete map"),
    pytest.param("max: {vcore: &v 80, memory: 320G}", "max: {vcore: *v}", id="one value"),
]


@pytest.mark.parametrize(("first", "second"), SHARED)
def test_aliased_limits_block_their_queue_with_a_line_number(first: str, second: str) -> None:
    text = change(TREE, "max: {vcore: 80, memory: 320G}", first)
    text = change(text, "max: {vcore: 64, memory: 256G}", second)
    assert check_text(text) == ()
    for queue in (A, "root.science.b"):
        refused = edit(text, "", nodes_of(queue, "n1"))
        assert refused.text == text
        assert "is used elsewhere by an alias" in refused.blocked[queue]
        assert "line 14: max vcore" in refused.blocked[queue] and not refused.is_changed
    free = edit(text, "", nodes_of("root.free", "n1"))
    assert not free.refusal and free.text == text


def test_edit_that_changes_the_meaning_is_rejected() -> None:
    document = parse_tree(TREE)
    with pytest.raises(QueueError, match="would have another meaning"):
        read_again(replace_limits(document, {LimitPlace(A, "max", "vcore"): "1, pods: 5"}))


@pytest.mark.parametrize("name", CORPUS)
def test_lend_and_return_restore_the_bytes_of_each_yaml_style(name: str) -> None:
    """Lends nodes to the leaf queues and returns them in another order: the bytes are as before.
    Each edit changes only the numbers that it reports."""
    text = CORPUS[name]
    assert check_text(text) == ()
    leaves = [path for path, queue in parse_tree(text).queues.items() if queue.is_leaf][:8]
    nodes: dict[str, dict[str, Resources]] = {}
    steps = []
    for turn in ("x", "y"):
        for leaf in leaves:
            nodes.setdefault(leaf, {})[f"{leaf}-{turn}"] = NODE
            steps.append({queue: dict(lent) for queue, lent in nodes.items()})
    now, ledger = text, ""
    for step in [*steps, *steps[:-1:-1], *steps[::-3], {}]:
        made = edit(now, ledger, step)
        assert not made.refusal
        assert_only_numbers_differ(now, made.text, len(made.changes))
        assert check_text(made.text) == ()
        now, ledger = made.text, made.ledger
        assert not edit(now, ledger, step).is_changed
    assert now.encode() == text.encode()
    assert ledger == ""


def assert_only_numbers_differ(before: str, after: str, count: int) -> None:
    old, new = AMOUNT.findall(before), AMOUNT.findall(after)
    assert AMOUNT.sub("#", before) == AMOUNT.sub("#", after)
    assert sum(a != b for a, b in zip(old, new, strict=True)) == count


def test_corpus_has_thirty_documents() -> None:
    assert len(CORPUS) >= 30
    assert sum("\r\n" in text for text in CORPUS.values()) >= 2
    assert sum(text.startswith("\ufeff") for text in CORPUS.values()) >= 2


def test_python_parser_gives_the_same_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may lack libyaml. Its Python parser differs only in refusing tabs between tokens."""
    documents = {name: text for name, text in CORPUS.items() if "\t" not in text}
    fast = {name: compose(text) for name, text in documents.items()}
    edits = {name: lend(text, every_leaf(text)).text for name, text in documents.items()}
    monkeypatch.delattr(yaml, "CBaseLoader")
    for name, text in documents.items():
        assert compose(text).shape == fast[name].shape, name
        assert lend(text, every_leaf(text)).text == edits[name], name
    with pytest.raises(QueueError, match="line 2"):
        parse_tree(CORPUS["json_pretty"])


def every_leaf(text: str) -> dict[str, dict[str, Resources]]:
    queues = parse_tree(text).queues.values()
    return {queue.path: {f"{queue.path}-x": NODE} for queue in queues if queue.is_leaf}


def test_document_with_two_thousand_queues_is_edited() -> None:
    text = large_document()
    queues = parse_tree(text).queues
    leaves = [path for path, queue in queues.items() if queue.is_leaf]
    assert len(queues) == 2001
    lent: dict[str, dict[str, Resources]] = {}
    for number in range(1000):
        size = {**NODE, "memory": 256 * 10**9 + number}
        lent.setdefault(leaves[number * 37 % len(leaves)], {})[f"node{number:04}"] = size
    there = lend(text, lent)
    assert check_text(there.text) == ()
    assert_only_numbers_differ(text, there.text, len(there.changes))
    assert len(there.ledger) < 256 * 1024
    back = edit(there.text, there.ledger, {})
    assert back.text == text


@pytest.mark.parametrize("name", CORPUS)
def test_edited_tree_equals_the_written_document(name: str) -> None:
    """Changes every number that dnm can rewrite, and parses the new text."""
    tree = parse_tree(CORPUS[name])
    texts = {
        place: format_yunikorn(place.resource, number * 7000, tree.places[place].text)
        for number, place in enumerate(tree.places, start=1)
        if not why_not_changeable(tree, place)
    }
    if tree.refusal or not texts:
        return
    edited = replace_limits(tree, texts)
    again = read_again(edited)
    assert {place: again.places[place].text.strip() for place in texts} == {
        place: text.strip() for place, text in texts.items()
    }
    assert edited.violations == check_rules(again)
    before = parse_tree(CORPUS[name])
    assert [place.text for place in tree.places.values()] == [
        place.text for place in before.places.values()
    ]
