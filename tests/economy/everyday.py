"""Five everyday workloads, written with their seeds before dnm weighed the cost of a lend: builds
after each push, a weekend, pods of one core that fit on permanent nodes, a growing hub, and three
tenants under one cap."""

from __future__ import annotations

import random

from dnm.simulate.values import DAY, HOUR, Ask, Workload
from tests.economy.building import MINUTE, ask, free, limit, single_queue_workload, workload


def builds(seed: int, lasts: float) -> Workload:
    """Returns a workload of CI builds: each push starts 6 to 30 pods of two to twelve minutes, with
    eight pushes an hour by day and one by night."""
    source = random.Random(seed * 100 + 30)
    queue = "root.anvil.ci"
    asks: list[Ask] = []
    when = 0.0
    while when < lasts:
        when += source.expovariate((8 if 9 <= when % DAY / HOUR < 18 else 1) / HOUR)
        for _ in range(source.randint(6, 30)):
            incoming = when + source.uniform(0, 30)
            asks.append(ask(incoming, source.uniform(2, 12) * MINUTE, 8, 16, queue))
    return single_queue_workload("builds", asks, (seed, lasts), (96, 192), [free(96, 192)])


def weekend(seed: int, lasts: float) -> Workload:
    """Returns a workload of a weekend from Friday noon: users work until six; then a pod starts
    every hour or two until Monday, a little larger than the permanent nodes' free capacity."""
    source = random.Random(seed * 100 + 31)
    queue = "root.anvil.office"
    asks = [ask(0.0, 2 * lasts, 60, 120, queue)]
    for _ in range(120):
        incoming = source.uniform(0, 5 * HOUR)
        asks.append(ask(incoming, source.uniform(0.3, 1.5) * HOUR, 8, 16, queue))
    when = 7 * HOUR
    while when < lasts:
        when += source.expovariate(1 / (1.5 * HOUR))
        asks.append(ask(when, source.uniform(10, 40) * MINUTE, 8, 16, queue))
    return single_queue_workload("a weekend", asks, (seed, lasts), (64, 128), [free(64, 128)])


def small_pods(seed: int, lasts: float) -> Workload:
    """Returns a workload of pods of one core, 60 to 210 at a time: the permanent nodes have
    capacity for all of them, and the queue's limit allows 64."""
    source = random.Random(seed * 100 + 32)
    queue = "root.anvil.small"
    asks, when, phase = [], 0.0, source.uniform(0, 1)
    while when < lasts:
        swing = abs((when / (8 * HOUR) + phase) % 2 - 1)
        when += source.expovariate((60 + 150 * swing) / (0.75 * HOUR))
        asks.append(ask(when, source.uniform(0.5, 1) * HOUR, 1, 2, queue))
    return single_queue_workload(
        "small pods", asks, (seed, lasts), (64, 128), [free(128, 256)] * 2, (1000, 4000)
    )


def growing_hub(seed: int, lasts: float) -> Workload:
    """Returns a workload of a hub with ever more users, who start by day and stay for hours."""
    source = random.Random(seed * 100 + 33)
    queue = "root.anvil.grows"
    asks: list[Ask] = []
    when = 0.0
    while when < lasts:
        by_day = 1.0 if 8 <= when % DAY / HOUR < 20 else 0.15
        when += source.expovariate(24 * (1 + when / lasts) * by_day / HOUR)
        cores = source.choice((2, 4, 8))
        length = min(source.lognormvariate(0.6, 0.7), 9) * HOUR
        asks.append(ask(when, length, cores, 4 * cores, queue))
    return single_queue_workload(
        "a hub that grows", asks, (seed, lasts), (160, 640), [free(80, 320)] * 2
    )


def three_tenants(seed: int, lasts: float) -> Workload:
    """Returns a workload of three queues (bursts, notebooks, a course) with ten nodes for all."""
    source = random.Random(seed * 100 + 34)
    bursts, books, course = (f"root.anvil.{name}" for name in ("bursts", "books", "lessons"))
    asks: list[Ask] = []
    for day in range(7):
        for _ in range(6):
            start = day * DAY + source.uniform(6, 22) * HOUR
            for _ in range(source.randint(15, 60)):
                incoming = start + source.uniform(0, 4) * MINUTE
                asks.append(ask(incoming, source.uniform(10, 45) * MINUTE, 8, 16, bursts))
        for _ in range(90):
            incoming = day * DAY + min(max(source.gauss(12, 3), 0), 23) * HOUR
            asks.append(ask(incoming, min(source.lognormvariate(0.5, 0.8), 8) * HOUR, 8, 32, books))
        begins = day * DAY + 9 * HOUR
        while begins < day * DAY + 16 * HOUR:
            length = source.uniform(30, 50) * MINUTE
            for _ in range(60):
                incoming = begins + abs(source.gauss(0, 2)) * MINUTE
                asks.append(ask(incoming, max(length - 120, 300), 4, 8, course))
            begins += length + source.uniform(8, 25) * MINUTE
    limits = {"root.anvil": limit(3000, 12000)}
    limits |= {bursts: limit(64, 128), books: limit(96, 384), course: limit(64, 128)}
    permanent = (free(64, 128), free(96, 384), free(64, 128))
    namespaces = {queue.rpartition(".")[2]: (queue, "a") for queue in (bursts, books, course)}
    return workload("three tenants", asks, limits, permanent, namespaces, seed, lasts, cap=10)


ALL = (builds, weekend, small_pods, growing_hub, three_tenants)
