"""Tests of independent calls, of which some fail."""

from __future__ import annotations

import pytest

from dnm.model.errors import KubeError
from dnm.queues.each import try_each

ITEMS = [("art", 1), ("art", 2), ("biology", 3), ("chemistry", 4)]


@pytest.mark.parametrize(
    ("broken", "longest", "called", "failed"),
    [
        ((), 20.0, [1, 2, 3, 4], {}),
        ((), -1.0, [1, 2, 3, 4], {}),
        ((1,), 20.0, [1, 3, 4], {"art": "503 for 1"}),
        ((2, 4), 20.0, [1, 2, 3, 4], {"art": "503 for 2", "chemistry": "503 for 4"}),
        (
            (3,),
            -1.0,
            [1, 2, 3],
            {"biology": "503 for 3", "chemistry": "it was not tried, because 503 for 3"},
        ),
    ],
    ids=["none", "none-in-a-long-time", "first", "two", "outage"],
)
def test_failed_call_stops_its_own_queue_and_after_a_time_all(
    broken: tuple[int, ...], longest: float, called: list[int], failed: dict[str, str]
) -> None:
    calls: list[int] = []

    def call(item: int) -> None:
        calls.append(item)
        if item in broken:
            raise KubeError(f"503 for {item}")

    assert try_each(ITEMS, call, longest) == failed
    assert calls == called
