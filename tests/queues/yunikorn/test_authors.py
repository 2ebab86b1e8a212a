"""Tests of the table that decides which ledger describes the limits, with a case for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from dnm.model.cluster import FieldOwner
from dnm.model.errors import QueueError
from dnm.model.queue_edit import QueueWants
from dnm.model.value import Resources
from dnm.queues.yunikorn.authors import CHECKS, TABLE, Authorship, Named, choose_ledger, find_row
from dnm.queues.yunikorn.document import read_document
from dnm.queues.yunikorn.ledger import Ledger, Section, checksum, decode_ledger, encode_ledger
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document
from tests.queue_kit import (
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
    nodes_of,
)

_TEXT, _LEDGER = frozenset({"queues.yaml"}), frozenset({LEDGER_ANNOTATION})
DNM = FieldOwner(manager="dnm", operation="Update", keys=_TEXT, annotations=_LEDGER)
REPLACED = FieldOwner(manager="kubectl-replace", operation="Update", keys=_TEXT)
ANNOTATED = FieldOwner(manager="kubectl-annotate", operation="Update", annotations=_LEDGER)
APPLIED = FieldOwner(manager="kubectl", operation="Apply", keys=_TEXT)

FREE, M1 = nodes_of("root.free", "z1"), nodes_of(B, "m1")
FIRST = lend(TREE, ONE)
SECOND = edit(FIRST.text, FIRST.ledger, TWO, remembered=FIRST.record)
THEIRS = lend(TREE, M1, instance="q")
BESIDE = lend(TREE, FREE, instance="z")  # root.free has no limit
X = nodes_of("root.x", "n1", size={"vcore": 128_000})
COMMENT = "# a comment\n"


class Case(NamedTuple):
    """A ConfigMap, the ledger of the last run and the fields' owners. Expected: `asks` is part of
    dnm's question, `lent` has instance -> nodes in the chosen ledger."""

    text: str
    ledger: str
    remembered: str | None
    nodes: Mapping[str, Mapping[str, Resources]] = {}
    owners: tuple[FieldOwner, ...] = ()
    instance: str = "prod"
    asks: str = ""
    lent: Mapping[str, set[str]] = {}

    @property
    def facts(self) -> Authorship:
        source = resolve_document(config_map(self.text, self.ledger, owners=self.owners), None)
        wants = QueueWants(instance_id=self.instance, nodes=self.nodes, remembered=self.remembered)
        return Authorship(read_document(source), wants)


def changed(ledger: str | None, **fields: object) -> str:
    return encode_ledger(replace(decode_ledger(ledger or ""), **fields))


def older_state() -> Case:
    """The text equals an earlier one again, so the other instance used its outdated ledger."""
    other = nodes_of("root.x", "m1", size={"vcore": 128_000})
    made = lend(ONE_LIMIT, X)
    both = edit(made.text, made.ledger, other, instance="test")
    seen = edit(both.text, both.ledger, X, remembered=made.record)
    raised = change(both.text, "vcore: 336", "vcore: 464")
    removed = edit(raised, both.ledger, {}, instance="test", remembered=both.record)
    more = {"root.x": {**X["root.x"], "n2": {"vcore": 64_000}}}
    wrong = edit(removed.text, "", more, remembered=seen.record)
    asks = "it lacks nodes that the last run recorded"
    return Case(wrong.text, wrong.ledger, removed.record, instance="test", asks=asks)


def total_as_baseline() -> Case:
    killed = edit(FIRST.text, FIRST.ledger, {}, remembered=FIRST.record)
    other = edit(FIRST.text, "", FREE, instance="z")
    asks = "is 1128, which dnm itself wrote earlier"
    return Case(other.text, other.ledger, killed.record, asks=asks)


def other_baselines() -> Case:
    """An administrator answered that the limits contain no nodes, then restored the ledger."""
    text = checksum(FIRST.text)
    asks = "the last run recorded other baselines"
    return Case(FIRST.text, FIRST.ledger, encode_ledger(Ledger(text=text, origin=text)), asks=asks)


def lost_section() -> Case:
    """The ledger was lost, and another instance then took the limits for baselines."""
    other = edit(FIRST.text, "", M1, instance="q")
    return Case(other.text, other.ledger, FIRST.record, ONE, lent={"prod": {"n1"}, "q": {"m1"}})


def unclear_section() -> Case:
    """An administrator removed this instance's part of the ledger, but did not change limits."""
    asks = "the document differs from the one that the last run recorded"
    return Case(FIRST.text, changed(FIRST.ledger, sections={}), FIRST.record, ONE, asks=asks)


def changed_limits() -> Case:
    made = lend(ONE_LIMIT, X)
    text = change(made.text, "208", "300")
    other = Section(queues={"root.x": {"z1": {"vcore": 64_000}}})
    ledger = changed(made.ledger, sections={"z": other}, text=checksum(text))
    return Case(text, ledger, made.record, X, asks="root.x is 300, which fits neither")


def unwritten_section() -> Case:
    killed = edit(BESIDE.text, BESIDE.ledger, ONE)
    return Case(BESIDE.text, BESIDE.ledger, killed.record, ONE, lent={"z": {"z1"}})


def newer_ledger() -> Case:
    """Another instance has lent a node, then an administrator restored the older text."""
    other = edit(FIRST.text, FIRST.ledger, M1, instance="q")
    asks = "is 1128, which dnm itself wrote earlier"
    return Case(FIRST.text, other.ledger, FIRST.record, ONE, asks=asks)


def first_manifest() -> Case:
    """A manual edit changed the baseline; then the first manifest was applied again."""
    edited = change(SECOND.text, "max: {vcore: 336,", "max: {vcore: 300,")
    seen = edit(edited, SECOND.ledger, TWO, remembered=SECOND.record)
    return Case(TREE, "", seen.record, TWO)


def older_export() -> Case:
    idle = edit(FIRST.text, FIRST.ledger, {}, remembered=FIRST.record)
    return Case(FIRST.text, "", idle.record, asks="is 1128, which dnm itself wrote earlier")


def partial_manifest() -> Case:
    nodes = {**ONE, **M1}
    made = lend(TREE, nodes, adjust_guaranteed=False)
    text = change(TREE, "{vcore: 64, memory: 256G}", "{vcore: 192, memory: 512G}")
    owners, asks = (APPLIED,), "a manifest was applied while nodes are lent"
    return Case(text, made.ledger, made.record, nodes, owners, asks=asks)


EDITED = change(FIRST.text, "max: {vcore: 208,", "max: {vcore: 300,")
PROD = {"prod": {"n1"}}
CASES: dict[str, Case | Callable[[], Case]] = {
    "no record": Case(TREE, "", None, ONE, asks="no run has recorded the limits from before"),
    "two clients": Case(FIRST.text, FIRST.ledger, FIRST.record, ONE, (REPLACED, ANNOTATED),
        asks="different clients wrote the ledger and the limits"),
    "older state": older_state,
    "total as baseline": total_as_baseline,
    "same section": Case(FIRST.text, FIRST.ledger, FIRST.record, TWO, (DNM,), lent=PROD),
    "other baselines": other_baselines,
    "new section": Case(FIRST.text, FIRST.ledger, "", ONE, lent=PROD),
    "lost section": lost_section,
    "unclear section": unclear_section,
    "changed limits": changed_limits,
    "unwritten section": unwritten_section,
    "section of others": Case(THEIRS.text, "", THEIRS.record,
        asks="the next run of the lending instance may write it again"),
    "copy without ledger": Case(FIRST.text, "", FIRST.record, ONE, (REPLACED,),
        asks="is gone from the ConfigMap while nodes are lent"),
    "copy with ledger": Case(FIRST.text, SECOND.ledger, FIRST.record, ONE, (REPLACED,),
        asks="is not the one of this queue document while nodes are lent"),
    "newer ledger": newer_ledger,
    "lost ledger": Case(FIRST.text, "", FIRST.record, ONE, (DNM,), lent=PROD),
    "older ledger": Case(FIRST.text, SECOND.ledger, FIRST.record, ONE, (DNM,), lent=PROD),
    "first text": Case(TREE, "", FIRST.record, ONE, (DNM,)),
    "first manifest": first_manifest,
    "return by others": Case(COMMENT + TREE, "", THEIRS.record, {}, (DNM,)),
    "unrecorded write": Case(COMMENT + FIRST.text, "", FIRST.record, ONE, (DNM,),
        asks="the document differs from the one that the last run recorded"),
    "nothing lent": Case(TREE, "", "", ONE),
    "no raised limit": Case(COMMENT + TREE, "", BESIDE.record, FREE, (REPLACED,), instance="z"),
    "manifest": Case(COMMENT + TREE, "", FIRST.record, ONE),
    "new manifest": Case(change(TREE, "max: {vcore: 80,", "max: {vcore: 90,"), "", FIRST.record),
    "unclear limits": Case(EDITED, "", FIRST.record, asks="is 300, which fits neither"),
    "newer write": Case(EDITED, FIRST.ledger, FIRST.record, ONE, (DNM,),
        asks="the next run of another instance may write it again"),
    "foreign ledger": Case(EDITED, FIRST.ledger, FIRST.record, ONE, (REPLACED, ANNOTATED),
        asks="another client than dnm wrote it"),
    "recorded ledger": Case(EDITED, FIRST.ledger, FIRST.record, ONE, lent=PROD),
    "blank record": Case(EDITED, FIRST.ledger, "", ONE, lent=PROD),
    "unrecorded ledger": Case(EDITED, FIRST.ledger, SECOND.record, ONE,
        asks="it differs from the ledger that the last run recorded"),
    "older export": older_export,
    "partial manifest": partial_manifest,
}  # fmt: skip
ROWS = [row for part in (*TABLE.values(), CHECKS) for row in part]


@pytest.mark.parametrize("name", CASES)
def test_row_decides_its_case(name: str) -> None:
    case = CASES[name]
    case = case if isinstance(case, Case) else case()
    row = find_row(case.facts)
    assert row.name == name
    if case.asks:
        with pytest.raises(QueueError) as caught:
            choose_ledger(case.facts)
        assert case.asks in str(caught.value)
        return
    chosen = choose_ledger(case.facts)
    lent = {
        instance: {node for nodes in section.queues.values() for node in nodes}
        for instance, section in chosen.ledger.sections.items()
    }
    assert lent == case.lent
    assert bool(chosen.notes) is (name in ("lost section", "lost ledger", "older ledger"))


def test_every_row_has_a_case() -> None:
    assert [row.name for row in ROWS] == list(CASES)
    assert list(TABLE) == list(Named)


def test_table_decides_every_case() -> None:
    """The last row of each part of the table applies to any facts, so one row always decides."""
    for case in CASES.values():
        facts = case.facts if isinstance(case, Case) else case().facts
        assert all(part[-1].applies(facts) for part in TABLE.values())


def unclear_start() -> Case:
    case = lost_section()
    text = change(case.text, "max: {vcore: 208,", "max: {vcore: 300,")
    return case._replace(text=text, ledger=changed(case.ledger, text=checksum(text)))


def single_lender() -> Case:
    case = changed_limits()
    return case._replace(ledger=changed(case.ledger, sections={}))


HELD = edit(FIRST.text, FIRST.ledger, {}, floors={A: {"vcore": 150_000}})
BOTH = edit(FIRST.text, FIRST.ledger, M1, instance="q")
NEIGHBOURS: dict[str, tuple[Case | Callable[[], Case], str]] = {
    "two clients, but no moved limit": (Case(BESIDE.text, BESIDE.ledger, BESIDE.record, FREE,
        (REPLACED, ANNOTATED), "z"), "same section"),
    "a lost section, but a changed limit": (unclear_start, "unclear section"),
    "changed limits, but no other instance": (single_lender, "unwritten section"),
    "a record without a section, but of a held limit": (Case(HELD.text, "", HELD.record),
        "lost ledger"),
    "the first text, but written by dnm": (
        lambda: first_manifest()._replace(owners=(DNM,)), "unrecorded write"),
    "written by dnm, but the record has no checksum": (
        Case(EDITED, "", changed(FIRST.record, text=""), ONE, (DNM,)), "unclear limits"),
    "written by others, but the nodes raise limits": (
        Case(EDITED, "", FIRST.record, ONE, (REPLACED,)), "unclear limits"),
    "no raised limit, but an unknown writer": (
        Case(COMMENT + TREE, "", BESIDE.record, FREE, (), "z"), "unclear limits"),
    "a new manifest, but two lenders": (
        Case(change(TREE, "max: {vcore: 80,", "max: {vcore: 90,"), "", BOTH.record),
        "unclear limits"),
    "written by dnm, but the ledger has no checksum": (
        Case(EDITED, changed(FIRST.ledger, text=""), changed(FIRST.ledger, text=""), ONE, (DNM,)),
        "recorded ledger"),
    "part of a manifest, but not applied": (
        lambda: partial_manifest()._replace(owners=()), "recorded ledger"),
    "an applied manifest, but all of it": (
        Case(TREE, FIRST.ledger, FIRST.record, ONE, (APPLIED,)), "recorded ledger"),
}  # fmt: skip


@pytest.mark.parametrize(("case", "name"), NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_another_row_decides_if_a_single_fact_differs(
    case: Case | Callable[[], Case], name: str
) -> None:
    assert find_row((case if isinstance(case, Case) else case()).facts).name == name


IDLE = Case(COMMENT + FIRST.text, FIRST.ledger, "", instance="q")
OTHER_INSTANCE = {
    "nothing recorded": (IDLE, True),
    "the same ledger is recorded": (IDLE._replace(remembered=FIRST.record), True),
    "the text is recorded": (
        IDLE._replace(remembered=changed(SECOND.ledger, text=checksum(IDLE.text))), True),
    "another ledger is recorded": (IDLE._replace(remembered=SECOND.record), False),
    "the text is recorded, the ledger is lost": (
        IDLE._replace(ledger="", remembered=changed(SECOND.ledger, text=checksum(IDLE.text))),
        False),
    "the ledger names the text": (IDLE._replace(text=FIRST.text), False),
    "this instance lends": (IDLE._replace(nodes=M1), False),
    "this instance has lent": (IDLE._replace(instance="prod"), False),
    "no instance lends": (IDLE._replace(ledger=""), False),
}  # fmt: skip


@pytest.mark.parametrize(("case", "belongs"), OTHER_INSTANCE.values(), ids=OTHER_INSTANCE)
def test_edited_text_belongs_to_the_only_lending_instance(case: Case, belongs: bool) -> None:
    assert case.facts.belongs_to_other_instance is belongs
