"""A cluster in short notation, for the tables of demand, sizing and release.

Amounts are cores and gigabytes. The namespace `dev` has the queue `root.anvil.dev` and the node
type `a` (128 cores, 256 GB). The namespace `gpu` has `root.anvil.gpu` and the type `g`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dnm.demand.demand import Demand, gather_demand
from dnm.demand.waiting import DemandFacts
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Mark, Node
from dnm.model.node_type import NodeType, Taint
from dnm.model.pod import Claim, Pod, PodShape, Toleration
from dnm.model.share import Share
from dnm.model.value import Resources
from dnm.plan.rules.warm_share import mark_of
from dnm.sizing.caps import UNBOUNDED, ConversionBudget, count_left
from dnm.sizing.node_supply import IncomingNode, NodeSupply
from dnm.sizing.queue_sizing import Sizing
from dnm.sizing.sizing import size_queues
from tests.builders import lent_of

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
GB = 10**9
DEV, GPU = "root.anvil.dev", "root.anvil.gpu"
TAINT = Taint(key="dedicated", value="{namespace}", effect="NoSchedule")
TOLERATES_DEV = (Toleration(key="dedicated", value="dev"),)


def text(ago: float) -> str:
    """Returns the creation time of an object that is `ago` seconds old."""
    return f"{NOW - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%SZ}"


def size(cores: float, gb: float, **more: int) -> dict[str, int]:
    return {"cpu": int(cores * 1000), "memory": int(gb * GB), **more}


SMALL = size(4, 16)  # a pod of the workshop


def config(**changes: Any) -> Config:
    """Returns a configuration; headroom is 1, unless changed, so that it affects no other rule."""
    values: dict[str, Any] = {
        "path": Path("/nonexistent/dnm.ini"),
        "namespaces": {"dev": policy("dev", DEV, "a"), "gpu": policy("gpu", GPU, "g")},
        "node_types": {
            "a": NodeType(name="a", size=size(128, 256)),
            "g": NodeType(name="g", size={**size(64, 512), "nvidia.com/gpu": 4}),
        },
        "headroom": 1.0,
    }
    return Config(**{**values, **changes})


def policy(name: str, queue: str, *types: str, **changes: Any) -> NamespacePolicy:
    return NamespacePolicy(name=name, queue=queue, node_types=types, **changes)


def tree(**limits: Resources) -> dict[str, QueueLimits]:
    """Returns the queues `anvil`, `dev` and `gpu` with these limits, by default none. `dev_team`
    adds root.anvil.dev.team."""
    paths = {"anvil": "root.anvil", "dev": DEV, "gpu": GPU}
    for name in limits:
        paths.setdefault(name, "root.anvil." + name.replace("_", "."))
    results = {"root": QueueLimits(path="root", parent=None, is_leaf=False)}
    for name, path in sorted(paths.items(), key=lambda path: path[1]):
        results[path] = QueueLimits(
            path=path,
            parent=path.rpartition(".")[0],
            is_leaf=not any(other.startswith(f"{path}.") for other in paths.values()),
            max=limits.get(name, {}),
        )
    return results


def pods(count: int, request: Resources, **changes: Any) -> list[Pod]:
    """Returns equal pods, by default ten minutes old and pending in `dev`. `shape` has further
    fields of their shape, `ago` is their age in seconds."""
    shape = PodShape(request={"pods": 1, **request}, **changes.pop("shape", {}))
    name = changes.pop("name", "p")
    values: dict[str, Any] = {
        "namespace": "dev",
        "created": text(changes.pop("ago", 600)),
        "app_id": changes.pop("app", "app"),
        "is_managed": True,
        **changes,
    }
    return [Pod(name=f"{name}{number}", uid=f"{name}{number}", shape=shape, **values)
            for number in range(count)]  # fmt: skip


def bound(count: int, request: Resources, node: str, **changes: Any) -> list[Pod]:
    """Returns equal pods that run on a node."""
    return pods(count, request, **{"node": node, "name": f"on-{node}-", **changes})


def node(name: str, cores: float = 64, gb: float = 256, **changes: Any) -> Node:
    """Returns a permanent node of the cluster."""
    allocatable = {**size(cores, gb), "pods": 110, **changes.pop("more", {})}
    return Node(name=name, allocatable=allocatable, **changes)


def lent(name: str, namespace: str = "dev", **changes: Any) -> Node:
    """Returns the Node of a lent node."""
    node_type = "g" if name.startswith("g") else "a"
    mark = Mark(
        instance="prod",
        node_type=node_type,
        namespace=namespace,
        queue=GPU if namespace == "gpu" else DEV,
    )
    cores, gb = (64, 512) if node_type == "g" else (128, 256)
    more = {"nvidia.com/gpu": 4} if node_type == "g" else {}
    values: dict[str, Any] = {"labels": {namespace: "true"}, "mark": mark, "more": more}
    return node(name, cores, gb, **{**values, **changes})


def entry(name: str, idle: float | None = 700, **changes: Any) -> LentNode:
    """Returns the registry's entry of a lent node: serves for an hour, idle for `idle` seconds."""
    values: dict[str, Any] = {
        "node_type": "g" if name.startswith("g") else "a",
        "namespace": "dev",
        "queue": DEV,
        "owner": "prod",
        "phase": Phase.SERVING,
        "since": NOW - timedelta(seconds=changes.pop("serves", 3600)),
        "counted": size(128, 256, pods=110),
        "idle_since": None if idle is None else NOW - timedelta(seconds=idle),
    }
    return lent_of({**values, **changes})


def coming(count: int, node_type: str = "a", **changes: Any) -> tuple[IncomingNode, ...]:
    values: dict[str, Any] = {"namespace": "dev", "queue": DEV, **changes}
    return tuple(IncomingNode(node_type=node_type, **values) for _ in range(count))


def node_supply(
    nodes: Iterable[Node] = (),
    entries: Mapping[str, LentNode] | None = None,
    incoming: Iterable[IncomingNode] = (),
    leaving: Iterable[str] = (),
) -> NodeSupply:
    return NodeSupply(
        nodes=tuple(nodes), lent=entries or {}, incoming=tuple(incoming), leaving=frozenset(leaving)
    )


def budget(
    total: int | None = None,
    per_type: Mapping[str, int] | None = None,
    per_namespace: Mapping[str, int] | None = None,
    batch: Mapping[str, int] | None = None,
) -> ConversionBudget:
    """Returns how many nodes may still be lent; an omitted parameter is no restriction."""
    types, names = per_type or {}, per_namespace or {}
    caps = config(
        max_converted_nodes=Share(percent=100) if total is None else total,
        node_types={name: NodeType(name=name, size={}, max_nodes=n) for name, n in types.items()},
        namespaces={name: policy(name, DEV, max_nodes=n) for name, n in names.items()},
    )
    return count_left(caps, (), batch or {})


def demand(
    all_pods: Iterable[Pod],
    conf: Config,
    queues: Mapping[str, QueueLimits],
    claims: Iterable[Claim] = (),
    **facts: Any,
) -> Demand:
    demand_facts = DemandFacts(now=NOW, claims=tuple(claims), **facts)
    result = gather_demand(tuple(all_pods), conf, queues, demand_facts)
    return msgspec.structs.replace(result, mark=mark_of(conf) if conf.headroom < 1 else None)


def sizing_of(
    some: Iterable[Pod],
    nodes: NodeSupply | None = None,
    limits: dict[str, QueueLimits] | None = None,
    left: ConversionBudget = UNBOUNDED,
    **settings: Any,
) -> Sizing:
    """Returns the sizing of the queues for these pods; `settings` change the configuration."""
    conf, queues = config(**settings), limits or tree()
    return size_queues(conf, demand(some, conf, queues), queues, nodes or node_supply(), left)
