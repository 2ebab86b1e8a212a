"""What an idle run enters, and one that lends and returns: the measure of the house. A rule that is
off is not there. The bounds only ever fall; the aims are 90 files with 12,000 lines, and 110 with
15,000."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.registry import Registry
from dnm.plan.rule import TABLE, rules_of
from tests.entered import ROOT
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

IDLE = (135, 22_500)  # files, lines
LENDING = (160, 26_000)


class Entered(NamedTuple):
    files: dict[str, list[str]]
    imported: list[str]

    def and_(self, other: Entered) -> Entered:
        files = {name: sorted({*self.files.get(name, ()), *other.files.get(name, ())})
                 for name in {**self.files, **other.files}}  # fmt: skip
        return Entered(files, sorted({*self.imported, *other.imported}))

    @property
    def lines(self) -> int:
        return sum(len((ROOT / name).read_text().splitlines()) for name in self.files)

    @property
    def told(self) -> str:
        functions = sum(len(names) for names in self.files.values())
        return f"{len(self.files)} files, {self.lines:,} lines, {functions} functions"


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """With nothing set but what a site must set."""
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_node("k1", cpu="64", memory="256G")
    sandbox.add_machines(3)
    sandbox.tick(1)
    site = Site(sandbox, tmp_path / "site")
    needed = ("kubeconfig_path", "monitored_namespaces", "node_convert_path", "state_dir",
              "namespace_queue_paths")  # fmt: skip
    lines = site.path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.startswith(("[", *needed))]
    Site.write(site.path, "".join(kept))
    return site


def run(site: Site) -> Entered:
    done = subprocess.run(
        [sys.executable, "-m", "tests.entered", "run"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "DNM_CONFIG": str(site.path)}, timeout=300, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    return Entered(found["entered"], found["imported"])


def test_an_idle_run_enters_what_every_site_needs_and_no_more(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    run(site)  # the first of all has things to write down
    idle = run(site)
    record_property("figures", f"an idle run enters {idle.told}")
    assert len(idle.files) <= IDLE[0] and idle.lines <= IDLE[1]
    assert not [name for name in idle.files if name.startswith("dnm/plan/rules/")]
    assert not [name for name in idle.imported if name.startswith("dnm.plan.rules")]
    wings = ("dnm.lab.", "dnm.converters", "dnm.simulate")
    assert not [one for one in idle.imported if one.startswith(wings) and one != "dnm.lab.verbs"]


def test_one_that_lends_and_returns(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    site.sandbox.add_pods(24, "dev", queue=QUEUE, cpu="4", memory="16G", run_seconds=30)
    site.sandbox.tick(60)
    entered = run(site)
    lent = False
    for _ in range(30):
        site.sandbox.tick(600)
        entered = entered.and_(run(site))
        lent = lent or bool(site.registry.nodes)
        if lent and not (site.registry.nodes or site.registry.requests):
            break
    assert lent and not site.registry.nodes, site.registry
    record_property("figures", f"runs that lend and return enter {entered.told}")
    assert len(entered.files) <= LENDING[0] and entered.lines <= LENDING[1]
    assert not [name for name in entered.imported if name.startswith("dnm.plan.rules")]


def test_with_nothing_set_no_rule_is_on(site: Site) -> None:
    assert rules_of(site.config, Registry()) == ()


def test_every_rule_of_the_table_is_a_file_with_its_rule() -> None:
    files = {path.stem for path in (ROOT / "dnm" / "plan" / "rules").glob("*.py")}
    parts = {"__init__", "foreseen", "moving", "namespace_labels"}  # of events, of moves
    assert files - parts == {name for name, _ in TABLE}
    everything = Config(path=Path("x"), namespaces={}, node_types={})
    assert rules_of(everything, Registry()) == ()
