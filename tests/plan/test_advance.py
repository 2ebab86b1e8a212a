"""Tests of how observed facts change the registry's requests and nodes, taken together."""

from __future__ import annotations

from msgspec.structs import replace

from dnm.model.lent import Phase
from dnm.model.observed import Backoff, Breaker
from tests.builders import NOW, QUEUE, a_batch_node
from tests.plan.worlds import LONG_AGO, World, pods

BACKOFFS = {"a": Backoff(failures=3, until=NOW, ask_at_most=1)}


def test_joined_node_ends_the_back_off_of_its_type() -> None:
    world = World().recorded(backoffs=BACKOFFS).lent("a001", Phase.JOINING)
    advanced = world.node("a001", mark=None).advanced()
    assert advanced.registry.backoffs == {}
    assert advanced.registry.nodes["a001"].phase is Phase.SERVING


def test_failed_node_is_an_error_of_each_run_and_fails_its_type_once() -> None:
    late = World().lent("a001", Phase.JOINING, since=LONG_AGO)
    advanced = late.advanced()
    assert advanced.node_errors == (advanced.registry.nodes["a001"].error,)
    assert advanced.registry.backoffs["a"].failures == 1
    still = late.recorded(nodes=advanced.registry.nodes).advanced()
    assert still.node_errors == advanced.node_errors and still.registry.backoffs == {}
    other = replace(advanced.registry.nodes["a001"], owner="other")
    assert late.recorded(nodes={"a001": other}).advanced().node_errors == ()


def test_used_node_closes_the_breaker_of_its_queue() -> None:
    world = World().recorded(breakers={QUEUE: Breaker(unused=3, tripped_at=NOW, trips=2)})
    world.lent("a001").node("a001").with_pods(*pods(1, node="a001"))
    assert world.advanced().registry.breakers == {}


def test_node_returned_unused_is_counted_and_removed() -> None:
    world = World().lent("a001", Phase.RETURNING).set(batch={"a001": a_batch_node()})
    advanced = world.advanced()
    assert advanced.registry.nodes == {}
    assert advanced.registry.breakers == {QUEUE: Breaker(unused=1)}
