"""An upper bound of what lending costs Slurm's jobs, from Slurm's queue as runs have read it. Pure.

A minute in which a node was lent, while jobs waited that would have started on it, is a node-minute
that jobs paid. There are never more of these than minutes for which nodes were lent. In a time that
no run has observed, the cost is unknown, not zero: that time counts neither as paid nor as free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from dnm.model.history import ALL, NONE, HistoryLine, recorded_moment
from dnm.model.value import Value
from dnm.record.stays import Stay

Step: TypeAlias = tuple[datetime, int | None]
"""A time, and the nodes of a type that jobs waited for from then on (None: unknown)."""

_MANY = 10**12  # nodes: more than are ever lent


class SeenPrice(Value):
    """The cost of lending nodes of one type, in node-seconds. `lent`: the time for which nodes were
    lent. `known`: the part of `lent` in which runs knew the waiting jobs. `paid`: the part of
    `known` for which jobs may have waited. `used`: the pods' time on lent nodes in `known`."""

    node_type: str
    lent: float
    known: float
    paid: float
    used: float


class WaitingJobHistory:
    """A reader of the history lines about waiting jobs. It expects the oldest line first."""

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._steps: dict[str, list[Step]] = {}

    def add(self, line: HistoryLine) -> None:
        """Adds a line: the number of nodes of a type that jobs wait for changed from `before` to
        `after`. `before` of the first line holds since the beginning. If a `before` differs from
        the previous line's `after`, another host recorded a change, at an unknown time."""
        steps = self._steps.setdefault(line.object, [(self._since, _count(line.before))])
        if steps[-1][1] != _count(line.before):
            steps[-1] = (steps[-1][0], None)
        if line.event == "unseen":
            left = recorded_moment(line.numbers.get("since"))
            steps.append((max(left or self._since, steps[-1][0]), None))
        steps.append((line.time, _count(line.after)))

    def close(
        self, reported: Mapping[str, str], unseen_since: datetime | None
    ) -> dict[str, tuple[Step, ...]]:
        """Returns for each node type when the number of nodes that jobs waited for changed, and the
        new number (None: unknown). `reported` has the last recorded numbers, for types without a
        line. From `unseen_since` on, the numbers are unknown."""
        prices: dict[str, tuple[Step, ...]] = {}
        for node_type in sorted({*reported, *self._steps}):
            last = [(self._since, _count(reported.get(node_type, "")))]
            steps = self._steps.get(node_type, last)
            if node_type in reported and steps[-1][1] != last[0][1]:
                steps = [*steps[:-1], (steps[-1][0], None)]
            if unseen_since is not None:
                steps = [*(step for step in steps if step[0] < unseen_since), (unseen_since, None)]
            prices[node_type] = tuple(steps)
        return prices


def _count(text: str) -> int | None:
    if text in (ALL, NONE):
        return _MANY if text == ALL else 0
    return int(text) if text.isdecimal() and len(text) < 20 else None


def price_as_seen(
    stays: Iterable[Stay], looks: Mapping[str, Sequence[Step]], span: tuple[datetime, datetime]
) -> tuple[SeenPrice, ...]:
    """Returns for each node type what its lends in this span have cost Slurm's jobs."""
    by_type: defaultdict[str, list[Stay]] = defaultdict(list)
    for stay in stays:
        by_type[stay.node_type].append(stay)
    return tuple(
        _sum_up(node_type, some, looks.get(node_type, ()), span)
        for node_type, some in sorted(by_type.items())
    )


def _sum_up(
    node_type: str, stays: Sequence[Stay], steps: Sequence[Step], span: tuple[datetime, datetime]
) -> SeenPrice:
    since, until = span
    nodes, pods = _changes(stays, span)
    values = {min(max(time, since), until): value for time, value in steps}
    sums = dict.fromkeys(("lent", "known", "paid", "used"), 0.0)
    lent, running, wanted, last = 0, 0, None, since
    for time in sorted({*nodes, *pods, *values, until}):
        seconds = (time - last).total_seconds()
        sums["lent"] += lent * seconds
        if wanted is not None:
            sums["known"] += lent * seconds
            sums["paid"] += min(wanted, lent) * seconds
            sums["used"] += running * seconds
        lent, running, last = lent + nodes.get(time, 0), running + pods.get(time, 0), time
        wanted = values.get(time, wanted)
    return SeenPrice(node_type=node_type, **sums)


def _changes(
    stays: Iterable[Stay], span: tuple[datetime, datetime]
) -> tuple[dict[datetime, int], dict[datetime, int]]:
    """Returns when the number of lent nodes, and that of their pods, changes: time -> change."""
    since, until = span
    nodes: defaultdict[datetime, int] = defaultdict(int)
    pods: defaultdict[datetime, int] = defaultdict(int)
    for stay in stays:
        spans = [(nodes, 1, stay.begin, stay.end or until)]
        spans += [(pods, stay.pods, begin, end) for begin, end in stay.used]
        for changes, count, begin, end in spans:
            begin, end = max(begin, since), min(end, until)
            if begin < end:
                changes[begin] += count
                changes[end] -= count
    return nodes, pods
