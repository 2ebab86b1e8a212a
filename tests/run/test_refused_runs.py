"""Tests of a run with a registry that lost the Lease: the actions that it omits or still does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.errors import ExitCode, LockedError
from dnm.model.history import HistoryLine, Memory
from dnm.model.lease import ActingElsewhere, Lease
from dnm.model.lent import Ended, LentNode, Phase
from dnm.model.orders import Pause
from dnm.model.plan import Pass
from dnm.model.registry import Registry
from dnm.run.planning import make_pass_plan
from dnm.run.registry import attach_lease, file_state, load_registry, save_registry
from dnm.run.runner import run_pass
from tests.builders import FENCED, NOW, a_batch_node, a_config, a_lent_node, a_node, a_request
from tests.plan.worlds import pods, queue_map
from tests.run.edges import PROCESS, Converter, Kube

HOUR = timedelta(hours=1)
FOREIGN = Lease(
    version="7", number=3, registry="theirs", last="mgmt9:/dnm/nodes.json", acted=NOW - HOUR
)
ELSEWHERE = ActingElsewhere(holder="mgmt9:/dnm/nodes.json", at=NOW - HOUR)
LONG_AGO = NOW - timedelta(hours=9)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    tmp_path.chmod(0o755)
    return a_config(tmp_path, pending_grace=timedelta(0))


def cluster(*, leased: bool = False) -> tuple[Kube, Converter]:
    """Builds a cluster in which every action is due: pods wait, a Node lacks the mark, one is to be
    fenced, one to be returned. With `leased`, another registry has the Lease."""
    nodes = [
        a_node("k1", mark=None, labels={}, allocatable={"cpu": 1, "pods": 1}),
        a_node("a001", mark=None),
        a_node("a002", mark=FENCED, is_cordoned=True),
    ]
    kube = Kube(nodes, pods(9))
    kube.queues = queue_map({"a009": {"cpu": 128_000}})
    if leased:
        kube.leases.stored = FOREIGN
    batch = [a_batch_node(f"a{number:03}") for number in range(50, 60)]
    batch += [a_batch_node(name, in_service=False) for name in ("a001", "a002")]
    return kube, Converter(batch)


def lent() -> dict[str, LentNode]:
    return {
        "a001": a_lent_node(was_used=True),
        "a002": a_lent_node(Phase.RETURNING, counted={}, since=LONG_AGO),
    }


def run(config: Config, kube: Kube, converter: Converter) -> Pass:
    return run_pass(config, {}, lambda: False, lambda: NOW, lambda *_: (kube, converter))


def test_accepted_registry_does_all_its_actions(config: Config) -> None:
    save_registry(config, Registry(nodes=lent()))
    kube, converter = cluster()
    done = run(config, kube, converter).outcome
    assert done is not None and not done.errors
    words = {line.split()[0].removeprefix("action=") for line in done.actions}
    assert words >= {"mark", "set-limit", "convert", "return"}
    assert (kube.leases.stored.registry,) == done.registry.lease_words
    assert kube.leases.stored.holder == ""


def test_refused_run_changes_nothing(config: Config) -> None:
    before = Registry(nodes=lent())
    save_registry(config, before)
    kube, converter = cluster(leased=True)
    nodes = dict(kube.nodes)
    result = run(config, kube, converter)
    assert result.exit_code == ExitCode.NEEDS_PERSON
    assert (kube.nodes, converter.calls) == (nodes, {})
    assert kube.queues == cluster(leased=True)[0].queues
    after = load_registry(config, NOW)
    assert after.elsewhere == ELSEWHERE and kube.leases.stored == FOREIGN
    assert (after.nodes, after.requests, after.memory.unwritten) == (before.nodes, (), ())
    (error,) = after.last_run.errors
    assert "mgmt9:/dnm/nodes.json" in error and str(config.state_dir) in error
    assert after.last_run.actions == ()
    assert not any("requested" in path.read_text() for path in config.state_dir.glob("*.jsonl"))


def test_refused_run_ends_its_hanging_converters_and_starts_none(config: Config) -> None:
    """These converters are processes of this host, so no other host can end them."""
    hanging = a_request(since=LONG_AGO, converter=PROCESS)
    save_registry(config, Registry(nodes=lent(), requests=(hanging,)))
    kube, converter = cluster(leased=True)
    converter.still_running = lambda processes: frozenset(processes)  # type: ignore[method-assign]
    converter.ends["r1"] = Ended(exit_code=None)
    result = run(config, kube, converter)
    assert converter.ended == [PROCESS] and converter.calls == {}
    assert result.exit_code == ExitCode.NEEDS_PERSON


def test_plan_of_a_refused_registry_reports_it_and_writes_nothing(config: Config) -> None:
    before = Registry(nodes=lent())
    save_registry(config, before)
    kube, converter = cluster(leased=True)
    current = kube.queues
    state = file_state(config)
    attach_lease(config, state, kube)
    plan, _ = make_pass_plan(config, lambda: NOW, lambda: (kube, converter), state)
    assert plan.actions == () and plan.needs_person and "mgmt9" in plan.errors[0]
    assert kube.queues == current and load_registry(config, NOW) == before


def test_run_that_loses_the_race_for_the_lease_changes_nothing(
    config: Config,
) -> None:
    """The API server refuses the write of the Lease. The next run reads which registry acts."""
    save_registry(config, Registry(nodes=lent()))
    kube, converter = cluster()
    nodes = dict(kube.nodes)
    kube.leases.meanwhile = lambda: setattr(kube.leases, "stored", FOREIGN)
    with pytest.raises(LockedError):
        run(config, kube, converter)
    assert (kube.nodes, converter.calls) == (nodes, {})
    assert run(config, kube, converter).exit_code == ExitCode.NEEDS_PERSON


@pytest.mark.parametrize("word", ["read lease", "write lease"])
def test_missing_lease_permission_stops_actions_and_is_named(config: Config, word: str) -> None:
    before = Registry(nodes=lent())
    save_registry(config, before)
    kube, converter = cluster()
    kube.refuses.add(word)
    nodes = dict(kube.nodes)
    result = run(config, kube, converter)
    assert result.exit_code == ExitCode.FAILED and f"{word}: 403" in str(result.outcome)
    assert (kube.nodes, converter.calls) == (nodes, {})
    after = load_registry(config, NOW)
    assert after.nodes == before.nodes
    kube.refuses.clear()
    assert run(config, kube, converter).exit_code == ExitCode.OK


def test_run_without_actions_writes_no_lease(config: Config) -> None:
    kube, converter = Kube([a_node("k1", mark=None)]), Converter()
    kube.refuses.add("write lease")
    assert run(config, kube, converter).exit_code == ExitCode.OK
    assert (kube.leases.reads, kube.leases.writes) == (1, 0)


def test_pause_is_stored_in_the_lease_once(config: Config) -> None:
    save_registry(config, Registry(pause=Pause(since=NOW, reason="s3cret")))
    kube, converter = Kube([a_node("k1", mark=None)]), Converter()
    for _ in range(3):
        assert run(config, kube, converter).exit_code == ExitCode.OK
    assert kube.leases.writes == 2 and kube.leases.stored.kept
    assert "s3cret" not in str(kube.leases.stored)


def test_refused_run_does_not_log_intentions_of_a_killed_run(config: Config) -> None:
    line = HistoryLine(
        schema=1, number=1, time=NOW, run="r", instance="prod", kind="limit", event="changed",
        object="root.q", before="max vcore 1",
    )  # fmt: skip
    save_registry(config, Registry(memory=Memory(intended=(line,), last_number=1)))
    kube, converter = cluster(leased=True)
    run(config, kube, converter)
    assert load_registry(config, NOW).memory.intended == (line,)


def test_registry_that_acts_again_forgets_the_other_place(config: Config) -> None:
    save_registry(config, Registry(lease_words=("mine",), elsewhere=ELSEWHERE))
    kube, converter = Kube([a_node("k1", mark=None)]), Converter()
    kube.leases.stored = replace(FOREIGN, registry="mine")
    assert run(config, kube, converter).exit_code == ExitCode.OK
    assert load_registry(config, NOW).elsewhere is None
