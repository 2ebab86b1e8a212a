"""Tests of an administrator's questions on the next morning: a day is played on the sandbox in
virtual time, and the real commands answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dnm.cli.look.history import describe_line
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.history import HistoryLine
from tests.builders import NOW
from tests.proof.history_check import check_history, lines_on_disk
from tests.site import QUEUE, Site, set_up_workshop

EVERY = timedelta(minutes=10)


class Day:
    """A site after a day with a failed conversion, a workshop, a manually edited limit, and the
    return of all nodes in the evening."""

    def __init__(self, directory: Path) -> None:
        self.sandbox = Sandbox(directory / "sandbox").start()
        sandbox = self.sandbox
        set_up_workshop(sandbox, 6)
        sandbox.add_node("k01", cpu="64", memory="128G")
        self.site = Site(
            sandbox, directory / "site", max_converted_nodes=2, check_interval_seconds=600,
            reversion_idle_seconds=1200, join_timeout_seconds=1200,
        )  # fmt: skip
        self.run(3)
        sandbox.behave(direction="k8s", exit_code=3, act=False)
        self.pods = sandbox.add_pods(60, "dev", queue=QUEUE, cpu="4", memory="16G", name="session")
        self.run(12)
        self.lent = self.site.lent()
        self.site.command("hold", self.lent[0], "--reason", "lecture at noon", SUDO_USER="erin")
        self.run(6)
        text = sandbox.queues_text()
        sandbox.set_queues(text.replace("832G", "900G"))
        self.run(6)
        sandbox.finish_pods(self.pods, "dev")
        self.run(12)
        self.site.command("unhold", self.lent[0], SUDO_USER="frank")
        self.site.command("pause", "--for", "60m", "--reason", "firmware", SUDO_USER="frank")
        self.site.command("resume", SUDO_USER="frank")
        self.run(105)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.sandbox.tick(EVERY.total_seconds())
            self.site.run()

    def ask(self, *words: str) -> str:
        done = self.site.command("history", *words, "--since", "400d")
        assert done.returncode == 0, done.stderr
        return done.stdout


pytestmark = pytest.mark.xdist_group("questions")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    made = Day(tmp_path_factory.mktemp("day"))
    yield made
    made.sandbox.stop()


def test_recorded_day_has_a_line_per_transition(day: Day) -> None:
    assert len(day.lent) == 2 and day.site.registry.nodes == {}
    rows = check_history(day.site.config.converted_nodes_path)
    assert len(rows) < 60, "one line a transition, never one a run"


# arguments of `dnm history` (NODE: first lent node, OTHER: the second) -> output
QUESTIONS = {
    "did jobs wait": (("--kind", "jobs"), (
        "jobs a none (unknown -> none)", "0 jobs would start on 0 more nodes; ")),
    "why was it taken": (("NODE",), ("NODE lent", "its pods need more quota", "request 20")),
    "for which pods": ((QUEUE, "--kind", "request"), (
        "dev/session", "52 pods pending", "wanted")),
    "why did it go back, and how long was it lent": (("OTHER", "--kind", "node"), (
        "has been idle long enough", "idle for 20 min", "returned", "was lent for")),
    "what went wrong in the morning": (("a",), (
        "exit code 3", "2 of 2 nodes were not converted")),
    "who kept it over noon, and until when": (("NODE", "--kind", "verb"), (
        "verb NODE hold by erin on ", "lecture at noon", "verb NODE unhold by frank")),
    "who paused dnm, and until when": (("--kind", "verb"), (
        "pause by frank", "firmware; until 20", "resume by frank")),
    "what did the limit become": ((QUEUE, "--kind", "limit"), ("vcore 80 -> ",)),
    "who else changed it": (("--kind", "limit"), ("found-changed",)),
    "why did no third node come": ((QUEUE, "--kind", "queue"), (
        "CAPPED", "max_converted_nodes")),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_history_command_answers_an_administrator_question(day: Day, question: str) -> None:
    def named(text: str) -> str:
        return text.replace("NODE", day.lent[0]).replace("OTHER", day.lent[1])

    words, answers = QUESTIONS[question]
    output = day.ask(*map(named, words))
    assert not [answer for answer in map(named, answers) if answer not in output], output


def test_explain_shows_queue_decision_and_last_transitions(day: Day) -> None:
    done = day.site.command("explain", QUEUE, "--wide")
    assert done.returncode == 0, done.stderr
    assert f"queue {QUEUE}: nothing: its pods need no more nodes" in done.stdout
    assert "limit: 80 cpu" in done.stdout
    last = done.stdout.partition("Last transitions")[2].strip().splitlines()
    assert len([line for line in last if line.startswith(("20", "  20"))]) == 5


def test_explain_shows_the_wait_reason_of_a_pod(day: Day) -> None:
    (name,) = day.sandbox.add_pods(1, "dev", queue=QUEUE, cpu="200", memory="16G", name="huge")
    answer = day.site.command("explain", f"dev/{name}").stdout
    day.sandbox.delete("pods", name, "dev")
    assert f"pod dev/{name} is pending" in answer and "quota: " in answer
    assert "no new node would help it" in answer


def test_report_shows_the_lent_hours_of_the_recorded_day(day: Day) -> None:
    report = json.loads(day.site.command("report", "--since", "400d", "-o", "json").stdout)
    (row,) = report["nodes"]
    assert (row["conversions"], row["returns"]) == (2, 2) and row["failures"] >= 1
    rows = [line for line in lines_on_disk(day.site.config.state_dir)
            if line["kind"] == "node" and line["event"] == "returned"]  # fmt: skip
    hours = sum(line["numbers"]["lent_seconds"] for line in rows) / 3600
    assert row["hours"] == pytest.approx(hours, abs=0.02)


def test_json_history_has_each_line_on_disk(day: Day) -> None:
    lines = [json.loads(text) for text in day.ask("-o", "json").splitlines()]
    assert lines == lines_on_disk(day.site.config.state_dir)


def test_empty_history_answer_suggests_a_longer_span(day: Day) -> None:
    more = "; add `--since 400d` to see older lines"
    asked = {
        "7d": f"in the last 7d{more}",
        "400d": "in the last 400d",
        "2020-01-01": f"since 2020-01-01{more}",
    }
    for since, message in asked.items():
        done = day.site.command("history", "zzz", "--since", since)
        assert done.stdout == f"nothing is recorded about zzz {message}\n"


def test_command_without_a_phase_change_is_shown_without_an_arrow() -> None:
    line = HistoryLine(
        schema=1, number=1, time=NOW, run="r", instance="prod", kind="verb", event="extend",
        object="a001", before="serving", after="serving",
    )  # fmt: skip
    assert not [text for item in describe_line(line) for text, _ in item.parts if "->" in text]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--since", "yesterday"], "is not a time: write 90m"),
        (["--since", "2030-01-01"], "--since '2030-01-01' is in the future"),
        (["--since", "1h", "--until", "2h"], "--until is not after --since"),
        (["--kind", "nodes"], "--kind nodes is unknown; the kinds are node, request"),
    ],
)
def test_malformed_history_question_is_refused(day: Day, words: list[str], answer: str) -> None:
    done = day.site.command("history", *words)
    assert done.returncode == 2 and answer in done.stderr
    assert "Traceback" not in done.stderr


def test_history_command_needs_neither_lock_nor_write_access(day: Day) -> None:
    path = day.site.config.state_dir / "history.jsonl"
    mode = os.stat(path).st_mode
    path.chmod(0o444)
    assert day.ask(day.lent[0])
    path.chmod(mode)
