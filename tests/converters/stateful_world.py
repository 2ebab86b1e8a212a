"""A model of slurm-operator in StatefulSet mode, which runs `replicas` pods on matching Nodes.

To remove a pod, it chooses as the operator does: not Ready, then the lower deletion cost, then
drained already, then the higher ordinal. It drains and then deletes that pod, and resumes the
others. A test switches on harmful behaviour, in addition to that of `nodeset_world`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dnm.converters.nodeset import FENCE, NodeSet, SlurmdPod
from dnm.model.errors import KubeConflict, KubeError
from tests.converters import nodeset_world
from tests.converters.nodeset_world import LABEL, Machine, World, changed

OPERATOR = "slurm-operator:"


class StatefulWorld(World):
    """The model. `waiting` are the ordinals of pods for which no Node has free capacity."""

    def __init__(self, seed: int = 0, machines: int = 3) -> None:
        self.replicas, self.version = machines, 1
        self.waiting: list[int] = []
        self.flickers = 0.0  # probability that a pod is not Ready for a moment
        self.broken: set[str] = set()  # machines with a pod that is not Ready
        self.scalers: tuple[str, ...] = ()
        self.idle_scalers: tuple[str, ...] = ()
        super().__init__(seed, machines)

    def step(self) -> None:
        for machine in self._with_pod():
            assert machine.pod is not None
            is_well = machine.pod["age"] > 0 and machine.name not in self.broken
            machine.pod["ready"] = is_well and self.random.random() >= self.flickers
        super().step()

    def _operate(self) -> None:
        self._scale()
        for machine in self.machines.values():
            self._live(machine)

    def _with_pod(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.pod]

    def _scale(self) -> None:
        ordinals = {entry.pod["ordinal"]: entry for entry in self._with_pod() if entry.pod}
        excess = len(ordinals) + len(self.waiting) - self.replicas
        while excess > 0 and self.waiting:
            self.waiting.pop()
            excess -= 1
        free = (n for n in range(99) if n not in ordinals and n not in self.waiting)
        for _ in range(-excess):
            self.waiting.append(next(free))
        order = sorted(ordinals.values(), key=self._rank)
        for place, machine in enumerate(order):
            self._condemn(machine) if place < excess else self._keep(machine)
        for ordinal in sorted(self.waiting):
            if nodes := [entry for entry in self.machines.values() if self._takes_pod(entry)]:
                item = self.random.choice(nodes)
                uid = f"u{self.random.randrange(10**9)}"
                item.pod = {"uid": uid, "ordinal": ordinal, "age": 0, "going": False, "cost": 0,
                           "condemned": False, "ready": False}  # fmt: skip
                self.waiting.remove(ordinal)

    def _rank(self, machine: Machine) -> tuple[Any, ...]:
        assert machine.pod is not None
        return (
            machine.pod["ready"],
            machine.pod["cost"],
            not machine.pod["condemned"],
            -machine.pod["ordinal"],
        )

    def _takes_pod(self, machine: Machine) -> bool:
        matches = machine.labels.get(LABEL[0]) == LABEL[1] and not machine.is_cordoned
        return matches and machine.pod is None and all(taint == FENCE for taint in machine.taints)

    def _condemn(self, machine: Machine) -> None:
        assert machine.pod is not None
        if machine.pod["going"]:
            return
        if self.fails_open or ("DRAIN" in machine.flags and not machine.jobs):
            machine.pod["going"] = True
            return
        machine.pod["condemned"] = True
        machine.flags.add("DRAIN")
        machine.reason = f"{OPERATOR} Pod is pending termination for scale-in"

    def _keep(self, machine: Machine) -> None:
        assert machine.pod is not None
        machine.pod["condemned"] = False
        if machine.reason.startswith(OPERATOR) and not machine.pod["going"]:
            machine.flags.discard("DRAIN")
            machine.reason = f"{OPERATOR} Pod was uncordoned" if machine.base == "DOWN" else ""

    def _live(self, machine: Machine) -> None:
        pod = machine.pod
        if pod and pod["going"]:
            self._end_pod(machine)
        elif pod and pod["age"] == 0:
            pod["age"] = 1
            machine.flags.discard("NOT_RESPONDING")
            name = f"b-{pod['ordinal']}"
            comment = f'{{"namespace":"slurm","podName":"{name}","node":"{machine.name}"}}'
            if machine.comment != comment:  # otherwise the node stays as the pod's end has left it
                machine.base, machine.flags, machine.reason = "IDLE", set(), ""
            machine.comment = comment


class KubeSide(nodeset_world.KubeSide):
    """The Kubernetes client of nodeset-convert, which reads and changes the model."""

    world: StatefulWorld

    def _pod(self, machine: Machine) -> SlurmdPod:
        assert machine.pod is not None
        return changed(
            super()._pod(machine), is_ready=machine.pod["ready"], cost=machine.pod["cost"],
            is_condemned=machine.pod["condemned"],
        )  # fmt: skip

    def read_pods(self, node: str = "") -> Sequence[SlurmdPod]:
        slurmd_pods = list(super().read_pods(node))
        if not node:
            slurmd_pods += [
                SlurmdPod(
                    namespace="slurm", name=f"b-{n}", uid=f"w{n}", node="", hostname="",
                    node_set="b", is_ready=False, is_terminating=False,
                )
                for n in self.world.waiting
            ]  # fmt: skip
        return slurmd_pods

    def read_sets(self) -> Sequence[NodeSet]:
        world = self.world
        return [
            changed(
                node_set, is_daemon_set=False, replicas=world.replicas, scalers=world.scalers,
                idle_scalers=world.idle_scalers,
                resource_version=str(world.version),
            )
            for node_set in super().read_sets()
        ]  # fmt: skip

    def read_chosen(self, key: str, value: str) -> Sequence[str]:
        machines = self.world.machines.values()
        return self.world.call(
            "read chosen",
            lambda: [machine.name for machine in machines if machine.labels.get(key) == value],
        )

    def set_cost(self, pod: SlurmdPod, cost: int | None) -> None:
        def act() -> None:
            for machine in self.world.machines.values():
                if machine.pod and machine.pod["uid"] == pod.uid:
                    machine.pod["cost"] = cost or 0
                    return
            raise KubeError("no such pod")

        self.world.call("set cost", act)

    def scale(self, node_set: NodeSet, replicas: int) -> None:
        def act() -> None:
            if node_set.resource_version != str(self.world.version):
                raise KubeConflict("the NodeSet has changed meanwhile")
            self.world.replicas, self.world.version = replicas, self.world.version + 1

        self.world.call(f"scale {replicas - node_set.replicas:+}", act)
