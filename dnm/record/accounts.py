"""The content of `dnm report` for a span of time, read from the history in one pass. Pure.

A stay is one lend of a node, from its first record to its return, with its phases. A wait is the
time in which the pods of a queue lacked free capacity or quota. `price.py` estimates how much node
time lending has cost Slurm's jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from dnm.model.history import JOBS, HistoryLine
from dnm.model.observed import LowUse
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.record.price import SeenPrice, WaitingJobHistory, price_as_seen
from dnm.record.stays import BEGINS, ENDS, OpenStay, Stay

ENOUGH = "ENOUGH"
# Reasons by which dnm itself, and not a lack of batch nodes, holds a queue back.
BRAKES = ("CAPPED", "COOLDOWN", "BACKOFF", "BREAKER", "PAUSED", "OUTRANKED", "NO_BATCH_NODE",
          "TOO_YOUNG")  # fmt: skip
_LONGEST_WAITS = 10


class Wait(Value):
    """A time in which pods of a queue waited. `served`: when the first node joined the queue in
    that time. `reasons` maps the code of a reason to the seconds for which pods waited for it.
    `why`: the sentence of the reason that lasted longest."""

    queue: str
    begin: datetime
    end: datetime | None
    served: datetime | None
    most_pods: int
    reasons: Mapping[str, float]
    why: str


class Accounts(Value):
    """The content of `dnm report`. Counts are by queue and node type, spans of time in seconds."""

    since: datetime
    until: datetime
    stays: tuple[Stay, ...]
    waits: tuple[Wait, ...]
    conversions: Mapping[tuple[str, str], int]
    failures: Mapping[tuple[str, str], int]
    returns: Mapping[tuple[str, str], int]
    failed_returns: Mapping[tuple[str, str], int]
    to_serving: Mapping[str, tuple[float, ...]]  # node type -> seconds from request to serving
    steps: Mapping[tuple[str, str], tuple[float, ...]]  # node type, step -> seconds of each node
    idle_seconds: Mapping[str, float]  # queue -> before nodes went back
    refused: Mapping[tuple[str, str], tuple[int, float]]  # queue, reason -> times, seconds
    prices: tuple[SeenPrice, ...] = ()  # by node type, as the queue of jobs was seen
    low_utilization: Mapping[str, LowUse] = {}  # by queue, as the last run saw it

    @property
    def longest_waits(self) -> list[Wait]:
        """Returns the longest times for which pods waited, in descending order."""
        return sorted(self.waits, key=lambda wait: wait.begin - (wait.end or self.until))[
            :_LONGEST_WAITS
        ]

    def node_seconds(self) -> dict[tuple[str, str, str], float]:
        """Returns, for each (ISO week, queue, node type), the seconds for which nodes were lent."""
        sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        for stay in self.stays:
            begin, end = max(stay.begin, self.since), stay.end or self.until
            while begin < end:
                year, week, _ = begin.isocalendar()
                over = min(end, _next_monday(begin))
                key = (f"{year}-W{week:02}", stay.queue, stay.node_type)
                sums[key] += (over - begin).total_seconds()
                begin = over
        return dict(sorted(sums.items()))


def _next_monday(moment: datetime) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + timedelta(days=7 - midnight.weekday())


def percentile(values: Iterable[float], share: float) -> float | None:
    """Returns the value below which the fraction `share` of values lies, or None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class Bookkeeper:
    """A reader of history lines that makes the Accounts. It expects the oldest line first."""

    def __init__(self, since: datetime) -> None:
        self.since = since
        self._open: dict[str, OpenStay] = {}
        self._stays: list[Stay] = []
        self._asked: dict[str, HistoryLine] = {}  # by request
        self._came_of: dict[str, str] = {}  # node -> request
        self._waits: dict[str, _OpenWait] = {}
        self._closed: list[Wait] = []
        self._counts: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._to_serving: dict[str, list[float]] = {}
        self._steps: dict[tuple[str, str], list[float]] = {}
        self._idle: Counter[str] = Counter()
        self._refused: dict[tuple[str, str], list[float]] = {}
        self._looks = WaitingJobHistory(since)

    def add(self, line: HistoryLine) -> None:
        """Counts one line of history in the report."""
        if line.kind == "node" or _is_of_node(line):
            self._add_node(line)
        elif line.kind == "request":
            self._add_request(line)
        elif line.kind == "queue":
            self._add_verdict(line)
        elif line.kind == JOBS:
            self._looks.add(line)

    def close(
        self, registry: Registry, until: datetime, unseen_since: datetime | None = None
    ) -> Accounts:
        """Returns the report. `registry` has the nodes that are lent now. `unseen_since`: no run
        has read Slurm's queue of jobs since then."""
        stays = [*self._stays, *self._close_stays(registry, until)]
        for queue, wait in self._waits.items():
            self._add_reason(queue, wait, until)
            self._closed.append(wait.close(queue, None))
        return Accounts(
            since=self.since,
            until=until,
            stays=tuple(sorted(stays, key=lambda stay: (stay.node, stay.begin))),
            prices=price_as_seen(
                stays, self._looks.close(registry.memory.jobs, unseen_since), (self.since, until)
            ),
            waits=tuple(self._closed),
            to_serving={name: tuple(spans) for name, spans in self._to_serving.items()},
            steps={step: tuple(spans) for step, spans in self._steps.items()},
            idle_seconds=dict(self._idle),
            refused={key: (len(spans), sum(spans)) for key, spans in self._refused.items()},
            conversions=self._counts["conversions"],
            failures=self._counts["failures"],
            returns=self._counts["returns"],
            failed_returns=self._counts["failed_returns"],
            low_utilization=registry.low_utilization,
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _close_stays(self, registry: Registry, until: datetime) -> Iterator[Stay]:
        """Yields the lends without an end in this history: the node is still lent, or its return is
        in another host's history."""
        for name, entry in registry.nodes.items():
            if name not in self._open:
                lent = registry.memory.lent.get(name)
                begin = max(lent.since if lent else entry.since, self.since)
                self._open[name] = OpenStay(entry.node_type, entry.queue, begin, entry.phase.value)
        for name, stay in self._open.items():
            recorded = registry.nodes.get(name)
            if recorded is None:
                yield stay.close_without_end(name)
            else:
                yield stay.close(name, None, recorded.idle_since or until)

    def _add_node(self, line: HistoryLine) -> None:
        name = line.object
        if line.event == "moved":
            self._close_moved(line)
        if line.event in BEGINS:
            if (stay := self._open.pop(name, None)) is not None:
                self._stays.append(stay.close_without_end(name))
            self._open[name] = OpenStay(line.node_type, line.queue, line.time)
            if "request" in line.numbers:
                self._came_of[name] = line.numbers["request"]
        stay = self._open.get(name)
        if stay is None:
            seconds = timedelta(seconds=float(line.numbers.get("lent_seconds", 0)))
            begin = max(self.since, line.time - seconds) if seconds else self.since
            stay = OpenStay(line.node_type, line.queue, begin, line.before or "serving")
            self._open[name] = stay
        stay.take(line)
        self._count_node(line)
        if line.event in ENDS:
            self._stays.append(self._open.pop(name).close(name, line.time, line.time))
            self._came_of.pop(name, None)

    def _close_moved(self, line: HistoryLine) -> None:
        """Ends the lend of a node for its old queue, and begins one for its new queue."""
        name, old = line.object, self._open.pop(line.object, None)
        if old is None:
            queue = str(line.numbers.get("from", line.queue))
            old = OpenStay(line.node_type, queue, self.since, line.before or "serving")
        self._stays.append(old.close(name, line.time, line.time))
        self._open[name] = OpenStay(line.node_type, line.queue, line.time)
        self._open[name].pods = old.pods

    def _count_node(self, line: HistoryLine) -> None:
        counts, kind = self._counts, (line.queue, line.node_type)
        match line.event, line.before:
            case "joined", _:
                counts["conversions"][kind] += 1
                self._note_serving(line)
            case "moved", _:
                self._note_served(line)
            case "failed" | "forgotten" | "forget", "joining":
                counts["failures"][kind] += 1
            case "returned", _:
                counts["returns"][kind] += 1
            case ("return-failed", _) | ("failed", "returning"):
                counts["failed_returns"][kind] += 1
            case "fenced" | "moving", _:
                self._idle[line.queue] += int(line.numbers.get("idle_seconds", 0))

    def _note_serving(self, line: HistoryLine) -> None:
        asked = self._asked.get(self._came_of.get(line.object, ""))
        if asked is not None:
            self._open[line.object].count_pods(asked.numbers, line.numbers.get("counted", {}))
            took = (line.time - asked.time).total_seconds()
            self._to_serving.setdefault(line.node_type, []).append(took)
        for step, seconds in line.numbers.get("took", {}).items():
            self._steps.setdefault((line.node_type, step), []).append(seconds)
        self._note_served(line)

    def _note_served(self, line: HistoryLine) -> None:
        wait = self._waits.get(line.queue)
        if wait is not None and wait.served is None:
            wait.served = line.time

    def _add_request(self, line: HistoryLine) -> None:
        if line.event == "requested":
            self._asked[line.object] = line
        else:
            missing = int(line.numbers.get("missing", 1))
            self._counts["failures"][line.queue, line.node_type] += missing

    # --- queues -----------------------------------------------------------------------------------

    def _add_verdict(self, line: HistoryLine) -> None:
        numbers, queue = line.numbers, line.queue
        pods, wait = int(numbers.get("pending_pods", 0)), self._waits.get(queue)
        if wait is not None:
            self._add_reason(queue, wait, line.time)
        if line.code == ENOUGH or not pods:
            if wait is not None:
                self._closed.append(self._waits.pop(queue).close(queue, line.time))
            return
        if wait is None:
            wait = self._waits[queue] = _OpenWait(line.time)
        wait.now_for(line.code, line.reason, line.time, pods)

    def _add_reason(self, queue: str, wait: _OpenWait, now: datetime) -> None:
        code, seconds = wait.leave(now)
        if code in BRAKES:
            self._refused.setdefault((queue, code), []).append(seconds)


def _is_of_node(line: HistoryLine) -> bool:
    """Returns whether the line is an administrator's command that changed a lent node's phase."""
    return line.kind == "verb" and bool(line.queue) and line.before != line.after


class _OpenWait:
    def __init__(self, begin: datetime) -> None:
        self.begin, self.most_pods = begin, 0
        self.served: datetime | None = None
        self.reasons: defaultdict[str, float] = defaultdict(float)
        self.sentences: dict[str, str] = {}
        self._code, self._since = "", begin

    def now_for(self, code: str, sentence: str, now: datetime, pods: int) -> None:
        self._code, self._since = code, now
        self.sentences[code] = sentence
        self.most_pods = max(self.most_pods, pods)

    def leave(self, now: datetime) -> tuple[str, float]:
        """Adds the time until `now` to the current reason. Returns its code and these seconds."""
        seconds = max((now - self._since).total_seconds(), 0.0)
        self.reasons[self._code] += seconds
        return self._code, seconds

    def close(self, queue: str, end: datetime | None) -> Wait:
        longest = max(self.reasons, key=lambda code: self.reasons[code])
        return Wait(queue=queue, begin=self.begin, end=end, served=self.served,
                    most_pods=self.most_pods, reasons=dict(self.reasons),
                    why=self.sentences.get(longest, ""))  # fmt: skip
