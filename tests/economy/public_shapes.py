"""Workloads of forms that are publicly known to be hard for autoscalers.

They were written, with their seeds, before any rule of dnm was changed for them."""

from __future__ import annotations

import random
from dataclasses import replace

from dnm.simulate.values import DAY, HOUR, Ask, Workload
from tests.economy.building import (
    MINUTE,
    ask,
    by_day,
    free,
    jobs,
    limit,
    single_queue_workload,
    workload,
)


def hub_day(seed: int, lasts: float) -> Workload:
    """Returns a workload of a notebook hub: users start at nine and after lunch, work for a while,
    and the culler ends their server an hour after they leave it."""
    source = random.Random(seed * 100 + 10)
    queue = "root.anvil.hub"
    asks = []
    for day in range(7):
        for _ in range(160):
            hour = source.choice((source.gauss(9.2, 0.5), source.gauss(13.5, 1.5)))
            works = min(source.lognormvariate(0, 0.9), 6) * HOUR
            cores, memory = source.choices(((1, 4), (2, 8), (8, 32)), (60, 30, 10))[0]
            incoming = day * DAY + min(max(hour, 6), 22) * HOUR
            asks.append(ask(incoming, works + HOUR, cores, memory, queue))
    return single_queue_workload(
        "hub with culling", asks, (seed, lasts), (128, 512), [free(64, 256)] * 2
    )


def workshop_breaks(seed: int, lasts: float) -> Workload:
    """Returns a workload of a one-day course: hands-on parts of 30 to 50 minutes, and breaks of 12
    to 30. Breaks are longer than the idle time and shorter than a return and a new lend."""
    source = random.Random(seed * 100 + 11)
    queue = "root.anvil.course"
    asks = []
    for day in range(5):
        begins = day * DAY + 9 * HOUR
        people = source.randint(50, 90)
        while begins < day * DAY + 17 * HOUR:
            ends = begins + source.uniform(30, 50) * MINUTE
            for _ in range(people):
                incoming = begins + abs(source.gauss(0, 2)) * MINUTE
                go = ends - abs(source.gauss(0, 2)) * MINUTE
                asks.append(ask(incoming, max(go - incoming, 5 * MINUTE), 4, 16, queue))
            begins = ends + source.uniform(12, 30) * MINUTE
    return single_queue_workload(
        "workshop with breaks", asks, (seed, lasts), (80, 320), [free(40, 160)] * 2
    )


def heavy_tails(seed: int, lasts: float) -> Workload:
    """Returns a workload of bursts by night: most pods last minutes, a few last hours."""
    source = random.Random(seed * 100 + 12)
    queue = "root.anvil.tails"
    asks = []
    for day in range(7):
        for burst in range(4):
            start = day * DAY + (20 + 2 * burst) * HOUR + source.uniform(0, 30) * MINUTE
            for _ in range(source.randint(30, 80)):
                length = min(4 * source.paretovariate(1.1), 480) * MINUTE
                cores = source.choice((2, 4, 8, 16))
                incoming = start + source.uniform(0, 3) * MINUTE
                asks.append(ask(incoming, length, cores, cores * 3, queue))
    return single_queue_workload(
        "bursts, heavy tails", asks, (seed, lasts), (160, 480), [free(80, 160)] * 2
    )


def gangs(seed: int, lasts: float) -> Workload:
    """Returns a workload of training runs, each of 4 to 24 pods that start together. The queue's
    limit equals the largest of them, since YuniKorn rejects one that could never run."""
    source = random.Random(seed * 100 + 13)
    queue = "root.anvil.train"
    asks: list[Ask] = []
    when, gang = 0.0, 0
    while when < lasts:
        when += source.expovariate((1.2 if 8 <= when % DAY / HOUR < 20 else 0.4) / HOUR)
        gang += 1
        members, length = source.choice((4, 8, 12, 24)), source.uniform(20, 120) * MINUTE
        asks += [
            replace(ask(when, length, 32, 60, queue), gang=gang)
            for _ in range(members)
        ]  # fmt: skip
    return single_queue_workload(
        "gangs", asks, (seed, lasts), (768, 1440), [free(64, 128)], (4000, 8000)
    )


def roll_outs(seed: int, lasts: float) -> Workload:
    """Returns a workload of a service of 60 pods, which run twice during a few roll-outs a day."""
    source = random.Random(seed * 100 + 14)
    queue = "root.anvil.web"
    asks, start = [], 0.0
    while start < lasts:
        after = start + source.uniform(3, 9) * HOUR
        for number in range(60):
            overlap = source.uniform(3, 8) * MINUTE
            asks.append(ask(start + number, after - start + overlap, 2, 4, queue))
        start = after
    return single_queue_workload(
        "roll-outs that double", asks, (seed, lasts), (140, 400), [free(70, 200)] * 2, (1000, 4000)
    )


def crash_loops(seed: int, lasts: float) -> Workload:
    """Returns a workload of pods that fail after half a minute and are recreated with a growing
    delay of up to five minutes, beside some that work; the queue is nearly full."""
    source = random.Random(seed * 100 + 15)
    queue = "root.anvil.crash"
    asks = [ask(hour * HOUR, 3 * HOUR, 8, 16, queue) for hour in range(int(lasts / HOUR))]
    for loop in range(6):
        when = source.uniform(0, lasts / 2)
        wait = 10.0
        until = when + source.uniform(4, 12) * HOUR
        while when < until:
            asks += [ask(when, 30, 16, 32, queue)] * (1 + loop % 3)
            when += 30 + wait
            wait = min(2 * wait, 300)
    return single_queue_workload(
        "crash loops", asks, (seed, lasts), (48, 96), [free(48, 96)], (1000, 4000)
    )


def scarce_nodes(seed: int, lasts: float) -> Workload:
    """Returns a workload of two queues with overlapping busy times, and eight nodes for both."""
    source = random.Random(seed * 100 + 16)
    first, second = "root.anvil.one", "root.anvil.two"
    asks = []
    for queue, busiest in ((first, 10), (second, 12)):
        for day in range(7):
            for _ in range(140):
                incoming = day * DAY + min(max(source.gauss(busiest, 1.5), 0), 23) * HOUR
                asks.append(ask(incoming, source.uniform(15, 90) * MINUTE, 24, 48, queue))
    limits = {"root.anvil": limit(2000, 8000), first: limit(64, 128), second: limit(64, 128)}
    permanent = (free(64, 128), free(64, 128))
    namespaces = {"one": (first, "a"), "two": (second, "a")}
    return workload(
        "two queues, eight nodes", asks, limits, permanent, namespaces, seed, lasts, cap=8
    )


def three_queues(seed: int, lasts: float) -> Workload:
    """Returns a workload of three queues with bursts at different times, and eight nodes."""
    source = random.Random(seed * 100 + 21)
    queues = [f"root.anvil.{name}" for name in ("one", "two", "three")]
    asks = []
    for queue in queues:
        incoming = source.uniform(0, 2) * HOUR
        while incoming < 7 * DAY:
            for _ in range(source.randint(10, 40)):
                at = incoming + source.uniform(0, 10) * MINUTE
                asks.append(ask(at, source.uniform(10, 40) * MINUTE, 24, 48, queue))
            incoming += source.expovariate(1 / (2.5 * HOUR))
    limits = {"root.anvil": limit(3000, 12000)} | {queue: limit(32, 64) for queue in queues}
    permanent = (free(32, 64),) * 3
    namespaces = {queue.rpartition(".")[2]: (queue, "a") for queue in queues}
    return workload(
        "three queues, eight nodes", asks, limits, permanent, namespaces, seed, lasts, cap=8
    )


def oscillation(seed: int, lasts: float) -> Workload:
    """Returns a workload of half an hour of pods, then 11 to 14 minutes of none, repeatedly."""
    source = random.Random(seed * 100 + 17)
    queue = "root.anvil.swing"
    asks, when = [], 0.0
    while when < lasts:
        for _ in range(24):
            asks.append(ask(when + source.uniform(0, 30), 30 * MINUTE, 8, 16, queue))
        when += 30 * MINUTE + source.uniform(11, 14) * MINUTE
    return single_queue_workload(
        "oscillation", asks, (seed, lasts), (64, 128), [free(64, 128)], (1000, 4000)
    )


def every_seven_minutes(seed: int, lasts: float) -> Workload:
    """Returns a workload: every seven minutes a pod of four, which needs a lent node."""
    source = random.Random(seed * 100 + 18)
    queue = "root.anvil.single"
    asks = []
    for number in range(int(lasts / (7 * MINUTE))):
        asks.append(ask(number * 7 * MINUTE + source.uniform(0, 60), 240, 16, 32, queue))
    return single_queue_workload(
        "a pod every 7 minutes", asks, (seed, lasts), (200, 400), [free(8, 16)], (1000, 4000)
    )


def full_batch(seed: int, lasts: float) -> Workload:
    """Returns a workload of two bursts in the working day, while Slurm is full by day."""
    busy = jobs(seed, lasts, load=0.9, share=by_day)
    return replace(_bursts(seed * 100 + 19, seed, lasts), name="batch full by day", jobs=busy)


def failing(seed: int, lasts: float) -> Workload:
    """Returns a workload of bursts, in which one conversion in ten fails."""
    return replace(_bursts(seed * 100 + 20, seed, lasts), name="one in ten fails", fails=0.1)


def slow_conversions(seed: int, lasts: float) -> Workload:
    """Returns a workload of bursts, in which a conversion takes a quarter of an hour."""
    slow = (13 * MINUTE, 17 * MINUTE)
    return replace(_bursts(seed * 100 + 21, seed, lasts), name="15 min to convert", conversion=slow)


def _bursts(key: int, seed: int, lasts: float) -> Workload:
    source = random.Random(key)
    queue = "root.anvil.burst"
    asks = []
    for day in range(7):
        for _ in range(4):
            start = day * DAY + source.uniform(8, 20) * HOUR
            for _ in range(source.randint(20, 70)):
                incoming = start + source.uniform(0, 5) * MINUTE
                asks.append(ask(incoming, source.uniform(20, 60) * MINUTE, 8, 16, queue))
    return single_queue_workload("bursts", asks, (seed, lasts), (96, 192), [free(96, 192)])


def always_full(seed: int, lasts: float) -> Workload:
    """Returns a workload of a queue that stays at its limit without waiting pods."""
    queue = "root.anvil.full"
    asks = [ask(float(number), 2 * lasts, 8, 16, queue) for number in range(10)]
    return single_queue_workload(
        "full, nobody waits", asks, (seed, lasts), (80, 160), [free(80, 160)], (1000, 4000)
    )


ALL = (
    hub_day, workshop_breaks, heavy_tails, gangs, roll_outs, crash_loops, scarce_nodes, oscillation,
    every_seven_minutes, full_batch, failing, slow_conversions, always_full,
)  # fmt: skip
