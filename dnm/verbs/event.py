"""The changes that `dnm event add` and `dnm event remove` make to the registry. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from dnm.calendar.in_force import list_events
from dnm.calendar.windows import LONGEST_LOOK, event_error, list_windows
from dnm.config.files import MOST_EVENTS
from dnm.model.calendar import CalendarEvent, Window
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.verbs.refusal import Refusal, without

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = timedelta(days=1)  # more than any zone's clock is off UTC


def add_event(
    config: Config, registry: Registry, event: CalendarEvent, now: datetime
) -> Registry | Refusal:
    """Adds an event to the registry. Refuses an event that has no effect, and a name in use."""
    refusal = _refuse_useless(config, event, now) or _refuse_duplicate(config, registry, event.name)
    if refusal is not None:
        return refusal
    return replace(registry, events={**registry.events, event.name: event})


def remove_event(config: Config, registry: Registry, name: str) -> Registry | Refusal:
    """Removes an event that `dnm event add` has added. Refuses this for an event in a file."""
    event = added_event(config, registry, name)
    if isinstance(event, Refusal):
        return event
    return replace(registry, events=without(registry.events, name))


def added_event(config: Config, registry: Registry, name: str) -> CalendarEvent | Refusal:
    """Returns an event that the registry has, or a refusal that names the file with the event."""
    if name in registry.events:
        return registry.events[name]
    for event in list_events(config, registry):
        if event.name == name:
            where = place_of_event(config, event)
            return Refusal(f"event {name} is in {where}: remove it there")
    names = ", ".join(sorted(registry.events)) or "none"
    return Refusal(f"no event {name!r} was added; added events: {names}")


def _refuse_useless(config: Config, event: CalendarEvent, now: datetime) -> Refusal | None:
    if why := event_error(config, event):
        return Refusal(f"cannot add the event: {why}")
    if next_windows(event, now):
        return None
    over = f"it is over, {when_of(event)}; write a later time"
    return Refusal(f"cannot add the event: {over}")


def _refuse_duplicate(config: Config, registry: Registry, name: str) -> Refusal | None:
    if name in registry.events:
        how = f"`dnm event remove {name}` removes it"
        return Refusal(f"there is an event {name} already: {how}")
    for event in list_events(config, registry):
        if event.name == name:
            where = f"there is an event {name} in {place_of_event(config, event)} already"
            return Refusal(f"{where}; choose another name")
    if len(registry.events) >= MOST_EVENTS:
        return Refusal(f"there are {MOST_EVENTS} events already; remove past events")
    return None


def place_of_event(config: Config, event: CalendarEvent) -> str:
    """Returns the path of the file that contains an event: an event file or the configuration."""
    return event.source or str(config.path)


def next_windows(event: CalendarEvent, now: datetime) -> list[Window]:
    """Returns the event's next occurrences, from now on or, if later, from its first day."""
    begins = event.begins.replace(tzinfo=UTC)
    after = begins - _DAY if begins > now + _DAY else now
    return list_windows([event], after, after + LONGEST_LOOK)


def when_of(event: CalendarEvent) -> str:
    """Returns the event's times, weekdays and zone as they were entered, as text."""
    times = f"{event.begins:%Y-%m-%d %H:%M} to {event.ends:%Y-%m-%d %H:%M} {event.zone}"
    if not event.weekly:
        return times
    days = ", ".join(DAYS[day] for day in event.weekly)
    until = f" until {event.last}" if event.last else ""
    return f"each {days} from {event.begins:%H:%M} to {event.ends:%H:%M} {event.zone}, " + (
        f"since {event.begins:%Y-%m-%d}{until}"
    )
