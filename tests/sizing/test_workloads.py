"""Tests that dnm lends for a Workload of Kueue only if enough nodes for all of it can be lent."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.cluster import RefusedPods
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from dnm.sizing.caps import UNBOUNDED, ConversionBudget
from dnm.sizing.queue_sizing import Sizing
from dnm.sizing.releases import Candidates, choose_releases, judge_fenced
from dnm.sizing.sizing import size_queues
from dnm.sizing.workload_bounds import WorkloadBounds
from tests.scenes import (
    DEV,
    GPU,
    SMALL,
    budget,
    config,
    demand,
    entry,
    lent,
    node_supply,
    pods,
    policy,
    size,
    tree,
)

ON_A_NODE = 16  # pods


class Job(NamedTuple):
    """A Workload of equal pods, of which Kueue admits at least `least` together (0 means all)."""

    size: int
    least: int = 0
    queue: str = "dev"
    request: dict[str, int] = SMALL


def refused_by(jobs: tuple[Job, ...], is_strict: bool) -> tuple[RefusedPods, ...]:
    return tuple(
        RefusedPods(
            pod=pods(1, job.request, namespace=job.queue, app=job.queue, name=f"job{number}-",
                     ago=3000 - number)[0],
            count=job.size, workload=f"{job.queue}/job{number}", least=job.least or job.size,
            is_strict=is_strict,
        )
        for number, job in enumerate(jobs)
    )  # fmt: skip


def sizing_of(
    jobs: tuple[Job, ...],
    left: ConversionBudget = UNBOUNDED,
    existing: int = 0,
    is_strict: bool = False,
    **settings: Any,
) -> Sizing:
    """Returns the sizing for Workloads that wait, with `existing` idle lent nodes."""
    conf = config(**settings)
    names = [f"a{number:03}" for number in range(existing)]
    quota = {name: amount * existing for name, amount in size(128, 256).items()}
    limits = tree(dev=quota, gpu=size(0, 0))
    refused = refused_by(jobs, is_strict)
    facts = demand((), conf, limits, refused=refused)
    supply = node_supply(map(lent, names), {name: entry(name) for name in names})
    together = msgspec.structs.replace(facts, workloads=refused)
    return size_queues(conf, together, limits, supply, left)


def admit(jobs: tuple[Job, ...], free: int, is_strict: bool = False) -> list[int]:
    """Returns how many pods of each Workload Kueue would admit with quota for `free` pods."""
    counts = []
    is_blocked = False
    for job in jobs:
        count = min(job.size, free) if (job.least or job.size) <= free and not is_blocked else 0
        is_blocked |= is_strict and not count
        counts.append(count)
        free -= count
    return counts


def nodes_for(count: int) -> int:
    return -(-count // ON_A_NODE)


def granted(sizing: Sizing, queue: str = DEV) -> int:
    return sum(sizing.of(queue).granted.values())


def partial(count: int) -> st.SearchStrategy[Job]:
    return st.builds(Job, st.just(count), st.integers(0, count))


JOBS = st.lists(st.integers(1, 120).flatmap(partial), min_size=1, max_size=6).map(tuple)


@given(jobs=JOBS, available=st.integers(0, 12), existing=st.integers(0, 3), is_strict=st.booleans())
def test_every_granted_node_is_used_by_a_workload_that_kueue_admits(
    jobs: tuple[Job, ...], available: int, existing: int, is_strict: bool
) -> None:
    sizing = sizing_of(jobs, budget(batch={"a": available, "g": 0}), existing, is_strict)
    lent_nodes = granted(sizing)
    assert lent_nodes <= available
    used = sum(admit(jobs, (existing + lent_nodes) * ON_A_NODE, is_strict))
    assert lent_nodes == max(0, nodes_for(used) - existing)
    if not any(job.least for job in jobs):
        best = sum(admit(jobs, (existing + available) * ON_A_NODE, is_strict))
        assert lent_nodes == max(0, nodes_for(best) - existing)


CASES: dict[str, tuple[tuple[Job, ...], dict[str, Any], int]] = {
    # Workloads, what can be lent -> granted nodes
    "enough nodes": ((Job(75),), {"batch": {"a": 5}}, 5),
    "an idle node too few": ((Job(75),), {"batch": {"a": 4}}, 0),
    "a cap of a node too few": ((Job(75),), {"total": 4}, 0),
    "a cap of the namespace": ((Job(75),), {"per_namespace": {"dev": 4}}, 0),
    "a cap of the type": ((Job(75),), {"per_type": {"a": 4}}, 0),
    "partial admission": ((Job(75, least=20),), {"batch": {"a": 4}}, 4),
    "too few for the minimum": ((Job(75, least=65),), {"batch": {"a": 4}}, 0),
    "a smaller one behind": ((Job(75), Job(20)), {"batch": {"a": 4}}, 2),
    "no type for its pods": ((Job(2, request=size(200, 16)), Job(20)), {"batch": {"a": 4}}, 2),
    "single pods": (tuple([Job(1)] * 40), {"batch": {"a": 1}}, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_workload_gets_all_of_its_nodes_or_none(name: str) -> None:
    jobs, left, expected = CASES[name]
    assert granted(sizing_of(jobs, budget(**left))) == expected


def test_two_pod_sets_of_a_workload_are_completed_together() -> None:
    """Only one node can be lent. The leader alone would fit on it, but not the workers."""
    leader, workers = refused_by((Job(1), Job(34, request=size(4, 15))), False)
    both = tuple(msgspec.structs.replace(item, workload="dev/w") for item in (leader, workers))
    conf, limits = config(), tree(dev=size(0, 0))
    facts = demand((), conf, limits, refused=both)
    together = msgspec.structs.replace(facts, workloads=both)
    for available, expected in ((1, 0), (2, 0), (3, 3)):
        left = budget(batch={"a": available})
        assert granted(size_queues(conf, together, limits, node_supply(), left)) == expected


def test_incomplete_workload_is_named_with_the_nodes_that_it_lacks() -> None:
    sizing = sizing_of((Job(75),), budget(batch={"a": 3}))
    verdict = sizing.verdicts[DEV]
    assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, Reason.INCOMPLETE)
    assert "needs 5 of type a; 3 can be lent" in verdict.without_pods
    assert "job0" in verdict.sentence and "job0" not in verdict.without_pods
    assert list(sizing.of(DEV).incomplete) == ["dev/job0"]
    assert sizing.of(DEV).first_lacks == 0


def test_workload_that_no_node_type_fits_is_no_question_of_supply() -> None:
    sizing = sizing_of((Job(2, request=size(200, 16)),), budget(batch={"a": 3}))
    assert sizing.verdicts[DEV].reason is Reason.NOTHING_HELPS
    assert [item.count for item in sizing.of(DEV).unschedulable] == [2]


def test_scarce_nodes_complete_the_older_queue() -> None:
    """With two nodes each, neither queue's Workload could start, so the older one gets all."""
    namespaces = {"dev": policy("dev", DEV, "a"), "gpu": policy("gpu", GPU, "a")}
    jobs = (Job(48), Job(48, queue="gpu"))
    sizing = sizing_of(jobs, budget(batch={"a": 4}), namespaces=namespaces)
    assert (granted(sizing), granted(sizing, GPU)) == (3, 0)
    assert sizing.verdicts[GPU].reason is Reason.INCOMPLETE


@pytest.mark.parametrize(("available", "fate"), [(0, Verdict.REVERT), (1, Verdict.KEEP)])
def test_fenced_node_serves_again_if_it_completes_a_workload(available: int, fate: Verdict) -> None:
    """The Workload needs four nodes: two serve, one is fenced, and one can be lent or not."""
    refused = refused_by((Job(64),), is_strict=False)
    names = ["a000", "a001", "a002"]
    quota = {name: amount * 2 for name, amount in size(128, 256).items()}
    conf, limits = config(), tree(dev=quota)
    facts = demand((), conf, limits, refused=refused)
    together = msgspec.structs.replace(facts, workloads=refused)
    entries = {name: entry(name) for name in names}
    supply = node_supply(map(lent, names), entries, leaving=["a002"])
    left = budget(batch={"a": available})
    verdicts = judge_fenced(conf, together, limits, supply, {"a002": entries["a002"]}, left)
    assert verdicts["a002"].verdict is fate


def sizing_of_refused(
    refused: tuple[RefusedPods, ...], left: ConversionBudget, **settings: Any
) -> Sizing:
    conf, limits = config(**settings), tree(dev=size(0, 0), gpu=size(0, 0))
    facts = demand((), conf, limits, refused=refused)
    together = msgspec.structs.replace(facts, workloads=refused)
    return size_queues(conf, together, limits, node_supply(), left)


def in_pairs(refused: tuple[RefusedPods, ...]) -> tuple[RefusedPods, ...]:
    """Returns the same pods as pod sets of Workloads: the first and the second, and so on."""
    return tuple(
        msgspec.structs.replace(item, workload=f"dev/w{number // 2}")
        for number, item in enumerate(refused)
    )


def test_many_kinds_of_workloads_are_tried_within_a_bound() -> None:
    """Two nodes hold four of the five pods of each, although their sum would fit."""
    sets = tuple(Job(2 + number % 2, request=size(45, 8 + number / 1000)) for number in range(120))
    refused = (*in_pairs(refused_by(sets, False)), *refused_by((Job(1),), False))
    sizing = sizing_of_refused(refused, budget(batch={"a": 2}))
    assert "than dnm tries" in sizing.of(DEV).incomplete["dev/w59"]


@pytest.mark.parametrize(("count", "cores", "gb"), [
    (90, 4, 16.5), (186, 4.1, 1), (6, 65, 1), (11, 43, 1),
], ids=["memory", "cores", "more than half of a node", "more than a third"])  # fmt: skip
def test_workload_after_many_incomplete_ones_is_completed(
    count: int, cores: float, gb: float
) -> None:
    """Each of these needs six nodes, and three can be lent."""
    large = tuple(Job(count, request=size(cores, gb + number / 10_000)) for number in range(300))
    sizing = sizing_of((*large, Job(48), Job(1)), budget(batch={"a": 3}))
    assert granted(sizing) == 3
    assert len(sizing.of(DEV).incomplete) == 301
    assert "needs 6 of type a; 3 can be lent" in sizing.of(DEV).incomplete["dev/job299"]


def test_last_workload_that_cannot_be_packed_stops_none_before_it() -> None:
    """Each needs a node of its own, although the sum of their requests would fit on four."""
    jobs = tuple(Job(2, request=size(45, 8 + number / 1000)) for number in range(5))
    sizing = sizing_of(jobs, budget(batch={"a": 4}))
    assert granted(sizing) == 4 and list(sizing.of(DEV).incomplete) == ["dev/job4"]


def test_workloads_that_cannot_be_packed_rule_out_none_of_another_queue() -> None:
    """Two nodes hold four of the five pods of each in `gpu`, although their sum would fit."""
    namespaces = {"dev": policy("dev", DEV, "a"), "gpu": policy("gpu", GPU, "a", priority=9)}
    sets = tuple(Job(2 + number % 2, 0, "gpu", size(45, 8 + number / 1000)) for number in range(40))
    pairs = tuple(
        msgspec.structs.replace(item, workload=item.workload.replace("dev/", "gpu/"))
        for item in in_pairs(refused_by(sets, False))
    )
    small = refused_by((Job(5, request=size(45, 8)), Job(16)), False)
    refused = (*pairs, *small)
    sizing = sizing_of_refused(refused, budget(batch={"a": 2}), namespaces=namespaces)
    assert granted(sizing) >= 1 and granted(sizing, GPU) == 0


def test_misfits_use_up_no_trials() -> None:
    misfits = tuple(Job(2, request=size(200 + number, 16)) for number in range(100))
    sizing = sizing_of((*misfits, Job(20)), budget(batch={"a": 3}))
    assert granted(sizing) == 2
    assert len(sizing.of(DEV).unschedulable) == 100


def test_changed_choice_is_no_changed_demand() -> None:
    """The demand stays the same, so that idle nodes permit no retry after the breaker opened."""
    fingerprints = {
        sizing_of((Job(75), Job(20)), budget(batch={"a": count})).of(DEV).fingerprint
        for count in range(9)
    }
    assert len(fingerprints) == 1


def test_fenced_node_of_another_type_is_judged_within_the_budget_without_workloads() -> None:
    """Pods that Kueue admits one by one request the first node type, not the fenced node's."""
    conf = config(namespaces={"dev": policy("dev", DEV, "g", "a"), "gpu": policy("gpu", GPU, "g")})
    facts = demand(pods(1, SMALL), conf, tree())
    entries = {"a000": entry("a000")}
    supply = node_supply([lent("a000")], entries, leaving=["a000"])
    left = budget(batch={"a": 0, "g": 0})
    verdicts = judge_fenced(conf, facts, tree(), supply, entries, left)
    assert verdicts["a000"].verdict is Verdict.REVERT


@pytest.mark.parametrize(("available", "kept"), [(1, 0), (2, 3)])
def test_idle_nodes_wait_for_the_rest_of_their_workload(available: int, kept: int) -> None:
    """A cooldown or back-off can delay the other nodes for longer than the idle time. Meanwhile dnm
    must not record the Workload's pods as stalled, which request nothing until they change."""
    refused = refused_by((Job(75),), is_strict=False)
    names = ["a000", "a001", "a002"]
    quota = {name: amount * 3 for name, amount in size(128, 256).items()}
    conf, limits = config(), tree(dev=quota)
    facts = demand((), conf, limits, refused=refused)
    together = msgspec.structs.replace(facts, workloads=refused)
    supply = node_supply(map(lent, names), {name: entry(name) for name in names})
    asked = Candidates(names=tuple(names), at_most=3, budget=budget(batch={"a": available}))
    releases = choose_releases(conf, together, limits, supply, asked)
    assert len(releases.go) == 3 - kept
    assert releases.stalled == {}


def test_incomplete_workloads_of_a_queue_do_not_stop_queues_of_lower_priority() -> None:
    namespaces = {"dev": policy("dev", DEV, "a"), "gpu": policy("gpu", GPU, "a", priority=9)}
    large = tuple(Job(300 - number, queue="gpu") for number in range(70))
    sizing = sizing_of((*large, Job(16)), budget(batch={"a": 4}), namespaces=namespaces)
    assert granted(sizing) == 1


def test_lack_is_that_of_the_first_workload_that_lacks_a_node() -> None:
    """The first Workload already has its node, and Kueue has not admitted it yet."""
    sizing = sizing_of((Job(16), Job(64)), budget(batch={"a": 9}), existing=1)
    assert granted(sizing) == 4
    assert sizing.of(DEV).first_lacks == 4


@pytest.mark.parametrize(("is_strict", "expected"), [(False, 1), (True, 0)])
def test_workload_with_uncounted_pods_gets_no_node(is_strict: bool, expected: int) -> None:
    """The list of kinds was cut before its second pod set. Kueue admits no half of it."""
    leader, workers, later = refused_by((Job(16), Job(34, request=size(4, 15)), Job(16)), is_strict)
    both = [msgspec.structs.replace(item, workload="dev/w") for item in (leader, workers)]
    conf, limits = config(), tree(dev=size(0, 0))
    facts = demand((), conf, limits, refused=(leader, later))
    together = msgspec.structs.replace(facts, workloads=(*both, later))
    sizing = size_queues(conf, together, limits, node_supply(), budget(batch={"a": 9}))
    assert granted(sizing) == expected
    assert sizing.of(DEV).incomplete["dev/w"] == "has pods that dnm does not count"
    assert ("dev/job2" in sizing.of(DEV).incomplete) is is_strict


def test_uncounted_head_of_a_strict_queue_stops_later_workloads() -> None:
    head, later = refused_by((Job(16, request=size(3, 3)), Job(16)), is_strict=True)
    conf, limits = config(), tree(dev=size(0, 0))
    facts = demand((), conf, limits, refused=(later,))
    together = msgspec.structs.replace(facts, workloads=(head, later))
    sizing = size_queues(conf, together, limits, node_supply(), budget(batch={"a": 9}))
    assert granted(sizing) == 0 and list(sizing.of(DEV).incomplete) == ["dev/job1"]


@pytest.mark.parametrize("is_strict", [False, True])
def test_order_of_a_queue_decides_among_its_namespaces(is_strict: bool) -> None:
    """Kueue knows no priority of namespaces, so that it admits the first Workload first."""
    namespaces = {"dev": policy("dev", DEV, "a"), "lab": policy("lab", DEV, "a", priority=5)}
    jobs = (Job(64), Job(16, queue="lab"))
    sizing = sizing_of(jobs, budget(batch={"a": 4}), is_strict=is_strict, namespaces=namespaces)
    assert granted(sizing) == 4
    assert list(sizing.of(DEV).incomplete) == ["lab/job1"]


def test_workloads_behind_a_misfit_of_a_strict_queue_are_named() -> None:
    jobs = (Job(2, request=size(200, 16)), Job(20), Job(3))
    sizing = sizing_of(jobs, budget(batch={"a": 3}), is_strict=True)
    assert granted(sizing) == 0
    text = "is behind one that no node type fits"
    assert sizing.of(DEV).incomplete == {"dev/job1": text, "dev/job2": text}


def test_no_incomplete_workload_is_recorded_as_stalled() -> None:
    """Kueue does not admit the first one, although an idle node is lent for it."""
    refused = refused_by((Job(16), Job(90, request=size(4, 15))), is_strict=False)
    conf, limits = config(), tree(dev=size(128, 256))
    facts = demand((), conf, limits, refused=refused)
    together = msgspec.structs.replace(facts, workloads=refused)
    supply = node_supply([lent("a000")], {"a000": entry("a000")})
    asked = Candidates(names=("a000",), at_most=1, budget=budget(batch={"a": 2}))
    releases = choose_releases(conf, together, limits, supply, asked)
    first = next(group for group in facts.groups if group.total == 16)
    assert releases.go == ("a000",) and {*releases.stalled} == {first.fingerprint}


def test_idle_node_that_a_workload_cannot_use_frees_its_cap() -> None:
    """With its place under the cap, a node of the other type completes the Workload."""
    namespaces = {"dev": policy("dev", DEV, "a", "g")}
    refused = refused_by((Job(2, request=size(65, 100)),), is_strict=False)
    conf, limits = config(namespaces=namespaces), tree(dev=size(64, 512))
    facts = demand((), conf, limits, refused=refused)
    together = msgspec.structs.replace(facts, workloads=refused)
    supply = node_supply([lent("g000")], {"g000": entry("g000", counted=size(64, 512))})
    left = budget(total=1, batch={"a": 2, "g": 1})
    assert size_queues(conf, together, limits, supply, left).of(DEV).incomplete
    asked = Candidates(names=("g000",), at_most=1, budget=left)
    assert choose_releases(conf, together, limits, supply, asked).go == ("g000",)


POD_SETS = st.tuples(st.integers(1, 12), st.integers(1, 128), st.integers(1, 256)).map(
    lambda drawn: Job(drawn[0], request=size(*drawn[1:]))
)


@given(
    sets=st.lists(POD_SETS, min_size=1, max_size=4).map(tuple),
    available=st.integers(0, 6), existing=st.integers(0, 2), total=st.integers(0, 6),
)  # fmt: skip
def test_bounds_allow_packed_pods(
    sets: tuple[Job, ...], available: int, existing: int, total: int
) -> None:
    """The pod sets are those of one Workload."""
    conf = config(namespaces={"dev": policy("dev", DEV, "a", "g")})
    names = [f"a{number:03}" for number in range(existing)]
    limits = tree(dev={name: amount * existing for name, amount in size(128, 256).items()})
    facts = demand((), conf, limits, refused=refused_by(sets, False))
    supply = node_supply(map(lent, names), {name: entry(name) for name in names})
    left = budget(total=total, batch={"a": available, "g": 1})
    served = size_queues(conf, facts, limits, supply, left).of(DEV).served
    names = [group.fingerprint for group in facts.groups]
    assert WorkloadBounds(conf, facts, limits, supply, left, names).allow([served])
