"""Tests of parsing a page of Nodes: an unreadable Node affects no other one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dnm.kube.nodes import (
    MARK_PREFIX,
    MOST_LABELS,
    MOST_NAMES,
    MOST_TAINTS,
    read_node_body,
    read_node_page,
)
from dnm.model.quantity import QuantityError

READY = {
    "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True"}],
}
MARK = {"dynamic-node-manager/instance": "prod", "dynamic-node-manager/namespace": "dev"}


def a_node(name: str, **changes: Any) -> dict[str, Any]:
    metadata = {"name": name, "annotations": MARK, **changes.pop("metadata", {})}
    return {"metadata": metadata, "spec": {}, "status": READY, **changes}


MALFORMED: dict[str, dict[str, Any]] = {
    "an amount": {"status": {**READY, "allocatable": {"cpu": "four"}, "capacity": {"cpu": "8"}}},
    "an amount that is no text": {"status": {**READY, "allocatable": {"cpu": 4}}},
    "its allocatable": {"status": {**READY, "allocatable": [1]}},
    "its conditions": {"status": {**READY, "conditions": {}}},
    "its taints": {"spec": {"taints": [{"key": 5}]}},
    "its labels": {"metadata": {"labels": "x"}},
    "its status": {"status": "\x1b[2J"},
    "more than any offers": {
        "status": {**READY, "allocatable": {f"a{n}.io/x": "1" for n in range(MOST_NAMES + 1)}}
    },
    "more taints than any has": {
        "spec": {"taints": [{"key": f"k{n}", "effect": "NoSchedule"} for n in range(3000)]}
    },
}


@pytest.mark.parametrize("changes", MALFORMED.values(), ids=MALFORMED.keys())
def test_unreadable_node_leaves_the_other_nodes_readable(changes: dict[str, Any]) -> None:
    full = a_node("k2", status={**READY, "capacity": {"cpu": "8"}})
    items = [a_node("k1"), a_node("bad", **changes), full]
    nodes = read_node_page(json.dumps({"items": items}).encode(), has_capacity=True)
    assert [node.name for node in nodes] == ["k1", "bad", "k2"]
    good = [node for node in nodes if not node.unreadable]
    assert [(n.name, n.is_ready, n.allocatable["cpu"]) for n in good] == [
        ("k1", True, 4000), ("k2", True, 4000)
    ]  # fmt: skip
    assert [node.capacity for node in nodes] == [{}, {}, {"cpu": 8000}]
    bad = nodes[1]
    assert "bad" in bad.unreadable and bad.unreadable.isprintable()
    assert not bad.allocatable and not bad.is_ready
    assert bad.mark is not None and bad.mark.instance == "prod", "it counts under the caps"
    with pytest.raises((msgspec.ValidationError, QuantityError)):
        read_node_body(json.dumps({"kind": "Node", **items[1]}).encode(), "bad")


UNCLEAR = [MALFORMED[name] for name in
           ("an amount", "more than any offers", "more taints than any has")]  # fmt: skip


@pytest.mark.parametrize("changes", UNCLEAR)
def test_node_with_unreadable_status_keeps_its_cordon_and_version(
    changes: dict[str, Any],
) -> None:
    """dnm ignores the conditions in such a status, but uses the cordon and the version."""
    item = a_node("bad", **changes)
    item["metadata"] |= {"resourceVersion": "5", "annotations": MARK}
    item["spec"] = {**item["spec"], "unschedulable": True}
    faulty = [{"type": "gpu.example/Healthy", "status": "False"}, *READY["conditions"]]
    item["status"] = {**item["status"], "conditions": faulty}
    (node,) = read_node_page(json.dumps({"items": [item]}).encode())
    assert node.unreadable and not node.is_ready and not node.conditions
    assert node.is_cordoned and node.resource_version == "5" and len(node.taints) <= MOST_TAINTS


@pytest.mark.parametrize("item", [{}, {"metadata": {}}, {"metadata": {"name": 5}}, 7])
def test_node_without_a_name_makes_the_page_unreadable(item: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_node_page(json.dumps({"items": [a_node("k1"), item]}).encode())


def test_text_that_a_kubelet_writes_is_bounded() -> None:
    conditions = [{"type": f"S{number}", "status": "True"} for number in range(500)]
    notes = {f"{MARK_PREFIX}queue": "q" * 100_000}
    labels = {f"l{number}": "v" for number in range(MOST_LABELS + 1)}
    wide = a_node("k1", metadata={"labels": labels})
    long = a_node("k2", metadata={"annotations": notes}, status={"conditions": conditions})
    wide_node, long_node = read_node_page(json.dumps({"items": [wide, long]}).encode())
    assert not wide_node.is_ready and "of length <= 1000" in wide_node.unreadable
    assert not wide_node.labels and wide_node.mark is not None
    assert len(msgspec.json.encode(long_node)) < 5_000
