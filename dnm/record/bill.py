"""The usage report: the hours of each lend of a node in a span, from the lines of history. Pure.

A lend is charged from dnm's request until Slurm has the node again, like the reservation in Slurm's
accounting. `booting` is the time in which the node serves no queue. `idle` is the time without pods
before the node is fenced (cordoned by dnm). The rest is used. The report names the line of history
with which each lend begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.model.history import SCHEMA, HistoryLine
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.record.stays import BEGINS, ENDS
from dnm.record.totals import serves_since

_SERVES = ("serving", "releasing", "moving")
_HOUR = timedelta(hours=1)
Amounts = Mapping[str, float]  # resource -> what pods asked for, times seconds


class Lend(Value):
    """The part of a node's lend for one queue that lies in the report's span. `end`: None if the
    node is still lent. `used`: the pods' requests times seconds, None if the history lacks them."""

    node: str
    node_type: str
    namespace: str
    queue: str
    account: str
    request: str
    line: int
    begin: datetime
    end: datetime | None
    until: datetime  # of the span, or its end
    booting: float  # hours, as is all that follows
    idle: float
    used: Amounts | None = None
    size: Mapping[str, int] = {}  # what its queue grew by

    @property
    def hours(self) -> float:
        return (self.until - self.begin) / _HOUR

    @property
    def used_hours(self) -> float:
        return self.hours - self.booting - self.idle


class _Open:
    """A lend of a node that has not ended in the history lines read so far."""

    def __init__(self, line: HistoryLine, begin: datetime, account: str, request: str) -> None:
        self.first, self.begin, self.account, self.request = line, begin, account, request
        self.size: Mapping[str, int] = {}
        self.spans: list[tuple[str, datetime, datetime]] = []
        self._kind, self._since = "booting", begin
        self.told = begin  # time of the last line

    def turn(self, phase: str, now: datetime, idle: timedelta) -> None:
        """Begins `phase` at `now`. Before that, the node had no pods for the time `idle`."""
        self.told = now
        kind = "serving" if phase in _SERVES else "booting"
        if self._kind == "serving" and idle:
            fell_idle = max(now - idle, self._since)
            self.spans += [("serving", self._since, fell_idle), ("idle", fell_idle, now)]
            self._since = now
        if kind != self._kind:
            self.spans.append((self._kind, self._since, now))
            self._kind, self._since = kind, now

    def close(
        self, end: datetime, used: Amounts | None, span: tuple[datetime, datetime]
    ) -> Lend | None:
        """Returns the part of the lend within `span`, or None. Reduces `used` in proportion."""
        begin, stop = max(self.begin, span[0]), min(end, span[1])
        if begin >= stop:
            return None
        spans = [*self.spans, (self._kind, self._since, end)]
        total = _hours_of("serving", spans, self.begin, end)
        share = _hours_of("serving", spans, begin, stop) / total if total else 0.0
        line = self.first
        return Lend(
            node=line.object, node_type=line.node_type, namespace=line.namespace,
            queue=line.queue, account=self.account, request=self.request, line=line.number,
            begin=begin, end=end, until=stop,
            booting=_hours_of("booting", spans, begin, stop),
            idle=_hours_of("idle", spans, begin, stop),
            used=None if used is None else _part(used, share),
            size=self.size,
        )  # fmt: skip


def _part(amounts: Amounts, share: float) -> Amounts:
    return {name: amount * share for name, amount in amounts.items()}


def _hours_of(
    kind: str, spans: Iterable[tuple[str, datetime, datetime]], begin: datetime, stop: datetime
) -> float:
    inside = (min(last, stop) - max(first, begin) for of, first, last in spans if of == kind)
    return sum(max(item, timedelta()) / _HOUR for item in inside)


class Biller:
    """A reader of all history lines, the oldest first, that makes the usage report of a span."""

    def __init__(self, since: datetime, until: datetime) -> None:
        self.span, self._now = (since, until), until
        self._open: dict[str, _Open] = {}
        self._asked: dict[str, datetime] = {}  # by request
        self._lends: list[Lend] = []

    def add(self, line: HistoryLine) -> None:
        """Counts one line of history. Lines after the span matter too, because they end lends."""
        if line.kind == "request" and line.event == "requested":
            self._asked[line.object] = line.time
        elif line.kind == "node" or (line.kind == "verb" and line.queue):
            self._add_node(line)

    def _add_node(self, line: HistoryLine) -> None:
        name, numbers = line.object, line.numbers
        if line.event in BEGINS:
            request = str(numbers.get("request", ""))
            begin = self._asked.get(request, line.time)
            self._close_untold(name)
            self._open[name] = _Open(line, begin, str(numbers.get("account", "")), request)
        elif line.event == "moved" and name in self._open:
            before = self._open[name]
            self._close(name, line.time, _used_of(line))
            self._open[name] = _Open(line, line.time, before.account, before.request)
            self._open[name].turn("serving", line.time, timedelta())
            self._open[name].size = before.size
        elif line.event in ENDS:
            if name not in self._open and (seconds := float(numbers.get("lent_seconds", 0))):
                begin = line.time - timedelta(seconds=seconds)  # it is in another host's history
                self._open[name] = _Open(line, begin, str(numbers.get("account", "")), "")
                self._open[name].turn("serving", begin, timedelta())
            self._close(name, line.time, _used_of(line))
        elif name in self._open and line.after:
            idle = timedelta(seconds=float(numbers.get("idle_seconds", 0)))
            self._open[name].turn(line.after, line.time, idle)
            self._open[name].size = numbers.get("counted") or self._open[name].size

    def _close(self, name: str, end: datetime | None, used: Amounts | None = None) -> None:
        stay = self._open.pop(name, None)
        lend = stay.close(end or self._now, used, self.span) if stay else None
        if lend is not None:
            is_over = end is not None and end <= self.span[1]
            self._lends.append(lend if is_over else msgspec.structs.replace(lend, end=None))

    def _close_untold(self, name: str) -> None:
        """Ends a lend at its last line, if its real end is only in another host's history."""
        if (stay := self._open.get(name)) is not None:
            self._close(name, stay.told)

    def close(self, registry: Registry, now: datetime) -> tuple[Lend, ...]:
        """Returns all lends in the span, sorted by account, namespace and time. `registry` has the
        nodes that are lent now."""
        self._now = now
        for name in [*self._open.keys() - registry.nodes.keys()]:
            self._close_untold(name)
        for name in registry.nodes.keys() - self._open.keys():
            self._open[name] = _unseen(name, registry, self.span[0])
        for name in list(self._open):
            entry = registry.nodes.get(name)
            if entry is not None and entry.idle_since is not None:
                idle = max(now - entry.idle_since, timedelta())
                self._open[name].turn("serving", now, idle)
            charge = entry.charge if entry is not None else None
            self._close(name, None, charge.used_until(now) if charge else None)
        return tuple(
            sorted(
                self._lends, key=lambda lend: (lend.account, lend.namespace, lend.begin, lend.node)
            )
        )


def _unseen(name: str, registry: Registry, now: datetime) -> _Open:
    """Returns the lend of a node that is lent now, if the history does not have its start."""
    entry, lent = registry.nodes[name], registry.memory.lent.get(name)
    line = HistoryLine(
        schema=SCHEMA, number=0, time=now, run="", instance=entry.owner, kind="node", event="lent",
        object=name, node_type=entry.node_type, namespace=entry.namespace, queue=entry.queue,
    )  # fmt: skip
    begin = serves_since(lent, entry) if lent else entry.since
    opened = _Open(line, begin, entry.account, "")
    opened.turn(entry.phase.value, begin, timedelta())
    opened.size = entry.counted
    return opened


def _used_of(line: HistoryLine) -> Amounts | None:
    if "account" not in line.numbers:
        return None
    return msgspec.convert(line.numbers.get("used", {}), dict[str, float])


class Sum(Value):
    """The node-hours of an account for a namespace and a queue. `billed` multiplies them by Slurm's
    billing weight of each node. It is None if one of the weights is unknown."""

    account: str
    namespace: str
    queue: str
    lends: int
    lent: float
    booting: float
    used: float
    idle: float
    billed: float | None


def sums_of(lends: Iterable[Lend], weights: Mapping[str, float]) -> Iterator[Sum]:
    """Yields the node-hours by account, namespace and queue. `weights` has the billing units of
    each node for an hour."""
    groups: dict[tuple[str, str, str], list[Lend]] = {}
    for lend in lends:
        groups.setdefault((lend.account, lend.namespace, lend.queue), []).append(lend)
    for (account, namespace, queue), of in sorted(groups.items()):
        is_weighted = all(item.node in weights for item in of)
        yield Sum(
            account=account, namespace=namespace, queue=queue, lends=len(of),
            lent=sum(item.hours for item in of), booting=sum(item.booting for item in of),
            used=sum(item.used_hours for item in of), idle=sum(item.idle for item in of),
            billed=sum(item.hours * weights[item.node] for item in of) if is_weighted else None,
        )  # fmt: skip
