"""Tests of the fast path for documents without lent nodes: it gives the edit of the full path."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from dnm.model.queue_edit import QueueWants
from dnm.queues.yunikorn import edit as edits
from dnm.queues.yunikorn.authors import Authorship, choose_ledger, is_applied
from dnm.queues.yunikorn.document import QueueDocument, is_settled, read_document
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.limits import compare
from tests.queue_kit import TREE, change, source
from tests.queue_trees import random_tree

CLOSED = change(TREE, "{vcore: 80,", "{pods: 0, vcore: 80,")


def long_way(document: QueueDocument, wants: QueueWants) -> DocumentEdit:
    chosen = choose_ledger(Authorship(document, wants))
    baselines = compare(document.tree, chosen.ledger, is_applied(document.source))
    return edits.project_edit(document, chosen, baselines, wants).edit


@pytest.mark.parametrize("text", [TREE, CLOSED], ids=["limits", "a closed queue"])
def test_short_way_gives_the_edit_of_the_long_way(text: str) -> None:
    document = read_document(source(text))
    first = edits.compute_edit(document, QueueWants(instance_id="prod", remembered=None))
    wants = QueueWants(instance_id="prod", remembered=first.edit.record)
    assert is_settled(document, wants) is (text != CLOSED)
    assert edits.compute_edit(document, wants).edit == long_way(document, wants)


def test_short_way_gives_the_edit_of_the_long_way_for_random_trees() -> None:
    """Pods use twice the limits, so that the full path would keep limits from shrinking."""
    settled = 0
    for seed in range(60):
        document = read_document(source(random_tree(random.Random(seed))))
        first = edits.compute_edit(document, QueueWants(instance_id="prod", remembered=None))
        limits = document.limits.items()
        floors = {path: {n: 2 * amount for n, amount in q.max.items()} for path, q in limits}
        wants = QueueWants(instance_id="prod", remembered=first.edit.record, floors=floors)
        settled += is_settled(document, wants)
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
    changes: dict[str, Any],
) -> None:
    document = read_document(source(TREE))
    first = edits.compute_edit(document, QueueWants(instance_id="prod", remembered=None))
    wants = QueueWants(instance_id="prod", remembered=first.edit.record)
    assert is_settled(document, wants)
    assert not is_settled(document, msgspec.structs.replace(wants, **changes))
    other = read_document(source(TREE + "\n# edited\n"))
    assert not is_settled(other, wants)
