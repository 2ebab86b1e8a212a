"""The answer about each monitored queue, in numbers and in words: one value a queue, with one
verdict, one reason, one sentence.

The rule: the first true reason wins, and pods that ask for nothing are named whatever the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dnm.demand.demand import Demand, pending_fingerprint
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.queue_path import is_under
from dnm.model.reason import Reason, Why
from dnm.model.value import Value
from dnm.model.verdict import QueueVerdict, Verdict
from dnm.sizing.caps import Bound, NodePool
from dnm.sizing.quota import Quota, Shortage


class UnschedulablePods(Value):
    """Counts pending pods of a group that no new node would help, and says why."""

    group: PendingGroup
    count: int
    why: str


class QueueSizing(Value):
    """Says how many nodes a queue wants and gets, by pool, and why.

    `wanted`: nodes after which it lacks nothing; `granted`: those that it gets within the budget.
    `no_room`, `no_quota`: pods that lack it as things are, nodes on their way included.
    `opened_for_room`: how many of the wanted nodes room alone asks for. `shortage`: the limit that
    is too low. `below_min_nodes`: namespaces that have fewer nodes than min_nodes, or what raised
    it there, once per node.
    `relies_on_incoming`: without the nodes on their way it would lack something. `waits_since`: the
    oldest pod that lacks something was created then. `fits`: per group of pending pods (by
    fingerprint) how many have room and quota on nodes that are there. `spent`: the bounds of its
    nodes that have run out. `fingerprint` changes when the pending pods do.
    """

    queue: str
    priority: int = 0
    wanted: Mapping[NodePool, int] = {}
    granted: Mapping[NodePool, int] = {}
    no_room: int = 0
    no_quota: int = 0
    opened_for_room: int = 0
    shortage: Shortage | None = None
    below_min_nodes: tuple[str, ...] = ()
    relies_on_incoming: bool = False
    waits_since: str = ""
    fits: Mapping[str, int] = {}
    unschedulable: tuple[UnschedulablePods, ...] = ()
    spent: tuple[Bound, ...] = ()
    fingerprint: str = ""

    @property
    def for_pods(self) -> bool:
        """Whether the nodes are for pending pods, and not only for `headroom` or `min_nodes`: then
        nodes that go unused count against the queue."""
        return self.no_room > 0 or self.no_quota > 0


class Sizing(Value):
    """Holds the answer about every monitored queue that the document has, in the order in which
    nodes are handed out (by priority, then by the longest wait), and the verdict on each."""

    queues: Mapping[str, QueueSizing] = {}
    verdicts: Mapping[str, QueueVerdict] = {}

    def of(self, queue: str) -> QueueSizing:
        """Returns the answer about a queue; it wants nothing where nothing is known of it."""
        return self.queues.get(queue) or QueueSizing(queue=queue)

    def wanted(self) -> dict[NodePool, int]:
        """Returns how many nodes of each pool are wanted, in the order of handing out."""
        return {p: n for queue in self.queues.values() for p, n in queue.wanted.items()}

    def granted(self) -> dict[NodePool, int]:
        """Returns how many nodes of each pool can be had, in the order of handing out."""
        return {p: n for queue in self.queues.values() for p, n in queue.granted.items()}

    def fits(self) -> dict[str, int]:
        """Returns, by the fingerprint of a group of pending pods, how many of them have room and
        quota on nodes that are there."""
        return {name: n for queue in self.queues.values() for name, n in queue.fits.items()}


def count_by_type(pools: Mapping[NodePool, int]) -> dict[str, int]:
    """Returns how many nodes of each type these are, by its name."""
    counts: Counter[str] = Counter()
    for pool, count in pools.items():
        counts[pool.node_type] += count
    return dict(sorted(counts.items()))


# --- where nothing is wanted -------------------------------------------------------------------


def size_at_rest(
    config: Config, demand: Demand, queues: Mapping[str, QueueLimits]
) -> Sizing | None:
    """Returns what `size_queues` does where no pod waits that counts, no limit is nearly full, and
    no number of nodes is to be kept: then nothing has to be packed to know that nothing is wanted.
    None: it has."""
    if any(group.count for group in demand.groups):
        return None
    if any(policy.min_nodes or policy.min_of_type for policy in config.namespaces.values()):
        return None
    quota = Quota(demand, queues)
    there = [queue for queue in config.queues if queue in queues]
    if any(True for queue in there for _ in quota.shortages(queue, ())):
        return None
    sizings = [
        QueueSizing(
            queue=queue,
            priority=max(
                namespace.priority
                for namespace in config.namespaces.values()
                if namespace.queue == queue
            ),
            fingerprint=pending_fingerprint(demand, queue),
        )
        for queue in there
    ]
    sizings.sort(key=lambda sizing: (-sizing.priority, sizing.queue))
    return answer(demand, sizings)


def answer(
    demand: Demand,
    sizings: Sequence[QueueSizing],
    told: Mapping[str, tuple[Verdict, Why, str]] = {},
) -> Sizing:
    """Returns the answer with what is said of each queue. `told`: by queue, of those that want
    nodes."""
    return Sizing(
        queues={sizing.queue: sizing for sizing in sizings},
        verdicts={
            sizing.queue: _verdict(demand, sizing, told.get(sizing.queue)) for sizing in sizings
        },
    )


# --- in words --------------------------------------------------------------------------------

_MOST_KINDS = 3  # of pods that no node helps, one named of each


def _verdict(
    demand: Demand, sizing: QueueSizing, told: tuple[Verdict, Why, str] | None
) -> QueueVerdict:
    """What a queue wants, what it gets, and why; `told`: of one that wants nodes."""
    verdict, reason, detail = told or _why_nothing(demand, sizing)
    pods = [*_unschedulable(sizing), *_left_out(demand, sizing.queue)]
    return QueueVerdict(
        queue=sizing.queue, verdict=verdict, reason=reason, detail=detail, pods="; ".join(pods)
    )


def _why_nothing(demand: Demand, sizing: QueueSizing) -> tuple[Verdict, Why, str]:
    if sizing.relies_on_incoming:
        return Verdict.WAIT, Reason.ON_THE_WAY, ""
    if sizing.unschedulable:
        return Verdict.KEEP, Reason.NOTHING_HELPS, ""
    young = sum(group.young for group in demand.groups if is_under(group.queue, sizing.queue))
    if young:
        return Verdict.WAIT, Reason.TOO_YOUNG, count_of(young, "pod")
    return Verdict.KEEP, Reason.ENOUGH, ""


def _unschedulable(sizing: QueueSizing) -> list[str]:
    """Names the pods that no node helps: one of each kind, of a few kinds."""
    kinds = [
        f"no node helps {pods.count} like {pods.group.namespace}/{pods.group.names[0]}: {pods.why}"
        for pods in sizing.unschedulable[:_MOST_KINDS]
    ]
    if (more := len(sizing.unschedulable) - _MOST_KINDS) > 0:
        kinds.append(f"and {count_of(more, 'kind')} more, which `dnm check` names")
    return kinds


def _left_out(demand: Demand, queue: str) -> list[str]:
    """Counts the pods that ask for nothing, by reason, and names one of each."""
    counts: Counter[str] = Counter()
    like: dict[str, str] = {}
    for uncounted in demand.uncounted:
        if is_under(uncounted.queue, queue):
            counts[uncounted.why.value] += uncounted.count
            like.setdefault(uncounted.why.value, f"{uncounted.namespace}/{uncounted.names[0]}")
    return [f"{count} not counted, {why}: {like[why]}" for why, count in sorted(counts.items())]
