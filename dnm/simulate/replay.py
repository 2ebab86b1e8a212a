"""A workload for the simulation from the site's own records. Pure.

There are two sources. The record of demand (`demand_days`) has, for each minute with a change, how
many pods of each kind wait and run. Pods of a kind begin and end in the order of their creation.
Without that record, the history has only lent nodes. Each used node represents the pods of its
request, from the request until the node was idle. The load of the permanent nodes is constant, and
pods that never got a node are missing.

In both cases, the history gives the times of conversions and returns, and the share of failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.history import NODES, PODS_ON_A_NODE, HistoryLine, NodeRoom, pods_on
from dnm.model.lent import LentNode, Phase
from dnm.model.registry import Registry
from dnm.model.share import Share, most_of
from dnm.model.value import Value
from dnm.simulate.accounting import Accounting, SimulationError
from dnm.simulate.kinds import KindReplay, Span
from dnm.simulate.values import Ask, NodeClass, Workload

MOST_PODS = 2_000_000
_MOST_SPANS = 10_000  # of conversions that are drawn from
_FEWEST_SECONDS = 60.0  # a node that was used for less was not wanted


class Replay(Value):
    """The recorded use of a lent node: `pods` equal pods that were created at `asked` and ran for
    `lasts` seconds, each with this `request`."""

    queue: str
    asked: datetime
    lasts: float
    pods: int
    request: Mapping[str, int]


class Recorded(Value):
    """The records of a site from `since` until `until`. `fullness`: queue -> the used share of its
    limit when dnm requested nodes for it. `notes`: facts that the records lack."""

    since: datetime
    until: datetime
    stays: tuple[Replay, ...] = ()
    spans: tuple[Span, ...] = ()
    conversions: tuple[float, ...] = ()
    returns: tuple[float, ...] = ()
    fails: float = 0.0
    fullness: Mapping[str, float] = {}
    nodes: Mapping[str, frozenset[str]] = {}
    free_capacity: tuple[NodeRoom, ...] = ()
    notes: tuple[str, ...] = ()


class Reader:
    """A reader of the lines of the history, and of the record of demand, the oldest first."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._demand_from: datetime | None = None
        self._asked: dict[str, HistoryLine] = {}
        self._open: dict[str, dict[str, Any]] = {}
        self._stays: list[Replay] = []
        self._conversions: list[float] = []
        self._returns: list[float] = []
        self._failures = self._unused = 0
        self._fullness: dict[str, list[float]] = {}
        self._nodes: dict[str, set[str]] = {}
        self._kinds = KindReplay()
        self._capacities: tuple[NodeRoom, ...] = ()

    def add(self, line: HistoryLine) -> None:
        """Reads one line of the history or of demand."""
        if line.kind == "demand":
            if line.object == NODES:
                self._capacities = msgspec.convert(line.numbers["nodes"], tuple[NodeRoom, ...])
                return
            self._kinds.add(line)
            self._demand_from = self._demand_from or line.time
            return
        self._first = self._first or line.time
        if line.kind == "request":
            self._add_request(line)
        elif line.kind == "node":
            self._add_node(line)

    def close(self, registry: Registry, since: datetime, until: datetime) -> Recorded:
        """Returns what all lines contain. `registry` has the nodes that are still lent."""
        for name, entry in registry.nodes.items():
            if name not in self._open and entry.phase is Phase.SERVING:
                self._lent_before(name, entry, since)
            if name in self._open:
                self._end(name, entry.idle_since or until)
        young = self._young_demand(until)
        spans = [] if young else self._kinds.close()
        tried = len(self._conversions) + self._failures
        return Recorded(
            since=(None if young else self._demand_from) or self._first or since,
            until=until,
            stays=tuple(self._stays),
            spans=tuple(spans),
            conversions=tuple(self._conversions[-_MOST_SPANS:]),
            returns=tuple(self._returns[-_MOST_SPANS:]),
            fails=self._failures / tried if tried else 0.0,
            fullness={queue: median(shares) for queue, shares in self._fullness.items()},
            nodes={name: frozenset(names) for name, names in self._nodes.items()},
            free_capacity=self._capacities,
            notes=tuple(self._notes(spans, young)),
        )

    def _young_demand(self, until: datetime) -> str:
        """Returns since when demand is recorded, if that is less than half of the time with lent
        nodes: then the record is not used. Otherwise returns an empty text."""
        if not (self._demand_from and self._first and self._stays):
            return ""
        is_young = 2 * (until - self._demand_from) < until - self._first
        return f"{self._demand_from:%Y-%m-%d %H:%M} UTC" if is_young else ""

    def _notes(self, spans: Sequence[Span], young: str) -> Iterable[str]:
        if not spans:
            has = f"demand only since {young}" if young else "no demand of this time"
            yield (
                f"the record has {has} (demand_days): pods are those for which "
                "nodes were lent; those that waited in vain, and what permanent nodes carried "
                "besides, are not known"
            )
        if spans and self._kinds.cancelled:
            yield f"{self._kinds.cancelled} pods went before they had begun and are left out"
        if not spans and self._unused:
            yield f"{self._unused} of the lent nodes were unused; no pod is simulated for them"

    def _add_request(self, line: HistoryLine) -> None:
        if line.event != "requested":
            self._failures += int(line.numbers.get("missing", 1))
            return
        self._asked[line.object] = line
        used, limit = line.numbers.get("used", {}), line.numbers.get("limit", {})
        shares = [used.get(name, 0) / amount for name, amount in limit.items() if amount > 0]
        if shares:
            self._fullness.setdefault(line.queue, []).append(min(max(shares), 1.0))

    def _add_node(self, line: HistoryLine) -> None:
        name = line.object
        if line.event in ("lent", "adopted"):
            asked = self._asked.get(line.numbers.get("request", ""))
            self._open[name] = {"queue": line.queue, "lent": line.time, "asked": asked}
            self._nodes.setdefault(line.node_type, set()).add(name)
        node = self._open.get(name)
        if node is None:
            return  # it was lent before
        match line.event:
            case "joined":
                node["joined"], node["size"] = line.time, dict(line.numbers.get("counted", {}))
                begun = node["asked"].time if node["asked"] else node["lent"]
                self._conversions.append((line.time - begun).total_seconds())
            case "fenced":
                node["idle"] = (line.time, float(line.numbers.get("idle_seconds", 0)))
            case "unfenced":
                node.pop("idle", None)
            case "returning":
                node["returning"] = line.time
            case "returned" | "forgotten" | "failed":
                self._leave(name, line)

    def _lent_before(self, name: str, entry: LentNode, since: datetime) -> None:
        """Begins the record of a node that was lent before the first line, by the registry."""
        begun = max(entry.since, since)
        self._open[name] = {"queue": entry.queue, "asked": None, "joined": begun}
        self._open[name]["size"] = dict(entry.counted)
        self._nodes.setdefault(entry.node_type, set()).add(name)

    def _leave(self, name: str, line: HistoryLine) -> None:
        node = self._open[name]
        if line.event == "returned" and "returning" in node:
            self._returns.append((line.time - node["returning"]).total_seconds())
        self._failures += "joined" not in node
        self._end(name, line.time)

    def _end(self, name: str, end: datetime) -> None:
        node = self._open.pop(name)
        if "joined" not in node:
            return
        fenced, idle = node.get("idle", (end, 0.0))
        lasts = (fenced - node["joined"]).total_seconds() - idle
        if lasts < _FEWEST_SECONDS or not node["size"]:
            self._unused += 1
            return
        self._stays.append(_stay(node, lasts))


def _stay(node: Mapping[str, Any], lasts: float) -> Replay:
    """Returns the pods that a lent node had: as many of its request as fit on it. Without a
    recorded request, it is one pod that fills the node from its joining on."""
    asked: HistoryLine | None = node["asked"]
    size = {name: amount for name, amount in node["size"].items() if name != "pods" and amount > 0}
    pods, request = pods_on(asked.numbers if asked else {}, size)
    if asked is None or not pods:
        return Replay(queue=node["queue"], asked=node["joined"], lasts=lasts, pods=1, request=size)
    return Replay(queue=node["queue"], asked=asked.time, lasts=lasts, pods=pods, request=request)


def make_workload(
    recorded: Recorded, config: Config, registry: Registry, jobs: Accounting, seed: int
) -> Workload:
    """Returns the workload of the monitored queues: their pods, their limits without lent nodes,
    the permanent nodes that these limits require, and Slurm's jobs."""
    limits = {
        queue: dict(status.baseline or status.limit)
        for queue, status in registry.last_run.queues.items()
        if queue in config.queues
    }
    lasts = (recorded.until - recorded.since).total_seconds()
    asks = _of_demand(recorded, limits) if recorded.spans else _of_stays(recorded, limits)
    own = {queue: _own(recorded, queue, limit) for queue, limit in limits.items()}
    background = [
        Ask(at=0.0, lasts=2 * lasts, request=tuple(own[queue].items()), queue=queue)
        for queue in own
        if not recorded.spans and any(own[queue].values())
    ]
    classes = classes_of(config, recorded.nodes, jobs)
    return Workload(
        name="the record",
        asks=(*background, *sorted(asks, key=lambda request: request.at)),
        limits=limits,
        namespaces=namespaces_of(config, limits),
        free=_capacities(recorded) or (_least_free(own.values()),),
        classes=classes,
        seed=seed,
        lasts=lasts,
        nothing_ends_after=float("inf"),
        jobs=jobs.jobs,
        cap=most_of(config.max_converted_nodes, sum(class_.count for class_ in classes.values())),
        fails=recorded.fails,
        conversions=recorded.conversions,
        returns=recorded.returns,
        begins=recorded.since,
    )


def namespaces_of(config: Config, queues: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns namespace -> (queue, first node type), for namespaces with one of these queues."""
    paths = set(queues)
    return {
        name: (policy.queue, policy.node_types[0])
        for name, policy in config.namespaces.items()
        if policy.queue in paths
    }


def classes_of(
    config: Config, lent: Mapping[str, frozenset[str]], jobs: Accounting
) -> dict[str, NodeClass]:
    """Returns how many nodes each node type has: if there are jobs, all nodes that the record or
    the jobs name; otherwise the most nodes that may be lent."""
    classes = {}
    most = config.max_converted_nodes
    if isinstance(most, Share) and not jobs.jobs:
        raise SimulationError(
            f"max_converted_nodes = {most}: the history does not show of how many nodes; add the "
            "jobs (--jobs), or a number (--set max_converted_nodes=10)"
        )
    for name, kind in config.node_types.items():
        types = lent.get(name, frozenset()) | jobs.nodes.get(name, frozenset())
        classes[name] = NodeClass(
            size=tuple({"pods": PODS_ON_A_NODE, **kind.size}.items()),
            count=len(types) if isinstance(most, Share) or jobs.jobs else most,
            prefix=kind.name_prefix,
        )
    return classes


def _own(recorded: Recorded, queue: str, limit: Mapping[str, int]) -> dict[str, int]:
    """Returns a queue's limit for permanent nodes or, without recorded demand, its used part."""
    share = 1.0 if recorded.spans else recorded.fullness.get(queue, 0.0)
    return {name: int(amount * share) for name, amount in limit.items()}


def _least_free(own: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {"cpu": 0, "memory": 0}
    for amounts in own:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return {**total, "pods": MOST_PODS}


def _capacities(recorded: Recorded) -> tuple[dict[str, int], ...]:
    """Returns the free capacity of each permanent node at the end of the record."""
    if not recorded.spans:
        return ()
    return tuple(
        {"cpu": 0, "pods": PODS_ON_A_NODE, **item.free}
        for item in recorded.free_capacity
        for _ in range(item.count)
    )


def _of_stays(recorded: Recorded, limits: Mapping[str, object]) -> Iterable[Ask]:
    for stay in recorded.stays:
        at = max((stay.asked - recorded.since).total_seconds(), 0.0)
        ask = Ask(at=at, lasts=stay.lasts, request=tuple(stay.request.items()), queue=stay.queue)
        if stay.queue in limits:
            yield from (ask,) * stay.pods


def _of_demand(recorded: Recorded, limits: Mapping[str, object]) -> Iterable[Ask]:
    for span in recorded.spans:
        at = max((span.came - recorded.since).total_seconds(), 0.0)
        if span.queue in limits:
            yield Ask(
                at=at, lasts=span.lasts, request=span.request, queue=span.queue, gang=span.gang
            )
