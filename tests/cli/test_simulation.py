"""Tests of `dnm simulate` with a history or a workload file, and of its page in docs/."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing import active_children
from pathlib import Path
from typing import Any, cast

import pytest

from dnm.cli.look.simulation import _play
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.record.demand_lines import DEMAND
from dnm.record.history_file import History, read_history
from dnm.run.registry import save_registry
from dnm.simulate.accounting import SimulationError
from tests.docs.pages import PAGES
from tests.processes import state_of, wait_until
from tests.record.year import write_year
from tests.site import QUEUE, Site, a_workshop_site

PAGE = "docs/simulate.md"
BASELINE = {"cpu": 80_000, "memory": 320 * 10**9}

pytestmark = pytest.mark.xdist_group("simulation")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Builds a site with a day of history."""
    directory = tmp_path_factory.mktemp("simulate")
    made = Site(Sandbox(directory / "sandbox"), directory / "site")
    status = QueueStatus(limit=BASELINE, baseline=BASELINE, lent={}, used={}, pending={},
                         pending_pods=0, verdict="keep", reason="")  # fmt: skip
    save_registry(made.config, Registry(last_run=RunRecord(queues={QUEUE: status})))
    write_year(made.config.converted_nodes_path, datetime.now(UTC), days=1)
    (directory / "course.json").write_text(course())
    return made


def course() -> str:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGES[PAGE], flags=re.S | re.M)
    return str(text)


def error_of(site: Site, *words: str) -> str:
    """Runs `dnm simulate WORDS`, which must end with exit code 2. Returns its stderr."""
    done = site.command("simulate", *words)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def document(site: Site, *words: str) -> dict[str, Any]:
    done = site.command("simulate", "-o", "json", *words)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def test_simulation_page_shows_the_real_output(site: Site) -> None:
    ((command, shown),) = re.findall(
        r"^`(dnm simulate [^`]+)`\n\n```\n(.*?)^```", PAGES[PAGE], flags=re.S | re.M
    )
    course_file = str(site.directory.parent / "course.json")
    words = [course_file if word == "course.json" else word for word in command.split()[2:]]
    settings = ("reversion_idle_seconds", "pending_grace_seconds", "global_cooldown_seconds")
    plain = re.sub(rf"^({'|'.join(settings)}) = .*\n", "", site.path.read_text(), flags=re.M)
    default = site.directory / "default.ini"
    site.write(default, plain)
    done = site.command("simulate", *words, DNM_CONFIG=str(default))
    assert done.stdout == shown, done.stdout + done.stderr


def test_same_seed_gives_the_same_simulation(site: Site) -> None:
    first = document(site, "--since", "3d")
    assert first == document(site, "--since", "3d")
    assert first["schema"] == "dnm.simulate/1"
    assert first["pods"] == 12 * 16 + 1, "sixteen on each node, and what the permanent ones carry"
    own, nobody = first["configurations"]
    assert (own["name"], nobody["name"]) == ("configured", "no-lending")
    assert own["conversions"] >= 12 and nobody["conversions"] == 0
    assert own["pods_unserved"] == 0 and nobody["pods_unserved"] == 12 * 16
    assert own["lent_node_hours"] > 80 and own["price"] is None
    assert any("demand_days" in note for note in first["notes"])
    (note,) = (note for note in first["notes"] if note.startswith("without --jobs, Slurm always"))
    assert "jobs lacked at most 1,950 of the 10,236 node-minutes that were lent" in note
    other = document(site, "--since", "3d", "--seed", "2")
    assert other["configurations"][0] != own


def test_simulated_cap_costs_waiting_time(site: Site) -> None:
    compared = document(site, "--since", "3d", "--set", "max_converted_nodes=6")
    own, capped, _ = compared["configurations"]
    assert capped["name"] == "max_converted_nodes=6"
    assert capped["lent_node_hours"] < own["lent_node_hours"]
    assert capped["pods_waited_minutes"] > 2 * own["pods_waited_minutes"]


class Killed:
    """A workload that kills its own process, as the kernel does without free memory."""

    def __getattr__(self, name: str) -> object:
        os._exit(9)


class Sleeping:
    """A workload that a simulation never reads to its end."""

    fails = 0.0

    def __getattr__(self, name: str) -> object:
        time.sleep(3600)
        raise AssertionError(name)


def test_killed_simulation_worker_ends_the_other_workers() -> None:
    """Once, the other worker processes continued for minutes and ignored a Ctrl-C."""
    workload, killed = Sleeping(), Killed()
    with pytest.raises(SimulationError, match="lack of memory"):
        _play(cast(Any, workload), {"configured": cast(Any, killed), "no-lending": None})
    assert not active_children()


def test_two_configuration_files_are_simulated_side_by_side(site: Site) -> None:
    new = site.directory / "new.ini"
    site.write(new, f"{site.path.read_text()}max_converted_nodes = 6\n")
    by_file = document(site, "--since", "3d", "--against", str(new))["configurations"]
    by_key = document(site, "--since", "3d", "--set", "max_converted_nodes=6")["configurations"]
    assert [item["name"] for item in by_file] == ["configured", "new", "no-lending"]
    assert {**by_file[1], "name": ""} == {**by_key[1], "name": ""}


def test_simulation_table_of_several_keys_fits_a_terminal(site: Site) -> None:
    keys = ("reversion_idle_seconds=120", "max_converted_nodes=4")
    done = site.command(
        "simulate", "--since", "3d", *(word for key in keys for word in ("--set", key))
    )
    table, _, below = done.stdout.partition("\nthe other: ")
    assert below.startswith(" ".join(keys) + "\n"), done.stdout
    assert "the other" in table and max(map(len, table.splitlines())) <= 80


def test_simulation_reports_the_price_for_jobs(site: Site, tmp_path: Path) -> None:
    """Jobs need sixteen of 24 nodes, with pauses. By day twelve nodes are lent, so jobs wait."""
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    lines = []
    for hour in range(22, 1, -1):
        times = (begin - timedelta(hours=hour), begin - timedelta(hours=hour),
                 begin - timedelta(hours=hour, minutes=-40))  # fmt: skip
        lines.append("|".join([*(f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in times), "16", "60",
                               "a[001-024]"]))  # fmt: skip
    (tmp_path / "jobs.txt").write_text("\n".join([*lines, "none of them"]))
    reported = document(site, "--since", "3d", "--jobs", str(tmp_path / "jobs.txt"))
    own, nobody = reported["configurations"]
    assert reported["jobs"] > 10
    assert any("lines of --jobs ignored" in note for note in reported["notes"])
    assert own["jobs_waited_minutes"] > nobody["jobs_waited_minutes"] == 0
    price = own["price"]
    assert price["jobs_paid_minutes"] == own["jobs_waited_minutes"]
    saved = nobody["pods_waited_minutes"] - own["pods_waited_minutes"]
    assert price["pods_saved_minutes"] == pytest.approx(saved, abs=0.2)
    assert price["saved_per_paid"] == pytest.approx(saved / price["jobs_paid_minutes"], abs=0.01)


def test_failing_conversions_are_drawn_with_five_seeds(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "fails.json"
    path.write_text(json.dumps({**json.loads(course()), "fails": 0.3}))
    own, nobody = document(site, "--workload", str(path))["configurations"]
    for key, (least, most) in own["range"].items():
        assert least <= own[key] <= most and least < most
    assert nobody["range"] is None
    lines = site.command("simulate", "--workload", str(path)).stdout.splitlines()
    assert [line.split()[-1] for line in lines if "of 5 seeds" in line] == ["-", "-"]


def test_simulation_uses_the_recorded_demand(tmp_path: Path) -> None:
    """The record of demand counts equal pods together and has a line only for each change."""
    site = a_workshop_site(Sandbox(tmp_path / "sandbox").start(), tmp_path)
    site.write(site.path, f"{site.path.read_text()}demand_days = 9\n")
    history = History(site.config.converted_nodes_path, timedelta(days=9), name=DEMAND)
    try:
        site.run_until_rest()
        seen = [line.numbers["kinds"] for line in read_history(history) if "kinds" in line.numbers]
        request = {"memory": 16 * 10**9, "cpu": 4000}
        first = {"request": request, "pending": 20, "bound": 0, "came": 20, "gang": 0}
        assert len(seen[0]) == 1 and first.items() <= seen[0][0].items()
        assert seen[-1][0]["bound"] == 20 and seen[-1][0]["pending"] == 0
        before = history.path.read_bytes()
        site.run()
        assert history.path.read_bytes() == before
    finally:
        site.sandbox.stop()
    done = document(site, "--since", "30d")
    assert done["pods"] == 20
    assert not any("demand_days" in note for note in done["notes"])


ENDS: dict[str, tuple[Callable[[int, int], None], int, int, str]] = {
    "Ctrl-C": (os.killpg, signal.SIGINT, 130, "dnm: interrupted\n"),
    "its own SIGINT": (os.kill, signal.SIGINT, 130, "dnm: interrupted\n"),
    "SIGTERM": (os.kill, signal.SIGTERM, -signal.SIGTERM, ""),
    "SIGKILL": (os.kill, signal.SIGKILL, -signal.SIGKILL, ""),
}  # fmt: skip


def workers_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_alive(pid: str) -> bool:
    return state_of(int(pid)) not in "ZX"


@pytest.mark.parametrize("name", ENDS)
def test_ended_simulation_leaves_no_process(site: Site, tmp_path: Path, name: str) -> None:
    target, number, code, sentence = ENDS[name]
    (many, *_), kept = json.loads(course())["pods"], {"seconds": 8_640_000}
    path = tmp_path / "long.json"
    path.write_text(json.dumps({**json.loads(course()), **kept, "pods": [{**many, "count": 9999}]}))
    command = [sys.executable, "-m", "dnm.cli", "simulate", "--workload", str(path)]
    environ = {**os.environ, "DNM_CONFIG": str(site.path)}
    playing = subprocess.Popen(
        command, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    workers: list[str] = []
    try:
        wait_until(lambda: len(workers_of(playing.pid)) == 2)
        workers = workers_of(playing.pid)
        time.sleep(0.3)
        target(playing.pid, number)
        _, output = playing.communicate(timeout=300)
        assert (playing.returncode, output) == (code, sentence)
        wait_until(lambda: not any(map(is_alive, workers)))
    finally:
        playing.kill()
        for worker in filter(is_alive, workers):
            os.kill(int(worker), signal.SIGKILL)


QUESTIONS = {
    "a key that there is not": (("--set", "headrom=0.8"), "did you mean 'headroom'?"),
    "a key like none": (("--set", "Foo = 1"), "dnm: --set foo: unknown key"),
    "a value that is none": (("--set", "headroom=much"), "dnm: --set headroom=much: is "),
    "of two changes one": (
        ("--set", "max_conversions_per_run=9", "--set", "max_converted_nodes=-1"),
        "dnm: --set max_converted_nodes=-1: ",
    ),
    "no value": (
        ("--set", "headroom"),
        "--set 'headroom' is not a change: write e.g. headroom=0.8",
    ),
    "no time": (("--since", "yesterday"), "--since 'yesterday' is not a time"),
    "no record of that time": (
        ("--since", "1m"),
        "no pods and no lent nodes since 1m: use a longer --since",
    ),
    "a workload that is not there": (("--workload", "/nowhere"), "cannot read /nowhere"),
    "a workload that is a directory": (("--workload", "/tmp"), "cannot read"),
    "a workload that is none": (("--workload", "/etc/passwd"), "it is not a workload"),
    "jobs that are none": (("--jobs", "/etc/passwd"), "no line is one of sacct"),
    "jobs beside a workload": (
        ("--workload", "/etc/passwd", "--jobs", "/etc/passwd"),
        "a workload file has its own jobs",
    ),
    "a configuration that is not there": (("--against", "/nowhere.ini"), "/nowhere.ini"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_malformed_simulation_request_gets_a_sentence(site: Site, name: str) -> None:
    words, sentence = QUESTIONS[name]
    assert sentence in error_of(site, *words)
