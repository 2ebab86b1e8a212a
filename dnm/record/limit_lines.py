"""The history's lines of limits: those that a plan changes, and those that an earlier run intended.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dnm.model.history import HistoryLine
from dnm.model.plan import Plan, SetQueueLimits
from dnm.model.queue_edit import LimitChange
from dnm.record.transitions import Cause


def planned_changes(plan: Plan) -> tuple[LimitChange, ...]:
    """Returns the plan's changes of limits, in all its edits."""
    return tuple(
        change
        for action in plan.actions
        if isinstance(action, SetQueueLimits)
        for change in action.edit.changes
    )


def limit_lines(changes: Sequence[LimitChange], cause: Cause) -> list[HistoryLine]:
    """Returns a line a queue, with all its numbers before and after."""
    return [
        cause.line(
            "limit", "changed", queue, queue=queue, before=_text(of_queue, "before"),
            after=_text(of_queue, "after"), reason=of_queue[0].why,
        )
        for queue, of_queue in _by_queue(changes).items()
    ]  # fmt: skip


def _by_queue(changes: Sequence[LimitChange]) -> dict[str, list[LimitChange]]:
    queues = sorted({change.queue for change in changes})
    return {queue: [change for change in changes if change.queue == queue] for queue in queues}


def _text(changes: Sequence[LimitChange], side: str) -> str:
    return ", ".join(
        f"{change.kind} {change.resource} {getattr(change, side)}" for change in changes
    )


def settled(intended: Sequence[HistoryLine], planned: Sequence[LimitChange]) -> list[HistoryLine]:
    """Returns the lines of an earlier run that took effect: no change starts again from their old
    values."""
    again = {(queue, _text(changes, "before")) for queue, changes in _by_queue(planned).items()}
    return [line for line in intended if (line.object, line.before) not in again]
