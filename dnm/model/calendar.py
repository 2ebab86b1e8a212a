"""Events that a site knows beforehand: what stands in a calendar, and when it is in force."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime

from dnm.model.value import Value


class CalendarEvent(Value, omit_defaults=True):
    """So many equal pods, or so many nodes, for a namespace, once or on some days of each week.

    `begins` and `ends` are wall times of `zone`, without an offset. `weekly`: days, Monday is 0;
    `begins` is then the first of them at the earliest. `last`: the last day on which it begins;
    None: it has no end. `without`: days on which it does not begin. `request`: of one pod.
    """

    name: str
    namespace: str
    begins: datetime
    ends: datetime
    zone: str = "UTC"
    weekly: tuple[int, ...] = ()
    last: date | None = None
    without: tuple[date, ...] = ()
    pods: int = 0
    request: dict[str, int] = {}
    nodes: int = 0
    charge_account: str = ""  # empty: that of the namespace
    source: str = ""  # the file that it stands in; empty: the configuration
    seen_in: str = ""  # the zone in which people are shown it; empty: `zone`


class CalendarReading(Value):
    """What a calendar says now: its events, and why others of it can't be read, by their names.
    `is_whole`: nothing else stands there, which might be an event too."""

    events: tuple[CalendarEvent, ...] = ()
    unread: Mapping[str, tuple[str, ...]] = {}
    is_whole: bool = True


class KeptCalendar(Value):
    """What a calendar has said, as far as that is in force: of an event that can't be read now,
    what was read last. `troubles`: sentences about those. `digest`: of what it was made from."""

    events: tuple[CalendarEvent, ...] = ()
    troubles: tuple[str, ...] = ()
    digest: str = ""


class Window(Value):
    """One occurrence of an event: `[begins, ends)` in UTC."""

    event: CalendarEvent
    begins: datetime
    ends: datetime
