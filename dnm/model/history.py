"""The history of what runs and commands did: its lines, the lines that the registry keeps until
they are written to the file, and the totals for metrics."""

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
    """A line of the history file: a transition, or a command of an administrator. `number` counts
    the lines of a registry, so that each line is unique. `before` and `after` are phases of a node,
    decisions about a queue or amounts of a limit. `numbers` are the figures behind a decision."""

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
    """Parses a time with a UTC offset from a history line's `numbers`. Returns None if invalid."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


class Decision(Value, omit_defaults=True):
    """The figures behind the decision about a queue. `headroom` is the unused quota up to the root.
    `wanted` and `granted` count by type the nodes it needs and gets. `pods` has some pod names."""

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
    """Equal pods of a queue: how many are pending, bound, and new since the last run (`came`, None
    if unknown). `gang` is the number of pods that start together, or 0. `came_at` has creation
    times of new pods in seconds since 1970. `sums` has the sum of all creation times of pending
    pods, and of bound pods: a change between two lines shows which pods began or ended."""

    request: Mapping[str, int]  # without the number of pods
    pending: int
    bound: int
    came: int | None = None
    gang: int = 0
    came_at: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()


class NodeRoom(Value):
    """A number of equal permanent nodes. `free` is what unmonitored pods leave free on each."""

    free: Mapping[str, int]
    count: int


def pods_on(numbers: Mapping[str, Any], size: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
    """Returns how many of the pods for which nodes were requested fit on one node of `size`, and
    what each pod requests. The number is zero if `numbers`, from the history, is incomplete."""
    pending, wanted = int(numbers.get("pending_pods", 0)), max(int(numbers.get("count", 1)), 1)
    request = {
        name: amount // pending
        for name, amount in numbers.get("pending", {}).items()
        if pending and name != "pods" and amount >= pending
    }
    fit = min((size.get(name, 0) // amount for name, amount in request.items()), default=0)
    return max(min(fit, -(-pending // wanted), PODS_ON_A_NODE), 0), request


class Operation(Value):
    """A command of an administrator: its name, object, operator, host, and the given reason."""

    verb: str
    object: str = ""
    requester: str = ""
    host: str = ""
    reason: str = ""
    numbers: Mapping[str, Any] = {}


class RequestCause(Value):
    """The reason and time of a request for nodes, kept for the history until they have joined."""

    since: Moment
    code: str = ""
    reason: str = ""


class Lent(Value):
    """The time since when a node is lent, and the time at which the node was requested."""

    since: Moment
    asked_at: Moment | None = None


class Durations(Value):
    """A histogram of seconds for metrics. Its buckets have the upper bounds of `BOUNDS`."""

    counts: tuple[int, ...] = ()
    total: float = 0.0
    number: int = 0


BOUNDS = (60, 120, 300, 600, 900, 1800, 3600, 7200)
"""Seconds from the request for a node until it serves."""


class Totals(Value):
    """Totals for metrics since the registry was created. Conversions and returns are by node type
    and result, moves by type. `lent_seconds` is the lent time of returned and moved nodes, by queue
    and type. The histograms are by type, those of `step_seconds` also by readiness check."""

    conversions: dict[str, dict[str, int]] = {}
    reversions: dict[str, dict[str, int]] = {}
    moves: dict[str, int] = {}
    lent_seconds: dict[str, dict[str, float]] = {}
    conversion_seconds: dict[str, Durations] = {}
    step_seconds: dict[str, dict[str, Durations]] = {}


class LastingError(Value):
    """An error that occurs in run after run: the times of its begin and its last report, and
    whether more than one run had it."""

    since: Moment
    reported_at: Moment
    has_lasted: bool = False


class Memory(Value):
    """The part of the history that the registry stores, in one write with the changes themselves.

    `unwritten` are lines that the history file may lack. `intended` are lines about limits, which
    are valid if the next run finds the new limits. `last_number` is the number of the last line."""

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
