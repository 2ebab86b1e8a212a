"""Commands of administrators that last until they are over: pauses, holds, orders."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from dnm.model.value import Moment, Value


class Way(Enum):
    """A direction in which nodes move."""

    LENDING = "lending"
    RETURNING = "returning"


LOST = "dnm, since its registry was lost"
"""The author of a pause that lasts until an administrator has seen the loss."""


class Pause(Value):
    since: Moment
    until: Moment | None = None
    reason: str = ""
    who: str = ""  # gave the verb, on which host
    half: Way | None = None  # what alone is paused; None: both
    earlier: Pause | None = None  # in force again after `resume`: it is older than the loss

    def stops(self, half: Way | None, now: datetime) -> bool:
        """Returns whether it applies now, for one direction or for any."""
        is_meant = half is None or self.half in (None, half)
        return is_meant and (self.until is None or now < self.until)

    @property
    def detail(self) -> str:
        """Returns the paused direction, if it is only one, and the reason."""
        alone = f"{self.half.value} alone" if self.half else ""
        return ": ".join(filter(None, (alone, self.reason)))


class Keeping(Value):
    """A node that a person keeps where it is, or out of lending."""

    since: Moment
    until: Moment | None = None
    reason: str = ""
    who: str = ""  # gave the verb, on which host

    def is_in_force(self, now: datetime) -> bool:
        return self.until is None or now < self.until


class LendOrder(Value):
    """What a person has asked for: nodes of a type for a namespace, for a time.

    `nodes`: these, and no others. `why`: what it waits for, as the last run found it.
    """

    id: str
    node_type: str
    namespace: str
    count: int
    since: Moment
    until: Moment
    nodes: tuple[str, ...] = ()
    who: str = ""  # gave the verb, on which host
    reason: str = ""
    is_forced: bool = False
    account: str = ""  # whom it is charged to; empty: as the configuration says
    why: str = ""
