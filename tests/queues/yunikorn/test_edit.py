"""Tests of the document that dnm writes next: paths of queues, several instances, sizes."""

from __future__ import annotations

import pytest

from dnm.model.cluster import ConfigMap
from dnm.model.value import Resources
from dnm.model.verdict import limits_objection
from dnm.queues.yunikorn.document import read_document
from dnm.queues.yunikorn.edit import (
    compute_edit,
    edit_document,
    edit_source,
    shrink_refusal,
)
from dnm.queues.yunikorn.source import ANNOTATIONS_LIMIT, DATA_LIMIT, resolve_document
from dnm.queues.yunikorn.tree import parse_tree
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
    limit,
    nodes_of,
    notes_of,
    read,
    source,
    wants,
)


def test_ancestors_grow_by_the_same_amount_except_root() -> None:
    made = lend(TREE, ONE)
    assert [
        (item.queue, item.kind, item.resource, item.before, item.after) for item in made.changes
    ] == [
        ("root.science", "guaranteed", "memory", "100G", "356G"),
        ("root.science", "guaranteed", "vcore", "40", "168"),
        ("root.science", "max", "memory", "4T", "4256G"),
        ("root.science", "max", "vcore", "1000", "1128"),
        (A, "guaranteed", "memory", "32G", "288G"),
        (A, "guaranteed", "vcore", "8", "136"),
        (A, "max", "memory", "320G", "576G"),
        (A, "max", "vcore", "80", "208"),
    ]
    numbers = made.numbers[A]
    assert numbers.limit == {"vcore": 208_000, "memory": 576 * 10**9}
    assert numbers.baseline == {"vcore": 80_000, "memory": 320 * 10**9}
    assert numbers.lent == NODE
    assert made.numbers["root.science"].lent == NODE
    assert made.numbers[B].lent == {} and made.numbers[B].limit == made.numbers[B].baseline


def test_guaranteed_is_unchanged_without_adjust_guaranteed() -> None:
    made = lend(TREE, ONE, adjust_guaranteed=False)
    assert {item.kind for item in made.changes} == {"max"}
    switched = edit(made.text, made.ledger, ONE)
    assert limit(switched, A, kind="guaranteed") == "136"
    off_again = edit(switched.text, switched.ledger, ONE, adjust_guaranteed=False)
    assert off_again.text == made.text


def test_absent_limit_stays_absent() -> None:
    made = lend(TREE, nodes_of("root.free", "n1"))
    assert made.text == TREE and made.is_changed
    assert made.numbers["root.free"].limit == {}
    assert edit(made.text, made.ledger, {}).text == TREE


def test_unconfigured_queue_grows_its_ancestors_only() -> None:
    made = lend(TREE, nodes_of("root.science.dynamic", "n1"))
    assert {item.queue for item in made.changes} == {"root.science"}
    assert "is not in the queue document" in made.held["root.science.dynamic"]


def test_two_instances_share_a_queue_document() -> None:
    first = lend(TREE, ONE)
    both = edit(first.text, first.ledger, nodes_of(A, "m1", "m2"), instance="test")
    assert limit(both, A) == "464" and limit(both, "root.science") == "1384"
    assert both.numbers[A].lent["vcore"] == 256_000
    assert not edit(both.text, both.ledger, ONE).is_changed
    second = edit(both.text, both.ledger, {})
    assert limit(second, A) == "336"
    assert edit(second.text, second.ledger, {}, instance="test").text == TREE


def test_instance_without_lent_nodes_writes_no_ledger() -> None:
    made = lend(TREE, ONE)
    assert not edit(made.text, made.ledger, {}, instance="test").is_changed
    assert not edit(TREE, "", {}).is_changed


def test_full_annotation_blocks_growth_but_not_shrinking() -> None:
    many: dict[str, Resources] = {
        f"node-with-a-long-name-{number:05}": {"vcore": number + 1} for number in range(4500)
    }
    made = lend(TREE, {A: many})
    assert len(made.ledger) < ANNOTATIONS_LIMIT
    more: dict[str, Resources] = {f"another-{number:05}": {"vcore": 5} for number in range(4500)}
    full = edit(made.text, made.ledger, {A: {**many, **more}})
    assert "Kubernetes allows 262144: no more nodes are counted" in full.blocked[A]
    assert not full.is_changed
    crowded = resolve_document(
        config_map(
            made.text,
            annotations={
                **source(made.text, made.ledger).config_map.annotations,  # type: ignore[union-attr]
                "kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000,
            },
        ),
        None,
    )
    assert edit_source(crowded, wants({A: {**many, **nodes_of(A, "n1")[A]}})).blocked
    fewer = {name: many[name] for name in list(many)[:-1]}
    assert not edit_source(crowded, wants({A: fewer})).blocked
    swapped = edit_source(crowded, wants({A: {**fewer, **nodes_of(A, "n1")[A]}}))
    assert swapped.blocked and swapped.is_changed  # the limit of a returned node still shrinks


def test_document_larger_than_a_config_map_is_refused() -> None:
    text = TREE + "# " + "x" * (1024 * 1024 - len(TREE) - 3) + "\n"
    text = change(text, "max: {vcore: 80,", "max: {vcore: 8000m,")
    made = edit(text, "", nodes_of(A, "n1"))
    assert "Kubernetes allows 1048576" in made.blocked[A] and not made.is_changed


# --- foreseen, planned, written -------------------------------------------------------------------


def test_planned_edit_is_reused_on_the_same_document_version() -> None:
    planned = lend(TREE, ONE)
    assert edit_source(source(TREE), wants(ONE), planned) is planned


EDITED = change(TREE, "max: {vcore: 80,", "max: {vcore: 90,")
OTHER_STATES = {
    "another writer's": config_map(EDITED, resource_version="2"),
    "another ConfigMap": config_map(TREE, name="other"),
    "another namespace": config_map(TREE, namespace="other"),
    "an unknown resourceVersion": config_map(TREE, resource_version=""),
}


@pytest.mark.parametrize("state", OTHER_STATES.values(), ids=OTHER_STATES)
def test_edit_is_planned_again_on_a_changed_document(state: ConfigMap) -> None:
    """If another client has changed the document, dnm edits the new text and keeps the change."""
    planned = lend(TREE, ONE)
    source_document = resolve_document(state, None)
    again = edit_source(source_document, wants(ONE, remembered=""), planned)
    assert again is not planned and again.planned_on != planned.planned_on
    assert limit(again, A) == ("218" if source_document.text == EDITED else "208")
    assert (again.planned_on is None) == (not state.resource_version)
    if not state.resource_version:  # two unknown versions are not equal
        assert edit_source(source_document, wants(ONE, remembered=""), again) is not again


def test_projected_edit_is_used_only_for_the_same_nodes() -> None:
    document = read(TREE)
    projected = compute_edit(document, wants(ONE, remembered=""))
    same = edit_document(document, wants(ONE, remembered=""), projected)
    more = edit_document(document, wants(TWO, remembered=""), projected)
    assert (limit(same, A), limit(more, A)) == ("208", "336")
    assert projected.edit.limits == document.limits
    assert same.limits == parse_tree(same.text).queues


def test_limit_below_the_lent_amount_is_fixed_before_and_after_an_edit() -> None:
    made = lend(TREE, ONE)
    text = change(made.text, "max: {vcore: 208,", "max: {vcore: 9,")
    document = read(change(text, "guaranteed: {vcore: 136,", "guaranteed: {vcore: 9,"), made.ledger)
    projected = compute_edit(document, wants(TWO))
    limits = {path: limits.fixed for path, limits in projected.edit.limits.items() if limits.fixed}
    assert limits == {A: {"vcore"}}
    after = edit_document(document, wants(TWO), projected)
    assert after.limits[A].fixed == {"vcore"} and after.limits[A].max["vcore"] == 9000
    assert after.limits["root.science"].fixed == frozenset()


def test_guarantee_below_the_lent_amount_does_not_fix_the_max() -> None:
    made = lend(TREE, TWO)
    text = change(made.text, "guaranteed: {vcore: 264,", "guaranteed: {vcore: 9,")
    again = edit(text, made.ledger, TWO)
    assert "guaranteed vcore was set to 9" in again.held[A] and not again.limits[A].fixed
    assert notes_of(again) == ()  # `held` reports it


def test_full_ledger_may_shrink_but_an_invalid_document_may_not() -> None:
    noise = "x" * (ANNOTATIONS_LIMIT - 600)
    crowded = resolve_document(config_map(TREE, annotations={"note": noise}), None)
    many = {A: nodes_of(A, *(f"node{number:04}" for number in range(60)))[A]}
    asked = wants(many, remembered="")
    projected = compute_edit(read_document(crowded), asked)
    assert "Kubernetes allows" in projected.edit.blocked[A]
    assert shrink_refusal(read_document(crowded), projected) is None
    invalid = read(change(TREE, "max: {vcore: 80,", "max: {vcore: 8000,"))
    refused = compute_edit(invalid, asked)
    assert shrink_refusal(invalid, refused) == limits_objection(refused.edit.refusal) is not None


def test_instance_without_lent_nodes_keeps_its_recorded_baselines() -> None:
    made = lend(TREE, ONE)
    back = edit(made.text, made.ledger, {})
    assert not edit(back.text, back.ledger, {}, adjust_guaranteed=False).is_changed


def test_limit_that_could_not_grow_is_recognized_by_the_next_run() -> None:
    """An ancestor's limit of zero closes the queue: its limit stays at the baseline."""
    closed = change(TREE, "max: {vcore: 1000, memory: 4T}", "max: {vcore: 0, memory: 4T}")
    closed = change(closed, "guaranteed: {vcore: 40, memory: 100G}", "guaranteed: {memory: 100G}")
    closed = change(closed, "max: {vcore: 80, memory: 320G}", "max: {vcore: 0, memory: 320G}")
    closed = change(closed, "guaranteed: {vcore: 8, memory: 32G}", "guaranteed: {memory: 32G}")
    closed = change(closed, "max: {vcore: 64, memory: 256G}", "max: {vcore: 0, memory: 256G}")
    made = lend(closed, ONE)
    again = edit(made.text, made.ledger, ONE)
    assert not again.refusal and not again.is_changed and not notes_of(again)
    back = edit(made.text, made.ledger, {})
    assert back.text == closed


def test_oversized_config_map_may_still_shrink() -> None:
    made = lend(TREE, TWO)
    data = {"queues.yaml": made.text, "other": "x" * DATA_LIMIT}
    full = config_map("", made.ledger, data=data)
    less = edit_source(resolve_document(full, None), wants({}))
    assert not less.refusal and less.text == TREE
    more = edit_source(
        resolve_document(full, None), wants(nodes_of(A, *(f"n{n}" for n in range(1, 9))))
    )
    assert "Kubernetes allows" in more.blocked[A]


REASONS = {
    "a node serves": (TREE, "", ONE, "it now contains n1"),
    "a node was returned": (lend(TREE, TWO).text, lend(TREE, TWO).ledger, ONE,
                            "it no longer contains n2"),
    "one for another": (lend(TREE, ONE).text, lend(TREE, ONE).ledger,
                        nodes_of(A, "n2", size={**NODE, "vcore": 64_000}),
                        "it now contains n2; it no longer contains n1"),
    "another size": (lend(TREE, ONE).text, lend(TREE, ONE).ledger,
                     nodes_of(A, "n1", size={**NODE, "vcore": 64_000}),
                     "the size of n1 has changed"),
    "applied again": (TREE, lend(TREE, ONE).ledger, ONE,
                      "the queue document was applied again without lent nodes"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "ledger", "nodes", "why"), REASONS.values(), ids=REASONS)
def test_limit_change_has_its_own_reason(
    text: str, ledger: str, nodes: dict[str, dict[str, Resources]], why: str
) -> None:
    made = edit(text, ledger, nodes, remembered=ledger)
    assert made.changes and {item.why for item in made.changes if item.queue == A} == {why}


def test_postponed_shrink_has_its_own_reason() -> None:
    made = lend(TREE, ONE)
    held = edit(made.text, made.ledger, {}, floors={A: {"vcore": 150_000}}, remembered=made.record)
    later = edit(held.text, held.ledger, {}, remembered=held.record)
    assert {item.why for item in later.changes} == {"a postponed change is possible now"}
