"""The batch side, as a converter's list reports it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.slurm_state import parse_state
from dnm.model.value import Unreadable, Value


class BatchClaim(Value):
    """The claim on a node, as its converter reports it: its instance and its progress.

    `instance` is empty for a reservation without a mark. `direction` is `k8s` or `batch` during the
    conversion, else empty; it is also empty if this host has no record of it. `is_at_work`: a
    running converter converts the node. `error`: why the conversion stopped, for people."""

    instance: str
    direction: str = ""
    namespace: str = ""
    node_type: str = ""
    request: str = ""  # of dnm, if the conversion belongs to one
    since: datetime | None = None
    is_at_work: bool = False
    error: str = ""
    account: str = ""  # that Slurm charges; empty: none


class SlurmReason(Value):
    """The Reason of a drained, down or failed node in Slurm: its text, author and time. `instance`
    is the instance of dnm that wrote it, or empty if dnm did not write it."""

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
    """A node as a converter's list reports it (`node-convert --list`). `in_service`: Slurm may use
    it; None: unknown. `reports_claim` is False if the converter does not report claims."""

    name: str
    state: str  # in Slurm's terms, e.g. IDLE+DRAIN
    verdict: str  # OK | PREEMPT | SKIP
    reason: str = ""
    in_service: bool | None = None
    claim: BatchClaim | None = None
    reports_claim: bool = False
    partitions: tuple[str, ...] = ()  # empty: it is in none, or the converter reports none
    features: tuple[str, ...] | None = None  # None: the converter does not report them
    reservations: tuple[str, ...] | None = None  # with this node, now or later; None: not reported
    reservations_begin: Mapping[str, datetime] = {}  # where the converter reports it

    @property
    def is_drained(self) -> bool:
        """Returns whether the node answers, is idle and takes no jobs because it is drained."""
        state = parse_state(self.state)
        return state.base == "IDLE" and state.flags & {"DRAIN", "NOT_RESPONDING"} == {"DRAIN"}

    @property
    def is_reserved(self) -> bool:
        """Returns whether a reservation, perhaps the converter's own, contains the node now."""
        return "RESERVED" in parse_state(self.state).flags


class WaitingJobs(Value):
    """The pending jobs of a partition that would start now if there were more nodes of a type.
    `nodes`: how many these jobs request in all. `since`: when the first was submitted."""

    partition: str
    node_type: str
    jobs: int
    nodes: int
    since: datetime | None = None


class BatchList(Value):
    """The nodes and pending jobs that a converter reports, and the options that it has. `waiting`
    is None if no program reports pending jobs."""

    nodes: Mapping[str, BatchNode]
    waiting: tuple[WaitingJobs, ...] | Unreadable | None = None
    can_reserve: bool = False  # the converter can reserve nodes in advance
    leaves_drained: bool = False  # the converter can leave a returned node drained
    leaves_out: bool = False  # the converter accepts a list of nodes that it must not choose
    charges: bool = False  # the converter can charge lent nodes to an account
