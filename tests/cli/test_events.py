"""`dnm event`: add, list, remove and show; each refusal is a sentence."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.cli.manual import events
from dnm.cli.manual.events import event_rows
from dnm.cli.terminal.operation import RefusedError
from dnm.config.events import moment_at, read_event
from dnm.model.calendar import CalendarEvent
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.plan.rules.event_windows import usable_events
from dnm.run.planning import wall_clock
from dnm.run.registry import load_registry
from tests.builders import NOW, a_config

TOMORROW = f"{wall_clock() + timedelta(days=2):%Y-%m-%d} 09:00"
ENTRIES = {"namespace": "dev", "from": TOMORROW, "until": "17:00", "nodes": "2"}
OPTIONS: dict[str, Any] = {"namespace": "dev", "begins": TOMORROW, "until": "17:00", "nodes": "2"}


def in_configuration(config: Config) -> Config:
    problems: list[str] = []
    event = read_event("course", "event:course", ENTRIES, "UTC", problems)
    assert event is not None
    return msgspec.structs.replace(config, calendar_events=(event,))


def test_added_event_takes_effect_and_both_changes_are_logged(tmp_path: Path) -> None:
    config = a_config(tmp_path)
    message = events.add(config, "stars", **OPTIONS, reason="they asked")
    assert (
        message == f"event stars is added: 2 nodes for dev, {TOMORROW} to {TOMORROW[:10]} 17:00 UTC"
    )
    registry = load_registry(config, NOW)
    (event,) = usable_events(config, registry)
    assert (event.name, event.nodes) == ("stars", 2)
    assert events.remove(config, "stars", reason="they stay at home") == "event stars is removed"
    assert not load_registry(config, NOW).events
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    rows = [(line["event"], line["object"], line["reason"]) for line in lines]
    assert rows == [
        ("event add", "stars", "they asked"), ("event remove", "stars", "they stay at home"),
    ]  # fmt: skip
    assert all(line["requester"] and line["host"] for line in lines)
    assert lines[0]["numbers"]["needs"] == "2 nodes"


@pytest.mark.parametrize(
    ("needs", "refusal"),
    [
        pytest.param({"nodes": "8"}, None, id="just-enough"),
        pytest.param({"nodes": "50"}, "it needs 50 nodes, and max_converted_nodes is 8",
                     id="nodes"),
        pytest.param({"nodes": "", "pods": "512", "cpu": "2"}, None, id="pods-that-fit"),
        pytest.param({"nodes": "", "pods": "513", "cpu": "2"},
                     "its pods fill at least 9 nodes, and max_converted_nodes is 8", id="pods"),
    ],
)  # fmt: skip
def test_adding_an_event_above_a_cap_warns(
    tmp_path: Path, needs: dict[str, str], refusal: str | None
) -> None:
    config = a_config(tmp_path, max_converted_nodes=8)
    answer = events.add(config, "stars", **{**OPTIONS, **needs})
    assert (f"; but {refusal}: raise the cap" in answer) if refusal else "; but" not in answer


def test_invalid_event_is_refused_with_a_reason(tmp_path: Path) -> None:
    config = in_configuration(a_config(tmp_path))
    events.add(config, "old", **OPTIONS)
    before = load_registry(config, NOW)
    for name, changes, expected in (
        ("X", {"nodes": "two"}, "cannot add the event:\n.*\n  .*nodes = two: is not a whole"),
        ("old", {}, "`dnm event remove old` removes it"),
    ):
        with pytest.raises(RefusedError, match=expected) as error:
            events.add(config, name, **{**OPTIONS, **changes})
        assert error.value.exit_code == 2
    with pytest.raises(RefusedError, match="remove it there"):
        events.remove(config, "course")
    assert load_registry(config, NOW) == before


# --- what there is -----------------------------------------------------------------------------


def an_event(name: str, begins: datetime, **changes: Any) -> CalendarEvent:
    wall = begins.replace(tzinfo=None)
    values: dict[str, Any] = {"nodes": 2, **changes}
    return CalendarEvent(
        name=name, namespace="dev", begins=wall, ends=wall + timedelta(hours=1), **values
    )


AT = {
    "ahead": timedelta(minutes=62),  # a lead of half an hour, a return of the same time, and a run
    "keeps": timedelta(minutes=61),
    "lends": timedelta(minutes=31),
    "in force": timedelta(0),
    "over": -timedelta(hours=1),
}


@pytest.mark.parametrize(("state", "ahead"), AT.items(), ids=AT)
def test_event_state_follows_its_windows(state: str, ahead: timedelta) -> None:
    config = a_config(calendar_events=(an_event("w", NOW + ahead),))
    (row,) = event_rows(config, Registry(), NOW)
    assert row["state"] == state and bool(row["windows"]) == (state != "over")


def test_event_years_ahead_is_not_over(tmp_path: Path) -> None:
    config, begins = a_config(tmp_path), f"{wall_clock() + timedelta(days=1500):%Y-%m-%d} 09:00"
    assert "event later is added" in events.add(config, "later", **{**OPTIONS, "begins": begins})
    (row,) = event_rows(config, load_registry(config, NOW), wall_clock())
    assert row["state"] == "ahead" and f"{row['windows'][0]['begins']:%Y-%m-%d %H:%M}" == begins


def test_unusable_event_shows_its_reason_and_list_is_ordered() -> None:
    soon = an_event("soon", NOW + timedelta(days=1))
    config = a_config(calendar_events=(soon, an_event("over", NOW - timedelta(days=1))))
    wrong = msgspec.structs.replace(an_event("wrong", NOW), namespace="gone")
    nowhere = msgspec.structs.replace(an_event("nowhere", NOW), zone="Mars/Phobos")
    rows = event_rows(config, Registry(events={"wrong": wrong, "nowhere": nowhere}), NOW)
    assert [(row["name"], row["state"]) for row in rows] == [
        ("wrong", "of no use"), ("soon", "ahead"), ("nowhere", "of no use"), ("over", "over"),
    ]  # fmt: skip
    assert "not a monitored namespace" in rows[0]["problem"]
    assert rows[2]["problem"].startswith("zone = Mars/Phobos: is not a time zone")
    ini = "/nonexistent/dnm.ini"
    assert [row["source"] for row in rows] == ["record", ini, "record", ini]


def test_event_window_is_shown_in_its_zone_and_in_utc() -> None:
    night = an_event("night", datetime(2026, 10, 24, 23), zone="Europe/Berlin")
    night = msgspec.structs.replace(night, ends=datetime(2026, 10, 25, 4))
    config = a_config(calendar_events=(night,))
    (row,) = event_rows(config, Registry(), NOW)
    (window,) = row["windows"]
    assert window["local"] == "Sat 2026-10-24 23:00 CEST to Sun 04:00"
    assert (window["begins"].hour, window["ends"].hour) == (21, 3)
    assert window["begins"] - window["lends_from"] == timedelta(minutes=31)


def test_event_list_shows_all_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = in_configuration(a_config(tmp_path))
    events.list_(config)
    events.list_(config, output="json")
    text = capsys.readouterr().out
    assert "2 nodes" in text and '"schema": "dnm.events/1"' in text


@pytest.mark.parametrize(("zone", "has_note"), [("UTC", False), ("Europe/Berlin", True)])
def test_utc_column_is_left_out_if_the_zone_is_utc(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], zone: str, has_note: bool
) -> None:
    config = a_config(tmp_path, events_zone=zone)
    events.add(config, "stars", **OPTIONS)
    events.list_(config)
    listed = capsys.readouterr().out
    assert ("IN UTC" in listed) is has_note
    assert f"{TOMORROW} {'CE' if has_note else 'UTC'}" in listed


MOMENTS = {
    "2026-12-01 08:45": "2026-12-01 07:45",
    "2026-12-01T08:45": "2026-12-01 07:45",
    "2026-12-01T08:45:00-05:00": "2026-12-01 13:45",
    "2026-12-01T08:45Z": "2026-12-01 08:45",
}


@pytest.mark.parametrize(("text", "expected"), MOMENTS.items())
def test_event_time_is_read_in_its_zone_or_offset(text: str, expected: str) -> None:
    assert f"{moment_at(text, 'Europe/Berlin'):%Y-%m-%d %H:%M}" == expected


def test_malformed_event_time_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a date and time; write"):
        moment_at("tomorrow", "UTC")
    with pytest.raises(ValueError, match="a year from 1970 to 2999"):
        moment_at("9999-12-31T23:00-12:00", "UTC")
