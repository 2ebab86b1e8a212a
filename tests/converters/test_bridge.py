"""Tests of bridge-convert on a model of slurm-bridge: its steps, and slurm-bridge's pitfalls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.converters.bridge import (
    BridgedNode,
    Taken,
    judge_bridged,
    lend_refusal,
    missing_for_return,
)
from dnm.converters.bridge_stages import PROGRAM, check_leave, cordon, leave
from dnm.converters.claimed import read_claims
from dnm.converters.conversion import DryRun, NotClaimed
from dnm.converters.nodeset import FENCE
from dnm.converters.select import SlurmFacts, judge_nodes
from dnm.converters.settings import Machines, Settings
from dnm.model.errors import KubeError
from dnm.model.node import Node
from dnm.model.slurm_state import ABSENT, NodeState, in_service_of
from tests.converters.bridge_world import (
    LABEL,
    LONG_LABEL,
    MANAGED,
    PARTITIONS,
    TAKEN,
    BridgedMachine,
    BridgeWorld,
    KubeSide,
    SlurmSide,
)
from tests.converters.nodeset_world import Killed, changed
from tests.converters.played import NODE, PlayedProgram
from tests.converters.played import tmp_path as tmp_path

SOON = timedelta(seconds=0.01)


class Program(PlayedProgram[BridgeWorld]):
    """The converter bridge-convert, run on the model."""

    machines = Machines.BRIDGED
    slurm, kube = SlurmSide, KubeSide

    @property
    def machine(self) -> BridgedMachine:
        return self.world.machines[NODE]


def program(directory: Path, seed: int = 0, **settings: Any) -> Program:
    return Program(directory, BridgeWorld(seed), **settings)


def assert_batch(world: BridgeWorld) -> None:
    """Asserts that the node is slurm-bridge's again, as before the lend."""
    for _ in range(6):
        world.step()
    machine = world.machines[NODE]
    assert (machine.is_in_slurm, machine.base, machine.flags, machine.features) == (
        True,
        "IDLE",
        set(),
        ("b", "c"),
    )
    assert not machine.reason or machine.reason.startswith("slurm-bridge:")
    assert machine.labels == {LABEL: "yes", "kubernetes.io/hostname": NODE}
    assert machine.annotations == {PARTITIONS: "b, c"} and machine.taints == (MANAGED,)
    assert not machine.is_cordoned and not world.reservations


def assert_lent(world: BridgeWorld) -> None:
    machine = world.machines[NODE]
    assert not machine.is_in_slurm and not world.reservations
    assert machine.labels == {"dev": "true", "kubernetes.io/hostname": NODE}
    assert machine.is_open and set(machine.annotations) == {PARTITIONS, TAKEN}


@pytest.mark.parametrize("names", [(LONG_LABEL,), (LABEL, LONG_LABEL)], ids=["long", "both"])
def test_removes_and_restores_both_names_of_the_label(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """slurm-bridge's label has a long and a short name: a lend removes both, a return sets both."""
    made = program(tmp_path)
    del made.machine.labels[LABEL]
    made.machine.labels |= dict.fromkeys(names, "true")
    made.lend()
    assert_lent(made.world)
    made.bring_back()
    for _ in range(6):
        made.world.step()
    assert made.machine.labels == {**dict.fromkeys(names, "true"), "kubernetes.io/hostname": NODE}
    assert made.machine.is_in_slurm and made.machine.base == "IDLE"


def test_removing_only_the_label_would_let_a_busy_node_flap() -> None:
    """Shows on the model why bridge-convert cordons a Node before it removes the label."""
    world = BridgeWorld()
    machine = world.machines[NODE]
    machine.jobs["1"] = 10
    del machine.labels[LABEL]
    for _ in range(8):
        world.step()
    assert len(world.flaps) >= 4


def test_missing_partition_is_reported_before_any_change(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.lend()
    made.world.partitions.remove("c")
    made.world.log.clear()
    node_result = made.bring_back()
    assert node_result.result == "failed" and "Slurm has no partition c, which" in node_result.error
    assert not {"change", "cordon", "evict"} & set(made.world.log)
    assert_lent(made.world)
    made.world.partitions.append("c")
    assert made.bring_back().result == "ok"
    assert_batch(made.world)


def test_node_without_partitions_is_still_returned(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.lend()
    del made.machine.annotations[PARTITIONS]
    assert made.bring_back().result == "ok"
    assert_batch(made.world)


class Cordoning(KubeSide):
    """An administrator cordons the Node just after dnm has removed its taint. With `is_killed`, the
    converter is then killed."""

    is_killed = False

    def change(self, node: Node, *given: Any, **options: Any) -> None:
        super().change(node, *given, **options)
        machine = self.world.machines[NODE]
        if FENCE in node.taints and FENCE not in machine.taints:
            machine.is_cordoned, machine.version = True, machine.version + 1
            if self.is_killed:
                raise Killed


class CordoningKilled(Cordoning):
    is_killed = True


class Unlabelling(KubeSide):
    """An administrator takes the machine out of Slurm: removes slurm-bridge's label just after
    dnm's cordon in a lend, or just after a return has restored it."""

    def set_cordon(self, node: str, cordon: bool) -> None:
        super().set_cordon(node, cordon)
        self.unlabel()

    def change(self, *given: Any, **options: Any) -> None:
        super().change(*given, **options)
        self.unlabel()

    def unlabel(self) -> None:
        machine = self.world.machines[NODE]
        if machine.labels.pop(LABEL, ""):
            machine.version += 1


@pytest.mark.parametrize("is_lent", [False, True], ids=["while-lending", "while-returning"])
def test_gives_up_a_node_after_its_label_is_removed_outside_dnm(
    tmp_path: Path, is_lent: bool
) -> None:
    made = program(tmp_path, boot_timeout_seconds=SOON)
    if is_lent:
        made.lend()
    made.kube = Unlabelling
    node_result = made.bring_back() if is_lent else made.lend()
    if is_lent:
        assert (
            node_result.result == "failed"
            and "slurm-bridge has not put it into" in node_result.error
        )
        node_result = made.bring_back()
    assert node_result.result == "skipped" and "was removed outside dnm" in node_result.error
    for _ in range(6):
        made.world.step()
    bridged_machine = made.machine
    assert (
        LABEL not in bridged_machine.labels
        and bridged_machine.is_open
        and not bridged_machine.is_in_slurm
    )
    assert not made.world.reservations and not made.world.flaps


@pytest.mark.parametrize("kube", [Cordoning, CordoningKilled])
def test_cordon_after_opening_stays(tmp_path: Path, kube: type[KubeSide]) -> None:
    """An administrator's cordon stays, even if dnm was killed before its journal recorded that its
    own cordon is gone."""
    made = program(tmp_path)
    made.kube = kube
    if kube is Cordoning:
        assert made.lend().result == "ok"
    else:
        with pytest.raises(Killed):
            made.lend()
    assert made.machine.is_cordoned and FENCE not in made.machine.taints
    made.kube = KubeSide
    node_result = made.bring_back()
    assert "cordoned by an administrator" in node_result.error and made.machine.is_cordoned
    made.machine.is_cordoned = False
    assert made.bring_back().result == "ok"
    assert_batch(made.world)


@pytest.mark.parametrize("kube", [Cordoning, CordoningKilled])
def test_cordon_after_return_stays(tmp_path: Path, kube: type[KubeSide]) -> None:
    """slurm-bridge drains a cordoned node, so the return fails and reports the cordon. Also after a
    kill, dnm does not take the cordon for its own."""
    made = program(tmp_path, stage_timeout_seconds=SOON)
    made.lend()
    made.kube = kube
    with suppress(Killed):
        node_result = made.bring_back()
        assert node_result.result == "failed" and "is unschedulable" in node_result.error
    made.kube = KubeSide
    assert made.bring_back().result == "failed" and made.machine.is_cordoned
    made.machine.is_cordoned = False
    assert made.bring_back().result == "ok"
    assert_batch(made.world)


@pytest.mark.parametrize("jobs", [{}, {"77": 10**6}], ids=["idle", "a job"])
def test_node_returned_outside_dnm_is_not_touched(tmp_path: Path, jobs: dict[str, int]) -> None:
    """An administrator restores the label while the node is lent, so that Slurm has it in service.
    A cordon by dnm would then drain it."""
    made = program(tmp_path)
    assert made.lend().result == "ok"
    made.machine.labels[LABEL] = "true"
    for _ in range(5):
        made.world.step()
    assert made.machine.is_in_slurm
    made.machine.jobs.update(jobs)
    made.machine.base = "ALLOCATED" if jobs else "IDLE"
    before = seen_of(made.machine)
    done = made.bring_back()
    assert done.result == "failed" and "is lent, but Slurm may have it" in done.error
    assert seen_of(made.machine) == before


def seen_of(bridged_machine: BridgedMachine) -> tuple[Any, ...]:
    """Returns everything that a converter may change on a machine, for comparison."""
    return (
        bridged_machine.is_cordoned,
        dict(bridged_machine.labels),
        dict(bridged_machine.annotations),
        bridged_machine.taints,
        set(bridged_machine.flags),
    )


def test_drain_outside_dnm_stays(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.lend()

    class Drained(SlurmSide):
        def read_partitions(self) -> tuple[str, ...]:
            made.machine.annotations["drained"] = "yes"
            return super().read_partitions()

        def read_nodes(self) -> Any:
            if made.machine.is_in_slurm and "drained" in made.machine.annotations:
                made.machine.flags.add("DRAIN")
                made.machine.reason = "bad fan"
            return super().read_nodes()

    made.slurm = Drained
    node_result = made.bring_back()
    assert node_result.result == "ok"
    assert (made.machine.reason, "DRAIN" in made.machine.flags) == ("bad fan", True)
    assert any("left drained" in text for text in made.said)


def lift(bridged_machine: BridgedMachine) -> None:
    bridged_machine.flags.discard("DRAIN")
    bridged_machine.reason = ""


def recreate(bridged_machine: BridgedMachine) -> None:
    bridged_machine.reason = "slurm-bridge: Corresponding Kubernetes node (/a000) is unschedulable"


def start_job(bridged_machine: BridgedMachine) -> None:
    bridged_machine.jobs["77"] = 10**6


def uncordon(bridged_machine: BridgedMachine) -> None:
    bridged_machine.is_cordoned = False
    bridged_machine.version += 1


@pytest.mark.parametrize("spoil", [lift, recreate, start_job, uncordon])
def test_label_stays_if_the_claim_is_lost(
    tmp_path: Path, spoil: Callable[[BridgedMachine], None]
) -> None:
    """The converter checks its claim before it removes the label, and again at the change."""
    made = program(tmp_path)
    conversion = made.under_way()
    cordon(conversion)
    spoil(made.machine)
    if spoil is not uncordon:
        with pytest.raises(NotClaimed):
            check_leave(conversion)
    with pytest.raises(NotClaimed):
        leave(conversion)
    assert LABEL in made.machine.labels


def test_removal_of_the_label_outside_dnm_is_detected(tmp_path: Path) -> None:
    made = program(tmp_path)
    conversion = made.under_way()
    cordon(conversion)
    made.machine.labels.pop(LABEL)
    for stage in (check_leave, leave):
        with pytest.raises(NotClaimed, match="was removed outside dnm"):
            stage(conversion)


@pytest.mark.parametrize("spoil", [lift, start_job, uncordon])
def test_change_between_two_reads_is_detected(
    tmp_path: Path, spoil: Callable[[BridgedMachine], None]
) -> None:
    """In a lend, the machine changes after dnm has deleted its reservation. The last reads before
    dnm removes slurm-bridge's label detect that."""
    made = program(tmp_path)
    conversion = made.under_way()
    cordon(conversion)

    class Late(SlurmSide):
        def delete_reservation(self, name: str) -> None:
            super().delete_reservation(name)
            if spoil is not uncordon:
                spoil(made.machine)

        def read_jobs_on(self, node: str) -> Any:
            if spoil is uncordon:
                spoil(made.machine)
            return super().read_jobs_on(node)

    conversion.slurm = Late(made.world)  # type: ignore[assignment]
    with pytest.raises((NotClaimed, KubeError)):
        leave(conversion)
    assert LABEL in made.machine.labels


@pytest.mark.parametrize("spoil", ["label", "taint"])
def test_node_that_slurm_has_again_is_not_opened(tmp_path: Path, spoil: str) -> None:
    made = program(tmp_path)

    class Taken(KubeSide):
        def change(self, *given: Any, **options: Any) -> None:
            super().change(*given, **options)
            machine = self.world.machines[NODE]
            if LABEL not in machine.labels and FENCE in machine.taints:
                if spoil == "label":
                    machine.labels[LABEL] = "yes"
                else:
                    self.world.taint_lag = 10**6

    made.kube = Taken
    made.change_settings(drain_timeout_seconds=SOON)
    node_result = made.lend()
    assert node_result.result == "failed" and "it was returned to Slurm" in node_result.error
    assert_batch(made.world)


def bridged(**changes: Any) -> BridgedNode:
    world = BridgeWorld()
    bridged_node: BridgedNode = KubeSide(world).bridge.read_node(NODE)
    node = {key: changes.pop(key) for key in list(changes) if key in _OF_NODE}
    return changed(bridged_node, node=changed(bridged_node.node, **node), **changes)


_OF_NODE = ("is_ready", "is_deleting", "is_cordoned", "labels", "taints")
MOVED: dict[str, tuple[dict[str, Any], str]] = {
    "well": ({}, ""),
    "not Ready": ({"is_ready": False}, "its Node is not Ready"),
    "being deleted": ({"is_deleting": True}, "its Node is not Ready"),
    "cordoned": ({"is_cordoned": True}, "its Node is cordoned"),
    "no label": ({"labels": {}}, "its Node has no label scheduler"),
    "called otherwise": (
        {"labels": {LABEL: "", "slinky.slurm.net/slurm-nodename": "x"}}, "its Node is x in Slurm",
    ),
    "no taint": ({"taints": ()}, "has not put the taint"),
    "our fence": ({"taints": (MANAGED, FENCE)}, "an unfinished return"),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_reasons_not_to_lend_a_node(name: str) -> None:
    changes, why = MOVED[name]
    text = lend_refusal(NODE, bridged(**changes))
    assert (why in text) if why else text == ""


BACK: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "well": ({}, {}, ""),
    "cordoned": ({"flags": {"EXTERNAL", "DRAIN"}}, {}, ""),
    "of another": ({"flags": {"CLOUD"}}, {}, "not as a node of slurm-bridge's"),
    "down": ({"base": "DOWN"}, {}, "Slurm has it DOWN"),
    "silent": ({"flags": {"EXTERNAL", "NOT_RESPONDING"}}, {}, "NOT_RESPONDING"),
    "features": ({"features": ("b",)}, {}, "its features in Slurm lack c"),
    "no taint": ({}, {"taints": ()}, "has not put the taint"),
}


@pytest.mark.parametrize("name", BACK)
def test_conditions_until_a_node_is_back(name: str) -> None:
    of_slurm, of_node, why = BACK[name]
    node = SlurmSide(BridgeWorld()).read_node(NODE)
    state = NodeState(
        base=of_slurm.get("base", "IDLE"), flags=frozenset(of_slurm.get("flags", {"EXTERNAL"}))
    )
    node = changed(node, state=state, features=of_slurm.get("features", ("b", "c")))
    text = missing_for_return(bridged(**of_node), node, ("b", "c"))
    assert (why in text) if why else text == ""


def test_record_without_instance_is_ignored(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.lend()
    annotations = made.world.machines[NODE].annotations
    taken = msgspec.json.decode(annotations[TAKEN], type=Taken)
    annotations[TAKEN] = msgspec.json.encode(msgspec.structs.replace(taken, instance="")).decode()
    node_result = made.bring_back()
    assert node_result.result == "failed" and "lent by instance ''" in node_result.error


def test_list_includes_lent_nodes_unknown_to_slurm(tmp_path: Path) -> None:
    """A lent machine has no record in Slurm. The list shows it by its journal, not by the Node's
    annotation, which others may write."""
    made = program(tmp_path)
    world = made.world = BridgeWorld(machines=4)
    made.lend()
    world.machines["a001"].is_cordoned = True
    world.machines["a001"].reason = ""
    taken = Taken(instance="prod", labels={LABEL: "yes"})
    world.machines["a003"].annotations[TAKEN] = msgspec.json.encode(taken).decode()
    world.machines["a003"].is_in_slurm = False
    slurm, kube = SlurmSide(world), KubeSide(world)
    facts = SlurmFacts(
        nodes=tuple(slurm._node(item) for item in world.machines.values() if item.is_in_slurm),
        jobs=(), reservations=(), read_at=datetime.now(UTC),
    )  # fmt: skip
    at = {node.node.name: node for node in kube.bridge.read_nodes()}
    judged = judge_bridged(judge_nodes(facts, Settings(machines=Machines.BRIDGED)), at)
    results = {node.node.name: node for node in judged}
    assert (results["a002"].verdict.value, results["a002"].node.state.text) == ("OK", "IDLE")
    assert results["a001"].reason == "its Node is cordoned"
    assert results[NODE].node.state.text == ABSENT and results[NODE].in_service is False
    assert results[NODE].reason == "taken from slurm-bridge by instance prod"
    listed = changed(facts, nodes=tuple(node.node for node in judged))
    claims = read_claims(made.settings, listed, made.said.append).claims
    assert claims is not None and set(claims) == {NODE} and claims[NODE].namespace == "dev"


def test_moves_only_nodes_of_slurm_bridge() -> None:
    world = BridgeWorld(machines=2)
    slurm = SlurmSide(world)
    own = changed(slurm.read_node(NODE), state=NodeState(base="IDLE"))
    facts = SlurmFacts(
        nodes=(own, slurm.read_node("a001")), jobs=(), reservations=(), read_at=datetime.now(UTC)
    )
    results = {
        node.node.name: node for node in judge_nodes(facts, Settings(machines=Machines.BRIDGED))
    }
    assert "slurm-bridge has not put it into Slurm" in results[NODE].reason
    assert results["a001"].verdict.value == "OK"
    results = {node.node.name: node for node in judge_nodes(facts, Settings())}
    assert (results[NODE].verdict.value, results["a001"].verdict.value) == ("OK", "SKIP")


def test_node_without_slurm_record_is_out_of_service() -> None:
    assert in_service_of(NodeState(base=ABSENT)) is False


def test_dry_run_shows_all_stages() -> None:
    run = DryRun(Settings(), NODE)
    actions = {stage.name: stage.lines(run)[-1] for stage in (*PROGRAM.lending, *PROGRAM.returning)}
    assert actions["leave"].startswith("label node a000 scheduler.slinky.slurm.net/external-node-")
    assert actions["return"].startswith("uncordon a000")
