"""Tests of large numbers, long names and lists that a tenant can create: the plan and its records
stay small, and dnm serves the other tenants."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dnm.demand.pending import MOST_KINDS, NotCounted
from dnm.model.plan import Plan, StartConversion
from dnm.model.pod import NodeSelectorTerm as Term
from dnm.model.pod import Pod, PodList, PodShape, Requirement
from dnm.model.reason import Reason
from dnm.model.registry import QueueStatus, RunRecord
from dnm.plan import waiting_pods
from dnm.plan.inputs import offered_resources
from dnm.record.events import LONGEST_NOTE, list_events, mark_new_kinds
from dnm.record.metrics import Gauges, RunTimes, format_families, make_families
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.packing_input import make_packing_input
from tests.builders import NOW, QUEUE, a_node
from tests.plan.worlds import OLD, World, pods

HONEST = pods(2, created="2026-03-02T09:00:00Z")  # the oldest pods of a namespace are first


def asking(number: int, shape: PodShape, **changes: Any) -> Pod:
    return Pod(
        name=f"x{number}", uid=f"x{number}", namespace="dev", created=OLD, app_id=f"x{number}",
        queue=QUEUE, is_managed=True, shape=shape, **changes,
    )  # fmt: skip


def names(number: int) -> PodShape:
    """Returns the shape of a pod that requests thirty invented resources."""
    invented = {f"x{number}.{'y' * 200}.io/a{item}": 1 for item in range(30)}
    return PodShape(request={"cpu": 100, "pods": 1, **invented})


def amounts(number: int) -> PodShape:
    return PodShape(request={"cpu": 200_000 + number, "pods": 1})


def selectors(number: int) -> PodShape:
    return PodShape(
        request={"cpu": 100, "pods": 1},
        node_selector=tuple((f"s{number}.io/k{key}", "v" * 60) for key in range(30)),
    )


def terms(number: int) -> PodShape:
    asked = (Requirement(key="metadata.name", operator="In", values=(f"n{number}",)),)
    return PodShape(
        request={"cpu": 100 + number, "pods": 1}, node_affinity=(Term(fields=asked),) * 30
    )


def world(*some: Pod) -> World:
    nodes = World().node("k001", mark=None, allocatable={"cpu": 1000, "pods": 110})
    return nodes.set(pods=PodList(pods=(*HONEST, *some)))


def written(plan: Plan) -> dict[str, int]:
    """Returns how large the records of a plan are in bytes, and its metrics in lines."""
    registry = msgspec.structs.replace(
        plan.registry, last_run=RunRecord(queues=dict(plan.status), notes=plan.notes)
    )
    facts = Gauges(config=World().config, registry=registry, now=NOW, times=RunTimes())
    return {
        "registry": len(msgspec.json.encode(registry)),
        "decisions": len(msgspec.json.encode(plan.decisions)),
        "kinds": len(msgspec.json.encode(plan.kinds)),
        "metrics": len(format_families(make_families(facts)).splitlines()),
    }


@pytest.mark.parametrize("shape", [names, amounts, selectors, terms])
def test_written_size_does_not_grow_with_requests_that_a_tenant_invents(shape: Any) -> None:
    few, many = (
        world(*(asking(number, shape(number)) for number in range(count))) for count in (30, 1500)
    )
    small, large = written(few.plan()), written(many.plan())
    assert small["metrics"] == large["metrics"]
    assert all(large[text] <= small[text] + 2000 for text in small), (small, large)


@pytest.mark.parametrize("shape", [names, amounts, selectors, terms])
def test_other_tenants_get_nodes_beside_invented_requests(shape: Any) -> None:
    def started(some: World) -> list[int]:
        actions = some.plan().actions
        return [action.request.count for action in actions if isinstance(action, StartConversion)]

    many = world(*(asking(number, shape(number)) for number in range(1500)))
    assert started(many) == started(world()) != []


def test_pods_with_unavailable_resources_are_not_placed() -> None:
    some = world(*(asking(number, names(number)) for number in range(50)))
    inputs = some.inputs()
    assert inputs.demand is not None and len(inputs.demand.groups) == 51
    supply = NodeSupply(nodes=some.snapshot().nodes)  # type: ignore[arg-type]
    packing = make_packing_input(inputs.config, inputs.demand, supply)
    assert set(packing.axes) <= {"memory", "pods", "cpu"}
    (verdict,) = some.plan().queues
    assert ".io/a0, an empty node of type a has 0" in verdict.sentence
    assert "and 47 kinds more" in verdict.sentence
    assert set(some.plan().status[QUEUE].pending) <= {"memory", "pods", "cpu"}


def test_resources_of_a_node_or_a_limit_are_counted() -> None:
    gpu = PodShape(request={"cpu": 100, "pods": 1, "nvidia.com/gpu": 2})
    some = world(asking(0, gpu))
    assert "nvidia.com/gpu" not in some.plan().status[QUEUE].pending
    some = some.node("k002", mark=None, allocatable={"cpu": 1, "nvidia.com/gpu": 4})
    assert some.plan().status[QUEUE].pending["nvidia.com/gpu"] == 2
    inputs = some.inputs()
    offered = offered_resources(inputs.config, inputs.snapshot, inputs.limits)
    assert {"cpu", "memory", "pods", "nvidia.com/gpu"} == offered


def test_pod_kinds_of_a_namespace_are_bounded_oldest_first() -> None:
    late = [asking(n, amounts(n)) for n in range(MOST_KINDS + 100)]
    old = msgspec.structs.replace(asking(9999, amounts(9999)), created="2026-03-01T00:00:00Z")
    inputs = world(*late, old).inputs()
    assert inputs.demand is not None
    groups = inputs.demand.groups
    assert len(groups) == MOST_KINDS and groups[0].names == ("x9999",)
    (left_out,) = inputs.demand.uncounted
    assert left_out.why is NotCounted.KINDS and left_out.count == 102
    many_rules = [asking(n, terms(n)) for n in range(MOST_KINDS)]  # each rule counts ten times
    demand = world(*many_rules).inputs().demand
    assert demand is not None and len(demand.groups) < MOST_KINDS // 6


def test_truncated_pod_requests_nothing_and_is_named() -> None:
    cut = asking(0, PodShape(request={"cpu": 100, "pods": 1}, is_cut=True))
    plan = world(cut).plan()
    assert plan.status[QUEUE].pending_pods == 2
    assert "1 not counted, with more resources, rules" in (plan.queues[0].sentence)


# --- Events ----------------------------------------------------------------------------------


def test_event_on_a_pod_names_no_pod_of_another_tenant() -> None:
    other = asking(7, selectors(7))
    mine = msgspec.structs.replace(asking(8, amounts(8)), name="mine")
    held = asking(9, amounts(9), is_gated=True)
    plan = world(other, mine, held).configured(max_converted_nodes=0).plan()
    _, marked = mark_new_kinds(plan.registry.memory, plan.waiting, NOW)
    notes = {event.name: event.note for event in list_events((), marked, {}, NOW)}
    assert set(notes) == {"p0", "x7", "mine"}
    assert "no new node would help it: requests 200.008 cpu" in notes["mine"]
    assert "no new node would help it: selects s7.io/k0" in notes["x7"]
    assert Reason.CAPPED.text in notes["p0"]
    for name, note in notes.items():
        assert not [other for other in (*notes, "x9") if other != name and f"/{other}" in note]
    (verdict,) = plan.queues
    assert "like dev/x7" in verdict.sentence and "dev/x9" in verdict.sentence  # all of them


def test_tenant_with_many_pod_kinds_takes_no_events_of_other_tenants() -> None:
    many = [asking(number, amounts(number)) for number in range(MOST_KINDS - 10)]
    some = world(*many).configured(max_converted_nodes=0)
    plan = some.plan()
    assert len(plan.waiting) == waiting_pods.MOST_KINDS
    assert plan.waiting[0].name == "p0", "the largest group, which is another's"
    memory, marked = mark_new_kinds(plan.registry.memory, plan.waiting, NOW)
    assert len(list_events((), marked, {}, NOW)) == waiting_pods.MOST_KINDS
    assert list_events((), mark_new_kinds(memory, plan.waiting, NOW)[1], {}, NOW) == []


def test_longest_reason_is_a_bounded_sentence() -> None:
    long = [asking(number, names(number)) for number in range(200)]
    plan = world(*long).plan()
    status: QueueStatus = plan.status[QUEUE]
    assert len(status.reason) < 4000
    _, marked = mark_new_kinds(plan.registry.memory, plan.waiting, NOW)
    for event in list_events((), marked, {}, NOW):
        assert len(event.note.encode()) <= LONGEST_NOTE


def test_invented_resource_names_of_a_node_are_not_recorded() -> None:
    """A kubelet may report any resources; a plan does not record their names."""
    malformed = a_node("k9", mark=None, allocatable={f"z{n}.io/d": 1 for n in range(64)})
    some = world().set(nodes=(malformed,))
    assert len(some.plan().status[QUEUE].pending) <= 3
