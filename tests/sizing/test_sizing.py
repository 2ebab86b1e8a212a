"""Tests of how quota and free capacity together decide a queue's verdict, with a row for each rule.

Rows named `defect N` have the data of a defect of dnm's predecessor."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import pytest

from dnm.demand.constraints import HOSTNAME
from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.node_type import NodeType, Taint
from dnm.model.pod import (
    Claim,
    DaemonSet,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodShape,
    Requirement,
    TaskGroup,
    Toleration,
)
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import Verdict
from dnm.sizing.caps import UNBOUNDED, ConversionBudget
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.queue_sizing import Sizing, size_without_demand
from dnm.sizing.sizing import size_queues, size_with_demand
from tests.scenes import (
    DEV,
    GB,
    GPU,
    SMALL,
    TAINT,
    TOLERATES_DEV,
    bound,
    budget,
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
    sizing_of,
    tree,
)

CONVERT, WAIT, KEEP = Verdict.CONVERT, Verdict.WAIT, Verdict.KEEP
K1 = [node("k1", 64, 256)]
ON_K1 = bound(16, SMALL, "k1", namespace="other", is_managed=False)
ROOMY = tree(dev=size(1000, 4000))


def term(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(expressions=(Requirement(key=key, operator=operator, values=values),))


def selecting(what: str, value: str) -> dict[str, Any]:
    return {"node_selector": ((f"kubernetes.io/{what}", value),)}


def affinity(key: str = HOSTNAME, anti: bool = True) -> dict[str, Any]:
    """Returns shape fields of a pod that must not, or must, run beside pods of its application."""
    alike = (Requirement(key="app", operator="In", values=("db",)),)
    term = PodAffinityTerm(topology_key=key, anti=anti, expressions=alike)
    return {"pod_affinity": (term,), "labels": (("app", "db"),)}


def tainted(**changes: Any) -> dict[str, NodeType]:
    kinds = config().node_types
    return {**kinds, "a": msgspec.structs.replace(kinds["a"], taints=(TAINT,), **changes)}


def of_type_a(**changes: Any) -> Config:
    kinds = config().node_types
    return config(node_types={**kinds, "a": NodeType(name="a", **changes)})


def agent(namespace: str = "kube-system", cores: float = 20, **shape: Any) -> DaemonSet:
    every = PodShape(request=size(cores, 1), **shape)
    return DaemonSet(namespace=namespace, name="agent", uid="u1", shape=every)


NONE = {Reason.ENOUGH, Reason.NOTHING_HELPS, Reason.ON_THE_WAY, Reason.TOO_YOUNG}
WAITS = {Reason.ON_THE_WAY, Reason.TOO_YOUNG, Reason.CAPPED, Reason.NO_BATCH_NODE}
VERDICTS = {**dict.fromkeys(NONE, KEEP), **dict.fromkeys(WAITS, WAIT)}


def row(
    name: str, reason: ReasonText, part: str = "", wanted: int | dict[str, int] = 1, **scene: Any
) -> Any:
    """Builds a case: the expected reason, a part of the sentence (about the queue or a pod that no
    node helps), and the number of nodes; then the scene of pods, nodes and others. By default,
    limits are high."""
    return pytest.param(reason, part, wanted, {"limits": ROOMY, **scene}, id=name)


ENOUGH, NOTHING_HELPS = Reason.ENOUGH, Reason.NOTHING_HELPS
FREE, QUOTA, BOTH = Reason.LACKS_NODES, Reason.LACKS_QUOTA, Reason.LACKS_BOTH
CARD = "nvidia.com/gpu"
BROKEN = Taint(key="broken", effect="NoSchedule")
DEV_TAINT = Taint(key="dedicated", value="dev", effect="NoSchedule")
FULL = {"cpu": 1000}  # it has no free capacity, and no pod would fill it
THREE_LENT = {name: entry(name) for name in ("a001", "a002", "a003")}
TWO_LENT = {name: entry(name) for name in ("a001", "a002")}
LAB = "root.anvil.lab"
DEV_AND_LAB = {"dev": policy("dev", DEV, "a"), "lab": policy("lab", LAB, "a")}
BESIDE = pods(1, SMALL, shape={**affinity(anti=False), "labels": ()})
TOO_BIG = [
    *pods(2, size(200, 1), name="w", ago=900),
    *pods(1, size(201, 1), name="x", ago=800),
    *pods(1, size(202, 1), name="y", ago=700),
    *pods(1, size(203, 1), name="z", ago=600),
]
TWO_TYPES = config(namespaces={"dev": policy("dev", DEV, "a", "g")})
KEEPS_TWO = config(namespaces={"dev": policy("dev", DEV, "a", min_nodes=2)})
WORKSHOP = tree(anvil=size(1000, 4000), dev=size(80, 320))
OF_TEAM = {"queue": "root.anvil.dev.team"}
TABLE = [
    # --- quota
    row("no pods", ENOUGH),
    row("quota only: capacity is free, quota is not", QUOTA, "root.anvil.dev has 8 cpu for 40",
        pods=pods(10, SMALL), nodes=K1, limits=tree(dev=size(8, 1000))),
    row("quota only: no more nodes than the quota needs, though each one fits all", QUOTA,
        "memory", wanted=2, pods=pods(30, size(1, 16)), nodes=[node("k1", 128, 512)],
        limits=tree(dev=size(100, 16))),
    row("capacity only: no more nodes than the pods need, though the limit permits more", FREE,
        "10 pods", pods=pods(10, SMALL) + ON_K1, nodes=K1),
    row("quota and room", BOTH, wanted=5, pods=pods(75, SMALL), limits=WORKSHOP),
    row("pods that fit what is free get no node", ENOUGH, pods=pods(16, SMALL), nodes=K1),
    row("one pod more than fits gets one node", FREE, "1 pod", pods=pods(17, SMALL), nodes=K1),
    row("an absent limit is never full", ENOUGH, pods=pods(16, SMALL), nodes=K1, limits=tree()),
    row("the tightest limit up the tree counts", QUOTA, "root.anvil has 8 cpu for 16",
        pods=pods(4, SMALL), nodes=K1, limits=tree(anvil=size(8, 4000), dev=size(1000, 4000))),
    row("what siblings use counts at their common ancestor", QUOTA,
        "root.anvil has 64 cpu for 68",
        pods=pods(1, SMALL) + bound(16, SMALL, "k1", namespace="gpu", app="g"),
        nodes=[node("k1", 64, 256), node("k2")], limits=tree(anvil=size(64, 4000))),
    row("more used than allowed: the excess is missing as well", BOTH,
        "root.anvil.dev has 8 cpu for 132", wanted=2,
        pods=pods(1, SMALL) + bound(32, SMALL, "k1"), nodes=[node("k1", 128, 512)],
        limits=tree(dev={"cpu": 8000}), config=of_type_a(size=size(64, 256))),
    row("used above the limit with nothing pending is no demand", ENOUGH,
        pods=bound(32, SMALL, "k1"), nodes=[node("k1", 128, 512)], limits=tree(dev=size(8, 32))),
    row("a resource that is limited and not asked for does not matter", ENOUGH, pods=pods(4, SMALL),
        nodes=K1, limits=tree(dev={"nvidia.com/gpu": 1})),
    row("a limit on the number of pods is a limit like any other", QUOTA,
        "root.anvil.dev has 10 pods for 12", pods=pods(12, size(1, 1)), nodes=K1,
        limits=tree(dev={"pods": 10})),
    row("two namespaces of a queue share its limit", BOTH, "root.anvil.dev has 64 cpu for 80",
        pods=pods(10, SMALL) + pods(10, SMALL, namespace="lab", name="l", app="lab"),
        nodes=[node("k1", 76, 304)], limits=tree(dev=size(64, 4000)),
        config=config(namespaces={"dev": policy("dev", DEV, "a"), "lab": policy("lab", DEV, "a")})),
    row("a queue below the monitored one is its concern", QUOTA,
        "root.anvil.dev has 8 cpu for 16", pods=pods(4, SMALL, queue="root.anvil.dev.team"),
        nodes=K1, limits=tree(dev=size(8, 32), dev_team=size(64, 256))),
    row("a limit below the monitored queue is raised by no node", NOTHING_HELPS,
        "no new node raises the cpu limit of root.anvil.dev.team",
        pods=pods(4, SMALL, queue="root.anvil.dev.team"), nodes=K1,
        limits=tree(dev=size(80, 320), dev_team=size(8, 32))),
    row("a dynamic queue is booked on its nearest configured ancestor", QUOTA,
        "root.anvil.dev has 8 cpu for 16", pods=pods(4, SMALL, queue="root.anvil.dev.alice"),
        nodes=K1, limits=tree(dev=size(8, 32))),
    row("a limit that no node type raises stops lending", NOTHING_HELPS,
        "no new node raises the ephemeral-storage limit of root.anv",
        pods=pods(2, {**SMALL, "ephemeral-storage": GB}), nodes=K1,
        limits=tree(dev={"ephemeral-storage": GB // 2})),
    # --- headroom
    row("above the headroom mark a node comes before pods wait", Reason.NEARLY_FULL,
        "root.anvil.dev has 64 cpu for 62",
        pods=bound(15, SMALL, "k1") + bound(1, size(2, 1), "k1", name="x"), nodes=K1,
        limits=tree(dev=size(64, 1000)), config=config(headroom=0.95)),
    row("at the headroom mark nothing happens", ENOUGH, pods=bound(19, size(1, 1), "k1"), nodes=K1,
        limits=tree(dev=size(20, 100)), config=config(headroom=0.95)),
    row("defect 7: 96 % used, nothing pending, a node lent for it: it stays and brings no other",
        ENOUGH, pods=bound(24, SMALL, "k1"), nodes=[node("k1", 100, 400), lent("a001")],
        entries={"a001": entry("a001")}, limits=tree(dev=size(228, 700)),
        config=config(headroom=0.95)),
    row("defect 7: at headroom 1 nothing pending asks for nothing", ENOUGH,
        pods=bound(24, SMALL, "k1"), nodes=[node("k1", 100, 400)], limits=tree(dev=size(96, 400))),
    row("headroom of an ancestor counts where the queue has no limit of its own",
        Reason.NEARLY_FULL, "root.anvil has 64 cpu for 62", pods=bound(31, size(2, 1), "k1"),
        nodes=K1, limits=tree(anvil=size(64, 1000)), config=config(headroom=0.95)),
    row("headroom: an ancestor that siblings fill is no concern of a queue without demand", ENOUGH,
        pods=bound(31, size(2, 1), "k1", namespace="gpu", app="g"), nodes=K1,
        limits=tree(anvil=size(64, 1000)),
        config=config(headroom=0.95, namespaces={"dev": policy("dev", DEV, "a")})),
    row("defect 5: a limit of zero beside another is a limit, and admits nothing", QUOTA,
        "root.anvil.dev has 0 cpu for 4", pods=pods(1, SMALL), nodes=K1,
        limits=tree(dev={"cpu": 0, "memory": 1000 * GB})),
    # --- room
    row("defect 15: half a core is missing on a full node", FREE, "1 pod",
        pods=pods(1, size(0.5, 1)) + ON_K1, nodes=K1),
    row("defect 15: one pod of half a node and more, something runs, a node is free", ENOUGH,
        pods=pods(1, size(65, 100)) + bound(1, size(65, 100), "k1"),
        nodes=[node("k1", 128, 256), node("k2", 128, 256)]),
    row("defect 15: eight of 16 cores on half-empty nodes, a ninth is pulling its image", ENOUGH,
        pods=bound(8, size(16, 16), "k1") + bound(1, size(16, 16), "k2"),
        nodes=[node("k1", 128, 512), node("k2", 128, 512)]),
    row("scattered free capacity does not fit a large pod", FREE, "1 pod",
        pods=pods(1, size(40, 40)) + bound(8, SMALL, "k1") + bound(8, SMALL, "k2"),
        nodes=[node("k1"), node("k2")]),
    row("memory runs out before cores do", FREE, wanted=2, pods=pods(4, size(1, 100))),
    row("as many pods as a node's kubelet takes", FREE, wanted=2, pods=pods(111, size(0.1, 0.1))),
    row("a cordoned node has no free capacity", FREE, pods=pods(1, SMALL),
        nodes=[node("k1", is_cordoned=True)]),
    row("a node that is not Ready has no free capacity", FREE, pods=pods(1, SMALL),
        nodes=[node("k1", is_ready=False)]),
    row("a node under deletion has no free capacity", FREE, pods=pods(1, SMALL),
        nodes=[node("k1", is_deleting=True)]),
    row("a node in return has no free capacity", FREE, pods=pods(1, SMALL), nodes=[lent("a001")],
        leaving=["a001"]),
    row("pods of other schedulers use capacity too", FREE,
        pods=pods(1, SMALL) + bound(16, SMALL, "k1", is_managed=False, app_id=""), nodes=K1),
    row("a terminating pod keeps its capacity until its end", FREE,
        pods=pods(1, SMALL) + bound(16, SMALL, "k1", is_terminating=True), nodes=K1),
    row("a new node's DaemonSets take their part, as on the lent nodes that are there", FREE,
        wanted=3, pods=pods(8, size(32, 32)) + bound(1, size(124, 200), "a001") + bound(1, size(4,
            8), "a001", name="ds", is_daemonset=True, is_managed=False) + bound(1, size(62, 60),
            "k1"), nodes=[node("k1"), lent("a001")], entries={"a001": entry("a001", None)},
        config=of_type_a(size=size(140, 256))),
    row("the next node has the size of the last one, whatever the data sheet has",
        NOTHING_HELPS, "requests 127 cpu, an empty node of type a has 126 cpu",
        pods=pods(1, size(127, 16)), nodes=[lent("a001", more={"cpu": 126_000})],
        entries={"a001": entry("a001")}),
    # --- one lent node that differs from the others of its type
    row("a taint on one of two lent nodes is not expected of the next", FREE,
        pods=pods(1, SMALL), nodes=[lent("a001", taints=(BROKEN,)), lent("a002", more=FULL)],
        entries=TWO_LENT),
    row("a taint on two of three lent nodes is", NOTHING_HELPS, "the taint broken:NoSchedule",
        pods=pods(1, SMALL), entries=THREE_LENT, nodes=[
            *(lent(name, taints=(BROKEN,)) for name in ("a001", "a002")), lent("a003", more=FULL)]),
    row("a taint on the only lent node is", NOTHING_HELPS, "the taint broken:NoSchedule",
        pods=pods(1, SMALL), nodes=[lent("a001", taints=(BROKEN,))],
        entries={"a001": entry("a001")}),
    row("a taint on the only lent node of a namespace is not, if other namespaces' nodes lack it",
        FREE, pods=pods(1, SMALL), config=config(namespaces=DEV_AND_LAB), entries={
            "a001": entry("a001"), "a002": entry("a002", namespace="lab", queue=LAB)},
        nodes=[lent("a001", taints=(BROKEN,)), lent("a002", "lab", more=FULL)]),
    row("a configured taint that one of two lent nodes has lost is expected", NOTHING_HELPS,
        "the taint dedicated=dev:NoSchedule", pods=pods(1, SMALL), entries=TWO_LENT,
        config=config(node_types=tainted()),
        nodes=[lent("a001", taints=(DEV_TAINT,)), lent("a002", more=FULL)]),
    row("a configured label that one of two lent nodes has lost is expected", FREE,
        pods=pods(1, SMALL, shape={"node_selector": (("pool", "fast"),)}), entries=TWO_LENT,
        nodes=[lent("a001", more=FULL, labels={"dev": "true", "pool": "fast"}), lent("a002")],
        config=of_type_a(size=size(128, 256), labels={"pool": "fast"})),
    row("a label of one of two lent nodes is not", NOTHING_HELPS, "selects rack=r7",
        pods=pods(1, SMALL, shape={"node_selector": (("rack", "r7"),)}), entries=TWO_LENT,
        nodes=[lent("a001", more=FULL, labels={"dev": "true", "rack": "r7"}), lent("a002")]),
    row("a lent node with less than its type does not make the next one small", FREE,
        pods=pods(1, size(100, 16)) + bound(1, size(60, 16), "a002"), entries=TWO_LENT,
        nodes=[lent("a001", more={"cpu": 99_000}), lent("a002")]),
    row("two of three lent nodes with less do not, if the third confirms the configured size", FREE,
        pods=pods(1, size(100, 16)) + bound(1, size(60, 16), "a003"), entries=THREE_LENT, nodes=[
            *(lent(name, more={"cpu": 99_000}) for name in ("a001", "a002")), lent("a003")]),
    row("if no node has the configured size, the next one has what most have", NOTHING_HELPS,
        "requests 127 cpu, an empty node of type a has 126 cpu", pods=pods(1, size(127, 16)),
        entries=THREE_LENT, nodes=[
            lent("a001", more={"cpu": 99_000}),
            *(lent(name, more={"cpu": 126_000}) for name in ("a002", "a003"))]),
    row("a lent node without a device that is not configured does not take it from the type", FREE,
        pods=pods(1, {**SMALL, CARD: 4}), entries=TWO_LENT,
        nodes=[lent("a001"), lent("a002", more={CARD: 4, "cpu": 1000})]),
    row("what DaemonSets use on one of two lent nodes is not expected of the next", FREE,
        pods=pods(1, size(100, 16)) + bound(1, size(60, 16), "a001") + bound(
            1, size(60, 16), "a002", name="ds", is_daemonset=True, is_managed=False),
        entries=TWO_LENT, nodes=[lent("a001"), lent("a002")]),
    # --- DaemonSets, where they could be read
    row("a DaemonSet that selects a node to come takes its part of it", NOTHING_HELPS,
        "requests 120 cpu, an empty node of type a has 108 cpu", pods=pods(1, size(120, 16)),
        daemon_sets=[agent()]),
    row("one that does not select it takes nothing", FREE, pods=pods(1, size(120, 16)),
        daemon_sets=[agent(node_selector=(("zone", "b"),))]),
    row("a tenant's counts on the nodes that are lent to his namespace", NOTHING_HELPS,
        "an empty node of type a has 108 cpu", pods=pods(1, size(120, 16)),
        daemon_sets=[agent("dev")]),
    row("a tenant's does not count on the nodes of other namespaces", FREE,
        pods=pods(1, size(120, 16)), daemon_sets=[agent("gpu")]),
    row("pods that claim to be a DaemonSet's take nothing of a node to come", FREE,
        pods=pods(1, size(120, 16)) + bound(1, size(100, 16), "a001", is_daemonset=True),
        nodes=[lent("a001")], entries={"a001": entry("a001")}, daemon_sets=[agent(cores=1)]),
    row("mirror pods take their usual part", NOTHING_HELPS, "has 124 cpu",
        pods=pods(1, size(125, 16)) + bound(1, size(4, 16), "a001", is_mirror=True),
        nodes=[lent("a001")], entries={"a001": entry("a001")}, daemon_sets=[]),
    # --- on the way
    row("defect 16: nodes on their way count as there", Reason.ON_THE_WAY, pods=pods(75, SMALL),
        limits=WORKSHOP, incoming=coming(5)),
    row("what is still missing besides those on their way", BOTH,
        "root.anvil.dev has 1,088G memory for 1,200", wanted=2, pods=pods(75, SMALL),
        limits=WORKSHOP, incoming=coming(3)),
    row("defect 16: pods that are not bound yet fit the node that has just joined", ENOUGH,
        pods=pods(16, SMALL), nodes=[lent("a001")], entries={"a001": entry("a001", None)},
        limits=tree(dev=size(208, 576))),
    row("a node on its way that already shows in Kubernetes is counted once", FREE,
        pods=pods(32, SMALL), nodes=[lent("a001")], incoming=coming(1, name="a001")),
    row("nodes on their way to another queue raise that queue only", QUOTA, pods=pods(4, SMALL),
        nodes=K1, limits=tree(dev=size(8, 32)),
        incoming=coming(1, "g", namespace="gpu", queue=GPU)),
    # --- which pods
    row("defect 14: bound and pulling its image is used, not pending", ENOUGH,
        pods=bound(16, SMALL, "k1"), nodes=K1, limits=tree(dev=size(64, 256))),
    row("defect 14: held back by a scheduling gate", ENOUGH,
        "9 not counted, held back by a scheduling gate: dev/p0",
        pods=pods(9, SMALL, is_gated=True)),
    row("defect 19: a namespace that is not monitored asks for a monitored queue", FREE,
        pods=pods(1, SMALL, namespace="guests", queue="root.Anvil.DEV")),
    row("a DaemonSet's pending pod asks for nothing", ENOUGH,
        pods=pods(9, SMALL, is_daemonset=True)),
    row("too young", Reason.TOO_YOUNG, "9 pods", pods=pods(9, SMALL, ago=19)),
    row("defect 18: the default request per missing resource", FREE, wanted=2,
        pods=pods(129, {"memory": GB}), config=of_type_a(size=size(128, 2560, pods=250))),
    row("defect 18: a bound pod without requests uses nothing", ENOUGH,
        pods=bound(100, {}, "k1") + pods(1, SMALL, name="x"), nodes=K1,
        limits=tree(dev=size(4, 16))),
    row("gang: members that do not exist yet", FREE, wanted=2, pods=pods(1, SMALL,
            task_group="driver", task_groups=(TaskGroup(name="driver", min_member=1,
            min_resource={**SMALL, "pods": 1}), TaskGroup(name="w", min_member=30,
            min_resource={**SMALL, "pods": 1})))),
    # --- would a node help
    row("defect 14: a selector that no node type carries", NOTHING_HELPS,
        "selects zone=b, unlike node type a",
        pods=pods(9, SMALL, shape={"node_selector": (("zone", "b"),)})),
    row("a selector that the node type carries", FREE,
        pods=pods(9, SMALL, shape={"node_selector": (("pool", "dev-pool"), ("dev", "true"))}),
        config=config(node_types=tainted(labels={"pool": "{namespace}-pool"})), tolerate=True),
    row("defect 14: a taint that is not tolerated", NOTHING_HELPS,
        "does not tolerate the taint dedicated=dev:NoSchedule", pods=pods(9, SMALL),
        config=config(node_types=tainted())),
    row("lent nodes with an untolerated taint have no free capacity", FREE, pods=pods(9, SMALL),
        nodes=[node("k1", taints=(Taint(key="x", effect="NoExecute"),))]),
    row("PreferNoSchedule keeps nobody off", ENOUGH, pods=pods(9, SMALL),
        nodes=[node("k1", taints=(Taint(key="x", effect="PreferNoSchedule"),))]),
    row("defect 14: bigger than any node", NOTHING_HELPS,
        "requests 200 cpu, an empty node of type a has 128 cpu", pods=pods(1, size(200, 16))),
    row("a resource that the node type does not have", NOTHING_HELPS,
        "an empty node of type a has 0 nvidia.com/gpu",
        pods=pods(1, {**SMALL, "nvidia.com/gpu": 1})),
    row(
        "of three kinds that no node helps one each is named",
        NOTHING_HELPS,
        "no node helps 2 like dev/w0: requests 200 cpu, an empty "
        "node of type a has 128 cpu; no node helps 1 like dev/x0: requests 201 cpu, an empty "
        "node of type a has 128 cpu; no node helps 1 like dev/y0: requests 202 cpu, an empty "
        "node of type a has 128 cpu; 1 not counted",
        pods=[*TOO_BIG[:4], *pods(1, SMALL, name="g", is_gated=True)],
    ),
    row("of more kinds the verb that names them", NOTHING_HELPS,
        "cpu; and 1 kind more, which `dnm check` names", pods=TOO_BIG),
    row("defect 14: a claim that does not exist", ENOUGH,
        "1 not counted, waiting for a volume claim", pods=pods(1, SMALL, claims=("data",))),
    row("a claim that waits for its first consumer", FREE, pods=pods(1, SMALL, claims=("data",)),
        claims=[Claim(namespace="dev", name="data", phase="Pending")]),
    row("a volume that is bound elsewhere", NOTHING_HELPS,
        "has a volume that is bound to other nodes", pods=pods(1, SMALL, claims=("data",)),
        claims=[Claim(namespace="dev", name="data", phase="Bound", node_affinity=(term("zone", "In",
            "b"),))]),
    row("a host port: one pod a node", FREE, wanted=3,
        pods=pods(3, SMALL, shape={"host_ports": (8080,)})),
    row("anti-affinity to its like: one pod a node, and not where one is", FREE, wanted=2,
        pods=pods(3, SMALL, shape=affinity()) + bound(1, SMALL, "k1"), nodes=[*K1, node("k2")]),
    row("anti-affinity over zones: one new node may help, more may not", FREE,
        "has an affinity that one more node can't satisfy",
        pods=pods(3, SMALL, shape=affinity("zone")),
        config=config(node_types=tainted(labels={"zone": "b"})), tolerate=True),
    row("all beside one another: one node", FREE, pods=pods(20, SMALL, shape=affinity(anti=False))),
    row("spread over hosts", FREE, pods=pods(3, SMALL, shape={"spread_keys": (HOSTNAME,)})),
    row("a label that the last lent node did not bring is not promised again", NOTHING_HELPS,
        "selects pool=fast", pods=pods(1, SMALL, shape={"node_selector": (("pool", "fast"),)}),
        nodes=[lent("a001")], entries={"a001": entry("a001")},
        config=of_type_a(size=size(128, 256), labels={"pool": "fast"})),
    row("pods that nothing helps take nothing from those that something does, and are named", FREE,
        "no node helps 99 like dev/x0: selects zone=b",
        pods=pods(99, SMALL, shape={"node_selector": (("zone", "b"),)}, name="x") + pods(1, SMALL)),
    # --- node types
    row("GPUs: as many nodes as the GPUs fill", FREE, wanted=2, queue=GPU,
        limits=tree(gpu=size(1000, 9000)),
        pods=pods(5, {**SMALL, "nvidia.com/gpu": 1}, namespace="gpu")),
    row("GPUs: the quota counts them", QUOTA, "root.anvil.gpu has 2 nvidia.com/gpu for 4",
        queue=GPU, limits=tree(gpu={"nvidia.com/gpu": 2}),
        nodes=[node("k1", more={"nvidia.com/gpu": 8})],
        pods=pods(4, {**SMALL, "nvidia.com/gpu": 1}, namespace="gpu")),
    row("the first type that fits is taken", FREE, wanted={"a": 1}, pods=pods(4, SMALL),
        config=TWO_TYPES),
    row("a pod that needs the second type gets it, and the others use what is left of it", FREE,
        wanted={"g": 1}, pods=pods(1, {**SMALL, "nvidia.com/gpu": 1}, name="g") + pods(4, SMALL),
        config=TWO_TYPES),
    row("where the first type has run out, the second serves", FREE, wanted={"a": 1, "g": 0},
        pods=pods(4, SMALL), budget=budget(batch={"a": 0, "g": 3}), config=TWO_TYPES,
        granted={"g": 1}),
    # --- caps and min_nodes
    row("a cap that is reached", Reason.CAPPED, f"{Reason.LACKS_QUOTA.text}: {DEV} has 8 cpu "
        "for 40; needs 1 of type a; 0 can be lent: max_converted_nodes used up",
        pods=pods(10, SMALL), nodes=[node("k1")], limits=tree(dev=size(8, 999)),
        budget=budget(total=0), granted={"a": 0}),
    row("a cap of the type", Reason.CAPPED, "max_nodes of node type a", pods=pods(1, SMALL),
        budget=budget(per_type={"a": 0}), granted={"a": 0}),
    row("a cap of the namespace", BOTH, "2 can be lent: max_nodes of namespace dev", wanted=5,
        pods=pods(75, SMALL), limits=WORKSHOP, budget=budget(per_namespace={"dev": 2}),
        granted={"a": 2}),
    row("no batch node left", Reason.NO_BATCH_NODE, "batch nodes of type a", pods=pods(1, SMALL),
        budget=budget(total=9, batch={"a": 0}), granted={"a": 0}),
    row("defect 17: ten needed, nine available: nine", FREE, "9 can be lent", wanted=10,
        pods=pods(160, SMALL), limits=tree(), budget=budget(batch={"a": 9}), granted={"a": 9}),
    row("an unknown number of available nodes is no bound", FREE, wanted=10, pods=pods(160, SMALL),
        limits=tree(), budget=budget(), granted={"a": 10}),
    row("min_nodes are kept ready without any pod", Reason.MIN_NODES, "dev", wanted=2,
        config=KEEPS_TWO),
    row("min_nodes: nodes on their way and those that serve count", ENOUGH, nodes=[lent("a001")],
        entries={"a001": entry("a001")}, incoming=coming(1), config=KEEPS_TWO),
    row("min_nodes and pods: the nodes for the pods count towards it", FREE, wanted=2,
        pods=pods(1, SMALL), config=KEEPS_TWO),
    # --- rules that one changed sign, word or default would break
    row("a pod as large as an empty node", FREE, pods=pods(1, size(128, 256))),
    row("a pod of a thousandth more", NOTHING_HELPS, pods=pods(1, size(128.001, 256))),
    row("a new node runs Linux if no node shows its system", FREE,
        pods=pods(1, SMALL, shape=selecting("os", "linux"))),
    row("a node to come is of the architecture that all nodes have", FREE,
        pods=pods(1, SMALL, shape=selecting("arch", "arm64")),
        nodes=[node("k1", 1, 1, labels={"kubernetes.io/arch": "arm64"})]),
    row("and of none where they differ", NOTHING_HELPS,
        pods=pods(1, SMALL, shape=selecting("arch", "arm64")),
        nodes=[node(arch, 1, 1, labels={"kubernetes.io/arch": arch}) for arch in ("arm64", "x")]),
    row("a node without its device plug-in does not set the next one's size", FREE,
        queue=GPU, limits=tree(), pods=pods(1, {**SMALL, CARD: 4}, namespace="gpu", app="g"),
        nodes=[lent("g001", "gpu", more={CARD: 0})],
        entries={"g001": entry("g001", namespace="gpu", queue=GPU)}),
    row("a pod beside others may use a node that is there", ENOUGH, pods=BESIDE, nodes=K1),
    row("a new node has no other pods", NOTHING_HELPS, "beside other pods", pods=BESIDE),
    row("pods that keep apart do not stand on the nodes to come", Reason.ON_THE_WAY,
        pods=pods(2, SMALL, shape={"host_ports": (80,)}), incoming=coming(2)),
    row("a limit of exactly what is asked", ENOUGH, pods=pods(1, SMALL), nodes=K1,
        limits=tree(dev=SMALL)),
    row("a limit of one less", QUOTA, pods=pods(1, SMALL), nodes=K1,
        limits=tree(dev={**SMALL, "cpu": SMALL["cpu"] - 1})),
    row("a node with a single card raises a limit of cards", QUOTA, wanted={"g": 2}, queue=GPU,
        pods=pods(3, {**SMALL, CARD: 1}, namespace="gpu", app="g"), limits=tree(gpu={CARD: 1}),
        nodes=[node("k1", more={CARD: 8})],
        config=config(node_types={"g": NodeType(name="g", size={**size(64, 512), CARD: 1})},
                      namespaces={"gpu": policy("gpu", GPU, "g")})),
    row("a limit is raised with nodes that help the pods which ask for it", QUOTA, wanted={"g": 1},
        pods=pods(4, SMALL, shape={"node_affinity": (term("kind", "DoesNotExist"),)}),
        nodes=[node("k1", 999, 9999)], limits=tree(dev=size(1, 9999)),
        config=config(node_types={**config().node_types, "a": msgspec.structs.replace(
            config().node_types["a"], labels={"kind": "a"})}, namespaces=TWO_TYPES.namespaces)),
    row("and not with those that only help pods which ask for none", QUOTA, wanted={"g": 1},
        pods=pods(2, {**SMALL, CARD: 1}, shape={"node_affinity": (term("kind", "DoesNotExist"),)})
        + pods(1, SMALL, name="x"), nodes=[node("k1", more={CARD: 8})], limits=tree(dev={CARD: 1}),
        config=msgspec.structs.replace(of_type_a(size={**size(64, 512), CARD: 4}, labels={
            "kind": "a"}), namespaces=TWO_TYPES.namespaces)),
    row("a limit near its mark is raised by a type that brings the resource", Reason.NEARLY_FULL,
        wanted={"g": 1}, pods=bound(1, {**SMALL, CARD: 4}, "k1"), limits=tree(dev={CARD: 4}),
        config=config(headroom=0.5, namespaces=TWO_TYPES.namespaces)),
    row("pods without capacity count even if a limit is near its threshold", FREE,
        "1 pod; needs 1 of type a", pods=pods(1, SMALL), limits=tree(dev=size(4, 16)),
        config=config(headroom=0.5)),
    row("a used-up limit below the queue admits no pod", NOTHING_HELPS,
        "helps 3 like dev/p0: no new node raises the pods limit of root.anvil.dev.team",
        pods=pods(3, SMALL, **OF_TEAM) + bound(2, SMALL, "k1", **OF_TEAM),
        limits=tree(dev_team={"pods": 2})),
    row("of a group that a limit lets in in part the rest is named", FREE,
        "helps 2 like dev/p0: no new node raises the pods limit of root.anvil.dev.team",
        pods=pods(3, SMALL, **OF_TEAM) + bound(2, SMALL, "k1", **OF_TEAM),
        limits=tree(dev_team={"pods": 3})),
    row("of 280 cores what the first type can't give the second gives, and not two or five", QUOTA,
        wanted={"a": 3}, pods=pods(70, size(4, 1)), nodes=[node("k1", cores=999, gb=9999)],
        limits=tree(dev=size(0.001, 9999)), budget=budget(batch={"a": 1}), config=TWO_TYPES,
        granted={"a": 1, "g": 3}),
    row("each type has its own reason why it does not help", NOTHING_HELPS,
        "requests 300G memory, an empty node of type a has 256G memory; requests 100 cpu, an "
        "empty node of type g has 64 cpu", pods=pods(1, size(100, 300)), config=TWO_TYPES),
]  # fmt: skip


Inputs: TypeAlias = tuple[Config, Demand, dict[str, QueueLimits], NodeSupply]


def inputs_of(scene: dict[str, Any]) -> Inputs:
    conf = scene.get("config", config())
    queues = scene.get("limits", tree())
    some = scene.get("pods", [])
    if scene.get("tolerate"):
        some = [
            msgspec.structs.replace(
                pod, shape=msgspec.structs.replace(pod.shape, tolerations=TOLERATES_DEV)
            )
            for pod in some
        ]
    result = demand(some, conf, queues, scene.get("claims", ()), **scene.get("facts", {}))
    there = node_supply(
        scene.get("nodes", ()),
        scene.get("entries"),
        scene.get("incoming", ()),
        scene.get("leaving", ()),
    )
    if "daemon_sets" in scene:
        there = msgspec.structs.replace(there, daemon_sets=tuple(scene["daemon_sets"]))
    return conf, result, queues, there


def solve(scene: dict[str, Any]) -> Sizing:
    return size_queues(*inputs_of(scene), scene.get("budget", UNBOUNDED))


@pytest.mark.parametrize(("reason", "part", "nodes", "scene"), TABLE)
def test_sizing_follows_quota_and_free_capacity(
    reason: ReasonText, part: str, nodes: int | dict[str, int], scene: dict[str, Any]
) -> None:
    sizing = solve(scene)
    answer = sizing.queues[scene.get("queue", DEV)]
    queue_verdict = sizing.verdicts[scene.get("queue", DEV)]
    wanted = {pool.node_type: count for pool, count in answer.wanted.items()}
    assert queue_verdict.queue == scene.get("queue", DEV)
    assert (queue_verdict.verdict, queue_verdict.reason) == (
        VERDICTS.get(reason, CONVERT),
        reason,
    ), queue_verdict.sentence
    nodes = 0 if reason in NONE else nodes
    if isinstance(nodes, dict):
        assert wanted == {name: count for name, count in nodes.items() if count}
    else:
        assert sum(wanted.values()) == nodes
    sentences = [queue_verdict.sentence, *(item.why for item in answer.unschedulable)]
    assert any(part in sentence for sentence in sentences), sentences
    if "granted" in scene:
        granted = {pool.node_type: count for pool, count in answer.granted.items()}
        assert {name: granted.get(name, 0) for name in scene["granted"]} == scene["granted"]


def test_sizing_without_packing_gives_the_same_result_if_nothing_waits() -> None:
    result = 0
    for param in TABLE:
        scene: Any = param.values[3]
        for some in (scene.get("pods", []), [pod for pod in scene.get("pods", []) if pod.node]):
            inputs = inputs_of({**scene, "pods": some})
            config, demand, queues, _ = inputs
            at_rest = size_without_demand(config, demand, queues)
            if at_rest is not None:
                result += 1
                assert at_rest == size_with_demand(*inputs, UNBOUNDED)
    assert result > 20


# --- several queues ---------------------------------------------------------------------------

THREE = {
    "dev": policy("dev", DEV, "a"),
    "lab": policy("lab", "root.anvil.lab", "a"),
    "gpu": policy("gpu", GPU, "a"),
}
ANYWHERE = {"tolerations": (Toleration(operator="Exists"),)}
OWN = {
    name: {"tolerations": (Toleration(key="dedicated", value=name),)}
    for name in ("dev", "lab", "gpu")
}
OF_ALL = (
    pods(1, SMALL, ago=100, shape=OWN["dev"])
    + pods(1, SMALL, ago=300, namespace="lab", name="l", app="l", shape=OWN["lab"])
    + pods(1, SMALL, ago=200, namespace="gpu", name="g", app="g", shape=OWN["gpu"])
)


def shares(
    policies: dict[str, Any],
    some: list[Any],
    left: ConversionBudget,
    nodes: Any = (),
    **limits: Any,
) -> dict[str, tuple[int, ReasonText]]:
    kinds = {
        name: msgspec.structs.replace(kind, taints=(TAINT,))
        for name, kind in config().node_types.items()
    }
    queues = tree(**{"lab": {}, **limits})
    sizing = sizing_of(
        some, node_supply(nodes), queues, left, namespaces=policies, node_types=kinds
    )
    return {
        queue.rpartition(".")[2]: (sum(answer.granted.values()), sizing.verdicts[queue].reason)
        for queue, answer in sizing.queues.items()
    }


def test_scarce_nodes_go_to_the_queue_with_the_longest_wait() -> None:
    """In the predecessor, the order in the configuration decided (defect 20)."""
    free = Reason.LACKS_NODES
    first = Reason.OUTRANKED
    assert shares(THREE, OF_ALL, budget(total=2)) == {
        "lab": (1, free),
        "gpu": (1, free),
        "dev": (0, first),
    }


def test_priority_precedes_the_longest_wait() -> None:
    ranked = {**THREE, "dev": policy("dev", DEV, "a", priority=1)}
    assert shares(ranked, OF_ALL, budget(total=1))["dev"] == (1, Reason.LACKS_NODES)


def test_queue_does_not_take_the_node_type_of_another_queue() -> None:
    kinds = {**THREE, "gpu": policy("gpu", GPU, "g")}
    results = shares(kinds, OF_ALL, budget(batch={"a": 0, "g": 5}))
    assert results["gpu"] == (1, Reason.LACKS_NODES)
    assert results["lab"] == results["dev"] == (0, Reason.NO_BATCH_NODE)


def test_unhelpable_pod_does_not_put_its_queue_first() -> None:
    """An old pod with a selector that no node has would otherwise win every scarce node."""
    stuck = pods(1, SMALL, ago=9000, name="stuck", shape={"node_selector": (("zone", "b"),)})
    assert shares(THREE, [*stuck, *OF_ALL], budget(total=1))["lab"] == (1, Reason.LACKS_NODES)


def test_new_node_open_to_all_serves_other_queues_too() -> None:
    some = pods(1, SMALL, shape=ANYWHERE) + pods(
        1, SMALL, namespace="lab", name="l", app="l", ago=900, shape=ANYWHERE
    )
    assert shares(THREE, some, budget(total=9)) == {
        "lab": (1, Reason.LACKS_NODES),
        "dev": (0, Reason.ON_THE_WAY),
        "gpu": (0, Reason.ENOUGH),
    }


def test_node_for_a_queue_raises_the_ancestor_for_its_sibling() -> None:
    """The ancestor's quota is too small for both queues, but one node raises it enough."""
    some = [pod for pod in OF_ALL if pod.namespace != "gpu"]
    results = shares(THREE, some, budget(total=9), nodes=K1, anvil=size(2, 1000))
    assert sorted(count for count, _ in results.values()) == [0, 0, 1]


def test_monitored_queue_missing_in_the_document_gets_no_node() -> None:
    queues = tree()
    del queues[DEV]
    assert DEV not in sizing_of(pods(1, SMALL), limits=queues).queues


def test_demand_fingerprint_changes_only_with_the_pods() -> None:
    def fingerprint(some: list[Any], nodes: list[Any]) -> str:
        return sizing_of(some, node_supply(nodes)).queues[DEV].fingerprint

    here = fingerprint(pods(3, SMALL), K1)
    assert here == fingerprint(pods(3, SMALL), [])
    assert here != fingerprint(pods(4, SMALL), K1)
    assert here != fingerprint(pods(3, SMALL, ago=500), K1)
    assert fingerprint([], K1) == ""
