"""A model of slurm-operator in DaemonSet mode, with Slurm and Kubernetes as values in memory.

The model acts in the operator's order: it creates a pod on each matching Node, drains and then
deletes a pod that no longer matches, and sets a new pod's node in Slurm to IDLE. A test switches on
harmful behaviour. Each call of a converter is a step of the model's time and may kill it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from dnm.converters.nodeset import FENCE, NodeSet, SlurmdPod
from dnm.converters.slurm.commands import SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmJob, SlurmNode
from dnm.kube.nodes import MARK_PREFIX
from dnm.model.cluster import PodOnNode
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.pod import Toleration
from dnm.model.slurm_state import NodeState

LABEL = ("slurm", "yes")
BOOTED = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TOLERATES = Toleration(key=FENCE.key, operator="Exists")


S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class Killed(BaseException):
    """The exception that ends a converter as SIGKILL would; no code may catch it."""


class Machine:
    """A machine: its Node, its slurmd pod, and Slurm's record of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.labels = {LABEL[0]: LABEL[1], "kubernetes.io/hostname": name}
        self.taints: tuple[Taint, ...] = (FENCE,)
        self.is_cordoned = False
        self.annotations: dict[str, str] = {}
        self.mark: Mark | None = None
        self.version = 1
        self.pod: dict[str, Any] | None = None
        self.base, self.flags, self.reason, self.extra = "DOWN", {"NOT_RESPONDING"}, "", ""
        self.comment = ""
        self.jobs: dict[str, int] = {}  # job -> remaining steps
        self.tenants: list[str] = []  # pods of a namespace


class World:
    """The model. `lost` has each job that died with its slurmd's pod, and `shared` each moment at
    which a machine accepted both pods and jobs: both must stay empty."""

    make: type[Machine] = Machine

    def __init__(self, seed: int = 0, machines: int = 1) -> None:
        self.random = random.Random(seed)
        self.machines = {name: self.make(name) for name in (f"a{n:03}" for n in range(machines))}
        self.reservations: dict[str, tuple[str, bool]] = {}
        self.lost: list[str] = []
        self.shared: list[str] = []
        self.ended = 0
        self.jobs = 0
        self.job_chance = 0.0
        self.fails_open = False  # a pod is deleted without a check in Slurm
        self.deletes_nodes = True  # a pod's end deletes its node, unless Slurm shows it as reserved
        self.deleted: list[str] = []
        self.delay = 3  # calls until Slurm shows that a node is reserved
        self.made: dict[str, int] = {}  # reservation -> the call of it
        self.lifts_drains = False  # a pod's record changes at times, and its drain is lost
        self.mode, self.is_settled = True, True
        self.selector = dict([LABEL])
        self.tolerations = (TOLERATES,)
        self.tells = True  # the operator gets answers from Slurm
        self.is_stuck = False  # the operator does nothing
        self.conflicts = 0
        self.second_writer = 0.0  # chance that another client writes a Node after each read of it
        self.calls = 0
        self.kill_at = -1  # before this call; with `kill_after` its effect takes place
        self.kill_after = False
        self.log: list[str] = []
        for _ in range(4):
            self.step()

    # --- time ---------------------------------------------------------------------------------

    def call(self, name: str, act: Callable[[], T]) -> T:
        """Makes a step of the model, then a converter's call; kills the converter if due."""
        self.calls += 1
        self.step()
        if self.calls == self.kill_at and not self.kill_after:
            raise Killed
        self.log.append(name)
        try:
            return act()
        finally:
            if self.calls == self.kill_at:
                raise Killed

    def step(self) -> None:
        if not self.is_stuck:
            self._operate()
        for machine in self.machines.values():
            self._run_jobs(machine)
            if self._is_open(machine) and self._takes_jobs(machine):
                self.shared.append(machine.name)

    def _operate(self) -> None:
        for machine in self.machines.values():
            self._reconcile(machine)

    def _is_open(self, machine: Machine) -> bool:
        return FENCE not in machine.taints and not machine.is_cordoned

    def _reconcile(self, machine: Machine) -> None:
        matches = all(machine.labels.get(key) == value for key, value in self.selector.items())
        pod = machine.pod
        if pod is None:
            tolerated = all(t.key == FENCE.key and self.tolerations for t in machine.taints)
            if matches and tolerated and not machine.is_cordoned:
                uid = f"u{self.random.randrange(10**9)}"
                machine.pod = {"uid": uid, "age": 0, "going": False}
        elif pod["going"]:
            self._end_pod(machine)
        elif pod["age"] == 0:
            pod["age"] = 1  # slurmd registers, and the operator writes the new record
            machine.base, machine.flags, machine.reason = "IDLE", set(), ""
            machine.comment = (
                f'{{"namespace":"slurm","podName":"b-{pod["uid"]}","node":"{machine.name}"}}'
            )
        elif not matches:
            is_drained = "DRAIN" in machine.flags and not machine.jobs
            if is_drained or self.fails_open:
                pod["going"] = True
            else:
                machine.flags.add("DRAIN")
                machine.reason = "slurm-operator: Pod is pending termination for scale-in"
        elif not machine.reason or machine.reason.startswith("slurm-operator:"):
            if machine.is_cordoned:
                machine.flags.add("DRAIN")
                machine.reason = "slurm-operator: Node was cordoned"
            else:
                machine.flags.discard("DRAIN")
                machine.reason = ""
        elif self.lifts_drains and self.random.random() < 0.03:
            machine.flags.discard("DRAIN")
            machine.base, machine.reason = "IDLE", ""

    def _end_pod(self, machine: Machine) -> None:
        """Ends a pod. preStop sets the node down, and Slurm kills its jobs. With slurm-operator 1.1
        it also deletes the node, which Slurm refuses while the node is shown as reserved."""
        machine.pod = None
        self.lost += machine.jobs
        machine.jobs.clear()
        machine.base, machine.flags = "DOWN", {"NOT_RESPONDING", *(machine.flags & {"DRAIN"})}
        machine.reason = "slurm-operator: Pod is terminating"
        if self.deletes_nodes and not self.is_seen_reserved(machine):
            self.deleted.append(machine.name)

    def is_seen_reserved(self, machine: Machine) -> bool:
        return any(
            node == machine.name and self.calls >= self.made.get(name, 0) + self.delay
            for name, (node, _) in self.reservations.items()
        )

    def _takes_jobs(self, machine: Machine) -> bool:
        is_reserved = any(node == machine.name for node, _ in self.reservations.values())
        return machine.base == "IDLE" and not machine.flags and not is_reserved

    def _run_jobs(self, machine: Machine) -> None:
        for job in list(machine.jobs):
            machine.jobs[job] -= 1
            if machine.jobs[job] <= 0:
                del machine.jobs[job]
                self.ended += 1
        if (
            self._takes_jobs(machine)
            and not machine.jobs
            and self.random.random() < self.job_chance
        ):
            self.jobs += 1
            machine.jobs[str(self.jobs)] = self.random.randrange(1, 12)


class SlurmSide:
    """The Slurm client of a converter, which reads and changes the model."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _node(self, machine: Machine) -> SlurmNode:
        is_reserved = self.world.is_seen_reserved(machine)
        base = "ALLOCATED" if machine.jobs else machine.base
        flags = {"DYNAMIC_NORM", *machine.flags} | ({"RESERVED"} if is_reserved else set())
        return SlurmNode(
            name=machine.name,
            state=NodeState(base=base, flags=frozenset(flags)),
            cpus_allocated=len(machine.jobs),
            memory_allocated=0,
            slurmd_started=BOOTED,
            last_busy=BOOTED,
            reason=machine.reason,
            comment=machine.comment,
            extra=machine.extra,
        )

    def _job(self, job: str, machine: Machine) -> SlurmJob:
        return SlurmJob(
            id=job, display_id=job, state="RUNNING", user="u", account="a", partitions=("b",),
            node_count=1, priority=1, start=BOOTED, reservation="", nodes=(machine.name,),
            planned_nodes=(),
        )  # fmt: skip

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        return tuple(self._node(machine) for machine in self.world.machines.values())

    def read_node(self, name: str) -> SlurmNode:
        return self.world.call("read node", lambda: self._node(self.world.machines[name]))

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        return tuple(
            self._job(j, machine) for machine in self.world.machines.values() for j in machine.jobs
        )

    def read_jobs_on(self, node: str) -> tuple[SlurmJob, ...]:
        machine = self.world.machines[node]
        return self.world.call(
            "read jobs", lambda: tuple(self._job(j, machine) for j in machine.jobs)
        )

    def read_reservations(self) -> tuple[Reservation, ...]:
        def read() -> tuple[Reservation, ...]:
            return tuple(
                Reservation(name=name, start=BOOTED, end=None, nodes=(node,))
                for name, (node, _) in self.world.reservations.items()
            )

        return self.world.call("read reservations", read)

    def create_reservation(
        self, name: str, node: str, end: datetime | None = None, flags: str = ""
    ) -> None:
        def create() -> None:
            machine = self.world.machines[node]
            if name in self.world.reservations:
                raise SlurmRefused("create", "Duplicate reservation name")
            if machine.jobs and not flags:
                raise SlurmRefused("create", "Requested nodes are busy")
            self.world.reservations[name] = (node, bool(flags))
            self.world.made[name] = self.world.calls

        self.world.call("reserve", create)

    def delete_reservation(self, name: str) -> None:
        self.world.call("unreserve", lambda: self.world.reservations.pop(name, None))

    def drain(self, node: str, reason: str, marks: Mapping[str, str]) -> None:
        def drain() -> None:
            machine = self.world.machines[node]
            machine.flags.add("DRAIN")
            machine.reason = reason
            self._mark(machine, marks)

        self.world.call("drain", drain)

    def _mark(self, machine: Machine, marks: Mapping[str, str]) -> None:
        machine.extra = marks.get("extra", machine.extra)
        machine.comment = marks.get("comment", machine.comment)

    def resume(self, node: str, marks: Mapping[str, str]) -> None:
        def resume() -> None:
            machine = self.world.machines[node]
            machine.flags.discard("DRAIN")
            machine.reason = ""
            if machine.base == "DOWN" and machine.pod is not None:
                machine.base = "IDLE"
            self._mark(machine, marks)

        self.world.call("resume", resume)

    def mark(self, node: str, marks: Mapping[str, str]) -> None:
        self.world.call("mark", lambda: self._mark(self.world.machines[node], marks))


class KubeSide:
    """The Kubernetes client of nodeset-convert, which reads and changes the model."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def node_sets(self) -> KubeSide:
        return self

    def read_node(self, name: str) -> Node | None:
        def read() -> Node | None:
            machine, world = self.world.machines.get(name), self.world
            if machine is None:
                return None
            node = Node(
                name=name, allocatable={}, labels=dict(machine.labels), taints=machine.taints,
                is_cordoned=machine.is_cordoned, mark=machine.mark,
                resource_version=str(machine.version),
            )  # fmt: skip
            machine.version += bool(
                world.second_writer and world.random.random() < world.second_writer
            )
            return node

        return self.world.call("read Node", read)

    def read_pods(self, node: str = "") -> Sequence[SlurmdPod]:
        def read() -> list[SlurmdPod]:
            machines = self.world.machines.values()
            return [
                self._pod(machine)
                for machine in machines
                if machine.pod and node in ("", machine.name)
            ]

        return self.world.call("read slurmd", read)

    def _pod(self, machine: Machine) -> SlurmdPod:
        assert machine.pod is not None
        states = {"Allocated" if machine.jobs else machine.base.capitalize()}
        states |= {flag.capitalize() for flag in machine.flags if flag == "DRAIN"}
        return SlurmdPod(
            namespace="slurm", name=f"b-{machine.pod['uid']}", uid=machine.pod["uid"],
            node=machine.name,
            hostname=machine.name, node_set="b", is_ready=machine.pod["age"] > 0,
            is_terminating=machine.pod["going"],
            states=frozenset(states) if self.world.tells else frozenset(),
        )  # fmt: skip

    def read_sets(self) -> Sequence[NodeSet]:
        world = self.world
        node_set = NodeSet(
            namespace="slurm", name="b", is_daemon_set=world.mode, is_deleting=False,
            is_settled=world.is_settled, selector=world.selector, tolerations=world.tolerations,
        )  # fmt: skip
        return world.call("read sets", lambda: [node_set])

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        def read() -> list[PodOnNode]:
            machine = self.world.machines[node]
            pods = [a_tenant(name) for name in machine.tenants]
            if machine.pod:
                pods.append(msgspec.structs.replace(a_tenant("slurmd"), stays=True))
            return pods

        return self.world.call("read pods", read)

    def set_cordon(self, node: str, cordon: bool) -> None:
        def act() -> None:
            machine = self.world.machines[node]
            machine.is_cordoned, machine.version = cordon, machine.version + 1

        self.world.call("cordon" if cordon else "uncordon", act)

    def evict(self, pod: PodOnNode) -> str:
        assert not pod.stays, "a pod of slurmd is never evicted"

        def act() -> str:
            for machine in self.world.machines.values():
                if pod.name in machine.tenants:
                    machine.tenants.remove(pod.name)
            return ""

        return self.world.call("evict", act)

    def delete_node(self, name: str) -> None:
        raise AssertionError("a Node is never deleted")

    def remove_label(self, node: str, key: str, value: str) -> None:
        def act() -> None:
            machine = self.world.machines[node]
            if machine.labels.get(key) != value:
                raise KubeError("the test of the patch failed")
            del machine.labels[key]
            machine.version += 1

        self.world.call("remove label", act)

    def change(
        self,
        node: Node,
        labels: Mapping[str, str | None],
        taints: Sequence[Taint],
        is_uncordoned: bool = False,
        annotations: Mapping[str, str | None] = {},
    ) -> None:
        def act() -> None:
            world, machine = self.world, self.world.machines[node.name]
            if str(machine.version) != node.resource_version:
                world.conflicts += 1
                raise KubeConflict("the Node has changed meanwhile")
            for key, value in labels.items():
                if value is None:
                    machine.labels.pop(key, None)
                else:
                    machine.labels[key] = value
            machine.taints = tuple(taints)
            machine.is_cordoned = machine.is_cordoned and not is_uncordoned
            for key, text in annotations.items():
                if text is None:
                    machine.annotations.pop(key, None)
                else:
                    machine.annotations[key] = text
            machine.mark = None if f"{MARK_PREFIX}instance" in annotations else machine.mark
            machine.version += 1

        self.world.call("change", act)


def a_tenant(name: str) -> PodOnNode:
    return PodOnNode(namespace="dev", name=name, uid=name, stays=False, is_terminating=False)


def changed(value: S, **fields: Any) -> S:
    return msgspec.structs.replace(value, **fields)


def patience() -> dict[str, Any]:
    """Returns settings without pauses, so that a converter waits only for steps of the model."""
    return {"poll_seconds": timedelta(0), "verify_seconds": timedelta(0)}
