"""Tests that each registry, snapshot and configuration gives a plan that dnm does not refuse.

The test draws worlds of two types, three namespaces in two queues, eight machines and most rules,
in any combination. Once, two combined options made dnm refuse every plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim
from dnm.model.calendar import CalendarEvent
from dnm.model.config import NamespacePolicy
from dnm.model.departure import Eviction, Leaving
from dnm.model.lent import ClaimedNode, Phase
from dnm.model.node import Mark
from dnm.model.node_type import NodeType, Taint
from dnm.model.observed import Backoff, Breaker
from dnm.model.opening import Check, Opening
from dnm.model.orders import Keeping, LendOrder, Pause, Way
from dnm.model.queue_edit import QueueWants
from dnm.model.share import Floor, Share
from dnm.model.slinky import MANAGED_TAINT
from dnm.model.value import Resources
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, resolve_document
from dnm.queues.yunikorn.system import plan_source
from tests.builders import MARK, NOW, QUEUE, SIZE, a_batch_node, a_request
from tests.night import by_night
from tests.plan.worlds import BIG, CONVERTER, OLD, SMALL, UNREAD, World, pods, queue_map

NOTEBOOK = "root.anvil.services.notebook"
NAMESPACES = {"dev": QUEUE, "two": QUEUE, "nb": NOTEBOOK}
MACHINES = [*(f"a{number:03}" for number in range(1, 6)), "b001", "b002", "b003"]
PHASES = [Phase.SERVING] * 6 + [phase for phase in Phase if phase is not Phase.SERVING]
LEAVES = [None] * 8 + [
    "overdue", "spent", Leaving.EXCLUDED, Leaving.MANUAL, Leaving.FAULTY, Leaving.NOT_OPENED,
]  # fmt: skip
Lent = dict[str, dict[str, Resources]]


class Draw(Random):
    """A random world, drawn from a seed."""

    def is_so(self, share: float) -> bool:
        return self.random() < share

    def some(self, share: float, **values: Any) -> dict[str, Any]:
        """Returns the values, each one only with the probability `share`."""
        return {key: value for key, value in values.items() if self.is_so(share)}

    def moment(self, least: int = -600, most: int = 10) -> datetime:
        return NOW + timedelta(minutes=self.uniform(least, most))

    def namespace(self) -> str:
        return self.choice([*NAMESPACES])

    # --- what is configured --------------------------------------------------------------------

    def types(self) -> dict[str, NodeType]:
        opens = (Check(kind="condition", name="X", status="True"),)
        most = self.choice([None, None, 1, 2, Share(percent=30)])
        plain = NodeType(name="a", size=SIZE, max_nodes=most)
        a = msgspec.structs.replace(plain, **self.some(0.15, readiness_checks=opens))
        return {"a": a, "b": NodeType(name="b", size={"cpu": 64_000, "memory": 512 * 10**9})}

    def policies(self) -> dict[str, NamespacePolicy]:
        kept = [name for name in NAMESPACES if name == "dev" or self.is_so(0.88)]
        return {
            name: NamespacePolicy(
                name=name,
                queue=NAMESPACES[name],
                node_types=self.choice([("a",), ("a", "b"), ("b", "a"), ("b",)]),
                max_nodes=self.choice([None, None, 1, 3, Share(percent=20)]),
                min_nodes=self.choice([0, 0, 0, 1, 2]),
                priority=self.choice([0, 1]),
                reversion_idle=self.choice([None, timedelta(minutes=1)]),
                options=self.some(0.15, node_hours_per_week=self.choice([0, 1, 5, 100])),
            )
            for name in kept
        }

    def settings(self) -> dict[str, Any]:
        event = CalendarEvent(
            name="e1", namespace=self.namespace(), nodes=2,
            begins=datetime(2026, 3, 2, self.choice([11, 12, 13, 20])),
            ends=datetime(2026, 3, 2, 23),
        )  # fmt: skip
        return self.some(
            0.2,
            options={"max_lend_hours": timedelta(hours=2)},
            fault_conditions=(Check(kind="condition", name="Bad", status="True"),),
            exclude_nodes=frozenset({"a003"}),
            exclude_partitions=("p1",),
            batch_floor=Floor(nodes=self.choice([1, 3])),
            headroom=0.8,
            move_in_place=True,
            reserve_ahead=timedelta(days=1),
            calendar_events=(event,),
            allow_preempt=True,
        )

    # --- what is recorded and seen -------------------------------------------------------------

    def entry(self, name: str, phase: Phase, counted: Resources) -> dict[str, Any]:
        namespace, leaves = self.namespace(), self.choice(LEAVES)
        is_returning = phase is Phase.RETURNING
        is_uncounted = phase is Phase.JOINING or (phase is Phase.FAILED and self.is_so(0.5))
        return {
            "node_type": name[0], "namespace": namespace, "queue": NAMESPACES[namespace],
            "owner": self.choice(["prod"] * 12 + ["other"]), "since": self.moment(),
            "counted": {} if is_uncounted else counted, "leaves": leaves,
            "idle_since": self.choice([None, self.moment()]), "was_used": self.is_so(0.5),
            **self.some(
                0.1, is_needed=True, asked_at=self.moment(), stays_until=self.moment(-30, 60),
                order="lend-1", fault="Bad:True", moved_at=self.moment(), is_unjudged=True,
                opening=Opening(held={"ready": self.moment()}, is_open=self.is_so(0.5)),
                eviction=Eviction(since=self.moment(-30, 30)) if leaves else None,
            ),
            **({"to": self.namespace(), "is_back": self.is_so(0.3)}
               if phase is Phase.MOVING else self.some(0.05, failed_move=self.namespace())),
            **({"attempts": self.choice([0, 1, 3]), "is_handed_over": self.is_so(0.3),
                "retry_after": self.choice([None, self.moment(-60, 30)]),
                "converter": self.choice([None, None, CONVERTER])} if is_returning else {}),
            **({"error": "it failed"} if phase is Phase.FAILED else {}),
        }  # fmt: skip

    def node(self, entry: Mapping[str, Any], phase: Phase, counted: Resources) -> dict[str, Any]:
        is_going = phase in (Phase.RELEASING, Phase.RETURNING, Phase.MOVING) or entry["leaves"]
        namespace, share = entry["namespace"], 0.9 if is_going else 0.08
        mark = Mark(
            instance=self.choice(["prod"] * 12 + ["other"]), node_type=entry["node_type"],
            namespace=namespace, queue=entry["queue"], fenced=self.is_so(share),
        )  # fmt: skip
        taints = [Taint(key=MANAGED_TAINT, effect="NoExecute"), Taint(key="x", effect="NoSchedule")]
        return {
            "is_ready": self.is_so(0.85), "is_cordoned": self.is_so(share),
            "mark": mark if self.is_so(0.9) else None,
            "labels": {namespace if self.is_so(0.9) else self.namespace(): "true"},
            "allocatable": counted if self.is_so(0.9) else {**counted, "cpu": 0},
            **self.some(
                0.05, is_deleting=True, unreadable="odd", taints=(self.choice(taints),),
                conditions={"Bad": "True"},
            ),
        }  # fmt: skip

    def claim(self, namespace: str, node_type: str) -> BatchClaim:
        return BatchClaim(
            instance=self.choice(["prod", "prod", "other"]), namespace=namespace,
            direction=self.choice(["", "", "k8s", "batch"]), node_type=node_type,
            is_at_work=self.is_so(0.2),
        )  # fmt: skip


def machine(draw: Draw, world: World, lent: Lent, name: str) -> None:
    """Adds a machine to the world: lent, with a random record and Node, or in Slurm."""
    if draw.is_so(0.35):
        world.batch[name] = a_batch_node(name, in_service=draw.choice([True, True, False, None]))
        if draw.is_so(0.1):
            world.node(name, mark=draw.choice([None, MARK]))
        return
    counted = {**world.config.node_types[name[0]].size, "pods": 110}
    phase = draw.choice(PHASES)
    entry = draw.entry(name, phase, counted)
    world.lent(name, phase, **entry)
    if entry["owner"] == "prod" and draw.is_so(0.95 if phase is Phase.SERVING else 0.1):
        lent.setdefault(entry["queue"], {})[name] = counted
    has_claims = draw.is_so(0.3)
    world.batch[name] = a_batch_node(
        name, in_service=draw.choice([False] * 10 + [True, None]), reports_claim=has_claims,
        claim=draw.claim(entry["namespace"], name[0]) if has_claims and draw.is_so(0.5) else None,
    )  # fmt: skip
    if draw.is_so(0.9):
        world.node(name, **draw.node(entry, phase, counted))
        if draw.is_so(0.25):
            place = {"namespace": entry["namespace"], "queue": entry["queue"], "node": name}
            (pod,) = pods(1, SMALL, is_daemonset=draw.is_so(0.3), **place)
            world.with_pods(msgspec.structs.replace(pod, name=f"on-{name}", uid=f"on-{name}"))


def drawn(seed: int) -> World:
    draw, world = Draw(seed), World()
    lent: Lent = {}
    world.configured(
        namespaces=draw.policies(), node_types=draw.types(), **draw.settings(),
        max_converted_nodes=draw.choice([3, 8, 30, Share(percent=50)]),
    )  # fmt: skip
    world.batch = {name: a_batch_node(name) for name in ("a050", "a051", "b050")}
    for name in MACHINES:
        machine(draw, world, lent, name)
    for namespace, queue in NAMESPACES.items():
        shape = draw.choice([SMALL, BIG])
        own = msgspec.structs.replace(shape, node_selector=((namespace, "true"),))
        waiting = pods(
            draw.choice([0, 1, 3, 20]), draw.choice([shape, own]), namespace=namespace,
            queue=queue, created=draw.choice(["2026-03-02T11:59:50Z", OLD]), app_id=namespace,
        )  # fmt: skip
        world.with_pods(*(
            msgspec.structs.replace(pod, name=f"{namespace}-{pod.name}", uid=pod.name + namespace)
            for pod in waiting
        ))  # fmt: skip
    record(draw, world)
    see(draw, world, lent)
    return world


def record(draw: Draw, world: World) -> None:
    requests = [
        a_request(
            id=f"r{number}", node_type=draw.choice("ab"), count=draw.choice([1, 2]),
            namespace=(of := draw.namespace()), queue=NAMESPACES[of], since=draw.moment(-40, 0),
            ended=draw.is_so(0.5), is_abandoned=draw.is_so(0.2),
            names=draw.choice([(), ("a004",), ("b002",)]), node=draw.choice(["", "", "a005"]),
            converter=draw.choice([None, CONVERTER]), order=draw.choice(["", "", "lend-1"]),
        )
        for number in range(draw.choice([0, 0, 1, 2]))
    ]  # fmt: skip
    claimed = {
        name: ClaimedNode(node_type=name[0], namespace=draw.namespace(), can_resume=draw.is_so(0.5))
        for name in draw.sample(["a001", "a002", "a004", "b002"], 2)
        if name not in world.registry.nodes
    }
    order = LendOrder(
        id="lend-1", node_type="a", namespace="dev", count=draw.choice([1, 3]),
        since=draw.moment(-60, 0), until=draw.moment(-5, 60), nodes=draw.choice([(), ("a002",)]),
    )  # fmt: skip
    tripped = Breaker(unused=draw.choice([2, 3]), tripped_at=draw.choice([None, draw.moment()]))
    ways = [None, Way.LENDING, Way.RETURNING]
    kept = Keeping(since=draw.moment(), until=draw.choice([None, draw.moment()]))
    world.recorded(requests=tuple(requests))
    world.recorded(**draw.some(
        0.2, claimed=claimed, orders=(order,), pause=Pause(since=NOW, half=draw.choice(ways)),
        held=("a001", "b001"), excluded={"a002": kept}, breakers={QUEUE: tripped},
        backoffs={"a": Backoff(failures=2, until=draw.moment(-5, 5), ask_at_most=1)},
    ))  # fmt: skip


def see(draw: Draw, world: World, lent: Lent) -> None:
    """Sets the queue document for the lent nodes, and makes random parts unreadable."""
    config_map = queue_map()
    if any(lent.values()):
        wants = QueueWants(instance_id="prod", nodes=lent, remembered="")
        edit = plan_source(resolve_document(config_map, None), wants)
        data, ledger = {"queues.yaml": edit.text}, {LEDGER_ANNOTATION: edit.ledger}
        config_map = msgspec.structs.replace(config_map, data=data, annotations=ledger)
        noted = msgspec.structs.replace(world.registry.last_run, ledger=edit.record)
        world.recorded(last_run=noted)
    world.set(maps=(config_map, None), **draw.some(0.03, pods=UNREAD, batch=None))
    running = frozenset({CONVERTER}) if draw.is_so(0.5) else frozenset()
    can = {key: draw.is_so(0.5) for key in ("can_reserve", "leaves_out", "charges")}
    world.with_facts(running_converters=running, **can)


@pytest.mark.parametrize("worlds", by_night(150, 6000))
def test_random_worlds_give_no_refused_plan(worlds: int) -> None:
    first = int(os.environ.get("DNM_SEED", "20261127")) * 10_000
    refused = {}
    for seed in range(first, first + worlds):
        plan = drawn(seed).plan()
        if plan.is_refused:
            refused[seed] = plan.errors
    assert not refused, f"drawn({min(refused)}): {refused}"
