"""`dnm explain` for a node, a queue, and pods with different reasons to wait."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dnm.cli.look.explain import names_like
from dnm.cli.terminal.output import shown
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.site import build_site
from dnm.model.observed import Backoff
from dnm.model.orders import Pause
from dnm.model.reason import Reason
from dnm.run.registry import save_registry
from tests.processes import wait_until
from tests.site import QUEUE, Site, a_workshop_site, set_up_workshop


class Scene:
    """A site with a lent node in use, a queue at its cap, and pods that no lend can help."""

    def __init__(self, directory: Path) -> None:
        self.sandbox = sandbox = Sandbox(directory / "sandbox").start()
        set_up_workshop(sandbox, 4)
        self.site = Site(sandbox, directory / "site", max_converted_nodes=1)
        sandbox.add_pods(90, "dev", queue=QUEUE, cpu="4", memory="16G", name="session")
        for _ in range(4):
            sandbox.tick(60)
            self.site.run()
        sandbox.add_pods(1, "dev", queue=QUEUE, cpu="500", memory="1G", name="huge")
        picky = {"nodeSelector": {"disk": "ssd"}}
        gated = {"schedulingGates": [{"name": "site.example/licence"}]}
        for name, spec in (("picky", picky), ("gated", gated)):
            sandbox.add_pods(1, "dev", queue=QUEUE, cpu="1", memory="1G", name=name, spec=spec)
        sandbox.tick(60)

    def explain(self, name: str, *options: str) -> str:
        done = self.site.command("explain", name, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout


pytestmark = pytest.mark.xdist_group("explain")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("scene"))
    yield made
    made.sandbox.stop()


def test_explain_shows_phase_reason_and_history_of_a_node(scene: Scene) -> None:
    [node] = scene.site.lent()
    short, answer = scene.explain(node), scene.explain(node, "--wide")
    assert len(short.splitlines()) <= 4 and "Last transitions" not in short
    assert f"node {node} is serving since" in answer and "pods are running on it" in answer
    assert "what would change that: the end of its pods" in answer
    assert f"{node} lent" in answer and f"{node} joined" in answer


def test_explain_names_the_instance_that_lent_a_node(scene: Scene, tmp_path: Path) -> None:
    [node] = scene.site.lent()
    other = Site(scene.sandbox, tmp_path, instance_id="other")
    answer = " ".join(other.command("explain", node).stdout.split())
    assert f"which instance {scene.site.config.instance_id} has lent" in answer


def test_explain_shows_decision_and_limits_of_a_queue(scene: Scene) -> None:
    assert len(scene.explain(QUEUE).splitlines()) == 2
    answer = scene.explain(QUEUE, "--wide")
    assert "a cap is reached" in answer and "max_converted_nodes" in answer
    assert "a higher cap in the configuration" in answer
    assert (
        "wanted: " in answer
        and "headroom: " in answer
        and "pods that lack capacity or quota" in answer
    )


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        pytest.param("dev/huge-0", "an empty node of type a has", id="too-big"),
        pytest.param("dev/picky-0", "no new node would help it", id="selector"),
        pytest.param("dev/gated-0", "held back by a scheduling gate", id="gate"),
    ],
)
def test_explain_shows_why_no_node_helps_a_pod(scene: Scene, pod: str, text: str) -> None:
    names = {f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in
             scene.sandbox.objects("pods")}  # fmt: skip
    if pod not in names:
        [pod] = [name for name in names if name.startswith(pod.rpartition("-")[0])]
    assert text in scene.explain(pod)


def test_explain_shows_quota_and_cap_for_a_waiting_pod(scene: Scene) -> None:
    pending = [
        p["metadata"]["name"]
        for p in scene.sandbox.objects("pods")
        if not p["spec"].get("nodeName") and p["metadata"]["name"].startswith("session")
    ]
    answer = scene.explain(f"dev/{pending[-1]}")
    assert f"quota: {QUEUE} has " in answer or "capacity: " in answer
    assert "an empty node of type a could run it" in answer and "a cap is reached" in answer


def test_explain_shows_the_node_of_a_running_pod(scene: Scene) -> None:
    pod = next(p for p in scene.sandbox.objects("pods") if p["spec"].get("nodeName"))
    name = f"dev/{pod['metadata']['name']}"
    assert f"pod {name} is on node {pod['spec']['nodeName']}" in scene.explain(name)


@pytest.mark.parametrize(
    ("name", "named"),
    [("a1003", ["a003"]), ("zzz", ["a001", "a002", "a003", "a004", "a005", "2 more"])],
)
def test_similar_names_are_listed_and_the_remainder_counted(name: str, named: list[str]) -> None:
    assert names_like(name, [f"a{n:03}" for n in range(7, 0, -1)])[: len(named)] == named


@pytest.mark.parametrize(
    "name",
    ["a999", "dev/nobody", "pod/nobody", "event/none", "node/dev", "queue/a001", "o/p/q", "/", "/a",
     QUEUE[:-1]],
)  # fmt: skip
def test_explain_suggests_names_for_an_unknown_object(scene: Scene, name: str) -> None:
    done = scene.site.command("explain", name)
    assert done.returncode == 2 and f"{name!r} was not found" in done.stderr
    assert "NAMESPACE/POD" in done.stderr and "`dnm history" in done.stderr
    assert (f"Existing names: {QUEUE}" in done.stderr) is (name == QUEUE[:-1]), "nearly right"


def test_explain_names_a_namespace_that_is_also_a_queue_once(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    build_site(sandbox, 3, "none")
    site = Site(sandbox, tmp_path / "site", queue_system="none")
    done = site.command("explain", "dve")
    assert done.returncode == 2 and "Existing names: dev. Write" in done.stderr
    assert "queue document" not in done.stderr


def test_explain_lists_the_pods_that_keep_a_node(scene: Scene) -> None:
    """Pods are counted by namespace, and the three oldest are named. DaemonSet pods are omitted,
    because they do not prevent a return."""
    [node] = scene.site.lent()
    scene.site.run()
    on_it = [
        p["metadata"]
        for p in scene.sandbox.objects("pods")
        if p["spec"].get("nodeName") == node and not p["metadata"].get("ownerReferences")
    ]
    oldest = min(item["creationTimestamp"] for item in on_it)
    wide = scene.site.command("status", "--wide").stdout
    for answer in (scene.explain(node), wide):
        assert f"{len(on_it)} pods on it: {len(on_it)} of dev; dev/session-" in answer
        assert f"and {len(on_it) - 3} more; the oldest since {oldest}" in answer
    assert "pods on it" not in scene.site.command("status").stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("dev", f"namespace dev has queue {QUEUE}; lent to it: a001", id="namespace"),
        pytest.param("stars", "event stars: 3 nodes for namespace dev", id="event"),
        pytest.param("event/stars", "event stars: 3 nodes for namespace dev", id="of-a-kind"),
        pytest.param("a003", "node a003 is not lent: ", id="not-lent"),
        pytest.param("k01", "node k01 is not lent: Kubernetes has a Node of", id="never-lent"),
        pytest.param("pod/session-0", "pod dev/session-0 is on node", id="pod-alone"),
        pytest.param("dev/ended", "pod dev/ended has failed\n  Evicted: of memory", id="failed"),
        pytest.param("dev/refused", "pod dev/refused was rejected\n", id="rejected"),
    ],
)
def test_explain_describes_namespaces_events_and_other_objects(
    scene: Scene, name: str, text: str
) -> None:
    sandbox, word = scene.sandbox, name.rpartition("/")[2]
    if word == "k01":
        sandbox.add_node(word, cpu="4", memory="16G")
    if word == "stars":
        scene.site.command("event", "add", "stars", "--namespace", "dev", "--nodes", "3", "--from",
                           "2036-03-02 12:00", "--until", "13:00")  # fmt: skip
    statuses = {
        "ended": {"phase": "Failed", "reason": "Evicted", "message": "of memory"},
        "refused": {"phase": "Pending", "reason": "ApplicationRejected"},
    }
    if word in statuses:
        (pod,) = sandbox.add_pods(1, "dev", queue=QUEUE, cpu="1", memory="1G", name=word)
        sandbox.edit("pods", pod, lambda entry: entry["status"].update(statuses[word]), "dev")
        name, text = f"dev/{pod}", text.replace(f"dev/{word}", f"dev/{pod}")
    assert text in scene.explain(name)


def test_explain_writes_nothing(scene: Scene) -> None:
    state = scene.site.config.state_dir
    before = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
    scene.explain(QUEUE)
    assert {p.name: p.read_bytes() for p in state.iterdir() if p.is_file()} == before


def test_explain_prints_json(scene: Scene) -> None:
    done = scene.site.command("explain", QUEUE, "-o", "json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["kind"]) == ("dnm.explain/1", "queue")
    assert document["code"] == "CAPPED" and document["numbers"]["pending_pods"] > 0
    assert document["history"][-1]["kind"] in ("queue", "request", "limit")


ALL = "3 of 3 nodes of the type a can be lent now"
FEWER = "of 3 nodes of the type a can be lent now: 3 are available, and"
# Settings -> output of `dnm check`, and of `dnm nodes` if it is less than the table.
SUPPLIES = {
    "nothing bounds them": ({}, ALL),
    "a floor": ({"batch_floor": "2"}, f"1 {FEWER} batch_floor of type a allows no more"),
    "a floor in percent": (
        {"batch_floor": "100%%"}, f"0 {FEWER} batch_floor of type a allows no more"
    ),
    "a cap": ({"max_converted_nodes": "2"}, f"2 {FEWER} max_converted_nodes allows no more"),
    "a cap in percent": (
        {"max_converted_nodes": "67%%"}, f"2 {FEWER} max_converted_nodes allows no more"
    ),
    "looking on": ({"max_converted_nodes": "0"}, f"0 {FEWER} max_converted_nodes allows no more"),
    "both": (
        {"batch_floor": "1", "max_converted_nodes": "2"},
        f"2 {FEWER} batch_floor of type a and max_converted_nodes allow no more",
    ),
    "excluded": ({"exclude_nodes": "a002"}, "2 of 3 nodes of the type a can be lent now"),
}  # fmt: skip


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with three idle machines and no waiting pods."""
    sandbox.clock.set(time.time())
    set_up_workshop(sandbox, 3)
    return Site(sandbox, tmp_path)


@pytest.mark.parametrize("name", SUPPLIES)
def test_check_and_nodes_report_the_nodes_available_for_lending(site: Site, name: str) -> None:
    settings, message = SUPPLIES[name]
    site.change(**settings)
    assert f"✓ batch nodes: {message}\n" in site.command("check", "--wide").stdout
    output = site.command("nodes").stdout.splitlines()[-1]
    assert (output == message) == ("are available" in message)


UNKNOWN = "the number of nodes is not known, so that dnm lends no more"
# Settings -> output of `dnm check` for each cap.
SHARES = {
    "a number": ({"max_converted_nodes": "2"}, "✓ caps: {} = 2: at most 2 of {}, 66.7 %"),
    "more than there are": (
        {"max_converted_nodes": "30"}, "✓ caps: {} = 30: at most 3 of {}, 100 %"
    ),
    "a percentage": ({"max_converted_nodes": "5%%"}, "✓ caps: {} = 5%: at most 1 of {}, 33.3 %"),
    "and a floor leaves less": (
        {"max_converted_nodes": "30", "batch_floor": "50%%"},
        "✓ caps: {} = 30: at most 3 of {}, 100 %; batch_floor leaves 1 of them",
    ),
    "and a floor leaves more": (
        {"max_converted_nodes": "1", "batch_floor": "50%%"},
        "✓ caps: {} = 1: at most 1 of {}, 33.3 %",
    ),
    "and a floor of a partition leaves less": (
        {"max_converted_nodes": "30", "batch_floor": "partition batch: 3"},
        "✓ caps: {} = 30: at most 3 of {}, 100 %; batch_floor leaves 0 of them",
    ),
    "none": ({"max_converted_nodes": "0"}, "✓ caps: {} = 0: at most 0 of {}, 0 %"),
    "of an unknown number": (
        {"max_converted_nodes": "5%%", "node_convert_path": "/bin/false"},
        f"! caps: {{}} = 5%: {UNKNOWN}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARES)
def test_check_reports_the_nodes_behind_a_percentage_cap(site: Site, name: str) -> None:
    settings, message = SHARES[name]
    site.change(**settings)
    message = message.format("max_converted_nodes", "3 batch nodes")
    assert f"{message}\n" in site.command("check", "--wide").stdout.replace(" → fix the", "\n")


def test_check_reports_the_nodes_behind_a_namespace_percentage(site: Site) -> None:
    site.write(site.path, f"{site.path.read_text()}[namespace:dev]\nmax_nodes = 67%\n")
    assert (
        "✓ caps: [namespace:dev] max_nodes = 67%: at most 2 of 3 batch nodes, 66.7 %"
        in site.command("check", "--wide").stdout
    )


NOT_LENT = {
    "nobody wants it": ({}, "it could be lent: no queue and no order needs one more of type a now"),
    "a floor": ({"batch_floor": "3"}, "it stays: batch_floor of type a allows no more"),
    "it is excluded": ({"exclude_nodes": "a001"}, "it must not be lent: exclude_nodes names it"),
}


@pytest.mark.parametrize("name", NOT_LENT)
def test_explain_reports_why_a_batch_node_is_not_lent(site: Site, name: str) -> None:
    settings, message = NOT_LENT[name]
    site.change(**settings)
    done = site.command("explain", "a001")
    assert done.stdout == f"node a001 is not lent: Slurm has it as IDLE, and {message}\n", (
        done.stderr
    )


def test_explain_names_the_queue_that_wants_an_unlent_node(site: Site) -> None:
    site.sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16Gi")
    answer = site.command("explain", "node/a001").stdout
    assert f"it could be lent: {QUEUE} needs more of type a" in answer


SOON = datetime.now(UTC) + timedelta(minutes=50)
BACKS_OFF = {"a": Backoff(failures=9, until=SOON, ask_at_most=1)}
PAUSED = Pause(since=datetime(2026, 1, 1, tzinfo=UTC), reason="maintenance")
# Registry, nodes of an order -> the reason why a001 is not lent; {} is the order.
ORDERED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an order": ({}, "", "it could be lent: {} needs more of type a"),
    "an order of it": ({}, "a001", "it could be lent: {} needs more of type a"),
    "an order of another": (
        {}, "a002", "it could be lent: no queue and no order needs one more of type a now"
    ),
    "a back-off": (
        {"backoffs": BACKS_OFF}, "",
        f"it is not lent now: {Reason.BACKOFF.text}: 9 of type a, until {SOON:%H:%M:%S} UTC; "
        "`dnm reset a` ends it; {} needs more of type a",
    ),
    "a pause": (
        {"pause": PAUSED}, "",
        f"it is not lent now: {Reason.PAUSED.text}: maintenance; {{}} needs more of type a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERED)
def test_explain_names_the_order_that_wants_a_node_and_its_obstacle(site: Site, name: str) -> None:
    recorded, nodes, message = ORDERED[name]
    words = ("--node", nodes) if nodes else ("1",)
    assert site.command("lend", *words, "--namespace", "dev").returncode == 0
    registry = site.registry
    save_registry(site.config, replace(registry, **recorded))
    answer = site.command("explain", "a001").stdout.partition("IDLE, and ")[2]
    assert answer == f"{message.format(registry.orders[0].id)}\n"


def test_explain_names_an_unreachable_batch_side(site: Site) -> None:
    site.change(node_convert_path="/bin/false")
    answer = site.command("explain", "a001").stdout
    assert "the batch nodes have not been read: " in answer


RETURNED = {"an administrator returns it": False, "a run has fenced it": True}


@pytest.mark.parametrize("name", RETURNED)
def test_explain_shows_the_recorded_phase_and_the_next_decision(
    sandbox: Sandbox, tmp_path: Path, name: str
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    for _ in range(3):
        site.run()
        sandbox.tick(1)
    node = site.lent()[0]
    assert site.command("return", node).returncode == 0
    for pod in [pod for pod, at in site.pods().items() if at == node]:
        sandbox.delete("pods", pod, "dev")
    sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16G")  # otherwise all pods would end
    if RETURNED[name]:
        assert site.command("run").returncode == 0  # on the clock of `explain`
    entry = site.registry.nodes[node]
    wait_until(lambda: time.time() > entry.since.timestamp())  # the sandbox's clock is ahead
    first, later = site.command("explain", node).stdout.splitlines()[:2]
    assert first == f"node {node} is {entry.phase.value} since {shown(entry.since, seconds=True)}"
    assert later.startswith("decision now: return: ")
    assert ("return: will be fenced and" in later) is not RETURNED[name]


def test_batch_floors_are_listed_with_the_restrictions(site: Site) -> None:
    site.change(batch_floor="2, partition gpu: 50%", max_converted_nodes="25%")
    restrictions = site.command("status").stdout.partition("Restrictions\n")[2].splitlines()
    share = "  max_converted_nodes: at most 25 % of the nodes that Slurm has, "
    assert share + "unknown yet" in restrictions
    assert "  batch_floor of type a: 2 nodes stay in Slurm" in restrictions
    assert "  batch_floor of partition gpu: 50 % of its nodes stay in Slurm" in restrictions


def test_percentage_cap_shows_nodes_after_a_run_counted_them(site: Site) -> None:
    site.change(max_converted_nodes="67%")
    site.sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16Gi")
    assert site.command("run").returncode == 0
    restrictions = site.command("status").stdout.partition("Restrictions\n")[2]
    assert "at most 67 % of the nodes that Slurm has, 2 nodes" in restrictions
    assert "all: 2 of 2 nodes lent" in restrictions
    output = site.command("status", "-o", "prometheus").stdout
    assert re.search(r'^dnm_cap_nodes\{.*scope="all"\} 2$', output, re.MULTILINE), output


def test_status_counts_pods_in_their_grace_separately(site: Site) -> None:
    site = Site(site.sandbox, site.directory, pending_grace_seconds=3600)
    site.sandbox.add_pods(7, "dev", queue=QUEUE, cpu="4", memory="16Gi")
    assert site.command("run").returncode == 0
    assert "pending (0 pods, 7 in their grace)" in site.command("status").stdout
