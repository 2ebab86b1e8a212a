"""Commands of administrators with a duration: pauses, holds, orders."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from dnm.model.value import Moment, Value


class Way(Enum):
    """A direction in which nodes move."""

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
        """Returns whether the pause applies now to the direction `half`; None: to any direction."""
        is_meant = half is None or self.half in (None, half)
        return is_meant and (self.until is None or now < self.until)

    @property
    def detail(self) -> str:
        """Returns the reason of the pause. If only one direction is paused, that comes first."""
        alone = f"{self.half.value} alone" if self.half else ""
        return ": ".join(filter(None, (alone, self.reason)))


class Keeping(Value):
    """A hold or an exclusion of a node by an administrator."""

    since: Moment
    until: Moment | None = None
    reason: str = ""
    requester: str = ""  # operator and host

    def is_in_force(self, now: datetime) -> bool:
        return self.until is None or now < self.until


class LendOrder(Value):
    """A request of an administrator: nodes of a type for a namespace, for a time.

    `nodes`: only these may be lent (empty: any). `waiting_reason`: why nodes are missing."""

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
