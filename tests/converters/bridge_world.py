"""A model of slurm-bridge, with Slurm and Kubernetes as values in memory.

Each step is one pass of slurm-bridge's node controller, in its order: registration, taint, state.
The pass that drains a schedulable Node also lifts that drain. Slurm deletes no node that is
reserved or has work. A missing partition stops the registration. A test switches on what happens
only at times. A job of slurm-bridge has a pod on the Node, which ends with it."""

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
    """A machine of the model. `is_in_slurm` is true while Slurm has a record of it."""

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
    """The model. `flaps` are the drains that slurm-bridge wrongly lifted while it removed a node.
    `evicted` are the tenants' pods that were ended by slurm-bridge's taint."""

    make = BridgedMachine
    machines: dict[str, BridgedMachine]  # type: ignore[assignment]

    def __init__(self, seed: int = 0, machines: int = 1) -> None:
        self.partitions = ["b", "c"]
        self.recreates = False  # a machine's size changes at times, and its record is replaced
        self.taint_lag = 2  # passes from the end of the record to the end of the taint
        self.tenant_chance = 0.0
        self.flaps: list[str] = []
        self.evicted: list[str] = []
        super().__init__(seed, machines)

    def step(self) -> None:
        super().step()
        for machine in self.machines.values():
            if machine.is_open and self.random.random() < self.tenant_chance:
                machine.tenants.append(f"t{self.random.randrange(10**9)}")

    def _is_open(self, machine: Machine) -> bool:
        assert isinstance(machine, BridgedMachine)
        return machine.is_open

    def _is_reserved(self, machine: Machine) -> bool:
        return any(node == machine.name for node, _ in self.reservations.values())

    def _reconcile(self, machine: Machine) -> None:
        assert isinstance(machine, BridgedMachine)
        self._register(machine)
        self._taint(machine)
        self._follow_cordon(machine)

    def _register(self, bridged_machine: BridgedMachine) -> None:
        may_go = (
            "DRAIN" in bridged_machine.flags
            and not bridged_machine.jobs
            and not self._is_reserved(bridged_machine)
        )
        if bridged_machine.is_labelled:
            if (
                self.recreates
                and bridged_machine.is_in_slurm
                and may_go
                and self.random.random() < 0.05
            ):
                bridged_machine.is_in_slurm = False
            wanted = tuple(
                name.strip() for name in bridged_machine.annotations.get(PARTITIONS, "").split(",")
            )
            if wanted != ("",) and not set(wanted) <= set(self.partitions):
                return
            if not bridged_machine.is_in_slurm:
                bridged_machine.is_in_slurm, bridged_machine.base, bridged_machine.flags = (
                    True,
                    "IDLE",
                    set(),
                )
                bridged_machine.reason = bridged_machine.comment = bridged_machine.extra = ""
            bridged_machine.features = wanted
        elif bridged_machine.is_in_slurm:
            if "DRAIN" not in bridged_machine.flags:
                bridged_machine.flags.add("DRAIN")
                bridged_machine.reason = (
                    f"slurm-bridge: slurm-bridge: removing external node {bridged_machine.name}"
                )
            elif may_go:
                bridged_machine.is_in_slurm, bridged_machine.since_gone = False, 0
                self.lost += bridged_machine.jobs

    def _taint(self, bridged_machine: BridgedMachine) -> None:
        if bridged_machine.is_in_slurm:
            if not bridged_machine.is_managed:
                bridged_machine.taints, bridged_machine.version = (
                    (*bridged_machine.taints, MANAGED),
                    bridged_machine.version + 1,
                )
            self.evicted += bridged_machine.tenants
            bridged_machine.tenants.clear()
            return
        bridged_machine.since_gone += 1
        if bridged_machine.is_managed and bridged_machine.since_gone > self.taint_lag:
            bridged_machine.taints = tuple(
                taint for taint in bridged_machine.taints if taint != MANAGED
            )
            bridged_machine.version += 1

    def _follow_cordon(self, bridged: BridgedMachine) -> None:
        if not bridged.is_in_slurm:
            return
        if bridged.is_cordoned and "DRAIN" not in bridged.flags:
            bridged.flags.add("DRAIN")
            bridged.reason = (
                f"slurm-bridge: Corresponding Kubernetes node (/{bridged.name}) is unschedulable"
            )
        is_theirs = not bridged.reason or "slurm-bridge:" in bridged.reason
        if not bridged.is_cordoned and "DRAIN" in bridged.flags and is_theirs:
            bridged.flags.discard("DRAIN")
            bridged.reason = (
                f"slurm-bridge: Corresponding Kubernetes node (/{bridged.name}) is schedulable"
            )
            self.flaps += [bridged.name] if not bridged.is_labelled else []

    def _takes_jobs(self, machine: Machine) -> bool:
        assert isinstance(machine, BridgedMachine)
        return machine.is_in_slurm and super()._takes_jobs(machine)


class SlurmSide(nodeset_world.SlurmSide):
    """The Slurm client of a converter, which reads and changes the model."""

    world: BridgeWorld

    def _node(self, machine: Machine) -> SlurmNode:
        assert isinstance(machine, BridgedMachine)
        if not machine.is_in_slurm:
            raise SlurmError(f"Node {machine.name} not found")
        node = super()._node(machine)
        flags = (node.state.flags - {"DYNAMIC_NORM"}) | {"EXTERNAL"}
        return nodeset_world.changed(
            node, state=nodeset_world.changed(node.state, flags=flags), features=machine.features
        )

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        def read() -> tuple[SlurmNode, ...]:
            bridged_machines = [
                machine for machine in self.world.machines.values() if machine.is_in_slurm
            ]
            return tuple(map(self._node, bridged_machines))

        return self.world.call("read nodes", read)

    def read_partitions(self) -> tuple[str, ...]:
        return self.world.call("read partitions", lambda: tuple(self.world.partitions))

    def create_reservation(self, name: str, node: str, *more: Any, **options: Any) -> None:
        if not self.world.machines[node].is_in_slurm:
            raise SlurmRefused("create", "Invalid node name specified")
        super().create_reservation(name, node, *more, **options)


class KubeSide(nodeset_world.KubeSide):
    """The Kubernetes client of bridge-convert, which reads and changes the model. It has its own
    parser for dnm's annotation on a Node."""

    world: BridgeWorld

    @property
    def bridge(self) -> Bridge:
        return Bridge(self)

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        def read() -> list[PodOnNode]:
            machine = self.world.machines[node]
            return [
                a_tenant(name)
                for name in (*machine.tenants, *(f"job-{job}" for job in machine.jobs))
            ]

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
        results = self.side.world.machines[node.name].annotations
        taken = results.get(TAKEN)
        return BridgedNode(
            node=node,
            partitions=results.get(PARTITIONS),
            taken=msgspec.json.decode(taken, type=Taken) if taken else None,
        )
