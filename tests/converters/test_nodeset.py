"""Tests of nodeset-convert on a model of slurm-operator: its steps, and the operator's pitfalls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.converters import to_batch
from dnm.converters.conversion import (
    DryRun,
    NodeConversion,
    NotClaimed,
    StopRequest,
    run_stages,
)
from dnm.converters.journal import Direction
from dnm.converters.nodeset import FENCE, OnNode, busy_reason, judge_places, lend_refusal
from dnm.converters.nodeset_stages import (
    PROGRAM,
    check_leave,
    leave,
)
from dnm.converters.pool import program_of
from dnm.converters.select import ListVerdict, SlurmFacts, judge_nodes
from dnm.converters.settings import Machines, Settings
from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.model.errors import ConfigError, SlurmError
from dnm.model.node import Mark, Node
from dnm.model.node_type import NodeType, Taint
from tests.converters.nodeset_world import LABEL, Killed, KubeSide, SlurmSide, World
from tests.converters.played import NODE, PlayedProgram
from tests.converters.played import tmp_path as tmp_path


class Program(PlayedProgram[World]):
    """The converter nodeset-convert, run on the model."""

    machines = Machines.PODS
    keys = {"nodeset_label": LABEL}
    slurm, kube = SlurmSide, KubeSide


def program(directory: Path, seed: int = 0, **settings: Any) -> Program:
    return Program(directory, World(seed), **settings)


def assert_batch(world: World, node: str = NODE) -> None:
    """Asserts that the node is Slurm's again, as before the lend."""
    for _ in range(6):
        world.step()
    machine = world.machines[node]
    assert (machine.base, machine.flags, machine.reason, machine.extra) == ("IDLE", set(), "", "")
    assert machine.labels == {LABEL[0]: LABEL[1], "kubernetes.io/hostname": node}
    assert machine.taints == (FENCE,) and not machine.is_cordoned and machine.pod
    assert not world.reservations


def assert_lent(world: World, node: str = NODE) -> None:
    machine = world.machines[node]
    assert machine.base == "DOWN" and machine.pod is None
    assert machine.labels == {"dev": "true", "kubernetes.io/hostname": node}
    assert FENCE not in machine.taints
    assert world.reservations == {f"k8s-{node}": (node, False)}


def test_moved_node_loses_labels_of_both_namespaces(
    tmp_path: Path,
) -> None:
    """The lend was for `dev`, and dnm has moved the node to `ops`; the journal only has `dev`."""
    taints = (Taint(key="for", value="{namespace}", effect="NoSchedule"),)
    made = program(tmp_path, node_types={"a": NodeType(name="a", size={}, taints=taints)})
    made.lend()
    machine = made.world.machines[NODE]
    machine.labels["ops"] = machine.labels.pop("dev")
    machine.taints = (Taint(key="for", value="ops", effect="NoSchedule"),)
    machine.mark = Mark(instance="prod", node_type="a", namespace="ops", queue="q")
    node_result = made.bring_back()
    assert node_result.result == "ok", node_result.error
    assert_batch(made.world)


def test_leftover_mark_of_another_instance_is_ignored_on_return(tmp_path: Path) -> None:
    """Another instance's old mark in the node's Extra must not prevent this one's return."""
    made = program(tmp_path)
    made.world.machines[NODE].extra = "dnm:west op1"
    assert made.lend().result == "ok"
    node_result = made.bring_back()
    assert node_result.result == "ok", node_result.error
    assert_batch(made.world)


def test_lent_node_without_reservation_is_returned(tmp_path: Path) -> None:
    """dnm's reservation was deleted, and the operator has replaced the Reason of dnm's drain. The
    lend is still proven by dnm's records."""
    made = program(tmp_path)
    made.lend()
    made.world.reservations.clear()
    node_result = made.bring_back()
    assert node_result.result == "ok", node_result.error
    assert_batch(made.world)


def test_waits_until_slurm_shows_the_reservation(tmp_path: Path) -> None:
    """If dnm did not wait, slurm-operator 1.1 would delete the node from Slurm with its pod."""
    made = program(tmp_path)
    made.world.delay = 40
    assert made.lend().result == "ok"
    assert_lent(made.world)
    assert not made.world.deleted


def test_drain_lifted_by_the_operator_is_detected(tmp_path: Path) -> None:
    made = program(tmp_path)
    world = made.world

    class Lifted(SlurmSide):
        def read_jobs_on(self, node: str) -> Any:
            world.machines[node].flags.discard("DRAIN")
            world.machines[node].reason = ""
            return super().read_jobs_on(node)

    made.slurm = Lifted
    node_result = made.lend()
    assert node_result.result == "skipped" and "not drained by dnm" in node_result.error
    assert "remove label" not in world.log
    assert_batch(world)


@pytest.mark.parametrize("answer", ["Duplicate reservation name", "Requested nodes are busy"])
def test_reservation_after_a_lost_answer_is_adopted(tmp_path: Path, answer: str) -> None:
    """The first command took effect although its answer was lost. Slurm refuses dnm's second one
    because of its name, or because the node is reserved."""
    made = program(tmp_path)

    class Slow(SlurmSide):
        def create_reservation(self, name: str, node: str, *more: Any, **options: Any) -> None:
            is_first = "reserve" not in self.world.log
            if is_first:
                self.world.log.append("reserve")
                raise SlurmOutcomeUnknown("timed out")
            super().create_reservation(name, node)
            raise SlurmRefused("create", answer)

    made.slurm = Slow
    node_result = made.lend()
    assert node_result.result == "ok", node_result.error
    assert_lent(made.world)


def test_administrators_drain_survives_a_lost_answer(tmp_path: Path) -> None:
    """An administrator drains the node before dnm repeats a call that timed out."""
    made = program(tmp_path)
    (machine,) = made.world.machines.values()
    lost = ["drain", "resume"]

    def lose(word: str) -> None:
        if word in lost:
            lost.remove(word)
            machine.flags.add("DRAIN")
            machine.reason = "bad DIMM"
            raise SlurmOutcomeUnknown("timed out")

    class Slow(SlurmSide):
        def drain(self, *words: Any) -> None:
            lose("drain")
            super().drain(*words)

        def resume(self, *words: Any) -> None:
            super().resume(*words)
            lose("resume")

    made.slurm = Slow
    node_result = made.lend()
    assert node_result.result == "skipped" and "now bad DIMM" in node_result.error
    assert machine.reason == "bad DIMM" and not made.world.reservations
    machine.flags.clear()
    machine.reason = ""
    to_batch.undo_claim(made.under_way())
    assert ("DRAIN" in machine.flags, machine.reason, lost) == (True, "bad DIMM", [])
    assert not made.world.reservations and not machine.extra


@pytest.mark.parametrize("kind", ["Slurm refuses the reservation", "a job got in"])
def test_claim_that_fails_during_a_stop_is_released(tmp_path: Path, kind: str) -> None:
    """No later call would complete the claim: the list has only claims that Slurm holds."""
    made, stop = program(tmp_path), StopRequest()
    made.control = lambda: stop

    class Stopped(SlurmSide):
        def create_reservation(self, *words: Any, **options: Any) -> None:
            if kind == "Slurm refuses the reservation":
                stop.ask()
                raise SlurmRefused("create", "Requested nodes are busy")
            super().create_reservation(*words, **options)

        def read_jobs_on(self, node: str) -> Any:
            if "drain" in self.world.log and not stop.stop.is_set():
                stop.ask()
                self.world.machines[node].jobs["7"] = 99
            return super().read_jobs_on(node)

    made.slurm = Stopped
    assert made.lend().result == "skipped"
    (journal,) = [made.store.load(NODE)]
    assert journal is not None and not journal.is_open and not made.world.reservations
    assert not made.world.machines[NODE].flags and not made.world.machines[NODE].reason
    made.world.machines[NODE].jobs.clear()
    made.slurm, made.control = SlurmSide, StopRequest
    assert made.lend().result == "ok"


def test_next_lending_gives_back_an_abandoned_claim(
    tmp_path: Path,
) -> None:
    made = program(tmp_path)

    class Dies(SlurmSide):
        def create_reservation(self, *words: Any, **options: Any) -> None:
            raise SlurmRefused("create", "Requested nodes are busy")

        def __getattribute__(self, name: str) -> Any:
            journal = made.store.load(NODE)
            if name.startswith("read_") and journal and journal.way is Direction.BATCH:
                raise Killed
            return super().__getattribute__(name)

    made.slurm = Dies
    with pytest.raises(Killed):
        made.lend()
    journal = made.store.load(NODE)
    assert journal is not None and journal.is_open and journal.way is Direction.BATCH
    made.slurm = SlurmSide
    given_back = made.lend()
    assert given_back.result == "skipped" and "given back" in given_back.error
    assert made.lend().result == "ok"


def test_waits_for_slurm_while_a_pod_ends(tmp_path: Path) -> None:
    made = program(tmp_path)
    failures = [SlurmError("away")]

    class Away(SlurmSide):
        def read_node(self, name: str) -> Any:
            if "remove label" in self.world.log and failures:
                raise failures.pop()
            return super().read_node(name)

    made.slurm = Away
    node_result = made.lend()
    assert (node_result.result, failures) == ("ok", []), node_result.error


def test_each_call_repeats_a_return_from_its_first_stage(tmp_path: Path) -> None:
    """A label that an earlier call restored may have been removed again meanwhile."""
    made = program(tmp_path, boot_timeout_seconds=timedelta(seconds=0.01))
    made.lend()
    made.world.is_stuck = True
    assert made.bring_back().result == "failed"
    del made.world.machines[NODE].labels[LABEL[0]]
    made.world.is_stuck = False
    made.change_settings(boot_timeout_seconds=timedelta(minutes=5))
    node_result = made.bring_back()
    assert node_result.result == "ok", node_result.error
    assert_batch(made.world)


def test_lent_node_in_an_unknown_state_is_left(tmp_path: Path) -> None:
    made = program(tmp_path, boot_timeout_seconds=timedelta(seconds=0.01))
    made.lend()
    made.world.machines[NODE].base = "FUTURE"
    made.world.is_stuck = True
    node_result = made.bring_back()
    assert node_result.result == "failed" and "can't be read (FUTURE" in node_result.error
    assert "change" not in made.world.log[-4:]


def test_lent_node_with_work_is_left(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.lend()
    machine = made.world.machines[NODE]
    machine.jobs["77"] = 10**6
    node_result = made.bring_back()
    assert node_result.result == "failed" and "there is work on a000" in node_result.error
    assert "change" not in made.world.log[-4:]


def place(world: World) -> OnNode:
    side = KubeSide(world)
    return OnNode(node=side.read_node(NODE), pods=side.read_pods(NODE), sets=side.read_sets())


MOVED: dict[str, tuple[Callable[[OnNode], OnNode], str]] = {
    "well": (lambda at: at, ""),
    "no Node": (lambda at: changed(at, node=None), "Kubernetes has no Node a000"),
    "not Ready": (lambda at: with_node(at, is_ready=False), "its Node is not Ready"),
    "being deleted": (lambda at: with_node(at, is_deleting=True), "its Node is not Ready"),
    "cordoned": (lambda at: with_node(at, is_cordoned=True), "its Node is cordoned"),
    "no label": (lambda at: with_node(at, labels={}), "its Node has no label slurm=yes"),
    "no fence": (lambda at: with_node(at, taints=()), "nothing keeps pods off it"),
    "no pod": (lambda at: changed(at, pods=()), "0 pods of slurmd are on its Node"),
    "two pods": (lambda at: changed(at, pods=(*at.pods, *at.pods)), "2 pods of slurmd"),
    "pod going": (lambda at: with_pod(at, is_terminating=True), "is not Running and Ready"),
    "pod not ready": (lambda at: with_pod(at, is_ready=False), "is not Running and Ready"),
    "another name": (lambda at: with_pod(at, hostname="x"), "calls itself x in Slurm"),
    "its set is gone": (lambda at: changed(at, sets=()), "the NodeSet slurm/b of its pod is not"),
    "StatefulSet": (lambda at: with_set(at, is_daemon_set=False), ""),
    "StatefulSet that is scaled": (
        lambda at: with_set(at, is_daemon_set=False, scalers=("flux",)), "are set by flux too",
    ),
    "set going": (lambda at: with_set(at, is_deleting=True), "is being deleted"),
    "update": (lambda at: with_set(at, is_settled=False), "is being updated"),
    "another selector": (lambda at: with_set(at, selector={}), "does not select by slurm=yes"),
    "no toleration": (lambda at: with_set(at, tolerations=()), "its pod would not come back"),
    "nothing told": (lambda at: with_pod(at, states=frozenset()), "reports no Slurm state"),
    "two told": (
        lambda at: with_pod(at, states=frozenset(("Idle", "Mixed"))), "reports no Slurm state",
    ),
}  # fmt: skip


def changed(at: OnNode, **changes: Any) -> OnNode:
    return msgspec.structs.replace(at, **changes)


def with_node(at: OnNode, **changes: Any) -> OnNode:
    assert at.node is not None
    return changed(at, node=msgspec.structs.replace(at.node, **changes))


def with_pod(at: OnNode, **changes: Any) -> OnNode:
    return changed(at, pods=(msgspec.structs.replace(at.pods[0], **changes),))


def with_set(at: OnNode, **changes: Any) -> OnNode:
    return changed(at, sets=(msgspec.structs.replace(at.sets[0], **changes),))


@pytest.mark.parametrize("name", MOVED)
def test_slurmd_pod_decides_whether_its_node_can_be_lent(name: str) -> None:
    change, why = MOVED[name]
    text = lend_refusal(NODE, change(place(World())), LABEL)
    assert (why in text) if why else text == ""


@pytest.mark.parametrize(
    ("states", "is_idle"),
    [(("Idle",), True), (("Idle", "Drain"), True), (("Idle", "Completing"), False),
     (("Allocated",), False), (("Mixed",), False), (("Down",), False), ((), False)],
)  # fmt: skip
def test_operator_report_on_a_pod_is_parsed(states: tuple[str, ...], is_idle: bool) -> None:
    (pod,) = with_pod(place(World()), states=frozenset(states)).pods
    assert (busy_reason(pod) == "") is is_idle


def lift(world: World) -> None:
    world.machines[NODE].flags.discard("DRAIN")
    world.machines[NODE].reason = ""


def start_job(world: World) -> None:
    world.machines[NODE].jobs["77"] = 10**6


def unreserve(world: World) -> None:
    world.reservations.clear()


def hide_report(world: World) -> None:
    world.tells = False


@pytest.mark.parametrize("spoil", [lift, start_job, unreserve, hide_report])
@pytest.mark.parametrize("guard", [check_leave, leave])
def test_label_stays_if_the_claim_is_lost(
    tmp_path: Path, spoil: Callable[[World], None], guard: Callable[[NodeConversion], object]
) -> None:
    """The claim is lost before the stage begins, or just before the label is removed."""
    made = program(tmp_path)
    conversion = made.under_way()
    spoil(made.world)
    with pytest.raises(NotClaimed):
        guard(conversion)
    assert LABEL[0] in made.world.machines[NODE].labels


@pytest.mark.parametrize("spoil", [start_job, unreserve])
def test_node_is_not_opened_if_the_claim_is_lost(
    tmp_path: Path, spoil: Callable[[World], None]
) -> None:
    made = program(tmp_path)
    conversion = made.under_way()
    conversion.writer.change(lines=())
    run_stages(conversion, PROGRAM.lending[2:4])
    spoil(made.world)
    with pytest.raises(NotClaimed):
        run_stages(conversion, PROGRAM.lending[4:])
    assert made.world.machines[NODE].taints == (FENCE,)


def test_node_without_a_fence_still_gets_its_labels(tmp_path: Path) -> None:
    made = program(tmp_path)
    conversion = made.under_way()
    run_stages(conversion, PROGRAM.lending[2:4])
    made.world.machines[NODE].taints = ()
    run_stages(conversion, PROGRAM.lending[4:])
    assert_lent(made.world)


def test_immovable_node_is_not_claimed(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.world.is_settled = False
    node_result = made.lend()
    assert (node_result.result, "is being updated" in node_result.error) == ("skipped", True)
    assert "reserve" not in made.world.log


def test_node_with_its_slurmd_is_not_cordoned_again(tmp_path: Path) -> None:
    made = program(tmp_path, boot_timeout_seconds=timedelta(seconds=0.01))
    made.lend()
    made.world.is_stuck = True
    made.bring_back()
    made.world.is_stuck = False
    made.world.log.clear()
    made.bring_back()
    assert "cordon" not in made.world.log


def test_cordon_after_the_label_is_restored_stays(tmp_path: Path) -> None:
    """An administrator cordons, and dnm is killed, just after dnm's own cordon was lifted."""
    made = program(tmp_path)
    made.lend()

    class Cordoning(KubeSide):
        def change(self, node: Node, *given: Any, **options: Any) -> None:
            super().change(node, *given, **options)
            if options.get("is_uncordoned"):
                machine = self.world.machines[NODE]
                machine.is_cordoned, machine.version = True, machine.version + 1
                raise Killed

    made.kube = Cordoning
    with pytest.raises(Killed):
        made.bring_back()
    made.kube = KubeSide
    node_result = made.bring_back()
    assert "cordoned by an administrator" in node_result.error
    assert made.world.machines[NODE].is_cordoned


def test_list_shows_reasons_of_slurmd_pods(tmp_path: Path) -> None:
    world = World(machines=3)
    world.machines["a001"].is_cordoned = True
    for _ in range(3):
        world.step()
    world.machines["a002"].comment = ""
    world.machines[NODE].reason = "slurm-operator: Pod was uncordoned"  # Slurm may leave it there
    slurm, kube = SlurmSide(world), KubeSide(world)
    facts = SlurmFacts(
        nodes=slurm.read_nodes(), jobs=(), reservations=(), read_at=datetime.now(UTC)
    )
    rules = Settings(machines=Machines.PODS)
    places = {
        name: OnNode(node=kube.read_node(name), pods=kube.read_pods(name), sets=kube.read_sets())
        for name in world.machines
    }
    results = {
        judge_place.node.name: judge_place
        for judge_place in judge_places(judge_nodes(facts, rules), places, LABEL)
    }
    assert results[NODE].verdict is ListVerdict.OK and results[NODE].node.state.text == "IDLE"
    assert "drained by slurm-operator" in results["a001"].reason
    assert results["a002"].reason == "its slurmd runs in no pod of slurm-operator's"
    world.tells = False
    places[NODE] = place(world)
    results = {
        judge_place.node.name: judge_place
        for judge_place in judge_places(judge_nodes(facts, rules), places, LABEL)
    }
    assert "reports no Slurm state" in results[NODE].reason


def test_missing_label_setting_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nodeset_label is missing"):
        program_of(Machines.PODS).check_settings(Settings())
    run = DryRun(Settings(nodeset_label=LABEL), NODE)
    actions = {stage.name: stage.lines(run)[-1] for stage in (*PROGRAM.lending, *PROGRAM.returning)}
    assert actions["leave"].startswith("label node a000 slurm-")
    assert actions["back"].startswith("label")
