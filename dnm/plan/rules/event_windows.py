"""The occurrences (windows) of planned events, and when nodes are lent or kept for each. Pure.

Nodes are lent for a window from its start less the time that lending takes, until its end. Lent
nodes are kept for it from earlier on: from its start less the time of a return and a lend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from dnm.calendar.in_force import list_events, list_troubles
from dnm.calendar.windows import (
    MOST_WINDOWS,
    event_error,
    list_windows,
    request_of,
    without_doubles,
)
from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.plan.hooks import NodeFloor, raise_floors
from dnm.plan.idle_times import lend_time, longest_lend_time, return_time
from dnm.sizing.caps import describe_exceeded_caps

_AHEAD = timedelta(days=8)  # a week, and a day in which an event may matter before it begins
MOST_PODS = 100_000  # of all events at one time: each is packed like a pending pod


class ProjectedWindows(Value):
    """The occurrences of events that count at one time. Nodes are lent for those in `lend`, and
    lent nodes are kept for those in `keep`. `left_out` would exceed the maximum of pods."""

    lend: tuple[Window, ...] = ()
    keep: tuple[Window, ...] = ()
    left_out: tuple[Window, ...] = ()


def usable_events(config: Config, registry: Registry) -> tuple[CalendarEvent, ...]:
    """Returns the valid events of all sources. While both are current, two events with the same
    name and namespace count as one."""
    events = list_events(config, registry)
    return tuple(event for event in events if not event_error(config, event))


def projected_at(config: Config, registry: Registry, at: datetime) -> ProjectedWindows:
    """Returns the occurrences of events for which nodes are lent or kept at the time `at`."""
    windows = list_windows(usable_events(config, registry), at, at + _AHEAD)
    lend = _select(windows, at, lambda window: lead_of(config, registry, window.event))
    keep = _select(windows, at, lambda window: _stay_before(config, registry, window))
    lend, too_many = _within_pods(lend)
    keep, too_many_kept = _within_pods(keep)
    return ProjectedWindows(lend=lend, keep=keep, left_out=(*too_many, *too_many_kept))


def describe_cap(config: Config, event: CalendarEvent) -> str | None:
    """Returns a sentence if an event alone needs more nodes than a cap allows, else None."""
    policy = config.namespaces.get(event.namespace)
    if policy is None or not policy.node_types:
        return None
    nodes, subject = event.nodes, "it needs"
    if event.pods:
        request = request_of(config, event)
        types = [
            config.node_types[node_type]
            for node_type in policy.node_types
            if node_type in config.node_types
        ]
        most = max((_pods_on(node_type.size, request) for node_type in types), default=0)
        nodes, subject = -(-event.pods // most) if most else 0, "its pods fill at least"
    why = describe_exceeded_caps(config, [(policy.node_types[0], policy.name)] * nodes)
    return f"{subject} {count_of(nodes, 'node')}, and {why}" if why else None


def _pods_on(size: Mapping[str, int], request: Mapping[str, int]) -> int:
    """Returns how many pods with this request fit on an empty node of this size."""
    counts = [size.get(name, 0) // amount for name, amount in request.items() if amount]
    return min((number for number in counts if number), default=0)


def _within_pods(windows: Iterable[Window]) -> tuple[tuple[Window, ...], tuple[Window, ...]]:
    """Returns the earliest occurrences, up to MOST_PODS pods in all, and the remaining ones."""
    included: list[Window] = []
    left_out: list[Window] = []
    pods = 0
    for window in windows:
        fits = pods + window.event.pods <= MOST_PODS
        pods += window.event.pods if fits else 0
        (included if fits else left_out).append(window)
    return tuple(included), tuple(left_out)


def list_problems(config: Config, registry: Registry, at: datetime) -> Iterator[str]:
    """Yields a sentence for each event or calendar that cannot be used, and for each maximum that
    leaves events out."""
    yield from list_troubles(config, registry)
    yield from _list_unusable(config, registry)
    events = usable_events(config, registry)
    yield from _list_duplicates(config, registry)
    if len(list_windows(events, at, at + _AHEAD)) == MOST_WINDOWS:
        yield (
            f"events have {MOST_WINDOWS:,} windows or more in {_AHEAD.days} days: what begins "
            "after these is left out until then; end some of the series"
        )
    for name in sorted(
        {window.event.name for window in projected_at(config, registry, at).left_out}
    ):
        yield (
            f"event {name} is left out: with the events that begin before it there would be more "
            f"than {MOST_PODS:,} pods; write fewer, or nodes"
        )


def _list_unusable(config: Config, registry: Registry) -> Iterator[str]:
    """Yields a sentence for each unusable event. Unreadable sections of the configuration are
    reported elsewhere."""
    for event in list_events(config, registry):
        is_reported = not event.source and event.name in config.unread_events
        if not is_reported and (why := event_error(config, event)):
            yield f"{_place_of(config, registry, event)}: [event:{event.name}] {why}"


def _list_duplicates(config: Config, registry: Registry) -> Iterator[str]:
    places: dict[tuple[str, str], str] = {}
    for event in usable_events(config, registry):
        place = _place_of(config, registry, event)
        other = places.setdefault((event.namespace, event.name), place)
        if other != place:
            yield (
                f"{place}: [event:{event.name}] is in {other} too, and only one counts at a time; "
                "rename one"
            )


def _place_of(config: Config, registry: Registry, event: CalendarEvent) -> str:
    if registry.events.get(event.name) == event:
        return "dnm event"
    return event.source or str(config.path)


def _select(
    windows: Iterable[Window], at: datetime, early: Callable[[Window], timedelta]
) -> tuple[Window, ...]:
    return tuple(
        without_doubles(window for window in windows if window.begins - early(window) <= at)
    )


def _stay_before(config: Config, registry: Registry, window: Window) -> timedelta:
    """Returns how long before an event nodes are kept for it. If nodes were requested since lending
    for it may have begun, it is at least the longest time of lending, since measured times may
    shrink meanwhile."""
    longest = _lead(config, window.event, longest_lend_time(config))
    name = window.event.namespace
    asked = [node.asked_at for node in registry.nodes.values() if node.namespace == name]
    asked += [request.asked_at for request in registry.requests if request.namespace == name]
    is_begun = any(moment and moment >= window.begins - longest for moment in asked)
    stay = stay_of(config, registry, window.event)
    return max(stay, longest) if is_begun else stay


def lead_of(config: Config, registry: Registry, event: CalendarEvent) -> timedelta:
    """Returns how long before an event lending for it begins: the duration of a lend, plus the runs
    that request all of its nodes."""
    types = config.namespaces[event.namespace].node_types
    return _lead(config, event, max(lend_time(config, registry, name) for name in types))


def _lead(config: Config, event: CalendarEvent, longest: timedelta) -> timedelta:
    runs = -(-rough_need(config, event)[1] // max(config.max_conversions_per_run, 1))
    between = max(config.check_interval, config.global_cooldown)
    return longest + config.check_interval + (runs - 1) * between


def stay_of(config: Config, registry: Registry, event: CalendarEvent) -> timedelta:
    """Returns how long before an event begins lent nodes are kept for it."""
    types = config.namespaces[event.namespace].node_types
    away = max(return_time(config, registry, name) for name in types)
    return lead_of(config, registry, event) + away


def rough_need(config: Config, event: CalendarEvent) -> tuple[str, int]:
    """Returns the first node type that can run an event's pods, and how many nodes they fill."""
    types = config.namespaces[event.namespace].node_types
    if event.nodes:
        return types[0], event.nodes
    request = request_of(config, event)
    for name in types:
        size = config.node_types[name].size
        per_node = min(size.get(key, 0) // amount for key, amount in request.items()
                     if amount and key != "pods")  # fmt: skip
        if per_node:
            return name, -(-event.pods // per_node)
    return types[0], 1


def next_change(config: Config, registry: Registry, now: datetime) -> datetime | None:
    """Returns when the need of planned events changes next, or None if not within a week."""
    moments: list[datetime] = []
    for window in list_windows(usable_events(config, registry), now, now + _AHEAD):
        lead = lead_of(config, registry, window.event)
        stay = stay_of(config, registry, window.event)
        moments += [window.begins - stay, window.begins - lead, window.ends]
    return min((moment for moment in moments if moment > now), default=None)


def with_wants(config: Config, registry: Registry, at: datetime) -> Config:
    """Returns the configuration with a minimum of one node for each namespace with a current event.
    A run uses it only to decide which facts to read."""
    namespaces = {window.event.namespace for window in projected_at(config, registry, at).lend}
    return raise_floors(
        config, (NodeFloor(namespace=name, nodes=1, why="") for name in sorted(namespaces))
    )


def name_events(windows: Iterable[Window]) -> str:
    """Returns the names and times of these occurrences of events, for messages."""
    named = sorted({(window.event.name, window.begins, window.ends) for window in windows})
    return ", ".join(f"event {name}, {_span(begins, ends)}" for name, begins, ends in named)


def _span(begins: datetime, ends: datetime) -> str:
    last = "%H:%M" if begins.date() == ends.date() else "%Y-%m-%d %H:%M"
    return f"{begins:%Y-%m-%d %H:%M} to {ends:{last}} UTC"
