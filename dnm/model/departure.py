"""The decision that a lent node must leave its queue, even if the queue still needs it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dnm.model.value import Moment, Value


class Leaving:
    """The reasons of the core to fence a serving node and to return it when it is empty, whatever
    an administrator ordered before. A rule that is on adds its own reasons."""

    EXCLUDED = "excluded"
    NOT_OPENED = "not-opened"
    FAULTY = "faulty"
    MANUAL = "manual"


OVERRIDES_STAY = (Leaving.EXCLUDED, Leaving.NOT_OPENED, Leaving.FAULTY, Leaving.MANUAL)
"""The reasons that return a node before the end of the time for which it was lent manually."""


class Eviction(Value):
    """The eviction, from `since` on, of the pods of a node that is faulty or returned manually."""

    since: Moment
    evicted: int = 0  # pods so far
    reason: str = ""  # the last error of pods that were not evicted


class Departure(Value):
    """The reason to fence a serving node, and to return it when it is empty."""

    reason: Annotated[str, msgspec.Meta(min_length=1)]  # of `Leaving` or of a rule
    eviction: Eviction | None = None  # None: dnm does not evict its pods
