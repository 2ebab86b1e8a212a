"""Hold, exclude and their ends: what is recorded, what is said, what is refused, who it was."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import typer

from dnm.cli import admin, by_hand
from dnm.cli.deadline import parse_deadline
from dnm.cli.history import parse_moment
from dnm.cli.output import shown
from dnm.cli.status import status_document
from dnm.cli.status_view import brake_lines
from dnm.model.config import Config
from dnm.model.errors import DnmError
from dnm.model.orders import Way
from dnm.model.registry import Registry
from dnm.record.history_file import History, read_history
from dnm.run.registry import load_registry, save_registry
from tests.builders import NOW, a_config, a_lent_node

LATER = NOW + timedelta(days=3_000)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = a_config(tmp_path, exclude_nodes=frozenset({"a009"}))
    save_registry(config, Registry(nodes={"a001": a_lent_node()}))
    return config


def registry_of(config: Config) -> Registry:
    return load_registry(config, NOW)


def told(config: Config) -> list[tuple[str, str, str]]:
    history = History(config.converted_nodes_path, config.history_keep)
    lines = read_history(history, datetime(2020, 1, 1, tzinfo=UTC), [])
    return [(line.event, line.object, line.reason) for line in lines if line.who]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        pytest.param(lambda c: by_hand.hold(c, ["a001"]),
                     "a001 is held until `dnm unhold a001`", id="hold-lent"),
        pytest.param(lambda c: by_hand.hold(c, ["a002"]),
                     "a002 is held: it is not lent until `dnm unhold a002`", id="hold-another"),
        pytest.param(lambda c: by_hand.hold(c, ["a002"], LATER),
                     "a002 is held: it is not lent until 2034-05-19 12:00 UTC, or "
                     "`dnm unhold a002`", id="hold-for-a-time"),
        pytest.param(lambda c: by_hand.exclude(c, ["a001"]),
                     "a001 is not lent until `dnm unexclude a001`; it is lent now, and serves on "
                     "until it is idle", id="exclude-lent"),
        pytest.param(lambda c: by_hand.exclude(c, ["a002"], LATER),
                     "a002 is not lent until 2034-05-19 12:00 UTC, or `dnm unexclude a002`",
                     id="exclude-another"),
        pytest.param(lambda c: by_hand.unhold(c, ["a001"]), "a001 was not held", id="unhold"),
        pytest.param(lambda c: by_hand.unexclude(c, ["a009"]),
                     "a009 was not excluded; /x/dnm.ini still names it", id="of-the-configuration"),
    ],
)  # fmt: skip
def test_what_is_said(config: Config, said: object, answer: str) -> None:
    (line,) = said(config)  # type: ignore[operator]
    assert line.replace(str(config.path), "/x/dnm.ini") == answer


def test_host_lists_and_their_ends(config: Config) -> None:
    by_hand.hold(config, ["a[001-003]", "a002"], LATER, "a fan")
    by_hand.exclude(config, ["a[004-005]"], None, "the grant's")
    registry = registry_of(config)
    assert registry.held == ("a001", "a002", "a003") and [*registry.excluded] == ["a004", "a005"]
    one = registry.holds["a002"]
    assert (one.until, one.reason) == (LATER, "a fan") and " on " in one.who
    assert len(by_hand.hold(config, ["a001"])) == 1  # now without an end
    assert registry_of(config).holds["a001"].until is None
    by_hand.unhold(config, ["a[001-002]"])
    by_hand.unexclude(config, ["a[004-005]"])
    registry = registry_of(config)
    assert (registry.held, [*registry.holds], registry.excluded) == (("a003",), ["a003"], {})
    assert told(config)[:5] == [
        ("hold", "a001", "a fan"), ("hold", "a002", "a fan"), ("hold", "a003", "a fan"),
        ("exclude", "a004", "the grant's"), ("exclude", "a005", "the grant's"),
    ]  # fmt: skip


@pytest.mark.parametrize("verb", [by_hand.hold, by_hand.exclude])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["a001", "x17"], "'x17' is not lent, and no name of a node", id="no-type"),
        pytest.param(["a[001-"], "brackets don't match", id="no-list"),
        pytest.param(["a001", ""], "'' names no node; write a name", id="nothing"),
        pytest.param(["None"], "'None' names no node", id="a-word-for-nothing"),
    ],
)
def test_what_can_not_be_kept_is_refused_whole(
    config: Config, verb: object, words: list[str], why: str
) -> None:
    before = registry_of(config)
    with pytest.raises(DnmError, match=why.replace("[", r"\[")):
        verb(config, words)  # type: ignore[operator]
    assert registry_of(config) == before


@pytest.mark.parametrize("verb", [by_hand.unhold, by_hand.unexclude])
def test_an_end_of_nothing_is_refused(config: Config, verb: Callable[..., object]) -> None:
    with pytest.raises(DnmError, match="names no node"):
        verb(config, [""])


@pytest.mark.parametrize(
    ("half", "answer"),
    [
        pytest.param(None, "paused until `dnm resume`", id="both"),
        pytest.param(Way.LENDING, "lending is paused until `dnm resume`", id="lending"),
        pytest.param(Way.RETURNING, "returning is paused until `dnm resume`", id="returning"),
    ],
)
def test_a_pause_of_one_half(config: Config, half: Way | None, answer: str) -> None:
    assert admin.pause(config, None, "", half) == answer
    pause = registry_of(config).pause
    assert pause is not None and pause.half is half


@pytest.mark.parametrize(
    ("length", "until", "moment"),
    [
        pytest.param("", "", None, id="neither"),
        pytest.param("90m", "", NOW + timedelta(minutes=90), id="for"),
        pytest.param("30", "", NOW + timedelta(minutes=30), id="minutes"),
        pytest.param("", "13:00", NOW + timedelta(hours=1), id="later-today"),
        pytest.param("", "9:30", NOW + timedelta(hours=21, minutes=30), id="tomorrow"),
        pytest.param("", "12:00", NOW + timedelta(days=1), id="not-now"),
        pytest.param("", "15:00+02:00", NOW + timedelta(hours=1), id="with-an-offset"),
        pytest.param("", "2026-03-03", NOW + timedelta(hours=12), id="day"),
        pytest.param("", "2026-03-02T14:00", NOW + timedelta(hours=2), id="time"),
        pytest.param("", "2026-03-02T14:00+01:00", NOW + timedelta(hours=1), id="time-and-offset"),
    ],
)
def test_a_deadline(length: str, until: str, moment: datetime | None) -> None:
    assert parse_deadline(length, until, NOW) == moment


@pytest.mark.parametrize(
    ("until", "moment"),
    [
        pytest.param("14:00", NOW + timedelta(hours=1), id="later-today"),
        pytest.param("12:59", NOW + timedelta(hours=23, minutes=59), id="tomorrow"),
        pytest.param("0:30", NOW + timedelta(hours=11, minutes=30), id="past-midnight-there"),
        pytest.param("14:00+00:00", NOW + timedelta(hours=2), id="with-an-offset"),
        pytest.param("2026-03-03", NOW + timedelta(hours=11), id="day"),
        pytest.param("2026-06-01 09:00", datetime(2026, 6, 1, 7, tzinfo=UTC), id="in-summer"),
    ],
)
def test_a_time_without_an_offset_is_one_of_the_site_s_zone(until: str, moment: datetime) -> None:
    assert parse_deadline("", until, NOW, "Europe/Berlin") == moment


def test_all_verbs_speak_of_one_zone(config: Config) -> None:
    there = msgspec.structs.replace(config, events_zone="Europe/Berlin")
    noon = datetime(2034, 5, 19, 12, tzinfo=UTC)
    text = "2034-05-19 14:00 CEST (12:00 UTC)"
    assert text in by_hand.hold(there, ["a001"], noon)[0]
    assert text in by_hand.exclude(there, ["a002"], noon)[0]
    paused = admin.pause(there, noon, "")
    assert paused == "paused until 2034-05-19 14:00:00 CEST (12:00:00 UTC)"
    document = status_document(there, registry_of(config), noon - timedelta(days=1))
    said = "\n".join(brake_lines(document["brakes"], NOW, there.events_zone))
    assert f"excluded: a002 until {text}" in said and "14:00:00 CEST (12:00:00 UTC)" in said
    late = datetime(2034, 5, 19, 22, 30, tzinfo=UTC)
    assert shown(late, "Europe/Berlin") == "2034-05-20 00:30 CEST (2034-05-19 22:30 UTC)"
    assert parse_moment("2026-06-01", NOW, "--since", "Europe/Berlin").hour == 22
    with pytest.raises(DnmError, match="is no time"):
        parse_moment("0001-01-01", NOW, "--since", "Europe/Berlin")


def test_a_pause_over_a_pause_says_whose_it_replaces(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setenv("SUDO_USER", "kim")
    assert "in place" not in admin.pause(config, None, "the fans")
    before = registry_of(config)
    monkeypatch.setenv("SUDO_USER", "erin")
    there = r"dnm is paused by kim on .* until `dnm resume`: the fans"
    with pytest.raises(DnmError, match=f"{there}; this one would stop less: add --force to"):
        admin.pause(config, soon, "")
    assert registry_of(config) == before
    assert re.search(
        f"; in place of this one: {there}", admin.pause(config, soon, "", is_forced=True)
    )
    pause = registry_of(config).pause
    assert pause is not None and pause.until == soon


@pytest.mark.parametrize(
    ("length", "until", "why"),
    [
        pytest.param("2h", "13:00", "not both", id="both"),
        pytest.param("soon", "", "write 90m", id="no-span"),
        pytest.param("0m", "", "write 90m", id="nothing"),
        pytest.param("400d", "", "a year at most", id="too-long"),
        pytest.param("", "noon", "write 17:00", id="no-time"),
        pytest.param("", "25:00", "write 17:00", id="no-hour"),
        pytest.param("", "2026-03-02T12:00", "2026-03-02 12:00 UTC is over", id="over"),
        pytest.param("", "2028-01-01", "is more than a year ahead", id="far"),
        pytest.param("", "9999-12-31T23:59-01:00", "write 17:00", id="beyond-all-clocks"),
    ],
)
def test_no_deadline(length: str, until: str, why: str) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        parse_deadline(length, until, NOW)


@pytest.fixture
def set_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def sets(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield sets
    monkeypatch.undo()
    time.tzset()


def test_for_ever_is_refused_also_where_the_host_s_clock_ends_before(
    set_zone: Callable[[str], None],
) -> None:
    set_zone("Europe/Berlin")
    with pytest.raises(typer.BadParameter, match="is more than a year ahead"):
        parse_deadline("", "9999-12-31T23:59", NOW)


def test_a_moment_is_shown_as_the_host_s_clock_has_it_too(set_zone: Callable[[str], None]) -> None:
    for zone, text in (
        ("UTC", "2026-03-02 12:00 UTC"),
        ("Europe/Berlin", "2026-03-02 12:00 UTC (13:00 CET)"),
    ):
        set_zone(zone)
        assert shown(NOW) == text
