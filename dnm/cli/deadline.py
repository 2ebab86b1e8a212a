"""`--for` and `--until`: when what a person asks for is over."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

import typer

from dnm.model.spans import parse_span

_YEAR = timedelta(days=366)


def parse_deadline(length: str, until: str, now: datetime) -> datetime | None:
    """Returns the moment that `--for` or `--until` names, in UTC; None: neither does. Raises
    BadParameter for both, for what is no time, is over, or more than a year ahead."""
    if length and until:
        raise typer.BadParameter("write --for or --until, not both")
    if not (length or until):
        return None
    option = "--for" if length else "--until"
    moment = _after(length, now) if length else _moment(until, now)
    if moment is None:
        hint = "write 17:00 or 2026-12-01T17:00 (UTC, or with an offset: 17:00+01:00)"
        hint = "write 90m, 2h or 1d, a year at most" if length else hint
        raise typer.BadParameter(hint, param_hint=option)
    if not now < moment <= now + _YEAR:
        why = "is over" if moment <= now else "is more than a year ahead"
        # Not by the host's clock: that has no word for the last hours of 9999.
        raise typer.BadParameter(f"{moment:%Y-%m-%d %H:%M} UTC {why}", param_hint=option)
    return moment


def _after(length: str, now: datetime) -> datetime | None:
    span = parse_span(length, "m")
    return None if span is None or not timedelta(0) < span <= _YEAR else now + span


def _moment(text: str, now: datetime) -> datetime | None:
    """A time of the day is the next time that it is so late."""
    try:
        if re.match(r"[0-9]{1,2}:", text):
            of_day = time.fromisoformat(text if text[2] == ":" else f"0{text}")
            today = now.astimezone(of_day.tzinfo or UTC)
            moment = datetime.combine(today.date(), of_day, of_day.tzinfo or UTC)
            return (moment if moment > now else moment + timedelta(days=1)).astimezone(UTC)
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, IndexError, OverflowError):
        return None


def shown(moment: datetime) -> str:
    """Returns a moment in UTC, and as the host's clock shows it where that is something else."""
    text = f"{moment:%Y-%m-%d %H:%M} UTC"
    here = moment.astimezone()
    if not here.utcoffset():
        return text
    return f"{text} ({here:%H:%M} {here.tzname()})"
