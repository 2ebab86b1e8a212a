"""The policy that is dnm itself: the real `make_plan` on snapshots of the simulated world.

Every interval is a run. A run leaves converters active that take longer than half of the interval,
and the next runs read their output and their result, as with the shipped converter. After a run
that changes nothing and waits for nothing, runs are skipped until the next event (`_rest`)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any, cast

import msgspec

from dnm.model.batch import BatchNode, WaitingJobs
from dnm.model.config import Config
from dnm.model.lent import ConversionRequest, Ended, LentNode, Phase
from dnm.model.lent_state import ConverterProcess, Returning, Serving
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.plan import (
    Fence,
    MarkNode,
    Plan,
    RelabelNode,
    ReturnNode,
    SetQueueLimits,
    Snapshot,
    StartConversion,
    Unfence,
)
from dnm.model.pod import Pod, PodList, PodShape, Toleration
from dnm.model.reason import Reason
from dnm.model.registry import Registry, RunRecord
from dnm.model.value import Resources
from dnm.plan.idle_times import idle_times, next_judged
from dnm.plan.planner import make_plan
from dnm.plan.rule import SPARE_FOR, need_lent_since, rules_of
from dnm.plan.rules.event_windows import next_change
from dnm.plan.rules.moves import LEAST_IDLE
from dnm.queues import system_of
from dnm.queues.system import ConfigMaps
from dnm.simulate.values import REVERT_CALL, PodState, SimNode, SimulatedCall, Workload
from dnm.simulate.world import World

SEEN_AFTER = 5.0  # seconds from the end of a conversion to the limit, where it starts a run
TAINT = Taint(key="dedicated", value="{namespace}", effect="NoSchedule")
_MOST_ERRORS = 20
# The verdicts that may last for days; the others change with time.
_LASTING = frozenset(
    (Reason.ENOUGH, Reason.NEARLY_FULL, Reason.NOTHING_HELPS, Reason.CAPPED,
     Reason.ON_THE_WAY)
)  # fmt: skip


class DnmPolicy:
    """An installation of dnm in a simulated world. `errors`: the errors in its plans, each once.
    `may_rest`: whether the simulation skips runs that would do nothing, which saves time."""

    may_rest = True
    runs_after: float | None = SEEN_AFTER

    def __init__(self, workload: Workload, config: Config) -> None:
        self.interval = config.check_interval.total_seconds()
        self.rests_until = 0.0
        self._config = config
        self._begins = workload.begins
        self._registry = Registry()
        self._queue_system = system_of(config)
        self._maps = _maps_with(config, workload.limits)
        self._shapes: dict[object, PodShape] = {}
        self._pods: dict[tuple[int, bool], Pod] = {}
        self._fenced: set[str] = set()
        self._marks: dict[str, Mark] = {}
        self._calls: dict[str, SimulatedCall] = {}
        self._seen: object = None
        self._is_watchful = True
        self._idle: list[LentNode] = []
        self.acted_at: list[float] = []
        self.errors: dict[str, None] = {}

    def run(self, world: World) -> float:
        if self._changed(world) == self._seen and world.now < self.rests_until:
            return world.now  # what began or ended changes nothing
        lent_again = self._registry.lent_again
        plan = make_plan(self._config, self._registry, self.snapshot(world))
        if plan.actions:
            self.acted_at.append(world.now)
        self._note_errors(plan)
        self._registry = plan.registry
        open_calls = {request.id for request in plan.registry.requests if not request.end}
        self._calls = {key: call for key, call in self._calls.items() if key in open_calls}
        self._apply(world, plan)
        last = plan.registry.last_run
        self._record(last_run=RunRecord(queues=dict(plan.status), ledger=last.ledger))
        # A node that is returned changes nothing for the next run, but a pause just learned may.
        is_done = all(isinstance(action, ReturnNode) for action in plan.actions)
        is_done = is_done and plan.registry.lent_again == lent_again
        self._watch(world)
        self.rests_until = self._rest(world, plan) if is_done else 0.0
        return world.now

    def _changed(self, world: World) -> object:
        """Returns a value that differs from its last one if the next plan may differ."""
        if self._is_watchful:
            return world.changes
        spare = [
            (world.limits[path][name] - world.used[path].get(name, 0)) // size
            for node in self._idle
            for path in world.path(node.queue)
            for name, size in node.counted.items()
            if size and name in world.limits[path]
        ]
        return world.version, spare

    def _watch(self, world: World) -> None:
        """Records which events can change the next plan: all, or only those of nodes and quota."""
        nodes = self._registry.nodes.values()
        self._idle = [node for node in nodes if node.idle_since is not None or node.is_needed]
        self._is_watchful = (
            bool(world.pending or self._config.calendar_events or self._config.headroom < 1)
            or len({tuple(node.counted.items()) for node in self._idle}) > 1
            or any(node.leaves or self._config.consolidate for node in nodes)
        )
        self._seen = self._changed(world)

    def _note_errors(self, plan: Plan) -> None:
        """Records the errors in the plan, for the user. Omits errors of failed conversions."""
        for error in plan.errors:
            is_of_request = error in plan.request_errors.values()
            if len(self.errors) < _MOST_ERRORS and not is_of_request:
                self.errors[error] = None

    def _rest(self, world: World, plan: Plan) -> float:
        """Returns until when runs would do nothing without an event, so that they can be skipped:
        queues and nodes wait only for computable times. Returns 0 if that does not hold."""
        nodes = self._registry.nodes.values()
        young = self._config.pending_grace.total_seconds() + 1
        is_settled = (
            self.may_rest
            and not need_lent_since(rules_of(self._config, self._registry))
            and all(queue.reason in _LASTING for queue in plan.queues)
            and all(node.phase in (Phase.SERVING, Phase.RETURNING) for node in nodes)
            and all(
                key in self._calls for key in (request.id for request in self._registry.requests)
            )
            and not any(world.now - pod.ask.at < young for pod in world.pending)
        )
        if not is_settled:
            return 0.0
        now = self._begins + timedelta(seconds=world.now)
        times = idle_times(self._config, self._registry, now)
        moments = [moment for name in times for moment in self._moments(name, times[name])]
        moments += next_judged(self._config, self._registry)
        moments += [
            request.since + self._config.convert_timeout for request in self._registry.requests
        ]
        moments += filter(None, [next_change(self._config, self._registry, now)])
        seconds = [(moment - self._begins).total_seconds() for moment in moments]
        return min((second for second in seconds if second > world.now), default=float("inf"))

    def _moments(self, name: str, idle_time: timedelta) -> list[datetime]:
        """Returns the times when a decision about an idle or returning node is due."""
        node = self._registry.nodes[name]
        if isinstance(node.state, Returning) and node.state.retry_after is not None:
            return [node.state.retry_after]
        if node.idle_since is None:
            return [self._registry.spare_nodes.get(name, node.since) + SPARE_FOR]
        spans = {idle_time}
        if self._config.move_in_place:
            spans.add(LEAST_IDLE)
        moments = [node.idle_since + span for span in spans]
        pause = node.state.move_pause if isinstance(node.state, Serving) else None
        return [*moments, pause.until] if pause else moments

    # --- the world as values -----------------------------------------------------------------

    def snapshot(self, world: World) -> Snapshot:
        """Returns the facts that a run would read now."""
        pods = [self._pod(world, pod) for pod in (*world.pending, *world.running)]
        return Snapshot(
            taken_at=self._begins + timedelta(seconds=world.now),
            pods=PodList(pods=tuple(pods)),
            nodes=tuple(self._node(node) for node in world.nodes.values()),
            queue_facts=self._queue_system.collect(self._config, self._maps),
            batch=self._batch(world),
            waiting_jobs=self._waiting_jobs(world),
            running_converters=frozenset(
                _process(key) for key, call in self._calls.items() if not call.is_over
            ),
            ended={key: self._ended(call) for key, call in self._calls.items()},
        )

    def _batch(self, world: World) -> dict[str, BatchNode]:
        rows = {}
        for node_type, side in world.batch.items():
            lendable = set(world.lendable(node_type))
            for name in side.idle:
                verdict = "OK" if name in lendable else "SKIP"
                rows[name] = _row(name, "IDLE", verdict, True)
            for name in side.busy:
                rows[name] = _row(name, "ALLOCATED", "SKIP", True)
        for name in world.away:
            rows[name] = _row(name, "DOWN+DRAIN", "SKIP", False)
        return rows

    def _waiting_jobs(self, world: World) -> tuple[WaitingJobs, ...]:
        """Returns the jobs that wait in the simulated Slurm, as the converter would list them."""
        return tuple(
            WaitingJobs(
                partition="batch",
                node_type=node_type,
                jobs=len(side.waiting),
                nodes=sum(job.nodes for job in side.waiting),
                since=self._begins + timedelta(seconds=min(job.at for job in side.waiting)),
            )
            for node_type, side in world.batch.items()
            if side.waiting
        )

    def _ended(self, call: SimulatedCall) -> Ended:
        """Returns which nodes a call of the converter has made join so far, and which failed."""
        if not call.is_over:
            return Ended(names=tuple(call.joined))
        lines = tuple(f"{name} did not join" for name in call.failed)
        return Ended(exit_code=1 if call.failed else 0, names=tuple(call.joined), last_lines=lines)

    def _pod(self, world: World, pod: PodState) -> Pod:
        key = (pod.number, bool(pod.node))
        if key not in self._pods:
            self._pods.pop((pod.number, False), None)
            namespace = world.workload.namespace_of(pod.ask.queue)
            self._pods[key] = Pod(
                namespace=namespace,
                name=f"p{pod.number}",
                shape=self._shape(namespace, pod),
                created=f"{self._begins + timedelta(seconds=pod.ask.at):%Y-%m-%dT%H:%M:%SZ}",
                node=pod.node,
                app_id=f"gang-{pod.ask.gang}" if pod.ask.gang else f"app-{pod.number}",
                is_placeholder=bool(pod.ask.gang),
                task_group="workers" if pod.ask.gang else "",
                queue=pod.ask.queue,
                is_managed=True,
            )
        return self._pods[key]

    def _shape(self, namespace: str, pod: PodState) -> PodShape:
        key = (namespace, pod.ask.request)
        if key not in self._shapes:
            self._shapes[key] = PodShape(
                request=pod.request,
                tolerations=(Toleration(key="dedicated", value=namespace),),
            )
        return self._shapes[key]

    def _node(self, node: SimNode) -> Node:
        mark = self._marks.get(node.name)
        fenced = node.name in self._fenced
        if mark is not None and fenced:
            mark = msgspec.structs.replace(mark, fenced=True)
        # The permanent nodes have the capacity that is free beside their other pods.
        lent = bool(node.node_type)
        taint = msgspec.structs.replace(TAINT, value=node.namespace)
        return Node(
            name=node.name,
            allocatable=node.size,
            labels={node.namespace: "true"} if lent else {},
            taints=(taint,) if lent else (),
            is_cordoned=node.cordoned,
            mark=mark,
        )

    # --- the plan, carried out ---------------------------------------------------------------

    def _apply(self, world: World, plan: Plan) -> None:
        for action in plan.actions:
            match action:
                case MarkNode(node=name, mark=mark):
                    self._marks[name] = mark
                case Fence(node=name):
                    world.nodes[name].cordoned = True
                    self._fenced.add(name)
                case Unfence(node=name):
                    world.nodes[name].cordoned = False
                    self._fenced.discard(name)
                case RelabelNode(node=name, mark=mark):
                    world.relabel(name, mark.namespace)
                    self._marks[name] = mark
                case SetQueueLimits():
                    self._set_limits(world, action)
                case StartConversion(request=request):
                    self._convert(world, request)
                case ReturnNode(node=name):
                    self._return(world, name)

    def _set_limits(self, world: World, action: SetQueueLimits) -> None:
        outcome = self._queue_system.write(
            self._config, self._maps, action.wants, action.edit, lambda: None
        )
        edit = outcome.edit
        for path, limits in edit.limits.items():
            if path in world.limits:
                world.limits[path] = dict(limits.max)

    def _convert(self, world: World, request: ConversionRequest) -> None:
        call = world.convert(self, request.node_type, request.namespace, request.count)
        self._calls[request.id] = call
        started = msgspec.structs.replace(request, converter=_process(request.id))
        remaining = (item for item in self._registry.requests if item.id != request.id)
        self._record(requests=(*remaining, started))

    def _return(self, world: World, name: str) -> None:
        world.revert(name)
        self._fenced.discard(name)
        self._marks.pop(name, None)
        again = timedelta(seconds=world.now + REVERT_CALL) + self._config.join_timeout
        entry = self._registry.nodes[name]
        attempts = entry.returning.attempts + 1
        called = entry.with_state(attempts=attempts, retry_after=self._begins + again)
        self._record(nodes={**self._registry.nodes, name: called})

    def _record(self, **changes: object) -> None:
        self._registry = msgspec.structs.replace(self._registry, **changes)

    def joined(self, world: World, node: str) -> None:
        """Does nothing: the next run sees the node."""

    def failed(self, world: World, node: str, namespace: str) -> None:
        """Does nothing: the next run reads the failure."""


def _process(key: str) -> ConverterProcess:
    return ConverterProcess(pid=abs(hash(key)) % 10**6, start_ticks=len(key))


@cache
def _row(name: str, state: str, verdict: str, in_service: bool) -> BatchNode:
    return BatchNode(
        name=name, state=state, verdict=verdict, in_service=in_service, reports_claim=True
    )


def _maps_with(config: Config, limits: Mapping[str, Resources]) -> ConfigMaps:
    """Returns the objects of the configured queue system, in memory, with these limits."""
    maps: Any = {}
    if name := config.quota_system:
        module = import_module(f"dnm.queues.{name}.simulated")
        maps = module.SimulatedMaps(config, limits)
    return cast(ConfigMaps, maps)
