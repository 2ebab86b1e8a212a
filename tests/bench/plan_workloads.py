"""The CPU time of a plan with thousands of odd Workloads of Kueue: 15,000 pods run on 500 nodes.

    python -m tests.bench.plan_workloads [WORKLOADS]

Each Workload has pods of its own size. Fifty nodes are lent, twenty of them are idle, and twenty
more can be lent. Three plans are measured: with Workloads that are mostly too large, with small
ones, and without any.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

from dnm.model.batch import BatchNode
from dnm.model.cluster import RefusedPods
from dnm.model.config import NamespacePolicy
from dnm.model.kueue import FLAVOR, ClusterQueue, Cohort, Flavor, FlavorQuota, ResourceGroup
from dnm.model.lent import LentNode
from dnm.model.node import Mark
from dnm.model.plan import Snapshot
from dnm.model.pod import Pod, PodList
from dnm.model.registry import Registry
from dnm.plan.planner import make_plan
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import CohortLedger, encode_ledger
from tests.builders import a_batch_node
from tests.scenes import GB, NOW, bound, config, entry, node, pods, size

NODES, LENT, BUSY, LENDABLE, PODS = 500, 50, 30, 20, 15_000
SIZE = size(128, 256)
QUEUE = "a8"
CONFIG = config(
    namespaces={
        "dev": NamespacePolicy(name="dev", queue=QUEUE, node_types=("a",), queue_system="kueue")
    },
    max_converted_nodes=LENT + LENDABLE,
)


def some_workloads(count: int, largest: int) -> tuple[RefusedPods, ...]:
    """Returns Workloads of up to `largest` pods, each pod of a size that no other Workload has."""
    chance = random.Random(7)
    return tuple(
        RefusedPods(pod=a_pod(number), count=many, workload=f"dev/w{number}", least=many)
        for number in range(count)
        for many in (chance.randint(1, largest),)
    )


def a_pod(number: int) -> Pod:
    request = {"cpu": 4_000 + number, "memory": 16 * GB + number}
    return pods(1, request, name=f"w{number}-", ago=90_000 - number)[0]


def running_pods() -> Iterator[Pod]:
    lent = [f"a{number:03}" for number in range(BUSY)]
    names = [*lent, *(f"k{number:03}" for number in range(NODES - LENT))]
    for number in range(PODS):
        request = size(1, 2)
        yield bound(1, request, names[number % len(names)], name=f"on-{number}-")[0]


def a_snapshot(workloads: tuple[RefusedPods, ...]) -> tuple[Registry, Snapshot]:
    names = [f"a{number:03}" for number in range(LENT)]
    texts = {"cpu": "128", "memory": "256G"}
    quota = {name: amount * LENT for name, amount in SIZE.items()}
    total = {"cpu": str(128 * LENT), "memory": f"{256 * LENT}G"}
    instances = {"prod": dict.fromkeys(names, texts)}
    ledger = CohortLedger(cohort="dnm-a8", instances=instances, quota=total)
    zero = FlavorQuota(name=FLAVOR, nominal=dict.fromkeys(SIZE, 0))
    covered = ("cpu", "memory")
    facts = KueueFacts(
        paths={QUEUE: QUEUE},
        queues=(ClusterQueue(name=QUEUE, cohort="dnm-a8",
                             groups=(ResourceGroup(resources=covered, flavors=(zero,)),)),),
        cohorts=(Cohort(name="dnm-a8", version="1", ledger=encode_ledger(ledger),
                        groups=(ResourceGroup(resources=covered, flavors=(
                            FlavorQuota(name=FLAVOR, nominal=quota),)),)),),
        flavors=(Flavor(name=FLAVOR, labels={"dev": "true"}),),
        refused=workloads,
        used={QUEUE: {name: amount * BUSY for name, amount in SIZE.items()}},
        is_use_complete=True,
    )  # fmt: skip
    entries: dict[str, LentNode] = {
        name: entry(name, None if number < BUSY else 7_000, queue=QUEUE, was_used=True)
        for number, name in enumerate(names)
    }
    mark = Mark(instance="prod", node_type="a", namespace="dev", queue=QUEUE)
    lent = [node(name, 128, 256, labels={"dev": "true"}, mark=mark) for name in names]
    own = [node(f"k{number:03}", 128, 256) for number in range(NODES - LENT)]
    batch: dict[str, BatchNode] = {
        name: a_batch_node(name) for name in (f"a{number:03}" for number in range(LENT, 70))
    }
    snapshot = Snapshot(
        taken_at=NOW, pods=PodList(pods=tuple(running_pods())), nodes=(*lent, *own),
        queue_facts=facts, batch=batch,
    )  # fmt: skip
    return Registry(nodes=entries), snapshot


def measure(name: str, workloads: tuple[RefusedPods, ...]) -> None:
    registry, snapshot = a_snapshot(workloads)
    begun = time.process_time()
    plan = make_plan(CONFIG, registry, snapshot)
    spent = time.process_time() - begun
    assert not plan.errors, plan.errors
    asked = sum(request.count for request in plan.registry.requests)
    print(f"{name}: {spent:.2f} s of CPU, {asked} nodes requested", flush=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    large, small = some_workloads(count, 1_000), some_workloads(count, 12)
    measure("mostly too large", large)
    measure("small", small)
    measure("without Workloads", ())


if __name__ == "__main__":
    main()
