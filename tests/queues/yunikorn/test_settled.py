"""A document from which nothing is lent needs no comparison: the short way gives the same edit."""

from __future__ import annotations

import random

import msgspec
import pytest

from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.queues.yunikorn import edit as edits
from dnm.queues.yunikorn.document import read_document
from tests.queue_kit import TREE, change, source
from tests.queue_trees import random_tree

CLOSED = change(TREE, "{vcore: 80,", "{pods: 0, vcore: 80,")


def long_way(document: edits.QueueDocument, wants: QueueWants) -> QueueEdit:
    chosen = edits.choose_ledger(edits.Authorship(document, wants))
    baselines = edits.compare(document.tree, chosen.ledger, edits.is_applied(document.source))
    return edits.project_edit(document, chosen, baselines, wants).edit


@pytest.mark.parametrize("text", [TREE, CLOSED], ids=["limits", "a closed queue"])
def test_short_way_gives_the_edit_of_the_long_way(text: str) -> None:
    document = read_document(source(text))
    first = edits.compute_edit(document, QueueWants(instance_id="prod", remembered=None))
    wants = QueueWants(instance_id="prod", remembered=first.edit.noted)
    assert edits.is_settled(document, wants) is (text != CLOSED)
    assert edits.compute_edit(document, wants).edit == long_way(document, wants)


def test_short_way_gives_the_edit_of_the_long_way_for_random_trees() -> None:
    """The pods use twice the limits, so that a floor would hold each of them."""
    settled = 0
    for seed in range(60):
        document = read_document(source(random_tree(random.Random(seed))))
        first = edits.compute_edit(document, QueueWants(instance_id="prod", remembered=None))
        limits = document.limits.items()
        floors = {path: {n: 2 * amount for n, amount in q.max.items()} for path, q in limits}
        wants = QueueWants(instance_id="prod", remembered=first.edit.noted, floors=floors)
        settled += edits.is_settled(document, wants)
        assert edits.compute_edit(document, wants).edit == long_way(document, wants)
    assert settled > 30


@pytest.mark.parametrize(
    "changes",
    [
        {"remembered": None},
        {"remembered": ""},
        {"nodes": {"root.a": {"n1": {"vcore": 1}}}},
    ],
    ids=["first run", "nothing recorded", "a lent node"],
)
def test_long_way_is_taken_unless_the_last_run_recorded_this_text(
    changes: dict[str, object],
) -> None:
    document = read_document(source(TREE))
    first = edits.compute_edit(document, QueueWants(instance_id="prod", remembered=None))
    wants = QueueWants(instance_id="prod", remembered=first.edit.noted)
    assert edits.is_settled(document, wants)
    assert not edits.is_settled(document, msgspec.structs.replace(wants, **changes))
    other = read_document(source(TREE + "\n# edited\n"))
    assert not edits.is_settled(other, wants)
