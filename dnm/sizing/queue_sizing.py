"""The nodes that each monitored queue needs and gets, and the decision about it, with one reason
and one sentence.

The rule: the first true reason wins, and pods that do not count are reported with every
decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dnm.demand.demand import Demand, pending_fingerprint
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.queue_path import is_under
from dnm.model.reason import Reason, ReasonText
from dnm.model.value import Value
from dnm.model.verdict import QueueVerdict, Verdict
from dnm.sizing.caps import Bound, NodePool
from dnm.sizing.quota import Quota, Shortage


class UnschedulablePods(Value):
    """The pending pods of a group that no new node would help, their number, and the reason."""

    group: PendingGroup
    count: int
    why: str


class QueueSizing(Value):
    """The nodes that a queue needs and gets, by pool (namespace and type), and the reasons.

    `wanted` nodes are all that it needs, `granted` those that the budget allows.
    `without_capacity`, `no_quota`: how many pods lack capacity or quota, even with incoming nodes.
    `opened_for_capacity`: nodes needed for capacity alone. `shortage`: the limit that is too low.
    `below_min_nodes`: the minimum that is not met, once per missing node. `relies_on_incoming`:
    without incoming nodes it would lack something. `waits_since`: the creation time of the oldest
    pod that lacks something. `fits`: the number of pods of each group with capacity and quota on
    existing nodes; `served`: the same on these and granted nodes. `spent`: bounds that allow no
    more nodes. `fingerprint` changes with the pending pods. `incomplete`: the reason why a Workload
    gets no node. `first_lacks`: how many nodes the first Workload lacks."""

    queue: str
    priority: int = 0
    wanted: Mapping[NodePool, int] = {}
    granted: Mapping[NodePool, int] = {}
    without_capacity: int = 0
    no_quota: int = 0
    opened_for_capacity: int = 0
    shortage: Shortage | None = None
    below_min_nodes: tuple[str, ...] = ()
    relies_on_incoming: bool = False
    waits_since: str = ""
    fits: Mapping[str, int] = {}
    unschedulable: tuple[UnschedulablePods, ...] = ()
    spent: tuple[Bound, ...] = ()
    fingerprint: str = ""
    served: Mapping[str, int] = {}
    incomplete: Mapping[str, str] = {}
    first_lacks: int = 0

    @property
    def for_pods(self) -> bool:
        """Returns whether pending pods need the nodes, and not only `headroom` or `min_nodes`. Only
        then do unused nodes count for the queue's circuit breaker."""
        return self.without_capacity > 0 or self.no_quota > 0


class Sizing(Value):
    """The nodes that every monitored queue needs and gets, in the order in which queues get them
    (by priority, then by the longest wait), and the decision about each queue."""

    queues: Mapping[str, QueueSizing] = {}
    verdicts: Mapping[str, QueueVerdict] = {}

    def of(self, queue: str) -> QueueSizing:
        """Returns what a queue needs and gets; an unknown queue needs nothing."""
        return self.queues.get(queue) or QueueSizing(queue=queue)

    def wanted(self) -> dict[NodePool, int]:
        """Returns how many nodes of each pool (queue, namespace, type) are needed, in order."""
        return {p: n for queue in self.queues.values() for p, n in queue.wanted.items()}

    def granted(self) -> dict[NodePool, int]:
        """Returns how many nodes of each pool (queue, namespace, type) are granted, in order."""
        return {p: n for queue in self.queues.values() for p, n in queue.granted.items()}

    def fits(self) -> dict[str, int]:
        """Returns how many pods of each group of pending pods (by fingerprint) have both capacity
        and quota on existing nodes."""
        return {name: n for queue in self.queues.values() for name, n in queue.fits.items()}


def count_by_type(pools: Mapping[NodePool, int]) -> dict[str, int]:
    """Returns the number of nodes of each type in these pools (queue, namespace, type)."""
    counts: Counter[str] = Counter()
    for pool, count in pools.items():
        counts[pool.node_type] += count
    return dict(sorted(counts.items()))


# --- without demand ----------------------------------------------------------------------------


def size_without_demand(
    config: Config, demand: Demand, queues: Mapping[str, QueueLimits]
) -> Sizing | None:
    """Returns the result of `size_queues` without packing if no queue needs a node: no counted pod
    is pending, no limit is nearly full, and no minimum is set. Otherwise returns None."""
    if any(group.count for group in demand.groups):
        return None
    if any(policy.min_nodes or policy.min_of_type for policy in config.namespaces.values()):
        return None
    documented = [queue for queue in config.queues if queue in queues]
    if any(queue.max for queue in queues.values()):  # without a queue system, none has
        quota = Quota(demand, queues)
        if any(True for queue in documented for _ in quota.shortages(queue, ())):
            return None
    policies = config.namespaces.values()
    sizings = [
        QueueSizing(queue=queue, fingerprint=pending_fingerprint(demand, queue),
                    priority=max(item.priority for item in policies if item.queue == queue))
        for queue in documented
    ]  # fmt: skip
    sizings.sort(key=lambda sizing: (-sizing.priority, sizing.queue))
    return make_sizing(demand, sizings)


def make_sizing(
    demand: Demand,
    sizings: Sequence[QueueSizing],
    reasons: Mapping[str, tuple[Verdict, ReasonText, str]] = {},
) -> Sizing:
    """Returns the needs of queues, each with a decision. `reasons` has those of queues in need."""
    return Sizing(
        queues={sizing.queue: sizing for sizing in sizings},
        verdicts={
            sizing.queue: _verdict(demand, sizing, reasons.get(sizing.queue)) for sizing in sizings
        },
    )


# --- in words --------------------------------------------------------------------------------

_MOST_KINDS = 3  # kinds of pods that no node helps, one pod of each is named


def _verdict(
    demand: Demand, sizing: QueueSizing, needs: tuple[Verdict, ReasonText, str] | None
) -> QueueVerdict:
    """Returns the decision about a queue. `needs` has kind, reason and detail if it needs nodes."""
    verdict, reason, detail = needs or _reason_for_none(demand, sizing)
    pods = [*_unschedulable(sizing), *_left_out(demand, sizing.queue)]
    return QueueVerdict(
        queue=sizing.queue, verdict=verdict, reason=reason, detail=detail, pods="; ".join(pods)
    )


def _reason_for_none(demand: Demand, sizing: QueueSizing) -> tuple[Verdict, ReasonText, str]:
    if sizing.relies_on_incoming:
        return Verdict.WAIT, Reason.ON_THE_WAY, ""
    if sizing.unschedulable:
        return Verdict.KEEP, Reason.NOTHING_HELPS, ""
    young = sum(group.young for group in demand.groups if is_under(group.queue, sizing.queue))
    if young:
        return Verdict.WAIT, Reason.TOO_YOUNG, count_of(young, "pod")
    return Verdict.KEEP, Reason.ENOUGH, ""


def _unschedulable(sizing: QueueSizing) -> list[str]:
    """Returns clauses about pods that no new node helps, with an example, for the first groups."""
    kinds = [
        f"no node helps {pods.count} like {pods.group.namespace}/{pods.group.names[0]}: {pods.why}"
        for pods in sizing.unschedulable[:_MOST_KINDS]
    ]
    if (more := len(sizing.unschedulable) - _MOST_KINDS) > 0:
        kinds.append(f"and {count_of(more, 'kind')} more, which `dnm check` names")
    return kinds


def _left_out(demand: Demand, queue: str) -> list[str]:
    """Returns a clause for each reason why pods do not count, with their number and an example."""
    counts: Counter[str] = Counter()
    like: dict[str, str] = {}
    for uncounted in demand.uncounted:
        if is_under(uncounted.queue, queue):
            counts[uncounted.why.value] += uncounted.count
            like.setdefault(uncounted.why.value, f"{uncounted.namespace}/{uncounted.names[0]}")
    return [f"{count} not counted, {why}: {like[why]}" for why, count in sorted(counts.items())]
