"""Tests of several hosts with one registry on a real API server, with the roles of etc/rbac.yaml:
started together, with a wrong clock, suspended in each step for longer than a Lease is valid.

DNM_PROOF_ROUNDS=200 plays 200 rounds and every fault point; by default a dozen, and one point."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes import stops
from tests.real.cluster import LEASE
from tests.real.conftest import MakeSite
from tests.real.programs import HUNG
from tests.real.rig import Rig
from tests.real.shared import SHORT, Demand, follow, make_hosts, resume_process
from tests.real.site import Site

ROUNDS = int(os.environ.get("DNM_PROOF_ROUNDS", "12"))
IS_WHOLE = ROUNDS >= 200
NAMES = ("east", "west", "north")
CLOCKS = {"west": 600, "north": -600}  # seconds
# After these, dnm repeats a call that may have been started, and was not.
SOON: dict[str, Any] = {
    "check_interval_seconds": 1, "join_timeout_seconds": 20, "convert_timeout_seconds": 20,
    "breaker_strikes": 1000, "max_converted_nodes": 1, "request_timeout_seconds": SHORT,
}  # fmt: skip
OF_THE_HOST = ("history.", "registry.time", "lock.", "lease.", "run.", "last_run")
ALWAYS = ("kube.write_config_map",)  # a suspended host could still write there once


@pytest.mark.parametrize("count", [2, 3])
def test_single_host_of_simultaneous_hosts_acts(rig: Rig, make_site: MakeSite, count: int) -> None:
    """Repeatedly starts all hosts at once, with clocks ten minutes ahead and behind. Nodes are lent
    and returned as by one host: one call lends both, and one returns each."""
    began = time.monotonic()
    sites = make_hosts(
        make_site, NAMES[:count], CLOCKS, max_converted_nodes=2, breaker_strikes=1000
    )
    demand, chance = Demand(rig, sites, 2), random.Random(1)
    rounds, acted, refused = 0, Counter[str](), 0
    while rounds < ROUNDS // 2 or demand.is_wanted or not demand.is_back:
        rounds += 1
        assert rounds < ROUNDS + 40, sites[0].dnm("status", code=None).stdout
        demand.move_on(begins_anew=rounds <= ROUNDS // 2)
        runs = [(site, site.start("run", "-o", "json")) for site in chance.sample(sites, count)]
        for site, run in runs:
            message, errors = run.communicate(timeout=HUNG)
            assert run.returncode in (0, 75) and "Traceback" not in errors, message + errors
            refused += run.returncode == 75
            acted[site.directory.name] += bool(message) and bool(json.loads(message)["actions"])
        demand.check()
    assert demand.calls("--set k8s") == demand.stories
    assert demand.calls("--set batch") == 2 * demand.stories
    assert "holderIdentity" not in rig.api.get(LEASE)["spec"] and refused
    print(f"hosts={count} rounds={rounds} refused={refused} acted={dict(acted)} "
          f"stories={demand.stories} seconds={time.monotonic() - began:.0f}")  # fmt: skip


def test_pause_on_a_real_host_stops_all_hosts(rig: Rig, make_site: MakeSite) -> None:
    east, west = make_hosts(make_site, NAMES[:2], CLOCKS, max_converted_nodes=1)
    demand = Demand(rig, [east, west], 1)
    demand.move_on()
    west.dnm("pause", "--reason", "it burns")
    for site in (east, west, east):
        site.dnm("run")
    assert "it burns" in east.dnm("status").stdout and demand.calls("--set") == 0
    east.dnm("resume")
    west.dnm("run")
    assert demand.calls("--set k8s") == 1


# --- asleep -------------------------------------------------------------------------------------


def touches(site: Site, demand: Demand, log: Path) -> list[str]:
    """Plays a lend and a return. Returns the fault points of runs that have read the registry, as
    POINT:NUMBER: all writes, and the first one of any other name."""
    results: dict[str, None] = {}
    for _ in range(60):
        demand.move_on(begins_anew=not results)
        if results and not demand.is_wanted and demand.is_back:
            break
        site.dnm("run", DNM_FAULT_LOG=str(log))
        passed = Counter[str]()
        for point in log.read_text().split():
            passed[point] += 1
            is_written = point.startswith(("kube.write", "kube.patch", "converter.start"))
            is_new = passed[point] == 1 or is_written
            if passed["kube.read_state"] and is_new and not point.startswith(OF_THE_HOST):
                results[f"{point}:{passed[point]}"] = None
        log.unlink()
    assert len(results) > 15, results
    return list(results)


def some_of(points: Sequence[str]) -> list[str]:
    return list(points) if IS_WHOLE else [p for p in points if p.removesuffix(":1") in ALWAYS]


def sleep_at(point: str) -> str:
    """Returns the value of DNM_FAULT that suspends a run at the fault point."""
    name, _, number = point.partition(":")
    return f"{name}:before:stop:{number}" if point else ""


def walk(demand: Demand, points: list[str], strike: Callable[[str], bool]) -> None:
    """Plays lends and returns until a run of the first host had a fault at each point. The other
    host runs as often, because only it sees the results of converters that it has started."""
    left, runs = list(points), 0
    while left or demand.is_wanted or not demand.is_back:
        runs += 1
        assert runs < 200 + 6 * len(points), left  # either host may be the one that writes
        demand.move_on(begins_anew=bool(left))
        point = left.pop(0) if left else ""
        if not strike(point) and point:
            left.append(point)
        follow(demand.sites[1])
        demand.check()
        time.sleep(0.3)


def test_suspended_host_with_an_expired_lease_changes_nothing(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    """The resumed host changes neither registry nor ledger nor Node, and starts no converter."""
    began = time.monotonic()
    east, west = make_hosts(make_site, NAMES[:2], **SOON)
    demand = Demand(rig, [east, west], 1)
    points = some_of(touches(east, demand, tmp_path / "touches"))
    print(len(points), "points", flush=True)
    codes = Counter[int]()

    def strike(point: str) -> bool:
        asleep = east.start("run", DNM_FAULT=sleep_at(point))
        if not stops(asleep.pid):
            resume_process(asleep)
            return False
        facts = demand.version
        follow(west)
        if demand.version == facts:  # neither had anything to do: it may continue
            resume_process(asleep)
            return False
        before = demand.cluster
        code, message = resume_process(asleep)
        assert demand.cluster == before, (point, code, message)
        codes[code] += 1
        print(point, code, message.splitlines()[-1:], flush=True)
        return True

    walk(demand, points, strike)
    assert codes[75] >= max(1, len(points) // 3)
    print(f"slept={len(points)} codes={dict(codes)} stories={demand.stories} "
          f"seconds={time.monotonic() - began:.0f}")  # fmt: skip
