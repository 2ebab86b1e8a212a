"""Commands of administrators: what they print, also after a mistake, and the history line with
operator and reason. tests/verbs tests their effect on the registry."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import typer
from filelock import FileLock
from msgspec.structs import replace

from dnm.cli.act import admin
from dnm.cli.app import main
from dnm.cli.look.history import parse_moment
from dnm.cli.look.status import status_document
from dnm.cli.look.status_view import restriction_lines
from dnm.cli.manual.adopt import adopt
from dnm.cli.manual.holds import exclude, hold
from dnm.cli.terminal import operation
from dnm.cli.terminal.deadline import parse_deadline
from dnm.cli.terminal.operation import RefusedError
from dnm.cli.terminal.output import shown
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config, NamespacePolicy
from dnm.model.departure import Leaving
from dnm.model.errors import DnmError
from dnm.model.lent import Phase
from dnm.model.node_type import NodeType
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import Keeping, LendOrder
from dnm.model.registry import Registry
from dnm.record.history_file import History, read_history
from dnm.run.registry import encode_registry, load_registry, save_registry
from tests.builders import NOW, QUEUE, SIZE, a_config, a_lent_node
from tests.site import Site, set_up_workshop

LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=9)
Play = Callable[[str], tuple[object, str]]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    dev = NamespacePolicy(name="dev", queue=QUEUE, node_types=("a",), max_nodes=3)
    types = {name: NodeType(name=name, size=SIZE) for name in ("a", "b")}
    config = a_config(
        tmp_path, namespaces={"dev": dev}, node_types=types, exclude_nodes=frozenset({"a009"})
    )
    nodes = {
        "a001": a_lent_node(order="lend-1", stays_until=LATER),
        "a002": a_lent_node(Phase.FAILED, error="it burns"),
        "a003": a_lent_node(Phase.RETURNING),
        "a004": a_lent_node(owner="other"),
        "a005": a_lent_node(leaves=Leaving.MANUAL),
        "a006": a_lent_node(),
        "a007": a_lent_node(Phase.FAILED, error="it burns", order="lend-2", stays_until=LATER),
    }
    order = LendOrder(id="lend-1", node_type="a", namespace="dev", count=1, since=NOW, until=LATER)
    orders = (order, replace(order, id="lend-2"))
    backoffs = {"a": Backoff(failures=1, until=LATER, ask_at_most=1)}
    excluded = {"a008": Keeping(since=NOW, until=LATER)}
    registry = Registry(nodes=nodes, held=("a006",), orders=orders, excluded=excluded)
    save_registry(config, replace(registry, backoffs=backoffs))
    return config


@pytest.fixture
def play(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Play:
    """Runs a command line as a shell does. Returns the exit code and the output."""
    monkeypatch.setattr("dnm.config.load.load_config", lambda path, environ: config)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("SUDO_USER", "kim")

    def show(words: str) -> tuple[object, str]:
        monkeypatch.setattr("sys.argv", ["dnm", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        reported = capsys.readouterr()
        return ended.value.code, " ".join((reported.out + reported.err).replace("│", " ").split())

    return show


def registry_of(config: Config) -> Registry:
    return load_registry(config, NOW)


MISTAKES = [
    # lend
    ("lend 2", "Missing option '--namespace'"),
    ("lend 2 --namespace dve", "namespace 'dve' is not monitored; monitored: dev"),
    ("lend two --namespace dev", "'two' is not a valid int"),
    ("lend 0 --namespace dev", "0 is not in the range"),
    ("lend -1 --namespace dev", "-1"),
    (
        "lend 4 --namespace dev",
        "4 nodes can never be lent: max_nodes of namespace dev is 3",
    ),
    ("lend 1 --namespace dev --type b", "nodes of type b are not lent to dev; its types: a"),
    ("lend --namespace dev --node a001", "a001 is lent to dev already: `dnm extend a001`"),
    ("lend --namespace dev --node a[1-", "brackets don't match"),
    ("lend 1 --namespace dev --for 2h --until 17:00", "write --for or --until, not both"),
    ("lend 1 --namespace dev --until 2020-01-01", "2020-01-01 00:00 UTC is over"),
    ("lend 2 --namespace dev --for 4", "'4' has no unit; write 90m, 2h or 1d"),
    ("lend 2 --namespace dev --for 400d", "'400d' is too long; write 90m, 2h or 1d, at most a"),
    # extend
    ("extend a001", "write how long: --for 2h or --until 17:00"),
    ("extend a001 --for 4", "'4' has no unit; write 90m, 2h or 1d"),
    ("extend --for 2h", "Missing argument 'NODE...'"),
    (
        "extend a099 --for 2h",
        "'a099' is not a node that this instance has lent; lent nodes: a[001-007]",
    ),
    ("extend a001 a002 --for 2h", "a002 is being returned already (failed)"),
    # return
    ("return", "Missing argument 'NODE...'"),
    ("return a099", "'a099' is not a node that this instance has lent; lent nodes: a[001-007]"),
    ("return a001 a002", "a002 has failed: `dnm reset a002` returns it; it burns"),
    ("return a001 --grace 10m", "it needs --evict"),
    (
        "return a001 --evict --grace soon",
        "'soon' is not a duration; write 10m or 2h, at most a week",
    ),
    ("return a001 --evict --grace 10", "'10' has no unit; write 10m or 2h"),
    ("return a001 --evict --grace 8d", "'8d' is too long; write 10m or 2h, at most a week"),
    ("return a001 --force", "No such option"),
    ("return a001 --evict --yes", "dnm found no kubeconfig: set kubeconfig_path"),
    # adopt
    ("adopt a050", "Missing option '--namespace'"),
    ("adopt b001 --namespace dev", "'b001' is not of a type that is lent to dev; its types: a"),
    # reset, forget
    ("reset a001", "a001 is serving, not failed: there is nothing to reset"),
    ("reset nothing", "'nothing' is not a lent node, monitored queue or node type"),
    ("forget a099", "'a099' is not a lent node"),
    # hold, exclude, and their ends
    ("hold x17", "'x17' is not a name of a lent node or of a node type (a…, b…)"),
    ("exclude a[011-012] x17", "lists the nodes; nothing was changed"),
    ("hold a001 --for 2h --until 17:00", "write --for or --until, not both"),
    ("hold a001 --for 30", "'30' has no unit; write 90m, 2h or 1d"),
    ("exclude a050 --for 30", "'30' has no unit; write 90m, 2h or 1d"),
    ("exclude a050 --until 2020-01-01", "2020-01-01 00:00 UTC is over"),
    ("exclude lend-1", "'lend-1' is not a name of a lent node"),
    ("hold a[001-", "the node list 'a[001-' can't be read: its brackets don't match; nothing was"),
    ("unexclude a[2-1]", "the range '2-1' runs backwards; nothing was changed"),
    ("return a[001", "its brackets don't match; nothing was changed"),
    ("hold a001 None", "'None' names no node; write a name, or a host list: a[001-004]"),
    ("unhold None", "'None' names no node"),
    ("unexclude None", "'None' names no node"),
    # nodes, plan
    ("plan --at soon", "'soon' is not a date and time; write e.g. 2026-12-01 09:00"),
    ("nodes --type q", "there is no node type 'q'; node types: a, b"),
    # pause
    ("pause --until 17:00 --for 2h", "write --for or --until, not both"),
    ("pause --for 30", "'30' has no unit; write 90m, 2h or 1d"),
    ("pause --half lending", "No such option"),
]


@pytest.mark.parametrize(("words", "why"), MISTAKES)
def test_mistaken_command_gets_a_sentence_and_changes_nothing(
    config: Config, play: Play, words: str, why: str
) -> None:
    before = config.converted_nodes_path.read_bytes()
    code, message = play(words)
    assert why in message and code == (1 if "kubeconfig" in why else 2), message
    assert config.converted_nodes_path.read_bytes() == before


FENCED = "is fenced by the next run, and returned when its pods have ended; `dnm exclude"
OUTPUT = [
    ("lend 2 --namespace dev", "2 nodes of type a for dev until 20"),
    ("lend --namespace dev --node a[050-051] --force", "a[050-051] for dev until 20"),
    ("lend 1 --namespace dev", ": the next run starts to lend; `dnm return lend-"),
    ("extend a001 a004 --for 2h", "'a004' is not"),
    ("extend lend-1 --for 12h", "lend-1 and its nodes stay until 20"),
    ("extend a001 a006 --for 12h", "each of a[001,006] stays until 20"),
    ("extend a001 --for 10m", f" (before: {shown(LATER)}), idle or not"),
    ("extend lend-1 --for 10m", f" (before: {shown(LATER)})"),
    ("return a001", f"a001 {FENCED} a001` keeps it"),
    ("return lend-1", f"lend-1 is ended: dnm lends no more nodes for it a001 {FENCED}"),
    (
        "return lend-2",
        "dnm lends no more nodes for it a007 has failed: `dnm reset a007` returns it",
    ),
    ("hold a001", "a001 is held until `dnm unhold a001`"),
    ("hold a010", "a010 is held: it is not lent until `dnm unhold a010`"),
    ("hold a006", "a006 is held until `dnm unhold a006`, as it was before"),
    ("hold a[001,010] --for 2h", "a001 is held until 20"),
    (
        "exclude a001",
        "a001 is not lent until `dnm unexclude a001`; it is lent now, and serves until",
    ),
    ("unhold a001 a006", "a001 was not held a006 is no longer held"),
    ("unexclude a009", "a009 was not excluded; "),
    ("unexclude a008", "a008 is no longer excluded"),
    ("pause", "paused until `dnm resume`"),
    ("pause --lending", "lending is paused until `dnm resume`"),
    ("pause --returning", "returning is paused until `dnm resume`"),
    ("resume", "dnm was not paused"),
    ("reset a002", "a002 will be returned to Slurm by the next run"),
    ("reset a[002,007]", "each of a[002,007] will be returned to Slurm by the next run"),
    (f"reset {QUEUE.upper()}", f"the breaker of {QUEUE} was not open; its count is reset"),
    ("reset a", "node type a is no longer in back-off"),
]


# Ids without the answers: some have the current minute, and two workers would differ.
@pytest.mark.parametrize(("words", "answer"), OUTPUT, ids=[words for words, _ in OUTPUT])
def test_command_reports_its_result(play: Play, words: str, answer: str) -> None:
    code, message = play(words)
    assert answer in message, message
    assert code == (2 if "is not a node" in message else 0)


def test_reset_closes_an_open_breaker(config: Config, play: Play) -> None:
    save_registry(config, Registry(breakers={QUEUE: Breaker(tripped_at=NOW)}))
    message = f"the breaker of {QUEUE} is closed; dnm may lend it nodes again"
    assert message in play(f"reset {QUEUE}")[1]


def test_author_and_reason_are_recorded_for_each_node(config: Config, play: Play) -> None:
    play("hold a[010-011] --reason fan")
    play("exclude a010 --reason grant")
    play("lend 2 --namespace dev --reason course --force --for 3h")
    registry = registry_of(config)
    order, kept = registry.orders[-1], registry.holds["a011"]
    assert (order.count, order.node_type, order.reason, order.is_forced) == (2, "a", "course", True)
    assert order.requester.startswith("kim on ") and kept.requester.startswith("kim on ")
    assert kept.reason == "fan" and registry.excluded["a010"].reason == "grant"
    history = History(config.converted_nodes_path, config.history_keep)
    lines = read_history(history, datetime(2020, 1, 1, tzinfo=UTC), [])
    assert [(line.event, line.object, line.reason) for line in lines if line.requester] == [
        ("hold", "a010", "fan"), ("hold", "a011", "fan"), ("exclude", "a010", "grant"),
        ("lend", order.id, "course"),
    ]  # fmt: skip


def test_unreadable_registry_stops_each_command(config: Config, play: Play) -> None:
    config.converted_nodes_path.write_bytes(encode_registry(Registry())[:20])
    for words in ("lend 1 --namespace dev", "extend a001 --for 2h", "return a001", "hold a001",
                  "exclude a001", "pause"):  # fmt: skip
        code, message = play(words)
        assert code == 2 and str(config.converted_nodes_path) in message, message


def test_command_waits_for_a_running_run(
    config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run holds the lock while it waits for its converter. An administrator who pauses dnm then
    must not be refused."""
    held, print_wait = FileLock(config.lock_path), operation.print_wait
    held.acquire()

    def print_and_release() -> None:
        print_wait()
        held.release()

    monkeypatch.setattr(operation, "print_wait", print_and_release)
    assert "paused" in admin.pause(config, reason="it burns")
    assert "waiting for the current run to end" in capsys.readouterr().err
    pause = load_registry(config, NOW).pause
    assert pause is not None and pause.reason == "it burns"


def test_command_keeps_the_end_time_of_the_last_run(config: Config) -> None:
    """`dnm status` takes the end of the last run from a file's time; no command may change it."""
    path = config.ended_path
    path.touch()
    os.utime(path, (1000, 1000))
    hold(config, ["a001"])
    assert load_registry(config, NOW).held == ("a001", "a006")
    assert path.stat().st_mtime == 1000


# --- times -----------------------------------------------------------------------------------


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("length", "until", "zone", "moment"),
    [
        ("", "", "UTC", None),
        ("90m", "", "UTC", NOW + timedelta(minutes=90)),
        ("", "9:30", "UTC", NOW + timedelta(hours=21, minutes=30)),
        ("", "12:00", "UTC", NOW + timedelta(days=1)),
        ("", "15:00+02:00", "UTC", NOW + timedelta(hours=1)),
        ("", "2026-03-02T14:00+01:00", "UTC", NOW + timedelta(hours=1)),
        ("", "14:00", BERLIN, NOW + timedelta(hours=1)),
        ("", "12:59", BERLIN, NOW + timedelta(hours=23, minutes=59)),
        ("", "0:30", BERLIN, NOW + timedelta(hours=11, minutes=30)),
        ("", "14:00+00:00", BERLIN, NOW + timedelta(hours=2)),
        ("", "2026-03-03", BERLIN, NOW + timedelta(hours=11)),
        ("", "2026-06-01 09:00", BERLIN, datetime(2026, 6, 1, 7, tzinfo=UTC)),
    ],
)
def test_time_without_offset_is_in_the_time_zone_of_the_site(
    length: str, until: str, zone: str, moment: datetime | None
) -> None:
    assert parse_deadline(length, until, NOW, zone) == moment


def test_all_commands_use_the_time_zone_of_the_site(config: Config) -> None:
    there = replace(config, events_zone=BERLIN)
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(9)
    there_noon = noon.astimezone(ZoneInfo(BERLIN))
    text = f"{there_noon:%Y-%m-%d %H:%M %Z} (12:00 UTC)"
    assert text in hold(there, ["a001"], until=noon.isoformat())[0]
    assert text in exclude(there, ["a002"], until=noon.isoformat())[0]
    paused = admin.pause(there, until=noon.isoformat())
    clock = f"{there_noon:%H:%M:%S %Z} (12:00:00 UTC)"
    assert paused == f"paused until {there_noon:%Y-%m-%d} {clock}"
    document = status_document(there, registry_of(config), noon - timedelta(days=1))
    message = "\n".join(restriction_lines(document["restrictions"], NOW, there.events_zone))
    assert f"excluded: a002 until {text}" in message and clock in message
    late = datetime(2034, 5, 19, 22, 30, tzinfo=UTC)
    assert shown(late, BERLIN) == "2034-05-20 00:30 CEST (2034-05-19 22:30 UTC)"
    assert parse_moment("2025-06-01", NOW, "--since", BERLIN).hour == 22
    with pytest.raises(DnmError, match="is not a time"):
        parse_moment("0001-01-01", NOW, "--since", BERLIN)


def test_second_pause_reports_the_pause_that_it_replaces(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setenv("SUDO_USER", "kim")
    assert "in place" not in admin.pause(config, reason="the fans")
    before = registry_of(config)
    monkeypatch.setenv("SUDO_USER", "erin")
    there = r"lending and returning are paused by kim on .* until `dnm resume`: the fans"
    with pytest.raises(DnmError, match=f"{there}; this pause would stop less: add --force to"):
        admin.pause(config, until=soon.isoformat())
    assert registry_of(config) == before
    assert re.search(
        f"; it replaces an earlier pause: {there}",
        admin.pause(config, until=soon.isoformat(), is_forced=True),
    )
    pause = registry_of(config).pause
    assert pause is not None and pause.until == soon


@pytest.mark.parametrize(
    ("length", "until", "why"),
    [
        ("2h", "13:00", "not both"),
        ("soon", "", "write 90m"),
        ("0m", "", "is over"),
        ("400d", "", "at most a year"),
        ("", "noon", "'noon' is not a time; write 17:00"),
        ("", "25:00", "write 17:00"),
        ("", "2026-03-02T12:00", "2026-03-02 12:00 UTC is over"),
        ("", "2028-01-01", "is more than a year ahead"),
        ("", "9999-12-31T23:59-01:00", "write 17:00"),
    ],
)
def test_malformed_deadline_is_refused(length: str, until: str, why: str) -> None:
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


def test_deadline_beyond_the_local_clock_is_refused(
    set_zone: Callable[[str], None],
) -> None:
    set_zone(BERLIN)
    with pytest.raises(typer.BadParameter, match="is more than a year ahead"):
        parse_deadline("", "9999-12-31T23:59", NOW)


def test_time_is_shown_in_utc_and_local_time(set_zone: Callable[[str], None]) -> None:
    for zone, text in (
        ("UTC", "2026-03-02 12:00 UTC"),
        (BERLIN, "2026-03-02 12:00 UTC (13:00 CET)"),
    ):
        set_zone(zone)
        assert shown(NOW) == text


# --- on a site -------------------------------------------------------------------------------


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site without waiting pods."""
    set_up_workshop(sandbox, 4)
    sandbox.add_namespace("dev")
    return Site(sandbox, tmp_path / "site")


def test_order_without_nodes_reports_its_obstacle(site: Site) -> None:
    site.sandbox.batch.start_job(["a001"])
    done = site.command("lend", "-n", "dev", "--node", "a001", "--now")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith(
        "0 nodes lent, 1 missing; waits: a001: job 1001 is running"
    )


def test_order_before_the_first_run_is_reported_the_same_everywhere(site: Site) -> None:
    """All commands show the same progress of an order (of `dnm lend`) that no run has read yet."""
    site.command("lend", "2", "--namespace", "dev", "--for", "2h")
    (order,) = site.registry.orders
    status = " ".join(site.command("status").stdout.split())
    assert "Last run none yet warning: no run yet" in status
    printed = (status, site.command("plan").stdout, site.command("explain", order.id).stdout)
    progress = [
        re.findall(r"\d nodes lent, .*?\d missing", " ".join(name.split())) for name in printed
    ]
    assert progress == [["0 nodes lent, 2 missing"]] * 3, printed
    (planned,) = json.loads(site.command("plan", "-o", "json").stdout)["orders"]
    assert (planned["missing"], planned["serving"]) == (2, [])


def test_order_for_a_node_missing_in_slurm_is_refused(site: Site) -> None:
    done = site.command("lend", "-n", "dev", "--node", "a01")
    assert (done.returncode, site.registry.orders) == (2, ())
    assert "a01: Slurm has no such node, did you mean 'a001'?" in done.stderr
    site.change(node_convert_path="/bin/false")  # lists nothing, so its presence is unknown
    assert site.command("lend", "-n", "dev", "--node", "a01").returncode == 0


def test_host_list_is_reset_completely_or_not_at_all(site: Site) -> None:
    registry = replace(site.registry, nodes={"a001": a_lent_node(Phase.FAILED, error="no boot")})
    save_registry(site.config, registry)
    done = site.command("reset", "a[001-002]")
    assert done.returncode == 2 and "'a002' is not a lent node" in done.stderr
    assert site.registry.nodes["a001"].phase is Phase.FAILED


def test_new_administrator_lends_extends_returns_and_adopts_nodes(
    sandbox: Sandbox, site: Site
) -> None:
    """Plays the installed command over HTTP: it lends two nodes for an afternoon, extends one and
    returns one, then adopts a node that an administrator has converted."""
    done = site.command("lend", "2", "--namespace", "dev", "--for", "2h", "--reason", "course",
                        "--now")  # fmt: skip
    assert done.returncode == 0 and "requested 2 nodes for dev" in done.stdout, done.stderr
    sandbox.tick(1)
    site.command("run")
    site.command("run")
    status = site.command("status").stdout
    assert "2 nodes lent, 0 missing" in " ".join(status.split()), status
    document = json.loads(site.command("status", "-o", "json").stdout)
    assert [order["missing"] for order in document["orders"]] == [0]
    assert all(node["stays_until"] for node in document["nodes"])
    lent = sorted(site.registry.nodes)
    assert len(lent) == 2 and all(n.phase is Phase.SERVING for n in site.registry.nodes.values())
    assert site.command("extend", lent[0], "--for", "3h").returncode == 0
    assert site.command("return", lent[1], "--now", "--reason", "loud").returncode == 0
    assert sandbox.get("nodes", lent[1])["spec"]["unschedulable"] is True  # type: ignore[index]
    for _ in range(4):
        sandbox.tick(60)
        site.command("run")
    assert sorted(site.registry.nodes) == lent[:1]
    # An administrator converts one: dnm reports it, and only `dnm adopt` records it.
    other = sorted(set(sandbox.batch.machines) - set(lent))[0]
    sandbox.batch.claim(sandbox.batch.machines[other], "root-shell", "root converts it")
    sandbox.batch.machines[other].place = "kubernetes"
    sandbox.add_node(other, labels={"dev": "true"})
    site.command("lend", "1", "--namespace", "dev", "--node", other)  # so that Slurm is queried
    plan = site.command("plan").stdout
    assert f"{other}: wait: was moved to Kubernetes manually and is not recorded" in plan, plan
    refused = site.command("adopt", other, "--namespace", "gone")
    assert refused.returncode == 2 and "'gone' is not monitored" in refused.stderr
    assert site.command("adopt", other, "--namespace", "dev").returncode == 0
    site.command("run")
    assert site.registry.nodes[other].phase is Phase.SERVING
    verbs = site.command("history", "--kind", "verb").stdout
    for word in ("lend", "extend", "return", "adopt", "course", "loud"):
        assert word in verbs


def test_adopt_checks_kubernetes_and_slurm_first(sandbox: Sandbox, site: Site) -> None:
    with pytest.raises(RefusedError, match="Kubernetes has no Node a001"):
        adopt(site.config, "a001", "dev")
    sandbox.add_node("a001")
    with pytest.raises(RefusedError, match=r"a001 is in service in Slurm \(IDLE\)"):
        adopt(site.config, "a001", "dev")


def test_immediate_run_of_a_command_is_a_normal_run(sandbox: Sandbox, site: Site) -> None:
    made = site.command("lend", "1", "--namespace", "dev", "--now", DNM_LOG_CONSOLE="1")
    assert made.returncode == 0 and "action=convert" in made.stderr, made.stderr


@pytest.mark.parametrize(
    ("hour", "minute", "until"),
    [(5, 10, (5, 30)), (5, 40, (6, 30)), (6, 10, (6, 30))],
    ids=["before both", "between them", "before the second"],
)
def test_ambiguous_local_time_means_its_next_occurrence(
    hour: int, minute: int, until: tuple[int, int]
) -> None:
    """When clocks go back, 01:30 occurs twice. Between the two, dnm once took the next day's."""
    now = datetime(2026, 11, 1, hour, minute, tzinfo=UTC)
    result = parse_deadline("", "01:30", now, "America/Indiana/Indianapolis")
    assert result == datetime(2026, 11, 1, *until, tzinfo=UTC)
