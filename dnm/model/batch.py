"""Slurm's nodes and pending jobs, as a converter's list reports them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dnm.model.slurm_state import parse_state
from dnm.model.value import Unreadable, Value


class BatchClaim(Value):
    """A converter's claim on a node: its reservation and drain in Slurm while it converts the node.

    `instance` is empty if the reservation has no mark. `direction` is `k8s` or `batch` during a
    conversion; it is empty otherwise, or if this host has no record of one. `is_at_work` means that
    a converter is converting the node now. `error` explains to people why a conversion stopped."""

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
    """The Reason field of a drained, down or failed node in Slurm: its text, author and time.
    `instance` is the instance of dnm that wrote it, or empty if dnm did not write it."""

    text: str
    by: str = ""
    since: datetime | None = None
    instance: str = ""

    @property
    def line(self) -> str:
        """Returns the Reason as `scontrol show node` prints it, with its time in UTC."""
        when = f"@{self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since else ""
        return f"{self.text} [{self.by}{when}]" if self.by else self.text


class BatchNode(Value):
    """A node in a converter's list (`node-convert --list`). `in_service` is True if Slurm may use
    it, None if that is unknown. `reports_claim` is False if the converter reports no claims."""

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
        """Returns whether a Slurm reservation, perhaps the converter's own, has the node now."""
        return "RESERVED" in parse_state(self.state).flags


class WaitingJobs(Value):
    """The pending Slurm jobs of a partition that would start now if it had more nodes of a type.
    `nodes` is how many nodes they request in all. `since` is when the first was submitted."""

    partition: str
    node_type: str
    jobs: int
    nodes: int
    since: datetime | None = None


class BatchList(Value):
    """The nodes and pending jobs that a converter reports, and the optional features that it
    supports. `waiting` is None if no program reports pending jobs."""

    nodes: Mapping[str, BatchNode]
    waiting: tuple[WaitingJobs, ...] | Unreadable | None = None
    can_reserve: bool = False  # the converter can reserve nodes in advance
    leaves_drained: bool = False  # the converter can leave a returned node drained
    leaves_out: bool = False  # the converter accepts a list of nodes that it must not choose
    charges: bool = False  # the converter can charge lent nodes to an account
