"""Tests of moving a node to another queue without a reboot. After a kill at any visible write, or a
disturbance between two runs, one of the two queues has it. A pod of the other queue never runs on
it once it is open (`world.py` and `edges.py` check each step)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dnm.model.lent import LentNode, Phase
from dnm.model.lent_state import Failed
from tests.proof.edges import Weather
from tests.proof.play import Play
from tests.proof.world import owner_of

DEV, LAB = 0, 1
NODE = "a001"
# The visible effects of a killed run.
SEEN = ("registry.rename", "kube.patch_node", "kube.write_config_map")
MOVE_RUNS = 3
LONGEST = 12


class Story:
    """A world in which a node of dev is idle, and pods of lab wait."""

    def __init__(self, directory: Path) -> None:
        self.play = Play(directory, 1, is_shared=False, rule="moves")
        self.play.add_pods(2, DEV, 6)
        self.run_until(lambda: self.entry.phase is Phase.SERVING and bool(self.pods_on_it()))
        self.play.finish_pods(9)
        self.run_until(lambda: self.entry.idle_since is not None)
        self.play.wait(60)
        self.play.add_pods(2, LAB, 7)

    @property
    def entry(self) -> LentNode:
        nodes = self.play.hosts[0].registry().nodes
        return nodes.get(NODE) or LentNode(
            node_type="a", namespace="", queue="", owner="",
            state=Failed(since=self.play.world.now, error="it is not recorded"),
        )  # fmt: skip

    def pods_on_it(self) -> list[str]:
        return [pod.namespace for pod in self.play.world.pods.values() if pod.node == NODE]

    def run(self, strikes: dict[int, str] | None = None) -> None:
        self.play.run(0, {}, strikes or {})
        self.play.check()
        self.play.wait(60)
        self.play.check()

    def run_until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(LONGEST):
            if is_so():
                return
            self.run()
        raise AssertionError(f"not after {LONGEST} runs: {self.entry}")

    def belongs_to_lab(self) -> bool:
        return self.entry.namespace == "lab" and set(self.pods_on_it()) == {"lab"}

    def land_pod(self) -> None:
        """Binds a pod of dev to the node, as a scheduler may that has not seen the fence yet."""
        self.play.add_pods(1, DEV, 2)
        world = self.play.world
        name = next(reversed(world.pods))
        world.pods[name] = msgspec.structs.replace(world.pods[name], node=NODE)


def test_node_moves_in_three_runs_and_runs_pods_of_the_new_queue(tmp_path: Path) -> None:
    story = Story(tmp_path)
    away = _count_away(story)
    phases, owners = [], []
    for _ in range(MOVE_RUNS):
        story.run()
        phases.append(story.entry.phase)
        owners.append(owner_of(story.play.world.nodes[NODE]))
    assert phases == [Phase.MOVING, Phase.MOVING, Phase.SERVING]
    assert owners == ["dev", "lab", "lab"] and story.belongs_to_lab()
    assert _count_away(story) == away, "Slurm lent no other node"


def _count_away(story: Story) -> int:
    return sum(machine.place != "batch" for machine in story.play.world.machines.values())


def test_move_killed_at_any_write_is_continued(tmp_path: Path) -> None:
    """Plays the move once for a kill after each write. A kill before a write leaves the same state
    as one after the previous write."""
    plays = tmp_path / "points"
    plays.mkdir()
    story, strikes = Story(plays), []
    for number in range(MOVE_RUNS):
        points: list[str] = []
        _note_points(story, points)
        strikes += [(number, at) for at, point in enumerate(points) if point.startswith(SEEN)]
    assert len(strikes) > 9
    for index, (number, at) in enumerate(strikes):
        place = tmp_path / str(index)
        place.mkdir()
        story = Story(place)
        for _ in range(number):
            story.run()
        story.run({at: "kill"})
        story.run_until(story.belongs_to_lab)


def _note_points(story: Story, points: list[str]) -> None:
    class Noting(Weather):
        def strike(self, point: str, when: str) -> None:
            points.append(point if when == "after" else "")

    host = story.play.hosts[0]
    story.play._run(host, Noting())
    story.play.wait(60)


def _reapply(story: Story) -> None:
    story.play.reapply()


def _without_lab(story: Story) -> None:
    host = story.play.hosts[0]
    left = {name: namespace for name, namespace in host.config.namespaces.items() if name != "lab"}
    host.config = msgspec.structs.replace(host.config, namespaces=left)


BETWEEN: dict[str, tuple[Callable[[Story], object], tuple[str, str]]] = {
    # the event, and the final owner if it comes after the fence, or after the exchange
    "a pod of its old queue lands": (Story.land_pod, ("dev", "dev")),
    "the second queue is not monitored any more": (_without_lab, ("dev", "dev")),
    "its demand goes": (lambda story: story.play.finish_pods(9), ("dev", "lab")),
    "the document is applied anew": (_reapply, ("lab", "lab")),
    "the document is edited": (lambda story: story.play.edit(0, 1), ("lab", "lab")),
    "an administrator lifts the fence": (lambda story: story.play.uncordon(0), ("dev", "lab")),
    "the registry is gone": (
        lambda story: story.play.harm_registry(0, "gone with its previous"),
        ("dev", "lab"),
    ),
}


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("event", BETWEEN)
def test_disturbed_move_ends_in_either_queue(tmp_path: Path, event: str, after: int) -> None:
    happen, owners = BETWEEN[event]
    story = Story(tmp_path)
    for _ in range(after):
        story.run()
    happen(story)
    seen = []
    for _ in range(3):
        story.run()
        seen.append((story.entry.phase, story.entry.namespace))
        if seen[-1][0] is Phase.SERVING:
            break
    owner = owners[after - 1]
    assert seen[-1] == (Phase.SERVING, owner), seen
    assert owner_of(story.play.world.nodes[NODE]) == owner
