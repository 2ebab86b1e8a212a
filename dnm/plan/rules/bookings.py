"""Nodes that are reserved in Slurm ahead of an event. Pure.

The invariant: **after a run that Slurm refuses nothing, each occurrence that begins within its
days has bookings on exactly as many nodes as it takes empty ones, from the moment its
lending begins at the latest, or minutes later, until it ends; whatever else carries this instance's
name in Slurm is given up, and nothing that does not.** With nothing changed, the next run books and
gives up nothing.

A booking that begins later than that, since lending was thought to take less time, counts as none:
the converter lets it begin earlier, and leaves it where Slurm refuses that. One that begins sooner
than needed, since lending was thought to take more, stays.

Sized are empty nodes, for who knows what will be free then. Once lending for it has begun nothing
more is booked: what is free is lent. When its floor is met, the rest goes back to Slurm at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from dnm.calendar.windows import list_windows
from dnm.model.calendar import Booking, Window, booking_name, booking_on, is_late
from dnm.model.hostlist import fold_hostlist
from dnm.model.observed import BookingTry
from dnm.model.plan import BookNodes, UnbookNodes
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.hooks import Additions, CountedFrom, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.new_requests import left_out_list
from dnm.plan.rule import list_bounds, nodes_kept_out
from dnm.plan.rules.events import nodes_had
from dnm.plan.rules.foreseen import known_events, lead_of, rough_need
from dnm.sizing.caps import ConversionBudget, NodePool, count_left

_AGAIN = timedelta(minutes=10)  # where Slurm had too few, jobs may have ended since
_LEAST_AHEAD = timedelta(minutes=1)  # Slurm books nothing in the past


_Short = tuple[Window, Booking, int]  # what is wanted for it, and how many of it are missing


class _Taken(NamedTuple):
    """What an event that comes first takes of the caps, from when lending for it begins."""

    begins: datetime
    ends: datetime
    namespace: str
    need: Booking


def plan_bookings(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    """Returns the steps towards the invariant, and remembers when was tried last. Where the batch
    side could not be asked, none."""
    config, batch, tries = inputs.config, inputs.snapshot.batch, inputs.registry.booking_tries
    if not config.book_ahead or inputs.snapshot.events_at is not None:
        return _none(noted, {})
    if batch is None or isinstance(batch, Unreadable) or inputs.paused():
        return _none(noted, tries)
    if not inputs.snapshot.books:
        return _none(noted, {}, "event_reservations: the converter does not know --book")
    if any(row.reservations is None for row in batch.values()):
        # What is not told may be booked: to book it again would take others out of service.
        note = "event_reservations: the converter does not tell each node's reservations"
        return _none(noted, tries, note)
    windows = _windows(inputs)
    given_up, short = _compare(inputs, registry, windows)
    asked = _asked(inputs, noted, given_up, short)
    return msgspec.structs.replace(asked, notes=(*asked.notes, *_of_one_name(inputs, windows)))


def _none(noted: Registry, tries: Mapping[str, BookingTry], *notes: str) -> Additions:
    registry = msgspec.structs.replace(noted, booking_tries=dict(tries))
    return Additions(registry=registry, notes=notes)


def _compare(
    inputs: Inputs, registry: Registry, windows: Sequence[Window]
) -> tuple[list[UnbookNodes], list[_Short]]:
    """What is booked and not needed, and what is needed and not booked."""
    config, now = inputs.config, inputs.now
    out = nodes_kept_out(config, registry, inputs.facts.batch, inputs.now)
    out |= dict.fromkeys(registry.nodes, "")
    caps = _caps(inputs, registry)
    there = _booked(inputs, registry)
    wanted = {booking_name(window.event.name, window.begins, config.instance_id): window
              for window in windows}  # fmt: skip
    given_up = [
        UnbookNodes(name=name, why="no event that is known asks for it")
        for name in sorted(there.keys() - wanted.keys())
    ]
    short: list[_Short] = []
    taken: list[_Taken] = []
    for name, window in wanted.items():
        begins = window.begins - lead_of(config, inputs.registry, window.event)
        at_once = [pair for pair in taken if begins < pair.ends and pair.begins < window.ends]
        need, nodes = _need(inputs, window, out, caps, at_once), there.get(name, frozenset())
        if need is not None:
            taken.append(_Taken(begins, window.ends, window.event.namespace, need))
        if need is None:
            why = "no node may be lent for it"
            given_up += [UnbookNodes(name=name, why=why)] if nodes and now < begins else []
            continue
        if now >= begins - _LEAST_AHEAD:
            given_up += _spare(inputs, registry, name, window, nodes) if now >= begins else []
            continue
        late = _late(inputs, name, nodes, begins)
        missing = need.count - len(nodes - late)
        if len(nodes) > need.count:
            kept = fold_hostlist(sorted(nodes, key=lambda node: (node in late, node))[: need.count])
            given_up.append(UnbookNodes(name=name, why="it takes fewer nodes", leave_out=kept))
        if missing > 0:
            asked = msgspec.structs.replace(need, name=name, begins=begins)
            short.append((window, asked, missing))
    return given_up, short


def _asked(
    inputs: Inputs, noted: Registry, given_up: list[UnbookNodes], short: list[_Short]
) -> Additions:
    """What one event gives up another can have in the same run."""
    booked: list[BookNodes] = []
    notes: list[str] = []
    tries: dict[str, BookingTry] = {}
    for window, need, missing in short:
        tried = inputs.registry.booking_tries.get(need.name)
        if tried is not None:
            notes.append(_why_short(window, need, need.count - missing))
        is_due = (
            tried is None
            or not tried.at <= inputs.now < tried.at + _AGAIN  # by a clock that is right
            or (tried.missing, tried.wanted) != (missing, need.count)
        )
        if tried is None or is_due or given_up:
            tried = BookingTry(at=inputs.now, missing=missing, wanted=need.count)
            booked.append(BookNodes(booking=msgspec.structs.replace(need, count=missing)))
        tries[need.name] = tried
    return Additions(
        registry=msgspec.structs.replace(noted, booking_tries=tries),
        actions=(*given_up, *booked),
        notes=tuple(notes),
    )


def _windows(inputs: Inputs) -> list[Window]:
    until = inputs.now + inputs.config.book_ahead
    return list_windows(known_events(inputs.config, inputs.registry), inputs.now, until)


def _of_one_name(inputs: Inputs, windows: Sequence[Window]) -> dict[str, None]:
    """A sentence for events whose reservations would have one name."""
    first: dict[str, Window] = {}
    found: dict[str, None] = {}
    for window in windows:
        name = booking_name(window.event.name, window.begins, inputs.config.instance_id)
        other = first.setdefault(name, window).event.namespace
        if other != window.event.namespace:
            found[
                f"event {window.event.name} of {window.event.namespace} begins when that of "
                f"{other} does, and of both one is booked in Slurm; rename one"
            ] = None
    return found


def _why_short(window: Window, need: Booking, count: int) -> str:
    return (
        f"event {window.event.name}, {window.begins:%Y-%m-%d %H:%M} UTC: {count} of {need.count} "
        f"nodes of type {need.node_type} are booked in Slurm; the others run jobs that may last "
        "until then, or are reserved, down or kept out, or rest after a failure"
    )


def _booked(inputs: Inputs, registry: Registry) -> dict[str, frozenset[str]]:
    """Occurrence -> the nodes that are booked for it, by their reservations' names."""
    found: dict[str, set[str]] = defaultdict(set)
    instance = inputs.config.instance_id
    for node in (inputs.facts.batch or {}).values():
        for reservation in node.reservations or ():
            # One that is down is none that will be there.
            is_there = node.in_service is not False or node.name in registry.nodes
            if (name := booking_on(reservation, node.name, instance)) and is_there:
                found[name].add(node.name)
    return {name: frozenset(nodes) for name, nodes in found.items()}


def _late(inputs: Inputs, name: str, nodes: frozenset[str], begins: datetime) -> frozenset[str]:
    """Those whose booking begins after lending does: none of them is taken before."""
    batch = inputs.facts.batch or {}
    told = {node: batch[node].reservations_begin.get(f"{name}-{node}") for node in nodes}
    return frozenset(node for node in nodes if is_late(told[node], begins))


def _caps(inputs: Inputs, registry: Registry) -> ConversionBudget:
    """What caps and rules leave where nothing is lent, and of a week nothing is spent."""
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
    out: Mapping[str, str],
    caps: ConversionBudget,
    at_once: Sequence[_Taken],
) -> Booking | None:
    """Within the caps: what may not be lent must not stand idle for it. `out`: the nodes that are
    kept out or lent; `at_once`: what others take meanwhile."""
    config = inputs.config
    node_type, count = rough_need(config, window.event)
    for cap in caps.bounds_of(NodePool("", window.event.namespace, node_type)):
        others = [pair for pair in at_once if cap.holds_for(pair.need.node_type, pair.namespace)]
        count = min(count, cap.left - sum(other.need.count for other in others))
    if count <= 0:
        return None
    return Booking(
        name="",
        node_type=node_type,
        count=count,
        begins=window.begins,
        ends=window.ends,
        leave_out=left_out_list(config, node_type, out),
    )


def _spare(
    inputs: Inputs, registry: Registry, name: str, window: Window, nodes: frozenset[str]
) -> list[UnbookNodes]:
    """What is booked and not lent once the event has its nodes: nobody would use it."""
    policy = inputs.config.namespaces[window.event.namespace]
    had = nodes_had(registry, inputs.config.instance_id)
    lent = {node for node in nodes if node in registry.nodes}
    is_met = all(had[policy.name, kind] >= count for kind, count in policy.min_of_type.items())
    if not is_met or not nodes - lent or registry.requests:
        return []
    kept = fold_hostlist(sorted(lent))
    return [UnbookNodes(name=name, why="the event has its nodes", leave_out=kept)]


RULE = Rule(adds=plan_bookings)
