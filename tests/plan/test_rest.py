"""Tests of the steady state: once nothing changes in the clusters, dnm does not act any more.

The real planner plays random histories; then no pods arrive and none end. Some pods never start,
and some nodes are smaller than their type."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dnm.model.config import NamespacePolicy
from dnm.model.lent import ConversionRequest
from dnm.model.plan import Snapshot
from dnm.simulate.values import HOUR, Ask, NodeClass, Workload
from dnm.simulate.world import World
from tests.economy.dnm_policy import AwakePolicy

G = 10**9
A, B = "root.anvil.a", "root.anvil.b"
STOP = 1 * HOUR
SETTLED = STOP + 1.5 * HOUR
END = SETTLED + 1.5 * HOUR


def amounts(cores: int, gigabytes: int) -> tuple[tuple[str, int], ...]:
    return (("cpu", cores * 1000), ("memory", gigabytes * G))


def limits(cores: int) -> dict[str, int]:
    return {"cpu": cores * 1000, "memory": cores * 4 * G}


asks = st.builds(
    Ask,
    at=st.floats(0, STOP).map(round).map(float),
    lasts=st.floats(120, 2 * HOUR).map(round).map(float),
    request=st.builds(amounts, st.sampled_from((1, 2, 8, 16, 30, 31, 40)), st.integers(1, 64)),
    queue=st.sampled_from((A, B)),
    never_starts=st.sampled_from((False, False, False, True)),
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    some = [
        ask
        for request in draw(st.lists(asks, max_size=8))
        for ask in [request] * draw(st.integers(1, 12))
    ]
    return Workload(
        name="random",
        asks=tuple(some),
        limits={
            "root.anvil": limits(draw(st.sampled_from((40, 100, 400)))),
            A: limits(draw(st.sampled_from((1, 16, 40)))),
            B: limits(draw(st.sampled_from((8, 40)))),
        },
        namespaces={"ns-a": (A, "a"), "ns-b": (B, "a")},
        free=tuple(
            {"cpu": cores * 1000, "memory": cores * 4 * G, "pods": 110}
            for cores in draw(st.lists(st.sampled_from((4, 16, 32)), max_size=2))
        ),
        classes={
            "a": NodeClass(
                size=(*amounts(32, 128), ("pods", 110)),
                count=draw(st.sampled_from((2, 12))),
                brings=draw(st.sampled_from(((), (*amounts(30, 120), ("pods", 110))))),
            )
        },
        seed=draw(st.integers(0, 99)),
        lasts=END,
        nothing_ends_after=STOP,
    )


def histories(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes too long
        suppress_health_check=[HealthCheck.too_slow],
    )


@histories(4)
@given(
    workloads(),
    st.sampled_from((1.0, 0.95, 0.8)),
    st.sampled_from((0, 1)),
    st.booleans(),
)
def test_unchanged_demand_leads_to_no_action(
    workload: Workload, headroom: float, min_nodes: int, moves: bool
) -> None:
    policies = {
        name: NamespacePolicy(name=name, queue=queue, node_types=("a",), min_nodes=min_nodes)
        for name, (queue, _) in workload.namespaces.items()
    }
    policy = AwakePolicy(
        workload,
        headroom=headroom,
        namespaces=policies,
        move_in_place=moves,
    )
    world = World(workload)
    world.play(policy)
    late = [when for when in policy.acted_at if when >= SETTLED]
    assert not late, f"still acting at {late[:5]} s, arrivals stopped at {STOP:.0f} s"


class Budgeted(AwakePolicy):
    """A dnm with a weekly budget of node-hours for a namespace, and a count of the used hours."""

    def __init__(self, workload: Workload, hours: float) -> None:
        policies = {
            name: NamespacePolicy(
                name=name,
                queue=queue,
                node_types=("a",),
                options={"node_hours_per_week": hours} if name == "ns-a" else {},
            )
            for name, (queue, _) in workload.namespaces.items()
        }
        super().__init__(workload, namespaces=policies)
        self.hours, self.used, self.looked_at = hours, 0.0, 0.0

    def snapshot(self, world: World) -> Snapshot:
        there = [
            node for node in world.nodes.values() if node.node_type and node.namespace == "ns-a"
        ]
        self.used += len(there) * (world.now - self.looked_at) / 3600  # also runs when a node joins
        self.looked_at = world.now
        runs = 2 + len(there) // self._config.max_reversions_per_run  # until all nodes are fenced
        if self.used > self.hours + runs * len(there) / 60:
            assert all(node_state.cordoned for node_state in there), (
                "beyond its budget a node takes pods"
            )
        return super().snapshot(world)

    def _convert(self, world: World, request: ConversionRequest) -> None:
        if request.namespace == "ns-a":
            assert self.used + request.count <= self.hours, "a budget is overdrawn"
        super()._convert(world, request)


@histories(4)
@given(workloads(), st.sampled_from((0.5, 1.0, 3.0, 10.0)))
def test_budget_is_never_exceeded(workload: Workload, hours: float) -> None:
    """dnm uses no more node-hours than `node_hours_per_week`, whatever pods arrive."""
    World(workload).play(Budgeted(workload, hours))
