"""Tests of failures that last a whole run: the API is down or returns nonsense, a namespace is
unreadable, a converter hangs, a disk is full. No node or record is lost, and no tenant loses a
node. Once the failure ends, the story of the proofs reaches its right end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dnm.model.errors import ExitCode
from dnm.model.lent import Phase
from tests.night import night, sample_by_day
from tests.processes import Ended, Warm
from tests.proof import story
from tests.proof.harness import Checkpoint, World, note_figures
from tests.site import QUEUE, Site

pytestmark = pytest.mark.xdist_group("bad days")  # good worlds are found once, in one process
HURRY = {"dnm.kube.session._FIRST_PAUSE": 0.001, "dnm.kube.session._LONGEST_PAUSE": 0.01}
LAB = "root.anvil.services.notebook"
PLAYED = (0, 1, 4, 5)  # minutes in which the story acts: convert, join, release, return


def error_line(ended: Ended) -> str:
    """Returns the one line that a failed run printed; it must not be a traceback."""
    lines = (ended.out + ended.err).splitlines()
    assert len(lines) == 1 and "Traceback" not in ended.err, ended
    return lines[0]


def error_lines(ended: Ended) -> list[str]:
    """Returns the errors of a failed run: different lines, each about one request."""
    lines = (ended.out + ended.err).splitlines()
    assert lines and len({*lines}) == len(lines), ended
    assert all(line.startswith("error: can't ") for line in lines), ended
    return lines


class Days:
    """Copies of the story's world before each of its minutes, made once for all tests here."""

    def __init__(self, directory: Path, warm: Warm) -> None:
        self.world = World(directory / "world", warm)
        site = story.build(self.world)
        impatient = site.path.with_name("impatient.ini")
        site.write(
            impatient,
            site.path.read_text().replace("[lab]", "[lab]\nrequest_timeout_seconds = 0.2"),
        )
        self.environment = {**os.environ, "DNM_CONFIG": str(impatient)}
        self.before: list[Checkpoint] = []
        self.good: set[bytes] = set()
        while not story.is_over(self.world):
            story.play_events(self.world)
            self.before.append(self.world.checkpoint())
            story.play_minute(self.world)

    def at(self, minute: int) -> World:
        self.world.restore(self.before[minute])
        return self.world

    def run_into(self, **fault: Any) -> Ended:
        """Plays a run with this fault and a short time-out, then ends the fault."""
        self.world.sandbox.fault(**fault)
        ended = self.world.run(constants=HURRY, environment=self.environment)
        self.world.sandbox.faults.clear()
        self.world.settle()
        return ended


@pytest.fixture(scope="module")
def days(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Days]:
    made = Days(tmp_path_factory.mktemp("days"), warm)
    yield made
    note_figures("bad days", runs=made.world.runs, worlds=len(made.good))
    made.world.close()


# --- the API -----------------------------------------------------------------------------------

FAULTS: dict[str, dict[str, Any]] = {
    "down": {"kind": "down"},
    "500": {"kind": "status", "code": 500},
    "503": {"kind": "status", "code": 503, "retry_after": 1},
    "429": {"kind": "status", "code": 429, "retry_after": 1},
    "403": {"kind": "status", "code": 403},
    "401": {"kind": "status", "code": 401},
    "409": {"kind": "status", "code": 409},
    "slow": {"kind": "slow", "seconds": 0.3},
    "cut": {"kind": "cut"},
    "lost": {"kind": "lost"},
    "garbage": {"kind": "garbage"},
    "trickle": {"kind": "trickle", "seconds": 0.1},
}
WRITES = ("PUT", "PATCH", "POST")
NARROW: dict[str, dict[str, Any]] = {  # the requests that fail
    "all": {}, "writes": {"methods": WRITES}, "every other": {"chance": 0.5},
}  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "minute", "which"), sample_by_day(41, product(FAULTS, PLAYED, NARROW))
)
def test_api_that_fails_for_a_run_loses_nothing(
    days: Days, fault: str, minute: int, which: str
) -> None:
    """Checks that the run ends with messages, and that the story continues to its right end."""
    world = days.at(minute)
    before = story.calls(world, "--set")
    ended = days.run_into(**FAULTS[fault], path="^/api", **NARROW[which])
    # A conflict of the Lease means that another run took it in between.
    assert ended.code in ((0, 1, ExitCode.LOCKED) if fault == "409" else (0, 1)), ended
    if which == "all" and fault != "409":  # only the answer to a write
        error_lines(ended)
        assert story.calls(world, "--set") == before
    story.check_always(world)
    world.tick(story.MINUTE)
    story.play_on(world, days.good)


# JSON that parses but is not the answer: from a proxy, a captive portal, a wrong server.
NO_ANSWERS: dict[str, str] = {
    "nothing": "{}",
    "a Status with 200": '{"kind":"Status","apiVersion":"v1","status":"Success","code":200}',
    "no items": '{"kind":"%s","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":null}',
    "no version": '{"kind":"%s","apiVersion":"v1","metadata":{},"items":[]}',
    "another kind": '{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},'
    '"items":[]}',
}
ASKED = {  # what a run reads, and the kind that it must be
    "^/api/v1/pods$": "PodList",
    "^/api/v1/nodes$": "NodeList",
    "^/api/v1/nodes/": "Node",
    "/configmaps/": "ConfigMap",
    "^/ws/v1/(partition|validate-conf)": "x",  # dnm waits for the checksum: test_writer.py
}


@pytest.mark.parametrize(
    ("asked", "minute", "answer"), sample_by_day(19, product(ASKED, PLAYED, NO_ANSWERS))
)
def test_answer_that_is_no_list_starts_no_action(
    days: Days, asked: str, minute: int, answer: str
) -> None:
    """Checks that dnm calls no converter and fences no node without a list. The story continues to
    its right end."""
    world, body = days.at(minute), NO_ANSWERS[answer]
    before, cordoned = story.calls(world, "--set"), story.cordoned(world)
    message = body % ASKED[asked] if "%s" in body else body
    ended = days.run_into(kind="garbage", path=asked, body=message)
    assert ended.code in (0, 1, 2), ended
    if ASKED[asked].endswith("List"):
        assert ended.code == 1 and story.calls(world, "--set") == before, ended
        assert story.cordoned(world) <= cordoned
    story.check_always(world)
    world.tick(story.MINUTE)
    story.play_on(world, days.good)


LEASE_VERBS = ("get", "create", "patch")


def test_unreadable_namespace_does_not_stop_the_other_namespaces(world: World) -> None:
    """Checks that `lab` gets its node. For `dev` dnm lends and returns nothing, and the first run
    reports why. Once the namespace is readable again, dnm continues."""
    site = story.build(world, monitored_namespaces="dev, lab", max_converted_nodes=4)
    Site.write(site.directory / "queues.json", json.dumps({"dev": QUEUE, "lab": LAB}))
    sandbox = world.sandbox
    everything = [("list", "nodes", "*"), ("get", "nodes", "*"), ("patch", "nodes", "*"),
                  ("get", "configmaps", "yunikorn"), ("update", "configmaps", "yunikorn"),
                  ("list", "persistentvolumeclaims", "*"), ("list", "persistentvolumes", "*"),
                  ("list", "daemonsets", "*"), ("list", "pods", "lab"),
                  *((verb, "leases", "dnm") for verb in LEASE_VERBS)]  # fmt: skip
    sandbox.access.restrict(everything)
    labs = sandbox.add_pods(2, "lab", queue=LAB, cpu="100", memory="200G")
    for minute in range(4):
        ended = world.run(constants=HURRY)
        assert ended.code == 1, ended
        assert ("namespace dev" in ended.err) == (minute == 0), ended  # reported once
        world.tick(story.MINUTE)
    assert all(pod["spec"].get("nodeName") for pod in sandbox.objects("pods", "lab"))
    assert {entry.namespace for entry in site.registry.nodes.values()} == {"lab"}
    sandbox.finish_pods(labs, "lab")
    for _ in range(4):
        world.tick(story.MINUTE)
        world.run(constants=HURRY)
    phases = {entry.phase for entry in site.registry.nodes.values()}
    assert phases == {Phase.SERVING}, "an unreadable pod of dev may run on them"
    sandbox.access.rules = None
    story.play_on(world)


# --- the converter -----------------------------------------------------------------------------

IMPATIENT = {
    "dnm.converter.ending.TERM_GRACE": 0.1,
    "dnm.converter.node_list._LIST_TIMEOUT": 0.5,
}


def hung_processes(world: World) -> list[str]:
    """Returns the ids of the processes that a run has left."""
    return [str(pid) for pid in world.warm.ask("descendants")]


@pytest.fixture
def hanging(world: World) -> World:
    story.build(world, convert_timeout_seconds=1)
    return world


def play_up_to(world: World, direction: str) -> None:
    for _ in range(0 if direction == "k8s" else 5):
        story.play_minute(world)


@pytest.mark.parametrize(
    ("direction", "when"), sample_by_day(2, product(["k8s", "batch"], ["before", "after"]))
)
def test_hanging_converter_is_ended_with_its_children(
    hanging: World, direction: str, when: str
) -> None:
    """The converter and its child ignore SIGTERM and hang, before or after the work. dnm ends both,
    reports it, checks the node and retries."""
    world = hanging
    play_up_to(world, direction)
    world.sandbox.behave(direction=direction, hang=when)
    ended = world.run(constants=IMPATIENT)
    assert ended.code == 1 and "ran out of its time" in ended.err, ended
    assert not hung_processes(world)
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("fault", [
    "converter.signal:after:kill",
    *(pytest.param(f"converter.signal:{item}", marks=night)
      for item in ("before:fail:2", "after:kill:2", "before:fail", "after:fail:2")),
])  # fmt: skip
def test_run_with_a_fault_while_it_ends_a_converter_is_completed(
    hanging: World, fault: str
) -> None:
    """Kills the run, or makes it fail, at each of its two signals to a hanging converter."""
    world = hanging
    play_up_to(world, "batch")
    world.sandbox.behave(direction="batch", hang="before")
    ended = world.run(constants=IMPATIENT, fault=fault)
    assert ended.was_killed if "kill" in fault else ended.code == 1, ended
    world.tick(story.MINUTE)
    assert world.run(constants=IMPATIENT).code in (0, 1)
    story.check_always(world)
    world.warm.ask("kill_all")
    world.sandbox.conversion._operations.clear()
    world.tick(story.MINUTE)
    story.play_on(world)


@pytest.mark.parametrize("effect", sample_by_day(3, ["kill", "", "fail"]))
def test_excessive_converter_output_does_not_fill_the_disk(world: World, effect: str) -> None:
    """dnm truncates the output file while the converter writes it, even if that fails once."""
    story.build(world)
    world.sandbox.behave(direction="k8s", stderr="what it is doing\n" * 500)
    ended = world.run(
        constants={"dnm.converter.output._OUTPUT_LIMIT": 2000},
        fault=f"converter.cut_output:before:{effect}" if effect else "",
    )
    assert ended.was_killed if effect == "kill" else ended.code == 0, ended
    world.settle()
    outputs = (world.site.directory / "state" / "converter").glob("*.err")
    assert effect or all(path.stat().st_size < 2000 for path in outputs)
    world.tick(story.MINUTE)
    story.play_on(world)


# --- the disk ---------------------------------------------------------


def test_registry_write_refused_by_the_system_is_reported(days: Days) -> None:
    """The system itself refuses the write: files are limited to less than the registry's size."""
    world = days.at(1)
    ended = world.run(largest_file=600)
    assert ended.code == 2 and "can't be written" in error_line(ended), ended
    assert {write.resource for write in world.sandbox.requests.writes()} <= {"leases"}
    story.play_on(world, days.good)
