"""Runs that are killed while a converter is at work, and converters that die with them.

The converter is a real process; the sandbox holds its second half back, so that it is at work for
exactly as long as the test says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dnm.model.lent import Phase
from tests.night import one_in
from tests.processes import Warm
from tests.proof import story
from tests.proof.harness import World

FINISH = "/sandbox/node-convert/finish"
CALLS = {"k8s": 1, "batch": 2}  # two nodes are asked for at once, and returned one by one
DIRECTIONS = list(CALLS)


def until_converter(world: World, direction: str) -> None:
    """Plays the story up to the run that will call the converter in this direction."""
    if direction == "k8s":
        return
    while not any(e.phase is Phase.RELEASING for e in world.site.registry.nodes.values()):
        story.play_minute(world)
        assert world.runs < story.LONGEST


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_run_killed_while_the_converter_works_on(world: World, direction: str) -> None:
    """The converter outlives it and two more runs, which neither call it again nor count twice."""
    story.build(world, convert_timeout_seconds=600)
    until_converter(world, direction)
    asked = story.calls(world, "--set", direction)
    with world.gate(FINISH) as gate:
        run = world.start()
        gate.await_arrivals(CALLS[direction])
        run.send(signal.SIGKILL)
        assert run.wait().was_killed
        begun = story.calls(world, "--set", direction)
        assert begun > asked
        for _ in range(2):
            world.tick(story.MINUTE)
            assert world.run().code == 0
            assert story.calls(world, "--set", direction) == begun
            story.check_always(world)
            story.check_limits(world)
    world.settle()
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_power_cut_while_the_converter_works(world: World, direction: str) -> None:
    """Run and converter die together, as in a restart of the host. What was claimed dnm finds in
    the list, and goes on with it or returns it; the rest it finds out by looking."""
    story.build(world)
    until_converter(world, direction)
    with world.gate(FINISH) as gate:
        run = world.start()
        gate.await_arrivals(CALLS[direction])
        world.warm.ask("kill_all")
        assert run.wait().was_killed
    lost = [m for m in world.sandbox.batch.machines.values() if m.place == "leaving"]
    assert bool(lost) == (direction == "k8s")  # nobody but dnm goes on with them
    world.tick(story.MINUTE)
    story.play_on(world)


def descends_from(pid: int, above: int) -> bool:
    """Whether a process is another one or below it."""
    while pid > 1 and pid != above:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        pid = int(fields[1])
    return pid == above


@pytest.mark.parametrize("direction", one_in(2, DIRECTIONS))
def test_a_converter_s_whole_group_is_killed_and_its_run_goes_on(
    world: World, direction: str
) -> None:
    """Keeper, converter and its children at once, as the kernel does where memory runs out for a
    group: the run that listens ends, and the next ones take in what was claimed."""
    story.build(world)
    until_converter(world, direction)
    with world.gate(FINISH) as gate:
        run = world.start()
        gate.await_arrivals(CALLS[direction])
        below = [pid for pid in world.warm.ask("descendants") if descends_from(pid, run.pid)]
        for group in {os.getpgid(pid) for pid in below} - {os.getpgid(run.pid)}:
            os.killpg(group, signal.SIGKILL)
        ended = run.wait()
    assert ended.code in (0, 1) and "Traceback" not in ended.err, ended
    lost = [m for m in world.sandbox.batch.machines.values() if m.place == "leaving"]
    assert bool(lost) == (direction == "k8s")  # nobody but dnm goes on with them
    story.check_always(world)
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("direction", one_in(2, reversed(DIRECTIONS)))
def test_a_term_while_the_converter_works_ends_the_run_within_its_grace(
    world: World, direction: str
) -> None:
    story.build(world, shutdown_grace_seconds=0)
    until_converter(world, direction)
    with world.gate(FINISH) as gate:
        run = world.start()
        gate.await_arrivals(CALLS[direction])
        run.send(signal.SIGTERM)
        ended = run.wait()
        assert ended.code == 1 and "still at work" in ended.out + ended.err, ended
        begun = story.calls(world, "--set", direction)
        world.tick(story.MINUTE)
        assert world.run().code == 0
        assert story.calls(world, "--set", direction) == begun
    world.settle()
    world.tick(story.MINUTE)
    story.play_on(world)


def test_a_term_while_a_run_looks_and_plans_ends_it_at_once(world: World) -> None:
    """The node list is held back until the run has ended: nothing is planned, nothing is done."""
    story.build(world)
    with world.gate("/api/v1/nodes") as gate:
        run = world.start()
        gate.await_arrivals()
        run.send(signal.SIGTERM)
        ended = run.wait()
    assert ended.code == 1 and "signal" in ended.out + ended.err, ended
    assert story.calls(world, "--set") == 0
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("direction", one_in(2, DIRECTIONS))
def test_the_real_command_is_killed_in_the_middle(
    warm: Warm, tmp_path: Path, direction: str
) -> None:
    """`python -m dnm.cli run` itself, in real time: another is turned away while it works, and it
    is killed while its converter is at work."""
    world = World(tmp_path / "world", warm, now=time.time() - 3600)
    site = story.build(world)
    until_converter(world, direction)
    world.tick(time.time() - world.sandbox.clock.now())
    command = [sys.executable, "-m", "dnm.cli", "run", "--config", str(site.path)]
    with world.gate(FINISH) as gate, subprocess.Popen(command) as run:
        gate.await_arrivals(CALLS[direction])
        assert site.command("run").returncode == 75
        run.kill()
        assert run.wait() == -signal.SIGKILL
        begun = story.calls(world, "--set", direction)
        assert site.command("run").returncode == 0
        assert story.calls(world, "--set", direction) == begun
    world.tick(story.MINUTE)
    story.play_on(world)
    world.close()


@pytest.mark.parametrize("minutes", one_in(2, [30, 1]))
def test_a_converter_that_nobody_knows_of_is_slow(world: World, minutes: int) -> None:
    """The run is killed between the start of the converter and the note of its process; the
    converter takes longer than a node may take to join. Its nodes are not lost."""
    story.build(world, convert_timeout_seconds=3600)
    with world.gate(FINISH) as gate:
        assert world.run(fault="converter.start:after:kill").was_killed
        gate.await_arrivals()
        for _ in range(minutes):
            world.tick(story.MINUTE)
            assert world.run().code in (0, 1)
            story.check_always(world)
            assert story.calls(world, "--set", "k8s") == 1
    world.settle()
    world.tick(story.MINUTE)
    story.play_on(world)
