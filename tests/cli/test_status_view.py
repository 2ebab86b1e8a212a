"""Tests of the text of `dnm status` for a registry: at most eighty columns wide, and correct."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.cli.look.status import status_document
from dnm.cli.look.status_view import describe_run, manual_lines, print_status
from dnm.host.place import host_name
from dnm.model.config import Config
from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.observed import Breaker
from dnm.model.orders import LendOrder, Pause
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.run.health import judge_health
from dnm.run.lock_holder import LockHolder
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_policy, a_request

IDLE: dict[str, Any] = {"idle_since": NOW - timedelta(minutes=11)}
STATUS: dict[str, Any] = {
    "limit": {"memory": 832 * 10**9, "cpu": 336_000},
    "baseline": {"memory": 320 * 10**9, "cpu": 80_000},
    "lent": {"memory": 572_610_068_480, "cpu": 256_000},
    "used": {},
    "pending": {},
    "pending_pods": 1,
    "verdict": "keep",
    "reason": Reason.ENOUGH.text,
}


def shown(capsys: pytest.CaptureFixture[str], registry: Registry, **view: Any) -> str:
    config = a_config(max_converted_nodes=1)
    print_status(status_document(config, registry, NOW), NOW, **view)
    return capsys.readouterr().out


def with_queue(**changes: Any) -> Registry:
    return Registry(last_run=RunRecord(queues={QUEUE: QueueStatus(**{**STATUS, **changes})}))


def test_wide_status_has_queue_and_reason_on_a_single_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = RunRecord(nodes={"a001": Reason.IN_USE.text})
    registry = Registry(nodes={"a001": a_lent_node()}, last_run=record)
    wide = shown(capsys, registry, is_wide=True)
    (line,) = [line for line in wide.splitlines() if line.startswith("  a001")]
    assert QUEUE in line and line.endswith(Reason.IN_USE.text)


QUEUES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "known": ({}, "cpu 336 80 256 0 0", "memory 832G 320G ~572.6G 0 0", "(1 pod)"),
    "the lent nodes were unknown": (
        {"is_judged": False}, "cpu 336 ? ? 0 0", "memory 832G ? ? 0 0", "(1 pod)",
    ),
    "its pods could not be read": (
        {"is_demand_read": False}, "cpu 336 80 256 ? ?", "memory 832G 320G ~572.6G ? ?",
        "(? pods)",
    ),
    "without a limit": (
        {"limit": {}, "baseline": {}, "used": {"cpu": 500, "memory": 10**9}, "lent": {}},
        "cpu 0.5 0", "memory 1G 0", "(1 pod)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUEUES)
def test_status_distinguishes_unknown_none_and_zero(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    changes, cores, memory, pods = QUEUES[name]
    text = shown(capsys, with_queue(**changes))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert cores in lines and memory in lines and f"pending {pods}" in text
    assert "none" not in text.partition("Restrictions")[0]


def test_status_shows_a_queue_with_unknown_limits(capsys: pytest.CaptureFixture[str]) -> None:
    amounts = ("limit", "baseline", "lent", "used", "pending")
    nothing: dict[str, Any] = {name: {} for name in amounts}
    text = shown(capsys, with_queue(**nothing, is_judged=False, is_demand_read=False))
    assert "its limits are unknown; ? pods pending" in text


@pytest.mark.parametrize(
    ("zone", "text"),
    [("UTC", "a001 (until 02 Mar 13:30)  "), ("Europe/Berlin", "a001 (until 02 Mar 14:30 CET)  ")],
)
def test_end_of_a_stay_is_shown_in_the_time_zone_of_the_site(
    capsys: pytest.CaptureFixture[str], zone: str, text: str
) -> None:
    stays = a_lent_node(stays_until=NOW + timedelta(minutes=90))
    assert text in shown(capsys, Registry(nodes={"a001": stays}), zone=zone)


KEPT = [Reason.KEPT_READY, Reason.HELD_BY_ADMIN, Reason.NEEDED]


@pytest.mark.parametrize("reason", [*KEPT, Reason.IDLE])
def test_kept_node_shows_no_return_time(reason: ReasonText) -> None:
    record = RunRecord(codes={"a001": reason.name})
    registry = Registry(nodes={"a001": a_lent_node(**IDLE)}, last_run=record)
    config = a_config(namespaces={"dev": a_policy(reversion_idle=timedelta(0))})
    (row,) = status_document(config, registry, NOW)["nodes"]
    assert row["return_in_seconds"] == (None if reason in KEPT else 0)


def test_node_kept_by_min_nodes_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    record = RunRecord(codes={"a001": Reason.KEPT_READY.name})
    text = shown(capsys, Registry(nodes={"a001": a_lent_node(**IDLE)}, last_run=record))
    assert "a001 (min_nodes)" in text


@pytest.mark.parametrize(
    "reason",
    [
        f"{Reason.HELD_BY_ADMIN.text}: kubectl uncordon a001",
    ],
)
def test_cordon_of_an_administrator_is_shown(
    capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    nodes = {"a001": a_lent_node(), "a002": a_lent_node()}
    record = RunRecord(
        nodes={"a001": reason, "a002": Reason.IN_USE.text},
        codes={"a001": Reason.HELD_BY_ADMIN.name, "a002": Reason.IN_USE.name},
    )
    text = " ".join(shown(capsys, Registry(nodes=nodes, last_run=record)).split())
    assert f"a001: {reason}" in text and Reason.IN_USE.text not in text.replace(reason, "")


def test_abandoned_request_is_not_shown_as_joining(capsys: pytest.CaptureFixture[str]) -> None:
    requests = (a_request(id="r1", is_abandoned=True, error="exit 3"), a_request(id="r2", count=2))
    text = shown(capsys, Registry(requests=requests))
    assert "1 missing  given up" in text and "2 coming   requested" in text
    assert "request r1: exit 3" in text


def test_more_lent_nodes_than_the_cap_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    registry = Registry(nodes={"a001": a_lent_node(), "a002": a_lent_node()})
    assert "warning: all: 2 nodes lent or joining, and the cap is 1" in shown(capsys, registry)
    name = shown(capsys, Registry(nodes={"a001": a_lent_node()}))
    assert "all: 1 of 1 node lent" in name and "the cap is" not in name


def test_converter_host_is_shown_if_it_is_another_host(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """dnm names that host for running calls, since it cannot observe processes there."""

    def on(host: str) -> ConverterProcess:
        return ConverterProcess(pid=0, start_ticks=0, boot="its own", host=host)

    registry = Registry(
        nodes={
            "a001": a_lent_node(Phase.RETURNING, converter=on("east")),
            "a002": a_lent_node(Phase.RETURNING, converter=on(host_name())),
            "a003": a_lent_node(Phase.JOINING, converter=on("north")),
        },
        requests=(a_request(id="r1", converter=on("west")),
                  a_request(id="r2", converter=on("south"), ended=True)),
    )  # fmt: skip
    text = shown(capsys, registry)
    assert "  a001: its converter was started on east; its output is there" in text
    assert "  request r1: its converter was started on west; its output is there" in text
    assert text.count("its converter was started on") == 2
    document = status_document(a_config(), registry, NOW)
    assert [node["converter_host"] for node in document["nodes"]] == ["east", "", ""]
    assert [request["converter_host"] for request in document["requests"]] == ["west", ""]


def test_expired_pause_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pause = Pause(since=NOW - timedelta(hours=2), until=NOW - timedelta(hours=1))
    assert "paused" not in shown(capsys, Registry(pause=pause))


def ended_at(moment: datetime, directory: Path) -> Config:
    """Returns the configuration of a site with a last run that started and ended at this moment."""
    config = a_config(directory)
    for path in (config.began_path, config.ended_path):
        path.touch()
        os.utime(path, (moment.timestamp(), moment.timestamp()))
    return config


FAILED = {"a001": a_lent_node(Phase.FAILED, error="no boot")}
# Last run, registry, minutes since -> word, reason, exit code
HEALTH: dict[str, tuple[dict[str, Any], dict[str, Any], int, tuple[str, str, int]]] = {
    "ok": ({}, {}, 0, ("ok", "", 0)),
    "failed": ({"exit_code": 1, "errors": ("the API is away",)}, {}, 0,
               ("failed", "the API is away", 1)),
    "asks": ({"exit_code": 2, "errors": ("which?",)}, {}, 0, ("person", "which?", 2)),
    "stale": ({}, {}, 60, ("stale", "the last run began 60 min ago, more than three times", 2)),
    "stale and failed": ({"exit_code": 1}, {}, 60, ("stale", "the last run", 2)),
    "a lost registry": ({}, {"pause": Pause(since=NOW, is_after_loss=True, reason="it is gone")}, 0,
                        ("person", "it is gone", 2)),
    "a failed node": ({}, {"nodes": FAILED}, 0, ("person", "a001 has failed: no boot", 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTH)
def test_health_reports_the_most_severe_problem(tmp_path: Path, name: str) -> None:
    run, registry, minutes, (word, why, exit_code) = HEALTH[name]
    config, now = ended_at(NOW, tmp_path), NOW + timedelta(minutes=minutes)
    recorded = Registry(last_run=RunRecord(**run), **registry)
    judged = judge_health(config, recorded, now)
    assert (judged[0], judged[2]) == (word, exit_code) and judged[1].startswith(why)
    warned = status_document(config, recorded, now)["warnings"]
    assert warned == ([judged[1]] if word == "stale" else [])


def an_order(**changes: Any) -> LendOrder:
    settings = {"since": NOW - timedelta(hours=4), "until": NOW + timedelta(hours=4), **changes}
    return LendOrder(id="lend-1", node_type="a", namespace="dev", count=2, **settings)


SERVES = {"a001": a_lent_node(order="lend-1")}
COMES = (a_request(order="lend-1", count=1),)
# Order, nodes and requests -> their lines.
ORDERS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "none came": ({}, {}, "2 of type a", "0 nodes lent, 2 missing"),
    "one is coming": ({}, {"requests": COMES}, "2 of type a", "0 nodes lent, 1 coming, 1 missing"),
    "one serves, one is coming": (
        {}, {"requests": COMES, "nodes": SERVES}, "2 of type a", "1 node lent, 1 coming, 0 missing"
    ),
    "named": (
        {"nodes": ("a001", "a002")}, {"nodes": SERVES}, "a[001-002]", "1 node lent, 1 missing"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_status_shows_the_progress_of_an_order(name: str) -> None:
    order, registry, text, output = ORDERS[name]
    recorded = Registry(orders=(an_order(requester="kim", **order),), **registry)
    (line,) = manual_lines(status_document(a_config(), recorded, NOW), NOW)
    assert line == f"lend-1: {text} for dev until 2026-03-02 16:00 UTC, by kim: {output}"


@pytest.mark.parametrize("held", [(), ("a001",)])
def test_node_held_after_its_return_is_not_shown_as_returning(held: tuple[str]) -> None:
    recorded = Registry(nodes={"a001": a_lent_node(leaves=Leaving.MANUAL)}, held=held)
    lines = list(manual_lines(status_document(a_config(), recorded, NOW), NOW))
    assert bool(lines) is not bool(held)


QUIET = [
    pytest.param({}, {}, "", id="nothing"),
    pytest.param(
        {"limit": {"cpu": 40_000}}, {},
        f"{QUEUE}: its cpu limit 40 is below the 256 that are lent to it, because another client "
        "set it: raise it, or `dnm return` nodes that it can't use", id="lowered",
    ),
    pytest.param({"limit": {"cpu": 40_000}, "is_judged": False}, {}, "", id="not-judged"),
    pytest.param({"limit": {}}, {}, "", id="no-limit"),
    pytest.param(
        {"waits_since": f"{NOW - timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"}, {},
        f"{QUEUE}: a pod has been pending for 3 h 0 min: `dnm explain {QUEUE}` shows why",
        id="waits",
    ),
    pytest.param(
        {"waits_since": f"{NOW - timedelta(minutes=59):%Y-%m-%dT%H:%M:%SZ}"}, {}, "", id="young",
    ),
    pytest.param(
        {}, {"orders": (an_order(waiting_reason="no node is idle"),)},
        "order lend-1 is short of 2 nodes: no node is idle", id="order",
    ),
    pytest.param({}, {"orders": (an_order(since=NOW),)}, "", id="order-just-given"),
    pytest.param({}, {"orders": (an_order(until=NOW),)}, "", id="order-over"),
    pytest.param(
        {"floor": 3}, {"nodes": {"a001": a_lent_node()}},
        f"{QUEUE}: 2 nodes of the 3 that min_nodes or an event requires are missing: "
        f"`dnm explain {QUEUE}` shows why", id="floor",
    ),
    pytest.param(
        {"floor": 3}, {"nodes": {"a001": a_lent_node()}, "requests": (a_request(count=2),)}, "",
        id="floor-is-coming",
    ),
    pytest.param(
        {}, {"nodes": {name: a_lent_node(owner="before") for name in ("a001", "a002")}},
        "a[001-002] were lent by the instance before, and this one, prod, leaves them alone: if "
        "instance_id was changed, change it back until they are back in Slurm", id="renamed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("status", "registry", "text"), QUIET)
def test_silent_failures_appear_in_health_and_status(
    tmp_path: Path, status: dict[str, Any], registry: dict[str, Any], text: str
) -> None:
    """A silent failure is one that stops no run. `status --health` and `status` report the same."""
    config = ended_at(NOW, tmp_path)
    recorded = Registry(last_run=with_queue(**status).last_run, **registry)
    expected = ("warning", text, 1) if text else ("ok", "", 0)
    assert judge_health(config, recorded, NOW) == expected
    assert status_document(config, recorded, NOW)["warnings"] == ([text] if text else [])


# Seconds from the start to the file's time, seconds of the held lock -> text and warning. The
# registry is that of the previous run.
ENDS: dict[str, tuple[int, int | None, str, str]] = {
    "it has ended": (3, None, "began 2 min ago, took 3.0 s, exit code 0", ""),
    "a verb is at work since then": (3, 60, "began 2 min ago, took 3.0 s, exit code 0", ""),
    "it is at work": (
        -60, 0, f"a run is at work since {NOW:%Y-%m-%d %H:%M:%S} UTC (process 7)", ""
    ),
    "it was killed": (
        -60, None, "began 2 min ago, and has not ended",
        "no process here executes it: a signal, a kill or an error ended it (see the log)",
    ),
    "it was killed, and a verb is at work": (
        -60, 60, "began 2 min ago, and has not ended", "no process here executes it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_status_shows_how_the_last_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ended, held, output, warning = ENDS[name]
    holder = LockHolder(pid=7, since=NOW + timedelta(seconds=held)) if held is not None else None
    monkeypatch.setattr("dnm.run.health.find_lock_holder", lambda path: holder)
    config = a_config(tmp_path)
    for path, later in ((config.ended_path, ended), (config.began_path, 0)):
        path.touch()
        os.utime(path, (NOW.timestamp() + later,) * 2)
    document = status_document(config, Registry(), NOW + timedelta(minutes=2))
    line = describe_run(document["last_run"], NOW + timedelta(minutes=2))
    assert line == output
    assert (document["last_run"]["exit_code"] is None) == (ended < 0)
    assert [warning in item for item in document["warnings"]] == ([True] if warning else [])


TO_DO = {
    "nothing": (Registry(), []),
    "failed nodes": (
        Registry(nodes={f"a00{n}": a_lent_node(Phase.FAILED, error="no boot") for n in (1, 2)}),
        ["a[001-002] failed: fix the error above, then `dnm reset a[001-002]` returns it to Slurm"],
    ),
    "breaker": (
        Registry(breakers={QUEUE: Breaker(unused=3, tripped_at=NOW)}),
        [f"pods of {QUEUE} did not use its nodes: `dnm explain {QUEUE}` shows the reason, "
         f"`dnm reset {QUEUE}` allows lending again"],
    ),
    "lost registry": (
        Registry(
            pause=Pause(
                since=NOW, is_after_loss=True, reason="the registry is lost: `dnm resume`"
            )
        ),
        ["the registry is lost: `dnm resume`"],
    ),
    "a person's pause": (Registry(pause=Pause(since=NOW, requester="erin", reason="firmware")), []),
    "a node that was moved manually": (
        Registry(manual=("a004",)),
        ["a004 is not recorded: `dnm adopt a004 --namespace NAMESPACE`"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TO_DO)
def test_status_ends_with_the_next_steps(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, steps = TO_DO[name]
    document = status_document(ended_at(NOW, tmp_path), registry, NOW)
    print_status(document, NOW)
    lines = capsys.readouterr().out.splitlines()
    end = lines[lines.index("To do now") + 1 :] if "To do now" in lines else []
    assert [line.strip() for line in end] == steps
