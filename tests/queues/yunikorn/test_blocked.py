"""Tests of a limit with a spelling that dnm cannot rewrite: it blocks only its own queue."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest

from dnm.queues.yunikorn.edit import edit_source, why_no_growth
from dnm.queues.yunikorn.source import DATA_LIMIT, resolve_document
from tests.queue_kit import (
    NODE,
    ONE,
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
    read,
    wants,
)

ESCAPED = ("max: {vcore: 80, memory: 320G}", 'max: {vcore: "\\x38\\x30", memory: 320G}')
FOLDED = ("max: {vcore: 80, memory: 320G}", "max: {vcore: '80\n                   ', memory: 320G}")
ALIASED = ("max: {vcore: 64, memory: 256G}", "max: {vcore: &v 64, memory: 256G, pods: *v}")
HUGE = ("max: {vcore: 80, memory: 320G}", "max: {vcore: 80, memory: 9223372036854775807}")
BLOCKED = {
    "escaped": (ESCAPED, A, "line 14: max vcore of root.science.a is written with escapes"),
    "several lines": (FOLDED, A, "line 14: max vcore of root.science.a is written with escapes"),
    "alias": (ALIASED, B, "line 17: max vcore of root.science.b is used elsewhere by an alias"),
    "too large": (HUGE, A, "line 14: max memory of root.science.a would be 922337"),
}
OTHER = {A: nodes_of(B, "m1", "m2"), B: nodes_of(A, "m1", "m2")}


def written(case: str) -> tuple[str, str, str]:
    """Returns a document with a number that dnm cannot rewrite, its queue, and dnm's reason."""
    spelling, queue, why = BLOCKED[case]
    text = change(TREE, "              max: {vcore: 1000, memory: 4T}\n", "")
    text = change(text, "          - name: free\n", "          - name: free\n            #\n")
    return change(text, *spelling).replace("line", "line"), queue, why


def why_no_growth_of(text: str, queue: str) -> str:
    objection = why_no_growth(read(text), wants({}, remembered=""), queue, [NODE])
    assert objection is not None
    return objection.detail


@pytest.mark.parametrize("case", BLOCKED)
def test_unwritable_limit_is_detected_before_a_lend(case: str) -> None:
    text, queue, why = written(case)
    (line,) = (number for number, content in enumerate(text.splitlines(), 1) if "max: {" in content
               and BLOCKED[case][0][1].splitlines()[0] in content)  # fmt: skip
    reason = why_no_growth_of(text, queue)
    assert f"line {line}:" in reason and why.split(": ", 1)[1] in reason
    other = next(iter(OTHER[queue]))
    assert why_no_growth(read(text), wants({}, remembered=""), other, [NODE]) is None


def test_first_run_without_a_recorded_ledger_may_lend() -> None:
    assert why_no_growth(read(TREE), wants({}, remembered=None), A, [NODE]) is None


@pytest.mark.parametrize("case", BLOCKED)
def test_unwritable_limit_does_not_block_other_queues(case: str) -> None:
    text, queue, _ = written(case)
    (other,) = OTHER[queue]
    before = edit(text, "", OTHER[queue])
    nodes = {**nodes_of(queue, "n1"), **nodes_of(other, "m1")}
    made = edit(before.text, before.ledger, nodes)
    assert not made.refusal and queue in made.blocked and made.blocked[queue] in made.held[queue]
    assert "nodes are not counted" in made.blocked[queue]
    assert limit(made, other) == str(128 + int({A: 80, B: 64}[other]))  # one of two was returned
    assert "n1" not in made.ledger and "m1" in made.ledger
    back = edit(made.text, made.ledger, nodes_of(queue, "n1"))
    assert back.text == text and back.blocked


def test_limit_that_became_unwritable_keeps_its_value_until_repaired() -> None:
    """The limit keeps its value while nodes are returned and all other limits shrink. Once dnm can
    rewrite it, it shrinks too."""
    made = lend(TREE, {**TWO, **nodes_of(B, "m1")})
    text = change(made.text, "max: {vcore: 336,", 'max: {vcore: "33\\x36",')
    still = edit(text, made.ledger, {**TWO, **nodes_of(B, "m1")})
    assert still.text == text and not still.blocked
    third = edit(text, made.ledger, {**nodes_of(A, "n1", "n2", "n3"), **nodes_of(B, "m1")})
    assert (
        third.text == text and A in third.blocked and lent_in(third.ledger) == lent_in(still.ledger)
    )
    less = edit(text, made.ledger, ONE)
    assert not less.refusal
    assert "a limit can't be changed: line 14: max vcore" in less.blocked[A]
    assert limit(less, A) == "336" and limit(less, A, "memory") == "576G"
    assert limit(less, B) == "64" and limit(less, "root.science") == "1128"
    more = edit(less.text, less.ledger, {**TWO, **nodes_of(B, "m1")})
    assert limit(more, B) == "192"
    none = edit(less.text, less.ledger, {})
    assert limit(none, A) == "336" and limit(none, "root.science") == "1000" and none.blocked
    again = edit(none.text, none.ledger, {})
    assert not again.is_changed and again.blocked
    mended = change(none.text, 'max: {vcore: "33\\x36",', "max: {vcore: 336,")
    assert edit(mended, none.ledger, {}).text == TREE


def test_unwritable_ancestor_blocks_all_queues_below_it() -> None:
    text = change(TREE, "max: {vcore: 1000, memory: 4T}", 'max: {vcore: "1\\x3000", memory: 4T}')
    for queue in (A, B, "root.science"):
        reason = why_no_growth_of(text, queue)
        assert "line 9: max vcore of root.science is written with escapes" in reason
    assert why_no_growth(read(text), wants({}, remembered=""), "root.free", [NODE]) is None
    made = edit(text, "", {**ONE, **nodes_of("root.free", "m1")})
    assert "m1" in made.ledger and "n1" not in made.ledger and made.text == text


def test_overflow_check_counts_several_nodes_together() -> None:
    nearly = 2**63 - 1 - 3 * 110
    text = change(TREE, "max: {vcore: 64, memory: 256G}", f"max: {{pods: {nearly}}}")
    text = change(text, "max: {vcore: 1000, memory: 4T}", "max: {vcore: 1000}")
    asked = wants({}, remembered="")
    assert why_no_growth(read(text), asked, B, [NODE] * 3) is None
    assert "more than YuniKorn can count" in str(why_no_growth(read(text), asked, B, [NODE] * 4))


def test_unwritable_guarantee_blocks_only_if_it_must_change() -> None:
    text = change(TREE, "guaranteed: {vcore: 8,", 'guaranteed: {vcore: "\\x38",')
    asked = wants({}, remembered="")
    assert "guaranteed vcore of root.science.a" in str(why_no_growth(read(text), asked, A, [NODE]))
    stays = wants({}, remembered="", adjust_guaranteed=False)
    assert why_no_growth(read(text), stays, A, [NODE]) is None


def test_unwritable_limit_of_an_unneeded_resource_does_not_block() -> None:
    text = change(TREE, "max: {vcore: 80,", 'max: {"fpga": "\\x38", vcore: 80,')
    assert why_no_growth(read(text), wants({}, remembered=""), A, [NODE]) is None


# --- small ---------------------------------------------------------------------------------------

SPELLINGS = ["' 80 '", '" 80"', "80", "'80'", "|-\n                      80", "!!str 80"]


@pytest.mark.parametrize("before", SPELLINGS)
@pytest.mark.parametrize("after", ["' {} '", '"{}"', "{}", "'{} '", "|-\n                      {}"])
def test_limit_with_changed_spelling_shrinks_after_a_return(before: str, after: str) -> None:
    """After the lend, an administrator spelled the same number with quotes or as a block."""
    text = change(
        TREE, "max: {vcore: 80, memory: 320G}", f"max:\n                    vcore: {before}"
    )
    made = lend(text, ONE)
    (line,) = (text for text in made.text.splitlines() if "208" in text)
    head = f"max:\n                    vcore: {before}".replace("80", "208")
    assert head in made.text, (line, head)
    spelled = made.text.replace(head, f"max:\n                    vcore: {after.format('208')}")
    for nodes in (TWO, {}):
        back = edit(spelled, made.ledger, nodes)
        assert not back.refusal
        assert limit(back, A).strip() == ("336" if nodes else "80")
        assert not edit(back.text, back.ledger, nodes).is_changed


def test_binary_data_counts_against_the_config_map_size() -> None:
    text = change(TREE, "max: {vcore: 80,", "max: {vcore: 8000m,")
    noise = base64.b64encode(b"x" * (DATA_LIMIT - len(text) - 1)).decode()
    full = config_map("", data={"queues.yaml": text}, binary_data={"other": noise})
    made = edit_source(resolve_document(full, None), wants(ONE, remembered=""))
    assert "Kubernetes allows 1048576" in made.blocked[A] and not made.is_changed
    free = config_map("", data={"queues.yaml": text}, binary_data={"other": noise[:-100]})
    assert edit_source(resolve_document(free, None), wants(ONE, remembered="")).is_changed


def test_compressed_document_counts_with_its_compressed_size() -> None:
    packed = base64.b64encode(gzip.compress(TREE.encode(), mtime=0)).decode()
    noise = "x" * (DATA_LIMIT - len(base64.b64decode(packed)))
    full = config_map("", data={"other": noise}, binary_data={"queues.yaml.gz": packed})
    made = edit_source(resolve_document(full, None), wants(ONE, remembered=""))
    assert "Kubernetes allows 1048576; remove unneeded data" in made.blocked[A]


# --- a queue that is missing for a while ---------------------------------------------------------

A_ITSELF = """\
              - name: a
                resources:
                  guaranteed: {vcore: 8, memory: 32G}
                  max: {vcore: 80, memory: 320G}
"""


@pytest.mark.parametrize("nodes", [ONE, TWO, {}], ids=["as before", "one more", "all returned"])
@pytest.mark.parametrize("comes_back", ["with its baseline", "as it was written"])
def test_queue_missing_for_a_run_keeps_its_ledger_entry(
    nodes: dict[str, dict[str, dict[str, int]]], comes_back: str
) -> None:
    stays: dict[str, Any] = {
        "adjust_guaranteed": False
    }  # YuniKorn refuses a guarantee above the parent's
    made = lend(TREE, ONE, **stays)
    grown = made.text[made.text.index("              - name: a\n") :]
    grown = grown[: grown.index("              - name: b\n")]
    missing = edit(made.text.replace(grown, ""), made.ledger, nodes, **stays)
    assert not missing.refusal
    again = edit(missing.text, missing.ledger, nodes, **stays)
    assert not again.is_changed
    head = "              - name: b\n"
    back = A_ITSELF if comes_back == "with its baseline" else grown
    there = edit(change(missing.text, head, back + head), missing.ledger, nodes, **stays)
    expected = lend(TREE, nodes, **stays)
    if not nodes and comes_back == "as it was written":
        assert limit(there, A) == "208"  # with nothing lent, a manual number is the baseline
        return
    assert (there.text, lent_in(there.ledger)) == (expected.text, lent_in(expected.ledger))
    assert edit(there.text, there.ledger, {}, **stays).text == TREE


def test_removed_queue_without_limits_leaves_no_ledger_entry() -> None:
    made = lend(TREE, nodes_of("root.free", "n1"))
    removed = edit(change(TREE, "          - name: free\n", ""), made.ledger, {})
    assert removed.ledger == ""
