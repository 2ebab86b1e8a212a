"""Inputs of a plan for tests: a default snapshot and registry, which a test changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from dnm.model.cluster import ConfigMap
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.plan import Plan, Snapshot
from dnm.model.pod import Pod, PodList, PodShape
from dnm.model.queue_edit import QueueWants
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.model.value import Unreadable
from dnm.plan.advance import Advanced, advance
from dnm.plan.conversions import Decided
from dnm.plan.inputs import Inputs, gather_inputs
from dnm.plan.limits import CurrentLimits, PlannedLimits, judge_limits
from dnm.plan.new_requests import Conversions
from dnm.plan.node_decisions import NodeDecisions, decide_nodes
from dnm.plan.planner import decide, make_plan, with_floors
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document
from dnm.queues.yunikorn.system import YunikornFacts, plan_source
from tests.builders import (
    FENCED,
    NOW,
    QUEUE,
    a_batch_node,
    a_config,
    a_lent_node,
    a_node,
)
from tests.plan.whole import check_converted
from tests.site import WORKSHOP_QUEUES

BIG = PodShape(request={"cpu": 100_000, "memory": 10**9, "pods": 1})
SMALL = PodShape(request={"cpu": 1000, "memory": 10**9, "pods": 1})
OLD = "2026-03-02T10:00:00Z"
CONVERTER = ConverterProcess(pid=77, start_ticks=5)
LONG_AGO = NOW - timedelta(hours=2)
UNREAD = Unreadable(subject="x", error="the API did not answer")


def pods(count: int, shape: PodShape = BIG, **changes: Any) -> tuple[Pod, ...]:
    values: dict[str, Any] = {
        "namespace": "dev", "created": OLD, "app_id": "app", "queue": QUEUE, "is_managed": True,
    }  # fmt: skip
    values |= changes
    return tuple(Pod(name=f"p{n}", uid=f"u{n}", shape=shape, **values) for n in range(count))


BASELINE = {"cpu": 80_000, "memory": 320 * 10**9}
REMEMBERED = {
    QUEUE: QueueStatus(
        limit=BASELINE, baseline=BASELINE, lent={}, used={}, pending={}, pending_pods=0,
        verdict="keep", reason="",
    )
}  # fmt: skip


def facts_of(maps: Any, view: Any = None) -> YunikornFacts:
    """Returns what a run has read of YuniKorn: its two ConfigMaps or an error, and its REST API."""
    if isinstance(maps, Unreadable):
        return YunikornFacts(unread=maps, view=view)
    return YunikornFacts(maps=maps, view=view)


def queue_map(
    lent: dict[str, dict[str, int]] | None = None, text: str = WORKSHOP_QUEUES
) -> ConfigMap:
    """Returns YuniKorn's ConfigMap as dnm writes it while these lent nodes serve."""
    plain = ConfigMap(
        namespace="yunikorn", name="yunikorn-configs", resource_version="7",
        data={"queues.yaml": text},
    )  # fmt: skip
    if not lent:
        return plain
    wants = QueueWants(instance_id="prod", nodes={QUEUE: lent}, remembered="")
    edit = plan_source(resolve_document(plain, None), wants)
    assert not edit.refusal
    return msgspec.structs.replace(
        plain,
        data={"queues.yaml": edit.text},
        annotations={LEDGER_ANNOTATION: edit.ledger},
    )


class World:
    """A snapshot, a registry and a configuration. Methods return the world, so that calls chain."""

    def __init__(self) -> None:
        self.config = a_config(pending_grace=timedelta(0), global_cooldown=timedelta(seconds=30))
        self.registry = Registry(last_run=RunRecord(queues=REMEMBERED, ledger=""))
        self.pods: Any = ()
        self.nodes: Any = [a_node("k1", mark=None, labels={}, allocatable={"cpu": 1, "pods": 1})]
        self.batch: Any = {f"a{n:03}": a_batch_node(f"a{n:03}") for n in range(50, 60)}
        self.maps: Any = None
        self.facts: dict[str, Any] = {}

    def with_pods(self, *pods: Pod) -> World:
        self.pods = (*self.pods, *pods)
        return self

    def lent(self, name: str, phase: Phase = Phase.SERVING, **changes: Any) -> World:
        entry = a_lent_node(phase, **changes)
        self.registry = msgspec.structs.replace(
            self.registry, nodes={**self.registry.nodes, name: entry}
        )
        return self

    def node(self, name: str, **changes: Any) -> World:
        self.nodes.append(a_node(name, **changes))
        return self

    def set(self, **changes: Any) -> World:
        for name, value in changes.items():
            setattr(self, name, value)
        return self

    def with_facts(self, **facts: Any) -> World:
        """Sets further facts of the snapshot, by their field names."""
        return self.set(facts=facts)

    def configured(self, **changes: Any) -> World:
        self.config = msgspec.structs.replace(self.config, **changes)
        return self

    def recorded(self, **changes: Any) -> World:
        self.registry = msgspec.structs.replace(self.registry, **changes)
        return self

    def snapshot(self) -> Snapshot:
        lent = {n: dict(e.counted) for n, e in self.registry.nodes.items()
                if e.phase is Phase.SERVING}  # fmt: skip
        readable = isinstance(self.pods, tuple)
        facts: dict[str, Any] = {
            "taken_at": NOW,
            "pods": PodList(pods=self.pods) if readable else self.pods,
            "nodes": tuple(self.nodes) if isinstance(self.nodes, list) else self.nodes,
            "queue_facts": facts_of(self.maps or (queue_map(lent), None)),
            "batch": self.batch,
        }
        return Snapshot(**{**facts, **self.facts})

    def plan(self) -> Plan:
        return make_plan(self.config, self.registry, self.snapshot())

    # --- the stages, each from the one before it ----------------------------------------------

    def inputs(self) -> Inputs:
        return with_floors(gather_inputs(self.config, self.registry, self.snapshot()))

    def advanced(self) -> Advanced:
        return advance(self.inputs())

    def current(self) -> CurrentLimits:
        return judge_limits(self.inputs(), self.advanced().registry)

    def decisions(self) -> NodeDecisions:
        return decide_nodes(self.inputs(), self.advanced(), self.current())

    def decided(self) -> Decided:
        return decide(self.config, self.registry, self.snapshot())

    def limits(self) -> PlannedLimits:
        return self.decided().limits

    def converted(self) -> Conversions:
        return check_converted(self.decided().conversions)


def serving(**changes: Any) -> World:
    return World().lent("a001", **changes).node("a001")


def fenced() -> World:
    return (
        World()
        .lent("a001", Phase.RELEASING, was_used=True)
        .node("a001", is_cordoned=True, mark=FENCED)
        .set(batch={"a001": a_batch_node(in_service=False)})
    )


def wanting(count: int = 1) -> World:
    return World().with_pods(*pods(count))


def two_namespaces() -> World:
    """Returns a world with two namespaces that share the queue."""
    world = World()
    more = NamespacePolicy(name="two", queue=QUEUE, node_types=("a",))
    return world.configured(namespaces={**world.config.namespaces, "two": more})


def namespace_policy(config: Config, **changes: Any) -> dict[str, NamespacePolicy]:
    return {"dev": msgspec.structs.replace(config.namespaces["dev"], **changes)}
