"""What is remembered of the past: a line of history for each transition, and what the record keeps
in the registry until those lines are written and for the totals that metrics count."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from dnm.model.value import Moment, Value

SCHEMA = 1
PODS_ON_A_NODE = 110  # what a kubelet takes, unless it is told another number
NODES = "nodes"  # what a line of demand is about that tells of permanent nodes; others: a queue
JOBS = "jobs"  # the kind of line that says what jobs wait for
ALL, NONE, UNKNOWN = "all", "none", ""
"""How many more nodes of a type jobs wait for, as a line has it before and after: as many as are
lent, none, nobody says; else a number below those that are lent, rounded up to a power of two."""


class HistoryLine(Value, omit_defaults=True, forbid_unknown_fields=False):
    """One transition or one verb of a person. `number` counts the lines of a registry, so that no
    two are equal. `before` and `after` are phases of a node, verdicts of a queue, amounts of a
    limit. `numbers` are those that the decision was made on."""

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
    who: str = ""
    host: str = ""
    numbers: Mapping[str, Any] = {}


def recorded_moment(text: object) -> datetime | None:
    """Returns the moment in the numbers of a line, or None if there is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


class Decision(Value, omit_defaults=True):
    """The numbers behind a queue's verdict. `headroom`: what it may still use up to the root.
    `wanted`, `granted`: nodes by type, packing's answer. `pods`: some that lack room or quota."""

    pending_pods: int = 0
    pending: Mapping[str, int] = {}
    used: Mapping[str, int] = {}
    limit: Mapping[str, int] = {}
    headroom: Mapping[str, int] = {}
    wanted: Mapping[str, int] = {}
    granted: Mapping[str, int] = {}
    no_room: int = 0
    no_quota: int = 0
    pods: tuple[str, ...] = ()


class PodKind(Value):
    """Equal pods of a queue: how many wait, how many are bound to a node, and how many of both came
    since the run before (None: not known). `gang`: so many of them begin together; 0: each alone.
    In seconds since 1970: `came_at`, when those that came did; `sums`, of those that wait and of
    those that are bound, which tell from line to line who it is that began or ended."""

    request: Mapping[str, int]  # without the number of pods
    pending: int
    bound: int
    came: int | None = None
    gang: int = 0
    came_at: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()


class NodeRoom(Value):
    """Equal permanent nodes: how many, and what each has free beside pods of other queues."""

    free: Mapping[str, int]
    count: int


def pods_on(numbers: Mapping[str, Any], size: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
    """Returns how many of the pods that a request was made for one of its nodes takes, and what
    each of them asks for; zero where the request's `numbers` don't say. `size`: of the node."""
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
    who: str = ""
    host: str = ""
    reason: str = ""
    numbers: Mapping[str, Any] = {}


class Asked(Value):
    """The reason and the time of a request for nodes, kept until they have joined."""

    since: Moment
    code: str = ""
    reason: str = ""


class Lent(Value):
    """The time since when a node is lent, and the time of its request."""

    since: Moment
    asked_at: Moment | None = None


class Durations(Value):
    """A histogram of seconds: how many took at most so long, by the bounds of `BOUNDS`."""

    counts: tuple[int, ...] = ()
    total: float = 0.0
    number: int = 0


BOUNDS = (60, 120, 300, 600, 900, 1800, 3600, 7200)
"""Seconds from asking for a node to its serving."""


class Totals(Value):
    """Counted since the registry began: by node type and result; moves by type; node-seconds of
    nodes that have gone back or to another queue, by queue and type; how long conversions took, by
    type, and `step_seconds` how long each step by which nodes of a type are opened."""

    conversions: dict[str, dict[str, int]] = {}
    reversions: dict[str, dict[str, int]] = {}
    moves: dict[str, int] = {}
    lent_seconds: dict[str, dict[str, float]] = {}
    conversion_seconds: dict[str, Durations] = {}
    step_seconds: dict[str, dict[str, Durations]] = {}


class LastingError(Value):
    """The time since when an error exists, its last report, and whether more than one run met
    it."""

    since: Moment
    said: Moment
    has_lasted: bool = False


class Memory(Value, rename={"unwritten": "untold"}):  # its name on disk
    """What the record keeps in the registry, saved with the change it tells of.

    `unwritten`: lines that may not stand in the history yet. `intended`: lines that are true once
    the queue document says so, which the next run finds out. `last_number`: of the last line.
    """

    last_number: int = 0
    unwritten: tuple[HistoryLine, ...] = ()
    intended: tuple[HistoryLine, ...] = ()
    asked: dict[str, Asked] = {}  # by request
    lent: dict[str, Lent] = {}  # by node
    lasting: dict[str, LastingError] = {}  # errors, by their sentence
    is_paused: bool = False  # a pause was in force when the record was last told
    waiting: dict[str, Moment] = {}  # kinds of pods that wait in vain, and when that was told
    jobs: dict[str, str] = {}  # node type -> what jobs waited for, as it was last told
    totals: Totals = msgspec.field(default_factory=Totals)
