"""Tests of nodeset-convert on a model of slurm-operator in StatefulSet mode, and its pitfalls."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.converters.claimed import carry_over
from dnm.converters.journal import NodeResult
from dnm.converters.nodeset import (
    LOWEST_COST,
    NodeSet,
    SlurmdPod,
    scale_refusal,
    turn_refusal,
    wrong_pod_removal,
)
from dnm.converters.nodeset_replicas import SCALED
from tests.converters.played import NODE
from tests.converters.played import tmp_path as tmp_path
from tests.converters.stateful_world import KubeSide, StatefulWorld
from tests.converters.test_nodeset import Program, assert_batch, assert_lent

SOON = timedelta(seconds=0.3)  # a few checks, also on a busy machine


class StatefulProgram(Program):
    """The converter nodeset-convert, run on the model in StatefulSet mode."""

    world: StatefulWorld
    kube = KubeSide


def program(directory: Path, seed: int = 0, machines: int = 3, **settings: Any) -> StatefulProgram:
    return StatefulProgram(directory, StatefulWorld(seed, machines), **settings)


def assert_all_in_slurm(world: StatefulWorld) -> None:
    """Asserts that Slurm has every machine, and that the NodeSet is as before."""
    for name in world.machines:
        assert_batch(world, name)
    assert (world.replicas, world.waiting) == (len(world.machines), [])
    assert not any(machine.pod["cost"] for machine in world.machines.values() if machine.pod)


def test_last_replica_is_lent_and_returned(tmp_path: Path) -> None:
    made = program(tmp_path, machines=1)
    assert made.lend().result == "ok"
    assert_lent(made.world)
    assert made.world.replicas == 0
    assert made.bring_back().result == "ok"
    assert_all_in_slurm(made.world)
    assert not made.world.lost and not made.world.shared


def test_wrong_pod_is_kept_by_restoring_the_number(tmp_path: Path) -> None:
    """Another pod becomes not Ready as dnm lowers the number of pods, so that the operator would
    remove that one and its jobs."""
    made = program(tmp_path)
    world = made.world
    world.machines["a002"].jobs["77"] = 10**6

    class Late(KubeSide):
        def scale(self, node_set: NodeSet, replicas: int) -> None:
            super().scale(node_set, replicas)
            if replicas == 2:
                self.world.broken.add("a002")

    made.kube = Late
    node_result = made.lend()
    assert node_result.result == "skipped" and "slurm-operator ends pod" in node_result.error
    assert [name for name in world.log if name.startswith("scale")] == ["scale -1", "scale +1"]
    assert not world.lost and world.machines["a002"].jobs
    world.machines["a002"].jobs.clear()
    world.broken.clear()
    assert_all_in_slurm(world)


def test_concurrent_scale_down_is_kept(tmp_path: Path) -> None:
    """Another client has lowered the replicas, so dnm's write is refused and undoes nothing."""
    made = program(tmp_path, drain_timeout_seconds=SOON)
    world = made.world

    class Between(KubeSide):
        def scale(self, node_set: NodeSet, replicas: int) -> None:
            if world.replicas == 3:
                world.replicas, world.version, world.is_stuck = 2, world.version + 1, True
            super().scale(node_set, replicas)

    made.kube = Between
    node_result = made.lend()
    assert node_result.result != "ok" and "has 3 pods of 2" in node_result.error
    assert world.replicas == 2 and world.version == 2
    assert [name for name in world.log if name.startswith("scale")] == ["scale -1"]
    journal = made.store.load(NODE)
    assert journal is not None and not journal.is_open and not journal.facts[SCALED]


@pytest.mark.parametrize(
    ("scaler", "is_idle", "refusal"),
    [
        ("HorizontalPodAutoscaler busy", False, "are set by HorizontalPodAutoscaler busy too"),
        ("flux", False, "are set by flux too"),
        ("HorizontalPodAutoscaler h (ScalingDisabled)", True,
         "may be set by HorizontalPodAutoscaler h (ScalingDisabled) at any time"),
    ],
)  # fmt: skip
def test_reports_other_scalers(tmp_path: Path, scaler: str, is_idle: bool, refusal: str) -> None:
    made = program(tmp_path)
    setattr(made.world, "idle_scalers" if is_idle else "scalers", (scaler,))
    node_result = made.lend()
    assert node_result.result == "skipped"
    assert f"replicas of NodeSet slurm/b {refusal}" in node_result.error
    assert "reserve" not in made.world.log


def test_refuses_to_scale_with_a_spare_node(tmp_path: Path) -> None:
    made = program(tmp_path, drain_timeout_seconds=SOON)
    made.world.replicas = 2
    made.world.step()
    for _ in range(4):
        made.world.step()
    removed = next(machine.name for machine in made.world.machines.values() if not machine.pod)
    name = next(machine.name for machine in made.world.machines.values() if machine.pod)
    node_result = made.lend(name)
    assert (
        node_result.result == "failed"
        and f"has no slurmd on {removed}, which it" in node_result.error
    )
    assert made.world.replicas == 2 and not made.world.machines[name].pod["cost"]  # type: ignore[index]


def assert_untouched(made: StatefulProgram, found: NodeResult) -> None:
    """Asserts that the lend changed nothing, and that giving up did not count as a failure."""
    journal = made.store.load(NODE)
    assert found.result == "skipped" and journal is not None
    assert not journal.is_open and carry_over(journal) == {}
    assert not any(name.startswith("scale") for name in made.world.log)
    assert_all_in_slurm(made.world)


def test_conversions_of_one_host_take_turns(tmp_path: Path) -> None:
    """Another conversion on this host holds the lock of the NodeSet, so dnm waits."""
    made = program(tmp_path, drain_timeout_seconds=SOON)
    with made.store.lock("NodeSet_slurm_b"):
        node_result = made.lend()
        assert "set cost" not in made.world.log
    assert "another node of NodeSet slurm/b is still" in node_result.error
    assert_untouched(made, node_result)
    made.change_settings(drain_timeout_seconds=timedelta(minutes=1))
    assert made.lend().result == "ok"


def test_conversions_of_two_hosts_take_turns(tmp_path: Path) -> None:
    """A conversion on another host has chosen its pod for removal, so dnm waits."""
    made = program(tmp_path, drain_timeout_seconds=SOON)
    other = made.world.machines["a002"].pod
    assert other is not None
    other["cost"] = LOWEST_COST
    node_result = made.lend()
    assert "is being removed: one at a time" in node_result.error
    assert other["cost"] == LOWEST_COST
    other["cost"] = 0
    assert_untouched(made, node_result)


def a_pod(name: str, **changes: Any) -> SlurmdPod:
    slurmd_pod = SlurmdPod(
        namespace="slurm", name=name, uid=name, node=f"n-{name}", hostname="x", node_set="b",
        is_ready=True, is_terminating=False,
    )  # fmt: skip
    return msgspec.structs.replace(slurmd_pod, **changes)


OWN = a_pod("b-0", cost=LOWEST_COST)
NEXT: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "well": ({}, (), ""),
    "not Ready": ({"is_ready": False}, (), "is not Running and Ready: it would end first"),
    "going": ({"is_terminating": True}, (), "is not Running and Ready"),
    "waits for a Node": ({"node": ""}, (), "is not Running and Ready"),
    "drained": ({"is_condemned": True}, (), "slurm-operator drains pod slurm/b-1"),
    "as cheap": ({"cost": LOWEST_COST}, (), "one at a time"),
    "cheap": ({"cost": LOWEST_COST + 1}, (), ""),
    "a spare": ({}, ("n9",), "has no slurmd on n9"),
}


@pytest.mark.parametrize("name", NEXT)
def test_scales_only_if_this_pod_would_end(name: str) -> None:
    changes, spares, why = NEXT[name]
    node_set = NodeSet(
        namespace="slurm", name="b", is_daemon_set=False, is_deleting=False, is_settled=True,
        replicas=2,
    )  # fmt: skip
    fellows = (OWN, a_pod("b-1", **changes))
    turn = turn_refusal(node_set, fellows, OWN)
    text = turn or scale_refusal(node_set, fellows, OWN, spares)
    assert (why in text) if why else text == ""
    assert "has 1 pod of 2" in scale_refusal(node_set, (OWN,), OWN, ())
    for change, busy in (
        ({"is_settled": False}, "is being updated"), ({"is_deleting": True}, "is being deleted"),
        ({"scalers": ("keda",)}, "are set by keda too"),
    ):  # fmt: skip
        changed = msgspec.structs.replace(node_set, **change)
        assert busy in scale_refusal(changed, (OWN, a_pod("b-1")), OWN, ())
    other = {"going", "drained"}
    assert bool(wrong_pod_removal(fellows, OWN, 1)) is (name in other)
    assert "has ended another pod" in wrong_pod_removal((OWN,), OWN, 1)


@pytest.mark.parametrize(
    ("reason", "is_resumed"),
    [
        pytest.param("Pod is terminating", True, id="1.1.0"),
        pytest.param("slurm-operator: Pod is terminating", True, id="later"),
        pytest.param("slurm-operator: Pod (slurm/b-0) was uncordoned", True, id="undrained"),
        pytest.param("Not responding", True, id="without-its-pre-stop"),
        pytest.param("dnm:prod op=1 : Not responding", True, id="without-and-our-drain-grew"),
        pytest.param("fan 2", False, id="an-administrators"),
    ],
)
def test_resumes_a_node_left_down_by_its_pod(tmp_path: Path, reason: str, is_resumed: bool) -> None:
    """slurm-operator does not resume the node of a new pod with an old name, so dnm does."""
    patience = timedelta(seconds=60 if is_resumed else 0.2)
    made = program(tmp_path, machines=1, boot_timeout_seconds=patience)
    assert made.lend().result == "ok"
    made.world.machines[NODE].reason = reason
    node_result = made.bring_back()
    if is_resumed:
        assert node_result.result == "ok", node_result.error
        assert_all_in_slurm(made.world)
    else:
        assert (
            node_result.result == "failed"
            and "DOWN" in node_result.error
            and reason in node_result.error
        )
        assert made.world.machines[NODE].base == "DOWN"
