"""Tests of lend requests: how many nodes for which namespace, and which Nodes existed before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.config import NamespacePolicy
from dnm.model.lent import Phase
from dnm.model.node_type import NodeType
from dnm.model.observed import Backoff, Breaker
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from tests.builders import NOW, QUEUE, SIZE, a_batch_node
from tests.plan.worlds import (
    LONG_AGO,
    UNREAD,
    World,
    facts_of,
    namespace_policy,
    pods,
    queue_map,
    two_namespaces,
    wanting,
)


def requested_counts(world: World) -> list[int]:
    return [request.count for request in world.converted().requests]


OTHER = "root.anvil.services.notebook"
BACKED_OFF = {"a": Backoff(failures=2, until=LONG_AGO, ask_at_most=2)}
TRIPPED = Breaker(unused=3, tripped_at=LONG_AGO, demand="before", trips=1)


@pytest.mark.parametrize(
    ("world", "counts"),
    [
        pytest.param(wanting(3), [3], id="all-that-are-granted"),
        pytest.param(wanting(3).configured(max_conversions_per_run=2), [2], id="per-run"),
        pytest.param(wanting(3).recorded(backoffs=BACKED_OFF), [2], id="after-a-failure"),
        pytest.param(wanting(3).recorded(breakers={QUEUE: TRIPPED}), [1], id="after-a-trip"),
    ],
)
def test_requested_count_respects_quota_caps_and_run_limit(world: World, counts: list[int]) -> None:
    assert requested_counts(world) == counts


def test_chance_of_a_breaker_is_recorded() -> None:
    converted = wanting(3).recorded(breakers={QUEUE: TRIPPED}).converted()
    assert converted.registry.breakers == {QUEUE: Breaker(unused=2, trips=1)}
    assert converted.registry.last_conversion == NOW


def test_trip_of_a_breaker_is_recorded_with_its_time() -> None:
    converted = wanting(1).recorded(breakers={QUEUE: Breaker(unused=3)}).converted()
    tripped = converted.registry.breakers[QUEUE]
    assert (tripped.tripped_at, tripped.trips, converted.requests) == (NOW, 1, ())
    verdict = converted.verdicts[QUEUE]
    assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, Reason.BREAKER)
    since = "2026-03-02 12:00:00 UTC"
    assert verdict.detail == f"3 since {since}; changed demand is tried after {since}"


@pytest.mark.parametrize(
    ("demand", "node_count"),
    [("before", "changed demand"), pytest.param("", "it", id="for-an-image")],
)
def test_waiting_queue_reports_the_time_of_its_next_chance(demand: str, node_count: str) -> None:
    breaker = Breaker(unused=3, tripped_at=NOW, demand=demand, trips=2)
    verdict = wanting(1).recorded(breakers={QUEUE: breaker}).converted().verdicts[QUEUE]
    assert verdict.detail.endswith(f"; {node_count} is tried after 2026-03-02 12:02:00 UTC")


def test_request_records_present_nodes_that_are_not_lent() -> None:
    """`nodes_before` has Nodes that no request brought. dnm may lend a001 again after a return."""
    world = wanting(3).node("a007", mark=None).node("a003", mark=None).node("b1", mark=None)
    world.lent("a001", was_used=True).node("a001")
    (request,) = world.converted().requests
    assert request.nodes_before == ("a003", "a007")


def test_requests_have_distinct_recorded_ids() -> None:
    world = wanting(2)
    converted = world.converted()
    assert converted.registry.requests == converted.requests
    assert converted.requests[0].id == "20260302T120000000000-1"


@pytest.mark.parametrize("yunikorn", [None, UNREAD], ids=["asked", "away"])
def test_unused_nodes_trip_the_breaker_unless_yunikorn_is_away(yunikorn: Any) -> None:
    """Without an answer of YuniKorn, the breaker stays closed, but dnm lends nothing either."""
    world = (
        World().with_pods(*pods(2)).with_facts(queue_facts=facts_of((queue_map(), None), yunikorn))
    )
    for number in range(3):
        world.lent(f"a00{number}", Phase.SERVING, since=NOW - timedelta(hours=1))
        world.node(f"a00{number}", is_cordoned=True)
    converted = world.converted()
    verdict = converted.verdicts[QUEUE]
    assert verdict.reason is Reason.BREAKER and not converted.requests
    assert ("the scheduler does not answer" if yunikorn else "3 since") in verdict.detail
    assert bool(converted.registry.breakers) is not bool(yunikorn)


def test_tripped_breaker_does_not_stop_nodes_for_min_nodes() -> None:
    """The breaker is about pods that do not use nodes, and min_nodes needs no pods."""
    world = World().recorded(breakers={QUEUE: Breaker(unused=9)})
    world.configured(namespaces=namespace_policy(world.config, min_nodes=2))
    converted = world.converted()
    assert [request.count for request in converted.requests] == [2]
    assert converted.verdicts[QUEUE].reason is Reason.MIN_NODES
    assert converted.registry.breakers[QUEUE].tripped_at is None


def test_nodes_for_min_nodes_take_no_chance_of_the_breaker() -> None:
    """A request for min_nodes does not count as the breaker's one retry, which is for the pods."""
    world = World().recorded(breakers={QUEUE: TRIPPED})
    world.configured(namespaces=namespace_policy(world.config, min_nodes=2))
    converted = world.converted()
    assert [request.count for request in converted.requests] == [2]
    assert converted.registry.breakers == {QUEUE: TRIPPED}


def test_chance_stays_a_single_node_while_that_node_is_joining() -> None:
    """The breaker permits one node as a retry. While it joins, no run requests another one."""
    world = wanting(3).recorded(breakers={QUEUE: Breaker(unused=2, trips=1)})
    world.lent("a001", Phase.JOINING)
    converted = world.converted()
    verdict = converted.verdicts[QUEUE]
    assert not converted.requests and verdict.verdict is Verdict.WAIT
    assert verdict.sentence == "will be tried again: one incoming node is tried first"
    assert [request.count for request in world.recorded(breakers={}).converted().requests] == [2]


@pytest.mark.parametrize("breaker", [TRIPPED, Breaker(unused=2, trips=1)])
def test_chance_is_a_single_node_for_all_namespaces_of_a_queue(breaker: Breaker) -> None:
    world = two_namespaces().with_pods(*pods(2), *pods(2, namespace="two", app_id="other"))
    converted = world.recorded(breakers={QUEUE: breaker}).converted()
    assert [request.count for request in converted.requests] == [1]
    assert converted.verdicts[QUEUE].verdict is Verdict.CONVERT


def test_breaker_opened_by_an_image_holds_back_min_nodes_and_pods() -> None:
    """If an image cannot be pulled, nodes for min_nodes fail too, so they have to wait as well."""
    world = World().configured(namespaces=namespace_policy(World().config, min_nodes=2))
    waits = Breaker(unused=1, tripped_at=NOW - timedelta(minutes=1), trips=2)
    held = world.recorded(breakers={QUEUE: waits}).converted()
    assert not held.requests and held.verdicts[QUEUE].reason is Reason.BREAKER
    assert held.verdicts[QUEUE].detail.endswith("; it is tried after 2026-03-02 12:01:00 UTC")
    due = Breaker(unused=1, tripped_at=NOW - timedelta(minutes=1), trips=1)
    tried = world.recorded(breakers={QUEUE: due}).converted()
    assert [request.count for request in tried.requests] == [1]
    assert tried.registry.breakers[QUEUE] == Breaker(unused=2, trips=1)


def test_queue_that_gets_a_node_reports_convert_despite_a_backed_off_type() -> None:
    backed_off = {"a": Backoff(failures=2, until=NOW + timedelta(minutes=1), ask_at_most=1)}
    for types in (("a", "b"), ("b", "a")):
        world = two_namespaces().recorded(backoffs=backed_off)
        few = dict(zip(("dev", "two"), types, strict=True))
        world.configured(
            node_types={**world.config.node_types, "b": NodeType(name="b", size=SIZE)},
            namespaces={
                name: msgspec.structs.replace(namespace, node_types=(few[name],), min_nodes=1)
                for name, namespace in world.config.namespaces.items()
            },
        )
        world.batch = {**world.batch, "b001": a_batch_node("b001")}
        converted = world.converted()
        assert [request.node_type for request in converted.requests] == ["b"]
        assert converted.verdicts[QUEUE].verdict is Verdict.CONVERT


def test_two_queues_share_the_conversions_of_a_run() -> None:
    """The second queue gets only what the first one has left of the run's conversions."""
    world = wanting(2).with_pods(*pods(2, namespace="two", queue=OTHER, app_id="other"))
    more = NamespacePolicy(name="two", queue=OTHER, node_types=("a",))
    world.configured(namespaces={**world.config.namespaces, "two": more}, max_conversions_per_run=3)
    converted = world.converted()
    assert sorted(request.count for request in converted.requests) == [1, 2]
    one_conversion = world.configured(max_conversions_per_run=1).converted()
    assert [request.count for request in one_conversion.requests] == [1]
    assert {verdict.detail for verdict in one_conversion.verdicts.values()} >= {
        "max_conversions_per_run = 1"
    }


def two_queues(first: int, second: int, *types: str) -> World:
    """Builds two namespaces of equal priority, with pods that need so many nodes."""
    world = wanting(first).with_pods(*pods(second, namespace="two", queue=OTHER, app_id="other"))
    more = NamespacePolicy(name="two", queue=OTHER, node_types=types or ("a",))
    return world.configured(namespaces={**world.config.namespaces, "two": more})


def test_namespaces_share_the_conversions_of_one_run() -> None:
    """Once, a namespace that needed nine nodes took all conversions of each run."""

    def by_namespace(world: World) -> dict[str, int]:
        return {request.namespace: request.count for request in world.converted().requests}

    world = two_queues(9, 2).configured(max_conversions_per_run=3)
    assert by_namespace(world) == {"dev": 2, "two": 1}
    world.lent("a001", Phase.JOINING).lent("a002", Phase.JOINING)
    assert by_namespace(world) == {"dev": 1, "two": 2}
    assert by_namespace(world.configured(max_conversions_per_run=1)) == {"two": 1}


def test_namespace_that_waits_leaves_its_share_of_the_run() -> None:
    backed_off = {"b": Backoff(failures=2, until=NOW + timedelta(minutes=1), ask_at_most=1)}
    world = two_queues(9, 2, "b").lent("a001", Phase.JOINING)
    world.configured(
        node_types={**world.config.node_types, "b": NodeType(name="b", size=SIZE)},
        max_conversions_per_run=2,
    )
    world.batch = {**world.batch, "b001": a_batch_node("b001"), "b002": a_batch_node("b002")}
    shared = world.converted().requests
    assert [(request.namespace, request.count) for request in shared] == [("two", 1), ("dev", 1)]
    waits = world.recorded(backoffs=backed_off).converted()
    assert [(request.namespace, request.count) for request in waits.requests] == [("dev", 2)]
    assert waits.verdicts[OTHER].reason is Reason.BACKOFF
