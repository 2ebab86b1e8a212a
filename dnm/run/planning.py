"""The part of a run up to its plan: registry, snapshot, plan. This module writes nothing: `dnm
plan` stops here, and a run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

import msgspec

from dnm.converter.node_convert import NodeConvert
from dnm.converter.processes import is_identified
from dnm.host.collection import without_collection
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.errors import ExitCode, KubeError
from dnm.model.plan import Outcome, Plan, Snapshot
from dnm.model.reason import Reason
from dnm.model.registry import Registry, run_name
from dnm.model.value import Unreadable
from dnm.model.verdict import QueueVerdict
from dnm.plan.lease import find_traces, judge_actor
from dnm.plan.planner import make_plan
from dnm.plan.rule import has_events, rules_of
from dnm.record.transitions import Cause
from dnm.run.recorded import unseen_since
from dnm.run.registry import attach_lease, file_state, load_registry, state_in
from dnm.run.snapshot import nothing_readable, take_snapshot, with_batch_nodes
from dnm.run.state import State

Edges: TypeAlias = tuple[KubeClient, NodeConvert]
Prepare: TypeAlias = Callable[[Registry, KubeClient], Registry]
Connect: TypeAlias = Callable[[Config, Mapping[str, str]], Edges]


def connect(config: Config, environ: Mapping[str, str]) -> Edges:
    """Returns the client of the Kubernetes API and that of the converter. Raises KubeError."""
    reflector = None
    if config.store_path.exists():
        from dnm.kube.reflector import Reflector  # with the store of an earlier run

        reflector = Reflector(config, wall_clock())
    return KubeClient.connect(config, reflector), NodeConvert(config, environ)


@contextmanager
def at_place(
    config: Config, environ: Mapping[str, str], connect: Connect
) -> Iterator[tuple[State, Callable[[], Edges]]]:
    """Yields the storage of the registry, and a function that connects to Kubernetes and the
    converter. Connects at once if the registry is in Kubernetes. Raises KubeError."""
    if config.registry_storage == "file":
        state: State = file_state(config)
        connect_once: Callable[[], Edges] = partial(
            _connect_to_lease, config, state, partial(connect, config, environ)
        )
    else:
        edges = connect(config, environ)
        state, connect_once = state_in(config, edges[0]), lambda: edges
    try:
        yield state, connect_once
    finally:
        if state.number:
            state.end()


def _connect_to_lease(config: Config, state: State, connect: Callable[[], Edges]) -> Edges:
    edges = connect()
    attach_lease(config, state, edges[0])
    return edges


def wall_clock() -> datetime:
    """Returns the present time. It is the default clock of a run."""
    return datetime.now(UTC)


@without_collection()
def make_pass_plan(
    config: Config,
    clock: Callable[[], datetime],
    connect: Callable[[], Edges],
    state: State,
    events_at: datetime | None = None,
    prepare: Prepare | None = None,
) -> tuple[Plan, Edges | None]:
    """Returns the plan with the history of its changes, and the clients (None if Kubernetes cannot
    be reached). Writes nothing. Events count as at the time `events_at`, or now. `prepare` is
    called after the connection and returns the registry that the plan starts from."""
    before, registry, facts, edges = look(config, clock, connect, state, events_at, prepare)
    plan = make_plan(config, registry, facts)
    if edges is not None and needs_batch_nodes(facts, plan.queues):
        facts = with_batch_nodes(facts, edges[1])
        plan = make_plan(config, registry, facts)
    return _telling(config, before, _with_loss(plan), facts), edges


def needs_batch_nodes(facts: Snapshot, verdicts: Iterable[QueueVerdict]) -> bool:
    """Returns whether a queue needs a node but the nodes of Slurm were not read."""
    return facts.batch is None and any(
        verdict.reason is Reason.BATCH_NOT_ASKED for verdict in verdicts
    )


def look(
    config: Config,
    clock: Callable[[], datetime],
    connect: Callable[[], Edges],
    state: State,
    events_at: datetime | None = None,
    prepare: Prepare | None = None,
) -> tuple[Registry, Registry, Snapshot, Edges | None]:
    """Reads the inputs of a plan. Returns the recorded registry, that registry with the current
    state of converters and calendars, the snapshot, and the clients. Reads the Lease first: if the
    run can later take the Lease in that version, no other run has acted meanwhile."""
    taken_at = clock()
    recorded = load_registry(config, taken_at, state)
    registry = recorded
    if has_events(config, recorded):
        from dnm.run.calendars import read_calendars  # few sites have calendars

        registry = read_calendars(config, recorded)
    edges: Edges | None = None
    try:
        edges = connect()
        if prepare is not None:
            registry = prepare(registry, edges[0])
        lease = state.observe()
        registry = _find_converters(registry, edges[1])
        wants = config
        rules = rules_of(config, registry)
        for rule in rules:
            wants = rule.wants(wants, registry, events_at or taken_at) if rule.wants else wants
        facts = take_snapshot(wants, registry, edges[0], edges[1], taken_at)
        facts = msgspec.structs.replace(facts, lease=lease)
        traces = find_traces(config, registry, facts)
        if traces and not judge_actor(config, registry, facts).refusal:
            from dnm.plan.lost_registry import replace_lost  # it happens once, if ever

            recorded = registry = replace_lost(registry, facts, traces)
        nodes = () if isinstance(facts.nodes, Unreadable) else facts.nodes
        looks = [rule.looks_at(config, registry, nodes) for rule in rules if rule.looks_at]
        if asked := [request for look in looks for request in look]:
            from dnm.kube.opening import look_closely

            facts = msgspec.structs.replace(facts, close=look_closely(edges[0].requests, asked))
    except KubeError as error:
        why = Unreadable(subject="the Kubernetes API", error=str(error))
        facts = nothing_readable(why, taken_at)
    facts = msgspec.structs.replace(facts, events_at=events_at)
    return recorded, registry, facts, edges


def _with_loss(plan: Plan) -> Plan:
    """Returns the plan, with an error until an administrator confirms the loss of a registry."""
    pause = plan.registry.pause
    if pause is None or not pause.is_after_loss:
        return plan
    errors, rest = (*plan.errors, pause.reason), (*plan.other_errors, pause.reason)
    return msgspec.structs.replace(plan, errors=errors, other_errors=rest, needs_person=True)


def _telling(config: Config, registry: Registry, plan: Plan, facts: Snapshot) -> Plan:
    cause = Cause(
        now=facts.taken_at,
        run=run_name(facts.taken_at),
        instance=config.instance_id,
        nodes={verdict.node: verdict for verdict in plan.nodes},
        decisions=plan.decisions,
        adopted=plan.adopted,
        limit_news=plan.limit_news,
        request_errors=plan.request_errors,
        unseen_since=unseen_since(config, wall_clock()),
    )
    noted = registry.last_run.notes
    plan = msgspec.structs.replace(plan, news=tuple(n for n in plan.notes if n not in noted))
    queues, undecided = facts.queue_facts, {line.object for line in registry.memory.intended}
    undecided = undecided if plan.is_refused or queues.unread else {*queues.unread_queues}
    if _is_quiet(registry, plan):
        return plan
    from dnm.record.recording import record_plan  # most runs change nothing

    return record_plan(registry, plan, cause, undecided)


def _is_quiet(before: Registry, plan: Plan) -> bool:
    """Returns whether nothing is lent, requested, paused, waiting or changed. A run for which this
    is true writes no history and changes no totals."""
    after, memory = plan.registry, before.memory
    in_motion = (after.nodes, after.requests, after.pause, plan.actions, plan.waiting, plan.news)
    remembered = (memory.asked, memory.lent, memory.intended, memory.waiting, memory.is_paused)
    return not any(in_motion) and not any(remembered) and after == before


def _find_converters(registry: Registry, converter: NodeConvert) -> Registry:
    """Returns the registry with converters that a killed run started but did not record in it."""
    requests = tuple(
        msgspec.structs.replace(request, converter=converter.find(request.id))
        if not (request.end or is_identified(request.converter))
        else request
        for request in registry.requests
    )
    nodes = {
        name: entry.with_state(converter=converter.find(name))
        if entry.converter is not None and not is_identified(entry.converter)
        else entry
        for name, entry in registry.nodes.items()
    }
    return msgspec.structs.replace(registry, requests=requests, nodes=nodes)


def exit_code_of(plan: Plan, outcome: Outcome | None = None) -> int:
    """Returns the exit code of a run: OK, FAILED, or NEEDS_PERSON if an administrator must act."""
    if plan.needs_person:
        return ExitCode.NEEDS_PERSON
    return ExitCode.FAILED if plan.errors or (outcome and outcome.errors) else ExitCode.OK
