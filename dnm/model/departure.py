"""The departure of a lent node that its queue may still need."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dnm.model.value import Moment, Value


class Leaving:
    """The reasons of the core to fence a serving node and to return it when it is empty, whatever
    an administrator ordered before. Rules have their own reasons, which need the rule to be on."""

    KEPT_OUT = "kept-out"
    NOT_OPENED = "not-opened"
    FAULTY = "faulty"
    MANUAL = "by-hand"


OVERRIDES_STAY = (Leaving.KEPT_OUT, Leaving.NOT_OPENED, Leaving.FAULTY, Leaving.MANUAL)
"""The reasons that return a node before the end of the time for which it was lent manually."""


class Emptying(Value):
    """The eviction of the pods of a node that an administrator returns, since that time."""

    since: Moment
    asked: int = 0  # evicted pods so far
    why: str = ""  # the last error of pods that were not evicted


class Departure(Value):
    """The reason to fence a serving node, and to return it when it is empty."""

    reason: Annotated[str, msgspec.Meta(min_length=1)]  # of `Leaving` or of a rule
    emptying: Emptying | None = None  # None: dnm does not evict its pods
