"""Tests of stalled pods: they stay pending despite quota and capacity, so they are no demand."""

from __future__ import annotations

from typing import Any

import pytest

from dnm.model.observed import StalledPods
from dnm.model.pod import Pod
from tests.scenes import SMALL, config, demand, pods, text, tree

STUCK = pods(3, SMALL, ago=500)
CONFIG = config()
FINGERPRINT = demand(STUCK, CONFIG, tree()).groups[0].fingerprint


def same_pods(count: int, ago: float, name: str) -> list[Pod]:
    return pods(count, SMALL, ago=ago, name=name)


@pytest.mark.parametrize(
    ("now", "counted", "is_remembered"),
    [
        pytest.param(STUCK, 0, True, id="exactly-these"),
        pytest.param(STUCK[1:], 2, False, id="one-started-or-went"),
        pytest.param([], 0, False, id="all-went"),
        pytest.param(STUCK + same_pods(2, 100, "new"), 2, True, id="younger-pods-arrived"),
        pytest.param(STUCK + same_pods(1, 600, "old"), 4, False, id="an-older-pod-arrived"),
        pytest.param(STUCK + same_pods(1, 500, "same"), 4, False, id="one-of-the-same-second"),
        pytest.param(STUCK[1:] + same_pods(1, 499, "new"), 3, False, id="one-was-replaced"),
    ],
)
def test_stalled_pods_count_again_once_they_change(
    now: list[Any], counted: int, is_remembered: bool
) -> None:
    memory = {FINGERPRINT: StalledPods(count=3, until=text(500))}
    result = demand(now, CONFIG, tree(), stalled=memory)
    assert sum(group.count for group in result.groups) == counted
    assert result.stalled == (memory if is_remembered else {})
    assert sum(uncounted.count for uncounted in result.uncounted) == (3 if is_remembered else 0)
