"""The steps of a run: lock, plan, actions, record. The part before the actions is in `planning.py`,
which takes no lock and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from dnm.kube.client import KubeClient
from dnm.kube.events import send_events
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode, KubeError, LeaseError, LockedError
from dnm.model.lease import Lease
from dnm.model.plan import Outcome, Pass, Plan
from dnm.model.printable import count_of
from dnm.model.registry import Registry, RunRecord
from dnm.plan.lease import needs_lease
from dnm.record.events import list_events
from dnm.record.lasting import judge_errors
from dnm.record.metrics import RunTimes
from dnm.run.actuator import Actuator, log_line
from dnm.run.lock import run_lock
from dnm.run.planning import (
    Connect,
    Edges,
    at_place,
    connect,
    exit_code_of,
    make_pass_plan,
    wall_clock,
)
from dnm.run.publish import publish_failure, publish_run
from dnm.run.recorded import (
    fix_history_access,
    history_path,
    mark_begin,
    mark_end,
    open_history,
    read_last_run,
)
from dnm.run.registry import load_registry, save_registry
from dnm.run.state import State
from dnm.run.step import Clock

AtOnce: TypeAlias = Callable[[], AbstractContextManager[None]]


def run_pass(
    config: Config,
    environ: Mapping[str, str],
    should_stop: Callable[[], bool],
    clock: Clock = wall_clock,
    connect: Connect = connect,
    at_once: AtOnce = nullcontext,
) -> Pass:
    """Executes one run under the lock. Inside a context of `at_once`, a signal ends the run at once
    with StoppedError. Elsewhere the run ends between two steps if `should_stop` returns True."""
    with run_lock(config):
        began = clock()
        try:
            with at_place(config, environ, connect) as (state, edges):
                look = _Look(edges, at_once, clock)
                result, times = _locked_pass(config, state, look, should_stop)
        except LockedError:
            mark_end(config)  # it waited
            raise
        except DnmError as error:
            publish_failure(config, error.exit_code, began)
            raise
        if result.outcome is not None and config.metrics_file is not None:
            publish_run(config, result.outcome.registry, times)
        return result


class _Look(NamedTuple):
    """The functions with which a run reads its clock, connects, and ends at once on a signal."""

    connect: Callable[[], Edges]
    at_once: AtOnce
    clock: Clock


def _locked_pass(
    config: Config, state: State, look: _Look, should_stop: Callable[[], bool]
) -> tuple[Pass, RunTimes]:
    clock = look.clock
    ended_before = read_last_run(config).ended
    mark_begin(config)
    with look.at_once():
        state.stand_by()
        moments = [clock()]
        follow = partial(_follow_run, config, state, moments[0])
        plan, edges = make_pass_plan(config, clock, look.connect, state, prepare=follow)
    moments.append(clock())
    outcome, reading = Outcome(registry=plan.registry), None
    if edges is not None:
        reading = edges[0].keep()
        plan = _with_lease(config, state, plan, edges[0], clock)
        if plan.actions:
            outcome = Actuator(config, edges, state, should_stop, clock).apply_plan(plan)
        else:
            save_registry(config, plan.registry, state)
            edges[1].read_earlier_output(log_line)
            outcome = Outcome(registry=plan.registry)
        edges[1].forget_output(outcome.registry.open_calls)
        if reading.trouble:  # a watch omitted an event
            errors = (*outcome.errors, reading.trouble)
            outcome = msgspec.structs.replace(outcome, errors=errors)
    moments.append(clock())
    outcome = _write_history(config, state, outcome, clock())
    if config.demand_keep:
        from dnm.run.demand_record import record_demand  # few sites record it

        outcome = record_demand(config, plan, outcome, clock())
    exit_code = exit_code_of(plan, outcome)
    outcome = _record(state, config, plan, outcome, exit_code, (clock(), ended_before))
    if edges is not None and (outcome.history or plan.waiting):
        events = list_events(outcome.history, plan.waiting, plan.uids, moments[0])
        notes = send_events(edges[0].create_event, events)
        outcome = msgspec.structs.replace(outcome, notes=notes)
    moments.append(clock())
    times = msgspec.structs.replace(_run_times(outcome, moments), reading=reading)
    return Pass(plan=plan, exit_code=exit_code, outcome=outcome), times


def _follow_run(
    config: Config, state: State, now: datetime, registry: Registry, kube: KubeClient
) -> Registry:
    """Takes the Lease if the previous run did not release it, before this run reads the cluster."""
    lease = state.observe()
    if not (isinstance(lease, Lease) and lease.holder):
        return registry
    from dnm.run.lease import follow_run  # the previous run was killed, or is asleep

    return follow_run(config, state, now, registry, kube)


def _with_lease(config: Config, state: State, plan: Plan, kube: KubeClient, clock: Clock) -> Plan:
    """Takes the Lease. Returns the plan, or one without actions if another run or registry acts."""
    if state.number or not needs_lease(plan):
        return plan
    from dnm.plan.refusal import refuse_plan  # most runs have nothing to do
    from dnm.run.lease import take_lease

    before = load_registry(config, clock(), state)  # the plan's registry is not saved yet
    try:
        taken = take_lease(config, state, before, kube, clock())
    except (LeaseError, KubeError) as error:
        refused = refuse_plan(plan, load_registry(config, clock(), state), str(error))
        return msgspec.structs.replace(refused, needs_person=isinstance(error, LeaseError))
    registry = msgspec.structs.replace(plan.registry, lease_words=taken.lease_words)
    return msgspec.structs.replace(plan, registry=registry)


def _run_times(outcome: Outcome, moments: Sequence[datetime]) -> RunTimes:
    """Returns start, end and durations of a run. `moments`: when it began, when each part ended."""
    parts = zip(("plan", "act", "record"), moments, moments[1:], strict=False)
    run = outcome.registry.last_run
    return RunTimes(
        began=moments[0],
        ended=moments[-1],
        succeeded=moments[-1] if run.has_succeeded else run.succeeded_at,
        parts={part: (end - begin).total_seconds() for part, begin, end in parts},
    )


def _write_history(config: Config, state: State, outcome: Outcome, now: datetime) -> Outcome:
    """Writes the history lines that the registry keeps. The next run repeats a failed write."""
    lines = outcome.registry.memory.unwritten
    try:
        if not lines:
            fix_history_access(config)
            return outcome
        # The registry is saved first, so that a run after a kill does not use their numbers again.
        save_registry(config, outcome.registry, state)
        written = open_history(config).append(lines, now)
    except OSError as error:
        left = f"{count_of(len(lines), 'line')} not written yet; " if lines else ""
        from dnm.run.demand_record import with_trouble

        return with_trouble(outcome, f"the history {history_path(config)}", error, left)
    from dnm.record.recording import without_written

    registry = without_written(outcome.registry, lines)
    return msgspec.structs.replace(outcome, registry=registry, history=written)


def _record(
    state: State,
    config: Config,
    plan: Plan,
    outcome: Outcome,
    exit_code: int,
    ended: tuple[datetime, datetime | None],
) -> Outcome:
    """Saves the results of this run in the registry, for `dnm status`. `ended` contains the end of
    this run and that of the previous one."""
    before = outcome.registry.last_run
    failed_since = ended[1] if before.has_succeeded else before.succeeded_at
    errors = (*plan.errors, *outcome.errors)
    record: RunRecord = msgspec.structs.replace(
        before,
        exit_code=exit_code,
        failed_nodes_alone=exit_code == ExitCode.FAILED
        and not (plan.other_errors or outcome.errors),
        acted_at=ended[0] if outcome.actions else before.acted_at,
        actions=outcome.actions or before.actions,
        errors=errors,
        notes=plan.notes,
        queues=plan.status,
        nodes={verdict.node: verdict.sentence for verdict in plan.nodes},
        codes={verdict.node: verdict.reason.name for verdict in plan.nodes},
        pods=dict(plan.pods),
        succeeded_at=None,
        waiting_jobs=plan.waiting_jobs,
        batch_nodes=before.batch_nodes if config.has_shares else {},
        unwritten=outcome.unwritten,
    )
    if not record.has_succeeded:
        record = msgspec.structs.replace(record, succeeded_at=failed_since)
    memory = outcome.registry.memory
    if errors or memory.lasting:
        news = judge_errors(memory.lasting, errors, ended[0])
        memory = msgspec.structs.replace(memory, lasting=news.lasting)
        outcome = msgspec.structs.replace(outcome, new_errors=news.said, over=news.over)
    registry: Registry = msgspec.structs.replace(outcome.registry, last_run=record, memory=memory)
    save_registry(config, registry, state)
    mark_end(config)
    return msgspec.structs.replace(outcome, registry=registry)
