"""Tests of facts that a run checks before it decides: times of a wrong clock, unreadable inputs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dnm.model.lent import Phase
from dnm.model.observed import Backoff, Breaker
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.inputs import clamp_future_times
from tests.builders import NOW, QUEUE, a_config, a_lent_node, a_request
from tests.plan.worlds import CONVERTER, UNREAD, World, pods, queue_map, wanting


def test_future_times_of_a_wrong_clock_are_reset_to_now() -> None:
    ahead = NOW + timedelta(days=900)
    registry = Registry(
        nodes={
            "a001": a_lent_node(Phase.RETURNING, since=ahead, retry_after=ahead),
            "a002": a_lent_node(lent_since=ahead, moved_at=ahead),
        },
        requests=(a_request(since=ahead),),
        backoffs={"a": Backoff(failures=1, until=ahead, ask_at_most=1)},
        breakers={QUEUE: Breaker(tripped_at=ahead)},
    )
    mended = clamp_future_times(a_config(), registry, NOW)
    assert mended.breakers[QUEUE].tripped_at == NOW
    assert mended.nodes["a001"].since == mended.requests[0].since == NOW
    held = mended.nodes["a002"]
    assert held.lent_since == held.moved_at == NOW
    assert (mended.nodes["a001"].returning.retry_after or ahead) <= NOW + timedelta(hours=1)
    assert mended.backoffs["a"].until <= NOW + timedelta(hours=1)
    assert clamp_future_times(a_config(), mended, NOW) == mended


def test_retry_after_a_clock_jump_waits_for_its_back_off_only() -> None:
    """After a clock had been ahead, retries once waited for an hour, however short the back-off."""
    config, ahead = a_config(check_interval=timedelta(minutes=1)), NOW + timedelta(days=900)
    failed = a_lent_node(Phase.RETURNING, attempts=1, error="exit code 3", retry_after=ahead)
    at_work = a_lent_node(Phase.RETURNING, attempts=1, retry_after=ahead, converter=CONVERTER)
    registry = Registry(
        nodes={"a001": failed, "a002": at_work},
        backoffs={"a": Backoff(failures=2, until=ahead, ask_at_most=1)},
    )
    mended = clamp_future_times(config, registry, NOW)
    assert mended.nodes["a001"].returning.retry_after == NOW + timedelta(minutes=2)
    longest = config.convert_timeout + config.join_timeout
    assert mended.nodes["a002"].returning.retry_after == NOW + longest
    assert mended.backoffs["a"].until == NOW + timedelta(minutes=2)


def test_unreadable_queue_document_is_not_an_empty_document() -> None:
    unread = wanting(1).set(maps=UNREAD).inputs()
    broken = wanting(1).set(maps=(queue_map(text="partitions: ["), None)).inputs()
    for inputs in (unread, broken):
        assert inputs.queues is None and inputs.limits == {} and inputs.objection
        assert inputs.demand is not None


@pytest.mark.parametrize("cluster_wide", [True, False])
def test_node_without_pods_is_empty_only_if_all_pods_are_listed(cluster_wide: bool) -> None:
    seen = PodList(pods=pods(1, node="k1"), cluster_wide=cluster_wide)
    facts = World().set(pods=seen).inputs().facts
    assert facts.work_on("k1") == 1
    assert facts.work_on("k2") == (0 if cluster_wide else None)
