"""Reservations of nodes in Slurm before a planned event. Pure.

The invariant: **after a run in which Slurm refuses nothing, each occurrence that begins within
`reserve_ahead` has reservations on exactly the empty nodes that it needs. They last from the start
of its lending, or minutes later, until its end. dnm cancels its other reservations, and only its
own.** If nothing changes, the next run reserves and cancels nothing.

A reservation that begins later than lending, because lending was expected to take less time, does
not count: the converter moves its start, unless Slurm refuses that. A reservation that begins
earlier than needed stays.

dnm reserves empty nodes, because it does not know the free capacity of later. Once lending for an
occurrence has begun, dnm reserves no more for it, but lends free nodes. When the occurrence has its
nodes, dnm cancels the reservations on all other nodes at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from dnm.calendar.windows import list_windows
from dnm.model.calendar import (
    EventReservation,
    Window,
    is_late,
    occurrence_name,
    occurrence_of,
)
from dnm.model.hostlist import fold_hostlist
from dnm.model.observed import ReservationAttempt
from dnm.model.plan import ReserveNodes, UnreserveNodes
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.hooks import Additions, CountedFrom, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.new_requests import exclusion_list
from dnm.plan.rule import excluded_nodes, list_bounds
from dnm.plan.rules.event_windows import lead_of, rough_need, usable_events
from dnm.plan.rules.events import count_nodes
from dnm.sizing.caps import ConversionBudget, NodePool, count_left

_AGAIN = timedelta(minutes=10)  # if Slurm had too few, jobs may have ended since
_LEAST_AHEAD = timedelta(minutes=1)  # Slurm reserves nothing in the past


_Short = tuple[Window, EventReservation, int]  # and how many nodes the reservation lacks


class _Taken(NamedTuple):
    """The nodes that an event uses up under the caps, from when they are lent until its end."""

    begins: datetime
    ends: datetime
    namespace: str
    need: EventReservation


def plan_event_reservations(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    """Returns the reservations to make and to cancel in Slurm for planned events. Records the time
    of the last attempt. If Slurm was not read, or dnm is paused, nothing changes."""
    config, batch, tries = (
        inputs.config,
        inputs.snapshot.batch,
        inputs.registry.reservation_attempts,
    )
    if not config.reserve_ahead or inputs.snapshot.events_at is not None:
        return _unchanged(noted, {})
    if batch is None or isinstance(batch, Unreadable) or inputs.paused():
        return _unchanged(noted, tries)
    if not inputs.snapshot.can_reserve:
        return _unchanged(noted, {}, "event_reservations: the converter has no option --reserve")
    if any(row.reservations is None for row in batch.values()):
        # An unreported reservation may exist: another would take more nodes out of service.
        note = "event_reservations: the converter does not report each node's reservations"
        return _unchanged(noted, tries, note)
    windows = _windows(inputs)
    cancelled, short = _compare(inputs, registry, windows)
    asked = _request_missing(inputs, noted, cancelled, short)
    return msgspec.structs.replace(asked, notes=(*asked.notes, *_clashes(inputs, windows)))


def _unchanged(noted: Registry, tries: Mapping[str, ReservationAttempt], *notes: str) -> Additions:
    registry = msgspec.structs.replace(noted, reservation_attempts=dict(tries))
    return Additions(registry=registry, notes=notes)


def _compare(
    inputs: Inputs, registry: Registry, windows: Sequence[Window]
) -> tuple[list[UnreserveNodes], list[_Short]]:
    """Returns cancellations of unneeded reservations, and needed reservations that lack nodes."""
    config, now = inputs.config, inputs.now
    excluded = excluded_nodes(config, registry, inputs.facts.batch, inputs.now)
    excluded |= dict.fromkeys(registry.nodes, "")
    caps = _caps(inputs, registry)
    reserved = _reserved_nodes(inputs, registry)
    wanted = {occurrence_name(window.event.name, window.begins, config.instance_id): window
              for window in windows}  # fmt: skip
    cancelled = [
        UnreserveNodes(name=name, reason="no known event needs it")
        for name in sorted(reserved.keys() - wanted.keys())
    ]
    short: list[_Short] = []
    taken: list[_Taken] = []
    for name, window in wanted.items():
        begins = window.begins - lead_of(config, inputs.registry, window.event)
        at_once = [pair for pair in taken if begins < pair.ends and pair.begins < window.ends]
        need, nodes = (
            _need(inputs, window, excluded, caps, at_once),
            reserved.get(name, frozenset()),
        )
        if need is not None:
            taken.append(_Taken(begins, window.ends, window.event.namespace, need))
        if need is None:
            reason = "no node may be lent for it"
            cancelled += (
                [UnreserveNodes(name=name, reason=reason)] if nodes and now < begins else []
            )
            continue
        if now >= begins - _LEAST_AHEAD:
            cancelled += _unused(inputs, registry, name, window, nodes) if now >= begins else []
            continue
        late = _late(inputs, name, nodes, begins)
        missing = need.count - len(nodes - late)
        if len(nodes) > need.count:
            kept = fold_hostlist(sorted(nodes, key=lambda node: (node in late, node))[: need.count])
            cancelled.append(
                UnreserveNodes(name=name, reason="it needs fewer nodes", leave_out=kept)
            )
        if missing > 0:
            asked = msgspec.structs.replace(need, name=name, begins=begins)
            short.append((window, asked, missing))
    return cancelled, short


def _request_missing(
    inputs: Inputs, noted: Registry, cancelled: list[UnreserveNodes], short: list[_Short]
) -> Additions:
    """Adds the missing reservations for events. After a cancellation, all are tried again at once,
    since a node of a cancelled reservation can serve another event."""
    reserved: list[ReserveNodes] = []
    notes: list[str] = []
    tries: dict[str, ReservationAttempt] = {}
    for window, need, missing in short:
        tried = inputs.registry.reservation_attempts.get(need.name)
        if tried is not None:
            notes.append(_describe_shortage(window, need, need.count - missing))
        is_due = (
            tried is None
            or not tried.at <= inputs.now < tried.at + _AGAIN  # by a clock that is right
            or (tried.missing, tried.wanted) != (missing, need.count)
        )
        if tried is None or is_due or cancelled:
            tried = ReservationAttempt(at=inputs.now, missing=missing, wanted=need.count)
            reserved.append(ReserveNodes(reservation=msgspec.structs.replace(need, count=missing)))
        tries[need.name] = tried
    return Additions(
        registry=msgspec.structs.replace(noted, reservation_attempts=tries),
        actions=(*cancelled, *reserved),
        notes=tuple(notes),
    )


def _windows(inputs: Inputs) -> list[Window]:
    until = inputs.now + inputs.config.reserve_ahead
    return list_windows(usable_events(inputs.config, inputs.registry), inputs.now, until)


def _clashes(inputs: Inputs, windows: Sequence[Window]) -> dict[str, None]:
    """Returns a sentence for each two events that would have reservations of the same name."""
    first: dict[str, Window] = {}
    sentences: dict[str, None] = {}
    for window in windows:
        name = occurrence_name(window.event.name, window.begins, inputs.config.instance_id)
        other = first.setdefault(name, window).event.namespace
        if other != window.event.namespace:
            sentences[
                f"event {window.event.name} of {window.event.namespace} begins when that of "
                f"{other} does, and only one of them is reserved in Slurm; rename one"
            ] = None
    return sentences


def _describe_shortage(window: Window, need: EventReservation, count: int) -> str:
    return (
        f"event {window.event.name}, {window.begins:%Y-%m-%d %H:%M} UTC: {count} of {need.count} "
        f"nodes of type {need.node_type} are reserved in Slurm; the others run jobs that may last "
        "until then, or are reserved, down or excluded, or wait after a failure"
    )


def _reserved_nodes(inputs: Inputs, registry: Registry) -> dict[str, frozenset[str]]:
    """Returns the nodes reserved for each occurrence of an event, by their reservations' names."""
    by_occurrence: dict[str, set[str]] = defaultdict(set)
    instance = inputs.config.instance_id
    for node in (inputs.facts.batch or {}).values():
        for reservation in node.reservations or ():
            # A node that is down will not be available.
            is_available = node.in_service is not False or node.name in registry.nodes
            if (name := occurrence_of(reservation, node.name, instance)) and is_available:
                by_occurrence[name].add(node.name)
    return {name: frozenset(nodes) for name, nodes in by_occurrence.items()}


def _late(inputs: Inputs, name: str, nodes: frozenset[str], begins: datetime) -> frozenset[str]:
    """Returns the nodes with reservations that begin after lending, so that jobs may use them."""
    batch = inputs.facts.batch or {}
    begins_of = {node: batch[node].reservations_begin.get(f"{name}-{node}") for node in nodes}
    return frozenset(node for node in nodes if is_late(begins_of[node], begins))


def _caps(inputs: Inputs, registry: Registry) -> ConversionBudget:
    """Returns how many nodes caps and rules would allow if no node were lent and no hours used."""
    bare = {
        name: msgspec.structs.replace(
            row, in_service=row.in_service is not False or name in registry.nodes
        )
        for name, row in (inputs.facts.batch or {}).items()
    }
    facts = msgspec.structs.replace(inputs.facts, batch=bare)
    asked = CountedFrom(config=inputs.config, registry=Registry(), facts=facts)
    return count_left(inputs.config, (), {}, list_bounds(asked))


def _need(
    inputs: Inputs,
    window: Window,
    excluded: Mapping[str, str],
    caps: ConversionBudget,
    concurrent: Sequence[_Taken],
) -> EventReservation | None:
    """Returns the reservation that an event's occurrence needs, or None. It is reduced to what caps
    allow, else Slurm would keep nodes idle that cannot be lent. `excluded` includes lent nodes.
    `concurrent` has the needs of events at the same time."""
    config = inputs.config
    node_type, count = rough_need(config, window.event)
    for cap in caps.bounds_of(NodePool("", window.event.namespace, node_type)):
        rivals = [pair for pair in concurrent if cap.holds_for(pair.need.node_type, pair.namespace)]
        count = min(count, cap.left - sum(other.need.count for other in rivals))
    if count <= 0:
        return None
    return EventReservation(
        name="",
        node_type=node_type,
        count=count,
        begins=window.begins,
        ends=window.ends,
        leave_out=exclusion_list(config, node_type, excluded),
    )


def _unused(
    inputs: Inputs, registry: Registry, name: str, window: Window, nodes: frozenset[str]
) -> list[UnreserveNodes]:
    """Returns a cancellation of an event's reservations on nodes that are not lent, if the event
    has all of its nodes."""
    policy = inputs.config.namespaces[window.event.namespace]
    counts = count_nodes(registry, inputs.config.instance_id)
    lent = {node for node in nodes if node in registry.nodes}
    is_met = all(counts[policy.name, kind] >= count for kind, count in policy.min_of_type.items())
    if not is_met or not nodes - lent or registry.requests:
        return []
    kept = fold_hostlist(sorted(lent))
    return [UnreserveNodes(name=name, reason="the event has its nodes", leave_out=kept)]


RULE = Rule(adds=plan_event_reservations)
