"""The registry's entries of lent, requested and claimed nodes, and results of converter calls."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import get_args

import msgspec

from dnm.model.charge import Charge
from dnm.model.departure import OVERRIDES_STAY, Departure, Eviction
from dnm.model.lent_state import ConverterProcess, Failed, Joining, LentState, Moving, Returning
from dnm.model.node import Mark
from dnm.model.opening import Opening
from dnm.model.value import Moment, Value

_STORED = {"nodes_before": "known_nodes", "out_before": "known_out"}
MAX_ATTEMPTS = 3  # to return a node; then dnm asks an administrator


class Phase(Enum):
    """The phases of a lent node from joining to returning, as the registry stores them."""

    JOINING = "joining"
    SERVING = "serving"
    RELEASING = "releasing"
    RETURNING = "returning"
    MOVING = "moving"
    FAILED = "failed"


_PHASES = {state: Phase(state.__struct_config__.tag) for state in get_args(LentState)}


class LentNode(Value):
    """A node that dnm has lent to Kubernetes, as the registry records it."""

    node_type: str
    namespace: str
    queue: str
    owner: str
    state: LentState
    counted: dict[str, int] = {}  # its part of the queue's limit; empty before it serves
    idle_since: Moment | None = None
    was_used: bool = False
    is_needed: bool = False  # idle too long, but pods elsewhere use its quota, or a Workload waits
    departure: Departure | None = None  # None: it serves as long as its queue needs it
    lent_since: Moment | None = None  # recorded only if something depends on it
    asked_at: Moment | None = None  # when its request was written; None: unknown
    is_unjudged: bool = False  # it joined, and dnm could not yet read whether it is excluded
    order: str = ""  # the administrator's order behind it
    stays_until: Moment | None = None  # an administrator keeps it until then, idle or not
    failed_move: str = ""  # the namespace of a move that failed half way; its labels may be left
    opening: Opening | None = None  # recorded if its type has readiness checks
    fault: str = ""  # the entry of fault_conditions that applies; it stays drained after its return
    charge: Charge | None = None  # None: no account is charged
    moved_at: Moment | None = None  # when it began to serve this namespace; None: when it was lent

    @property
    def phase(self) -> Phase:
        """Returns the node's phase, which the type of its state determines."""
        return _PHASES[type(self.state)]

    @property
    def since(self) -> datetime:
        """Returns the time at which the node entered its phase."""
        return self.state.since

    @property
    def error(self) -> str:
        """Returns the error that the node's state records, or an empty text."""
        return "" if isinstance(self.state, Moving) else self.state.error

    @property
    def converter(self) -> ConverterProcess | None:
        """Returns the converter that may be at work on the node, or None."""
        state = self.state
        return state.converter if isinstance(state, Joining | Returning | Failed) else None

    @property
    def leaves(self) -> str | None:
        """Returns the reason to return the node even if its queue needs it, or None."""
        return self.departure.reason if self.departure else None

    @property
    def eviction(self) -> Eviction | None:
        """Returns the eviction of the node's pods, or None if dnm does not evict them."""
        return self.departure.eviction if self.departure else None

    def leave(self, reason: str) -> LentNode:
        """Returns a copy with a new reason to return the node. The eviction of its pods stays."""
        departure = Departure(reason=reason, eviction=self.eviction)
        return msgspec.structs.replace(self, departure=departure)

    @property
    def returning(self) -> Returning:
        """Returns the node's state as `Returning`; the caller knows that it is in that phase."""
        assert isinstance(self.state, Returning)
        return self.state

    def with_state(self, **changes: object) -> LentNode:
        """Returns a copy of the entry in which these fields of its state are replaced."""
        replace = msgspec.structs.replace
        return replace(self, state=replace(self.state, **changes))

    def is_kept_at(self, now: datetime) -> bool:
        """Returns whether an administrator's `dnm lend` or `dnm extend` keeps the node at `now`."""
        is_in_time = self.stays_until is not None and now < self.stays_until
        return is_in_time and self.leaves not in OVERRIDES_STAY

    @property
    def failed_attempts(self) -> str:
        """Returns a text: how many attempts to return the node failed, and the last error."""
        if not isinstance(call := self.state, Returning):
            return ""
        failed = call.attempts - (call.converter is not None or call.is_handed_over)
        if failed <= 0:
            return ""
        why = call.error or "the node has not come back"
        return f"{failed} of {MAX_ATTEMPTS} attempts failed: {why}"

    @property
    def account(self) -> str:
        """Returns the Slurm account that pays for the node, or an empty text."""
        return self.charge.account if self.charge else ""

    @property
    def lent_from(self) -> datetime:
        """Returns when the node was lent, or, if that is not recorded, when its phase began."""
        return self.lent_since or self.since

    @property
    def took(self) -> dict[str, int]:
        """Returns how many seconds each step took until the node served; empty without checks."""
        return self.opening.took(self.asked_at or self.since) if self.opening else {}

    @property
    def heads_for(self) -> str:
        """Returns the namespace that the node serves, or to which it moves."""
        state = self.state
        return state.to if isinstance(state, Moving) and not state.is_back else self.namespace

    @property
    def mark(self) -> Mark:
        """Returns dnm's annotations that the node's Node object must have."""
        return Mark(
            instance=self.owner,
            node_type=self.node_type,
            namespace=self.namespace,
            queue=self.queue,
        )


class RequestEnd(Value, rename={"is_abandoned": "is_given_up"}):
    """The result of the converter call that a request for nodes started."""

    error: str = ""
    is_abandoned: bool = False  # it failed without a node; late nodes are adopted


class ConversionRequest(Value, rename=_STORED):
    """A request to lend nodes, in phase `requested`. The registry contains it from before the
    converter starts until the names of all its nodes are known or its deadline has passed."""

    id: str
    node_type: str
    namespace: str
    queue: str
    owner: str
    count: int  # nodes that have not appeared yet
    since: Moment  # or since when its converter has ended
    nodes_before: tuple[str, ...]  # Nodes of this type that existed before: never adopted
    node: str = ""  # to complete its interrupted conversion; empty: any node
    out_before: tuple[str, ...] = ()  # nodes of this type that were out of service in Slurm before
    names: tuple[str, ...] = ()  # reported by the converter
    end: RequestEnd | None = None  # None: its converter has not ended
    asked_at: Moment | None = None  # when it was written; None: unknown
    converter: ConverterProcess | None = None
    leave_out: str = ""  # a host list: nodes that the converter may not choose
    order: str = ""  # the administrator's order behind it
    account: str = ""  # that pays for its nodes; empty: none
    stays_until: Moment | None = None  # its nodes stay until then, idle or not

    @property
    def error(self) -> str:
        """Returns the error of the converter that the request started, or an empty text."""
        return self.end.error if self.end else ""

    @property
    def is_abandoned(self) -> bool:
        """Returns whether the request's converter failed and no node appeared."""
        return self.end is not None and self.end.is_abandoned


class ClaimedNode(Value):
    """A node that a converter has reserved in Slurm for this instance, but that is neither lent nor
    requested: the converter died, or dnm did not start it. Caps count such nodes."""

    node_type: str
    namespace: str
    since: Moment | None = None
    why: str = ""  # the next step for it, and its time
    can_resume: bool = False  # its conversion was interrupted, and its converter can complete it


class Ended(Value):
    """The result of a call of the converter, as far as dnm could observe it."""

    exit_code: int | None = None  # None: it runs, or its end is unknown; below 0: a signal
    names: tuple[str, ...] = ()  # nodes that it printed on stdout, one a line
    last_lines: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()  # the last line with an error of each node
    timed_out: bool = False
    left_running: bool = False
    not_started: str = ""  # the reason

    @property
    def error(self) -> str:
        """Returns the error of the converter call; empty after a success or without a record."""
        if self.not_started:
            return self.not_started
        last = f": {self._reason}" if self.failures or self.last_lines else ""
        if self.timed_out:
            return f"the converter ran out of its time and was ended{last}"
        if self.exit_code not in (0, None):
            return f"the converter ended with exit code {self.exit_code}{last}"
        return ""

    @property
    def _reason(self) -> str:
        """Returns the output lines with errors of nodes or, if there are none, the last line, often
        a summary. Lines are cut, since the history, mail and pages contain them."""
        if not self.failures:
            return self.last_lines[-1][:LONGEST_REASON]
        more = len(self.failures) - _MOST_REASONS
        reasons = "; ".join(failure[:LONGEST_REASON] for failure in self.failures[:_MOST_REASONS])
        return f"{reasons}; and {more} more" if more > 0 else reasons


LONGEST_REASON, _MOST_REASONS = 500, 2  # characters of a line, and lines
