"""Tests of the metrics, as Prometheus parses them, after complete, failed and killed runs."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as SdkDashboard
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.history import Durations
from dnm.model.lent import ClaimedNode
from dnm.model.observed import Breaker
from dnm.model.orders import LendOrder, Pause
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.record.metrics import (
    GAUGE,
    HISTOGRAM,
    TABLE,
    Family,
    Gauges,
    RunTimes,
    Sample,
    format_families,
    histogram_samples,
    make_families,
)
from dnm.run.publish import metrics_text, publish_failure, write_textfile
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_request, struck_at
from tests.site import Site, set_up_workshop

ROOT = Path(__file__).parents[2]
_NOT_THERE = object()


def parse(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Returns labels (without the instance's) -> the value of a metric."""
    results: dict[tuple[str, ...], float] = {}
    for family in parse(text).values():
        for sample in family.samples:
            if sample.name == name:
                labels = tuple(v for k, v in sample.labels.items() if k != "instance_id")
                results[labels] = sample.value
    return results


def promtool(*words: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["promtool", *words], input=stdin, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# --- the text ---------------------------------------------------------------------------------


def text_of_sample(value: float, label: str) -> str:
    sample = Sample(value=value, labels={"l": label})
    return format_families([Family(name="x", type=GAUGE, help="a\\b\nc", samples=(sample,))])


@pytest.mark.parametrize("label", ['a"b', "a\\b", "a\nb", "ü €", "", "{},="])
@pytest.mark.parametrize("value", [0, 1, 2**53, 1_800_000_000.123456, 0.1, 256 * 10**9])
def test_arbitrary_labels_and_numbers_survive_prometheus_parsing(value: float, label: str) -> None:
    [result] = parse(text_of_sample(value, label)).values()
    [sample] = result.samples
    assert (sample.labels, sample.value) == ({"l": label}, value)
    assert result.documentation == "a\\b\nc"


def test_metric_label_contains_no_control_characters() -> None:
    assert 'l="?[31m??"' in text_of_sample(1, "\x1b[31m\u202e\x9b")


def test_prometheus_accepts_the_histogram() -> None:
    durations = Durations(counts=(0, 1, 2, 2, 2, 2, 2, 2), total=300.5, number=3)
    samples = tuple(histogram_samples(durations, {"type": "a"}))
    family = Family(name="x_seconds", type=HISTOGRAM, help="x.", samples=samples)
    text = format_families([family])
    promtool("check", "metrics", stdin=text)
    assert values(text, "x_seconds_bucket")["a", "300"] == 2
    assert values(text, "x_seconds_bucket")["a", "+Inf"] == 3


# --- what they say ----------------------------------------------------------------------------


def text_of(registry: Registry, **config: Any) -> str:
    facts = Gauges(
        config=a_config(**config), registry=registry, now=NOW,
        times=RunTimes(began=NOW, ended=NOW + timedelta(seconds=2), succeeded=NOW), version="9",
    )  # fmt: skip
    return format_families(make_families(facts))


def test_metrics_count_nodes_by_phase_including_zero() -> None:
    registry = Registry(
        nodes={"a001": a_lent_node(), "a002": a_lent_node()}, requests=(a_request(count=3),)
    )
    results = values(text_of(registry), "dnm_nodes")
    assert results["serving", "a", QUEUE] == 2
    assert results["requested", "a", QUEUE] == 3
    assert results["failed", "a", QUEUE] == 0
    assert "a001" not in text_of(registry), "no label is a node's name"


def test_metrics_count_claimed_nodes_by_type() -> None:
    claim = ClaimedNode(node_type="a", namespace="dev")
    results = values(text_of(Registry(claimed={"a007": claim, "a008": claim})), "dnm_claimed_nodes")
    assert results == {("a",): 2}
    assert values(text_of(Registry()), "dnm_claimed_nodes") == {("a",): 0}


def test_metrics_report_oldest_pod_missing_nodes_and_lost_registry() -> None:
    status = QueueStatus(
        limit={}, baseline={}, lent={}, used={}, pending={}, pending_pods=1, verdict="", reason="",
        waits_since=f"{NOW:%Y-%m-%dT%H:%M:%SZ}", floor=3,
    )  # fmt: skip
    order = LendOrder(
        id="lend-1", node_type="a", namespace="dev", count=2, since=NOW,
        until=NOW + timedelta(hours=1),
    )  # fmt: skip
    registry = Registry(
        nodes={"a001": a_lent_node()}, orders=(order,), last_run=RunRecord(queues={QUEUE: status}),
        pause=Pause(since=NOW, is_after_loss=True),
    )  # fmt: skip
    text = metrics_text(a_config(), registry, NOW, RunTimes())
    oldest = values(text, "dnm_queue_oldest_pending_timestamp_seconds")
    assert oldest == {(QUEUE,): NOW.replace(microsecond=0).timestamp()}
    assert values(text, "dnm_missing_nodes") == {(QUEUE, "floor"): 2, (QUEUE, "order"): 2}
    assert values(text, "dnm_registry_lost") == {(): 1}
    text = metrics_text(a_config(), Registry(), NOW, RunTimes())
    assert values(text, "dnm_missing_nodes") == {(QUEUE, "floor"): 0, (QUEUE, "order"): 0}
    assert values(text, "dnm_registry_lost") == {(): 0}


def test_queue_metrics_have_base_units() -> None:
    status = QueueStatus(
        limit={"cpu": 80_500, "memory": 10**9}, baseline={}, lent={}, used={"cpu": 500},
        pending={}, pending_pods=7, verdict="wait", reason="x", code="CAPPED",
    )  # fmt: skip
    text = text_of(Registry(last_run=RunRecord(queues={QUEUE: status})))
    assert values(text, "dnm_queue_limit") == {(QUEUE, "memory"): 10**9, (QUEUE, "cpu"): 80.5}
    assert values(text, "dnm_queue_used") == {(QUEUE, "memory"): 0, (QUEUE, "cpu"): 0.5}
    assert values(text, "dnm_queue_verdict_info") == {(QUEUE, "wait", "CAPPED"): 1}
    assert values(text, "dnm_queue_pending_pods") == {(QUEUE,): 7}


def test_metrics_report_breakers_pause_and_cooldown() -> None:
    registry = Registry(
        breakers={QUEUE: Breaker(tripped_at=NOW)}, pause=Pause(since=NOW - timedelta(hours=1))
    )
    text = text_of(registry)
    assert values(text, "dnm_breaker_open") == {(QUEUE,): 1}
    assert values(text, "dnm_paused") == {(): 1}
    over = Registry(pause=Pause(since=NOW - timedelta(hours=2), until=NOW - timedelta(hours=1)))
    assert values(text_of(over), "dnm_paused") == {(): 0}
    assert "dnm_paused_since" not in text_of(over)


# --- of a whole run ---------------------------------------------------------------------------


class Ran:
    """A site with a metrics file that has lent two nodes and returned one."""

    def __init__(self, directory: Path) -> None:
        self.sandbox = Sandbox(directory / "sandbox").start()
        set_up_workshop(self.sandbox, 4)
        self.file = directory / "dnm.prom"
        self.site = Site(
            self.sandbox, directory / "site", metrics_file=self.file, max_converted_nodes=2
        )
        pods = self.sandbox.add_pods(60, "dev", queue=QUEUE, cpu="4", memory="16G")
        self.run(4)
        self.sandbox.finish_pods(pods[20:], "dev")
        self.run(6)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.sandbox.tick(60)
            self.site.run()


pytestmark = pytest.mark.xdist_group("metrics")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    made = Ran(tmp_path_factory.mktemp("ran"))
    yield made
    made.sandbox.stop()


def test_prometheus_accepts_the_metrics_file(ran: Ran) -> None:
    assert promtool("check", "metrics", stdin=ran.file.read_text()) == ""
    assert re.search(r" \d+ \d+$", ran.file.read_text(), re.M) is None, "no timestamps"


def test_metrics_report_conversions_and_durations(ran: Ran) -> None:
    text = ran.file.read_text()
    assert values(text, "dnm_conversions_total") == {("a", "joined"): 2, ("a", "failed"): 0}
    assert values(text, "dnm_last_run_exit_code") == {(): 0}
    assert values(text, "dnm_node_seconds_lent_total")[QUEUE, "a"] >= 9 * 60
    assert values(text, "dnm_conversion_duration_seconds_count") == {("a",): 2}
    assert values(text, "dnm_last_run_reading_info") == {("list", "small", ""): 1}
    assert set(values(text, "dnm_last_run_part_seconds")) == {("plan",), ("act",), ("record",)}


def test_status_prints_the_metrics_file_without_run_parts(ran: Ran) -> None:
    done = ran.site.command("status", "-o", "prometheus")
    assert done.returncode == 0, done.stderr
    moving = r"dnm_(last_|node_seconds|phase_oldest|backoff)"
    plain = [line for line in done.stdout.splitlines() if not re.search(moving, line)]
    assert plain == [
        line for line in ran.file.read_text().splitlines() if not re.search(moving, line)
    ]
    names = set(parse(ran.file.read_text())) - set(parse(done.stdout))
    assert names == {
        "dnm_last_run_part_seconds", "dnm_last_run_reading_info", "dnm_last_run_changes",
        "dnm_last_run_watch_wait_seconds",
    }  # fmt: skip


def test_metrics_file_is_world_readable_whatever_the_umask(ran: Ran) -> None:
    before = os.umask(0o077)
    try:
        ran.run(1)
    finally:
        os.umask(before)
    assert ran.file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in ran.file.parent.glob("dnm.prom*")] == ["dnm.prom"]


def test_run_that_could_not_start_writes_failure_metrics(ran: Ran) -> None:
    path, full = ran.site.config.converted_nodes_path, ran.file.read_text()
    content = path.read_bytes()
    path.write_bytes(b"not json")
    try:
        done = ran.site.command("run")
        assert done.returncode == 2
        text = ran.file.read_text()
    finally:
        path.write_bytes(content)
    assert promtool("check", "metrics", stdin=text) == ""
    assert values(text, "dnm_last_run_exit_code") == {(): 2}
    success = "dnm_last_success_timestamp_seconds"
    assert values(text, success) == values(full, success) != {}
    assert values(text, "dnm_nodes") == {}, "an unknown value is not exported"
    ran.run(1)


@pytest.mark.parametrize("kind", ["pipe", "1.7.2", "9" * 13, "9" * 400, "."])
def test_failure_metrics_are_written_over_any_previous_content(tmp_path: Path, kind: str) -> None:
    """dnm replaces the file, whatever is in it, for example from another program."""
    path = tmp_path / "dnm.prom"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(f"dnm_last_success_timestamp_seconds {kind}\n")
    publish_failure(a_config(metrics_file=path), 2, NOW)
    text = path.read_text()
    assert values(text, "dnm_last_run_exit_code") == {(): 2}
    assert not values(text, "dnm_last_success_timestamp_seconds")


def test_failed_run_keeps_the_time_of_the_last_success(ran: Ran) -> None:
    success = "dnm_last_success_timestamp_seconds"
    ended = ran.site.config.ended_path.stat().st_mtime
    for _ in range(2):
        ran.sandbox.fault("status", path="nodes", code=500, times=20)
        ran.run(1)
        text = ran.file.read_text()
        assert values(text, "dnm_last_run_exit_code") == {(): 1}
        assert values(text, success)[()] == pytest.approx(ended, abs=1)
    ran.sandbox.faults.clear()
    ran.run(1)
    assert values(ran.file.read_text(), success)[()] > ended


@pytest.mark.parametrize("point", ["metrics.write", "metrics.rename"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_leaves_a_complete_metrics_file(tmp_path: Path, point: str, when: str) -> None:
    path = tmp_path / "dnm.prom"
    write_textfile(path, "dnm_old 1\n")
    with struck_at(point, when, KeyboardInterrupt()):
        write_textfile(path, "dnm_new 1\n")
    assert path.read_text() in ("dnm_old 1\n", "dnm_new 1\n")
    assert all(not item.name.endswith(".prom") for item in tmp_path.iterdir() if item != path)
    write_textfile(path, "dnm_new 1\n")
    assert path.read_text() == "dnm_new 1\n"


@pytest.mark.parametrize(
    ("point", "when"), [("metrics.write", "after"), ("metrics.rename", "before")]
)
def test_failed_write_leaves_only_the_old_file(tmp_path: Path, point: str, when: str) -> None:
    path, foreign = tmp_path / "page.html", tmp_path / "page.html.new"
    for item in (path, foreign):
        item.write_text("old")
    with struck_at(point, when, OSError(errno.ENOSPC, "no room")):
        write_textfile(path, "new")
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"page.html": "old", "page.html.new": "old"}


def test_unwritable_metrics_file_does_not_stop_a_run(ran: Ran) -> None:
    done = ran.site.command("run", "--log-console", DNM_FAULT="metrics.write:before:full")
    assert done.returncode == 0
    assert "the metrics file" in done.stderr and "No space left" in done.stderr


# --- the page, the rules, the dashboard -------------------------------------------------------


def test_metrics_page_lists_all_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(dnm_\w+)` \| (\w+) \| (.*) \|$", page, flags=re.M)
    assert rows == [(name, type_, meaning) for name, type_, meaning, _ in TABLE]


def test_each_alert_fires_at_its_condition_and_not_before(tmp_path: Path) -> None:
    rules = ROOT / "etc" / "prometheus" / "dnm.rules.yaml"
    promtool("check", "rules", str(rules))
    shutil.copy(rules, tmp_path / "dnm.rules.yaml")
    tests = (Path(__file__).parent / "rules_test.yaml").read_text()
    (tmp_path / "test.yaml").write_text(tests.replace("RULES", "dnm.rules.yaml"))
    promtool("test", "rules", str(tmp_path / "test.yaml"))
    alerts = set(re.findall(r"alert: (\w+)", rules.read_text()))
    assert {name for name in alerts if tests.count(f"alertname: {name}") >= 3} == alerts


def dashboard() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((ROOT / "etc" / "grafana" / "dnm.json").read_text())
    return results


def test_grafana_sdk_reads_the_complete_dashboard() -> None:
    board = dashboard()
    register_default_plugins()
    read = SdkDashboard.from_json(board)
    lost = set(_lost(board, json.loads(JSONEncoder().encode(read))))
    # Null, and keys that Grafana adds and its SDK lacks.
    assert lost == {"id", "definition", "titleFormat"}


def _lost(wanted: Any, found: Any, key: str = "") -> Iterator[str]:
    """Yields the keys with different values in two JSON documents."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name, value in wanted.items():
            yield from _lost(value, found.get(name, _NOT_THERE), name)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for item, other in zip(wanted, found, strict=True):
            yield from _lost(item, other, key)
    elif wanted != found:
        yield key


def test_dashboard_and_alert_expressions_return_data_of_a_run(ran: Ran, tmp_path: Path) -> None:
    board = dashboard()
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions = [re.sub(r"\$\w+", ".*", expression) for expression in expressions]
    series = []
    for family in parse(ran.file.read_text()).values():
        for sample in family.samples:
            labels = ",".join(f"{k}={json.dumps(v)}" for k, v in sample.labels.items())
            step = 1 if family.type in ("counter", "histogram") else 0
            line = {"series": f"{sample.name}{{{labels}}}", "values": f"{sample.value}+{step}x120"}
            series.append(line)
    asked = [
        {"expr": expression, "eval_time": "110m", "exp_samples": []} for expression in expressions
    ]
    document = {
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}],
    }
    (tmp_path / "ask.yaml").write_text(json.dumps(document))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "ask.yaml")],
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    message = done.stdout + done.stderr
    without = [
        expression for expression in expressions if f"expr: {json.dumps(expression)}" not in message
    ]
    assert not without, f"no data: {without}\n{message[:2000]}"


def test_metrics_in_rules_and_dashboard_exist() -> None:
    facts = {name for name, *_ in TABLE}
    texts = [
        (ROOT / "etc" / "grafana" / "dnm.json").read_text(),
        (ROOT / "etc" / "prometheus" / "dnm.rules.yaml").read_text(),
    ]
    named = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for text in texts
        for name in re.findall(r"\bdnm_[a-z_]+", text)
    }
    assert named <= facts
