"""Tests of replaying pods from the history, as far as it has them. dnm's own code writes it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest

from dnm.model.config import NamespacePolicy
from dnm.model.history import HistoryLine
from dnm.model.lent import Phase
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.model.share import Share
from dnm.record.history_file import History, read_history
from dnm.simulate.accounting import Accounting, SimulationError
from dnm.simulate.batch import SimJob
from dnm.simulate.replay import Reader, Recorded, make_workload
from dnm.simulate.values import Workload
from tests.builders import NOW, a_config, a_lent_node
from tests.record.year import NODES, QUEUES, write_year

DAYS = 10
BASELINE = {"cpu": 80_000, "memory": 320 * 10**9}
STATUS = QueueStatus(
    limit=BASELINE, baseline=BASELINE, lent={}, used={}, pending={}, pending_pods=0,
    verdict="keep", reason="",
)  # fmt: skip
REGISTRY = Registry(last_run=RunRecord(queues=dict.fromkeys(QUEUES, STATUS)))
CONFIG = a_config(
    namespaces={
        queue.rpartition(".")[2]: NamespacePolicy(
            name=queue.rpartition(".")[2], queue=queue, node_types=("a",)
        )
        for queue in QUEUES
    }
)

pytestmark = pytest.mark.xdist_group("replay")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[HistoryLine]:
    registry = tmp_path_factory.mktemp("year") / "registry.json"
    write_year(registry, NOW, days=DAYS)
    return list(read_history(History(registry, timedelta(days=400))))


def read(lines: Iterable[HistoryLine], registry: Registry = REGISTRY) -> Recorded:
    reader = Reader()
    for line in lines:
        reader.add(line)
    return reader.close(registry, NOW - timedelta(days=30), NOW)


def workload(recorded: Recorded, jobs: Accounting | None = None) -> Workload:
    return make_workload(recorded, CONFIG, REGISTRY, jobs or Accounting(), seed=1)


def test_each_used_node_is_replayed_as_its_pods(lines: list[HistoryLine]) -> None:
    """A request of 96 pods of 4 cores and 16 GB gets three nodes: sixteen fit on each."""
    recorded = read(lines)
    assert len(recorded.stays) == 2 * NODES * DAYS
    assert {stay.pods for stay in recorded.stays} == {16}
    request = {"cpu": 4000, "memory": 16 * 10**9}
    assert all(stay.request == request for stay in recorded.stays)
    first = min(recorded.stays, key=lambda stay: (stay.asked, stay.lasts))
    # Joined 9 to 11 minutes after the request, fenced 600 to 611 after it, idle since 11 before.
    assert first.lasts == (600 - 11 - 9) * 60


def test_conversion_times_and_failures_equal_the_history(lines: list[HistoryLine]) -> None:
    recorded = read(lines)
    assert sorted(set(recorded.conversions)) == [540, 600, 660]
    assert set(recorded.returns) == {180}
    failures = sum(line.event == "given-up" for line in lines)
    assert failures
    assert recorded.fails == failures / (failures + 2 * NODES * DAYS)
    assert recorded.fullness == pytest.approx(dict.fromkeys(QUEUES, 0.9), abs=1e-6)


def test_replayed_cluster_has_only_the_capacity_in_use(lines: list[HistoryLine]) -> None:
    made = workload(read(lines))
    own = {name: int(0.9 * amount) for name, amount in BASELINE.items()}
    assert made.limits == dict.fromkeys(QUEUES, BASELINE)
    assert dict(made.free[0]) == {name: 2 * amount for name, amount in own.items()} | {
        "pods": made.free[0]["pods"]
    }
    assert [dict(ask.request) for ask in made.asks[:2]] == [own, own]
    assert made.asks[0].lasts > made.lasts
    assert len(made.asks) == 2 + 2 * NODES * DAYS * 16
    assert made.begins == min(line.time for line in lines if line.kind != "queue")


def test_recorded_demand_is_replayed_pod_by_pod(lines: list[HistoryLine]) -> None:
    """With recorded demand, lends add no pods. Permanent nodes have capacity for the limit."""
    seen = [demand(0, 3, 0), demand(5, 0, 3), demand(65, 0, 0)]
    recorded = read([*lines, *seen])
    made = workload(recorded)
    assert [(ask.at, ask.lasts) for ask in made.asks] == [(0.0, 3600.0)] * 3
    assert made.begins == seen[0].time
    assert made.free[0]["cpu"] == 2 * BASELINE["cpu"]
    assert made.conversions == recorded.conversions != ()


def demand(minute: int, pending: int, bound: int) -> HistoryLine:
    kinds = [{"request": {"cpu": 4000}, "pending": pending, "bound": bound}]
    return HistoryLine(
        schema=1, number=0, time=NOW - timedelta(days=6) + timedelta(minutes=minute), run="",
        instance="prod", kind="demand", event="seen", object=QUEUES[0], queue=QUEUES[0],
        numbers={"kinds": kinds if pending or bound else []},
    )  # fmt: skip


def test_currently_lent_node_was_needed_until_its_idle_time(lines: list[HistoryLine]) -> None:
    """The history has no end of this lend; the registry shows since when the node is idle."""
    first = next(line for line in lines if line.event == "joined")
    until = [line for line in lines if line.time <= first.time]
    idle = first.time + timedelta(hours=2)
    entry = a_lent_node(Phase.SERVING, queue=first.queue, idle_since=idle)
    registry = msgspec.structs.replace(REGISTRY, nodes={first.object: entry})
    recorded = read(until, registry)
    assert [stay.lasts for stay in recorded.stays] == [7200]


def test_unused_node_is_replayed_without_pods(lines: list[HistoryLine]) -> None:
    def unused(line: HistoryLine) -> HistoryLine:
        if line.event != "fenced":
            return line
        return msgspec.structs.replace(line, numbers={"idle_seconds": 600 * 60})

    recorded = read(map(unused, lines))
    assert not recorded.stays
    assert any("240 of the lent nodes were unused" in note for note in recorded.notes)


@pytest.mark.parametrize(
    ("jobs", "count"),
    [
        pytest.param(Accounting(), CONFIG.max_converted_nodes, id="unknown: enough for any"),
        pytest.param(
            Accounting(
                jobs=(SimJob(at=0, nodes=1, lasts=60, limit=60),),
                nodes={"a": frozenset(("a001", "a900", "a901"))},
            ),
            2 * NODES + 2,
            id="nodes named in the jobs",
        ),
    ],
)
def test_number_of_simulated_nodes_follows_from_the_jobs(
    lines: list[HistoryLine], jobs: Accounting, count: int
) -> None:
    assert workload(read(lines), jobs).classes["a"].count == count


def test_percentage_cap_refers_to_the_nodes_that_jobs_name(lines: list[HistoryLine]) -> None:
    config = msgspec.structs.replace(CONFIG, max_converted_nodes=Share(percent=50))
    jobs = Accounting(
        jobs=(SimJob(at=0, nodes=1, lasts=60, limit=60),),
        nodes={"a": frozenset(("a900", "a901"))},
    )
    made = make_workload(read(lines), config, REGISTRY, jobs, seed=1)
    assert made.classes["a"].count == 2 * NODES + 2 and made.cap == NODES + 1
    with pytest.raises(
        SimulationError, match=r"= 50%: the history does not show of how many nodes"
    ):
        make_workload(read(lines), config, REGISTRY, Accounting(), seed=1)


def test_queue_with_an_unknown_limit_is_left_out(lines: list[HistoryLine]) -> None:
    registry = Registry(last_run=RunRecord(queues={QUEUES[0]: STATUS}))
    made = make_workload(read(lines), CONFIG, registry, Accounting(), seed=1)
    assert {ask.queue for ask in made.asks} == set(made.limits) == {QUEUES[0]}
    assert [queue for queue, _ in made.namespaces.values()] == [QUEUES[0]]


@pytest.mark.parametrize(("days", "is_young"), [(1, True), (4, True), (6, False), (20, False)])
def test_short_demand_history_is_not_used(
    lines: list[HistoryLine], days: int, is_young: bool
) -> None:
    """If the recorded demand covers less than half of ten days, only the lends are used."""
    seen = demand(int(timedelta(days=6 - days).total_seconds()) // 60, 3, 0)
    recorded = read([*lines, seen])
    assert recorded.since == (lines[0].time if is_young else seen.time)
    assert bool(recorded.spans) is not is_young
    assert recorded.stays
    message = f"demand only since {seen.time:%Y-%m-%d %H:%M} UTC (demand_days)"
    assert [note for note in recorded.notes if message in note] or not is_young


def test_nodes_lent_before_the_history_are_replayed(lines: list[HistoryLine]) -> None:
    """Nodes lent before the first line, and never returned, were used all the time."""
    long_ago = NOW - timedelta(days=400)
    serving = a_lent_node(
        Phase.SERVING, since=long_ago, counted={"cpu": 128_000, "pods": 110},
        was_used=True, idle_since=NOW - timedelta(hours=1),
    )  # fmt: skip
    registry = msgspec.structs.replace(REGISTRY, nodes={"a001": serving})
    recorded = read((), registry)
    (stay,) = recorded.stays
    assert stay.asked == NOW - timedelta(days=30) == recorded.since
    assert stay.lasts == (30 * 24 - 1) * 3600
    assert recorded.nodes == {serving.node_type: {"a001"}}
