"""The batch side, as a converter's list reports it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.slurm_state import parse_state
from dnm.model.value import Unreadable, Value


class BatchClaim(Value):
    """What a converter says of a node that it has claimed: for which instance, and how far it is.

    `instance` empty: a reservation of its kind that nobody has marked. `direction`: of a conversion
    that has not ended, `k8s` or `batch`; empty: it has, or nothing is known of it here.
    `is_at_work`: a living converter has the node. `error`: why it stopped, a person's to read.
    """

    instance: str
    direction: str = ""
    namespace: str = ""
    node_type: str = ""
    request: str = ""  # dnm's, if it was begun for one
    since: datetime | None = None
    is_at_work: bool = False
    error: str = ""
    account: str = ""  # whom Slurm charges it to; empty: nobody


class SlurmReason(Value):
    """Why a node is drained, down or failed, as Slurm's Reason says it: who wrote that, and when.
    `instance`: the dnm whose mark it is; empty: an administrator's, a health check's, Slurm's."""

    text: str
    by: str = ""
    since: datetime | None = None
    instance: str = ""

    @property
    def line(self) -> str:
        """Returns the reason as scontrol prints it, in UTC."""
        when = f"@{self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since else ""
        return f"{self.text} [{self.by}{when}]" if self.by else self.text


class BatchNode(Value):
    """A node as the batch side has it (`node-convert --list`). `in_service`: None is unknown.
    `tells_claim` False: the converter does not say what it has claimed."""

    name: str
    state: str  # Slurm's words, e.g. IDLE+DRAIN
    verdict: str  # OK | PREEMPT | SKIP
    reason: str = ""
    in_service: bool | None = None
    claim: BatchClaim | None = None
    tells_claim: bool = False
    partitions: tuple[str, ...] = ()  # none: it is in none, or the converter does not say
    features: tuple[str, ...] | None = None  # None: the converter does not say
    reservations: tuple[str, ...] | None = None  # that name it, now or later; None: as above
    reservations_begin: Mapping[str, datetime] = {}  # those of them of which it says when

    @property
    def is_drained(self) -> bool:
        """Returns whether the node answers, is idle and takes no jobs because it is drained."""
        state = parse_state(self.state)
        return state.base == "IDLE" and state.flags & {"DRAIN", "NOT_RESPONDING"} == {"DRAIN"}

    @property
    def is_reserved(self) -> bool:
        """Returns whether a reservation holds it, perhaps its converter's."""
        return "RESERVED" in parse_state(self.state).flags


class WaitingJobs(Value):
    """The pending jobs of a partition that would start now if there were more nodes of a type.
    `nodes`: all nodes that they request. `since`: the submission of the first."""

    partition: str
    node_type: str
    jobs: int
    nodes: int
    since: datetime | None = None


class BatchList(Value):
    """The batch side as its converter reports it. `waiting` None: no program reports what jobs wait
    for."""

    nodes: Mapping[str, BatchNode]
    waiting: tuple[WaitingJobs, ...] | Unreadable | None = None
    books: bool = False  # it says that it can reserve nodes ahead of time
    leaves_drained: bool = False  # it says that it can leave a node drained that goes back
    leaves_out: bool = False  # it says that it can be told which nodes not to choose
    charges: bool = False  # it says that it can charge what it lends to an account
