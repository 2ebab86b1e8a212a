"""Tests of the times of events: local times of a time zone become moments in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dnm.calendar import windows
from dnm.calendar.windows import list_windows, without_doubles
from dnm.config.events import read_event
from dnm.model.calendar import CalendarEvent, Window

BERLIN, INDIANA = "Europe/Berlin", "America/Indiana/Indianapolis"


def event(begins: str, until: str, zone: str = "UTC", **entries: str) -> CalendarEvent:
    """Parses an event from the values of its keys in a configuration file."""
    problems: list[str] = []
    settings = {"namespace": "dev", "nodes": "1", "from": begins, "until": until}
    read = read_event("w", "event:w", {**settings, **entries}, zone, problems)
    assert read is not None, problems
    return read


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(rows: list[Window]) -> list[str]:
    return [f"{window.begins:%m-%d %H:%M} {window.ends:%m-%d %H:%M}" for window in rows]


# from, until, zone, other keys -> the windows in UTC
TABLE: dict[str, tuple[str, str, str, dict[str, str], list[str]]] = {
    "winter": ("2026-01-12 09:00", "17:00", BERLIN, {}, ["01-12 08:00 01-12 16:00"]),
    "summer": ("2026-07-13 09:00", "17:00", BERLIN, {}, ["07-13 07:00 07-13 15:00"]),
    "summer there": ("2026-07-13 09:00", "17:00", INDIANA, {}, ["07-13 13:00 07-13 21:00"]),
    "clocks go forward": ("2026-03-29 01:30", "04:30", BERLIN, {}, ["03-29 00:30 03-29 02:30"]),
    "clocks go forward there": ("2026-03-08 01:30", "04:30", INDIANA, {},
                                ["03-08 06:30 03-08 08:30"]),
    "begins at a time that is left out": ("2026-03-29 02:30", "04:30", BERLIN, {},
                                          ["03-29 01:30 03-29 02:30"]),
    "and would end before it": ("2026-03-29 02:30", "03:15", BERLIN, {},
                                ["03-29 01:30 03-29 02:15"]),
    "ends at a time that is left out": ("2026-03-08 00:30", "02:30", INDIANA, {},
                                        ["03-08 05:30 03-08 07:30"]),
    "clocks go back": ("2026-10-25 01:30", "04:30", BERLIN, {}, ["10-24 23:30 10-25 03:30"]),
    "clocks go back there": ("2026-11-01 00:30", "04:30", INDIANA, {}, ["11-01 04:30 11-01 09:30"]),
    "begins at the first of two": ("2026-10-25 02:30", "04:00", BERLIN, {},
                                   ["10-25 00:30 10-25 03:00"]),
    "ends at the second of two": ("2026-11-01 00:00", "01:30", INDIANA, {},
                                  ["11-01 04:00 11-01 06:30"]),
    "over midnight": ("2026-06-01 22:00", "06:00", "UTC", {}, ["06-01 22:00 06-02 06:00"]),
    "to midnight": ("2026-06-01 22:00", "24:00", "UTC", {}, ["06-01 22:00 06-02 00:00"]),
    "a day and a night": ("2026-06-01 09:00", "2026-06-03 09:00", "UTC", {},
                          ["06-01 09:00 06-03 09:00"]),
    "weekly on a leap day's week": ("2028-02-28 09:00", "10:00", "UTC",
                                    {"weekly": "Tue", "last": "2028-03-07"},
                                    ["02-29 09:00 02-29 10:00", "03-07 09:00 03-07 10:00"]),
    "on a leap day": ("2028-02-29 23:00", "01:00", "UTC", {}, ["02-29 23:00 03-01 01:00"]),
    "weekly over both days of clocks": ("2026-10-19 09:00", "17:00", BERLIN,
                                        {"weekly": "Mon", "last": "2026-10-26"},
                                        ["10-19 07:00 10-19 15:00", "10-26 08:00 10-26 16:00"]),
    "its first day is another one": ("2026-12-22 09:00", "10:00", "UTC",
                                     {"weekly": "Mon", "last": "2026-12-28"},
                                     ["12-28 09:00 12-28 10:00"]),
    "ends on its first day": ("2026-12-21 09:00", "10:00", "UTC",
                              {"weekly": "Mon", "last": "2026-12-21"}, ["12-21 09:00 12-21 10:00"]),
}  # fmt: skip


@pytest.mark.parametrize(("begins", "until", "zone", "more", "expected"), TABLE.values(), ids=TABLE)
def test_local_times_become_utc_windows(
    begins: str, until: str, zone: str, more: dict[str, str], expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    item = event(begins, until, zone, **more)
    for host in ("UTC", "Asia/Kathmandu"):  # for any zone of the host
        monkeypatch.setenv("TZ", host)
        year = int(begins[:4])
        result = list_windows([item], utc(f"{year}-01-01"), utc(f"{year + 1}-01-01"))
        assert shown(result) == expected


def test_each_moment_is_in_the_right_number_of_windows() -> None:
    """Moments go forwards, then back: the result depends on no earlier call."""
    touching = [event("2026-06-01 09:00", "10:00"), event("2026-06-01 10:00", "11:00")]
    overlapping = [event("2026-06-01 09:30", "10:30")]
    for text, expected in (("08:59", 0), ("09:00", 1), ("09:30", 2), ("09:59", 2), ("10:00", 2),
                           ("10:30", 1), ("11:00", 0), ("09:30", 2), ("08:59", 0)):  # fmt: skip
        now = utc(f"2026-06-01 {text}")
        result = list_windows([*touching, *overlapping], now, now + timedelta(microseconds=1))
        assert len(result) == expected, text


def test_endless_series_is_expanded_only_as_far_as_requested() -> None:
    endless = event("2020-01-06 09:00", "10:00", weekly="Mon")
    assert len(list_windows([endless], utc("2036-01-01"), utc("2036-02-01"))) == 4
    assert len(list_windows([endless], utc("2036-01-01"), utc("9000-01-01"))) == 57


def test_earliest_windows_are_kept_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    daily = event("2020-01-06 09:00", "10:00", weekly="Mon, Tue, Wed, Thu, Fri, Sat, Sun")
    monkeypatch.setattr(windows, "MOST_WINDOWS", 100)
    result = list_windows([daily] * 3, utc("2026-01-01"), utc("2026-12-31"))
    assert len(result) == 100 and result[-1].begins < utc("2026-02-04")


def test_window_longer_than_a_week_is_still_active() -> None:
    week = event("2026-06-01 09:00", "2026-06-08 09:00", weekly="Mon")
    result = list_windows([week], utc("2026-06-15 08:59"), utc("2026-06-15 09:01"))
    assert shown(result) == ["06-08 09:00 06-15 09:00", "06-15 09:00 06-22 09:00"]
    assert len(without_doubles(result)) == 1  # the same pods


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no namespace": ({"namespace": ""}, "is empty"),
    "neither": ({"nodes": ""}, "is empty"),
    "no time": ({"from": "tomorrow"}, "write e.g. 2026-12-01 09:00"),
    "no day": ({"from": "2026-02-30 09:00"}, "is not a date"),
    "no clock": ({"from": "2026-02-03 25:00"}, "00:00 to 24:00"),
    "no minute": ({"until": "09:60"}, "00:00 to 24:00"),
    "no weekday": ({"weekly": "Mo"}, "'Mo' is not a day of the week"),
    "before its begin": ({"until": "2026-05-31 09:00"}, "is not after from"),
    "too long": ({"until": "2027-06-03 09:00"}, "more than 366 days"),
    "too long for a series": ({"until": "2026-06-09 09:00", "weekly": "Mon"}, "more than 7 days"),
    "both": ({"pods": "3"}, "write one of them"),
    "of what pods": ({"cpu": "4"}, "write pods too"),
    "an end of no series": ({"last": "2026-07-01"}, "write weekly too"),
    "an end before it": ({"weekly": "Mon", "last": "2026-05-01"}, "is before from"),
    "none is left": ({"weekly": "Tue", "last": "2026-06-01"}, "no day of the series is left"),
    "no weekday at all": ({"weekly": ","}, "names no day; write e.g. Mon"),
    "the last midnight": ({"from": "9999-12-31 24:00"}, "write a year from 1970 to 2999"),
    "the last evening": ({"from": "9999-12-31 23:00", "until": "22:00"}, "a day of 9999"),
    "too far": ({"until": "3000-01-01 00:00"}, "a day of 3000"),
    "an unknown key": ({"node": "1"}, "unknown key, did you mean 'nodes'?"),
    "no nodes": ({"nodes": "0"}, "from 1 to 100000"),
}


@pytest.mark.parametrize(("entries", "expected"), WRONG.values(), ids=WRONG)
def test_malformed_event_key_is_reported(entries: dict[str, str], expected: str) -> None:
    problems: list[str] = []
    usual = {"namespace": "dev", "nodes": "1", "from": "2026-06-01 09:00", "until": "17:00"}
    assert read_event("w", "event:w", {**usual, **entries}, "UTC", problems) is None
    assert len(problems) == 1 and problems[0].startswith("[event:w] ") and expected in problems[0]


def test_missing_event_keys_are_reported() -> None:
    problems: list[str] = []
    assert read_event("W_1", "event:W_1", {}, "UTC", problems) is None
    words = ("not an event name", "the namespace", "from = ", "until = ")
    assert all(word in text for word, text in zip(words, problems, strict=True))


def test_event_is_read_with_all_its_keys() -> None:
    problems: list[str] = []
    read = read_event(
        "w", "event:w",
        {"namespace": "dev", "from": "2026-06-01T09:00", "until": "17:00", "pods": "75",
         "cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1", "weekly": "Wed, Mon"},
        INDIANA, problems,
    )  # fmt: skip
    assert not problems
    wanted: dict[str, Any] = {"cpu": 4000, "memory": 16 * 2**30, "nvidia.com/gpu": 1}
    assert read == CalendarEvent(
        name="w", namespace="dev", begins=datetime(2026, 6, 1, 9), ends=datetime(2026, 6, 1, 17),
        zone=INDIANA, weekly=(0, 2), pods=75, request=wanted,
    )  # fmt: skip
