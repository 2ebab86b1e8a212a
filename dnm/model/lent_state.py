"""The states of a lent node: one class for each phase, with the facts that only this phase has."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from dnm.model.value import Moment, Value


class ConverterProcess(Value):
    """A process of the converter that dnm has started. Its start time distinguishes it from a later
    process with the same id, and `boot` from a process after a restart of the host."""

    pid: int
    start_ticks: int
    boot: str = ""  # empty: unknown
    host: str = ""  # the name of its host; empty: this one


class Joining(Value, tag_field="phase", tag="joining"):
    """The state of a lent node from its appearance until it serves its queue."""

    since: Moment
    converter: ConverterProcess | None = None  # that lends it; None: none that dnm started
    error: str = ""  # of its kubelet's settings


class MovePause(Value):
    """A pause in the moves of a node to other queues, until `until`, after some were stopped."""

    attempts: int
    until: Moment


class Serving(Value, tag_field="phase", tag="serving"):
    """The state of a lent node while the limit of its queue includes it."""

    since: Moment
    error: str = ""  # of its kubelet's settings, or of a move
    move_pause: MovePause | None = None


class Releasing(Value, tag_field="phase", tag="releasing"):
    """The state of a lent node that is cordoned and in no limit, but can still serve again."""

    since: Moment
    error: str = ""  # the readiness check that did not pass


class Returning(Value, tag_field="phase", tag="returning"):
    """The state of a lent node after a run has decided to call the converter to return it."""

    since: Moment
    attempts: int = 0  # calls of the converter that did not complete the return
    is_handed_over: bool = False  # the last call ended with exit code 0
    retry_after: Moment | None = None  # None: it was not called yet
    error: str = ""  # of the last call
    converter: ConverterProcess | None = None  # that is at work, or of an earlier phase


class Moving(Value, tag_field="phase", tag="moving"):
    """The state of a lent node that moves to the queue of the namespace `to`, or back if the move
    was cancelled. The node's entry keeps the old namespace until the node serves the new one."""

    since: Moment
    to: str
    is_back: bool = False
    attempts: int = 0  # moves of it that were stopped before


class Failed(Value, tag_field="phase", tag="failed"):
    """The state of a lent node that waits for an administrator to fix it."""

    since: Moment
    error: Annotated[str, msgspec.Meta(min_length=1)]  # with the next step
    converter: ConverterProcess | None = None  # that may still be at work


LentState: TypeAlias = Joining | Serving | Releasing | Returning | Moving | Failed
