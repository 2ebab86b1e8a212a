"""`python -m tests.bench_plan [PODS]`: the cost of a plan, in seconds of one core, best of three.

It plans from typed pods: 150,000 in 10 namespaces on 5,000 nodes, a tenth of them pending, in 300
shapes; 500 of the nodes are lent. Then it plans a tenth of that. A queue document of 2,000 queues
with 1,000 lent nodes is read, checked, edited, read and checked again.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from dnm.demand.demand import gather_demand
from dnm.demand.waiting import DemandFacts
from dnm.model.config import Config
from dnm.model.node import Mark, Node
from dnm.model.node_type import NodeType, Taint
from dnm.model.plan import Snapshot
from dnm.model.pod import Pod, PodList, Toleration
from dnm.model.registry import Registry
from dnm.model.value import Resources
from dnm.plan.planner import make_plan
from dnm.queues.yunikorn.edit import edit_source
from dnm.queues.yunikorn.source import with_document
from dnm.queues.yunikorn.system import YunikornFacts, plan_source
from dnm.queues.yunikorn.tree import parse_tree
from dnm.sizing.sizing import size_queues
from tests.builders import a_batch_node
from tests.queue_kit import NODE, large_document, source, wants
from tests.scenes import (
    GB,
    NOW,
    TAINT,
    budget,
    config,
    entry,
    node,
    node_supply,
    pods,
    policy,
    text,
)

SIZE = {"cpu": 256_000, "memory": 1024 * GB, "pods": 110}
SHAPES = 300
TEAMS = [f"team{number}" for number in range(10)]


def queue_of(team: str) -> str:
    return f"root.all.{team}"


def a_cluster(count: int) -> tuple[Config, Registry, Snapshot]:
    """Returns the inputs of a plan for a full cluster with `count` pods, thirty on each node."""
    nodes = count // 30
    node_type = NodeType(name="a", size=SIZE, taints=(TAINT,))
    conf = config(
        namespaces={team: policy(team, queue_of(team), "a") for team in TEAMS},
        node_types={"a": node_type}, max_converted_nodes=10 * nodes,
    )  # fmt: skip
    lent = {f"a{number:05}": TEAMS[number % 10] for number in range(nodes // 10)}
    registry = Registry(nodes={
        name: entry(name, None, namespace=team, queue=queue_of(team), counted=dict(SIZE))
        for name, team in lent.items()
    })  # fmt: skip
    serving: dict[str, dict[str, Resources]] = {}
    for name, team in lent.items():
        serving.setdefault(queue_of(team), {})[name] = SIZE
    document = source(queues(nodes * 23))
    made = plan_source(document, wants(serving, remembered=""))
    own = (node(f"k{number:05}", 256, 1024) for number in range(len(lent), nodes))
    idle = (f"a{number:05}" for number in range(nodes, 2 * nodes))
    batch = {name: a_batch_node(name) for name in idle}
    return conf, registry, Snapshot(
        taken_at=NOW,
        pods=PodList(pods=tuple(some_pods(count, nodes, list(lent)))),
        nodes=(*(lent_node(*pair) for pair in lent.items()), *own),
        queue_facts=YunikornFacts(maps=(with_document(document, made.text, made.ledger), None)),
        batch=batch,
    )  # fmt: skip


def lent_node(name: str, team: str) -> Node:
    mark = Mark(instance="prod", node_type="a", namespace=team, queue=queue_of(team))
    taint = Taint(key="dedicated", value=team, effect="NoSchedule")
    return node(name, 256, 1024, taints=(taint,), mark=mark)


def queues(cores: int) -> str:
    lines = ["partitions: [{name: default, queues: [{name: root, queues: [{name: all, queues: ["]
    limits = f'{{vcore: "{cores}", memory: "{cores * 4}G"}}'
    lines += [f"  {{name: {team}, resources: {{max: {limits}}}}}," for team in TEAMS]
    return "\n".join([*lines, "]}]}]}]\n"])


def some_pods(count: int, nodes: int, lent: list[str]) -> Iterator[Pod]:
    chance = random.Random(7)
    kinds = [a_pod(number, TEAMS[number % 10]) for number in range(SHAPES)]
    for number in range(count):
        kind, home = chance.randrange(SHAPES), chance.randrange(nodes)
        place = lent[(home - home % 10 + kind % 10) % len(lent)] if home < len(lent) else ""
        yield replace(
            kinds[kind], name=f"p{number}", uid=f"uid-{number}",
            app_id=f"{kinds[kind].namespace}-{number % (count // 10)}",
            created=text(chance.randint(0, 86_400)),
            node=(place or f"k{home:05}") if number % 10 else "",
        )  # fmt: skip


def a_pod(number: int, team: str) -> Pod:
    request = {"cpu": (number % 64 + 1) * 250 + number, "memory": (number % 48 + 1) * GB}
    shape = {"tolerations": (Toleration(key="dedicated", value=team),)}
    return pods(1, request, namespace=team, queue=queue_of(team), shape=shape)[0]


def best(work: Callable[[], object]) -> str:
    spent = []
    for _ in range(3):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return f"{min(spent):.3f} s"


def measure_plan(count: int) -> None:
    conf, registry, snapshot = a_cluster(count)
    assert isinstance(snapshot.pods, PodList) and isinstance(snapshot.nodes, tuple)
    assert isinstance(snapshot.queue_facts, YunikornFacts)
    document = snapshot.queue_facts.maps[0]
    assert document is not None
    every, nodes = snapshot.pods.pods, snapshot.nodes
    limits = parse_tree(document.data["queues.yaml"]).queues
    supply = node_supply(nodes, registry.nodes)
    left = budget(total=10**6)
    facts = DemandFacts(now=NOW)
    demand = gather_demand(every, conf, limits, facts)
    pending = sum(group.total for group in demand.groups)
    print(
        f"{count} pods on {len(nodes)} nodes, {pending} pending in {len(demand.groups)} groups: "
        f"demand {best(lambda: gather_demand(every, conf, limits, facts))}, "
        f"sizing {best(lambda: size_queues(conf, demand, limits, supply, left))}, "
        f"whole plan {best(lambda: make_plan(conf, registry, snapshot))}"
    )


def measure_document() -> None:
    document = large_document()
    leaves = [path for path, queue in parse_tree(document).queues.items() if queue.is_leaf]
    nodes: dict[str, dict[str, Resources]] = {}
    for number in range(1000):
        size = {**NODE, "memory": 256 * GB + number}
        nodes.setdefault(leaves[number * 37 % len(leaves)], {})[f"node{number:04}"] = size
    asked = wants(nodes, remembered="")
    made = edit_source(source(document), asked)
    there = source(made.text, made.ledger)
    print(
        f"{len(document):,} bytes of queues, {len(made.changes):,} limits change: "
        f"lend {best(lambda: edit_source(source(document), asked))}, "
        f"rest {best(lambda: edit_source(there, asked))}, "
        f"return {best(lambda: edit_source(there, wants({})))}"
    )


if __name__ == "__main__":
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
    for size in (most // 10, most):
        measure_plan(size)
    measure_document()
