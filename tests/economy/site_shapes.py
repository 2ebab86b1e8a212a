"""Ten workloads by the description of sites, written before the rules of dnm that they test: a
course of 1,200 students with four kinds of converter, builds in stages, pipelines at night,
clusters of Ray or Spark with long tails, parameter sweeps, inference with a daily curve, a slow
leak."""

from __future__ import annotations

import random
from dataclasses import replace
from math import cos, pi

from dnm.simulate.values import DAY, HOUR, Ask, Workload
from tests.economy.building import MINUTE, ask, free, single_queue_workload

STUDENTS = 1_200


def _course(key: int, seed: int, lasts: float) -> Workload:
    """Returns a workload of a daily course at nine: 1,200 students start in twenty minutes and stay
    for one to three hours."""
    source = random.Random(seed * 100 + key)
    queue = "root.anvil.students"
    asks = []
    for day in range(int(lasts / DAY) + 1):
        for _ in range(STUDENTS):
            incoming = day * DAY + 9 * HOUR + source.uniform(0, 20) * MINUTE
            cores = source.choices((1, 2), (60, 40))[0]
            asks.append(ask(incoming, source.uniform(1, 3) * HOUR, cores, 2 * cores, queue))
    return single_queue_workload("a course", asks, (seed, lasts), (100, 200), [free(50, 100)] * 2)


def course_in_seconds(seed: int, lasts: float) -> Workload:
    """Returns the workload of the course, with conversions and returns of three seconds."""
    course = _course(40, seed, lasts)
    return replace(course, name="a course, 3 s", conversion=(3.0, 3.0), returns=(3.0,))


def course_in_minutes(seed: int, lasts: float) -> Workload:
    """Returns the workload of the course, with conversions and returns of 90 seconds."""
    course = _course(41, seed, lasts)
    return replace(course, name="a course, 90 s", conversion=(90.0, 90.0), returns=(90.0,))


def slow_course(seed: int, lasts: float) -> Workload:
    """Returns the workload of the course, with conversions of a quarter of an hour."""
    course = _course(42, seed, lasts)
    return replace(course, name="a course, 15 min", conversion=(13 * MINUTE, 17 * MINUTE))


def failing_course(seed: int, lasts: float) -> Workload:
    """Returns the workload of the course, in which one conversion in ten fails."""
    return replace(_course(43, seed, lasts), name="a course, one in ten fails", fails=0.1)


def staged_builds(seed: int, lasts: float) -> Workload:
    """Returns a workload of builds in stages: lint for a minute, build for five, test for twenty,
    with pauses between them; six pushes an hour by day and one every two hours by night."""
    source = random.Random(seed * 100 + 44)
    queue = "root.anvil.stages"
    asks: list[Ask] = []
    when = 0.0
    while when < lasts:
        when += source.expovariate((6 if 8 <= when % DAY / HOUR < 19 else 0.5) / HOUR)
        start = when
        for pods, length in ((4, 1), (8, 5), (source.randint(8, 24), 20)):
            for _ in range(pods):
                lasts_for = length * source.uniform(0.8, 1.2) * MINUTE
                asks.append(ask(start + source.uniform(0, 15), lasts_for, 8, 16, queue))
            start += (1.2 * length + source.uniform(1, 4)) * MINUTE
    return single_queue_workload(
        "builds in stages", asks, (seed, lasts), (96, 192), [free(96, 192)]
    )


def airflow_night(seed: int, lasts: float) -> Workload:
    """Returns a workload of pipelines: 63 short pods every hour or two from one to five a.m."""
    source = random.Random(seed * 100 + 45)
    queue = "root.anvil.airflow"
    asks = [ask(0.0, 2 * lasts, 8, 16, queue)]
    for day in range(int(lasts / DAY) + 1):
        start = day * DAY + 1 * HOUR
        while start <= day * DAY + 5 * HOUR:
            for _ in range(63):
                incoming = start + source.uniform(0, 1) * MINUTE
                asks.append(ask(incoming, source.uniform(2, 8) * MINUTE, 4, 12, queue))
            start += source.choice((1, 2)) * HOUR
    return single_queue_workload(
        "a night of pipelines", asks, (seed, lasts), (64, 192), [free(64, 192)]
    )


def long_tails(seed: int, lasts: float) -> Workload:
    """Returns a workload of clusters of Ray or Spark: 8 to 20 workers that start together. Most end
    within the hour, and one in six runs for up to six hours."""
    source = random.Random(seed * 100 + 46)
    queue = "root.anvil.ray"
    asks: list[Ask] = []
    when, gang = 0.0, 0
    while when < lasts:
        when += source.expovariate((0.8 if 8 <= when % DAY / HOUR < 20 else 0.3) / HOUR)
        gang += 1
        length = source.uniform(15, 60) * MINUTE
        for _ in range(source.randint(8, 20)):
            is_slow = source.random() < 1 / 6
            lasts_for = length * (source.uniform(2, 6) if is_slow else source.uniform(0.6, 1))
            asks.append(replace(ask(when, lasts_for, 16, 60, queue), gang=gang))
    return single_queue_workload(
        "Ray with long tails", asks, (seed, lasts), (320, 1200), [free(64, 240)]
    )


def sweeps(seed: int, lasts: float) -> Workload:
    """Returns a workload of parameter sweeps: 80 to 250 pods at once, for up to two hours."""
    source = random.Random(seed * 100 + 47)
    queue = "root.anvil.sweep"
    asks: list[Ask] = []
    when = 0.0
    while when < lasts:
        when += source.uniform(1.5, 7) * HOUR
        cores = source.choice((2, 4, 8))
        length = source.uniform(10, 50) * MINUTE
        for number in range(source.randint(80, 250)):
            lasts_for = min(length * source.lognormvariate(0, 0.4), 2 * HOUR)
            asks.append(ask(when + number * 0.5, lasts_for, cores, 2 * cores, queue))
    return single_queue_workload(
        "parameter sweeps", asks, (seed, lasts), (128, 256), [free(64, 128)] * 2
    )


def inference(seed: int, lasts: float) -> Workload:
    """Returns a workload of inference on GPUs: replicas follow the hour of the day."""
    source = random.Random(seed * 100 + 48)
    queue = "root.anvil.inference"
    asks: list[Ask] = []
    began: list[float] = []
    for number in range(int(lasts / (5 * MINUTE)) + 1):
        when = number * 5 * MINUTE
        curve = 12 - 10 * cos(2 * pi * (when % DAY / DAY - 2 / 24))
        wanted = max(round(curve + source.gauss(0, 0.8)), 1)
        while len(began) > wanted:
            since = began.pop()
            asks.append(ask(since, when - since, 8, 64, queue, 1))
        began += [when + len(began)] * (wanted - len(began))
    asks += [ask(since, 2 * lasts, 8, 64, queue, 1) for since in began]
    own = {**free(64, 512), "nvidia.com/gpu": 4}
    return single_queue_workload(
        "inference", asks, (seed, lasts), (40, 320), [own], (3000, 24000), node_type="g"
    )


def slow_leak(seed: int, lasts: float) -> Workload:
    """Returns a workload: every half an hour a pod that never ends, beside short ones."""
    source = random.Random(seed * 100 + 49)
    queue = "root.anvil.leak"
    asks: list[Ask] = []
    when = 0.0
    while when < lasts:
        when += source.expovariate(1 / (15 * MINUTE))
        never_ends = source.random() < 0.5
        length = 2 * lasts if never_ends else source.uniform(10, 60) * MINUTE
        asks.append(ask(when, length, 4, 8, queue))
    return single_queue_workload("a slow leak", asks, (seed, lasts), (64, 128), [free(64, 128)])


ALL = (
    course_in_seconds, course_in_minutes, slow_course, failing_course, staged_builds,
    airflow_night, long_tails, sweeps, inference, slow_leak,
)  # fmt: skip
