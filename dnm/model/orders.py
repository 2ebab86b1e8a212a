"""Orders of administrators that may last for a time: pauses, holds, exclusions, and `dnm lend`."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from dnm.model.value import Moment, Value


class Way(Enum):
    """A direction of node moves: lending to Kubernetes, or returning to Slurm."""

    LENDING = "lending"
    RETURNING = "returning"


class Pause(Value):
    since: Moment
    until: Moment | None = None
    reason: str = ""
    requester: str = ""  # operator and host
    half: Way | None = None  # the only paused direction; None: both
    is_after_loss: bool = False  # of the registry: until an administrator has acknowledged it
    earlier: Pause | None = None  # a pause before the loss, which `resume` restores

    def stops(self, half: Way | None, now: datetime) -> bool:
        """Returns whether the pause stops the direction `half` (None: any direction) at `now`."""
        is_meant = half is None or self.half in (None, half)
        return is_meant and (self.until is None or now < self.until)

    @property
    def detail(self) -> str:
        """Returns the reason of the pause, preceded by the direction if only one is paused."""
        alone = f"{self.half.value} alone" if self.half else ""
        return ": ".join(filter(None, (alone, self.reason)))


class Keeping(Value):
    """An administrator's `dnm hold` or `dnm exclude` for one node: times, reason and operator."""

    since: Moment
    until: Moment | None = None
    reason: str = ""
    requester: str = ""  # operator and host

    def is_in_force(self, now: datetime) -> bool:
        return self.until is None or now < self.until


class LendOrder(Value):
    """An administrator's `dnm lend`: a number of nodes of a type for a namespace until a time.

    If `nodes` is not empty, only these may be lent. `waiting_reason`: why some are missing."""

    id: str
    node_type: str
    namespace: str
    count: int
    since: Moment
    until: Moment
    nodes: tuple[str, ...] = ()
    requester: str = ""  # operator and host
    reason: str = ""
    is_forced: bool = False
    account: str = ""  # that pays for it; empty: the one of the configuration
    waiting_reason: str = ""
