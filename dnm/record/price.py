"""What lending cost jobs, from their queue as runs have seen it: at most. Pure.

The rule: a minute in which a node was lent, and jobs waited that would have started on it, is a
node-minute that jobs paid. They are never more than the minutes for which nodes were lent. What no
run has seen is not known, and never nothing: it counts on neither side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from dnm.model.history import ALL, NONE, HistoryLine, recorded_moment
from dnm.model.value import Value
from dnm.record.stays import Stay

Step: TypeAlias = tuple[datetime, int | None]
"""From when on jobs waited for so many more nodes of a type; None: not known."""

_MANY = 10**12  # nodes: more than are ever lent


class SeenPrice(Value):
    """Of one node type, in seconds. `lent`: of nodes; `known`: of these, while it was known what
    jobs waited for; `paid`: of these, at most, what jobs lacked; `used`: what pods ran on lent
    nodes while it was known."""

    node_type: str
    lent: float
    known: float
    paid: float
    used: float


class Looks:
    """Takes the lines of what jobs wait for, the oldest first."""

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._steps: dict[str, list[Step]] = {}

    def add(self, line: HistoryLine) -> None:
        """Takes one line. Until the first of a type, what that says was there before; where it goes
        on from something else than the last one said, another host has told of it meanwhile, and
        nobody here knows when."""
        steps = self._steps.setdefault(line.object, [(self._since, _count(line.before))])
        if steps[-1][1] != _count(line.before):
            steps[-1] = (steps[-1][0], None)
        if line.event == "unseen":
            gone = recorded_moment(line.numbers.get("since"))
            steps.append((max(gone or self._since, steps[-1][0]), None))
        steps.append((line.time, _count(line.after)))

    def close(
        self, told: Mapping[str, str], unseen_since: datetime | None
    ) -> dict[str, tuple[Step, ...]]:
        """Returns the steps by node type. `told`: what was told last, for types of which no line
        came; `unseen_since`: no run has looked from then on."""
        found: dict[str, tuple[Step, ...]] = {}
        for node_type in sorted({*told, *self._steps}):
            last = [(self._since, _count(told.get(node_type, "")))]
            steps = self._steps.get(node_type, last)
            if node_type in told and steps[-1][1] != last[0][1]:
                steps = [*steps[:-1], (steps[-1][0], None)]
            if unseen_since is not None:
                steps = [*(step for step in steps if step[0] < unseen_since), (unseen_since, None)]
            found[node_type] = tuple(steps)
        return found


def _count(text: str) -> int | None:
    if text in (ALL, NONE):
        return _MANY if text == ALL else 0
    return int(text) if text.isdecimal() and len(text) < 20 else None


def price_as_seen(
    stays: Iterable[Stay], looks: Mapping[str, Sequence[Step]], span: tuple[datetime, datetime]
) -> tuple[SeenPrice, ...]:
    """Returns the price of each node type that was lent in a span, by its name."""
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
    """By how much the number of lent nodes, and of pods that run on them, changes when."""
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
