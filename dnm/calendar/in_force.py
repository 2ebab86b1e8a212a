"""The current events of calendars: those that can be read now, and the last readable form of those
that cannot. Pure.

An event ends when its calendar is read without it. An unreadable event stays as it was. If a
calendar is unreadable, or has unreadable content that may be an event, all its events stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.calendar import CalendarEvent, CalendarReading, KeptCalendar
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.model.value import Unreadable

_MOST_KEPT = 512 * 1024  # bytes of one calendar, unpacked: a thousand windows take half of it


def keep_calendar(kept: KeptCalendar, read: CalendarReading | Unreadable) -> KeptCalendar:
    """Returns the current events of a calendar, from the previous ones and a new reading."""
    if isinstance(read, Unreadable):
        return msgspec.structs.replace(kept, troubles=(read.error,), is_too_large=False)
    names = {event.name for event in read.events}
    as_before = tuple(
        event
        for event in kept.events
        if event.name in read.unread or (not read.is_complete and event.name not in names)
    )
    return KeptCalendar(
        events=(*read.events, *as_before),
        troubles=tuple(text for texts in read.unread.values() for text in texts),
    )


def keep_within_bound(
    kept: KeptCalendar, read: CalendarReading | Unreadable, path: str
) -> KeptCalendar:
    """Returns a calendar's current events; if these are too large, returns the previous ones."""
    calendar = keep_calendar(kept, read)
    if len(msgspec.json.encode(calendar)) <= _MOST_KEPT:
        return calendar
    error = f"{path}: has more than {_MOST_KEPT // 1024} KiB of events; remove some"
    return msgspec.structs.replace(kept, troubles=(error,), is_too_large=True)


def with_calendars(
    config: Config, registry: Registry, other_calendars: Mapping[str, KeptCalendar]
) -> Registry:
    """Returns the registry with the events of the configuration and of `other_calendars`. Events of
    calendars that are not configured any more are removed."""
    path = str(config.path)
    read = CalendarReading(events=config.calendar_events, unread=config.unread_events)
    own = keep_within_bound(registry.calendars.get(path, KeptCalendar()), read, path)
    calendars = {**other_calendars, **({path: own} if own != KeptCalendar() else {})}
    replaced: Registry = msgspec.structs.replace(registry, calendars=calendars)
    return replaced


def list_events(config: Config, registry: Registry) -> tuple[CalendarEvent, ...]:
    """Returns the events of all calendars. An unreadable event counts as it was last recorded."""
    path = str(config.path)
    kept = (
        event
        for source, calendar in registry.calendars.items()
        for event in calendar.events
        if source != path or event.name in config.unread_events
    )
    return (*config.calendar_events, *kept, *registry.events.values())


def list_troubles(config: Config, registry: Registry) -> tuple[str, ...]:
    """Returns a sentence for each event or calendar that can't be read, and a single one if the
    configuration has too many events."""
    path = str(config.path)
    kept = registry.calendars.get(path, KeptCalendar())
    own: Iterable[str] = (
        f"{path}: {text}" for texts in config.unread_events.values() for text in texts
    )
    own = kept.troubles if kept.is_too_large else own
    other_troubles = (
        text
        for source, calendar in registry.calendars.items()
        for text in calendar.troubles
        if source != path
    )
    return tuple(dict.fromkeys((*own, *other_troubles)))
