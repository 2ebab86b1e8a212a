"""Tests that the simulator only skips runs that would do nothing: figures stay the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dnm.model.share import Floor
from dnm.queues.yunikorn.quantities import kubernetes_limits
from dnm.queues.yunikorn.simulated import queues_text
from dnm.queues.yunikorn.tree import parse_tree
from dnm.simulate.compare import play_under
from dnm.simulate.measure import play
from dnm.simulate.values import DAY, Workload
from dnm.simulate.world import World
from tests.economy.building import free, limit, workload
from tests.economy.dnm_policy import AwakePolicy, DnmPolicy, make_config
from tests.economy.measure import measure_policy
from tests.economy.public_shapes import crash_loops, failing, full_batch, gangs, oscillation
from tests.economy.workloads import gpu_pods
from tests.night import sample_by_day

PLAYED = (gangs, crash_loops, oscillation, failing, gpu_pods, full_batch)


@pytest.mark.parametrize("make", sample_by_day(2, PLAYED), ids=lambda make: make.__name__)
def test_skipped_run_would_have_done_nothing(make) -> None:  # type: ignore[no-untyped-def]
    full = make(1, DAY)
    busy = sorted(ask.at for ask in full.asks)[len(full.asks) // 2]
    begin = max(busy - DAY / 8, 0.0)
    asks = tuple(replace(ask, at=ask.at - begin) for ask in full.asks if ask.at >= begin)
    check_runs_left_out(replace(full, asks=asks, lasts=DAY / 4))


def test_newly_learned_idle_time_releases_idle_nodes() -> None:
    """If dnm learns a shorter idle time, the simulator must not skip the run at its end."""
    check_runs_left_out(replace(full_batch(5, 2 * DAY), lasts=DAY))


def check_runs_left_out(some: Workload) -> None:
    own, all_runs = (
        measure_policy(some, "dnm", function(some)) for function in (DnmPolicy, AwakePolicy)
    )
    assert own == all_runs
    assert own.conversions, "else this shows nothing"


def test_plan_errors_are_reported_once_and_failures_are_counted() -> None:
    """A limit that no document can have is an error; failed conversions are only counted."""
    some = replace(failing(1, DAY / 2), fails=0.7)
    policy = DnmPolicy(some)
    figures = play(some, policy)[1]
    assert figures.failures and not policy.errors
    broken = DnmPolicy(replace(some, limits={"root.elsewhere": limit(80, 320)}))
    World(some).play(broken)
    assert len(broken.errors) == 1


@pytest.mark.parametrize("seconds", [300, 1])
def test_repeated_return_changes_nothing_in_the_simulation(seconds: int) -> None:
    """A simulated boot takes longer than join_timeout_seconds, so dnm repeats the call."""
    some = oscillation(1, DAY / 4)
    config = make_config(some, join_timeout=timedelta(seconds=seconds))
    figures, _ = play_under(some, config)
    assert figures.conversions and figures.lent, "else this shows nothing"


def test_excluded_nodes_of_the_site_are_not_simulated() -> None:
    """Only the nodes that may be lent are simulated, without their partitions."""
    some = oscillation(1, DAY / 8)
    kept = dict.fromkeys(("partitions", "features", "reservations"), ("debug",))
    config = make_config(some, **{f"exclude_{key}": names for key, names in kept.items()},
                         exclude_nodes=frozenset({"a0001", "a001"}),
                         partition_floors={"debug": Floor(nodes=2)})  # fmt: skip
    figures, errors = play_under(some, config)
    assert figures == play_under(some, make_config(some))[0] and not errors
    assert figures.conversions, "else this shows nothing"


def test_simulated_document_has_the_limits_and_their_ancestors() -> None:
    """Queues that the workload does not mention have no limit."""
    deep, other = "root.a.b.c", "root.d"
    limits = {deep: limit(80, 320), other: limit(1, 2, 3), "root.a": limit(500, 600)}
    made = workload("some", [], limits, (free(1, 1),), {}, 1, DAY)
    queues = kubernetes_limits(parse_tree(queues_text(made.limits)).queues)
    assert {path: dict(queue.max) for path, queue in queues.items() if path != "root"} == {
        **limits,
        "root.a.b": {},
    }
