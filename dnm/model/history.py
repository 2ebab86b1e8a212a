"""The history: a line for each transition, the lines that the registry keeps until they are
written, and the totals for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from dnm.model.value import Moment, Value

SCHEMA = 1
PODS_ON_A_NODE = 110  # the default of a kubelet's maxPods
NODES = "nodes"  # the object of a line of demand about permanent nodes; in others it is a queue
JOBS = "jobs"  # the kind of a line with the demand of pending jobs
ALL, NONE, UNKNOWN = "all", "none", ""
"""Values of a line before and after, for the additional nodes of a type that pending jobs need:
as many as are lent, none, or unknown. Else it is a smaller number, rounded up to a power of two."""


class HistoryLine(Value, omit_defaults=True, forbid_unknown_fields=False):
    """A line of the history: a transition, or a command of an administrator. `number` counts the
    lines of a registry, so that each line is unique. `before` and `after` are phases of a node,
    verdicts of a queue or amounts of a limit. `numbers` are the figures behind the decision."""

    schema: int
    number: int
    time: Moment
    run: str
    instance: str
    kind: str  # as docs/record.md lists them; or demand
    event: str
    object: str
    before: str = ""
    after: str = ""
    code: str = ""  # of the reason
    reason: str = ""
    node_type: str = ""
    namespace: str = ""
    queue: str = ""
    requester: str = ""
    host: str = ""
    numbers: Mapping[str, Any] = {}


def recorded_moment(text: object) -> datetime | None:
    """Parses a time with a UTC offset from a line's `numbers`; returns None for other text."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


class Decision(Value, omit_defaults=True):
    """The numbers behind a queue's verdict. `headroom`: the unused quota up to the root. `wanted`,
    `granted`: nodes by type that it needs, and that it gets. `pods`: names of some of its pods."""

    pending_pods: int = 0
    pending: Mapping[str, int] = {}
    used: Mapping[str, int] = {}
    limit: Mapping[str, int] = {}
    headroom: Mapping[str, int] = {}
    wanted: Mapping[str, int] = {}
    granted: Mapping[str, int] = {}
    without_capacity: int = 0
    no_quota: int = 0
    pods: tuple[str, ...] = ()


class PodKind(Value):
    """Equal pods of a queue: how many are pending, bound, and new since the last run (None:
    unknown). `gang`: the number of pods that start together (0: each starts alone). `came_at`: the
    creation times of the new pods, in seconds since 1970. `sums`: the sums of the creation times of
    pending and of bound pods; a change between lines shows which pods began or ended."""

    request: Mapping[str, int]  # without the number of pods
    pending: int
    bound: int
    came: int | None = None
    gang: int = 0
    came_at: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()


class NodeRoom(Value):
    """Equal permanent nodes. `free`: what pods outside monitored queues leave free on each."""

    free: Mapping[str, int]
    count: int


def pods_on(numbers: Mapping[str, Any], size: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
    """Returns how many of the pods that caused a request for nodes fit on one node of `size`, and
    what each pod requests. The number is zero if the request's `numbers` are incomplete."""
    pending, wanted = int(numbers.get("pending_pods", 0)), max(int(numbers.get("count", 1)), 1)
    request = {
        name: amount // pending
        for name, amount in numbers.get("pending", {}).items()
        if pending and name != "pods" and amount >= pending
    }
    fit = min((size.get(name, 0) // amount for name, amount in request.items()), default=0)
    return max(min(fit, -(-pending // wanted), PODS_ON_A_NODE), 0), request


class Operation(Value):
    """A command of an administrator: object, operator, host, and the given reason."""

    verb: str
    object: str = ""
    requester: str = ""
    host: str = ""
    reason: str = ""
    numbers: Mapping[str, Any] = {}


class RequestCause(Value):
    """The reason and the time of a request for nodes, stored until these nodes have joined."""

    since: Moment
    code: str = ""
    reason: str = ""


class Lent(Value):
    """The time since when a node is lent, and the time at which it was requested."""

    since: Moment
    asked_at: Moment | None = None


class Durations(Value):
    """A histogram of seconds with the upper bounds of `BOUNDS`."""

    counts: tuple[int, ...] = ()
    total: float = 0.0
    number: int = 0


BOUNDS = (60, 120, 300, 600, 900, 1800, 3600, 7200)
"""Seconds from the request for a node until it serves."""


class Totals(Value):
    """Totals since the registry was created. Conversions and returns are by node type and result,
    moves by type. `lent_seconds`: the lent time of returned and moved nodes, by queue and type. The
    histograms are by type, those of `step_seconds` also by readiness check."""

    conversions: dict[str, dict[str, int]] = {}
    reversions: dict[str, dict[str, int]] = {}
    moves: dict[str, int] = {}
    lent_seconds: dict[str, dict[str, float]] = {}
    conversion_seconds: dict[str, Durations] = {}
    step_seconds: dict[str, dict[str, Durations]] = {}


class LastingError(Value):
    """An error that continues: when it began, when it was last reported, and whether several runs
    met it."""

    since: Moment
    reported_at: Moment
    has_lasted: bool = False


class Memory(Value):
    """The part of the history that the registry stores, in one write with the changes themselves.

    `unwritten`: lines that may be missing in the history. `intended`: lines about limits; they
    become true if the next run finds the new limits. `last_number`: the number of the last line."""

    last_number: int = 0
    unwritten: tuple[HistoryLine, ...] = ()
    intended: tuple[HistoryLine, ...] = ()
    asked: dict[str, RequestCause] = {}  # by request
    lent: dict[str, Lent] = {}  # by node
    lasting: dict[str, LastingError] = {}  # errors, by their sentence
    is_paused: bool = False  # a pause applied at the last record
    waiting: dict[str, Moment] = {}  # kinds of pods that wait in vain: time of the last report
    jobs: dict[str, str] = {}  # node type -> last recorded demand of jobs
    totals: Totals = msgspec.field(default_factory=Totals)
