"""Tests of edits of random queue trees: valid, with the right limits, and exactly reversible."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping

import pytest

from dnm.model.cluster import QueueLimits
from dnm.model.value import Resources
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.ledger import decode_ledger
from dnm.queues.yunikorn.tree import check_rules, parse_tree
from tests.night import sample_by_day
from tests.queue_kit import edit
from tests.queue_trees import random_tree

TREES = int(os.environ.get("DNM_TREES", "125"))


@pytest.mark.parametrize("chunk", sample_by_day(12, range(12)))
def test_edits_of_random_trees_are_valid_and_reversible(chunk: int) -> None:
    """Two instances lend and return in any order. Each document is valid for YuniKorn, each limit
    is its baseline plus the lent amount, and the last text equals the first."""
    seed = int(os.environ.get("DNM_SEED", "20260901")) + chunk
    print(f"DNM_SEED={seed - chunk} chunk {chunk}")
    rng = random.Random(seed)
    for number in range(TREES):
        text = random_tree(rng)
        try:
            assert_no_trace(rng, text)
        except AssertionError:
            print(f"tree {number} of seed {seed}:\n{text}")
            raise


def assert_no_trace(rng: random.Random, text: str) -> None:
    baseline = parse_tree(text).queues
    paths = [path for path in baseline if path != "root"]
    steps: list[tuple[str, str, str, Resources]] = []
    for number in range(rng.choice((1, 2, 3))):
        size: Resources = {
            name: rng.choice((1, 110, 64_000, 10**9 + rng.randrange(10**6), 2**38))
            for name in rng.sample(("vcore", "memory", "pods", "nvidia.com/gpu"), rng.randint(1, 4))
        }
        steps.append((rng.choice(("p", "q")), rng.choice(paths), f"n{number}", size))
    lent: dict[str, dict[str, dict[str, Resources]]] = {"p": {}, "q": {}}
    now, ledger = text, ""
    for step in [*steps, *rng.sample(steps, len(steps))]:
        instance, queue, node, size = step
        nodes = lent[instance].setdefault(queue, {})
        if node in nodes:
            del nodes[node]
        else:
            nodes[node] = size
        made = edit(now, ledger, lent[instance], instance=instance)
        assert not made.refusal, made.refusal
        after = parse_tree(made.text)
        assert check_rules(after) == ()
        assert_limits(made, after.queues, baseline, lent)
        now, ledger = made.text, made.ledger
    assert now.encode() == text.encode()
    assert decode_ledger(ledger).entries == {}


def assert_limits(
    made: DocumentEdit,
    after: Mapping[str, QueueLimits],
    baseline: Mapping[str, QueueLimits],
    lent: Mapping[str, Mapping[str, Mapping[str, Resources]]],
) -> None:
    for path, queue in after.items():
        before = baseline[path].max
        for resource, amount in queue.max.items():
            added = sum(
                size.get(resource, 0)
                for queues in lent.values()
                for below, nodes in queues.items()
                for size in nodes.values()
                if below == path or below.startswith(f"{path}.")
            )
            if resource == "pods" and before.get(resource) == 0:
                assert amount == 0  # the queue is closed
            elif path not in made.held:
                assert amount == before.get(resource, 0) + added
