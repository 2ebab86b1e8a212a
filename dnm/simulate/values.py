"""The values of a simulated world: pods and jobs, nodes, conversions, and the costs of a policy.

Amounts are in thousandths of a core and in bytes, times in seconds since the workload begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dnm.simulate.batch import SimJob

Amounts = dict[str, int]

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
CONVERSION = (360.0, 600.0)
REVERSION = (480.0, 720.0)
REVERT_CALL = 120.0  # the site's converter power-cycles and returns; it does not wait for the boot
POD_START = 20.0  # from bound to Running: images
GANG_PATIENCE = 900.0  # seconds that a gang waits for all its members
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
SHORT = 1800.0  # a node that is given back sooner was hardly worth its two boots


@dataclass(frozen=True)
class Ask:
    """A pod that a user creates at the time `at`. Pods with the same `gang` begin together."""

    at: float
    lasts: float
    request: tuple[tuple[str, int], ...]
    queue: str
    never_starts: bool = False  # it waits for something that nodes and quota can't give
    gang: int = 0


@dataclass(frozen=True)
class NodeClass:
    """A type of batch node: the size of a node, how many there are, and the prefix of their names
    (empty: the type). `brings`: what a joined node offers, if not its size."""

    size: tuple[tuple[str, int], ...]
    count: int
    brings: tuple[tuple[str, int], ...] = ()
    prefix: str = ""


@dataclass(frozen=True)
class Workload:
    """The workload of some days. `limits`: queue path -> baseline limit, with parents.
    `namespaces`: monitored namespace -> (queue, node type). `free`: the free capacity of each
    permanent node. `cap`: the most lent nodes. `fails`: the share of conversions that fail.
    `conversions`, `returns`: recorded durations; if there are any, each simulated duration is one
    of them. `begins`: the time of second 0."""

    name: str
    asks: tuple[Ask, ...]
    limits: Mapping[str, Mapping[str, int]]
    namespaces: Mapping[str, tuple[str, str]]
    free: tuple[Mapping[str, int], ...]
    classes: Mapping[str, NodeClass]
    seed: int
    lasts: float = WEEK
    nothing_ends_after: float = 2 * WEEK  # a pod that would end later runs forever
    jobs: tuple[SimJob, ...] = ()
    cap: int = 30
    fails: float = 0.0
    broken: frozenset[str] = frozenset()  # nodes that always fail to convert
    rests: bool = True  # whether the converter leaves a node alone that failed
    conversion: tuple[float, float] = CONVERSION
    conversions: tuple[float, ...] = ()
    returns: tuple[float, ...] = ()
    begins: datetime = MONDAY
    spreads: bool = False  # nodesortpolicy fair: the emptiest node first

    def namespace_of(self, queue: str) -> str:
        return next(name for name, (path, _) in self.namespaces.items() if path == queue)


@dataclass(eq=False)
class PodState:
    number: int
    ask: Ask
    request: Amounts
    node: str = ""
    bound_at: float = -1.0
    works_since: float = -1.0
    epoch: int = 0  # a moved pod starts again: its earlier end does not apply


@dataclass(eq=False)
class SimNode:
    name: str
    node_type: str  # empty: permanent
    size: Amounts
    free: Amounts
    namespace: str = ""
    cordoned: bool = False
    joined_at: float = 0.0
    pods: set[PodState] = field(default_factory=set)

    @property
    def free_share(self) -> float:
        """Returns the node's free shares of cores and memory, added up as in `nodesorting.go`."""
        free, size = self.free, self.size
        cores = free["cpu"] / size["cpu"] if size.get("cpu") else 0.0
        memory = size.get("memory", 0)
        return cores + (free["memory"] / memory if memory else 0.0)


@dataclass(eq=False)
class SimulatedCall:
    """A call of the converter: the nodes that it took, and which have joined or failed so far."""

    node_type: str
    names: list[str]
    joined: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return len(self.joined) + len(self.failed) == len(self.names)


@dataclass
class Cost:
    """The costs of a policy so far, counted while the simulation runs."""

    waits: list[float] = field(default_factory=list)  # seconds, a pod each
    lent: float = 0.0  # node-seconds from the order to convert to being back in Slurm
    idle: float = 0.0  # node-seconds in Kubernetes without a pod
    booting: float = 0.0  # node-seconds of conversions and returns
    conversions: int = 0
    failures: int = 0
    short: int = 0  # given back within half an hour of their joining
    unserved: int = 0  # pods that never started
    moved: int = 0  # pods that were restarted elsewhere

    @property
    def waited(self) -> float:
        return sum(self.waits)
