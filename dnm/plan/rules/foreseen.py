"""What is known of need that has not come yet: the windows of events, and when each begins to
matter here. Pure.

An event matters from its start less the time that lending takes. Nodes that are there stay from
earlier on: from its start less the time that going and coming takes. It ends when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from dnm.calendar.in_force import list_events, list_troubles
from dnm.calendar.windows import (
    MOST_WINDOWS,
    list_windows,
    request_of,
    why_of_no_use,
    without_doubles,
)
from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.plan.hooks import NodeFloor, raise_floors
from dnm.plan.idle_times import lend_time, longest_lend_time, return_time
from dnm.sizing.caps import why_never_so_many

_AHEAD = timedelta(days=8)  # as far as anything may matter before it begins, and a week
MOST_PODS = 100_000  # of all events at one time: each is packed as a pending pod is


class Foreseen(Value):
    """Windows for which nodes are lent now, and those for which nodes stay that are there.
    `left_out`: those that would be too many pods with the ones that begin before them."""

    lend: tuple[Window, ...] = ()
    keep: tuple[Window, ...] = ()
    left_out: tuple[Window, ...] = ()


def known_events(config: Config, registry: Registry) -> tuple[CalendarEvent, ...]:
    """Returns the events of all places that can bring a node here; where two have one name and
    namespace, what is in force of both is one."""
    found = list_events(config, registry)
    return tuple(event for event in found if not why_of_no_use(config, event))


def events_at(config: Config, registry: Registry, at: datetime) -> Foreseen:
    """Returns the windows that matter at a moment."""
    windows = list_windows(known_events(config, registry), at, at + _AHEAD)
    lend = _in_force(windows, at, lambda window: lead_of(config, registry, window.event))
    keep = _in_force(windows, at, lambda window: _stay_by_now(config, registry, window))
    lend, too_many = _within_pods(lend)
    keep, too_many_kept = _within_pods(keep)
    return Foreseen(lend=lend, keep=keep, left_out=(*too_many, *too_many_kept))


def why_short(config: Config, event: CalendarEvent) -> str | None:
    """Says which cap an event can't get past even if nothing else is lent."""
    policy = config.namespaces.get(event.namespace)
    if policy is None or not policy.node_types:
        return None
    nodes, what = event.nodes, "it needs"
    if event.pods:
        request = request_of(config, event)
        types = [
            config.node_types[node_type]
            for node_type in policy.node_types
            if node_type in config.node_types
        ]
        most = max((_pods_on(node_type.size, request) for node_type in types), default=0)
        nodes, what = -(-event.pods // most) if most else 0, "its pods fill at least"
    why = why_never_so_many(config, [(policy.node_types[0], policy.name)] * nodes)
    return f"{what} {count_of(nodes, 'node')}, and {why}" if why else None


def _pods_on(size: Mapping[str, int], request: Mapping[str, int]) -> int:
    """How many such pods an empty node takes."""
    room = [size.get(name, 0) // amount for name, amount in request.items() if amount]
    return min((number for number in room if number), default=0)


def _within_pods(windows: Iterable[Window]) -> tuple[tuple[Window, ...], tuple[Window, ...]]:
    """Those that are looked at, the first to begin first, and those that are not."""
    taken: list[Window] = []
    left_out: list[Window] = []
    pods = 0
    for window in windows:
        fits = pods + window.event.pods <= MOST_PODS
        pods += window.event.pods if fits else 0
        (taken if fits else left_out).append(window)
    return tuple(taken), tuple(left_out)


def why_incomplete(config: Config, registry: Registry, at: datetime) -> Iterator[str]:
    """Yields a sentence for each event or calendar that can't be read, and for each bound that
    leaves out a part of what is known."""
    yield from list_troubles(config, registry)
    yield from _why_useless(config, registry)
    events = known_events(config, registry)
    yield from _doubles(config, registry)
    if len(list_windows(events, at, at + _AHEAD)) == MOST_WINDOWS:
        yield (
            f"events have {MOST_WINDOWS:,} windows or more in {_AHEAD.days} days: what begins "
            "after these is left out until then; end some of the series"
        )
    for name in sorted({window.event.name for window in events_at(config, registry, at).left_out}):
        yield (
            f"event {name} is left out: with the events that begin before it there would be more "
            f"than {MOST_PODS:,} pods; write fewer, or nodes"
        )


def _why_useless(config: Config, registry: Registry) -> Iterator[str]:
    """Of those that stand elsewhere than in the configuration, whose own are told as unread."""
    for event in list_events(config, registry):
        is_told = not event.source and event.name in config.unread_events
        if not is_told and (why := why_of_no_use(config, event)):
            yield f"{_place_of(config, registry, event)}: [event:{event.name}] {why}"


def _doubles(config: Config, registry: Registry) -> Iterator[str]:
    places: dict[tuple[str, str], str] = {}
    for event in known_events(config, registry):
        place = _place_of(config, registry, event)
        other = places.setdefault((event.namespace, event.name), place)
        if other != place:
            yield (
                f"{place}: [event:{event.name}] stands in {other} too, and of both one counts at a "
                "time; rename one"
            )


def _place_of(config: Config, registry: Registry, event: CalendarEvent) -> str:
    if registry.events.get(event.name) == event:
        return "dnm event"
    return event.source or str(config.path)


def _in_force(
    windows: Iterable[Window], at: datetime, early: Callable[[Window], timedelta]
) -> tuple[Window, ...]:
    return tuple(
        without_doubles(window for window in windows if window.begins - early(window) <= at)
    )


def _stay_by_now(config: Config, registry: Registry, window: Window) -> timedelta:
    """How long before its start nodes stay for an event. What is learned may shrink while nodes are
    lent for it: those that were asked for when lending for it may have begun stay all the same."""
    longest = _lead(config, window.event, longest_lend_time(config))
    name = window.event.namespace
    asked = [node.asked_at for node in registry.nodes.values() if node.namespace == name]
    asked += [request.asked_at for request in registry.requests if request.namespace == name]
    is_begun = any(moment and moment >= window.begins - longest for moment in asked)
    stay = stay_of(config, registry, window.event)
    return max(stay, longest) if is_begun else stay


def lead_of(config: Config, registry: Registry, event: CalendarEvent) -> timedelta:
    """Returns how long before its start lending for an event begins: as long as it takes, with the
    runs that are needed to ask for so many nodes."""
    types = config.namespaces[event.namespace].node_types
    return _lead(config, event, max(lend_time(config, registry, name) for name in types))


def _lead(config: Config, event: CalendarEvent, longest: timedelta) -> timedelta:
    runs = -(-rough_need(config, event)[1] // max(config.max_conversions_per_run, 1))
    between = max(config.check_interval, config.global_cooldown)
    return longest + config.check_interval + (runs - 1) * between


def stay_of(config: Config, registry: Registry, event: CalendarEvent) -> timedelta:
    """Returns how long before its start no node is given back that it needs."""
    types = config.namespaces[event.namespace].node_types
    away = max(return_time(config, registry, name) for name in types)
    return lead_of(config, registry, event) + away


def rough_need(config: Config, event: CalendarEvent) -> tuple[str, int]:
    """Returns the first type that takes its pods, and how many empty nodes of it an event fills."""
    types = config.namespaces[event.namespace].node_types
    if event.nodes:
        return types[0], event.nodes
    request = request_of(config, event)
    for name in types:
        size = config.node_types[name].size
        on_one = min(size.get(key, 0) // amount for key, amount in request.items()
                     if amount and key != "pods")  # fmt: skip
        if on_one:
            return name, -(-event.pods // on_one)
    return types[0], 1


def next_change(config: Config, registry: Registry, now: datetime) -> datetime | None:
    """Returns when what is foreseen changes next; None: not within days."""
    moments: list[datetime] = []
    for window in list_windows(known_events(config, registry), now, now + _AHEAD):
        lead = lead_of(config, registry, window.event)
        stay = stay_of(config, registry, window.event)
        moments += [window.begins - stay, window.begins - lead, window.ends]
    return min((moment for moment in moments if moment > now), default=None)


def with_wants(config: Config, registry: Registry, at: datetime) -> Config:
    """Returns the configuration by which is decided what has to be read: something is wanted for
    each namespace that has an event."""
    namespaces = {window.event.namespace for window in events_at(config, registry, at).lend}
    return raise_floors(
        config, (NodeFloor(namespace=name, nodes=1, why="") for name in sorted(namespaces))
    )


def words_for(windows: Iterable[Window]) -> str:
    """Names the events, as verdicts say why nodes are wanted."""
    named = sorted({(window.event.name, window.begins, window.ends) for window in windows})
    return ", ".join(f"event {name}, {_span(begins, ends)}" for name, begins, ends in named)


def _span(begins: datetime, ends: datetime) -> str:
    last = "%H:%M" if begins.date() == ends.date() else "%Y-%m-%d %H:%M"
    return f"{begins:%Y-%m-%d %H:%M} to {ends:{last}} UTC"
