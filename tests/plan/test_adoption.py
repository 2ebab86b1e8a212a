"""Nodes that carry our mark and are not recorded: a registry that was lost."""

from __future__ import annotations

import pytest

from dnm.model.cluster import Mark
from dnm.model.registry import Phase
from dnm.plan.adoption import adopt_marked_nodes
from tests.builders import MARK, NOW, QUEUE, a_config, a_node, facts


def test_a_marked_node_is_ours_whatever_the_registry_says() -> None:
    found = adopt_marked_nodes(a_config(), (), facts([a_node()]))
    entry = found.nodes["a001"]
    assert (entry.phase, entry.queue, entry.since, entry.owner) == (
        Phase.JOINING,
        QUEUE,
        NOW,
        "prod",
    )
    assert found.notes == ("node=a001 carries our mark and is recorded again",)


def test_a_mark_without_a_queue_stands_for_its_namespace_s() -> None:
    mark = Mark(instance="prod", node_type="a", namespace="dev", queue="")
    found = adopt_marked_nodes(a_config(), (), facts([a_node(mark=mark)]))
    assert found.nodes["a001"].queue == QUEUE


@pytest.mark.parametrize(
    ("mark", "recorded"),
    [
        pytest.param(None, (), id="no-mark"),
        pytest.param(MARK, ("a001",), id="recorded"),
        pytest.param(
            Mark(instance="validation", node_type="a", namespace="dev", queue=QUEUE),
            (),
            id="another-instance's",
        ),
    ],
)
def test_other_nodes_are_not(mark: Mark | None, recorded: tuple[str, ...]) -> None:
    found = adopt_marked_nodes(a_config(), recorded, facts([a_node(mark=mark)]))
    assert (found.nodes, found.notes, found.errors) == ({}, (), ())


def test_a_mark_for_a_namespace_that_is_not_monitored_is_said() -> None:
    mark = Mark(instance="prod", node_type="a", namespace="gone", queue=QUEUE)
    found = adopt_marked_nodes(a_config(), (), facts([a_node(mark=mark)]))
    assert not found.nodes and "'gone', which is not monitored" in found.errors[0]
