"""The queue document: found where YuniKorn finds it, read as it reads it, given back unharmed."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.model.value import Resources
from dnm.queues.advice import advise
from dnm.queues.source import LEDGER_ANNOTATION, resolve_document, with_document
from dnm.queues.text_edit import read_again, replace_limits
from dnm.queues.tree import LimitPlace, check_text, parse_tree
from dnm.queues.yaml_nodes import compose
from tests.queue_kit import (
    AMOUNT,
    CORPUS,
    NODE,
    TREE,
    A,
    change,
    config_map,
    edit,
    lend,
    nodes_of,
)

OTHER = TREE.replace("name: science", "name: other")


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def maps(
    configs: Mapping[str, object] | None, defaults: Mapping[str, object] | None = None
) -> tuple[ConfigMap | None, ConfigMap | None]:
    named = {"name": "yunikorn-defaults"}
    return (
        None if configs is None else config_map("", **configs),
        None if defaults is None else config_map("", **named, **defaults),
    )


# --- where it is ---------------------------------------------------------------------------------

PLACES = [
    pytest.param({"data": {"queues.yaml": TREE}}, None, "queues.yaml", id="data"),
    pytest.param(
        {"data": {"queues.yaml": TREE}},
        {"data": {"queues.yaml": OTHER}},
        "queues.yaml",
        id="configs before defaults",
    ),
    pytest.param(
        {"data": {"queues.yaml": OTHER}, "binary_data": {"queues.yaml.gz": packed(TREE)}},
        None,
        "queues.yaml.gz",
        id="binaryData before data",
    ),
    pytest.param(
        {"data": {"queues.yaml": TREE}},
        {"binary_data": {"queues.yaml.gz": packed(OTHER)}},
        "queues.yaml",
        id="data of configs before binaryData of defaults",
    ),
    pytest.param(
        {"data": {"service.policyGroup": "site", "site.yaml": TREE, "queues.yaml": OTHER}},
        None,
        "site.yaml",
        id="policy group",
    ),
    pytest.param(
        {"data": {"site.yaml": TREE, "queues.yaml": OTHER}},
        {"data": {"service.policyGroup": "site"}},
        "site.yaml",
        id="policy group from defaults",
    ),
    pytest.param(
        {"data": {"service.policyGroup": "queues", "queues.yaml": TREE, "site.yaml": OTHER}},
        {"data": {"service.policyGroup": "site"}},
        "queues.yaml",
        id="policy group of configs before that of defaults",
    ),
]


@pytest.mark.parametrize(("configs", "defaults", "key"), PLACES)
def test_the_document_in_force(
    configs: dict[str, object], defaults: dict[str, object] | None, key: str
) -> None:
    found = resolve_document(*maps(configs, defaults))
    assert (found.text, found.key, found.refusal) == (TREE, key, "")
    assert found.config_map is not None and found.config_map.name == "yunikorn-configs"


REFUSED_PLACES = [
    pytest.param(
        None,
        None,
        "if YuniKorn really has none, there is no queues.yaml in the cluster",
        id="no ConfigMap",
    ),
    pytest.param({"data": {}}, None, "no queues.yaml in yunikorn/yunikorn-configs", id="no key"),
    pytest.param({"data": {"queues.yaml": ""}}, None, "is empty", id="empty"),
    pytest.param(None, {"data": {"queues.yaml": TREE}}, "which Helm owns", id="only in defaults"),
    pytest.param(
        None,
        {"data": {"queues.yaml": TREE}},
        "no ConfigMap yunikorn/yunikorn-configs",
        id="only in defaults, by a wrong name",
    ),
    pytest.param(
        {"data": {"queues.yaml": TREE}, "immutable": True}, None, "is immutable", id="immutable"
    ),
]


@pytest.mark.parametrize(("configs", "defaults", "reason"), REFUSED_PLACES)
def test_where_dnm_must_not_edit(
    configs: dict[str, object] | None, defaults: dict[str, object] | None, reason: str
) -> None:
    found = resolve_document(*maps(configs, defaults))
    assert reason in found.refusal


def test_a_broken_gzip_is_an_error_and_not_another_document() -> None:
    configs = {"data": {"queues.yaml": TREE}, "binary_data": {"queues.yaml.gz": "AAAA"}}
    with pytest.raises(QueueError, match=r"queues\.yaml\.gz .* is no gzip"):
        resolve_document(*maps(configs))


@pytest.mark.parametrize("value", ["false", "False", "F", "0"])
def test_without_hot_refresh_there_is_a_warning(value: str) -> None:
    data = {"queues.yaml": TREE, "service.enableConfigHotRefresh": value}
    found = resolve_document(*maps({"data": data}))
    assert not found.is_hot_refreshed
    assert "restart the scheduler" in found.warnings[0]


def test_a_packed_document_is_packed_again_under_its_key() -> None:
    configs = {"data": {"x": "y"}, "binary_data": {"queues.yaml.gz": packed(TREE), "b": "Yg=="}}
    found = resolve_document(*maps(configs))
    written = with_document(found, OTHER, "ledger")
    assert (
        gzip.decompress(base64.b64decode(written.binary_data["queues.yaml.gz"])) == OTHER.encode()
    )
    assert (written.data, written.binary_data["b"]) == ({"x": "y"}, "Yg==")
    assert written.annotations == {LEDGER_ANNOTATION: "ledger"}
    assert with_document(found, TREE, "") == found.config_map


# --- what it says --------------------------------------------------------------------------------


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


UNREADABLE = [
    pytest.param("partitions: [", "line 2: did not find expected", id="no YAML"),
    pytest.param("a: *b", "line 1: unknown anchor 'b'", id="unknown anchor"),
    pytest.param(
        change(TREE, "  - name: default", "  - name: default\n    Queues: []"),
        "line 3: `Queues` is no key of a partition; keys are written in lower case",
        id="key in another case",
    ),
    pytest.param(
        change(TREE, "max: {vcore: 64", "max: {vcore: 1, vcore: 64"),
        "line 17: `vcore` stands in line 17 already",
        id="key twice",
    ),
    pytest.param("partitions:\n\t- name: default", "line 2", id="a tab indents"),
    pytest.param("partitions:\n  - name: \x07", "unacceptable character", id="control character"),
    pytest.param(
        "x: &a [*a]\n", "`x` is no key of the configuration", id="what contains itself is not asked"
    ),
    pytest.param(change(TREE, "vcore: 64", "pods?: 64"), "needs quotes", id="? in flow style"),
    pytest.param(
        change(TREE, "vcore: 64", r'"nvidia.com\/gpu": 64'), "is no escape", id="an escaped slash"
    ),
    pytest.param(
        change(TREE, "    queues:\n      - name: root", "\ufeff    queues:\n      - name: root"),
        "line 3: a byte order mark",
        id="a second byte order mark",
    ),
    pytest.param(
        change(TREE, "      - name: root", "%YAML 1.1\n      - name: root"),
        "line 4: a directive",
        id="a directive within",
    ),
    pytest.param("partitions: " + "[" * 300, "nested deeper than 200", id="too deep"),
]


@pytest.mark.parametrize(("text", "reason"), UNREADABLE)
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
        made = edit(text, noise, nodes_of("root.science", "n1"), remembered={})
        assert made.refusal or check_text(made.text) == ()


def test_aliases_of_aliases_end() -> None:
    lines = ["partitions:", "- name: default", "  queues:", "  - name: a", "    limits:"]
    lines.append("    - &l0 {users: [" + ",".join("u" * 9) + "]}")
    bomb = "\n".join(lines) + "".join(
        f"\n  - &q{n} {{name: q{n}, queues: [{', '.join([f'*q{n - 1}'] * 9) if n else ''}]}}"
        for n in range(9)
    )
    assert any("aliases of aliases" in found.message for found in check_text(bomb))


# --- how it is changed ---------------------------------------------------------------------------

UNEDITABLE = [
    pytest.param(TREE + "---\nmore: 1\n", "several YAML documents (`---`)", id="several documents"),
    pytest.param(
        change(TREE, "name: free", "name: Root"),
        "line 18: root.root is named like root",
        id="a queue below root named root",
    ),
    pytest.param(
        "partitions: [{name: default, queues: [{name: root}, {name: b}]}]",
        "line 1: root.root is named like root",
        id="root beside others",
    ),
    pytest.param(
        change(TREE, "name: root", "name: ROOT"),
        "line 4: YuniKorn can't start with a root written 'ROOT'",
        id="root in capitals",
    ),
    pytest.param("partitions: []", "no partition `default`", id="no partition"),
    pytest.param("# nothing\n", "no partition `default`", id="nothing"),
    pytest.param(
        "partitions: [{name: gpu, queues: []}]", "no partition `default`", id="another partition"
    ),
]


@pytest.mark.parametrize(("text", "reason"), UNEDITABLE)
def test_documents_that_yunikorn_takes_and_dnm_leaves_alone(text: str, reason: str) -> None:
    assert check_text(text) == ()
    refused = edit(text, "", {}, remembered={})
    assert reason in refused.refusal
    assert (refused.text, refused.is_changed) == (text, False)
    assert any(reason in advice.message for advice in advise(parse_tree(text)))


SHARED = [
    pytest.param("max: &m {vcore: 80, memory: 320G}", "max: *m", id="the whole map"),
    pytest.param("max: {vcore: &v 80, memory: 320G}", "max: {vcore: *v}", id="one value"),
    pytest.param("max: &m {vcore: 80, memory: 320G}", "max: {<<: *m}", id="a merge"),
]


@pytest.mark.parametrize(("first", "second"), SHARED)
def test_aliased_limits_are_refused_with_their_line(first: str, second: str) -> None:
    text = change(TREE, "max: {vcore: 80, memory: 320G}", first)
    text = change(text, "max: {vcore: 64, memory: 256G}", second)
    assert check_text(text) == ()
    for queue in (A, "root.science.b"):
        refused = edit(text, "", nodes_of(queue, "n1"))
        assert refused.text == text
        assert "is used elsewhere by an alias" in refused.refusal
        assert "line 14: max vcore" in refused.refusal
    free = edit(text, "", nodes_of("root.free", "n1"))
    assert not free.refusal and free.text == text


def test_a_number_with_escapes_is_refused_with_its_line() -> None:
    text = change(TREE, "vcore: 80", r'vcore: "\x38\x30"')
    assert parse_tree(text).queues[A].max["vcore"] == 80_000
    refused = edit(text, "", nodes_of(A, "n1"))
    assert "line 14: max vcore of root.science.a is written with escapes" in refused.refusal


def test_an_edit_that_would_change_the_meaning_is_caught() -> None:
    document = parse_tree(TREE)
    with pytest.raises(QueueError, match="would not read as it should"):
        read_again(replace_limits(document, {LimitPlace(A, "max", "vcore"): "1, pods: 5"}))


@pytest.mark.parametrize("name", CORPUS)
def test_lossless_in_every_style(name: str) -> None:
    """Lend to the leaves, twice; take back in another order: the same bytes. In between nothing but
    the numbers that were reported has changed."""
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
    assert '"limits":{}' in ledger


def assert_only_numbers_differ(before: str, after: str, count: int) -> None:
    old, new = AMOUNT.findall(before), AMOUNT.findall(after)
    assert AMOUNT.sub("#", before) == AMOUNT.sub("#", after)
    assert sum(a != b for a, b in zip(old, new, strict=True)) == count


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 30
    assert sum("\r\n" in text for text in CORPUS.values()) >= 2
    assert sum(text.startswith("\ufeff") for text in CORPUS.values()) >= 2


def test_the_parser_in_python_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML may come without libyaml; its own parser only knows no tabs between tokens."""
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


def test_two_thousand_queues() -> None:
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


def large_document() -> str:
    """2,000 queues in 40 groups."""
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    queues:"]
    for group in range(40):
        lines += [
            f"    - name: group{group}   # its own budget",
            "      resources: {max: {vcore: 100k, memory: 400T}}",
            "      queues:",
        ]
        for team in range(49):
            lines += [
                f"      - name: team{team}",
                "        resources:",
                '          guaranteed: {vcore: "8", memory: 32G}',
                "          max:",
                "            vcore: 80",
                "            memory: 320G",
            ]
    return "\n".join(lines) + "\n"


def test_a_refused_document_is_reported_and_not_touched() -> None:
    invalid = change(TREE, "max: {vcore: 80, memory: 320G}", "max: {vcore: 8000, memory: 320G}")
    refused = edit(invalid, "", nodes_of(A, "n1"))
    assert "YuniKorn refuses the queue document as it stands, line 14" in refused.refusal
    assert refused.text == invalid and not refused.is_changed
