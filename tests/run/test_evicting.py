"""Tests of evictions: each pod once, never by force, and only while dnm has fenced the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.model.cluster import PodOnNode
from dnm.model.departure import Eviction, Leaving
from dnm.model.node import Node
from dnm.model.plan import EvictPods, Outcome, Plan
from dnm.model.pod import DaemonSet
from dnm.model.registry import Registry
from dnm.run.actuator import Actuator
from dnm.run.rare_actions import EvictionResult, evict_pods
from dnm.run.registry import file_state
from tests.builders import FENCED, NOW, a_config, a_lent_node, a_node
from tests.plan.worlds import pods
from tests.run.edges import Converter, Kube

SHUT = a_node(is_cordoned=True, mark=FENCED)
LEAVING = a_lent_node(leaves=Leaving.MANUAL, eviction=Eviction(since=NOW, evicted=2))


def a_pod(name: str, **changes: Any) -> PodOnNode:
    fields: dict[str, Any] = {"namespace": "dev", "name": name, "uid": name, "stays": False}
    return PodOnNode(**{**fields, "is_terminating": False, **changes})


def on_a001(*pods: PodOnNode) -> Kube:
    kube = Kube([SHUT])
    kube.on_nodes = [("a001", pod) for pod in pods]
    return kube


def evict(home: Path, kube: Kube, entry: Any = LEAVING) -> Outcome:
    home.chmod(0o755)
    config = a_config(home)
    state = file_state(config)
    actuator = Actuator(config, (kube, Converter()), state, lambda: False, lambda: NOW)
    registry = Registry(nodes={"a001": entry})
    return actuator.apply_plan(Plan(registry=registry, actions=(EvictPods(node="a001"),)))


@pytest.mark.parametrize(
    ("pods", "evicted", "expected"),
    [
        pytest.param([a_pod("p"), a_pod("q")], ["p", "q"], EvictionResult(evicted=2), id="all"),
        pytest.param([a_pod("p", is_terminating=True)], [], EvictionResult(), id="on-its-way"),
        pytest.param(
            [a_pod("p", stays=True, is_work=False)], [], EvictionResult(), id="a-daemonset-s"
        ),
        pytest.param(
            [a_pod("p", stays=True), a_pod("q")],
            ["q"],
            EvictionResult(evicted=1, reason="dev/p is of a NodeSet and is never evicted"),
            id="a-slurmd",
        ),
        pytest.param(
            [a_pod("p", loss="no controller")], ["p"], EvictionResult(evicted=1), id="alone"
        ),
        pytest.param(
            [a_pod("no"), a_pod("p"), a_pod("no2")],
            ["p"],
            EvictionResult(
                evicted=1, reason="dev/no is not evicted: its budget says no; and 1 more"
            ),
            id="budgets",
        ),
        pytest.param(
            [a_pod("bad"), a_pod("p"), a_pod("bad")],
            ["p"],
            EvictionResult(
                evicted=1,
                reason="evict bad: 403 Forbidden; and 1 more",
                errors=("evict bad: 403 Forbidden",) * 2,
            ),
            id="failures",
        ),
    ],
)
def test_eviction_skips_terminating_daemon_and_protected_pods(
    pods: list[PodOnNode], evicted: list[str], expected: EvictionResult
) -> None:
    kube = on_a001(*pods)
    kube.budgets, kube.refuses = {"no", "no2"}, {"evict bad"}
    assert evict_pods(kube, SHUT, lambda: True) == expected and kube.evicted == evicted


def test_unanswered_evictions_stop_after_three_errors() -> None:
    kube = on_a001(*[a_pod("bad") for _ in range(20)], a_pod("p"))
    kube.refuses = {"evict bad"}
    assert len(evict_pods(kube, SHUT, lambda: True).errors) == 3 and not kube.evicted


def test_signal_ends_evictions_between_two_pods() -> None:
    answers = iter([True, False])
    kube = on_a001(a_pod("p"), a_pod("q"), a_pod("r"))
    assert evict_pods(kube, SHUT, lambda: next(answers)).evicted == 1


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(a_node(), id="not-cordoned"),
        pytest.param(a_node(is_cordoned=True), id="an-administrator-s-cordon"),
        pytest.param(a_node(mark=FENCED), id="uncordoned-manually"),
        pytest.param(None, id="missing"),
    ],
)
def test_no_pod_is_evicted_without_the_fence_of_dnm(tmp_path: Path, node: Node | None) -> None:
    kube = on_a001(a_pod("p"))
    kube.nodes = {"a001": node} if node else {}
    outcome = evict(tmp_path, kube)
    assert kube.evicted == [] and not outcome.actions and not outcome.errors


def test_result_of_evictions_is_recorded_and_logged(tmp_path: Path) -> None:
    kube = on_a001(a_pod("p"), a_pod("no"))
    kube.budgets = {"no"}
    outcome = evict(tmp_path, kube)
    why = "dev/no is not evicted: its budget says no"
    entry = outcome.registry.nodes["a001"]
    assert entry.eviction == Eviction(since=NOW, evicted=3, reason=why)
    assert outcome.actions == (f"action=evict node=a001 pods=1 queue={entry.queue}",)
    (line,) = outcome.registry.memory.unwritten
    assert (line.event, line.reason, line.numbers) == ("evicting", why, {"evicted": 1})
    # dnm reports a budget that keeps refusing once, and not as an error.
    kube.on_nodes = [("a001", a_pod("no"))]
    again = evict(tmp_path, kube, entry)
    assert not again.actions and not again.errors and not again.registry.memory.unwritten


def test_eviction_without_refusals_records_a_reason(tmp_path: Path) -> None:
    (line,) = evict(tmp_path, on_a001(a_pod("p"))).registry.memory.unwritten
    assert (line.event, line.reason) == (
        "evicting", "its pods were evicted, and no eviction was refused",
    )  # fmt: skip


@pytest.mark.parametrize("refused", ["pods on a001", "evict p"])
def test_eviction_that_cannot_be_requested_is_an_error_of_the_run(
    tmp_path: Path, refused: str
) -> None:
    kube = on_a001(a_pod("p"))
    kube.refuses = {refused}
    outcome = evict(tmp_path, kube)
    assert len(outcome.errors) == 1 and "action=EvictPods node=a001" in outcome.errors[0]
    assert not outcome.actions


@pytest.mark.parametrize(("uid", "evicted"), [("u1", []), ("forged", ["x"])])
def test_pod_that_pretends_to_be_of_a_daemon_set_is_evicted(uid: str, evicted: list[str]) -> None:
    kube = on_a001(a_pod("x", is_work=False, stays=True))
    (item,) = pods(1, node="a001", is_daemonset=True, owner=uid)
    pod = msgspec.structs.replace(item, uid="x")
    kube.pods = (pod,)
    kube.daemon_sets = (DaemonSet(namespace="dev", name="agent", uid="u1", shape=pod.shape),)
    evict_pods(kube, SHUT, lambda: True)
    assert kube.evicted == evicted
