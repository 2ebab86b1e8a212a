"""Tests of documents that dnm refuses to edit, with line and reason. It edits all valid ones,
except in YAML that it does not support.

`judged.jsonl` has random documents, half of them broken versions of good ones, with the answers of
the validator of yunikorn-core 1.9.0. `tests/real/queue_documents.py` compares new ones with a whole
YuniKorn."""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections import Counter
from pathlib import Path, PosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.errors import QueueError
from dnm.queues.yunikorn.admin.queue_verbs import check_files
from dnm.queues.yunikorn.advice import advise
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.files import judge_file
from dnm.queues.yunikorn.rest import YunikornClient
from dnm.queues.yunikorn.tree import check_rules, parse_tree
from tests.queue_kit import CORPUS, DATA, ONE, TREE, A, change, check_text, edit, nodes_of

VECTORS = json.loads((DATA / "yunikorn_vectors.json").read_text())["config"]
assert len(VECTORS) == 62


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_document_that_yunikorn_accepts_is_editable(vector: dict[str, Any]) -> None:
    rule_violations = check_text(vector["yaml"])
    assert not (rule_violations and vector["ok"]) or is_dialect(rule_violations), rule_violations


def is_dialect(found: tuple[RuleViolation, ...]) -> bool:
    """Returns whether dnm refuses a document only for YAML that it does not support."""
    return [rule_violation.rule for rule_violation in found] == ["dialect"]


DIALECT = {
    "a tag": ("max: {vcore: 80, ", "max: {vcore: !!int 80, ", 14, "`!!int`"),
    "a coded number": ("max: {vcore: 80, ", "max: {vcore: !!binary ODA=, ", 14, "`!!binary`"),
    "a merge": ("max: {vcore: 80, memory: 320G}", "max: {<<: {vcore: 80}}", 14, "`<<`"),
    "a directive": ("partitions:", "%YAML 1.1\n---\npartitions:", 1, "begins with `%`"),
    "a tab before a comment": (
        "- name: free",
        "- name: free\n# one\n\t# two",
        20,
        "indented with a tab",
    ),
    "a mark behind a lone CR": ("- name: free", "- name: free\r\ufeff", 18, "byte order mark"),
}


@pytest.mark.parametrize(("old", "new", "line", "why"), DIALECT.values(), ids=DIALECT)
def test_unsupported_dialect_is_named_with_its_line(
    old: str, new: str, line: int, why: str
) -> None:
    """dnm reports it with the line before it converts any node."""
    text = change(TREE, old, new)
    (rule_violation,) = check_text(text)
    assert (rule_violation.rule, rule_violation.line) == (
        "dialect",
        line,
    ) and why in rule_violation.message
    refused = edit(text, "", ONE)
    assert (
        why in (refused.refusal or "")
        and f"line {line}" in (refused.refusal or "")
        and refused.text == text
    )


@pytest.mark.parametrize(
    "path", sorted((DATA / "dialect").glob("*.yaml")), ids=lambda item: item.stem
)
def test_file_of_an_unsupported_dialect_is_refused(path: Path) -> None:
    (judged,) = judge_file(path)
    assert is_dialect(judged.violations)


def test_random_document_that_yunikorn_accepts_is_editable() -> None:
    judged = [json.loads(line) for line in (DATA / "judged.jsonl").read_text().splitlines()]
    reported = Counter((item["ok"], not check_text(item["yaml"])) for item in judged)
    refused = [check_text(item["yaml"]) for item in judged if item["ok"]]
    assert all(not rule_violations or is_dialect(rule_violations) for rule_violations in refused)
    assert reported[True, True] > 130 and reported[False, False] > 200


# --- what a violation says -----------------------------------------------------------------------

VIOLATIONS = {
    "R1: guaranteed above max": (change(TREE, "vcore: 80", "vcore: 7500m"), ("R1", A, 13),
        "root.science.a: guaranteed vcore 8 is larger than its max, 7500m"),
    "R2: max above an ancestor's": (change(TREE, "320G", "5T"), ("R2", A, 14),
        "root.science.a: max memory 5T is larger than the max of a queue above it, 4T"),
    "R3: children's guarantees above the parent's": (
        change(TREE, "guaranteed: {vcore: 40,", "guaranteed: {vcore: 7500m,"),
        ("R3", "root.science", 8),
        "root.science: the children's guaranteed vcore 8 is larger than its guaranteed, 7500m"),
    "R4: children's guarantees above the max": (
        change(
            change(TREE, "guaranteed: {vcore: 8, memory: 32G}", "guaranteed: {pods: 6}"),
            "max: {vcore: 1000, memory: 4T}",
            "max: {vcore: 1000, memory: 4T, pods: 5}",
        ),
        ("R4", "root.science", 9),
        "root.science: the children's guaranteed pods 6 is larger than the tightest max up to "
        "root, 5"),
    "L1: a user's limit above the queue's max": (
        change(
            TREE,
            "          - name: free",
            "          - name: free\n            resources: {max: {vcore: 2}}\n"
            "            limits:\n              - {limit: x, users: [u], maxresources: {vcore: 3}}",
        ),
        ("L1", "root.free", 21), "root.free: limit 'x': vcore 3 is larger than the queue's max, 2"),
    "a decimal": (change(TREE, "vcore: 64", "vcore: 6.4"), ("quantity", "root.science.b", 17),
        "root.science.b: max vcore '6.4': invalid quantity"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "where", "message"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_violation_names_queue_line_and_both_numbers(
    text: str, where: tuple[str, str, int], message: str
) -> None:
    (rule_violation, *other) = check_text(text)
    assert (rule_violation.rule, rule_violation.queue, rule_violation.line) == where
    assert rule_violation.message == message
    assert not other


def test_every_violation_is_listed() -> None:
    text = change(change(TREE, "vcore: 8,", "vcore: 81,"), "memory: 256G", "memory: 256GB")
    assert [rule_violation.rule for rule_violation in check_text(text)] == ["R3", "R1", "quantity"]


ADVICE = [
    pytest.param(TREE.replace("320G", "0").replace("vcore: 80", "vcore: 0"), "zero", id="zero max"),
    pytest.param(change(TREE, "vcore: 64", "cpu: 64"), "resource", id="cpu for vcore"),
]


@pytest.mark.parametrize(("text", "rule"), ADVICE)
def test_advice_does_not_invalidate_a_document(text: str, rule: str) -> None:
    document = parse_tree(text)
    assert rule in [rule_violation.rule for rule_violation in advise(document)]
    if rule == "zero":
        text = change(text, "guaranteed: {vcore: 8, memory: 32G}", "guaranteed: {}")
    assert check_text(text) == ()


def test_valid_document_gets_no_advice() -> None:
    assert advise(parse_tree(TREE)) == ()
    assert check_rules(parse_tree(TREE)) == ()


# --- files ---------------------------------------------------------------------------------------

BAD = change(TREE, "vcore: 80", "vcore: 7")  # R1 in line 13


def manifest(text: str, style: str = "|") -> str:
    if style == "|":
        block = "".join(f"    {line}\n" for line in text.splitlines())
        body = f"  queues.yaml: |\n{block}"
    else:
        body = f"  queues.yaml: {json.dumps(text)}\n"
    return (
        "# for GitOps\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yunikorn-configs\n"
        f"  namespace: yunikorn\ndata:\n  service.schedulingInterval: 1s\n{body}"
    )


PACKED = (
    "kind: ConfigMap\nmetadata:\n  name: yunikorn-configs\n\nbinaryData:\n"
    f"  queues.yaml.gz: {base64.b64encode(gzip.compress(BAD.encode(), mtime=0)).decode()}\n"
)
FILES = {
    "a plain document": (TREE, []),
    "a plain bad one": (BAD, [("R1", 13)]),
    "a manifest": (manifest(TREE), []),
    "lines are the manifest's": (manifest(BAD), [("R1", 22)]),
    "a quoted text has one line": (manifest(BAD, "json"), [("R1", 9)]),
    "a packed text has one line": (PACKED, [("R1", 6)]),
    "a damaged packed text": (PACKED.replace("gz: H", "gz: x"), [("gzip", 1)]),
    "not Unicode, behind a document": (f"{TREE}---\n\t{{", [("document", 1)]),
    "behind another manifest": ("kind: Namespace\n---\n" + manifest(BAD), [("R1", 24)]),
    "nothing": ("", [("document", 1)]),
    "what nobody should apply": ("partitions: []\n", [("document", 1)]),
    "an invalid document, in a manifest": (manifest("partitions: []\n"), [("document", 10)]),
    "no YAML": ("{", [("yaml", 2)]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "rules"), FILES.values(), ids=FILES)
def test_files_and_manifests_are_checked_with_line_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, rules: list[tuple[str, int]]
) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(content)
    (judged,) = judge_file(path)
    assert [(violation.rule, violation.line) for violation in judged.violations] == rules
    assert check_files([path], output="text") == (1 if rules else 0)
    printed = capsys.readouterr().out
    for rule, line in rules:
        assert f"{path}:{line}: " in printed and f"[{rule}]" in printed


def test_manifest_without_queues_is_reported_by_name_and_line(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(manifest(TREE).replace("queues.yaml:", "old.yaml:"))
    (judged,) = judge_file(path)
    (advice,) = judged.advice
    assert judged.is_ok and (advice.rule, advice.line) == ("document", 2)
    assert "there is no queues.yaml in yunikorn/yunikorn-configs" in advice.message


def test_endless_file_is_read_up_to_a_bound() -> None:
    """In `dnm queues check <(yes)`, the file is a pipe without end."""

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            assert size is not None and size > 0
            return b"y" * size

    class Pipe(PosixPath):
        def open(self, *how: Any) -> Any:
            return Endless()

    (judged,) = judge_file(Pipe("/dev/fd/63"))
    assert "is larger than 67108864 bytes" in judged.violations[0].message


UNJUDGED = {
    "a root in capitals": change(TREE, "- name: root", "- name: Root"),
    "a key that is none": change(TREE, "- name: free", "- {name: free, acl: a}"),
    "an ACL": change(TREE, "- name: free", "- {name: free, submitacl: 'a  b'}"),
    "a rule": change(TREE, "    queues:\n      - name: root", "    placementrules: [{name: no}]\n"
                     "    queues:\n      - name: root"),
}  # fmt: skip


class Scheduler(YunikornClient):
    """A scheduler that refuses everything."""

    def validate(self, text: str) -> str:
        return "no"


@pytest.mark.parametrize("text", UNJUDGED.values(), ids=UNJUDGED)
def test_checks_outside_the_edited_parts_are_left_to_yunikorn(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(text)
    assert edit(text, "", ONE).changes
    assert check_files([path], output="text") == 0
    assert "YuniKorn was not asked (set yunikorn_url)" in capsys.readouterr().out
    assert check_files([path], "text", Scheduler("http://x")) == 1
    assert "YuniKorn refuses the document: no [yunikorn]" in capsys.readouterr().out


def test_ambiguous_queue_names_are_refused() -> None:
    for name, why in (("a.b", "is not a valid queue name"), ("A", "is written twice")):
        (rule_violation,) = check_text(change(TREE, "- name: b", f"- name: {name}"))
        assert rule_violation.rule == "name" and why in rule_violation.message


def test_file_check_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, missing = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "missing.yaml"
    good.write_text(TREE)
    bad.write_bytes(b"\xff" + BAD.encode())
    assert check_files([good, bad, missing], output="json") == 1
    first, second, third = json.loads(capsys.readouterr().out)
    assert first == {
        "schema": "dnm.queues.check/1",
        "file": str(good),
        "ok": True,
        "taken": None,
        "violations": [],
        "advice": [],
    }
    assert not second["ok"] and second["violations"][0]["message"] == "is not UTF-8 text"
    assert third["violations"] == [
        {
            "rule": "file",
            "queue": "",
            "line": 0,
            "message": "can't be read: No such file or directory",
        }
    ]


# --- the tree as YuniKorn builds it, and what it can not read ------------------------------------


def test_queue_paths_are_lower_case_and_have_limits() -> None:
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
def test_queue_tree_has_an_implicit_root_like_in_yunikorn(name: str, paths: list[str]) -> None:
    assert list(parse_tree(CORPUS[name]).queues) == paths


def test_only_the_default_partition_counts() -> None:
    assert parse_tree(CORPUS["several_partitions"]).written["root.a"].line == 11


def test_limit_of_all_zeros_is_no_limit() -> None:
    queues = parse_tree(CORPUS["all_zero_beside"]).queues
    assert queues["root.unlimited"].max == {}
    assert queues["root.closed_for_cpu"].max == {"vcore": 0, "memory": 320 * 10**9}


UNREADABLE = {
    "no YAML": ("partitions: [", "line 2: did not find expected"),
    "unknown anchor": ("a: *b", "line 1: unknown anchor 'b'"),
    "key twice": (change(TREE, "max: {vcore: 64", "max: {vcore: 1, vcore: 64"),
        "line 17: `vcore` is already in line 17"),
    "the later one is wrong": ("a: 1\nb: 2\na: 3\n", "line 3: `a` is already in line 1"),
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
def test_unreadable_document_gets_a_reason(text: str, reason: str) -> None:
    with pytest.raises(QueueError) as caught:
        parse_tree(text)
    assert reason in str(caught.value)
    assert check_text(text)


def test_deeply_nested_queues_are_parsed() -> None:
    text = "partitions:\n- name: default\n  queues:\n" + "".join(
        f"{'  ' * depth}- name: q{depth}\n{'  ' * depth}  queues:\n" for depth in range(1, 80)
    )
    assert len(parse_tree(text + "  " * 80 + "- name: leaf\n").queues) == 81


@given(st.text(max_size=60), st.integers(0, len(TREE)), st.integers(0, 30))
def test_arbitrary_text_is_a_document_or_an_error_message(
    noise: str, start: int, length: int
) -> None:
    for text in (noise, TREE[:start] + noise + TREE[start + length :]):
        violations = check_text(text)
        assert all(
            rule_violation.message and rule_violation.line >= 1 for rule_violation in violations
        )
        made = edit(text, noise, nodes_of("root.science", "n1"), remembered=None)
        assert made.refusal or check_text(made.text) == ()


def test_nested_yaml_aliases_are_bounded() -> None:
    lines = ["partitions:", "- name: default", "  queues:", "  - name: a", "    limits:"]
    lines.append("    - &l0 {users: [" + ",".join("u" * 9) + "]}")
    bomb = "\n".join(lines) + "".join(
        f"\n  - &q{n} {{name: q{n}, queues: [{', '.join([f'*q{n - 1}'] * 9) if n else ''}]}}"
        for n in range(9)
    )
    assert any(
        "aliases of aliases" in rule_violation.message for rule_violation in check_text(bomb)
    )


LEAVES = [
    pytest.param("", True, id="without a word"),
    pytest.param("parent: true", False, id="a parent without children"),
    pytest.param("parent: false", True, id="declared as a leaf"),
    pytest.param("queues: [{name: below}]", False, id="with a child"),
    pytest.param("queues: []", True, id="with no children"),
]


@pytest.mark.parametrize(("more", "is_leaf"), LEAVES)
def test_leaf_has_no_children_and_is_no_parent(more: str, is_leaf: bool) -> None:
    text = f"partitions:\n- name: default\n  queues:\n  - name: q\n    {more}\n"
    assert parse_tree(text).queues["root.q"].is_leaf is is_leaf
    assert not parse_tree(text).queues["root"].is_leaf
