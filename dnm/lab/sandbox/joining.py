"""The joining of machines to Kubernetes: their Nodes are registered NotReady, then become Ready."""

from __future__ import annotations

import msgspec

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.batch import Batch, Machine
from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.store import Object, Objects


class Arrival(msgspec.Struct, kw_only=True):
    """A machine that is joining Kubernetes. `claim` is the number of its conversion."""

    machine: str
    namespace: str
    claim: int
    joins_at: float
    ready_at: float | None = None


class Joiner:
    """The machines that are joining Kubernetes now. Callers hold the store's lock."""

    def __init__(self, store: Objects, batch: Batch, timing: Timing) -> None:
        self.store = store
        self.clock = store.clock
        self.batch = batch
        self.timing = timing
        self._arrivals: list[Arrival] = []

    def expect(self, machine: Machine, namespace: str, late_seconds: float = 0.0) -> None:
        """Lets the machine's kubelet register its Node after the usual time and `late_seconds`."""
        joins_at = self.clock.after(self.timing.join + late_seconds)
        self._arrivals.append(Arrival(
            machine=machine.name, namespace=namespace, claim=machine.claims, joins_at=joins_at
        ))  # fmt: skip

    def step(self) -> None:
        """Registers Nodes at their due times, and later sets them to Ready."""
        now = self.clock.now()
        for entry in list(self._arrivals):
            machine = self.batch.machines[entry.machine]
            if machine.claims != entry.claim:
                self._arrivals.remove(entry)
                continue
            if entry.ready_at is None and entry.joins_at <= now:
                self.join(machine, entry.namespace)
                entry.ready_at = self.clock.after(self.timing.ready)
            if entry.ready_at is not None and entry.ready_at <= now:
                self._set_ready(machine)
                self._arrivals.remove(entry)

    def join(self, machine: Machine, namespace: str) -> None:
        """Registers the machine's Node as NotReady. An existing Node stays as it is."""
        kind = self.batch.types[machine.type]
        name = machine.name
        if self.store.get("nodes", "", name) is not None:
            return
        fill = {"namespace": namespace}
        labels = {key.format(**fill): text.format(**fill) for key, text in kind.labels.items()}
        labels |= {namespace: "true"} if namespace else {}
        taints = [
            {key: text.format(**fill) for key, text in taint.items()} for taint in kind.taints
        ]
        node = manifests.node_manifest(
            name, kind.allocatable, labels=labels, taints=taints, ready=False,
            capacity=kind.capacity,
        )  # fmt: skip
        node["status"]["conditions"][0]["lastTransitionTime"] = self.clock.stamp()
        self.store.create("nodes", node)

    def _set_ready(self, machine: Machine) -> None:
        def change(node: Object) -> None:
            manifests.set_ready(node, True)
            node["status"]["conditions"][0]["lastTransitionTime"] = self.clock.stamp()

        if self.store.get("nodes", "", machine.name) is not None:
            self.store.edit("nodes", "", machine.name, change)
