"""Six weeks of users, each seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.economy.world import DAY, HOUR, WEEK, Ask, NodeClass, Workload

G = 10**9
CPU_NODE = NodeClass(
    size=(("vcore", 128_000), ("memory", 256 * G), ("pods", 110)),
    count=40,
)
GPU_NODE = NodeClass(
    size=(("vcore", 64_000), ("memory", 512 * G), ("nvidia.com/gpu", 4), ("pods", 110)),
    count=12,
)
MINUTE = 60.0
SEED = 42


def _ask(at: float, lasts: float, cores: float, gigabytes: int, queue: str, gpus: int = 0) -> Ask:
    request = [("vcore", int(cores * 1000)), ("memory", gigabytes * G)]
    if gpus:
        request.append(("nvidia.com/gpu", gpus))
    return Ask(at=at, lasts=lasts, request=tuple(request), queue=queue)


def _limit(cores: int, gigabytes: int, gpus: int = 0) -> dict[str, int]:
    limit = {"vcore": cores * 1000, "memory": gigabytes * G}
    if gpus:
        limit["nvidia.com/gpu"] = gpus
    return limit


def _free(cores: int, gigabytes: int) -> dict[str, int]:
    return {"vcore": cores * 1000, "memory": gigabytes * G, "pods": 110}


def _workload(
    name: str,
    asks: list[Ask],
    limits: Mapping[str, Mapping[str, int]],
    free: tuple[Mapping[str, int], ...],
    namespaces: Mapping[str, tuple[str, str]],
    lasts: float,
) -> Workload:
    asks = sorted((ask for ask in asks if ask.at < lasts), key=lambda ask: ask.at)
    return Workload(
        name=name,
        asks=tuple(asks),
        limits=limits,
        namespaces=namespaces,
        free=free,
        classes={"a": CPU_NODE, "g": GPU_NODE},
        seed=SEED,
        lasts=lasts,
    )


def workshops(lasts: float = WEEK) -> Workload:
    """Workshops of 40 to 90 people, two on most weekdays. Every exercise gives each of them a pod;
    between exercises there is a talk of five to nine minutes."""
    source = random.Random(SEED)
    queue = "root.anvil.workshop"
    asks = [_ask(hour * HOUR, 3 * HOUR, 2, 8, queue) for hour in range(0, int(WEEK / HOUR), 2)]
    for day in range(5):
        for hour in (9, 14):
            if source.random() < 0.8:
                people = source.randint(40, 90)
                begins = day * DAY + hour * HOUR
                for _ in range(source.randint(3, 5)):
                    ends = begins + source.choice((25, 35, 50)) * MINUTE
                    for _ in range(people):
                        come = begins + abs(source.gauss(0, 3)) * MINUTE
                        go = ends - abs(source.gauss(0, 2)) * MINUTE
                        asks.append(_ask(come, max(go - come, 5 * MINUTE), 4, 16, queue))
                    begins = ends + source.uniform(5, 9) * MINUTE
    return _workload(
        "workshop bursts",
        asks,
        {"root.anvil": _limit(2000, 8000), queue: _limit(80, 320)},
        (_free(36, 150), _free(36, 150)),
        {"workshop": (queue, "a")},
        lasts,
    )


def notebooks(lasts: float = WEEK) -> Workload:
    """Notebooks through the day: arrivals follow the hour, sessions last minutes to a workday."""
    source = random.Random(SEED + 1)
    queue = "root.anvil.notebook"
    asks: list[Ask] = []
    when = 0.0
    while when < WEEK:
        hour = when % DAY / HOUR
        weekday = when // DAY < 5
        rate = 3 + (30 if weekday and 8 <= hour < 18 else 8 if weekday else 4)
        when += source.expovariate(rate / HOUR)
        cores, memory = source.choices(((2, 8), (4, 16), (8, 32), (16, 64)), (60, 25, 10, 5))[0]
        lasts_for = min(source.lognormvariate(0.7, 0.8) * HOUR, 10 * HOUR)
        asks.append(_ask(when, lasts_for, cores, memory, queue))
    return _workload(
        "notebooks by day",
        asks,
        {"root.anvil": _limit(2000, 8000), queue: _limit(128, 512)},
        (_free(60, 240), _free(60, 240)),
        {"notebook": (queue, "a")},
        lasts,
    )


def nightly_batch(lasts: float = WEEK) -> Workload:
    """A pipeline every night at ten: five stages of 60 pods of mixed shapes, each begun minutes
    after the last pod of the stage before."""
    source = random.Random(SEED + 2)
    queue = "root.anvil.batch"
    asks = []
    for day in range(7):
        begins = day * DAY + 22 * HOUR
        for _ in range(5):
            ends = begins
            for _ in range(60):
                cores = source.choice((1, 2, 4, 6, 8, 12, 16, 24, 32))
                memory = max(1, int(cores * source.choice((1, 2, 4, 6))))
                come = begins + source.uniform(0, 2) * MINUTE
                length = source.uniform(10, 40) * MINUTE
                ends = max(ends, come + length)
                asks.append(_ask(come, length, cores, memory, queue))
            begins = ends + source.uniform(2, 8) * MINUTE
    return _workload(
        "nightly batch",
        asks,
        {"root.anvil": _limit(1000, 4000), queue: _limit(256, 1024)},
        (_free(90, 190), _free(90, 190), _free(60, 120)),
        {"batch": (queue, "a")},
        lasts,
    )


def slow_ramp(lasts: float = WEEK) -> Workload:
    """A service that grows for four days and shrinks for three; each pod lives half a day."""
    source = random.Random(SEED + 3)
    queue = "root.anvil.service"
    asks = []
    when = 0.0
    while when < WEEK:
        share = when / (4 * DAY) if when < 4 * DAY else (WEEK - when) / (3 * DAY)
        when += source.expovariate((2 + 28 * max(share, 0)) / HOUR)
        asks.append(_ask(when, 12 * HOUR * source.uniform(0.8, 1.2), 4, 8, queue))
    return _workload(
        "slow ramp",
        asks,
        {"root.anvil": _limit(1500, 6000), queue: _limit(160, 640)},
        (_free(50, 120), _free(50, 120), _free(50, 120)),
        {"service": (queue, "a")},
        lasts,
    )


def fragmentation(lasts: float = WEEK) -> Workload:
    """Against packing: waves of small pods, of which a few stay; then pods of half a node up."""
    source = random.Random(SEED + 4)
    queue = "root.anvil.mixed"
    asks = []
    for wave in range(14):
        start = wave * 12 * HOUR
        for number in range(120):
            stays = number % 24 == 0
            length = 5 * HOUR if stays else source.uniform(20, 40) * MINUTE
            asks.append(_ask(start + number * 5, length, 4, 8, queue))
        for number in range(8):
            come = start + 1 * HOUR + number * 10 * MINUTE
            cores, memory = source.choice(((65, 130), (72, 100), (100, 200), (40, 180)))
            asks.append(_ask(come, source.uniform(1, 2) * HOUR, cores, memory, queue))
    return _workload(
        "fragmentation",
        asks,
        {"root.anvil": _limit(3000, 12000), queue: _limit(200, 400)},
        (_free(60, 120), _free(60, 120), _free(60, 120)),
        {"mixed": (queue, "a")},
        lasts,
    )


def gpu_pods(lasts: float = WEEK) -> Workload:
    """One to four GPUs a pod, for half an hour to half a day, in a queue limited in GPUs."""
    source = random.Random(SEED + 5)
    queue = "root.anvil.gpu"
    asks = []
    when = 0.0
    while when < WEEK:
        hour = when % DAY / HOUR
        when += source.expovariate((4 if 8 <= hour < 20 else 0.7) / HOUR)
        gpus = source.choices((1, 2, 4), (70, 20, 10))[0]
        length = min(max(source.lognormvariate(0.8, 0.8), 0.5), 12) * HOUR
        asks.append(_ask(when, length, 8 * gpus, 64 * gpus, queue, gpus))
    permanent = {**_free(64, 512), "nvidia.com/gpu": 4}
    return _workload(
        "GPU pods",
        asks,
        {"root.anvil": _limit(3000, 24000), queue: _limit(512, 4096, 4)},
        (permanent,),
        {"gpu": (queue, "g")},
        lasts,
    )


ALL: tuple[Callable[[float], Workload], ...] = (
    workshops,
    notebooks,
    nightly_batch,
    slow_ramp,
    fragmentation,
    gpu_pods,
)
