"""Tests that an adversary who keeps pods pending does not get all nodes up to the cap.

The adversary acts after each change of the cluster, just before the scheduler, and so decides which
pods are bound. dnm runs once a virtual minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.night import night
from tests.proof.harness import note_figures
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

CAP = 30
STRIKES = 3
PER_RUN = 4
PODS = 20
Adversary = Callable[["Game"], None]


class Game:
    """A queue with enough quota, pods that fit on no node, and thirty nodes to lend."""

    def __init__(self, sandbox: Sandbox, directory: Path, adversary: Adversary) -> None:
        self.sandbox = sandbox
        self.minute = 0
        self.filled_in = -1
        self.adversary = adversary
        self.schedule = sandbox.scheduler.step
        self.binds = True
        sandbox.scheduler.step = self._step  # type: ignore[method-assign]
        queues = WORKSHOP_QUEUES.replace("320G", "3200G").replace("80", "800")
        sandbox.set_queues(queues)
        sandbox.add_node("k001", cpu="4", memory="16G")
        sandbox.add_machine_type("a")
        sandbox.add_machines(CAP + 10)
        sandbox.add_namespace("dev")
        self.site = Site(
            sandbox, directory / "site", max_converted_nodes=CAP, breaker_strikes=STRIKES,
            max_conversions_per_run=PER_RUN, reversion_idle_seconds=600,
            join_timeout_seconds=300,
        )  # fmt: skip
        self.sentences: list[str] = []

    def _step(self) -> None:
        self.adversary(self)
        if self.binds:
            self.schedule()

    def new_nodes(self) -> list[str]:
        names = [node["metadata"]["name"] for node in self.sandbox.objects("nodes")]
        return [name for name in names if name.startswith("a")]

    def fill_up(self, count: int = PODS) -> None:
        """Adds pods up to the number `count`, at most once a minute."""
        missing = count - len(self.sandbox.objects("pods", "dev"))
        if missing > 0 and self.filled_in < self.minute:
            self.sandbox.add_pods(missing, "dev", queue=QUEUE, cpu="8", memory="8G")
            self.filled_in = self.minute

    def delete_pods(self, node: str = "") -> None:
        for pod in self.sandbox.objects("pods", "dev"):
            if not node or pod["spec"].get("nodeName", "").startswith(node):
                self.sandbox.delete("pods", pod["metadata"]["name"], "dev")

    def play(self, minutes: int) -> int:
        """Plays so many minutes. Returns the highest number of nodes that were lent at once."""
        most = 0
        for _ in range(minutes):
            self.sandbox.tick()
            result = self.site.run()
            self.sentences += [verdict.sentence for verdict in result.plan.queues]
            machines = self.sandbox.batch.machines.values()
            most = max(most, sum(machine.place != "batch" for machine in machines))
            self.minute += 1
            self.sandbox.tick(60)
        return most

    def converted(self) -> int:
        """Counts the nodes that dnm has requested from the converter so far."""
        calls = [call.arguments for call in self.sandbox.conversion.calls]
        return sum(
            int(arguments[arguments.index("--num-nodes") + 1])
            for arguments in calls
            if "--num-nodes" in arguments
        )


# --- the adversaries ---------------------------------------------------------------------------


def binds_nothing(game: Game) -> None:
    game.binds = False
    game.fill_up()


def makes_more_pods(game: Game) -> None:
    game.binds = False
    game.fill_up(PODS + 3 * game.minute)


def makes_other_pods(game: Game) -> None:
    """Replaces all pods every minute by pods of another size and number."""
    game.binds = False
    if not any(f"m{game.minute}-0" == p["metadata"]["name"] for p in _pods(game)):
        game.delete_pods()
        count, cpu = PODS + game.minute % 7, str(5 + game.minute % 5)
        game.sandbox.add_pods(
            count, "dev", queue=QUEUE, cpu=cpu, memory="8G", name=f"m{game.minute}"
        )


def taints(game: Game) -> None:
    game.fill_up()
    for name in game.new_nodes():
        node = game.sandbox.get("nodes", name) or {}
        if not any(taint["key"] == "evil" for taint in node["spec"].get("taints") or ()):
            game.sandbox.edit(
                "nodes", name,
                lambda item: item["spec"].setdefault("taints", []).append(
                    {"key": "evil", "effect": "NoSchedule"}
                ),
            )  # fmt: skip


def cordons(game: Game) -> None:
    game.fill_up()
    for name in game.new_nodes():
        game.sandbox.cordon(name)


def keeps_nodes_unready(game: Game) -> None:
    game.fill_up()
    for name in game.new_nodes():
        game.sandbox.set_ready(name, False)


def deletes_nodes(game: Game) -> None:
    game.fill_up()
    for name in game.new_nodes():
        game.sandbox.delete("nodes", name)


def makes_nodes_small(game: Game) -> None:
    """Makes nodes smaller than the request of one pod."""
    game.sandbox.add_machine_type("a", cpu="4", memory="6G")
    game.fill_up()


def lets_pods_run_for_a_minute(game: Game) -> None:
    """Uses each lent node for a minute, then deletes its pods and adds pending ones."""
    game.fill_up()
    running = [pod for pod in _pods(game) if pod["status"].get("phase") == "Running"]
    if game.minute % 2 and running:
        game.delete_pods(node="a")
        game.binds = False
    else:
        game.binds = True


def _pods(game: Game) -> list[dict]:  # type: ignore[type-arg]
    return game.sandbox.objects("pods", "dev")


WAITS = "waiting for something else"
UNUSED = "its lent nodes stayed unused"
BACKS_OFF = "has failed and is in back-off"
# Adversary, minutes, and the reason that dnm reports for the queue at some time.
ADVERSARIES = [
    pytest.param(binds_nothing, 25, WAITS, id="binds-nothing"),
    pytest.param(makes_more_pods, 60, UNUSED, id="makes-more-pods", marks=night),
    pytest.param(makes_other_pods, 110, UNUSED, id="makes-other-pods", marks=night),
    pytest.param(taints, 25, "does not tolerate", id="taints-nodes", marks=night),
    pytest.param(cordons, 30, UNUSED, id="cordons-nodes", marks=night),  # by day: the next test
    pytest.param(
        keeps_nodes_unready, 25, "need no more nodes", id="keeps-nodes-unready", marks=night
    ),
    pytest.param(deletes_nodes, 45, BACKS_OFF, id="deletes-nodes"),
    pytest.param(makes_nodes_small, 25, "has 4 cpu", id="makes-nodes-small", marks=night),
    pytest.param(
        lets_pods_run_for_a_minute,
        30,
        "need no more nodes",
        id="lets-pods-run-once",
        marks=night,
    ),
]


@pytest.mark.parametrize(("adversary", "minutes", "why"), ADVERSARIES)
def test_conversions_stop_long_before_the_cap_despite_an_adversary(
    sandbox: Sandbox, tmp_path: Path, adversary: Adversary, minutes: int, why: str
) -> None:
    game = Game(sandbox, tmp_path, adversary)
    most = game.play(minutes)
    assert 0 < most <= CAP / 3 and game.converted() <= CAP / 2, (most, game.converted())
    assert any(why in sentence for sentence in game.sentences), dict.fromkeys(game.sentences)
    assert not sandbox.violations
    note_figures(f"runaway, {adversary.__name__}", away=most, converted=game.converted(), cap=CAP)


def test_changed_demand_gets_a_single_node_at_a_time_after_a_trip(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """The breaker opened because pods did not use their nodes. Other pods get one node as a test;
    once it is used, the breaker closes."""
    game = Game(sandbox, tmp_path, cordons)
    game.play(20)
    assert game.site.registry.breakers[QUEUE].tripped_at is not None
    game.delete_pods()
    for name in game.new_nodes():
        sandbox.cordon(name, on=False)
    sandbox.add_pods(20, "dev", queue=QUEUE, cpu="100", memory="200G", name="honest")
    game.adversary = lambda game: None
    game.play(12)
    assert QUEUE not in game.site.registry.breakers
    pods = game.site.pods()
    assert all(node for name, node in pods.items() if name.startswith("honest")), pods
