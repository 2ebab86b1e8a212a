"""Tests of which idle nodes are returned, which stay and why. No return causes a new request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.observed import StalledPods
from dnm.model.pod import TaskGroup
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import Verdict
from dnm.sizing.caps import NodePool
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.releases import Candidates, Releases, choose_releases, judge_fenced
from dnm.sizing.sizing import count_young_pods, size_queues
from tests.scenes import (
    DEV,
    NOW,
    SMALL,
    bound,
    coming,
    config,
    demand,
    entry,
    lent,
    node,
    node_supply,
    pods,
    policy,
    size,
    tree,
)

NODE = size(128, 256)
GOES, NEEDED, READY = Reason.IDLE_LONG_ENOUGH, Reason.NEEDED, Reason.KEPT_READY


def row(name: str, reasons: dict[str, ReasonText], part: str = "", **scene: Any) -> Any:
    """Builds a case: node -> reason of its verdict, a part of the sentence, and the scene."""
    return pytest.param(reasons, part, scene, id=name)


def with_nodes(*names: str, **changes: Any) -> dict[str, Any]:
    return {
        "nodes": [lent(name) for name in names],
        "entries": {name: entry(name, **changes) for name in names},
    }


TWO: dict[str, Any] = {
    "nodes": [lent("a001"), lent("a002")],
    "entries": {"a001": entry("a001", serves=9000), "a002": entry("a002", serves=5000)},
}


def limited(cores: float, gb: float, nodes: int) -> dict[str, Any]:
    """Returns limits of these cores and GB, raised by the size of so many lent nodes."""
    return {"limits": tree(dev=size(cores + 128 * nodes, gb + 256 * nodes))}


TABLE = [
    row("nothing needs it", {"a001": GOES}, **with_nodes("a001"), **limited(80, 320, 1)),
    row("its quota is used by pods elsewhere", {"a001": NEEDED},
        "root.anvil.dev has 80 cpu for 84", **with_nodes("a001"), **limited(80, 320, 1),
        pods=bound(20, SMALL, "k1") + pods(1, SMALL, name="x", ago=5), more=[node("k1", 128, 512)]),
    row("one of two is enough for the quota; the later lent goes", {"a001": NEEDED, "a002": GOES},
        "root.anvil.dev has 80 cpu for 120", **TWO, **limited(80, 320, 2),
        pods=bound(29, SMALL, "k1") + pods(1, SMALL, name="x", ago=5),
        more=[node("k1", 128, 512)]),
    row("a new pod needs its free capacity", {"a001": NEEDED}, "1 pod", **with_nodes("a001"),
        **limited(800, 3200, 1), pods=pods(1, SMALL, ago=5)),
    row("the same pod fits elsewhere", {"a001": GOES}, **with_nodes("a001"),
        **limited(800, 3200, 1), pods=pods(1, SMALL, ago=5), more=[node("k1")]),
    row("of two idle nodes one holds the pods", {"a001": NEEDED, "a002": GOES},
        **TWO, **limited(800, 3200, 2), pods=pods(8, SMALL, ago=5)),
    row("the emptier goes, however long it is lent", {"a001": GOES, "a002": NEEDED},
        **TWO, **limited(800, 3200, 2), pods=pods(8, SMALL, ago=5) + bound(1, size(2, 2), "a002",
            is_daemonset=True, is_managed=False)),
    row("a pod that the node can't take does not hold it", {"a001": GOES}, **with_nodes("a001"),
        **limited(800, 3200, 1),
        pods=pods(1, SMALL, ago=5, shape={"node_selector": (("zone", "b"),)})),
    row("min_nodes keep it ready", {"a001": READY}, "min_nodes of dev is 1", **with_nodes("a001"),
        **limited(80, 320, 1),
        config=config(namespaces={"dev": policy("dev", DEV, "a", min_nodes=1)})),
    row("min_nodes keep one of two", {"a001": READY, "a002": GOES}, "min_nodes",
        **TWO, **limited(80, 320, 2),
        config=config(namespaces={"dev": policy("dev", DEV, "a", min_nodes=1)})),
    row("defect 7: it goes only if the headroom mark holds without it", {"a001": NEEDED},
        "its demand exceeds the headroom share of its limit: root.anvil.dev has 100 cpu for 96",
        **with_nodes("a001"), **limited(100, 400, 1), pods=bound(24, SMALL, "k1"),
        more=[node("k1", 128, 512)], config=config(headroom=0.95)),
    row("defect 7: at the mark it goes", {"a001": GOES}, **with_nodes("a001"),
        **limited(100, 400, 1), pods=bound(95, size(1, 1), "k1"), more=[node("k1", 128, 512)],
        config=config(headroom=0.95)),
    row("a gang application must fit the limit at once", {"a001": NEEDED},
        "a gang application of root.anvil.dev requests more cpu", **with_nodes("a001"),
        **limited(80, 1000, 1), pods=bound(1, SMALL, "k1", task_group="w",
            task_groups=(TaskGroup(name="w", min_member=25, min_resource={**SMALL, "pods": 1}),)),
        more=[node("k1", 128, 512)]),
    *(row(f"of 208 cores 80 stay for a gang of {members} times four", {"a001": refusal},
          "gang" if refusal is NEEDED else "", **with_nodes("a001"), **limited(80, 743, 1),
          pods=bound(1, size(1, 1), "k1", task_groups=(TaskGroup(name="w", min_member=members,
              min_resource={"cpu": 4000, "pods": 1}),)))
      # YuniKorn has rejected the last one, so it keeps no node.
      for members, refusal in ((20, GOES), (21, NEEDED), (52, NEEDED), (53, GOES))),
    row("the last node of a queue that has nothing of its own", {"a001": GOES},
        **with_nodes("a001"), limits=tree(dev=NODE)),
    row("a queue with a limit that the node does not raise", {"a001": GOES}, **with_nodes("a001"),
        limits=tree(dev={**size(999, 999), "nvidia.com/gpu": 4})),
    row("pods with other reasons to wait fit elsewhere", {"a001": GOES},
        **with_nodes("a001"), **limited(871, 9743, 1), pods=pods(3, SMALL, ago=700),
        more=[node("k1")]),
    row("a pod that came a moment ago, beside some that wait for something else", {"a001": NEEDED},
        **with_nodes("a001"), **limited(871, 9743, 1),
        pods=pods(3, SMALL, ago=700) + pods(1, SMALL, ago=1, name="fresh")),
    row("what pods elsewhere use of the limit that it brings holds it", {"a001": NEEDED},
        "root.anvil.dev would have 80 cpu, and 84 cpu is used", **with_nodes("a001"),
        **limited(80, 1000, 1), pods=bound(21, SMALL, "k1"), more=[node("k1", 128, 512)]),
    row("what they use and have without it does not", {"a001": GOES}, **with_nodes("a001"),
        **limited(80, 1000, 1), pods=bound(20, SMALL, "k1"), more=[node("k1", 128, 512)]),
    row("nor what is used beyond the limit already", {"a001": GOES}, **with_nodes("a001"),
        **limited(80, 1000, 1), pods=bound(53, SMALL, "k1"), more=[node("k1", 256, 1024)]),
    row("a limit that is below what the node brings does not count it yet", {"a001": NEEDED},
        "does not count all of its nodes yet", **with_nodes("a001"), limits=tree(dev=size(8, 16))),
    row("defect 28: the counted size decides, not the current one", {"a001": GOES},
        **with_nodes("a001", counted=size(64, 128)), limits=tree(dev=size(124, 1000)),
        pods=bound(15, SMALL, "k1"), more=[node("k1")]),
    row("pods that lack quota are not taken to wait for something else", {"a001": NEEDED},
        "root.anvil.dev has 80 cpu for 281", **with_nodes("a001"), **limited(80, 1000, 1),
        pods=bound(20, SMALL, "k1") + pods(1, size(100, 16), ago=900)
        + pods(1, size(101, 16), ago=800, name="q"), more=[node("k1", 80, 512)]),
    row("a node on its way makes it spare", {"a001": GOES}, **with_nodes("a001"),
        **limited(800, 3200, 1), pods=pods(1, SMALL, ago=5), incoming=coming(1)),
    row("a pod that waits for another type of node does not hold it", {"a001": GOES},
        **with_nodes("a001"), **limited(800, 3200, 1),
        pods=pods(1, {**SMALL, "nvidia.com/gpu": 1}, ago=5000),
        config=config(namespaces={"dev": policy("dev", DEV, "a", "g")})),
    row("nor do pods of a queue that is not monitored", {"a001": GOES}, **with_nodes("a001"),
        limits=tree(dev=size(928, 3456), lab={}),
        pods=pods(1, SMALL, ago=5000, queue="root.anvil.lab")),
    row("another namespace's pods hold it, where they may use it", {"a001": NEEDED}, "1 pod",
        **with_nodes("a001"), limits=tree(dev=size(928, 3456), lab={}),
        pods=pods(1, SMALL, ago=5, namespace="lab", app="l"),
        config=config(namespaces={"dev": policy("dev", DEV, "a"), "lab": policy("lab",
            "root.anvil.lab", "a")})),
]  # fmt: skip


def decide(scene: dict[str, Any], at_most: int = 99) -> tuple[Releases, Any, Any, NodeSupply]:
    conf = scene.get("config", config())
    queues = scene["limits"]
    result = demand(scene.get("pods", ()), conf, queues)
    there = node_supply(
        [*scene["nodes"], *scene.get("more", ())], scene["entries"], scene.get("incoming", ())
    )
    asked = Candidates(names=tuple(scene["entries"]), at_most=at_most)
    return choose_releases(conf, result, queues, there, asked), conf, result, there


def without(
    scene: dict[str, Any], conf: Any, every: Any, there: NodeSupply, away: Any
) -> dict[NodePool, int]:
    """Returns how many nodes dnm would request after the nodes `away` have left."""
    limits = {}
    for path, limit in scene["limits"].items():
        left = dict(limit.max)
        for name in away:
            if path in ("root.anvil", DEV):
                for resource in left:
                    left[resource] -= there.lent[name].counted.get(resource, 0)
        limits[path] = msgspec.structs.replace(limit, max=left)
    after = msgspec.structs.replace(
        there,
        nodes=tuple(item for item in there.nodes if item.name not in away),
        lent={name: lent_node for name, lent_node in there.lent.items() if name not in away},
    )
    return size_queues(conf, count_young_pods(every), limits, after).wanted()


@pytest.mark.parametrize(("reasons", "part", "scene"), TABLE)
def test_idle_node_is_released_or_kept_with_a_reason(
    reasons: dict[str, ReasonText], part: str, scene: dict[str, Any]
) -> None:
    chosen, conf, result, there = decide(scene)
    document = {name: verdict.reason for name, verdict in chosen.verdicts.items()}
    assert document == reasons, {n: v.sentence for n, v in chosen.verdicts.items()}
    assert set(chosen.go) == {name for name, reason in reasons.items() if reason is GOES}
    assert any(part in verdict.sentence for verdict in chosen.verdicts.values()), [
        verdict.sentence for verdict in chosen.verdicts.values()
    ]
    assert chosen.stalled == {}
    assert without(scene, conf, result, there, chosen.go) == without(scene, conf, result, there, ())


def test_type_with_the_longest_idle_node_is_released_first() -> None:
    scene: dict[str, Any] = {
        "nodes": [lent(name) for name in ("a001", "a002", "g001")],
        "entries": {
            "a001": entry("a001", idle=700),
            "a002": entry("a002", idle=900),
            "g001": entry("g001", idle=800, namespace="gpu", queue="root.anvil.gpu"),
        },
        **limited(80, 320, 2),
    }
    chosen, *_ = decide(scene, at_most=2)
    assert chosen.go == ("a001", "a002")
    assert chosen.verdicts["g001"].reason is Reason.BUDGET


# --- pods that wait for something else --------------------------------------------------------


def test_pods_that_ignore_an_idle_node_keep_it_for_its_idle_time_only() -> None:
    """The pods did not start although capacity and quota were free for the whole idle time."""
    stuck = pods(3, SMALL, ago=700)
    scene = {**with_nodes("a001"), **limited(800, 3200, 1), "pods": stuck}
    chosen, conf, result, _ = decide(scene)
    assert chosen.go == ("a001",)
    ((fingerprint, stalled),) = chosen.stalled.items()
    assert stalled == StalledPods(count=3, until=stuck[0].created)
    assert fingerprint == result.groups[0].fingerprint
    # The record of them prevents a request in the next run; without it the run would request one.
    queues = scene["limits"]
    later = demand(stuck, conf, queues, stalled=chosen.stalled)
    assert later.groups == () and later.stalled == chosen.stalled
    assert size_queues(conf, later, queues, node_supply()).wanted() == {}
    assert size_queues(conf, result, queues, node_supply()).wanted() != {}


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param({"pods": pods(1, SMALL, ago=300)}, id="pods younger than the idle time"),
        pytest.param(
            {"pods": pods(1, SMALL, ago=5000), "serves": 60},
            id="a node that joined a minute ago may be enough",
        ),
    ],
)
def test_pods_that_may_still_start_keep_the_node(scene: dict[str, Any]) -> None:
    names = ("a001", "a002") if "serves" in scene else ("a001",)
    entries = {"a001": entry("a001")}
    if "serves" in scene:
        entries["a002"] = entry("a002", idle=30, serves=scene["serves"])
    conf, queues = config(), tree(dev=size(800, 3200))
    # Two hosts are needed at once, so each of the nodes is needed.
    some = [
        msgspec.structs.replace(pod, shape=msgspec.structs.replace(pod.shape, host_ports=(80,)))
        for pod in scene["pods"] * len(names)
    ]
    there = node_supply([lent(name) for name in names], entries)
    asked = Candidates(names=("a001",), at_most=9)
    chosen = choose_releases(conf, demand(some, conf, queues), queues, there, asked)
    assert chosen.verdicts["a001"].reason is NEEDED and chosen.stalled == {}


def test_pods_too_large_for_a_returned_node_request_no_other_node() -> None:
    """The node type is declared with 128 cores, but the node has 126. A pod of 127 stays pending,
    the node is returned, and dnm lends no other one for it."""
    stuck = pods(1, size(127, 16), ago=5000)
    scene: dict[str, Any] = {
        "nodes": [lent("a001", more={"cpu": 126_000})],
        "entries": {"a001": entry("a001", counted=size(126, 256))},
        "limits": tree(dev=size(926, 3456)),
        "pods": stuck,
    }
    chosen, conf, result, _ = decide(scene)
    assert chosen.go == ("a001",) and list(chosen.stalled) == [result.groups[0].fingerprint]
    later = demand(stuck, conf, scene["limits"], stalled=chosen.stalled)
    assert size_queues(conf, later, scene["limits"], node_supply()).wanted() == {}


# --- a fence is taken off again ---------------------------------------------------------------

WANTS = f"{DEV} needs 1 node of type a"


@pytest.mark.parametrize(
    ("some", "fenced", "stay", "settings"),
    [
        pytest.param([], 1, {}, {}, id="nothing-wants-it"),
        pytest.param(pods(1, SMALL, ago=1), 1, {"a001": WANTS}, {}, id="a-pod-a-second-old"),
        pytest.param(pods(1, SMALL), 2, {"a002": WANTS}, {}, id="the-one-that-was-lent-first"),
        pytest.param(pods(20, SMALL, ago=1), 3,
            {"a002": WANTS, "a003": f"{DEV} needs 2 nodes of type a"}, {},
            id="no-more-than-wanted"),
        pytest.param(bound(1, SMALL, "a001"), 2, {"a001": "1 pod landed on it before the fence"},
            {}, id="a-pod-landed-before"),
        pytest.param([], 2, {"a002": WANTS},
            {"namespaces": {"dev": policy("dev", DEV, "a", min_nodes=1)}}, id="min-nodes-raised"),
    ],
)  # fmt: skip
def test_demand_lifts_the_fence_of_needed_nodes_only(
    some: list[Any], fenced: int, stay: dict[str, str], settings: dict[str, Any]
) -> None:
    conf, queues = config(**settings), tree(dev=size(80, 320))
    names = [f"a00{number + 1}" for number in range(fenced)]
    entries = {
        name: entry(name, since=NOW - timedelta(seconds=60 * number))
        for number, name in enumerate(names)
    }
    there = node_supply([lent(name) for name in names], leaving=names)
    judged = judge_fenced(conf, demand(some, conf, queues), queues, there, entries)
    document = {
        name: (verdict.verdict, verdict.reason, verdict.detail) for name, verdict in judged.items()
    }
    kept, returned = (Verdict.KEEP, Reason.DEMAND_RETURNED), (Verdict.REVERT, Reason.FENCED, "")
    assert document == {name: (*kept, stay[name]) if name in stay else returned for name in names}
