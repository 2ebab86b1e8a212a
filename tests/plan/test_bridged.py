"""Tests of dnm beside slurm-bridge: dnm lends no machine that slurm-bridge would taint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dnm.model.batch import BatchClaim
from dnm.model.lent import Phase
from dnm.model.node_type import Taint
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Verdict
from dnm.plan.bridged import bare_types, bridge_bounds, managed_nodes
from tests.builders import FENCED, NOW, QUEUE, a_batch_node, a_config, a_node, facts
from tests.plan.worlds import LONG_AGO, World, serving, wanting

MANAGED = Taint(key="slinky.slurm.net/managed-node", effect="NoExecute", value="slurm-bridge")
MAPPED = {"slinky.slurm.net/slurm-nodename": "b9"}


def bridged(name: str, **changes: Any) -> Any:
    return a_node(name, **{"mark": None, "labels": {}, "taints": (MANAGED,), **changes})


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(bridged("b1"), ("b1",), id="of-one-name"),
        pytest.param(bridged("b1", taints=()), (), id="not-tainted"),
        pytest.param(bridged("k7"), (), id="of-another-Slurm"),
        pytest.param(bridged("k7", labels=MAPPED), ("k7",), id="by-its-label"),
        pytest.param(bridged("b1", labels={**MAPPED}), ("b1",), id="the-label-precedes"),
        pytest.param(
            bridged("b1", taints=(Taint(key="x", effect="NoExecute"),)), (), id="another-taint"
        ),
    ],
)
def test_nodes_managed_by_slurm_bridge_are_recognized_by_label_and_taint(
    node: Any, expected: tuple[str, ...]
) -> None:
    batch = {name: a_batch_node(name) for name in ("b1", "b9")}
    assert managed_nodes((node,), batch) == expected


def test_bridge_label_that_names_no_slurm_node_is_ignored() -> None:
    other = {"slinky.slurm.net/slurm-nodename": "elsewhere"}
    assert managed_nodes((bridged("b1", labels=other),), {"b1": a_batch_node("b1")}) == ()


@pytest.mark.parametrize(
    ("nodes", "verdict", "expected"),
    [
        pytest.param((), "OK", {"a": "a050"}, id="a-machine-that-is-no-Node"),
        pytest.param((), "PREEMPT", {"a": "a050"}, id="with-a-job-that-may-be-preempted"),
        pytest.param((), "SKIP", {}, id="none-can-be-lent"),
        pytest.param(("a050",), "OK", {}, id="a-Node-already"),
    ],
)
def test_types_with_bare_machines_would_lose_pods_to_the_bridge(
    nodes: tuple[str, ...], verdict: str, expected: dict[str, str]
) -> None:
    batch = {"a050": a_batch_node("a050", verdict=verdict), "x1": a_batch_node("x1")}
    recorded = {name: a_node(name) for name in nodes}
    assert bare_types(a_config(), Registry(), recorded, batch) == expected


def test_cluster_without_slurm_bridge_has_no_bridge_bound() -> None:
    recorded = facts(batch=[a_batch_node("a050")])
    assert list(bridge_bounds(a_config(), Registry(), recorded)) == []


def test_bare_machine_is_not_lent_beside_slurm_bridge() -> None:
    world = wanting()
    world.nodes.append(bridged("b1"))
    world.batch = {**world.batch, "b1": a_batch_node("b1", verdict="SKIP")}
    conversions = world.converted()
    verdict = conversions.verdicts[QUEUE]
    assert (conversions.requests, verdict.verdict, verdict.reason) == (
        (), Verdict.WAIT, Reason.BRIDGE_EVICTS,
    )  # fmt: skip
    assert "b1" in verdict.detail


def interrupted(is_bridged: bool) -> World:
    world = wanting()
    world.nodes += [bridged("b1")] if is_bridged else []
    claim = BatchClaim(instance="prod", direction="k8s", namespace="dev", node_type="a")
    world.batch = {
        "b1": a_batch_node("b1", verdict="SKIP", reports_claim=True),
        "a050": a_batch_node(
            "a050", in_service=False, claim=claim, reports_claim=True, verdict="SKIP"
        ),
    }
    return world


@pytest.mark.parametrize(("is_bridged", "asked"), [(False, ["a050"]), (True, [])])
def test_interrupted_lend_is_not_continued_beside_slurm_bridge(
    is_bridged: bool, asked: list[str]
) -> None:
    assert [request.node for request in interrupted(is_bridged).converted().requests] == asked


def test_leaving_node_with_bridge_taint_keeps_leaving() -> None:
    """slurm-bridge's taint evicts the node's pods, so dnm need not act to empty the node."""
    world = serving(leaves="overdue", was_used=True)
    world.nodes[-1] = a_node(taints=(MANAGED,), is_cordoned=True, mark=FENCED)
    after = world.advanced()
    assert after.registry.nodes["a001"].phase is Phase.SERVING and not after.errors
    assert after.nodes["a001"].wants_release


def test_machines_that_are_nodes_already_are_lent_beside_slurm_bridge() -> None:
    world = wanting()
    for name in world.batch:
        world.nodes.append(bridged(name))
    assert world.converted().requests


def test_tainted_node_serves_no_queue_until_the_taint_is_removed() -> None:
    world = serving(idle_since=LONG_AGO)
    at = next(place for place, node in enumerate(world.nodes) if node.name == "a001")
    clean = world.nodes[at]
    world.nodes[at] = a_node(taints=(MANAGED,))
    plan = world.plan()
    (verdict,) = plan.nodes
    assert (verdict.verdict, verdict.reason) == (Verdict.FAILED, Reason.EVICTS)
    assert "slinky.slurm.net/managed-node=slurm-bridge:NoExecute" in verdict.detail
    assert plan.registry.nodes["a001"].phase is Phase.FAILED
    assert any("a001 carries the taint" in error for error in plan.errors)
    world.registry = plan.registry
    assert world.plan().registry.nodes["a001"].phase is Phase.FAILED
    world.nodes[at] = clean
    world.batch = {**world.batch, "a001": a_batch_node(in_service=False)}
    assert world.plan().registry.nodes["a001"].phase is Phase.SERVING


@pytest.mark.parametrize(("minutes", "phase"), [(1, Phase.JOINING), (60 * 24, Phase.FAILED)])
def test_node_with_bridge_taint_does_not_join(minutes: int, phase: Phase) -> None:
    since = NOW - timedelta(minutes=minutes)
    world = World().lent("a001", Phase.JOINING, since=since).node("a001", taints=(MANAGED,))
    after = world.plan().registry.nodes["a001"]
    assert after.phase is phase
    assert ("carries the taint" in after.error) is (phase is Phase.FAILED)


LABELLED = {"scheduler.slinky.slurm.net/external-node": ""}


@pytest.mark.parametrize("label", ["external-node", "slurm-bridge-external-node"])
def test_bridge_label_assigns_an_unlent_node_to_slurm(label: str) -> None:
    """The label gives a Node without dnm's mark to Slurm; a lent Node keeps its mark and stays."""
    labels = {f"scheduler.slinky.slurm.net/{label}": ""}
    assert bridged("a050", labels=labels).is_with_batch
    assert not a_node(labels=labels).is_with_batch
    world = wanting()
    for name in world.batch:
        world.nodes.append(bridged(name, labels=labels))
    assert world.converted().requests


def test_bridge_nodes_alone_show_that_slurm_bridge_is_active() -> None:
    """Nodes of slurm-bridge give pods nothing, but show that it would taint a bare machine."""
    world = wanting()
    world.nodes.append(bridged("b1", labels=LABELLED))
    world.batch = {**world.batch, "b1": a_batch_node("b1", verdict="SKIP")}
    conversions = world.converted()
    assert (conversions.requests, conversions.verdicts[QUEUE].reason) == ((), Reason.BRIDGE_EVICTS)
