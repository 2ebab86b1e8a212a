"""The registry, extended by a history line for each of its own changes. Pure.

**Every saved registry has, in `memory.unwritten`, a line for each difference from the last registry
with lines in the history.** One rename saves both the change and its line, so a kill loses neither.
A line is written to the history before it leaves `unwritten`, so a run may write it again. The
history then recognizes it by its bytes, since each line has its own number.

A change of limits happens in the cluster and not in the registry. Its lines are in
`memory.intended` until the write is known to have happened. The next run reports the lines that a
run left there, unless it would have to make the same change again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from msgspec.structs import replace

from dnm.model.history import SCHEMA, HistoryLine, Memory, Operation
from dnm.model.plan import Fence, Plan, SetQueueLimits
from dnm.model.queue_edit import LimitChange
from dnm.model.registry import Registry
from dnm.record.events import mark_new_kinds
from dnm.record.history_file import within_bound
from dnm.record.totals import remember
from dnm.record.transitions import Cause, list_job_waits, list_transitions, with_reported

MOST_UNWRITTEN = 2_000  # lines, where the history can't be written; the oldest go first


def record_plan(before: Registry, plan: Plan, cause: Cause, undecided: Container[str]) -> Plan:
    """Returns the plan. Adds to its registry a history line for each change of the registry, and
    intended ones for limits. `undecided` has the queues whose limits could not be read."""
    fences = (action.node for action in plan.actions if isinstance(action, Fence))
    cause = replace(cause, fenced=frozenset(fences))
    changes, intended = _planned_changes(plan), before.memory.intended
    kept = [line for line in intended if line.object in undecided]
    done = _settled([line for line in intended if line not in kept], changes)
    lines = _list_changes(before, plan.registry, cause)
    memory = _with_lines(remember(before, plan.registry, lines, cause.now), (*done, *lines))
    memory = replace(memory, intended=(*kept, *_limit_lines(changes, cause)))
    memory, waiting = mark_new_kinds(memory, plan.waiting, cause.now)
    registry = replace(plan.registry, memory=memory)
    return replace(plan, registry=registry, waiting=waiting)


def record_change(before: Registry, after: Registry, cause: Cause) -> Registry:
    """Returns the registry `after` with a history line for each difference from `before`."""
    lines = _list_changes(before, after, cause)
    memory = remember(before, after, lines, cause.now)
    return replace(after, memory=_with_lines(memory, lines))


def record_limits(registry: Registry, changes: Sequence[LimitChange], cause: Cause) -> Registry:
    """Returns the registry with a history line for each queue after a write of its limits. Intended
    lines that an earlier run left stay for other queues."""
    memory = _with_lines(registry.memory, _limit_lines(changes, cause))
    left = [line for line in memory.intended if line.run != cause.run]
    left = [line for line in left if line.object not in {change.queue for change in changes}]
    return replace(registry, memory=replace(memory, intended=tuple(left)))


def record_operation(before: Registry, after: Registry, done: Operation, cause: Cause) -> Registry:
    """Returns the registry `after` a command of an administrator, with a history line about it."""
    name = done.object
    old, new = before.nodes.get(name), after.nodes.get(name)
    lines = list_transitions(before, after, cause)
    owed = next((line.numbers for line in lines if line.object == name and new is None), {})
    line = cause.line(
        "verb", done.verb, name, requester=done.requester, host=done.host,
        reason=done.reason, numbers={**done.numbers, **owed},
        before=old.phase.value if old else "", after=new.phase.value if new else "",
    )  # fmt: skip
    if at := new or old:
        line = replace(line, node_type=at.node_type, namespace=at.namespace, queue=at.queue)
    memory = remember(before, after, lines, cause.now)
    return replace(after, memory=_with_lines(memory, [line]))


def without_written(registry: Registry, lines: Iterable[HistoryLine]) -> Registry:
    """Returns the registry without these unwritten history lines, which are now on disk."""
    numbers = {line.number for line in lines}
    if not numbers:
        return registry
    left = tuple(line for line in registry.memory.unwritten if line.number not in numbers)
    return replace(registry, memory=replace(registry.memory, unwritten=left))


def _list_changes(before: Registry, after: Registry, cause: Cause) -> list[HistoryLine]:
    return [*list_transitions(before, after, cause), *list_job_waits(before, after, cause)]


def _with_lines(memory: Memory, lines: Iterable[HistoryLine]) -> Memory:
    numbered = tuple(
        within_bound(replace(line, schema=SCHEMA, number=number))
        for number, line in enumerate(lines, start=memory.last_number + 1)
    )
    return replace(
        memory,
        last_number=memory.last_number + len(numbered),
        jobs=with_reported(memory.jobs, numbered),
        unwritten=(*memory.unwritten, *numbered)[-MOST_UNWRITTEN:],
    )


# --- limits -----------------------------------------------------------------------------------


def _planned_changes(plan: Plan) -> tuple[LimitChange, ...]:
    """Returns all changes of queue limits that the plan contains."""
    edits = (action.edit for action in plan.actions if isinstance(action, SetQueueLimits))
    return tuple(change for edit in edits for change in edit.changes)


def change_line(change: LimitChange) -> str:
    """Returns the text of a limit change for the log and for the output of plans and runs."""
    number = f"{change.kind}.{change.resource}={change.after}"
    return f"action=set-limit queue={change.queue} {number} was={change.before}"


def _limit_lines(changes: Sequence[LimitChange], cause: Cause) -> list[HistoryLine]:
    """Returns a history line for each queue: its changed limits, before and after the change."""
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


def _settled(intended: Sequence[HistoryLine], planned: Sequence[LimitChange]) -> list[HistoryLine]:
    """Returns the lines of intended limit changes that took effect: the plan has no such change."""
    again = {(queue, _text(changes, "before")) for queue, changes in _by_queue(planned).items()}
    return [line for line in intended if (line.object, line.before) not in again]
