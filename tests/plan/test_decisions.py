"""Decisions of a whole run that the tables of sizing and release can't show: the predecessor's
defects 13, 20 and 21, through `make_plan`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dnm.model.batch import BatchNode
from dnm.model.cluster import ConfigMap
from dnm.model.node import Node
from dnm.model.plan import Plan, Snapshot
from dnm.model.pod import Pod, PodList
from dnm.model.reason import Reason, Why
from dnm.model.registry import Registry
from dnm.model.verdict import Verdict
from dnm.plan.planner import make_plan
from tests.scenes import DEV, GPU, NOW, SMALL, bound, config, entry, lent, node, pods

QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: anvil
            queues:
              - name: dev
              - name: gpu
"""


def plan(
    registry: Registry,
    some: Iterable[Pod] = (),
    nodes: Iterable[Node] = (),
    at: datetime = NOW,
    **unreadable: str,
) -> Plan:
    queue_map = ConfigMap(
        namespace="yunikorn",
        name="yunikorn-configs",
        resource_version="1",
        data={"queues.yaml": QUEUES},
    )
    snapshot = Snapshot(
        taken_at=at,
        pods=PodList(pods=tuple(some), cluster_wide=not unreadable, unreadable=unreadable),
        nodes=tuple(nodes),
        queue_maps=(queue_map, None),
        batch={
            name: BatchNode(name=name, state="IDLE", verdict="OK", in_service=True)
            for name in ("a101", "a102", "g101")
        }
        | {
            name: BatchNode(name=name, state="DOWN+DRAIN", verdict="SKIP", in_service=False)
            for name in ("a001", "a002")
        },
    )
    return make_plan(config(), registry, snapshot)


def reasons(made: Plan) -> dict[str, Why]:
    return {verdict.node: verdict.reason for verdict in made.nodes}


def test_defect_13_the_idle_clock_starts_when_the_last_pod_ends() -> None:
    """A node that was busy for days is not returned on the first look after its last pod."""
    registry = Registry(nodes={"a001": entry("a001", idle=99_999, serves=200_000)})
    busy = plan(registry, bound(1, SMALL, "a001"), [lent("a001")])
    assert reasons(busy) == {"a001": Reason.IN_USE}
    later = NOW + timedelta(seconds=60)
    done = plan(busy.registry, (), [lent("a001")], later)
    assert reasons(done) == {"a001": Reason.IDLE}
    # What a return costs where nothing is measured, with one pod that would wait for ten minutes.
    again = plan(done.registry, (), [lent("a001")], later + timedelta(seconds=1259))
    assert reasons(again) == {"a001": Reason.IDLE}
    over = plan(again.registry, (), [lent("a001")], later + timedelta(seconds=1260))
    assert reasons(over) == {"a001": Reason.IDLE_LONG_ENOUGH}


def test_defect_13_pods_of_any_namespace_keep_a_node() -> None:
    registry = Registry(nodes={"a001": entry("a001")})
    stranger = bound(1, SMALL, "a001", namespace="other", is_yunikorn=False)
    assert reasons(plan(registry, stranger, [lent("a001")])) == {"a001": Reason.IN_USE}


def test_defect_20_a_queue_does_not_convert_and_revert_in_one_run() -> None:
    """Pods that do not fit what is left of a busy node, an idle one that is fenced: it is used."""
    long = timedelta(hours=1).total_seconds()
    registry = Registry(nodes={"a001": entry("a001", idle=long), "a002": entry("a002", idle=None)})
    some = bound(16, SMALL, "a002") + pods(3, SMALL, ago=100)
    made = plan(registry, some, [lent("a001"), lent("a002")])
    assert reasons(made) == {"a001": Reason.NEEDED, "a002": Reason.IN_USE}
    assert made.registry.requests == ()


def test_defect_21_a_namespace_that_could_not_be_read_stops_its_own_queue_only() -> None:
    some = pods(1, {**SMALL, "nvidia.com/gpu": 1}, namespace="gpu", app="g", name="g")
    made = plan(Registry(), some, [node("k1")], dev="403 Forbidden")
    verdicts = {verdict.queue: (verdict.verdict, verdict.reason) for verdict in made.queues}
    assert verdicts[GPU] == (Verdict.CONVERT, Reason.LACKS_ROOM)
    assert verdicts[DEV][0] is not Verdict.CONVERT
    assert [request.queue for request in made.registry.requests] == [GPU]
    assert any("403 Forbidden" in error for error in made.errors)
