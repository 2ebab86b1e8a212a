"""The differences between two registries, as lines of history. Pure.

The code that makes a change does not report it. dnm compares the registries before and after a run
or command, and takes the reason of each difference from the decision in the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from dnm.model.calendar import KeptCalendar
from dnm.model.departure import Leaving
from dnm.model.history import ALL, JOBS, NONE, SCHEMA, UNKNOWN, Decision, HistoryLine
from dnm.model.lent import ConversionRequest, LentNode, Phase
from dnm.model.lent_state import Joining, Moving
from dnm.model.observed import Backoff
from dnm.model.queue_edit import LimitNews
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict


class Cause(Value):
    """The run or command that changed the registry, with the decisions of its plan. `unseen_since`
    is the end of the previous run, if that is long ago."""

    now: datetime
    run: str
    instance: str
    nodes: Mapping[str, NodeVerdict] = {}
    decisions: Mapping[str, Decision] = {}
    adopted: tuple[str, ...] = ()  # nodes that their mark records again
    limit_news: tuple[LimitNews, ...] = ()
    request_errors: Mapping[str, str] = {}
    unseen_since: datetime | None = None
    fenced: frozenset[str] = frozenset()  # nodes that this run is to fence

    def line(self, kind: str, event: str, object: str, **fields: Any) -> HistoryLine:
        """Returns a new line of the history. `recording.py` numbers it when it is added."""
        return HistoryLine(
            schema=SCHEMA, number=0, time=self.now, run=self.run, instance=self.instance,
            kind=kind, event=event, object=object, **fields,
        )  # fmt: skip

    def numbers(self, queue: str) -> dict[str, object]:
        """Returns the numbers of the plan's decision for a queue, as values that JSON has."""
        plain: dict[str, object] = {}
        if queue in self.decisions:  # with lists, as on disk
            plain = msgspec.json.decode(msgspec.json.encode(self.decisions[queue]))
        return plain


def list_transitions(before: Registry, after: Registry, cause: Cause) -> list[HistoryLine]:
    """Returns a history line for each difference, requests and nodes first. They have no number."""
    return [
        *_requests(before, after, cause),
        *_nodes(before, after, cause),
        *_queues(before, after, cause),
        *_restrictions(before, after, cause),
        *_limit_changes(before, cause),
        *_calendars(before, after, cause),
    ]


# --- requests --------------------------------------------------------------------------------


def _requests(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    old = {request.id: request for request in before.requests}
    new = {request.id: request for request in after.requests}
    for request in after.requests:
        if request.id not in old:
            reason, code = why_requested(after, request)
            yield _of_request(
                cause, "requested", request, reason=reason, code=code,
                numbers={"count": request.count, **cause.numbers(request.queue)},
            )  # fmt: skip
        elif request.error and not old[request.id].error:
            numbers: dict[str, object] = {"missing": request.count}
            yield _of_request(cause, "failed", request, reason=request.error, numbers=numbers)
    for request in before.requests:
        missing = request.count - count_arrivals(before, after, request)
        if request.id not in new and missing > 0 and not request.is_abandoned:
            error = cause.request_errors.get(request.id) or request.error
            reason = error or "its converter was not called: the run ended before"
            yield _of_request(
                cause, "given-up", request, reason=reason, numbers={"missing": missing}
            )


def why_requested(after: Registry, request: ConversionRequest) -> tuple[str, str]:
    """Returns why nodes were requested, as sentence and code: an order, or a need of the queue."""
    order = next((order for order in after.orders if order.id == request.order), None)
    if order is not None:
        reason = f": {order.reason}" if order.reason else ""
        return f"{order.requester} requested it{reason}", Reason.ASKED_FOR.name
    status = after.last_run.queues.get(request.queue)
    return (status.reason, status.code) if status else ("", "")


def _of_request(
    cause: Cause, event: str, request: ConversionRequest, **fields: object
) -> HistoryLine:
    return cause.line(
        "request", event, request.id, node_type=request.node_type, namespace=request.namespace,
        queue=request.queue, **fields,
    )  # fmt: skip


def count_arrivals(before: Registry, after: Registry, request: ConversionRequest) -> int:
    """Returns how many new nodes may belong to the request: the new nodes of its type and
    namespace, minus those that other requests for this type and namespace have received."""
    pool = (request.node_type, request.namespace)
    arrived = sum(
        (entry.node_type, entry.namespace) == pool
        for name, entry in after.nodes.items()
        if name not in before.nodes
    )
    left = {request.id: request.count for request in after.requests}
    other_lends = sum(
        item.count - left[item.id]
        for item in before.requests
        if item.id in left and item.id != request.id and (item.node_type, item.namespace) == pool
    )
    return max(arrived - other_lends, 0)


# --- nodes -----------------------------------------------------------------------------------


def _nodes(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    for name in sorted(before.nodes.keys() | after.nodes.keys()):
        old, new = before.nodes.get(name), after.nodes.get(name)
        if old is None and new is not None:
            yield _arrival(before, name, new, cause)
            old = msgspec.structs.replace(new, state=Joining(since=new.since))
        if old is not None and new is None:
            yield _departure(after, name, old, cause)
        elif old is not None and new is not None:
            if new.leaves == Leaving.MANUAL and _begins_to_leave(name, cause):
                old = msgspec.structs.replace(old, departure=None)
            yield from _change(name, old, new, cause)


def _begins_to_leave(name: str, cause: Cause) -> bool:
    """Returns whether this run fences the node because an administrator requested its return."""
    verdict = cause.nodes.get(name)
    return name in cause.fenced and verdict is not None and verdict.reason is Reason.LEAVING


def _of_node(cause: Cause, event: str, name: str, entry: LentNode, **fields: object) -> HistoryLine:
    if (verdict := cause.nodes.get(name)) is not None:
        fields = {"code": verdict.reason.name, "reason": verdict.sentence, **fields}
    return cause.line(
        "node", event, name, node_type=entry.node_type, namespace=entry.namespace,
        queue=entry.queue, **fields,
    )  # fmt: skip


def _arrival(before: Registry, name: str, entry: LentNode, cause: Cause) -> HistoryLine:
    """Returns the line of a node that is new in the registry: lent, or found again by its mark."""
    fields: dict[str, object] = {"after": Phase.JOINING.value}
    if name in cause.adopted:
        return _of_node(cause, "adopted", name, entry, **fields)
    request = request_of(before, name, entry)
    asked = before.memory.asked.get(request.id) if request else None
    if request is not None:
        fields["numbers"] = {"request": request.id, **_charged(entry, cause)}
    if asked is not None:
        fields |= {"code": asked.code, "reason": asked.reason}
    return _of_node(cause, "lent", name, entry, **fields)


def _charged(entry: LentNode, cause: Cause) -> dict[str, object]:
    """Returns a lent node's Slurm account, and the requests of its pods times their seconds."""
    charge = entry.charge
    if charge is None:
        return {}
    used = {name: round(amount) for name, amount in charge.used_until(cause.now).items()}
    return {"account": charge.account, **({"used": used} if used else {})}


def request_of(before: Registry, name: str, entry: LentNode) -> ConversionRequest | None:
    """Returns the request for which a node was lent: it names the node, or is the oldest alike."""
    alike = [
        request
        for request in before.requests
        if (request.node_type, request.namespace) == (entry.node_type, entry.namespace)
    ]
    return next(
        (request for request in alike if name in request.names), alike[0] if alike else None
    )


def _departure(after: Registry, name: str, entry: LentNode, cause: Cause) -> HistoryLine:
    verdict = cause.nodes.get(name)
    is_returned = verdict is not None and verdict.reason is Reason.RETURNED
    lent = after.memory.lent.get(name)
    numbers: dict[str, object] = {**_charged(entry, cause)}
    if lent:
        numbers["lent_seconds"] = round((cause.now - lent.since).total_seconds())
    return _of_node(
        cause, "returned" if is_returned else "forgotten", name, entry,
        before=entry.phase.value, numbers=numbers,
    )  # fmt: skip


def _change(name: str, old: LentNode, new: LentNode, cause: Cause) -> Iterator[HistoryLine]:
    def line(event: str, **fields: object) -> HistoryLine:
        phases = {"before": old.phase.value, "after": new.phase.value}
        return _of_node(cause, event, name, new, **{**phases, **fields})

    if old.phase is not new.phase:
        event = "moved" if old.namespace != new.namespace else _event(old.phase, new.phase)
        why = {"reason": new.error} if new.phase is Phase.FAILED else {}
        yield line(event, numbers=_numbers(old, new, cause), **why)
    elif new.heads_for != old.heads_for:
        yield line("turned-back", numbers=_numbers(old, new, cause))
    elif new.leaves != old.leaves:
        numbers: dict[str, object] = {"why": new.leaves} if new.leaves else {}
        yield line("emptying" if new.leaves else "kept", numbers=numbers)
    elif new.eviction is not None and new.eviction != old.eviction and old.eviction is not None:
        numbers = {"evicted": new.eviction.evicted - old.eviction.evicted}
        reason = new.eviction.reason or "its pods were evicted, and no eviction was refused"
        yield line("evicting", numbers=numbers, reason=reason)
    elif new.error and new.error != old.error:
        event = "return-failed" if new.phase is Phase.RETURNING else "failed-again"
        yield line(event, code="", reason=new.error)


def _event(old: Phase, new: Phase) -> str:
    if new is Phase.SERVING:
        return "unfenced" if old in (Phase.RELEASING, Phase.MOVING) else "joined"
    return "fenced" if new is Phase.RELEASING else new.value


def _numbers(old: LentNode, new: LentNode, cause: Cause) -> dict[str, object]:
    if new.phase is Phase.SERVING and old.phase is Phase.JOINING:
        return {"counted": dict(new.counted), **_took(new)}
    if old.namespace != new.namespace:
        return {"counted": dict(new.counted), "from": old.queue, **_charged(old, cause)}
    if new.phase in (Phase.RELEASING, Phase.MOVING):
        target = {"to": new.state.to} if isinstance(new.state, Moving) else {}
        idle = old.idle_since
        seconds = {"idle_seconds": round((cause.now - idle).total_seconds())} if idle else {}
        took = _took(new) if old.phase is Phase.JOINING else {}
        return {**seconds, **target, **took, **cause.numbers(new.queue)}
    if new.phase is Phase.SERVING:
        return cause.numbers(new.queue)
    return {}


def _took(entry: LentNode) -> dict[str, object]:
    """Returns how many seconds each readiness check of the node took."""
    return {"took": entry.took} if entry.took else {}


# --- queues ----------------------------------------------------------------------------------


def _queues(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    """Yields a line for each queue with another decision or reason than in the previous run."""
    for queue, new in sorted(after.last_run.queues.items()):
        old = before.last_run.queues.get(queue)
        if new.verdict and (old is None or (old.verdict, old.code) != (new.verdict, new.code)):
            yield cause.line(
                "queue", new.verdict, queue, queue=queue, code=new.code, reason=new.reason,
                before=f"{old.verdict} {old.code}".strip() if old else "",
                after=f"{new.verdict} {new.code}".strip(), numbers=cause.numbers(queue),
            )  # fmt: skip


def _restrictions(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    for queue in sorted(before.breakers.keys() | after.breakers.keys()):
        old, new = before.breakers.get(queue), after.breakers.get(queue)
        was_open = old is not None and old.tripped_at is not None
        if new is not None and new.tripped_at is not None and not was_open:
            yield cause.line(
                "breaker", "opened", queue, queue=queue, before="closed", after="open",
                reason=Reason.BREAKER.text, code=Reason.BREAKER.name,
                numbers={"strikes": new.unused, "trips": new.trips},
            )  # fmt: skip
        elif was_open and (new is None or new.tripped_at is None):
            yield cause.line("breaker", "closed", queue, queue=queue, before="open", after="closed")
    for name in sorted(before.backoffs.keys() | after.backoffs.keys()):
        failed, fails = _longer_wait(before, name), _longer_wait(after, name)
        if fails is not None and (failed is None or failed.failures != fails.failures):
            numbers = {"failures": fails.failures, "until": fails.until.isoformat(),
                       "ask_at_most": fails.ask_at_most}  # fmt: skip
            yield cause.line("backoff", "begun", name, node_type=name, numbers=numbers,
                             code=Reason.BACKOFF.name, reason=fails.last_error)  # fmt: skip
        elif failed is not None and fails is None:
            yield cause.line("backoff", "over", name, node_type=name)
    yield from _pauses(before, after, cause)
    for name in sorted({*before.held} - {*after.held}):
        yield cause.line("hold", "over", name)
    kept = {order.id for order in after.orders}
    for order in before.orders:
        if order.id not in kept:
            yield cause.line("order", "over", order.id, namespace=order.namespace,
                             node_type=order.node_type)  # fmt: skip
    for name in sorted(before.excluded.keys() - after.excluded.keys()):
        yield cause.line("exclusion", "over", name)


def _longer_wait(registry: Registry, node_type: str) -> Backoff | None:
    """Returns a node type's back-off, or None after a single failure, which is not recorded."""
    backoff = registry.backoffs.get(node_type)
    return backoff if backoff and backoff.failures > 1 else None


def _pauses(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    is_paused = after.paused(cause.now) is not None
    if after.pause is not None and is_paused and not before.memory.is_paused:
        yield cause.line("pause", "begun", "dnm", reason=after.pause.reason)
    elif not is_paused and before.memory.is_paused:
        yield cause.line("pause", "over", "dnm")


def _limit_changes(before: Registry, cause: Cause) -> Iterator[HistoryLine]:
    """Yields a line for each limit that another client changed. Later runs do not repeat it."""
    for news in cause.limit_news:
        if news.note in before.last_run.notes:
            continue
        event = "re-applied" if news.is_reset else "found-changed"
        decision = cause.decisions.get(queue := news.queue)
        numbers = {"limit": dict(decision.limit)} if decision else {}
        yield cause.line("limit", event, queue, queue=queue, reason=news.text, numbers=numbers)


def _calendars(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    """Yields a line for each file of events that became readable or (partly) unreadable."""
    for path in sorted(before.calendars.keys() | after.calendars.keys()):
        old = before.calendars.get(path, KeptCalendar()).troubles
        new = after.calendars.get(path, KeptCalendar()).troubles
        for text in new:
            if text not in old:
                yield cause.line("calendar", "unreadable", path, reason=text)
        if old and not new:
            yield cause.line("calendar", "readable", path)


# --- what jobs wait for ----------------------------------------------------------------------
#
# For each lent node type, dnm counts the additional nodes that jobs wait for, up to the number of
# lent nodes: other nodes would not have started these jobs. The amount is rounded up to a power of
# two, so that small movements of Slurm's queue cause no lines. dnm compares it with the last line.
# "Unknown" and "not observed" are amounts of their own.


def list_job_waits(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    """Yields a line for each node type if Slurm's jobs now wait for another number of its nodes, or
    if no run has observed its lent nodes for some time."""
    reported, lent = before.memory.jobs, _count_lent(after)
    unseen_since, were_lent = cause.unseen_since, _count_lent(before)
    ended = dict.fromkeys(were_lent, UNKNOWN) if unseen_since is not None else {}
    for node_type, amount in {**ended, **seen_waits(after)}.items():
        last = reported.get(node_type, UNKNOWN)
        numbers: dict[str, object] = {"lent": lent[node_type]}
        if amount != UNKNOWN:
            rows = [row for row in after.last_run.waiting_jobs or () if row.node_type == node_type]
            numbers["jobs"] = sum(row.jobs for row in rows)
            numbers["nodes"] = sum(row.nodes for row in rows)
        if unseen_since is not None and last != UNKNOWN and were_lent[node_type]:
            event, numbers["since"] = "unseen", unseen_since.isoformat()
        elif amount != last:
            event = {UNKNOWN: "unknown", NONE: "none"}.get(amount, "wait")
        else:
            continue
        yield cause.line(
            JOBS, event, node_type, node_type=node_type, before=last, after=amount, numbers=numbers,
        )  # fmt: skip


def with_reported(jobs: Mapping[str, str], lines: Iterable[HistoryLine]) -> dict[str, str]:
    """Returns `jobs`, the number of nodes that jobs wait for by node type, after these lines."""
    return {**jobs, **{line.object: line.after for line in lines if line.kind == JOBS}}


def seen_waits(registry: Registry) -> dict[str, str]:
    """Returns, for each lent node type, the rounded number of nodes that Slurm's jobs wait for."""
    lent, rows = _count_lent(registry), registry.last_run.waiting_jobs
    if rows is None:
        return dict.fromkeys(lent, UNKNOWN)
    wanted: Counter[str] = Counter()
    for row in rows:
        wanted[row.node_type] += row.nodes
    return {node_type: _amount(wanted[node_type], lent[node_type]) for node_type in lent}


def _count_lent(registry: Registry) -> Counter[str]:
    return Counter(entry.node_type for _, entry in sorted(registry.nodes.items()))


def _amount(wanted: int, lent: int) -> str:
    if wanted <= 0:
        return NONE
    rounded = 1 << (wanted - 1).bit_length()
    return ALL if rounded >= lent else str(rounded)
