"""A model of slurm-operator in StatefulSet mode: `replicas` pods on the Nodes that it selects.

It keeps the operator's order of removal: not Ready, the lower cost, drained already, the higher
ordinal. It drains and then deletes the chosen pod, and releases the others. Its traps are switches,
in addition to those of `nodeset_world`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dnm.converters.nodeset import FENCE, NodeSet, SlurmdPod
from dnm.model.errors import KubeConflict, KubeError
from tests.converters import nodeset_world
from tests.converters.nodeset_world import LABEL, Machine, World, changed

OPERATOR = "slurm-operator:"


class StatefulWorld(World):
    """The cluster. `waiting`: ordinals of pods for which no Node has free capacity."""

    def __init__(self, seed: int = 0, machines: int = 3) -> None:
        self.replicas, self.version = machines, 1
        self.waiting: list[int] = []
        self.flickers = 0.0  # how likely a pod is not Ready for a moment
        self.broken: set[str] = set()  # machines with a pod that is not Ready
        self.scalers: tuple[str, ...] = ()
        self.idle_scalers: tuple[str, ...] = ()
        super().__init__(seed, machines)

    def step(self) -> None:
        for one in self._with_pod():
            assert one.pod is not None
            is_well = one.pod["age"] > 0 and one.name not in self.broken
            one.pod["ready"] = is_well and self.random.random() >= self.flickers
        super().step()

    def _operate(self) -> None:
        self._scale()
        for one in self.machines.values():
            self._live(one)

    def _with_pod(self) -> list[Machine]:
        return [one for one in self.machines.values() if one.pod]

    def _scale(self) -> None:
        ordinals = {one.pod["ordinal"]: one for one in self._with_pod() if one.pod}
        excess = len(ordinals) + len(self.waiting) - self.replicas
        while excess > 0 and self.waiting:
            self.waiting.pop()
            excess -= 1
        free = (n for n in range(99) if n not in ordinals and n not in self.waiting)
        for _ in range(-excess):
            self.waiting.append(next(free))
        order = sorted(ordinals.values(), key=self._rank)
        for place, one in enumerate(order):
            self._condemn(one) if place < excess else self._keep(one)
        for ordinal in sorted(self.waiting):
            if nodes := [one for one in self.machines.values() if self._has_room(one)]:
                one = self.random.choice(nodes)
                uid = f"u{self.random.randrange(10**9)}"
                one.pod = {"uid": uid, "ordinal": ordinal, "age": 0, "going": False, "cost": 0,
                           "condemned": False, "ready": False}  # fmt: skip
                self.waiting.remove(ordinal)

    def _rank(self, one: Machine) -> tuple[Any, ...]:
        assert one.pod is not None
        return one.pod["ready"], one.pod["cost"], not one.pod["condemned"], -one.pod["ordinal"]

    def _has_room(self, one: Machine) -> bool:
        matches = one.labels.get(LABEL[0]) == LABEL[1] and not one.is_cordoned
        return matches and one.pod is None and all(taint == FENCE for taint in one.taints)

    def _condemn(self, one: Machine) -> None:
        assert one.pod is not None
        if one.pod["going"]:
            return
        if self.fails_open or ("DRAIN" in one.flags and not one.jobs):
            one.pod["going"] = True
            return
        one.pod["condemned"] = True
        one.flags.add("DRAIN")
        one.reason = f"{OPERATOR} Pod is pending termination for scale-in"

    def _keep(self, one: Machine) -> None:
        assert one.pod is not None
        one.pod["condemned"] = False
        if one.reason.startswith(OPERATOR) and not one.pod["going"]:
            one.flags.discard("DRAIN")
            one.reason = f"{OPERATOR} Pod was uncordoned" if one.base == "DOWN" else ""

    def _live(self, one: Machine) -> None:
        pod = one.pod
        if pod and pod["going"]:
            self._end_pod(one)
        elif pod and pod["age"] == 0:
            pod["age"] = 1
            one.flags.discard("NOT_RESPONDING")
            name = f"b-{pod['ordinal']}"
            comment = f'{{"namespace":"slurm","podName":"{name}","node":"{one.name}"}}'
            if one.comment != comment:  # else the node stays as the pod's end has left it
                one.base, one.flags, one.reason = "IDLE", set(), ""
            one.comment = comment


class KubeSide(nodeset_world.KubeSide):
    """The model as `KubeSide` and `NodeSetConnection`."""

    world: StatefulWorld

    def _pod(self, one: Machine) -> SlurmdPod:
        assert one.pod is not None
        return changed(
            super()._pod(one), is_ready=one.pod["ready"], cost=one.pod["cost"],
            is_condemned=one.pod["condemned"],
        )  # fmt: skip

    def read_pods(self, node: str = "") -> Sequence[SlurmdPod]:
        found = list(super().read_pods(node))
        if not node:
            found += [
                SlurmdPod(
                    namespace="slurm", name=f"b-{n}", uid=f"w{n}", node="", hostname="",
                    node_set="b", is_ready=False, is_terminating=False,
                )
                for n in self.world.waiting
            ]  # fmt: skip
        return found

    def read_sets(self) -> Sequence[NodeSet]:
        world = self.world
        return [
            changed(
                one, is_daemon_set=False, replicas=world.replicas, scalers=world.scalers,
                idle_scalers=world.idle_scalers,
                resource_version=str(world.version),
            )
            for one in super().read_sets()
        ]  # fmt: skip

    def read_chosen(self, key: str, value: str) -> Sequence[str]:
        machines = self.world.machines.values()
        return self.world.call(
            "read chosen", lambda: [one.name for one in machines if one.labels.get(key) == value]
        )

    def set_cost(self, pod: SlurmdPod, cost: int | None) -> None:
        def act() -> None:
            for one in self.world.machines.values():
                if one.pod and one.pod["uid"] == pod.uid:
                    one.pod["cost"] = cost or 0
                    return
            raise KubeError("no such pod")

        self.world.call("set cost", act)

    def scale(self, node_set: NodeSet, replicas: int) -> None:
        def act() -> None:
            if node_set.resource_version != str(self.world.version):
                raise KubeConflict("the NodeSet has changed meanwhile")
            self.world.replicas, self.world.version = replicas, self.world.version + 1

        self.world.call(f"scale {replicas - node_set.replicas:+}", act)
