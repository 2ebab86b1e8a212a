"""Tests of executing a plan: dnm records it first, and one action's failure stops no other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.model.cluster import FieldOwner
from dnm.model.errors import LeaseLostError
from dnm.model.lent import Ended, Phase
from dnm.model.node import Mark
from dnm.model.node_type import Taint
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    Outcome,
    Plan,
    RelabelNode,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.model.pod import DaemonSet, Pod, PodShape
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.breaker import backoff_delay
from dnm.queues.yunikorn.source import resolve_document
from dnm.queues.yunikorn.system import plan_source
from dnm.run.actuator import Actuator
from dnm.run.registry import file_state
from dnm.run.state import FileState
from tests.builders import (
    FENCED,
    MARK,
    NOW,
    QUEUE,
    a_batch_node,
    a_config,
    a_lent_node,
    a_node,
    a_request,
)
from tests.plan.worlds import World, queue_map
from tests.run.edges import PROCESS, Converter, Kube

BARE, OPEN = a_node(mark=None), a_node()
CORDONED, SHUT = a_node(is_cordoned=True), a_node(is_cordoned=True, mark=FENCED)
STRANGER = Mark(instance="validation", node_type="a", namespace="dev", queue=QUEUE)
AWAY = a_batch_node(in_service=False)
POD = Pod(namespace="dev", name="p", shape=PodShape(request={"pods": 1}), node="a001")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def apply(
    home: Path, kube: Kube, converter: Converter, actions: list[Action], **registry: Any
) -> Outcome:
    plan = Plan(registry=Registry(**registry), actions=tuple(actions))
    return carry_out(home, kube, converter, plan)


def carry_out(
    home: Path,
    kube: Kube,
    converter: Converter,
    plan: Plan,
    is_stopped: bool = False,
    **settings: Any,
) -> Outcome:
    config = a_config(home, **settings)
    converter.registry_path = config.converted_nodes_path
    edges = (kube, converter)
    actuator = Actuator(config, edges, file_state(config), lambda: is_stopped, lambda: NOW)
    outcome = actuator.apply_plan(plan)
    on_disk = msgspec.json.decode(config.converted_nodes_path.read_bytes(), type=Registry)
    assert on_disk == outcome.registry
    return outcome


# --- marks and fences ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "before", "after", "is_done"),
    [
        pytest.param(MarkNode(node="a001", mark=MARK), BARE, OPEN, True, id="mark"),
        pytest.param(Fence(node="a001"), OPEN, SHUT, True, id="fence"),
        pytest.param(Fence(node="a001"), CORDONED, CORDONED, False, id="an-admin-was-first"),
        pytest.param(Unfence(node="a001"), SHUT, OPEN, True, id="unfence"),
        pytest.param(Unfence(node="a001"), CORDONED, CORDONED, False, id="an-admin's-cordon"),
        pytest.param(Unfence(node="a001"), a_node(mark=FENCED), OPEN, True, id="lifted-manually"),
    ],
)
def test_action_reads_the_node_again_before_it_changes_it(
    home: Path, action: Action, before: Any, after: Any, is_done: bool
) -> None:
    kube = Kube([before])
    outcome = apply(home, kube, Converter(), [action], nodes={"a001": a_lent_node()})
    assert kube.nodes["a001"] == after
    assert bool(outcome.actions) is is_done and not outcome.errors


class FollowedState(FileState):
    """A registry of which another run takes the Lease after this run's first action."""

    steps = 0

    def keep(self, anew: bool = False) -> None:
        self.steps += 1
        if self.steps > 1:
            raise LeaseLostError("another one acts")


@pytest.mark.parametrize(
    ("action", "before"),
    [
        pytest.param(MarkNode(node="a001", mark=MARK), BARE, id="mark"),
        pytest.param(Fence(node="a001"), OPEN, id="fence"),
        pytest.param(Unfence(node="a001"), SHUT, id="unfence"),
        pytest.param(StartConversion(request=a_request()), OPEN, id="convert"),
    ],
)
def test_step_of_a_run_that_lost_its_lease_is_not_done(
    home: Path, action: Action, before: Any
) -> None:
    config, kube, converter = a_config(home), Kube([before]), Converter()
    state = FollowedState(config)
    registry = Registry(nodes={"a001": a_lent_node()}, requests=(a_request(),))
    actuator = Actuator(config, (kube, converter), state, lambda: False, lambda: NOW)
    outcome = actuator.apply_plan(Plan(registry=registry, actions=(action,)))
    assert "another one acts" in outcome.errors[0]
    assert kube.nodes["a001"] == before and not converter.calls


TAINT = Taint(key="for", value="two", effect="NoSchedule")
DRESS = RelabelNode(node="a001", mark=MARK, labels={"dev": None, "two": "true"}, on=(TAINT,))
BACK = msgspec.structs.replace(DRESS, is_back=True)


@pytest.mark.parametrize(
    ("action", "node", "on_it", "batch", "is_done"),
    [
        pytest.param(DRESS, SHUT, (), AWAY, True, id="fenced-and-empty"),
        pytest.param(DRESS, SHUT, (POD,), AWAY, False, id="a-pod-landed"),
        pytest.param(BACK, SHUT, (POD,), AWAY, True, id="back-with-its-pods"),
        pytest.param(DRESS, OPEN, (), AWAY, False, id="its-fence-is-off"),
        pytest.param(BACK, OPEN, (), AWAY, True, id="back-without-a-fence"),
        pytest.param(DRESS, SHUT, (), a_batch_node(), False, id="Slurm-has-it"),
        pytest.param(DRESS, SHUT, (), a_batch_node(in_service=None), False, id="unknown"),
        pytest.param(BACK, a_node(mark=STRANGER), (), AWAY, False, id="another's"),
    ],
)
def test_node_changes_its_namespace_only_if_fenced_and_empty(
    home: Path, action: RelabelNode, node: Any, on_it: Any, batch: Any, is_done: bool
) -> None:
    kube = Kube([node], on_it)
    entry = a_lent_node(Phase.MOVING, to="two")
    outcome = apply(home, kube, Converter([batch]), [action], nodes={"a001": entry})
    after = kube.nodes["a001"]
    assert (after != node) is bool(outcome.actions) is is_done
    assert ((after.labels.get("two"), after.taints) == ("true", (TAINT,))) is is_done


def test_node_with_a_foreign_mark_is_not_counted_and_stays_recorded(home: Path) -> None:
    kube = Kube([a_node(mark=STRANGER)])
    mark = MarkNode(node="a001", mark=MARK)
    outcome = apply(home, kube, Converter(), [mark], nodes={"a001": a_lent_node()})
    assert kube.nodes["a001"].mark == STRANGER and set(outcome.registry.nodes) == {"a001"}
    assert "carries another instance's mark" in outcome.errors[0]


def test_node_that_joined_after_the_snapshot_is_neither_marked_nor_fenced(home: Path) -> None:
    """The Node of the snapshot is gone. Another instance has lent the machine since."""
    kube = Kube([a_node(mark=None, uid="new")])
    plan = Plan(
        registry=Registry(nodes={"a001": a_lent_node(Phase.RELEASING)}), uids={"a001": "old"},
        actions=(MarkNode(node="a001", mark=MARK), Fence(node="a001")),
    )  # fmt: skip
    outcome = carry_out(home, kube, Converter(), plan)
    after = kube.nodes["a001"]
    assert (after.mark, after.is_cordoned) == (None, False)
    assert "the one that was read" in outcome.errors[0]


@pytest.mark.parametrize(
    ("conflicts", "timeout", "is_done"),
    [
        pytest.param(8, timedelta(minutes=1), True, id="eight-writes"),
        pytest.param(8, timedelta(0), False, id="longer-than-a-request-may-take"),
    ],
)
def test_node_that_another_client_writes_is_read_again(
    home: Path, conflicts: int, timeout: timedelta, is_done: bool
) -> None:
    kube = Kube([OPEN])
    kube.conflicts = conflicts
    plan = Plan(registry=Registry(nodes={"a001": a_lent_node()}), actions=(Fence(node="a001"),))
    outcome = carry_out(home, kube, Converter(), plan, request_timeout=timeout)
    assert (kube.nodes["a001"] == SHUT) is is_done
    assert bool(outcome.errors) is not is_done


def test_failed_action_does_not_stop_the_next_action(home: Path) -> None:
    kube = Kube([OPEN, a_node("a002")])
    kube.refuses.add("patch a001")
    nodes = {"a001": a_lent_node(), "a002": a_lent_node()}
    actions: list[Action] = [Fence(node="a001"), Fence(node="a002")]
    outcome = apply(home, kube, Converter(), actions, nodes=nodes)
    assert kube.nodes["a002"].is_fenced and not kube.nodes["a001"].is_cordoned
    assert outcome.errors == ("action=Fence node=a001 error='patch a001: 403 Forbidden'",)


# --- the queue document ----------------------------------------------------------------------


def _growing() -> Plan:
    """Builds a plan that marks a joined node, raises the limit, and requests another node."""
    world = World().lent("a001", Phase.JOINING).node("a001", mark=None)
    plan = world.plan()
    request = a_request(nodes_before=())
    return msgspec.structs.replace(
        plan,
        actions=(*plan.actions, StartConversion(request=request)),
        registry=msgspec.structs.replace(plan.registry, requests=(request,)),
    )


def test_limits_are_written_with_their_ledger(home: Path) -> None:
    kube, converter = Kube([BARE]), Converter()
    kube.queues = queue_map()
    outcome = carry_out(home, kube, converter, _growing())
    assert kube.queues is not None and "vcore: 208" in kube.queues.data["queues.yaml"]
    assert any(line.startswith("action=set-limit") for line in outcome.actions)
    assert list(converter.calls) == ["r1"] and not outcome.errors


def test_failed_edit_ends_the_actions_and_drops_unstarted_requests(
    home: Path,
) -> None:
    kube, converter = Kube([BARE]), Converter()
    kube.refuses.add("write queues")
    outcome = carry_out(home, kube, converter, _growing())
    assert kube.queues == queue_map() and converter.calls == {}
    assert outcome.registry.requests == () and len(outcome.errors) == 1
    assert outcome.errors[0].startswith("action=SetQueueLimits")


def test_failed_edit_keeps_the_recorded_ledger_and_starts_no_request(home: Path) -> None:
    """Once, the registry had the ledger that was not written, so that the next run asked an
    administrator about the limits. Another client may have changed the text meanwhile."""
    kube, plan = Kube([BARE]), _growing()
    kube.refuses.add("write queues")
    outcome = carry_out(home, kube, Converter(), plan)
    (action,) = (action for action in plan.actions if isinstance(action, SetQueueLimits))
    assert outcome.registry.last_run.ledger == action.wants.remembered
    wants = msgspec.structs.replace(action.wants, remembered=outcome.registry.last_run.ledger)
    text = queue_map().data["queues.yaml"]
    owner = FieldOwner(manager="kubectl", operation="Update", keys=frozenset({"queues.yaml"}))
    for current in (text, text.replace("80", "90", 1)):
        config_map = msgspec.structs.replace(
            queue_map(), data={"queues.yaml": current}, owners=(owner,)
        )
        again = plan_source(resolve_document(config_map, None), wants)
        assert not again.refusal and again.changes


def test_node_that_could_not_be_marked_counts_for_no_queue(home: Path) -> None:
    kube = Kube([BARE])
    kube.refuses.add("patch a001")
    outcome = carry_out(home, kube, Converter(), _growing())
    assert kube.queues is not None and "vcore: 208" not in kube.queues.data["queues.yaml"]
    assert len(outcome.errors) == 1 and "action=MarkNode" in outcome.errors[0]


# --- the converter ---------------------------------------------------------------------------


def convert(home: Path, converter: Converter) -> Outcome:
    request = a_request()
    actions: list[Action] = [StartConversion(request=request)]
    return apply(home, Kube(), converter, actions, requests=(request,))


def test_signal_ends_the_actions_and_the_next_run_requests_again(home: Path) -> None:
    kube, converter = Kube([BARE]), Converter()
    outcome = carry_out(home, kube, converter, _growing(), is_stopped=True)
    assert kube.nodes["a001"] == BARE and converter.calls == {}
    assert outcome.registry.requests == ()
    assert outcome.errors == ("ended by a signal: the next run continues here",)


@pytest.mark.parametrize(
    ("end", "has_failed"),
    [
        pytest.param(Ended(exit_code=0, names=("a050",)), False, id="succeeded"),
        pytest.param(Ended(exit_code=3, names=("a050",)), False, id="failed-with-a-name"),
        pytest.param(Ended(exit_code=3), True, id="failed"),
    ],
)
def test_end_of_a_conversion_is_recorded(home: Path, end: Ended, has_failed: bool) -> None:
    converter = Converter()
    converter.ends = {"r1": end}
    outcome = convert(home, converter)
    assert converter.recorded["r1"].requests == (a_request(),)  # before the converter started
    (ended,) = outcome.registry.requests
    assert ended.end and (ended.names, ended.is_abandoned) == (end.names, has_failed)
    assert ("a" in outcome.registry.backoffs) is has_failed
    assert bool(outcome.errors) is bool(end.error)


def test_converter_that_cannot_be_started_causes_a_back_off(home: Path) -> None:
    converter = Converter()
    converter.refuses = True
    outcome = convert(home, converter)
    assert outcome.registry.backoffs["a"].last_error == "it can't be started"


def test_long_running_converter_is_left_running(home: Path) -> None:
    converter = Converter()
    converter.ends = {"r1": Ended(left_running=True)}
    outcome = convert(home, converter)
    (left,) = outcome.registry.requests
    assert left.converter == PROCESS and left.end is None
    assert outcome.actions[-1] == "action=leave converter=r1 sentence='it is still at work'"


def test_hanging_converter_is_ended_and_reported(home: Path) -> None:
    converter, request = Converter(), a_request(converter=PROCESS)
    actions: list[Action] = [EndConverter(key="r1", process=PROCESS)]
    outcome = apply(home, Kube(), converter, actions, requests=(request,))
    assert converter.ended == [PROCESS] and outcome.registry.requests[0].is_abandoned
    assert "ran out of its time" in outcome.errors[0]


@pytest.mark.parametrize(
    ("node", "pods", "batch", "is_called"),
    [
        pytest.param(SHUT, [], {"a001": AWAY}, True, id="fenced-empty-and-away"),
        pytest.param(None, [], {"a001": AWAY}, True, id="missing-in-kubernetes"),
        pytest.param(OPEN, [], {"a001": AWAY}, False, id="not-fenced"),
        pytest.param(CORDONED, [], {"a001": AWAY}, False, id="an-admin's-cordon"),
        pytest.param(a_node(mark=FENCED), [], {"a001": AWAY}, False, id="uncordoned-manually"),
        pytest.param(SHUT, [POD], {"a001": AWAY}, False, id="a-pod-landed"),
        pytest.param(
            SHUT,
            [msgspec.structs.replace(POD, is_daemonset=True, owner="u1")],
            {"a001": AWAY},
            True,
            id="a-daemonset's-pod",
        ),
        pytest.param(
            SHUT,
            [msgspec.structs.replace(POD, is_daemonset=True, owner="u2")],
            {"a001": AWAY},
            False,
            id="a-pod-that-claims-to-be-one",
        ),
        pytest.param(SHUT, [], {"a001": a_batch_node()}, False, id="slurm-has-it"),
        pytest.param(SHUT, [], {}, False, id="slurm-does-not-know-it"),
        pytest.param(
            SHUT, [], {"a001": a_batch_node(in_service=None)}, False, id="slurm-can't-tell"
        ),
        pytest.param(SHUT, [], Unreadable(subject="x", error="mute"), False, id="slurm-is-mute"),
    ],
)
def test_return_checks_node_pods_and_slurm_before_the_converter_call(
    home: Path, node: Any, pods: list[Pod], batch: Any, is_called: bool
) -> None:
    kube, converter = Kube([node] if node else [], pods), Converter()
    converter.batch = batch
    kube.daemon_sets = (DaemonSet(namespace="dev", name="agent", uid="u1", shape=POD.shape),)
    nodes = {"a001": a_lent_node(Phase.RETURNING)}
    outcome = apply(home, kube, converter, [ReturnNode(node="a001")], nodes=nodes)
    entry = outcome.registry.nodes["a001"]
    assert (list(converter.calls) == ["a001"]) is is_called
    assert entry.returning.attempts == (1 if is_called else 0)
    if is_called:
        before = converter.recorded["a001"].nodes["a001"]
        call = before.returning
        assert call.attempts == 1 and call.retry_after is not None  # before the call
        assert converter.calls["a001"][1:] == ["--set", "batch", "--node-name", "a001"]


def test_failed_return_is_retried_after_a_delay(home: Path) -> None:
    kube, converter = Kube([SHUT]), Converter([AWAY])
    converter.ends = {"a001": Ended(exit_code=4, last_lines=("no power",))}
    nodes = {"a001": a_lent_node(Phase.RETURNING)}
    outcome = apply(home, kube, converter, [ReturnNode(node="a001")], nodes=nodes)
    entry = outcome.registry.nodes["a001"]
    call = entry.returning
    assert call.retry_after is not None and call.retry_after > NOW and not call.is_handed_over
    assert "exit code 4: no power" in entry.error and entry.error in outcome.errors[0]


def test_return_that_could_not_be_started_backs_off_with_its_cause(home: Path) -> None:
    """Once, dnm waited for as long as a return takes, and three failures had no cause."""
    converter = Converter([AWAY])
    converter.refuses = True
    nodes = {"a001": a_lent_node(Phase.RETURNING, attempts=2)}
    outcome = apply(home, Kube([SHUT]), converter, [ReturnNode(node="a001")], nodes=nodes)
    entry = outcome.registry.nodes["a001"]
    assert entry.error == "it can't be started" and entry.converter is None
    assert entry.returning.retry_after == NOW + backoff_delay(a_config(home), 3)
