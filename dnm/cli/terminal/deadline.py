"""The parsing of options with a duration or a time: `--for`, `--until`, `--wait`, `--grace`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

import typer

from dnm.calendar.windows import begin_in_utc, zone_named
from dnm.model.config import Config
from dnm.model.printable import printable
from dnm.model.quantity import parse_span

_YEAR = timedelta(days=366)


def deadline_of(config: Config, length: str, until: str) -> datetime | None:
    """Returns the end that `--for` or `--until` sets, counted from now. Raises BadParameter."""
    return parse_deadline(length, until, datetime.now(UTC), config.events_zone)


def parse_deadline(length: str, until: str, now: datetime, zone: str = "UTC") -> datetime | None:
    """Returns the end that `--for` or `--until` sets, or None if both are empty. A time without an
    offset is in `zone`. Raises BadParameter if both are set, and for a time that is malformed,
    past, or more than a year ahead."""
    if length and until:
        raise typer.BadParameter("write --for or --until, not both")
    if not (length or until):
        return None
    option = "--for" if length else "--until"
    if length:
        moment: datetime | None = now + parse_duration(
            length, option, _YEAR, "90m, 2h or 1d, at most a year"
        )
    else:
        moment = _moment(until, now, zone)
    if moment is None:
        hint = f"write 17:00 or 2026-12-01T17:00 ({zone}), or with an offset 17:00+01:00"
        raise typer.BadParameter(f"{until!r} is not a time; {hint}", param_hint=option)
    if not now < moment <= now + _YEAR:
        error = "is over" if moment <= now else "is more than a year ahead"
        # Only UTC is printed: other zones may be unable to represent the last hours of 9999.
        raise typer.BadParameter(f"{moment:%Y-%m-%d %H:%M} UTC {error}", param_hint=option)
    return moment


def parse_duration(text: str, option: str, most: timedelta, examples: str) -> timedelta:
    """Returns the duration in an option's text. Raises BadParameter, which shows `examples`."""
    span = parse_span(text)
    if span is None or not timedelta(0) <= span <= most:
        wrong = "is not a duration" if span is None else "is too long"
        wrong = "has no unit" if text.isdecimal() else wrong
        hint = f"'{printable(text, 40)}' {wrong}; write {examples}"
        raise typer.BadParameter(hint, param_hint=option)
    return span


def _moment(text: str, now: datetime, zone: str) -> datetime | None:
    """Returns the moment in the text, or None if it is malformed. A time of day without a date
    means its next occurrence."""
    try:
        if re.match(r"[0-9]{1,2}:", text):
            of_day = time.fromisoformat(text if text[2] == ":" else f"0{text}")
            here = of_day.tzinfo or zone_named(zone)
            wall = datetime.combine(now.astimezone(here).date(), of_day.replace(tzinfo=None))
            moments = (
                (wall + timedelta(days=n)).replace(tzinfo=here, fold=fold)
                for n in (0, 1)
                for fold in (0, 1)
            )
            return next(moment for moment in (m.astimezone(UTC) for m in moments) if moment > now)
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else begin_in_utc(moment, zone)
    except (ValueError, IndexError, OverflowError, StopIteration):
        return None
