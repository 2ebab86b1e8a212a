"""The facts of a run, each derived once before any decision: registry, queues, demand, facts by
node. Also the decision whether to read Slurm's nodes, which is the most expensive read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.demand.demand import Demand, gather_demand
from dnm.demand.pending import NotCounted, text_time
from dnm.demand.waiting import DemandFacts
from dnm.model.cluster import QueueLimits, SchedulerView
from dnm.model.config import Config
from dnm.model.errors import QueueError
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.observed import StalledPods
from dnm.model.orders import Way
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.queue_path import is_under
from dnm.model.registry import Registry
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import Objection, Verdict, limits_objection
from dnm.plan.breaker import clamp_state, conversion_delay
from dnm.plan.cap_shares import record_batch_nodes, resolve_shares
from dnm.plan.counting import count_missing
from dnm.plan.facts import Facts
from dnm.plan.incomplete_lists import reject_incomplete_lists
from dnm.queues import system_of, unlimited_namespaces
from dnm.queues.system import Queues


class Inputs(Value):
    """The facts for a plan. `registry` is the last run's. `demand` is None if pods could not be
    read. `objection`: why limits are unknown; `queues` then has only queues without limits."""

    config: Config
    registry: Registry
    snapshot: Snapshot
    facts: Facts
    demand: Demand | None
    queues: Queues | None = None
    objection: Objection | None = None

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        """Returns the limits of every queue that could be read, by queue."""
        return self.queues.limits if self.queues else {}

    def objection_to(self, queue: str, other: Objection | None = None) -> Objection | None:
        """Returns why a queue's limits are unknown, or None. `other` is an objection to all."""
        unread = self.snapshot.queue_facts.unread_queues.get(queue)
        refusal = limits_objection(unread.error) if unread else self.objection or other
        return None if queue in self.limits.keys() & unlimited_namespaces(self.config) else refusal

    @property
    def now(self) -> datetime:
        return self.snapshot.taken_at

    def paused(self, way: Way | None = None) -> Objection | None:
        """Returns an objection if `way`, lending or returning, is paused (None: if either is)."""
        return self.registry.paused(self.now, way)

    def is_kept(self, name: str, entry: LentNode) -> bool:
        """Returns whether an administrator's command keeps a node that has a reason to leave."""
        return name in self.registry.held or entry.is_kept_at(self.now)

    def unreadable_namespaces(self, queue: str) -> list[str]:
        """Returns the monitored namespaces of a queue with pods that could not be read."""
        pods = self.snapshot.pods
        unread = {} if isinstance(pods, Unreadable) else pods.unreadable
        policies = self.config.namespaces.values()
        return sorted(p.name for p in policies if p.queue == queue and p.name in unread)


def gather_inputs(config: Config, registry: Registry, snapshot: Snapshot) -> Inputs:
    """Derives a plan's inputs from a snapshot: complete lists, queues, demand, facts by node."""
    registry = clamp_future_times(config, registry, snapshot.taken_at)
    registry = drop_expired(registry, snapshot.taken_at)
    snapshot, last_run = reject_incomplete_lists(registry, config.instance_id, snapshot)
    registry = msgspec.structs.replace(registry, last_run=last_run)
    if config.has_shares:
        registry = record_batch_nodes(config, registry, snapshot.batch)
        config = resolve_shares(config, snapshot.batch)
    if registry.last_run.unwritten:
        from dnm.plan.unknown_limits import rank_last

        config = rank_last(config, registry.last_run.unwritten)
    queues, objection = _read_queues(config, registry, snapshot)
    limits = queues.limits if queues else {}
    demand = demand_of(config, snapshot, limits, registry.stalled)
    if demand is not None:
        registry = msgspec.structs.replace(registry, stalled=dict(demand.stalled))
    return Inputs(
        config=config, registry=registry, snapshot=snapshot, demand=demand, queues=queues,
        facts=_facts(config, snapshot, demand, None if objection else queues), objection=objection,
    )  # fmt: skip


def lent_with(config: Config, registry: Registry) -> dict[str, str]:
    """Returns, for each namespace with lent nodes, the queue system that was used to lend them."""
    lent = {entry.namespace for entry in registry.nodes.values()}
    lent |= {request.namespace for request in registry.requests}
    recorded, own = registry.last_run.queue_systems, config.namespaces
    return {name: recorded.get(name, own[name].queue_system) for name in sorted(lent & own.keys())}


def _read_queues(
    config: Config, registry: Registry, snapshot: Snapshot
) -> tuple[Queues | None, Objection | None]:
    """Returns all queues. If limits are unknown, returns those without limits, and the reason."""
    lent, unread = lent_with(config, registry), snapshot.queue_facts.unread
    why = unread.error if unread else ""
    if any(config.namespaces[name].queue_system != system for name, system in lent.items()):
        why = ""  # an administrator has changed the key
    elif not unread:
        try:
            return system_of(config).read_queues(config, snapshot.queue_facts), None
        except QueueError as error:
            why = str(error)
    from dnm.plan.unknown_limits import without_limits

    return without_limits(config, registry, lent, why)


def demand_of(
    config: Config,
    snapshot: Snapshot,
    limits: Mapping[str, QueueLimits],
    stalled: Mapping[str, StalledPods] = {},
) -> Demand | None:
    """Returns the demand of a snapshot's pods in queues with these limits, or None if pods could
    not be read. `stalled` has pending pods, by fingerprint, that lent nodes have not helped."""
    pods, view = snapshot.pods, snapshot.queue_facts.view
    if isinstance(pods, Unreadable):
        return None
    facts = DemandFacts(
        now=snapshot.taken_at,
        scheduler=view if isinstance(view, SchedulerView) else None,
        claims=snapshot.claims,
        stalled=stalled,
        resources=offered_resources(config, snapshot, limits),
        refused=snapshot.queue_facts.refused,
    )
    demand = gather_demand(pods.pods, config, limits, facts)
    if snapshot.queue_facts.used:
        from dnm.demand.reported import with_reported_use

        demand = with_reported_use(demand, snapshot.queue_facts, snapshot.taken_at)
    if not snapshot.waits:
        return demand
    from dnm.demand.pod_waits import with_devices

    return with_devices(demand, snapshot.waits)


def offered_resources(
    config: Config, snapshot: Snapshot, limits: Mapping[str, QueueLimits]
) -> frozenset[str]:
    """Returns the names of resources that a node or a node type offers, or a queue limits."""
    nodes = () if isinstance(snapshot.nodes, Unreadable) else snapshot.nodes
    return frozenset({"pods"}).union(
        *(node.allocatable for node in nodes),
        *(node_type.size for node_type in config.node_types.values()),
        *(limit.max for limit in limits.values()),
        *(limit.guaranteed for limit in limits.values()),
    )


def _facts(
    config: Config, snapshot: Snapshot, demand: Demand | None, queues: Queues | None
) -> Facts:
    nodes, batch, pods = snapshot.nodes, snapshot.batch, snapshot.pods
    there = () if isinstance(nodes, Unreadable) else nodes
    waiting = snapshot.waiting_jobs
    use = demand.nodes if demand else {}
    return Facts(
        now=snapshot.taken_at,
        nodes=None
        if isinstance(nodes, Unreadable)
        else {node.name: node for node in there if not node.is_with_batch},
        with_batch={node.name: node for node in there if node.is_with_batch},
        batch=None if isinstance(batch, Unreadable) else batch,
        working_pods=None if demand is None else {n: u.work_pods for n, u in use.items()},
        sees_all_pods=isinstance(pods, PodList) and pods.cluster_wide,
        unseen=snapshot.unseen_nodes | snapshot.unverified_nodes,
        running=snapshot.running_converters,
        elsewhere=snapshot.converters_elsewhere,
        ended=snapshot.ended,
        unscheduled=_unscheduled(config, snapshot, demand),
        lenders=queues.lenders if queues else None,
        unread_ledgers=snapshot.queue_facts.unread_ledgers,
        waiting_jobs=None if isinstance(waiting, Unreadable) else waiting,
        close=snapshot.close,
    )


def _unscheduled(config: Config, snapshot: Snapshot, demand: Demand | None) -> frozenset[str]:
    """Returns the queues with pods that a scheduler or controller has not yet decided about."""
    if demand is None:
        return frozenset()
    waiting: set[str] = set()
    if demand.uncounted:
        # A scheduler decides in a moment. A pod that none considers must not keep nodes for ever.
        since = text_time(snapshot.taken_at - config.join_timeout)
        waiting = {
            pods.queue
            for pods in demand.uncounted
            if pods.why is NotCounted.RETRY
            or (pods.why is NotCounted.UNDECIDED and pods.youngest > since)
        }
    if isinstance(snapshot.queue_facts.view, Unreadable):
        waiting |= {group.queue for group in demand.groups}
    if not waiting:
        return frozenset()
    return frozenset(q for q in demand.queues if any(is_under(name, q) for name in waiting))


def clamp_future_times(config: Config, registry: Registry, now: datetime) -> Registry:
    """Returns the registry without future times from a host with a wrong clock: nothing began after
    now, and no wait is longer than one that begins now."""
    return msgspec.structs.replace(
        registry,
        nodes={
            name: msgspec.structs.replace(
                entry,
                state=clamp_state(config, entry.state, now),
                lent_since=entry.lent_since and min(entry.lent_since, now),
                moved_at=entry.moved_at and min(entry.moved_at, now),
            )
            for name, entry in registry.nodes.items()
        },
        requests=tuple(
            msgspec.structs.replace(request, since=min(request.since, now))
            for request in registry.requests
        ),
        breakers={
            queue: msgspec.structs.replace(
                breaker, tripped_at=breaker.tripped_at and min(breaker.tripped_at, now)
            )
            for queue, breaker in registry.breakers.items()
        },
        backoffs={
            name: msgspec.structs.replace(
                backoff, until=min(backoff.until, now + conversion_delay(config, backoff.failures))
            )
            for name, backoff in registry.backoffs.items()
        },
    )


def drop_expired(registry: Registry, now: datetime) -> Registry:
    """Returns the registry without holds, exclusions and `dnm lend` orders that have expired."""
    over = {name for name, hold in registry.holds.items() if not hold.is_in_force(now)}
    return msgspec.structs.replace(
        registry,
        held=tuple(name for name in registry.held if name not in over),
        holds={name: hold for name, hold in registry.holds.items() if name not in over},
        excluded={
            name: keeping for name, keeping in registry.excluded.items() if keeping.is_in_force(now)
        },
        orders=tuple(order for order in registry.orders if now < order.until),
    )


# --- whether the batch side is read -------------------------------------------------------------


def needs_batch_side(
    config: Config, registry: Registry, nodes: Collection[Node], pods: PodList | Unreadable
) -> bool:
    """Returns whether to read Slurm's nodes: for a lend, or for lent nodes that do not serve."""
    present = {node.name for node in nodes}
    if any(_mark_disagrees(config, registry, node) for node in nodes):
        return True
    is_under_way = (
        registry.requests
        or registry.claimed
        or any(
            entry.phase is not Phase.SERVING or entry.is_unjudged or name not in present
            for name, entry in registry.nodes.items()
        )
    )
    if is_under_way or any(count_missing(order, registry) for order in registry.orders):
        return True
    if config.reserve_ahead:
        return True
    has_floor = any(policy.min_nodes for policy in config.namespaces.values())
    return has_floor or last_run_wanted_nodes(registry) or may_want_nodes(config, pods)


def is_hourly_read_due(config: Config, registry: Registry, now: datetime) -> bool:
    """Returns whether this is the first run of an hour, or the first of all. Such a run always
    reads Slurm's nodes, to detect claims for this instance that are not in the registry."""
    if not (registry.nodes or registry.last_run.queues):
        return True
    return timedelta(minutes=now.minute, seconds=now.second) < config.check_interval


def _mark_disagrees(config: Config, registry: Registry, node: Node) -> bool:
    """Returns whether a Node's annotations contradict the registry: Slurm or the ledger decides."""
    entry, instance = registry.nodes.get(node.name), config.instance_id
    return node.is_marked_by(instance) != (entry is not None and entry.owner == instance)


def last_run_wanted_nodes(registry: Registry) -> bool:
    """Returns whether a queue needed nodes in the last run, or facts about it were missing."""
    queues = registry.last_run.queues.values()
    return any(status.verdict != Verdict.KEEP.value for status in queues)


def may_want_nodes(config: Config, pods: PodList | Unreadable) -> bool:
    """Returns whether any pod is unbound for which a node may have to be lent."""
    return not isinstance(pods, Unreadable) and any(
        not pod.node
        and pod.is_managed
        and not pod.is_undecided
        and pod.namespace in config.namespaces
        for pod in pods.pods
    )
