"""A model of slurm-bridge with a Slurm and a Kubernetes as state.

Each step is one pass of its node controller, in its order: registration, taint, state. The pass
that drains a schedulable Node also lifts that drain. Slurm deletes no node that is reserved or has
work. A missing partition stops the registration. Occasional behaviour is a switch. Its jobs have
pods on the Node, which end with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dnm.converters.bridge import BridgedNode, Taken
from dnm.converters.slurm.commands import SlurmRefused
from dnm.converters.slurm.text import SlurmNode
from dnm.model.cluster import PodOnNode
from dnm.model.errors import SlurmError
from dnm.model.node import Node
from dnm.model.node_type import Taint
from tests.converters import nodeset_world
from tests.converters.nodeset_world import Machine, World, a_tenant

LABEL = "scheduler.slinky.slurm.net/external-node"
LONG_LABEL = "scheduler.slinky.slurm.net/slurm-bridge-external-node"
PARTITIONS = "scheduler.slinky.slurm.net/external-node-partitions"
MANAGED = Taint(key="slinky.slurm.net/managed-node", effect="NoExecute", value="slurm-bridge")
TAKEN = "dynamic-node-manager/taken-from-slurm-bridge"
FENCE_KEY = "dynamic-node-manager/batch"


class BridgedMachine(Machine):
    """A machine of the model. `is_in_slurm`: Slurm has a record of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.labels = {LABEL: "yes", "kubernetes.io/hostname": name}
        self.annotations = {PARTITIONS: "b, c"}
        self.taints = ()
        self.flags = set()
        self.is_in_slurm = False
        self.features: tuple[str, ...] = ()
        self.since_gone = 0

    @property
    def is_labelled(self) -> bool:
        return LABEL in self.labels or LONG_LABEL in self.labels

    @property
    def is_managed(self) -> bool:
        return MANAGED in self.taints

    @property
    def is_open(self) -> bool:
        keys = {taint.key for taint in self.taints}
        return not self.is_cordoned and not keys & {MANAGED.key, FENCE_KEY}


class BridgeWorld(World):
    """The cluster. `flaps`: drains that slurm-bridge lifted from nodes that it was removing;
    `evicted`: pods of a namespace that its taint has ended."""

    make = BridgedMachine
    machines: dict[str, BridgedMachine]  # type: ignore[assignment]

    def __init__(self, seed: int = 0, machines: int = 1) -> None:
        self.partitions = ["b", "c"]
        self.recreates = False  # a machine's size changes now and then, and its record is replaced
        self.taint_lag = 2  # passes from the end of the record to the end of the taint
        self.tenant_chance = 0.0
        self.flaps: list[str] = []
        self.evicted: list[str] = []
        super().__init__(seed, machines)

    def step(self) -> None:
        super().step()
        for one in self.machines.values():
            if one.is_open and self.random.random() < self.tenant_chance:
                one.tenants.append(f"t{self.random.randrange(10**9)}")

    def _is_open(self, one: Machine) -> bool:
        assert isinstance(one, BridgedMachine)
        return one.is_open

    def _is_reserved(self, one: Machine) -> bool:
        return any(node == one.name for node, _ in self.reservations.values())

    def _reconcile(self, one: Machine) -> None:
        assert isinstance(one, BridgedMachine)
        self._register(one)
        self._taint(one)
        self._follow_cordon(one)

    def _register(self, one: BridgedMachine) -> None:
        may_go = "DRAIN" in one.flags and not one.jobs and not self._is_reserved(one)
        if one.is_labelled:
            if self.recreates and one.is_in_slurm and may_go and self.random.random() < 0.05:
                one.is_in_slurm = False
            wanted = tuple(name.strip() for name in one.annotations.get(PARTITIONS, "").split(","))
            if wanted != ("",) and not set(wanted) <= set(self.partitions):
                return
            if not one.is_in_slurm:
                one.is_in_slurm, one.base, one.flags = True, "IDLE", set()
                one.reason = one.comment = one.extra = ""
            one.features = wanted
        elif one.is_in_slurm:
            if "DRAIN" not in one.flags:
                one.flags.add("DRAIN")
                one.reason = f"slurm-bridge: slurm-bridge: removing external node {one.name}"
            elif may_go:
                one.is_in_slurm, one.since_gone = False, 0
                self.lost += one.jobs

    def _taint(self, one: BridgedMachine) -> None:
        if one.is_in_slurm:
            if not one.is_managed:
                one.taints, one.version = (*one.taints, MANAGED), one.version + 1
            self.evicted += one.tenants
            one.tenants.clear()
            return
        one.since_gone += 1
        if one.is_managed and one.since_gone > self.taint_lag:
            one.taints = tuple(taint for taint in one.taints if taint != MANAGED)
            one.version += 1

    def _follow_cordon(self, one: BridgedMachine) -> None:
        if not one.is_in_slurm:
            return
        if one.is_cordoned and "DRAIN" not in one.flags:
            one.flags.add("DRAIN")
            one.reason = (
                f"slurm-bridge: Corresponding Kubernetes node (/{one.name}) is unschedulable"
            )
        is_theirs = not one.reason or "slurm-bridge:" in one.reason
        if not one.is_cordoned and "DRAIN" in one.flags and is_theirs:
            one.flags.discard("DRAIN")
            one.reason = f"slurm-bridge: Corresponding Kubernetes node (/{one.name}) is schedulable"
            self.flaps += [one.name] if not one.is_labelled else []

    def _takes_jobs(self, one: Machine) -> bool:
        assert isinstance(one, BridgedMachine)
        return one.is_in_slurm and super()._takes_jobs(one)


class SlurmSide(nodeset_world.SlurmSide):
    """The model as `Slurm`."""

    world: BridgeWorld

    def _node(self, one: Machine) -> SlurmNode:
        assert isinstance(one, BridgedMachine)
        if not one.is_in_slurm:
            raise SlurmError(f"Node {one.name} not found")
        node = super()._node(one)
        flags = (node.state.flags - {"DYNAMIC_NORM"}) | {"EXTERNAL"}
        return nodeset_world.changed(
            node, state=nodeset_world.changed(node.state, flags=flags), features=one.features
        )

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        def read() -> tuple[SlurmNode, ...]:
            known = [one for one in self.world.machines.values() if one.is_in_slurm]
            return tuple(map(self._node, known))

        return self.world.call("read nodes", read)

    def read_partitions(self) -> tuple[str, ...]:
        return self.world.call("read partitions", lambda: tuple(self.world.partitions))

    def create_reservation(self, name: str, node: str, *more: Any, **options: Any) -> None:
        if not self.world.machines[node].is_in_slurm:
            raise SlurmRefused("create", "Invalid node name specified")
        super().create_reservation(name, node, *more, **options)


class KubeSide(nodeset_world.KubeSide):
    """The model as `KubeSide` with its bridge connection. It parses the record annotation
    itself."""

    world: BridgeWorld

    @property
    def bridge(self) -> Bridge:
        return Bridge(self)

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        def read() -> list[PodOnNode]:
            one = self.world.machines[node]
            return [a_tenant(name) for name in (*one.tenants, *(f"job-{job}" for job in one.jobs))]

        return self.world.call("read pods", read)

    def evict(self, pod: PodOnNode) -> str:
        if pod.name.startswith("job-"):
            self.world.lost.append(pod.name)
        return super().evict(pod)


class Bridge:
    def __init__(self, side: KubeSide) -> None:
        self.side = side

    def read_node(self, name: str) -> Any:
        return self._with_annotations(self.side.read_node(name))

    def read_nodes(self) -> list[Any]:
        return [self.read_node(name) for name in self.side.world.machines]

    def _with_annotations(self, node: Node | None) -> Any:
        if node is None:
            return None
        found = self.side.world.machines[node.name].annotations
        taken = found.get(TAKEN)
        return BridgedNode(
            node=node,
            partitions=found.get(PARTITIONS),
            taken=msgspec.json.decode(taken, type=Taken) if taken else None,
        )
