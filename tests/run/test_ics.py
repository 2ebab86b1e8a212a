"""Calendars as other programs write them: which windows they are, in UTC, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import msgspec
import pytest

from dnm.model.calendar import CalendarReading
from dnm.run.ics import (
    SECONDS_OF_ALL,
    SECONDS_OF_ONE,
    Alarm,
    Question,
    TooLong,
    play_in_turns,
    read_calendar,
)

# The alarm may ring while hypothesis counts a collection of garbage, is passed over, and rings on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BERLIN, INDIANA = "Europe/Berlin", "America/Indiana/Indianapolis"
NEEDS = "DESCRIPTION:nodes = 2"


@pytest.fixture(autouse=True)
def a_host_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only work counts, which is the same on a busy one."""
    monkeypatch.setattr("dnm.run.ics.MOST_SECONDS", 1e6)


def read(*entries: str, year: int = 2026, zone: str = "UTC", head: str = "") -> CalendarReading:
    """A year of a calendar of these entries, each without what all have."""
    begins, ends = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    question = Question(
        source="w.ics", namespaces=("dev", "test"), zone=zone, begins=begins, ends=ends
    )
    return read_calendar(calendar(*entries, head=head), question, Alarm())


def calendar(*entries: str, head: str = "") -> bytes:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//x//x//EN", *head.split()]
    for number, entry in enumerate(entries):
        uid = "" if "UID:" in entry else f"UID:{number}"
        given = [line.strip() for line in entry.strip().splitlines()]
        needs = "" if "DESCRIPTION" in entry else NEEDS
        summary = "" if "SUMMARY" in entry else "SUMMARY:STARS (dev)"
        entry_lines = ["BEGIN:VEVENT", uid, summary, needs, *given, "END:VEVENT"]
        lines += [line for line in entry_lines if line]
    return "\r\n".join([*lines, "END:VCALENDAR", ""]).encode()


def shown(found: CalendarReading) -> list[str]:
    assert not found.unread, found.unread
    return [f"{one.begins:%m-%d %H:%M} {one.ends:%m-%d %H:%M}" for one in found.events]


def at(begins: str, ends: str, zone: str = "", more: str = "") -> str:
    tzid = f";TZID={zone}" if zone else ""
    return f"DTSTART{tzid}:{begins}\nDTEND{tzid}:{ends}\n{more}"


SERIES = at("20261221T090000Z", "20261221T100000Z", more="UID:s\nRRULE:FREQ=DAILY;COUNT=3")
MOVED = "UID:s\nRECURRENCE-ID:20261222T090000Z\n"

# entry or entries -> the windows in UTC
TABLE: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "in UTC": ((at("20260601T090000Z", "20260601T170000Z"),), ["06-01 09:00 06-01 17:00"]),
    "winter": ((at("20260112T090000", "20260112T170000", BERLIN),), ["01-12 08:00 01-12 16:00"]),
    "clocks go forward": (
        (at("20260329T013000", "20260329T043000", BERLIN),), ["03-29 00:30 03-29 02:30"]),
    "clocks go forward there": (
        (at("20260308T013000", "20260308T043000", INDIANA),), ["03-08 06:30 03-08 08:30"]),
    "begins at a time that is left out": (
        (at("20260329T023000", "20260329T043000", BERLIN),), ["03-29 01:30 03-29 02:30"]),
    "clocks go back": (
        (at("20261025T013000", "20261025T043000", BERLIN),), ["10-24 23:30 10-25 03:30"]),
    "begins at the first of two": (
        (at("20261025T023000", "20261025T040000", BERLIN),), ["10-25 00:30 10-25 03:00"]),
    "ends at the second of two": (
        (at("20261101T000000", "20261101T013000", INDIANA),), ["11-01 04:00 11-01 06:30"]),
    "weekly over the day of clocks": (
        (at("20261019T090000", "20261019T170000", BERLIN, "RRULE:FREQ=WEEKLY;COUNT=2"),),
        ["10-19 07:00 10-19 15:00", "10-26 08:00 10-26 16:00"]),
    "over midnight": ((at("20260601T220000Z", "20260602T060000Z"),), ["06-01 22:00 06-02 06:00"]),
    "seconds are rounded outwards": (
        (at("20260601T090030Z", "20260601T095930Z"),), ["06-01 09:00 06-01 10:00"]),
    "by its duration": (("DTSTART:20260601T090000Z\nDURATION:PT90M",), ["06-01 09:00 06-01 10:30"]),
    "a zone as Outlook names it": (
        (at("20260713T090000", "20260713T170000", "W. Europe Standard Time"),),
        ["07-13 07:00 07-13 15:00"]),
    "a series with an exception": (
        (SERIES + "\nEXDATE:20261222T090000Z",),
        ["12-21 09:00 12-21 10:00", "12-23 09:00 12-23 10:00"]),
    "a moved occurrence": (
        (SERIES, MOVED + at("20261224T110000Z", "20261224T120000Z")),
        ["12-21 09:00 12-21 10:00", "12-23 09:00 12-23 10:00", "12-24 11:00 12-24 12:00"]),
    "a cancelled occurrence": (
        (SERIES, MOVED + at("20261222T090000Z", "20261222T100000Z", more="STATUS:CANCELLED")),
        ["12-21 09:00 12-21 10:00", "12-23 09:00 12-23 10:00"]),
    "an occurrence that was added": (
        (SERIES + "\nRDATE:20261228T090000Z",),
        [*(f"12-{day} 09:00 12-{day} 10:00" for day in (21, 22, 23, 28))]),
    "cancelled": ((at("20260601T090000Z", "20260601T170000Z", more="STATUS:CANCELLED"),), []),
    "until, in UTC": (
        (at("20261221T090000", "20261221T100000", BERLIN,
            "RRULE:FREQ=DAILY;UNTIL=20261222T080000Z"),),
        ["12-21 08:00 12-21 09:00", "12-22 08:00 12-22 09:00"]),
    "another's": ((at("20260601T090000Z", "20260601T170000Z", more="SUMMARY:Lunch"),), []),
    "a bomb of another's": (
        (at("20260601T090000Z", "20260601T170000Z", more="SUMMARY:x\nRRULE:FREQ=SECONDLY"),), []),
    "by its category": (
        (at("20260601T090000Z", "20260601T170000Z", more="SUMMARY:x\nCATEGORIES:Lab,dev"),),
        ["06-01 09:00 06-01 17:00"]),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "expected"), TABLE.values(), ids=TABLE)
def test_a_calendar_is_windows_in_utc(
    entries: tuple[str, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")  # the host's own zone never matters
    assert shown(read(*entries)) == expected


def test_a_leap_day() -> None:
    yearly = at("20240229T090000Z", "20240229T100000Z", more="RRULE:FREQ=YEARLY")
    assert shown(read(yearly, year=2028)) == ["02-29 09:00 02-29 10:00"]
    assert shown(read(yearly, year=2027)) == []


def test_a_series_without_an_end_is_played_as_far_as_is_asked() -> None:
    endless = at("20200106T090000Z", "20200106T100000Z", more="RRULE:FREQ=WEEKLY")
    assert len(read(endless, year=2036).events) == 52


ALL_DAY = "DTSTART;VALUE=DATE:20260601\nDTEND;VALUE=DATE:20260603"

# of the calendar, of events_zone -> when a day and a time without a zone are
FLOATING = {
    "of the site": ("", BERLIN, ["05-31 22:00 06-02 22:00", "06-05 07:00 06-05 08:00"]),
    "of the calendar": (
        f"X-WR-TIMEZONE:{INDIANA}", BERLIN, ["06-01 04:00 06-03 04:00", "06-05 13:00 06-05 14:00"]),
}  # fmt: skip


@pytest.mark.parametrize(("head", "zone", "expected"), FLOATING.values(), ids=FLOATING)
def test_a_day_and_a_time_without_a_zone_are_of_the_calendars(
    head: str, zone: str, expected: list[str]
) -> None:
    found = read(ALL_DAY, at("20260605T090000", "20260605T100000"), zone=zone, head=head)
    assert shown(found) == expected
    assert {one.seen_in for one in found.events} == {head.partition(":")[2] or zone}


def test_what_it_needs_stands_in_its_description() -> None:
    prose = (
        "DESCRIPTION:Bring laptops: 75 = all of us!<br>pods = 75<p>cpu = 4</p>\\n"
        " Memory = 16Gi\\nnvidia.com/gpu=1\\nhttps://x.org/?a=b\\nparking = none"
    )
    (event,) = read(at("20260601T090000Z", "20260601T170000Z", more=prose)).events
    wanted = {"vcore": 4000, "memory": 16 * 2**30, "nvidia.com/gpu": 1}
    assert (event.pods, event.request) == (75, wanted)
    assert event.name == "stars-dev-5feceb66ff" and event.source == "w.ics"


def test_equal_entries_are_different_pods() -> None:
    lab = at("20260601T090000Z", "20260601T170000Z", more="SUMMARY:Lab (dev)")
    assert len({one.name for one in read(lab, lab).events}) == 2


DAY = ("20260601T090000Z", "20260601T170000Z")
GOOD = at("20260701T090000Z", "20260701T170000Z", more="UID:good")

UNREAD: dict[str, tuple[str, str]] = {
    "without a number": (at(*DAY, more="DESCRIPTION:all of us"), "pods or nodes: write one"),
    "no number": (at(*DAY, more="DESCRIPTION:pods = many"), "pods = many: is not a whole number"),
    "two namespaces": (at(*DAY, more="SUMMARY:dev and test"), "names dev and test; name one"),
    "without an end": ("DTSTART:20260601T090000Z", "has no end"),
    "ends before it begins": (at(*reversed(DAY)), "can't be played"),
    "an unknown zone": (at("20260601T090000", "20260601T100000", "Mars/Phobos"), "is no time zone"),
    "too long": (at("20260601T090000Z", "20280601T090000Z"), "more than 366 days"),
    "a bomb": (at(*DAY, more="RRULE:FREQ=SECONDLY"), "can't be played"),
    "a bomb of many parts": (
        at(*DAY, more="RRULE:FREQ=DAILY;BYHOUR=" + ",".join(map(str, range(24)))
           + ";BYMINUTE=" + ",".join(map(str, range(60)))),
        "can't be played",
    ),
    "a rule that never comes": (
        at(*DAY, more="RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"), "can't be played"),
    "a rule without FREQ": (at(*DAY, more="RRULE:COUNT=3"), "RRULE has no FREQ"),
    "no rule": (at(*DAY, more="RRULE:FREQ=NEVER"), "can't be played"),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "why"), UNREAD.values(), ids=UNREAD)
def test_one_that_can_not_be_read_is_told_and_the_others_are_read(
    entry: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnm.run.ics.SECONDS_OF_ONE", 0.3)
    found = read(entry, GOOD)
    assert [f"{one.begins:%m-%d}" for one in found.events] == ["07-01"]
    ((told,),) = found.unread.values()
    assert why in told and told.startswith(
        "[STARS (dev)]" if "SUMMARY" not in entry else "[dev and test]"
    )


NO_CALENDAR = {
    "nothing": b"",
    "half of one": calendar(GOOD)[:-20],
    "a page": b"<html>sign in</html>",
    "a page that ends as one": b"<html>\nEND:VCALENDAR",
    "no entry ends": b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR",
    "no text": b"\xff\xfe\x00END:VCALENDAR",
    "too large": b" " * 2**21 + b"END:VCALENDAR",
}


@pytest.mark.parametrize("content", NO_CALENDAR.values(), ids=NO_CALENDAR)
def test_what_is_no_calendar_is_refused(content: bytes) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    question = Question(source="w.ics", namespaces=("dev",), zone="UTC", begins=moment, ends=moment)
    with pytest.raises(
        ValueError, match=r"is no iCalendar file|does not end as|is larger than|is UTF-16"
    ):
        read_calendar(content, question, Alarm())


def test_time_that_passes_without_work_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host where nobody gets to work; who asked would end it all, with what was read."""
    monkeypatch.setattr("dnm.run.ics.MOST_SECONDS", 3.2)  # 0.2 s are left for what is played
    with pytest.raises(TooLong), Alarm().within(60.0):
        time.sleep(30)


def test_a_ring_that_is_not_heard_is_followed_by_another() -> None:
    """What is raised in a finalizer, or while garbage is collected, is passed over."""
    with pytest.raises(TooLong), Alarm().within(0.05):
        with suppress(TooLong):
            work_for(30)
        work_for(30)


def work_for(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


BOMB = at(*DAY, more="RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30")


@pytest.mark.parametrize("place", [0, 7], ids=["the first", "the last"])
def test_series_that_take_for_ever_take_nothing_from_another(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnm.run.ics.SECONDS_OF_ALL", 1.0)
    entries = [f"{BOMB}\nSUMMARY:Bomb {number} (dev)" for number in range(7)]
    found = read(*entries[:place], GOOD, *entries[place:])
    assert [f"{one.begins:%m-%d}" for one in found.events] == ["07-01"]
    told = [text for texts in found.unread.values() for text in texts]
    assert len(told) == 7
    for number, text in enumerate(told):
        assert text.startswith(f"[Bomb {number} (dev)]: can't be played: its rule takes more than")


def test_a_series_of_many_windows_leaves_room_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dnm.run.ics.MOST_KEPT", 10)
    many = at("20260101T000000Z", "20260101T000100Z", more="UID:x\nRRULE:FREQ=MINUTELY;COUNT=900")
    weekly = at("20260102T090000Z", "20260102T100000Z", more="UID:y\nRRULE:FREQ=WEEKLY;COUNT=3")
    found = read(many, weekly, GOOD)
    assert [f"{one.begins:%m-%d %H:%M}" for one in found.events] == [
        *(f"01-01 00:0{minute}" for minute in range(6)),
        *("01-02 09:00", "01-09 09:00", "01-16 09:00", "07-01 09:00"),
    ]
    (told,) = found.unread[""]
    assert told.startswith("[stars-dev-2d711642b7]: has more windows than there is room for")


def test_what_is_told_of_many_is_as_much_as_anybody_reads() -> None:
    found = read(*(at(*DAY, more="DESCRIPTION:pods = x") for _ in range(60)), GOOD)
    assert len(found.events) == 1 and len(found.unread) == 61
    told = [text for texts in found.unread.values() for text in texts]
    assert len(told) == 51 and told[-1] == "10 more can't be read"


def test_no_more_is_kept_than_the_record_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    daily = at("20260101T090000Z", "20260101T100000Z", more="RRULE:FREQ=DAILY;COUNT=90")
    whole = read(daily)
    monkeypatch.setattr("dnm.run.ics.MOST_WORDS", len(msgspec.json.encode(whole.events)) // 2)
    found = read(daily)
    assert 40 < len(found.events) < 50 and found.events == whole.events[: len(found.events)]


def test_the_first_windows_are_kept_and_what_is_left_out_soon_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dnm.run.ics.MOST_KEPT", 5)
    daily = at("20260101T090000Z", "20260101T100000Z", more="RRULE:FREQ=DAILY;COUNT=90")
    found = read(daily)
    assert [one.begins.day for one in found.events] == [1, 2, 3, 4, 5]
    assert found.unread[""] == (
        "[stars-dev-5feceb66ff]: has more windows than there is room for beside the others, "
        "5 of all and 384 KiB; the first are looked at",
    )
    assert not read(daily.replace("DAILY", "WEEKLY")).unread


# --- the time of the series, by a timer that stands still but where one works ---------------------


class Work(Alarm):
    """Counts what is worked; what needs more than it is given is ended there."""

    def __init__(self) -> None:
        self.done = self.until = 0.0

    def spent(self) -> float:
        return self.done

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self.until = self.done + seconds
        yield

    def series(self, seconds: float) -> Callable[[], float]:
        def play() -> float:
            self.done = min(self.done + seconds, self.until)
            if self.done >= self.until:
                raise TooLong
            return seconds

        return play


FOR_EVER, LITTLE = 1e9, 0.01
# what the series need -> those that are played
SHARES: dict[str, tuple[list[float], set[float]]] = {
    "one": ([LITTLE], {LITTLE}),
    "one that is slow": ([2.9], {2.9}),
    "one that is too slow": ([3.1], set()),
    "none": ([], set()),
    "seven for ever, one good behind them": ([FOR_EVER] * 7 + [LITTLE], {LITTLE}),
    "seven for ever, one good before them": ([LITTLE] + [FOR_EVER] * 7, {LITTLE}),
    "a thousand for ever, one good behind them": ([FOR_EVER] * 1000 + [0.005], {0.005}),
    "one that is slow before a thousand good ones": ([2.5] + [0.001] * 1000, {2.5, 0.001}),
    "two that are slow beside one for ever": ([2.0, FOR_EVER, 2.0], {2.0}),
}


@pytest.mark.parametrize(("needs", "played"), SHARES.values(), ids=SHARES)
def test_each_has_its_share_of_the_time(needs: list[float], played: set[float]) -> None:
    work = Work()
    found = play_in_turns([work.series(seconds) for seconds in needs], work)
    assert found == {n: seconds for n, seconds in enumerate(needs) if seconds in played}
    assert work.spent() <= SECONDS_OF_ALL + 1e-6


def test_what_others_need_bounds_all_of_it() -> None:
    """Nobody works longer than all may, or than one may."""
    work = Work()
    assert play_in_turns([work.series(FOR_EVER)], work) == {}
    assert work.spent() <= 2 * SECONDS_OF_ONE
    work.done = SECONDS_OF_ALL
    assert play_in_turns([work.series(LITTLE)], work) == {}


def test_a_calendar_that_takes_too_much_memory_is_told() -> None:
    script = (
        "import dnm.run.ics as ics\nread = ics.read_calendar\n"
        "ics.read_calendar = lambda *given: (b'x' * ics.MEMORY, read(*given))\n"
        "raise SystemExit(ics.main())"
    )
    question = Question(
        source="w.ics", namespaces=(), zone="UTC", begins=datetime.now(UTC), ends=datetime.now(UTC)
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=msgspec.json.encode(question) + b"\n",
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"it takes too much memory\n")


def test_a_zone_that_takes_for_ever_takes_nothing_from_those_that_do_without_it() -> None:
    """dateutil keeps what it has played of a zone behind a lock, and a rung alarm leaves it."""
    parts = [
        f"BEGIN:STANDARD DTSTART:{1900 + n}0101T000000 TZOFFSETFROM:+0100 TZOFFSETTO:+0{n % 9}00 "
        "RRULE:FREQ=DAILY END:STANDARD"
        for n in range(60)
    ]
    zone = f"BEGIN:VTIMEZONE TZID:X {' '.join(parts)} END:VTIMEZONE"
    slow = [at("20260302T080000", "20260302T180000", "X")] * 5
    begun = time.process_time()
    found = read(*slow, at("20260303T080000Z", "20260303T180000Z"), head=zone)
    assert [one.begins.day for one in found.events] == [3]
    told = [one for (one,) in found.unread.values()]
    assert len(told) == 5 and all("too long" in one or "takes more than" in one for one in told)
    assert time.process_time() - begun < SECONDS_OF_ALL


WHEN_CLOCKS_CHANGE = {
    "over the hour that is left out": (
        at("20260308T003000", "20260308T023000", INDIANA), ["03-08 05:30 03-08 07:30"]),
    "into it": (at("20260308T014500", "20260308T023000", INDIANA), ["03-08 06:45 03-08 07:30"]),
    "within it": (at("20260308T021500", "20260308T024500", INDIANA), ["03-08 07:15 03-08 07:45"]),
    "a series that ends in it": (
        at("20260228T213000", "20260301T023000", INDIANA, "RRULE:FREQ=WEEKLY;COUNT=3"),
        ["03-01 02:30 03-01 07:30", "03-08 02:30 03-08 07:30", "03-15 01:30 03-15 06:30"]),
    "a series within it": (
        at("20260301T023000", "20260301T033000", INDIANA, "RRULE:FREQ=WEEKLY;COUNT=3"),
        ["03-01 07:30 03-01 08:30", "03-08 07:30 03-08 08:30", "03-15 06:30 03-15 07:30"]),
    "four hours in spring": (
        f"DTSTART;TZID={INDIANA}:20260308T003000\nDURATION:PT4H", ["03-08 05:30 03-08 09:30"]),
    "four hours in autumn": (
        f"DTSTART;TZID={INDIANA}:20261101T003000\nDURATION:PT4H", ["11-01 04:30 11-01 08:30"]),
    "a day is one by the wall": (
        f"DTSTART;TZID={INDIANA}:20260307T120000\nDURATION:P1D", ["03-07 17:00 03-08 16:00"]),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "windows"), WHEN_CLOCKS_CHANGE.values(), ids=WHEN_CLOCKS_CHANGE)
def test_an_event_when_clocks_change_is_as_long_as_it_says(entry: str, windows: list[str]) -> None:
    """RFC 5545 3.8.2.5: hours are exact, days and weeks are nominal."""
    assert shown(read(entry)) == windows
