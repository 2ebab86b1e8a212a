"""Tests of the decisions of `dnm adopt` and `dnm forget`, by reports of Kubernetes and Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.lent import ClaimedNode, Phase
from dnm.model.node import Node
from dnm.model.registry import Registry
from dnm.verbs.adoption import adopt, forget
from dnm.verbs.refusal import Refusal
from tests.builders import MARK, NOW, QUEUE, a_batch_node, a_config, a_lent_node, a_node
from tests.verbs import sentence

CONFIG = a_config(exclude_nodes=frozenset({"a009"}))
CLAIMED = ClaimedNode(node_type="a", namespace="dev")
REGISTRY = Registry(nodes={"a002": a_lent_node()}, claimed={"a001": CLAIMED, "a003": CLAIMED})
FOREIGN = replace(MARK, instance="other")
OUT = a_batch_node(in_service=False)


def adopted(
    name: str = "a001",
    namespace: str = "dev",
    node: Node | None = None,
    row: Any = OUT,
    **changes: Any,
) -> Registry | Refusal:
    batch = {name: row} if isinstance(row, BatchNode) else {}
    config = replace(CONFIG, **changes)
    return adopt(config, REGISTRY, name, namespace, NOW, node, batch)


BARE = a_node(mark=None)
NOT_ADOPTED: dict[str, tuple[dict[str, Any], str]] = {
    "namespace": ({"namespace": "x"}, "namespace 'x' is not monitored; monitored: dev"),
    "type": ({"name": "x1"}, "'x1' is not of a type that is lent to dev; its types: a"),
    "recorded": ({"name": "a002"}, "a002 is recorded already: serving"),
    "excluded": ({"name": "a009"}, "a009 is excluded from lending: exclude_nodes names it"),
    "no node": ({}, "Kubernetes has no Node a001; adopt it after its kubelet has joined"),
    "another's": (
        {"node": a_node(mark=FOREIGN)},
        "a001 has the mark of instance other, which manages it; remove the dynamic-node-manager/ "
        "annotations from the Node if that is wrong",
    ),
    "not in Slurm": (
        {"node": BARE, "row": None},
        "Slurm does not report whether a001 is in service: dnm cannot return it",
    ),
    "Slurm can't say": (
        {"node": BARE, "row": a_batch_node(in_service=None)},
        "Slurm does not report whether a001 is in service: dnm cannot return it",
    ),
    "in service": (
        {"node": BARE, "row": a_batch_node()},
        "a001 is in service in Slurm (IDLE): both systems would use it; drain it in Slurm first, "
        "or delete the Node",
    ),
    "another's claim": (
        {"node": BARE, "row": replace(OUT, claim=BatchClaim(instance="other"))},
        "instance other has claimed a001 in Slurm",
    ),
    "a converter is at work": (
        {"node": BARE, "row": replace(OUT, claim=BatchClaim(instance="", is_at_work=True))},
        "a converter is at work on a001: wait for its end",
    ),
    "of a partition that is kept out": (
        {
            "node": BARE,
            "row": replace(OUT, partitions=("batch",)),
            "exclude_partitions": ("batch",),
        },
        "a001 is excluded from lending: exclude_nodes names partition batch",
    ),
}


@pytest.mark.parametrize(("words", "why"), NOT_ADOPTED.values(), ids=NOT_ADOPTED)
def test_invalid_adoption_is_refused(words: dict[str, Any], why: str) -> None:
    assert sentence(adopted(**words)) == why


@pytest.mark.parametrize(
    ("node", "row"),
    [
        pytest.param(BARE, OUT, id="bare"),
        pytest.param(a_node(), OUT, id="marked-by-us"),
        pytest.param(BARE, replace(OUT, claim=BatchClaim(instance="prod")), id="claimed-by-us"),
        pytest.param(BARE, replace(OUT, claim=BatchClaim(instance="")), id="unclaimed"),
    ],
)
def test_manually_converted_node_is_recorded_as_joining(node: Node, row: BatchNode) -> None:
    answer = adopted(node=node, row=row)
    assert isinstance(answer, Registry)
    assert answer.nodes == {
        **REGISTRY.nodes,
        "a001": a_lent_node(Phase.JOINING, since=NOW, queue=QUEUE),
    }
    assert answer.claimed == {"a003": CLAIMED}


@pytest.mark.parametrize("name", ["a002", "a003"])
@pytest.mark.parametrize(
    "node", [None, a_node(mark=None), a_node(mark=FOREIGN)], ids=["gone", "bare", "another's"]
)
def test_node_without_the_mark_of_dnm_is_forgotten(name: str, node: Node | None) -> None:
    answer = forget(CONFIG, REGISTRY, name, node)
    assert isinstance(answer, Registry)
    assert {*answer.nodes, *answer.claimed} == {"a001", "a002", "a003"} - {name}


NOT_FORGOTTEN: dict[str, tuple[str, Node | None, str]] = {
    "unknown": ("a099", None, "'a099' is not a lent node; lent nodes: a002"),
    "still there": (
        "a002",
        a_node("a002"),
        "a002 is still in Kubernetes with dnm's mark: the next run would record it again; return "
        f"it with `{CONFIG.node_convert_path} --set batch --node-name a002`; if Slurm has it "
        "already, `kubectl delete node a002`; then forget it",
    ),
}


@pytest.mark.parametrize(("name", "node", "why"), NOT_FORGOTTEN.values(), ids=NOT_FORGOTTEN)
def test_node_that_dnm_may_still_have_is_not_forgotten(
    name: str, node: Node | None, why: str
) -> None:
    assert sentence(forget(CONFIG, REGISTRY, name, node)) == why
