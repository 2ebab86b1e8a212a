"""Six workloads, each of one kind of users and repeatable by a seed; the list of all workloads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from dnm.simulate.values import DAY, HOUR, WEEK, Ask, Workload
from tests.economy import everyday, public_shapes, site_shapes
from tests.economy.building import MINUTE, ask, free, single_queue_workload


class Workshop(NamedTuple):
    """One workshop: its times in seconds since the workload begins, and the pods of its people."""

    begins: float
    ends: float
    people: int
    asks: list[Ask]


WORKSHOP_QUEUE = "root.anvil.workshop"


def list_workshops(seed: int) -> Iterator[Workshop]:
    """Yields workshops of 40 to 90 people, two on most weekdays. Each person starts a pod for each
    exercise; between exercises there is a talk of five to nine minutes."""
    source = random.Random(seed * 100 + 0)
    for day in range(5):
        for hour in (9, 14):
            if source.random() < 0.8:
                people = source.randint(40, 90)
                begins = ends = day * DAY + hour * HOUR
                asks: list[Ask] = []
                for _ in range(source.randint(3, 5)):
                    start = begins if not asks else ends + source.uniform(5, 9) * MINUTE
                    ends = start + source.choice((25, 35, 50)) * MINUTE
                    for _ in range(people):
                        incoming = start + abs(source.gauss(0, 3)) * MINUTE
                        go = ends - abs(source.gauss(0, 2)) * MINUTE
                        lasts = max(go - incoming, 5 * MINUTE)
                        asks.append(ask(incoming, lasts, 4, 16, WORKSHOP_QUEUE))
                yield Workshop(begins, ends, people, asks)
                source.uniform(5, 9)  # the last talk


def workshops(seed: int, lasts: float) -> Workload:
    """Returns a workload of workshops, with a few other pods between them."""
    queue = WORKSHOP_QUEUE
    asks = [ask(hour * HOUR, 3 * HOUR, 2, 8, queue) for hour in range(0, int(WEEK / HOUR), 2)]
    asks += [request for workshop in list_workshops(seed) for request in workshop.asks]
    return single_queue_workload(
        "workshop bursts", asks, (seed, lasts), (80, 320), [free(36, 150)] * 2
    )


def notebooks(seed: int, lasts: float) -> Workload:
    """Returns a workload of notebooks: arrivals follow the hour, sessions last up to a workday."""
    source = random.Random(seed * 100 + 1)
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
        asks.append(ask(when, lasts_for, cores, memory, queue))
    return single_queue_workload(
        "notebooks by day", asks, (seed, lasts), (128, 512), [free(60, 240)] * 2
    )


def nightly_batch(seed: int, lasts: float) -> Workload:
    """Returns a workload of a pipeline every night at ten: five stages of 60 pods of mixed shapes,
    each started minutes after the last pod of the previous stage."""
    source = random.Random(seed * 100 + 2)
    queue = "root.anvil.batch"
    asks = []
    for day in range(7):
        begins = day * DAY + 22 * HOUR
        for _ in range(5):
            ends = begins
            for _ in range(60):
                cores = source.choice((1, 2, 4, 6, 8, 12, 16, 24, 32))
                memory = max(1, int(cores * source.choice((1, 2, 4, 6))))
                incoming = begins + source.uniform(0, 2) * MINUTE
                length = source.uniform(10, 40) * MINUTE
                ends = max(ends, incoming + length)
                asks.append(ask(incoming, length, cores, memory, queue))
            begins = ends + source.uniform(2, 8) * MINUTE
    return single_queue_workload(
        "nightly batch",
        asks,
        (seed, lasts),
        (256, 1024),
        [free(90, 190), free(90, 190), free(60, 120)],
        (1000, 4000),
    )


def slow_ramp(seed: int, lasts: float) -> Workload:
    """Returns a workload of a service that first grows, then shrinks; its pods last hours."""
    source = random.Random(seed * 100 + 3)
    queue = "root.anvil.service"
    asks = []
    when = 0.0
    while when < lasts:
        share = 1 - abs(2 * when / lasts - 1)
        when += source.expovariate((2 + 28 * share) / HOUR)
        asks.append(ask(when, 8 * HOUR * source.uniform(0.8, 1.2), 4, 8, queue))
    return single_queue_workload(
        "slow ramp", asks, (seed, lasts), (160, 640), [free(50, 120)] * 3, (1500, 6000)
    )


def fragmentation(seed: int, lasts: float) -> Workload:
    """Returns a workload that is hard to pack: small pods, of which some stay, then large ones."""
    source = random.Random(seed * 100 + 4)
    queue = "root.anvil.mixed"
    asks = []
    for wave in range(14):
        start = wave * 12 * HOUR
        for number in range(120):
            stays = number % 24 == 0
            length = 5 * HOUR if stays else source.uniform(20, 40) * MINUTE
            asks.append(ask(start + number * 5, length, 4, 8, queue))
        for number in range(8):
            incoming = start + 1 * HOUR + number * 10 * MINUTE
            cores, memory = source.choice(((65, 130), (72, 100), (100, 200), (40, 180)))
            asks.append(ask(incoming, source.uniform(1, 2) * HOUR, cores, memory, queue))
    return single_queue_workload(
        "fragmentation", asks, (seed, lasts), (200, 400), [free(60, 120)] * 3, (3000, 12000)
    )


def gpu_pods(seed: int, lasts: float) -> Workload:
    """Returns a workload of pods with one to four GPUs, for half an hour to half a day. Their queue
    limits cores and memory, which every policy can raise."""
    source = random.Random(seed * 100 + 5)
    queue = "root.anvil.gpu"
    asks = []
    when = 0.0
    while when < WEEK:
        hour = when % DAY / HOUR
        when += source.expovariate((4 if 8 <= hour < 20 else 0.7) / HOUR)
        gpus = source.choices((1, 2, 4), (70, 20, 10))[0]
        length = min(max(source.lognormvariate(0.8, 0.8), 0.5), 12) * HOUR
        asks.append(ask(when, length, 8 * gpus, 64 * gpus, queue, gpus))
    own_node = {**free(64, 512), "nvidia.com/gpu": 4}
    return single_queue_workload(
        "GPU pods", asks, (seed, lasts), (40, 320), [own_node], (3000, 24000), node_type="g"
    )


ALL: tuple[Callable[[int, float], Workload], ...] = (
    workshops, notebooks, nightly_batch, slow_ramp, fragmentation, gpu_pods,
    *public_shapes.ALL, *everyday.ALL, *site_shapes.ALL,
)  # fmt: skip
