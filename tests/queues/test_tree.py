"""The tree as YuniKorn builds it, and what it can not read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.errors import QueueError
from dnm.queues.tree import parse_tree
from tests.queue_kit import CORPUS, TREE, change, check_text, edit, nodes_of


def test_queues_have_lower_case_paths_and_their_limits() -> None:
    queues = parse_tree(CORPUS["upper_case_names"]).queues
    assert list(queues) == ["root", "root.science", "root.science.chemistry"]
    leaf = queues["root.science.chemistry"]
    assert (leaf.parent, leaf.is_leaf) == ("root.science", True)
    assert leaf.max == {"vcore": 80_000, "memory": 320 * 10**9}
    assert not queues["root.science"].is_leaf and not queues["root"].is_leaf


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("implicit_root_single", ["root", "root.science", "root.science.a"]),
        ("implicit_root_several", ["root", "root.a", "root.b", "root.c"]),
        ("several_partitions", ["root", "root.a"]),
        ("partition_without_name", ["root", "root.a"]),
        ("empty_things", ["root", "root.a", "root.b", "root.c"]),
    ],
)
def test_the_tree_as_yunikorn_builds_it(name: str, paths: list[str]) -> None:
    assert list(parse_tree(CORPUS[name]).queues) == paths


def test_only_the_default_partition_counts() -> None:
    assert parse_tree(CORPUS["several_partitions"]).written["root.a"].line == 11


def test_an_all_zero_limit_is_no_limit() -> None:
    queues = parse_tree(CORPUS["all_zero_beside"]).queues
    assert queues["root.unlimited"].max == {}
    assert queues["root.closed_for_cpu"].max == {"vcore": 0, "memory": 320 * 10**9}


UNREADABLE = {
    "no YAML": ("partitions: [", "line 2: did not find expected"),
    "unknown anchor": ("a: *b", "line 1: unknown anchor 'b'"),
    "key twice": (change(TREE, "max: {vcore: 64", "max: {vcore: 1, vcore: 64"),
        "line 17: `vcore` stands in line 17 already"),
    "the later one is wrong": ("a: 1\nb: 2\na: 3\n", "line 3: `a` stands in line 1 already"),
    "a tab indents": ("partitions:\n\t- name: default", "line 2"),
    "control character": (
        "partitions:\n  - name: \x07",
        "unacceptable character"),
    "it contains itself": (
        change(TREE, "- name: free", "- {name: x, queues: &a [{name: y, queues: *a}]}"),
        "anchor 'a' contains itself"),
    "a second byte order mark": (
        change(TREE, "    queues:\n      - name: root", "\ufeff    queues:\n      - name: root"),
        "line 3: a byte order mark"),
    "a directive within": (
        change(TREE, "      - name: root", "%YAML 1.1\n      - name: root"),
        "line 4: a line begins with `%`"),
    "too deep": ("partitions: " + "[" * 300, "nested deeper than 200"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_yunikorn_can_not_read(text: str, reason: str) -> None:
    with pytest.raises(QueueError) as caught:
        parse_tree(text)
    assert reason in str(caught.value)
    assert check_text(text)


def test_as_deep_as_no_site_goes() -> None:
    text = "partitions:\n- name: default\n  queues:\n" + "".join(
        f"{'  ' * depth}- name: q{depth}\n{'  ' * depth}  queues:\n" for depth in range(1, 80)
    )
    assert len(parse_tree(text + "  " * 80 + "- name: leaf\n").queues) == 81


@given(st.text(max_size=60), st.integers(0, len(TREE)), st.integers(0, 30))
def test_any_text_is_a_document_or_a_sentence(noise: str, start: int, length: int) -> None:
    for text in (noise, TREE[:start] + noise + TREE[start + length :]):
        violations = check_text(text)
        assert all(found.message and found.line >= 1 for found in violations)
        made = edit(text, noise, nodes_of("root.science", "n1"), remembered=None)
        assert made.refusal or check_text(made.text) == ()


def test_aliases_of_aliases_end() -> None:
    lines = ["partitions:", "- name: default", "  queues:", "  - name: a", "    limits:"]
    lines.append("    - &l0 {users: [" + ",".join("u" * 9) + "]}")
    bomb = "\n".join(lines) + "".join(
        f"\n  - &q{n} {{name: q{n}, queues: [{', '.join([f'*q{n - 1}'] * 9) if n else ''}]}}"
        for n in range(9)
    )
    assert any("aliases of aliases" in found.message for found in check_text(bomb))


LEAVES = [
    pytest.param("", True, id="without a word"),
    pytest.param("parent: true", False, id="a parent without children"),
    pytest.param("parent: false", True, id="said to be a leaf"),
    pytest.param("queues: [{name: below}]", False, id="with a child"),
    pytest.param("queues: []", True, id="with no children"),
]


@pytest.mark.parametrize(("more", "is_leaf"), LEAVES)
def test_a_leaf_has_no_children_and_is_no_parent(more: str, is_leaf: bool) -> None:
    text = f"partitions:\n- name: default\n  queues:\n  - name: q\n    {more}\n"
    assert parse_tree(text).queues["root.q"].is_leaf is is_leaf
    assert not parse_tree(text).queues["root"].is_leaf
