"""Functions that build the parts of a workload: pods, limits, nodes, and jobs of Slurm."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dnm.simulate.batch import SimJob
from dnm.simulate.values import DAY, HOUR, Ask, NodeClass, Workload

G = 10**9
_GPU_SIZE = (("cpu", 64_000), ("memory", 512 * G), ("nvidia.com/gpu", 4), ("pods", 110))
GPU_NODE = NodeClass(size=_GPU_SIZE, count=12)
CPU_NODE = NodeClass(size=(("cpu", 128_000), ("memory", 256 * G), ("pods", 110)), count=40)
MINUTE = 60.0
JOB_SIZES = ((1, 2, 4, 8, 16), (50, 20, 15, 10, 5))
HALF = 0.5  # of the batch nodes, by default


def ask(at: float, lasts: float, cores: float, gigabytes: int, queue: str, gpus: int = 0) -> Ask:
    """Returns a pod of a workload: its arrival and duration in seconds, its request, its queue."""
    request = [("cpu", int(cores * 1000)), ("memory", gigabytes * G)]
    if gpus:
        request.append(("nvidia.com/gpu", gpus))
    return Ask(at=at, lasts=lasts, request=tuple(request), queue=queue)


def limit(cores: int, gigabytes: int, gpus: int = 0) -> dict[str, int]:
    """Returns a queue's limit, from cores, gigabytes and GPUs."""
    amounts = {"cpu": cores * 1000, "memory": gigabytes * G}
    if gpus:
        amounts["nvidia.com/gpu"] = gpus
    return amounts


def free(cores: int, gigabytes: int) -> dict[str, int]:
    """Returns the free capacity of a permanent node."""
    return {"cpu": cores * 1000, "memory": gigabytes * G, "pods": 110}


def steady(_when: float) -> float:
    """Returns 1: the load of a Slurm that is the same at all times."""
    return 1.0


def by_day(when: float) -> float:
    """Returns the relative load of a Slurm at a time: 1 by day, and a third of it by night."""
    return 1.0 if 8 <= when % DAY / HOUR < 20 else 0.3


def jobs(
    seed: int,
    lasts: float,
    load: float = HALF,
    share: Callable[[float], float] = steady,
) -> tuple[SimJob, ...]:
    """Returns jobs that use the share `load` of Slurm's nodes at the busiest time. Most use one
    node, some 16. The median lasts half an hour; time limits are one to three times as long."""
    source = random.Random(seed * 100 + 99)
    result = []
    capacity = load * CPU_NODE.count * lasts
    while capacity > 0:
        nodes = source.choices(*JOB_SIZES)[0]
        length = min(max(source.lognormvariate(0, 1) * 0.5 * HOUR, 2 * MINUTE), 8 * HOUR)
        capacity -= nodes * length
        when = source.uniform(-length, lasts)
        if source.random() < share(max(when, 0)):
            bound = length * source.uniform(1, 3)
            result.append(SimJob(at=max(when, 0.0), nodes=nodes, lasts=length, limit=bound))
    return tuple(sorted(result, key=lambda job: job.at))


def workload(
    name: str,
    asks: list[Ask],
    limits: Mapping[str, Mapping[str, int]],
    permanent: tuple[Mapping[str, int], ...],
    namespaces: Mapping[str, tuple[str, str]],
    seed: int,
    lasts: float,
    **more: Any,
) -> Workload:
    """Returns a workload of these pods. Jobs use half of Slurm, unless `more` has other jobs."""
    more.setdefault("jobs", jobs(seed, lasts))
    return Workload(
        name=name,
        asks=tuple(
            sorted(
                (request for request in asks if request.at < lasts), key=lambda request: request.at
            )
        ),
        limits=limits,
        namespaces=namespaces,
        free=permanent,
        classes={"a": CPU_NODE, "g": GPU_NODE},
        seed=seed,
        lasts=lasts,
        **more,
    )


def single_queue_workload(
    name: str,
    asks: list[Ask],
    played: tuple[int, float],
    own: tuple[int, int],
    permanent: Sequence[Mapping[str, int]],
    above: tuple[int, int] = (2000, 8000),
    node_type: str = "a",
) -> Workload:
    """Returns a workload of one queue below root.anvil, and a namespace with that name. `played` is
    its seed and duration; `own` and `above` limit the queue and root.anvil in cores and GB."""
    queue = asks[0].queue
    limits = {"root.anvil": limit(*above), queue: limit(*own)}
    namespaces = {queue.rpartition(".")[2]: (queue, node_type)}
    return workload(name, asks, limits, tuple(permanent), namespaces, *played)
