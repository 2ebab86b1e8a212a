"""The answer about each monitored queue, in numbers: one value a queue, one for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.demand.pending import PendingGroup
from dnm.model.plan import QueueVerdict
from dnm.model.value import Value
from dnm.sizing.budget import NodePool
from dnm.sizing.quota import Shortage


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
    oldest pod that lacks something was created then. `is_unbuffered`: it keeps no headroom, since
    its last warm node went unused. `fits`: per group of pending pods (by fingerprint) how many have
    room and quota on nodes that are there. `spent`: the bounds of its nodes that have run out.
    `fingerprint` changes when the pending pods do.
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
    is_unbuffered: bool = False
    fits: Mapping[str, int] = {}
    unschedulable: tuple[UnschedulablePods, ...] = ()
    spent: tuple[str, ...] = ()
    fingerprint: str = ""

    @property
    def for_pods(self) -> bool:
        """Whether the nodes are for pending pods, and not only for `headroom` or `min_nodes`: then
        nodes that go unused count against the queue."""
        return self.no_room > 0 or self.no_quota > 0


class Sizing(Value):
    """Holds the answer about every monitored queue, in the order in which nodes are handed out (by
    priority, then by the longest wait), and the verdict on each."""

    queues: Mapping[str, QueueSizing]
    verdicts: Mapping[str, QueueVerdict]

    def wanted(self) -> dict[NodePool, int]:
        """Returns how many nodes of each pool are wanted, in the order of handing out."""
        return {p: n for one in self.queues.values() for p, n in one.wanted.items()}

    def granted(self) -> dict[NodePool, int]:
        """Returns how many nodes of each pool can be had, in the order of handing out."""
        return {p: n for one in self.queues.values() for p, n in one.granted.items()}

    def fits(self) -> dict[str, int]:
        """Returns, by the fingerprint of a group of pending pods, how many of them have room and
        quota on nodes that are there."""
        return {name: n for one in self.queues.values() for name, n in one.fits.items()}
