"""Tests of a whole run: its writes, the objects that it leaves unchanged, its exit code."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.errors import ExitCode, KubeError
from dnm.model.lent import Ended, Phase
from dnm.model.orders import Pause
from dnm.model.plan import Pass
from dnm.model.registry import Registry
from dnm.plan.rules.node_hours import hours_left
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from dnm.run.planning import make_pass_plan, wall_clock
from dnm.run.registry import attach_lease, file_state, load_registry, save_registry
from dnm.run.runner import run_pass
from dnm.run.verbs import change_registry
from dnm.verbs.adoption import forget
from tests.builders import NOW, a_batch_node, a_config, a_lent_node, a_node, struck_at
from tests.plan.worlds import LONG_AGO, namespace_policy, pods
from tests.proof.history_check import check_history
from tests.run.edges import Converter, Kube


@pytest.fixture
def config(tmp_path: Path) -> Config:
    tmp_path.chmod(0o755)
    return a_config(tmp_path, pending_grace=timedelta(0))


def run(
    config: Config, kube: Kube, converter: Converter, at: datetime = NOW, stop: bool = False
) -> Pass:
    return run_pass(config, {}, lambda: stop, lambda: at, lambda *_: (kube, converter))


def cluster(count: int = 0) -> tuple[Kube, Converter]:
    """Builds a full permanent node, pods that wait, and available batch nodes."""
    own = a_node("k1", mark=None, labels={}, allocatable={"cpu": 1, "pods": 1})
    batch = [a_batch_node(f"a{number:03}") for number in range(50, 60)]
    return Kube([own], pods(count)), Converter(batch)


def test_second_idle_run_rewrites_nothing(config: Config) -> None:
    kube, converter = cluster()
    first = run(config, kube, converter)
    assert (first.exit_code, first.plan.actions) == (ExitCode.OK, ())
    content = config.converted_nodes_path.read_bytes()
    inode = config.converted_nodes_path.stat().st_ino
    run(config, kube, converter, NOW + timedelta(minutes=1))
    assert config.converted_nodes_path.read_bytes() == content
    assert config.converted_nodes_path.stat().st_ino == inode


def test_observations_and_actions_of_a_run_are_recorded(config: Config) -> None:
    kube, converter = cluster(count=2)
    result = run(config, kube, converter)
    recorded = load_registry(config, NOW)
    assert result.outcome is not None
    assert recorded.requests == result.outcome.registry.requests != ()
    assert recorded.last_run.acted_at == NOW
    assert [line.split()[0] for line in recorded.last_run.actions] == ["action=convert"]
    assert recorded.last_run.queues == result.plan.status


def test_planning_writes_nothing(config: Config) -> None:
    kube, converter = cluster(count=2)
    state = file_state(config)
    attach_lease(config, state, kube)
    plan, _ = make_pass_plan(config, lambda: NOW, lambda: (kube, converter), state)
    assert plan.actions and converter.calls == {}
    assert list(config.state_dir.iterdir()) == []


def _unreachable(*_: object) -> tuple[Kube, Converter]:
    raise KubeError("no route to the API server")


def test_unreachable_cluster_is_an_error_without_changes(config: Config) -> None:
    before = Registry(nodes={"a001": a_lent_node()})
    save_registry(config, before)
    result = run_pass(config, {}, lambda: False, lambda: NOW, _unreachable)
    assert result.exit_code == ExitCode.FAILED
    assert "no route to the API server" in result.plan.errors
    assert load_registry(config, NOW).nodes["a001"].phase is Phase.SERVING


def test_run_killed_after_its_history_reuses_no_number(
    config: Config,
) -> None:
    """A kill after the history and before the registry must not reuse the numbers of lines."""
    with struck_at("history.append", "after", KeyboardInterrupt()):
        run_pass(config, {}, lambda: False, lambda: NOW, _unreachable)
    later = NOW + timedelta(minutes=1)
    run_pass(config, {}, lambda: False, lambda: later, _unreachable)
    assert check_history(config.converted_nodes_path)


@pytest.mark.parametrize(
    ("exit_code", "end"),
    [
        pytest.param(ExitCode.OK, Ended(exit_code=0), id="converged"),
        pytest.param(ExitCode.FAILED, Ended(exit_code=3), id="an-action-failed"),
    ],
)
def test_exit_code_reports_a_failed_action(config: Config, exit_code: ExitCode, end: Ended) -> None:
    kube, converter = cluster(count=1)
    converter.listen = lambda *_: dict.fromkeys(converter.calls, end)  # type: ignore[method-assign]
    assert run(config, kube, converter).exit_code == exit_code


def test_failed_node_is_an_error_until_resolved_and_stops_no_run(config: Config) -> None:
    """dnm reports the failure once, however often runs follow, and its end once. The runs do all
    other actions."""
    kube, converter = cluster()
    error = "a001 is not back in Slurm: 3 of 3 attempts failed: no power"
    failed = a_lent_node(Phase.FAILED, since=NOW, error=error)
    save_registry(config, Registry(nodes={"a001": failed}))
    message = []
    for minute in range(5):
        if minute == 3 and isinstance(converter.batch, dict):  # an administrator has returned it
            converter.batch["a001"] = a_batch_node("a001")
        result = run(config, kube, converter, NOW + timedelta(minutes=minute))
        assert result.outcome is not None
        run_record = result.outcome.registry.last_run
        message.append((result.exit_code, *result.outcome.new_errors, *result.outcome.over))
        assert run_record.has_succeeded and run_record.succeeded_at is None
    assert message == [(1, error), (1,), (1,), (0, f"resolved after 3 min: {error}"), (0,)]


def test_run_that_fails_beside_a_failed_node_is_not_successful(config: Config) -> None:
    save_registry(config, Registry(nodes={"a001": a_lent_node(Phase.FAILED, error="it is dead")}))
    result = run_pass(config, {}, lambda: False, lambda: NOW, _unreachable)
    assert result.outcome is not None and not result.outcome.registry.last_run.has_succeeded


def test_exit_code_reports_a_document_that_needs_an_administrator(config: Config) -> None:
    kube, converter = cluster()
    assert kube.queues is not None
    kube.queues = replace(kube.queues, annotations={LEDGER_ANNOTATION: '{"version": 2}'})
    assert run(config, kube, converter).exit_code == ExitCode.NEEDS_PERSON


def test_manual_change_keeps_the_time_of_the_last_run(config: Config) -> None:
    run(config, *cluster())
    path = config.ended_path
    os.utime(path, (1_000_000, 1_000_000))
    paused = Pause(since=NOW)
    assert change_registry(config, lambda registry: _paused(registry, paused))
    assert load_registry(config, NOW).pause == paused
    assert path.stat().st_mtime == 1_000_000
    assert not change_registry(config, lambda registry: registry)


def test_hours_of_a_forgotten_node_are_counted(config: Config) -> None:
    options = {"node_hours_per_week": 200.0}
    config = replace(config, namespaces=namespace_policy(config, options=options))
    save_registry(config, Registry(nodes={"a001": a_lent_node(lent_since=LONG_AGO)}))
    before = hours_left(config, load_registry(config, NOW), wall_clock())
    assert change_registry(
        config, lambda registry: cast(Registry, forget(config, registry, "a001", None))
    )
    after = load_registry(config, NOW)
    assert not after.nodes
    assert hours_left(config, after, wall_clock()) == pytest.approx(before, abs=0.1)


def _paused(registry: Registry, pause: Pause) -> Registry:
    changed: Registry = replace(registry, pause=pause)
    return changed


@pytest.mark.parametrize("is_at_work", [True, False], ids=["left-at-work", "ended"])
def test_output_of_running_converters_only_is_kept(config: Config, is_at_work: bool) -> None:
    kube, converter = cluster(count=1)
    end = Ended(left_running=True) if is_at_work else Ended(exit_code=0)
    converter.listen = lambda *_: dict.fromkeys(converter.calls, end)  # type: ignore[method-assign]
    run(config, kube, converter)
    assert converter.calls and converter.kept == (list(converter.calls) if is_at_work else [])
