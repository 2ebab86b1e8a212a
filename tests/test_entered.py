"""Tests that bound the files which an idle run executes, and runs that lend and return: no disabled
rule. The bounds only fall. The aims are 65 files with 11,700 lines, and 105 with 20,000."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.plan.rule import TABLE, rules_of
from tests.entered import ROOT, Listening
from tests.queues.kueue.objects import a_cluster_queue, a_flavor, a_local_queue
from tests.site import QUEUE, Site, set_up_workshop

IDLE = (65, 10_899 + len(TABLE))  # files, lines; a new rule pays for its line of the table
WITHOUT_QUEUES = (55, 8_777 + len(TABLE))
WITH_KUEUE = (70, 10_525 + len(TABLE))
LENDING = (111, 20_786 + len(TABLE))
OTHER_QUEUE_SYSTEMS = (
    "dnm.queues.none", "dnm.queues.kueue", "dnm.queues.resource_quota", "dnm.model.kueue",
    "dnm.model.quota", "dnm.model.workload", "dnm.kube.kueue", "dnm.kube.quotas",
    "dnm.kube.workloads",
)  # fmt: skip
CLOSED = re.compile(r"kube[/.]opening")  # only readiness_checks uses it


class Entered(NamedTuple):
    files: dict[str, list[str]]
    imported: list[str]

    @property
    def lines(self) -> int:
        return sum(len((ROOT / name).read_text().splitlines()) for name in self.files)

    @property
    def summary(self) -> str:
        functions = sum(len(names) for names in self.files.values())
        return f"{len(self.files)} files, {self.lines:,} lines, {functions} functions"


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 3)
    sandbox.add_node("k1", cpu="64", memory="256G")
    sandbox.tick(1)
    return Site(sandbox, tmp_path / "site")


@pytest.fixture
def plain_site(site: Site) -> Site:
    """Returns a site with only the required settings."""
    needed = ("kubeconfig_path", "monitored_namespaces", "node_convert_path", "state_dir",
              "namespace_queue_paths")  # fmt: skip
    lines = site.path.read_text().splitlines(keepends=True)
    kept = "".join(line for line in lines if line.startswith(("[settings]", *needed)))
    # In the first check_interval of an hour, dnm always reads the batch side.
    while time.time() % 3600 < 3:
        time.sleep(1)
    Site.write(site.path, kept + "check_interval_seconds = 1\n")
    return site


def run(site: Site) -> Entered:
    done = subprocess.run(
        [sys.executable, "-m", "tests.entered", "run"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "DNM_CONFIG": str(site.path)}, timeout=300, check=True,
    )  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    return Entered(result["entered"], result["imported"])


def test_idle_run_executes_a_bounded_number_of_lines(
    plain_site: Site, record_property: Callable[[str, object], None]
) -> None:
    run(plain_site)  # the first run has more to record
    idle = run(plain_site)
    record_property("figures", f"an idle run enters {idle.summary}")
    assert len(idle.files) <= IDLE[0] and idle.lines <= IDLE[1]
    assert not [name for name in idle.files if name.startswith("dnm/plan/rules/")]
    assert not [name for name in idle.imported if name.startswith("dnm.plan.rules")]
    assert not [name for name in [*idle.files, *idle.imported] if CLOSED.search(name)]
    optional = ("dnm.lab.", "dnm.converters", "dnm.simulate", *OTHER_QUEUE_SYSTEMS)
    imported = [name for name in idle.imported if name != "dnm.lab.verbs"]
    assert not [name for name in imported if name.startswith(optional)]


def test_lending_and_returning_runs_execute_a_bounded_number_of_lines(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    """The runs are played in this process, on the sandbox's clock, with the default idle time."""
    lines = site.path.read_text().splitlines(keepends=True)
    Site.write(site.path, "".join(line for line in lines if "reversion_idle" not in line))
    site.sandbox.add_pods(24, "dev", queue=QUEUE, cpu="4", memory="16G", run_seconds=30)
    with Listening() as events:
        site.run_until_rest(timedelta(minutes=1))
        lent = dict(site.registry.nodes)
        site.sandbox.tick(3600)
        site.run_until_rest(timedelta(minutes=5))
    assert lent and not site.registry.nodes
    files = {name: lines for name, lines in events.by_file().items() if "/lab" not in name}
    entered = Entered(files, [])
    record_property("figures", f"runs that lend and return enter {entered.summary}")
    assert len(entered.files) <= LENDING[0] and entered.lines <= LENDING[1]
    assert not [name for name in files if name.startswith("dnm/plan/rules/") or CLOSED.search(name)]


def test_idle_run_without_a_queue_system_executes_no_line_of_yunikorn(
    plain_site: Site, record_property: Callable[[str, object], None]
) -> None:
    plain_site.sandbox.add_namespace("dnm")
    plain_site.change(queue_system="none", namespace_queue_paths="")
    run(plain_site)
    idle = run(plain_site)
    record_property("figures", f"an idle run without a queue system enters {idle.summary}")
    assert len(idle.files) <= WITHOUT_QUEUES[0] and idle.lines <= WITHOUT_QUEUES[1]
    assert not [name for name in [*idle.files, *idle.imported] if "yunikorn" in name]


def test_idle_run_with_kueue_executes_no_line_of_another_queue_system(
    plain_site: Site, record_property: Callable[[str, object], None]
) -> None:
    nothing = {"cpu": "0", "memory": "0"}
    for namespace in ("dnm", "dev"):
        plain_site.sandbox.add_namespace(namespace)
    for item in (
        a_flavor(), a_flavor("permanent"), a_cluster_queue("a8", {"permanent": nothing,
                                                                  "lent": nothing}),
        a_local_queue("a8"),
    ):  # fmt: skip
        plain_site.sandbox.create(item)
    plain_site.change(queue_system="kueue", namespace_queue_paths="")
    run(plain_site)
    idle = run(plain_site)
    record_property("figures", f"an idle run with Kueue enters {idle.summary}")
    assert "dnm/queues/kueue/system.py" in idle.files
    assert len(idle.files) <= WITH_KUEUE[0] and idle.lines <= WITH_KUEUE[1]
    optional = [name for name in OTHER_QUEUE_SYSTEMS if "kueue" not in name and "none" not in name]
    names = [*idle.imported, *(name.replace("/", ".") for name in idle.files)]
    assert not [name for name in names if name.startswith((*optional, "dnm.queues.yunikorn"))]


def test_default_configuration_enables_no_rule(plain_site: Site) -> None:
    assert rules_of(plain_site.config, Registry()) == ()


def test_every_rule_of_the_table_has_its_own_file() -> None:
    files = {path.stem for path in (ROOT / "dnm" / "plan" / "rules").glob("*.py")}
    parts = {"__init__", "event_windows", "moving"}  # of events, of moves
    assert files - parts == {name for name, _ in TABLE}
    everything = Config(path=Path("x"), namespaces={}, node_types={})
    assert rules_of(everything, Registry()) == ()
