"""`python -m tests.bench_plan [PODS]`: from typed pods to a plan, and how the time grows.

150,000 pods in 10 namespaces on 5,000 nodes, a tenth of them pending, in 300 shapes; 500 of the
nodes are lent. The same at a tenth of the size. Prints seconds of one core, best of three.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dnm.demand.demand import gather_demand
from dnm.demand.waiting import DemandFacts
from dnm.model.batch import BatchNode
from dnm.model.cluster import ConfigMap
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Mark, Node
from dnm.model.node_type import NodeType, Taint
from dnm.model.plan import Snapshot
from dnm.model.pod import Pod, PodList, PodShape, Toleration
from dnm.model.queue_edit import QueueWants
from dnm.model.registry import Registry
from dnm.plan.planner import make_plan
from dnm.queues.edit import edit_source
from dnm.queues.source import resolve_document, with_document
from dnm.queues.tree import parse_tree
from dnm.sizing.caps import Bound, budget_of
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.sizing import size_queues

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
G = 10**9
SIZE = {"vcore": 256_000, "memory": 1024 * G, "pods": 110}
NAMESPACES = 10
SHAPES = 300


def a_cluster(pods: int) -> tuple[Config, Registry, Snapshot]:
    """A full cluster of `pods` pods, thirty a node."""
    source = random.Random(7)
    nodes = pods // 30
    lent = nodes // 10
    names = [f"team{number}" for number in range(NAMESPACES)]
    config = Config(
        path=Path("/nonexistent/dnm.ini"),
        namespaces={
            name: NamespacePolicy(name=name, queue=f"root.all.{name}", node_types=("a",))
            for name in names
        },
        node_types={
            "a": NodeType(
                name="a",
                size={"vcore": 256_000, "memory": 1024 * G},
                taints=(Taint(key="dedicated", value="{namespace}", effect="NoSchedule"),),
            )
        },
        max_converted_nodes=10 * nodes,
    )
    registry = Registry(
        nodes={f"a{n:05}": _lent_node(names[n % NAMESPACES]) for n in range(lent)},
    )
    shapes = [_shape(source, names[n % NAMESPACES], n) for n in range(SHAPES)]
    queue_map = _queue_map(names, nodes)
    return (
        config,
        registry,
        Snapshot(
            taken_at=NOW,
            pods=PodList(pods=tuple(_pods(source, pods, nodes, lent, shapes))),
            nodes=tuple(_node(n, names[n % NAMESPACES] if n < lent else "") for n in range(nodes)),
            queue_maps=(_grown(queue_map, registry), None),
            batch={
                f"a{n:05}": BatchNode(name=f"a{n:05}", state="IDLE", verdict="OK", in_service=True)
                for n in range(nodes, 2 * nodes)
            },
        ),
    )


def _lent_node(namespace: str) -> LentNode:
    return LentNode(
        node_type="a",
        namespace=namespace,
        queue=f"root.all.{namespace}",
        owner="prod",
        phase=Phase.SERVING,
        since=NOW - timedelta(hours=3),
        counted=dict(SIZE),
    )


def _shape(source: random.Random, namespace: str, number: int) -> PodShape:
    request = {"vcore": source.randint(1, 64) * 250 + number, "memory": source.randint(1, 64) * G}
    return PodShape(
        request={**request, "pods": 1},
        tolerations=(Toleration(key="dedicated", value=namespace),),
    )


def _pods(
    source: random.Random, count: int, nodes: int, lent: int, shapes: list[PodShape]
) -> list[Pod]:
    pods = []
    for number in range(count):
        pending = number % 10 == 0
        shape_number = source.randrange(SHAPES)
        namespace = f"team{shape_number % NAMESPACES}"
        created = NOW - timedelta(seconds=source.randint(0, 86_400))
        pods.append(
            Pod(
                namespace=namespace,
                name=f"p{number}",
                shape=shapes[shape_number],
                uid=f"uid-{number}",
                created=f"{created:%Y-%m-%dT%H:%M:%SZ}",
                node="" if pending else _home(source, shape_number, nodes, lent),
                running=not pending,
                app_id=f"{namespace}-{number % (count // 10)}",
                queue=f"root.all.{namespace}",
                is_yunikorn=True,
            )
        )
    return pods


def _home(source: random.Random, shape_number: int, nodes: int, lent: int) -> str:
    number = source.randrange(nodes)
    if number < lent:
        number = number - number % NAMESPACES + shape_number % NAMESPACES
        return f"a{number % lent:05}"
    return f"k{number:05}"


def _node(number: int, namespace: str) -> Node:
    mark = Mark(instance="prod", node_type="a", namespace=namespace, queue=f"root.all.{namespace}")
    return Node(
        name=f"a{number:05}" if namespace else f"k{number:05}",
        allocatable=SIZE,
        labels={"kubernetes.io/hostname": f"n{number}", "kubernetes.io/os": "linux"},
        taints=(Taint(key="dedicated", value=namespace, effect="NoSchedule"),) if namespace else (),
        mark=mark if namespace else None,
    )


def _queue_map(names: list[str], nodes: int) -> ConfigMap:
    cores = nodes * 230 // NAMESPACES
    lines = ["partitions:", "  - name: default", "    queues:", "      - name: root"]
    lines += ["        queues:", "          - name: all", "            queues:"]
    for name in names:
        lines += [f"              - name: {name}", "                resources:"]
        lines += [f'                  max: {{vcore: "{cores}", memory: "{cores * 4}G"}}']
    return ConfigMap(
        namespace="yunikorn",
        name="yunikorn-configs",
        resource_version="1",
        data={"queues.yaml": "\n".join(lines) + "\n"},
    )


def _grown(queue_map: ConfigMap, registry: Registry) -> ConfigMap:
    """The document and its ledger with the lent nodes in it."""
    source = resolve_document(queue_map, None)
    nodes: dict[str, dict[str, dict[str, int]]] = {}
    for name, entry in registry.nodes.items():
        nodes.setdefault(entry.queue, {})[name] = entry.counted
    wants = QueueWants(instance_id="prod", nodes=nodes, remembered="")
    edit = edit_source(source, wants)
    assert not edit.refusal, edit.refusal
    return with_document(source, edit.text, edit.ledger)


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def measure(count: int) -> None:
    """Print the time of each step for a cluster of `count` pods."""
    config, registry, snapshot = a_cluster(count)
    assert isinstance(snapshot.pods, PodList) and isinstance(snapshot.nodes, tuple)
    assert isinstance(snapshot.queue_maps, tuple) and snapshot.queue_maps[0] is not None
    pods, nodes = snapshot.pods.pods, snapshot.nodes
    limits = parse_tree(snapshot.queue_maps[0].data["queues.yaml"]).queues
    facts = DemandFacts(now=NOW)
    node_supply, budget = (
        NodeSupply(nodes=nodes, lent=registry.nodes),
        budget_of([Bound(name="max_converted_nodes", left=10**6)]),
    )
    demand = gather_demand(pods, config, limits, facts)
    pending = sum(group.total for group in demand.groups)
    gathering = _best(lambda: gather_demand(pods, config, limits, facts))
    sizing = _best(lambda: size_queues(config, demand, limits, node_supply, budget))
    whole = _best(lambda: make_plan(config, registry, snapshot))
    print(
        f"{count} pods on {len(nodes)} nodes, {pending} pending in {len(demand.groups)} groups: "
        f"demand {gathering:.3f} s, sizing {sizing:.3f} s, whole plan {whole:.3f} s"
    )


if __name__ == "__main__":
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
    measure(most // 10)
    measure(most)
