"""The decision to return a lent node even if its queue still needs it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dnm.model.value import Moment, Value


class Leaving:
    """The core's reasons to cordon a lent node and return it when it is empty, even against an
    earlier order of an administrator. A rule (option of the planner) has its own reasons."""

    EXCLUDED = "excluded"
    NOT_OPENED = "not-opened"
    FAULTY = "faulty"
    MANUAL = "manual"


OVERRIDES_STAY = (Leaving.EXCLUDED, Leaving.NOT_OPENED, Leaving.FAULTY, Leaving.MANUAL)
"""The reasons that return a node before the end of the time for which it was lent manually."""


class Eviction(Value):
    """The eviction of the pods of a faulty or manually returned node, which began at `since`."""

    since: Moment
    evicted: int = 0  # pods so far
    reason: str = ""  # the last error of pods that were not evicted


class Departure(Value):
    """A reason to cordon a lent node, and to return it when it is empty."""

    reason: Annotated[str, msgspec.Meta(min_length=1)]  # of `Leaving` or of a rule
    eviction: Eviction | None = None  # None: dnm does not evict its pods
