"""What a run knows before it decides anything, each fact derived once: the record, the queue
document, demand, facts; and whether the batch side has to be asked at all, whose list is the
dearest of all reads. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.demand.demand import Demand, gather_demand
from dnm.demand.waiting import DemandFacts
from dnm.model.cluster import QueueLimits, YunikornView
from dnm.model.config import Config
from dnm.model.errors import QueueError
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.observed import StalledPods
from dnm.model.orders import Way
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.queue_path import is_under
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import Objection, Verdict
from dnm.plan.breaker import backoff_delay, conversion_delay
from dnm.plan.cap_shares import in_nodes, note_nodes
from dnm.plan.counting import count_missing
from dnm.plan.doubt import doubt_lists
from dnm.plan.facts import Facts
from dnm.queues.document import QueueDocument, read_document
from dnm.queues.source import resolve_document


class Inputs(Value):
    """`registry`: as the last run left it. `demand` None: the pods could not be read. `document`
    None: the queue document could not be read, and `objection` says why."""

    config: Config
    registry: Registry
    snapshot: Snapshot
    facts: Facts
    demand: Demand | None
    document: QueueDocument | None = None
    objection: Objection | None = None

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        """Of every queue of the document."""
        return self.document.limits if self.document else {}

    @property
    def now(self) -> datetime:
        return self.snapshot.taken_at

    def paused(self, way: Way | None = None) -> Objection | None:
        """The pause that stops lending now, or returning, or either."""
        return self.registry.paused(self.now, way)

    def is_kept(self, name: str, entry: LentNode) -> bool:
        """Whether a person's word keeps a node, whatever else speaks for its leaving."""
        return name in self.registry.held or entry.is_kept_at(self.now)

    def unreadable_namespaces(self, queue: str) -> list[str]:
        """Monitored namespaces of a queue whose pods could not be read."""
        pods = self.snapshot.pods
        unread = {} if isinstance(pods, Unreadable) else pods.unreadable
        policies = self.config.namespaces.values()
        return sorted(p.name for p in policies if p.queue == queue and p.name in unread)


def gather_inputs(config: Config, registry: Registry, snapshot: Snapshot) -> Inputs:
    """Doubts what can't be true, parses the queue document, sums up pods, sorts facts by node."""
    registry = without_future(config, registry, snapshot.taken_at)
    registry = without_expired(registry, snapshot.taken_at)
    snapshot, last_run = doubt_lists(registry, config.instance_id, snapshot)
    registry = msgspec.structs.replace(registry, last_run=last_run)
    if config.has_shares:
        registry = note_nodes(config, registry, snapshot.batch)
        config = in_nodes(config, snapshot.batch)
    document, objection = _read_queues(config, snapshot)
    limits = document.limits if document else {}
    demand = demand_of(config, snapshot, limits, registry.stalled)
    if demand is not None:
        registry = msgspec.structs.replace(registry, stalled=dict(demand.stalled))
    return Inputs(
        config=config,
        registry=registry,
        snapshot=snapshot,
        facts=_facts(snapshot, demand, document),
        demand=demand,
        document=document,
        objection=objection,
    )


def _read_queues(
    config: Config, snapshot: Snapshot
) -> tuple[QueueDocument | None, Objection | None]:
    """The document, or why it can't be read."""
    maps = snapshot.queue_maps
    if isinstance(maps, Unreadable):
        return None, Objection(reason=Reason.QUEUE_UNREADABLE, detail=maps.error)
    try:
        source = resolve_document(*maps, config.queue_document)
        return read_document(source), None
    except QueueError as error:
        return None, Objection(reason=Reason.QUEUE_UNREADABLE, detail=str(error))


def demand_of(
    config: Config,
    snapshot: Snapshot,
    limits: Mapping[str, QueueLimits],
    stalled: Mapping[str, StalledPods] = {},
) -> Demand | None:
    """Returns what the pods of a snapshot ask for beneath these limits; None: they could not be
    read. `stalled` by fingerprint."""
    pods, yunikorn = snapshot.pods, snapshot.yunikorn
    if isinstance(pods, Unreadable):
        return None
    facts = DemandFacts(
        now=snapshot.taken_at,
        yunikorn=yunikorn if isinstance(yunikorn, YunikornView) else None,
        claims=snapshot.claims,
        stalled=stalled,
        resources=offered_resources(config, snapshot, limits),
    )
    demand = gather_demand(pods.pods, config, limits, facts)
    if not snapshot.waits:
        return demand
    from dnm.demand.pod_waits import with_devices

    return with_devices(demand, snapshot.waits)


def offered_resources(
    config: Config, snapshot: Snapshot, limits: Mapping[str, QueueLimits]
) -> frozenset[str]:
    """The names that a node or a node type offers, or a queue limits."""
    nodes = () if isinstance(snapshot.nodes, Unreadable) else snapshot.nodes
    return frozenset({"pods"}).union(
        *(node.allocatable for node in nodes),
        *(node_type.size for node_type in config.node_types.values()),
        *(limit.max for limit in limits.values()),
        *(limit.guaranteed for limit in limits.values()),
    )


def _facts(snapshot: Snapshot, demand: Demand | None, document: QueueDocument | None) -> Facts:
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
        unscheduled=_unscheduled(snapshot, demand),
        lenders=document.lenders if document else None,
        waiting_jobs=None if isinstance(waiting, Unreadable) else waiting,
        close=snapshot.close,
    )


def _unscheduled(snapshot: Snapshot, demand: Demand | None) -> frozenset[str]:
    if demand is None or not isinstance(snapshot.yunikorn, Unreadable):
        return frozenset()
    waiting = {group.queue for group in demand.groups}
    return frozenset(q for q in demand.queues if any(is_under(name, q) for name in waiting))


def without_future(config: Config, registry: Registry, now: datetime) -> Registry:
    """Times that a host with a wrong clock wrote: nothing has begun after now, and nothing waits
    for longer than it would if it began to wait now."""
    return msgspec.structs.replace(
        registry,
        nodes={
            name: msgspec.structs.replace(
                entry,
                since=min(entry.since, now),
                lent_since=entry.lent_since and min(entry.lent_since, now),
                moved_at=entry.moved_at and min(entry.moved_at, now),
                retry_after=entry.retry_after
                and min(entry.retry_after, now + _longest_wait(config, entry)),
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


def _longest_wait(config: Config, entry: LentNode) -> timedelta:
    """For how long a return waits: for its back-off where it failed, else for the converter."""
    if entry.error and entry.converter is None:
        return backoff_delay(config, entry.attempts)
    return config.convert_timeout + config.join_timeout


def without_expired(registry: Registry, now: datetime) -> Registry:
    """Returns the registry without what a person has said for a time that is over."""
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


# --- whether the batch side is asked ------------------------------------------------------------


def needs_batch_side(
    config: Config, registry: Registry, nodes: Collection[Node], pods: PodList | Unreadable
) -> bool:
    """Whether something depends on it: a conversion may be wanted, or a lent node is not simply
    serving."""
    present = {node.name for node in nodes}
    if any(_is_mark_in_doubt(config, registry, node) for node in nodes):
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
    if config.book_ahead:
        return True
    has_floor = any(policy.min_nodes for policy in config.namespaces.values())
    return has_floor or wanted_nodes(registry) or may_want_nodes(config, pods)


def asks_anyway(config: Config, registry: Registry, now: datetime) -> bool:
    """Whether this is the first run of an hour, or the first of all: what is claimed for this
    instance is looked for then, though nothing depends on it as far as the record knows."""
    if not (registry.nodes or registry.last_run.queues):
        return True
    return timedelta(minutes=now.minute, seconds=now.second) < config.check_interval


def _is_mark_in_doubt(config: Config, registry: Registry, node: Node) -> bool:
    """Whether mark and record do not agree: only Slurm or the ledger can tell what is true."""
    entry, instance = registry.nodes.get(node.name), config.instance_id
    return node.is_marked_by(instance) != (entry is not None and entry.owner == instance)


def wanted_nodes(registry: Registry) -> bool:
    """Whether the last run wanted a conversion, or would have if it had known what is at hand."""
    queues = registry.last_run.queues.values()
    return any(status.verdict != Verdict.KEEP.value for status in queues)


def may_want_nodes(config: Config, pods: PodList | Unreadable) -> bool:
    """Tells whether a pod waits that may bring a node."""
    return not isinstance(pods, Unreadable) and any(
        not pod.node and pod.is_yunikorn and pod.namespace in config.namespaces for pod in pods.pods
    )
