"""`dnm explain`: a node, a queue, and pods that wait for one thing each; over the sandbox's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.site import QUEUE, WORKSHOP_QUEUES, Site


class Scene:
    """A lent node in use; a queue that has reached a cap; pods that can't be helped."""

    def __init__(self, directory: Path) -> None:
        self.sandbox = sandbox = Sandbox(directory / "sandbox").start()
        sandbox.set_queues(WORKSHOP_QUEUES)
        sandbox.yunikorn.restart()
        for namespace in ("dev", "other"):
            sandbox.add_namespace(namespace)
        sandbox.add_machines(4)
        self.site = Site(sandbox, directory / "site", max_converted_nodes=1)
        sandbox.add_pods(90, "dev", queue=QUEUE, cpu="4", memory="16G", name="session")
        for _ in range(4):
            sandbox.tick(60)
            self.site.run()
        sandbox.add_pods(1, "dev", queue=QUEUE, cpu="500", memory="1G", name="huge")
        sandbox.add_pods(
            1,
            "dev",
            queue=QUEUE,
            cpu="1",
            memory="1G",
            name="picky",
            spec={"nodeSelector": {"disk": "ssd"}},
        )
        sandbox.add_pods(
            1, "dev", queue=QUEUE, cpu="1", memory="1G", name="gated",
            spec={"schedulingGates": [{"name": "site.example/licence"}]},
        )  # fmt: skip
        sandbox.tick(60)

    def explain(self, name: str, *options: str) -> str:
        done = self.site.command("explain", name, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout


pytestmark = pytest.mark.xdist_group("explain")  # what the fixture has built is built once


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("scene"))
    yield made
    made.sandbox.stop()


def test_a_node(scene: Scene) -> None:
    [node] = scene.site.lent()
    short, answer = scene.explain(node), scene.explain(node, "--wide")
    assert len(short.splitlines()) <= 4 and "Last transitions" not in short
    assert f"node {node} is serving since" in answer and "pods are running on it" in answer
    assert "what would change that: its pods ending" in answer
    assert f"{node} lent" in answer and f"{node} joined" in answer


def test_a_queue(scene: Scene) -> None:
    assert len(scene.explain(QUEUE).splitlines()) == 2
    answer = scene.explain(QUEUE, "--wide")
    assert "a cap is reached" in answer and "max_converted_nodes" in answer
    assert "a higher cap in the configuration" in answer
    assert "wanted: " in answer and "headroom: " in answer and "pods that lack something" in answer


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param("dev/huge-0", "an empty node of type a has", id="too-big"),
        pytest.param("dev/picky-0", "no new node would help it", id="selector"),
        pytest.param("dev/gated-0", "held back by a scheduling gate", id="gate"),
    ],
)
def test_a_pod_that_no_node_helps(scene: Scene, pod: str, said: str) -> None:
    names = {f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in
             scene.sandbox.objects("pods")}  # fmt: skip
    if pod not in names:
        [pod] = [name for name in names if name.startswith(pod.rpartition("-")[0])]
    assert said in scene.explain(pod)


def test_a_pod_that_waits_for_quota_and_for_a_brake(scene: Scene) -> None:
    pending = [
        p["metadata"]["name"]
        for p in scene.sandbox.objects("pods")
        if not p["spec"].get("nodeName") and p["metadata"]["name"].startswith("session")
    ]
    answer = scene.explain(f"dev/{pending[-1]}")
    assert f"quota: {QUEUE} has " in answer or "room: " in answer
    assert "an empty node of type a would take it" in answer and "a cap is reached" in answer


def test_a_pod_that_runs(scene: Scene) -> None:
    pod = next(p for p in scene.sandbox.objects("pods") if p["spec"].get("nodeName"))
    name = f"dev/{pod['metadata']['name']}"
    assert f"pod {name} is on node {pod['spec']['nodeName']}" in scene.explain(name)


@pytest.mark.parametrize(
    "name", ["a999", "dev/nobody", "pod/nobody", "event/none", "node/dev", "queue/a001", "o/p/q"]
)
def test_what_is_not_there_was_not_found_and_what_is_is_named(scene: Scene, name: str) -> None:
    done = scene.site.command("explain", name)
    assert done.returncode == 2 and f"{name!r} was not found" in done.stderr
    assert "NAMESPACE/POD" in done.stderr and "`dnm history" in done.stderr


def test_a_name_that_is_nearly_right_is_guessed(scene: Scene) -> None:
    done = scene.site.command("explain", QUEUE[:-1])
    assert done.returncode == 2 and f"there are {QUEUE}" in done.stderr


def test_whose_pods_hold_a_node(scene: Scene) -> None:
    """By namespace, the three oldest by name; those of DaemonSets hold none. As `explain` sees it
    now, and as `status --wide` has it of the last run."""
    [node] = scene.site.lent()
    scene.site.run()
    on_it = [
        p["metadata"]
        for p in scene.sandbox.objects("pods")
        if p["spec"].get("nodeName") == node and not p["metadata"].get("ownerReferences")
    ]
    oldest = min(one["creationTimestamp"] for one in on_it)
    wide = scene.site.command("status", "--wide").stdout
    for answer in (scene.explain(node), wide):
        assert f"{len(on_it)} pods on it: {len(on_it)} of dev; dev/session-" in answer
        assert f"and {len(on_it) - 3} more; the oldest since {oldest}" in answer
    assert "pods on it" not in scene.site.command("status").stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("dev", f"namespace dev has queue {QUEUE}; lent to it: a001", id="namespace"),
        pytest.param("stars", "event stars: 3 nodes for namespace dev", id="event"),
        pytest.param("event/stars", "event stars: 3 nodes for namespace dev", id="of-a-kind"),
        pytest.param("a003", "node a003 is not lent: ", id="not-lent"),
        pytest.param("pod/session-0", "pod dev/session-0 is on node", id="pod-alone"),
        pytest.param("dev/ended", "pod dev/ended has failed\n  Evicted: of memory", id="failed"),
        pytest.param("dev/refused", "pod dev/refused was rejected\n", id="rejected"),
    ],
)
def test_anything_else(scene: Scene, name: str, said: str) -> None:
    sandbox, word = scene.sandbox, name.rpartition("/")[2]
    if word == "stars":
        scene.site.command("event", "add", "stars", "--namespace", "dev", "--nodes", "3", "--from",
                           "2036-03-02 12:00", "--until", "13:00")  # fmt: skip
    statuses = {
        "ended": {"phase": "Failed", "reason": "Evicted", "message": "of memory"},
        "refused": {"phase": "Pending", "reason": "ApplicationRejected"},
    }
    if word in statuses:
        (pod,) = sandbox.add_pods(1, "dev", queue=QUEUE, cpu="1", memory="1G", name=word)
        sandbox.edit("pods", pod, lambda one: one["status"].update(statuses[word]), "dev")
        name, said = f"dev/{pod}", said.replace(f"dev/{word}", f"dev/{pod}")
    assert said in scene.explain(name)


def test_it_writes_nothing(scene: Scene) -> None:
    state = scene.site.config.state_dir
    before = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
    scene.explain(QUEUE)
    assert {p.name: p.read_bytes() for p in state.iterdir() if p.is_file()} == before


def test_the_document(scene: Scene) -> None:
    done = scene.site.command("explain", QUEUE, "-o", "json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["kind"]) == ("dnm.explain/1", "queue")
    assert document["code"] == "CAPPED" and document["numbers"]["pending_pods"] > 0
    assert document["history"][-1]["kind"] in ("queue", "request", "limit")
