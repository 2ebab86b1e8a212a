"""Tests of the simulated scheduler: of the pending pods, the first one that fits starts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dnm.simulate.pending import PendingPods
from dnm.simulate.values import Ask, PodState

KINDS = (("root.a", 1, False), ("root.a", 2, False), ("root.b", 1, False), ("root.a", 1, True))


def a_pod(number: int, kind: int) -> PodState:
    queue, vcore, never = KINDS[kind]
    ask = Ask(at=0.0, lasts=1.0, request=(("cpu", vcore),), queue=queue, never_starts=never)
    return PodState(number=number, ask=ask, request=dict(ask.request))


@given(
    kinds=st.lists(st.integers(0, 3), max_size=12),
    room=st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=3),
)
def test_pending_pods_are_tried_in_order_until_their_kind_does_not_fit(
    kinds: list[int], room: list[tuple[int, ...]]
) -> None:
    """The fast search gives the same result as one through all pending pods."""
    pods = [a_pod(number, kind) for number, kind in enumerate(kinds)]
    pending, plain = PendingPods(), list(pods)
    for pod in pods:
        pending.append(pod)
    for free in room:
        left, bound = list(free), list[int]()

        def bind(pod: PodState, left: list[int] = left, bound: list[int] = bound) -> bool:
            kind = kinds[pod.number]
            if left[kind]:
                left[kind] -= 1
                bound.append(pod.number)
            return left[kind] >= 0 and pod.number in bound

        pending.take(bind)
        own, expected = list(bound), list[int]()
        less = list(free)
        for pod in list(plain):
            if less[kinds[pod.number]]:
                less[kinds[pod.number]] -= 1
                expected.append(pod.number)
                plain.remove(pod)
        assert own == expected
        assert list(pending) == plain and bool(pending) == bool(plain)
