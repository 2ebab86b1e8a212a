"""Tests of two hosts with one registry in Kubernetes, as real processes. A host is suspended for
longer than its Lease and resumed, has a wrong clock, or never returns.

A host here is a name, a boot and a machine id of its own, and a state directory; nothing but the
cluster is shared. A Lease is valid for one second."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dnm.model.lent import Phase
from tests.night import sample_by_day
from tests.processes import Child, Ended, stops
from tests.proof import story
from tests.proof.harness import World, note_figures

ROUNDS = int(os.environ.get("DNM_PROOF_ROUNDS", "12"))
FINISH = "/sandbox/node-convert/finish"
LEASE = 1.0  # seconds
CLOCKS = {"east": 0.0, "west": 600.0}  # seconds off
WALKED_WITH_FILES = ("kube.read_state", "history.", "registry.time")


class Hosts:
    """Hosts that run dnm for one instance on one cluster."""

    def __init__(self, world: World, *names: str, **settings: Any) -> None:
        self.world = world
        settings = {
            "instance_id": "prod", "registry": "kubernetes", "request_timeout_seconds": 10,
            "yunikorn_url": "", **settings,
        }  # fmt: skip
        sites = {names[0]: story.build(world, **settings)}
        for name in names[1:]:
            sites[name] = world.make_site(name, **{**story.SETTINGS, **settings})
        world.sites = sites

    def job(self, name: str, **details: Any) -> dict[str, Any]:
        site = self.world.sites[name]
        place = site.directory / "host"
        place.mkdir(exist_ok=True)
        number = f"{sum(name.encode()):032x}"
        (place / "machine-id").write_text(f"{number}\n")
        (place / "boot-id").write_text(f"boot of {name}\n")
        job = self.world.job(site, **details)
        moment = site.now().timestamp() + CLOCKS[name]
        job["now"] = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(moment))
        job["constants"] = {
            "dnm.host.place._HOST": name,
            "dnm.host.place._BOOT": str(place / "boot-id"),
            "dnm.host.place._MACHINE_ID": str(place / "machine-id"),
            "dnm.run.lease_view._TIMEOUTS": LEASE / 10,
        }
        return job

    def start(self, *names: str, **details: Any) -> list[Child]:
        return self.world.warm.start(*(self.job(name, **details) for name in names))

    def run(self, name: str, **details: Any) -> Ended:
        return untraced(self.start(name, **details)[0].wait())

    def follow(self, name: str) -> Ended:
        """Plays runs of a host until one acts, after the other host's Lease has expired."""
        ended = self.run(name)
        for _ in range(20):  # on a slow machine, this host too may lose it
            if ended.code != 75:
                break
            time.sleep(LEASE + 0.05)
            ended = self.run(name)
        assert ended.code in (0, 1), ended
        return ended

    @property
    def number(self) -> int:
        secret = self.world.sandbox.get("secrets", "dnm-prod", "dnm") or {}
        return int(secret["metadata"]["annotations"]["dynamic-node-manager/number"])


def untraced(ended: Ended) -> Ended:
    assert "Traceback" not in ended.err, ended
    return ended


# --- asleep -----------------------------------------------------------------------------------


def acting_points(hosts: Hosts) -> Iterator[tuple[str, int]]:
    """Yields the fault points of a run after it has read its registry, as (name, occurrence): the
    first of each name, and all writes."""
    log = hosts.world.log
    log.unlink(missing_ok=True)
    assert hosts.run("east", log=str(log)).code == 0
    hosts.world.settle()
    passed: Counter[str] = Counter()
    for point in log.read_text().split():
        passed[point] += 1
        is_new = passed[point] == 1 or point.startswith(("kube.write", "converter.start"))
        if passed["kube.read_state"] and is_new and not point.startswith(WALKED_WITH_FILES):
            yield point, passed[point]


def of_the_cluster(world: World) -> tuple[Any, ...]:
    """Returns what a suspended host must not change: registry, limits, ledger, converter calls."""
    secret = (world.sandbox.get("secrets", "dnm-prod", "dnm") or {})["data"]
    text = base64.b64decode(secret["registry.json"])
    queues = world.sandbox.get("configmaps", "yunikorn-configs", "yunikorn") or {}
    return text, queues["data"], queues["metadata"]["annotations"], story.calls(world, "--set")


@pytest.mark.parametrize("phase", sample_by_day(2, [Phase.RELEASING, None]))
def test_host_suspended_longer_than_its_lease_changes_nothing(
    world: World, phase: Phase | None
) -> None:
    """Suspends a host at a fault point of its run; another host acts; then the first resumes. Plays
    two parts of the story, at every sixth point, or at each with DNM_PROOF_ROUNDS=200."""
    hosts = Hosts(world, "east", "west")
    site = world.sites["east"]
    while phase and not any(node.phase is phase for node in site.registry.nodes.values()):
        story.play_events(world)
        assert hosts.run("east").code == 0
        world.settle()
        world.tick(story.MINUTE)
    story.play_events(world)
    before = world.checkpoint()
    refused = 0
    points = list(acting_points(hosts))[:: 1 if ROUNDS >= 200 else 6]
    for point, number in points:
        world.restore(before)
        (asleep,) = hosts.start("east", fault=f"{point}:before:stop:{number}")
        if not stops(asleep.pid):  # this time it renewed its Lease less often
            assert point == "kube.write_lease" and untraced(asleep.wait()).code == 0, point
            continue
        hosts.follow("west")
        later, number_before = of_the_cluster(world), hosts.number
        asleep.send(signal.SIGCONT)
        ended = untraced(asleep.wait())
        world.settle()
        assert of_the_cluster(world) == later and hosts.number == number_before, (point, ended)
        refused += ended.code == 75
        story.check_always(world)
    assert refused > 2
    note_figures(f"asleep, {phase}", steps=len(points), refused=refused)
    world.tick(story.MINUTE)
    for _ in range(story.LONGEST):
        if story.is_over(world):
            break
        story.play_events(world)
        hosts.follow("west")
        world.settle()
        world.tick(story.MINUTE)
    assert story.is_over(world) and not world.sandbox.violations


# --- gone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", sample_by_day(2, ["batch", "k8s"]))
def test_host_that_dies_with_its_converter_is_followed_by_the_other_host(
    world: World, direction: str
) -> None:
    """The other host cannot see the dead host's converter. It starts no second one before the time
    limit, and decides by the converter's list and by Kubernetes."""
    hosts = Hosts(world, "east", "west")
    site = world.sites["east"]
    while direction == "batch" and not any(
        node.phase is Phase.RELEASING for node in site.registry.nodes.values()
    ):
        story.play_events(world)
        assert hosts.run("east").code == 0
        world.settle()
        world.tick(story.MINUTE)
    with world.gate(FINISH) as gate:
        (run,) = hosts.start("east")
        gate.await_arrivals()
        world.warm.ask("kill_all")
        assert run.wait().was_killed
    begun, died = calls_of_idle_run(world), world.sandbox.clock.now()
    minutes = waited = 0
    while not story.is_over(world):
        minutes += 1
        assert minutes < 2 * story.LONGEST
        story.play_events(world)
        hosts.follow("west")
        world.settle()
        story.check_always(world)
        waited += changing_calls(world) == begun
        world.tick(story.MINUTE)
    assert waited > 5  # by a clock that is ten minutes fast, of a quarter of an hour or more
    machines = world.sandbox.batch.machines.values()
    assert all(machine.place == "batch" for machine in machines)
    note_figures(
        f"a host died while it converted to {direction}", minutes_without_a_second_call=waited,
        minutes_until_all_is_back=round((world.sandbox.clock.now() - died) / 60),
    )  # fmt: skip


def calls_of_idle_run(world: World) -> int:
    """Counts converter calls, waiting until the number is stable after a kill."""
    before = -1
    while (count := changing_calls(world)) != before:
        before = count
        time.sleep(0.5)
    return count


def changing_calls(world: World) -> int:
    """Counts the converter calls that change nodes. The first return of each node does not count,
    since the other host starts that at once if the dead host did not."""
    calls = [call.arguments for call in world.sandbox.conversion.calls]
    asked = [call for call in calls if "--list" not in call]
    return len(asked) - len({call for call in asked if "batch" in call})
