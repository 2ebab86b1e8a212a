"""Races for real: processes that start at the same instant, and two hosts on one cluster.

Pairs: whoever gets the lock works, the other is turned away at once, while the first is still at
work (the sandbox holds its first answer back until the other has ended, so that no scheduler of
processes can make the two follow each other). Hosts: they share nothing but the cluster.
"""

from __future__ import annotations

import os
import random

import pytest

from dnm.model.lent import Phase
from dnm.queues.tree import parse_tree
from tests.night import by_night, night, one_in
from tests.processes import Ended
from tests.proof import story
from tests.proof.harness import World, note_figures, wait_for_any
from tests.site import QUEUE, Site

LIST_NODES = "^/api/v1/nodes$"

TWO_QUEUES = """\
partitions:
  - name: default
    queues:
      - name: anvil
        resources:
          max: {memory: 1024G, vcore: 512}   # shared
        submitacl: "*"
        queues:
          - name: services
            queues:
              - name: lab
                resources:
                  max: {memory: 100G, vcore: 50}
              - name: dev
                resources:
                  guaranteed: {memory: 32G, vcore: 8}
                  max: {memory: 320G, vcore: 80}
"""
LAB_QUEUE = "root.anvil.services.lab"


def run_pair(world: World) -> Ended:
    """Two at once; how the one that worked ended."""
    with world.gate(LIST_NODES) as gate:
        pair = world.warm.start(world.job(world.site), world.job(world.site))
        turned_away = wait_for_any(pair)
        gate.await_arrivals()
        working = next(child for child in pair if child is not turned_away)
        assert working.is_running(), "one worked before the other came"
        ended = turned_away.wait()
        assert ended == Ended(75, "", ""), ended
    worked = working.wait()
    assert worked.code == 0 and "Traceback" not in worked.err, worked
    return worked


@pytest.mark.parametrize("pairs", by_night(12, 200))
def test_of_two_runs_that_start_together_one_acts(world: World, pairs: int) -> None:
    """They play the story, over and over."""
    story.build(world)
    acted = stories = 0
    for _ in range(pairs):
        if story.is_over(world):
            stories += 1
            story.add_demand(world)
        story.play_events(world)
        acted += "action=" in run_pair(world).out
        story.check_always(world)
        story.check_limits(world)
        world.tick(story.MINUTE)
    story.play_on(world)
    assert story.calls(world, "--set", "k8s") == stories + 1
    assert story.calls(world, "--set", "batch") == 2 * (stories + 1)
    note_figures("pairs", pairs=pairs, stories=stories, acting=acted)


# --- two hosts ---------------------------------------------------------------------------------


class Hosts:
    """Two sites on one cluster, run at random: one, or both at once, now and then killed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.owned: dict[str, set[str]] = {name: set() for name in world.sites}
        self.heard = self.kills = self.together = 0

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            if not story.unfinished(self.world) and self.random.random() < 0.2:
                story.add_demand(self.world)
            story.play_events(self.world)
            names = self.random.choice([["east"], ["west"], ["east", "west"], ["west", "east"]])
            self.run(names, may_kill=True)

    def settle(self) -> None:
        """Nobody kills any more, both run at once, until everything is given back."""
        for _ in range(3 * story.LONGEST):
            story.play_events(self.world)
            self.run(["east", "west"], may_kill=False)
            if story.is_over(self.world):
                return
        raise AssertionError({name: site.registry for name, site in self.world.sites.items()})

    def run(self, names: list[str], may_kill: bool) -> None:
        world = self.world
        jobs = []
        for name in names:
            kill = may_kill and self.random.random() < 0.25
            fault = f"#{self.random.randint(5, 60)}:after:kill" if kill else ""
            jobs.append(world.job(world.sites[name], fault=fault))
        ended = [child.wait() for child in world.warm.start(*jobs)]
        world.settle()
        self.kills += sum(end.was_killed for end in ended)
        self.together += len(names) == 2
        assert all(end.was_killed or end.code in (0, 1) for end in ended), ended
        assert not any("Traceback" in end.err for end in ended), ended
        self.check()
        world.tick(story.MINUTE / 2)

    def check(self) -> None:
        """Nothing broken, nobody's node twice, and each host returns only what it lent."""
        story.check_always(self.world)
        lent = {name: set(site.registry.nodes) for name, site in self.world.sites.items()}
        assert not lent["east"] & lent["west"], lent
        for call in self.world.sandbox.conversion.calls[self.heard :]:
            if "batch" in call.arguments:
                host, node = call.environment["DNM_INSTANCE"], call.arguments[-1]
                assert node in self.owned[host], f"{host} returned {node}: {self.owned}"
        self.heard = len(self.world.sandbox.conversion.calls)
        for name, nodes in lent.items():
            self.owned[name] |= nodes
            self.owned[{"east": "west", "west": "east"}[name]] -= nodes


def out_of_slurm(world: World) -> int:
    return sum(machine.place != "batch" for machine in world.sandbox.batch.machines.values())


@pytest.mark.parametrize("twins", by_night(3, 12))
def test_of_two_hosts_with_one_name_one_acts(world: World, twins: int) -> None:
    """They share an instance_id and nothing else but the cluster. Each time nobody has acted yet,
    and both have looked before either goes on."""
    settings = {"instance_id": "prod", "yunikorn_url": ""}
    east = story.build(world, **settings)
    west = world.make_site("west", **{**story.SETTINGS, **settings})
    world.sites = {"east": east, "west": west}
    begin, acted = world.checkpoint(), [0, 0]
    for _ in range(twins):
        world.restore(begin)
        with world.gate(LIST_NODES) as gate:
            children = world.warm.start(world.job(east), world.job(west))
            gate.await_arrivals(2)
        ends = [child.wait() for child in children]
        world.settle()
        acts = [bool(site.registry.requests) for site in (east, west)]
        assert sorted(acts) == [False, True], ends
        active, refused = acts.index(True), acts.index(False)
        acted[active] += 1
        assert (ends[active].code, ends[refused].code) == (0, 2), ends
        for site in (east, west):
            assert f"{site.directory}/state" in ends[refused].err, ends[refused]
        assert story.calls(world, "--set", "k8s") == 1
        assert out_of_slurm(world) <= story.CAP and not world.sandbox.violations
    # One of them plays the story to its end, and the other stands by all the while.
    hosts = [east, west] if acts[0] else [west, east]
    world.sites = {site.directory.name: site for site in hosts}
    for _ in range(story.LONGEST):
        story.play_events(world)
        ends = [child.wait() for child in world.warm.start(*map(world.job, hosts))]
        assert [end.code for end in ends] == [0, 2], ends
        assert out_of_slurm(world) <= story.CAP
        assert not hosts[1].registry.nodes and not hosts[1].registry.requests
        world.tick(story.MINUTE)
        if story.is_over(world):
            break
    story.check_end(world)
    note_figures("two hosts, one name", rounds=twins, east=acted[0], west=acted[1])


def limits_of(world: World, queue: str, baseline: dict[str, int]) -> None:
    """Invariant 2 over both hosts, once both have had an undisturbed run."""
    expected = dict(baseline)
    for site in world.sites.values():
        for entry in site.registry.nodes.values():
            if entry.phase is Phase.SERVING and entry.queue.startswith(queue):
                for resource in expected:
                    expected[resource] += entry.counted[resource]
    found = parse_tree(world.sandbox.queues_text()).queues[queue].max
    assert dict(found) == expected, (queue, found, expected)


def make_hosts(world: World, **west: str) -> None:
    story.build(world, instance_id="east", max_converted_nodes=3)
    world.sandbox.add_machines(4)
    world.sites = {"east": world.site}
    world.make_site("west", **{**story.SETTINGS, "max_converted_nodes": 3, **west})


@night
@pytest.mark.parametrize("seed", range(3))
def test_two_hosts_lend_to_one_queue(world: World, seed: int) -> None:
    """Both see the same pods, both convert for them, each returns its own."""
    seed = int(os.environ.get("DNM_PROOF_SEED", seed))
    make_hosts(world)
    hosts = Hosts(world, seed)
    hosts.play(40)
    hosts.settle()
    limits_of(world, QUEUE, {"vcore": 80_000, "memory": 320 * 10**9})
    story.check_end(world)
    note_figures(f"two hosts, one queue, seed {seed}", runs=hosts.together, kills=hosts.kills)


@pytest.mark.parametrize("seed", one_in(2, range(2)))
def test_two_hosts_lend_to_two_queues_below_one_limit(world: World, seed: int) -> None:
    """They share the limit above their queues, and the machines."""
    make_hosts(world, monitored_namespaces="lab")
    world.sandbox.set_queues(TWO_QUEUES)
    world.sandbox.add_namespace("lab")
    west = world.sites["west"]
    Site.write(west.directory / "queues.json", f'{{"lab": "{LAB_QUEUE}"}}\n')
    hosts = Hosts(world, seed)
    for rounds in (20, 5):
        names = world.sandbox.add_pods(2, "lab", queue=LAB_QUEUE, cpu="60", memory="90G")
        hosts.play(rounds)
        world.sandbox.finish_pods(names, "lab")
        hosts.settle()
    limits_of(world, "root.anvil", {"vcore": 512_000, "memory": 1024 * 10**9})
    assert world.sandbox.queues_text() == TWO_QUEUES
    assert all(m.place == "batch" for m in world.sandbox.batch.machines.values())
    note_figures(f"two hosts, two queues, seed {seed}", runs=hosts.together, kills=hosts.kills)
