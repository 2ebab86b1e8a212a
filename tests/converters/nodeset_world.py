"""A model of slurm-operator in DaemonSet mode, with a Slurm and a Kubernetes as state.

It keeps the operator's order: a pod on each matching Node; a pod that no longer matches is drained,
then deleted; a new pod's record is set IDLE, whatever it was. Its traps are switches. Each call of
a program is one step of the model's time, and the program may be killed at it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

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


class Killed(BaseException):
    """The exception that kills the program."""


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
        self.jobs: dict[str, int] = {}  # job -> steps to go
        self.tenants: list[str] = []  # pods of a namespace


class World:
    """The cluster. `lost` has every job that a pod's end killed, `shared` every moment at which a
    machine was open to pods and to jobs."""

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
        self.fails_open = False  # a pod that is to go is deleted without a look at Slurm
        self.deletes_nodes = True  # a pod's end deletes its node, unless that is seen reserved
        self.deleted: list[str] = []
        self.delay = 3  # calls until Slurm shows that a node is reserved
        self.made: dict[str, int] = {}  # reservation -> the call of it
        self.lifts_drains = False  # a pod's record changes now and then, and its drain is gone
        self.mode, self.is_settled = True, True
        self.selector = dict([LABEL])
        self.tolerations = (TOLERATES,)
        self.tells = True  # the operator has an answer of Slurm
        self.is_stuck = False  # the operator does nothing
        self.conflicts = 0
        self.second_writer = 0.0  # chance that another client writes a Node after each read of it
        self.calls = 0
        self.kill_at = -1  # before this call; its effect comes about where `kill_after`
        self.kill_after = False
        self.log: list[str] = []
        for _ in range(4):
            self.step()

    # --- time ---------------------------------------------------------------------------------

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        """Handles one call from outside; the model makes a step before it."""
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
        for one in self.machines.values():
            self._run_jobs(one)
            if self._is_open(one) and self._takes_jobs(one):
                self.shared.append(one.name)

    def _operate(self) -> None:
        for one in self.machines.values():
            self._reconcile(one)

    def _is_open(self, one: Machine) -> bool:
        return FENCE not in one.taints and not one.is_cordoned

    def _reconcile(self, one: Machine) -> None:
        matches = all(one.labels.get(key) == value for key, value in self.selector.items())
        pod = one.pod
        if pod is None:
            tolerated = all(t.key == FENCE.key and self.tolerations for t in one.taints)
            if matches and tolerated and not one.is_cordoned:
                uid = f"u{self.random.randrange(10**9)}"
                one.pod = {"uid": uid, "age": 0, "going": False}
        elif pod["going"]:
            self._end_pod(one)
        elif pod["age"] == 0:
            pod["age"] = 1  # slurmd registers, and the operator writes the new record
            one.base, one.flags, one.reason = "IDLE", set(), ""
            one.comment = f'{{"namespace":"slurm","podName":"b-{pod["uid"]}","node":"{one.name}"}}'
        elif not matches:
            is_drained = "DRAIN" in one.flags and not one.jobs
            if is_drained or self.fails_open:
                pod["going"] = True
            else:
                one.flags.add("DRAIN")
                one.reason = "slurm-operator: Pod is pending termination for scale-in"
        elif not one.reason or one.reason.startswith("slurm-operator:"):
            if one.is_cordoned:
                one.flags.add("DRAIN")
                one.reason = "slurm-operator: Node was cordoned"
            else:
                one.flags.discard("DRAIN")
                one.reason = ""
        elif self.lifts_drains and self.random.random() < 0.03:
            one.flags.discard("DRAIN")
            one.base, one.reason = "IDLE", ""

    def _end_pod(self, one: Machine) -> None:
        """Ends a pod. preStop sets the node down, and Slurm kills its jobs. With slurm-operator 1.1
        it also deletes the node, which Slurm refuses while the node is shown as reserved."""
        one.pod = None
        self.lost += one.jobs
        one.jobs.clear()
        one.base, one.flags = "DOWN", {"NOT_RESPONDING", *(one.flags & {"DRAIN"})}
        one.reason = "slurm-operator: Pod is terminating"
        if self.deletes_nodes and not self.is_seen_reserved(one):
            self.deleted.append(one.name)

    def is_seen_reserved(self, one: Machine) -> bool:
        return any(
            node == one.name and self.calls >= self.made.get(name, 0) + self.delay
            for name, (node, _) in self.reservations.items()
        )

    def _takes_jobs(self, one: Machine) -> bool:
        is_reserved = any(node == one.name for node, _ in self.reservations.values())
        return one.base == "IDLE" and not one.flags and not is_reserved

    def _run_jobs(self, one: Machine) -> None:
        for job in list(one.jobs):
            one.jobs[job] -= 1
            if one.jobs[job] <= 0:
                del one.jobs[job]
                self.ended += 1
        if self._takes_jobs(one) and not one.jobs and self.random.random() < self.job_chance:
            self.jobs += 1
            one.jobs[str(self.jobs)] = self.random.randrange(1, 12)


class SlurmSide:
    """The model as `Slurm`."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _node(self, one: Machine) -> SlurmNode:
        is_reserved = self.world.is_seen_reserved(one)
        base = "ALLOCATED" if one.jobs else one.base
        flags = {"DYNAMIC_NORM", *one.flags} | ({"RESERVED"} if is_reserved else set())
        return SlurmNode(
            name=one.name,
            state=NodeState(base=base, flags=frozenset(flags)),
            cpus_allocated=len(one.jobs),
            memory_allocated=0,
            slurmd_started=BOOTED,
            last_busy=BOOTED,
            reason=one.reason,
            comment=one.comment,
            extra=one.extra,
        )

    def _job(self, job: str, one: Machine) -> SlurmJob:
        return SlurmJob(
            id=job, display_id=job, state="RUNNING", user="u", account="a", partitions=("b",),
            node_count=1, priority=1, start=BOOTED, reservation="", nodes=(one.name,),
            planned_nodes=(),
        )  # fmt: skip

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        return tuple(self._node(one) for one in self.world.machines.values())

    def read_node(self, name: str) -> SlurmNode:
        return self.world.call("read node", lambda: self._node(self.world.machines[name]))

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        return tuple(self._job(j, one) for one in self.world.machines.values() for j in one.jobs)

    def read_jobs_on(self, node: str) -> tuple[SlurmJob, ...]:
        one = self.world.machines[node]
        return self.world.call("read jobs", lambda: tuple(self._job(j, one) for j in one.jobs))

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
            one = self.world.machines[node]
            if name in self.world.reservations:
                raise SlurmRefused("create", "Duplicate reservation name")
            if one.jobs and not flags:
                raise SlurmRefused("create", "Requested nodes are busy")
            self.world.reservations[name] = (node, bool(flags))
            self.world.made[name] = self.world.calls

        self.world.call("reserve", create)

    def delete_reservation(self, name: str) -> None:
        self.world.call("unreserve", lambda: self.world.reservations.pop(name, None))

    def drain(self, node: str, reason: str, marks: Mapping[str, str]) -> None:
        def drain() -> None:
            one = self.world.machines[node]
            one.flags.add("DRAIN")
            one.reason = reason
            self._mark(one, marks)

        self.world.call("drain", drain)

    def _mark(self, one: Machine, marks: Mapping[str, str]) -> None:
        one.extra = marks.get("extra", one.extra)
        one.comment = marks.get("comment", one.comment)

    def resume(self, node: str, marks: Mapping[str, str]) -> None:
        def resume() -> None:
            one = self.world.machines[node]
            one.flags.discard("DRAIN")
            one.reason = ""
            if one.base == "DOWN" and one.pod is not None:
                one.base = "IDLE"
            self._mark(one, marks)

        self.world.call("resume", resume)

    def mark(self, node: str, marks: Mapping[str, str]) -> None:
        self.world.call("mark", lambda: self._mark(self.world.machines[node], marks))


class KubeSide:
    """The model as `KubeSide` and `NodeSetConnection`."""

    def __init__(self, world: World) -> None:
        self.world = world

    @property
    def node_sets(self) -> KubeSide:
        return self

    def read_node(self, name: str) -> Node | None:
        def read() -> Node | None:
            one, world = self.world.machines.get(name), self.world
            if one is None:
                return None
            node = Node(
                name=name, allocatable={}, labels=dict(one.labels), taints=one.taints,
                is_cordoned=one.is_cordoned, mark=one.mark, resource_version=str(one.version),
            )  # fmt: skip
            one.version += bool(world.second_writer and world.random.random() < world.second_writer)
            return node

        return self.world.call("read Node", read)

    def read_pods(self, node: str = "") -> Sequence[SlurmdPod]:
        def read() -> list[SlurmdPod]:
            machines = self.world.machines.values()
            return [self._pod(one) for one in machines if one.pod and node in ("", one.name)]

        return self.world.call("read slurmd", read)

    def _pod(self, one: Machine) -> SlurmdPod:
        assert one.pod is not None
        states = {"Allocated" if one.jobs else one.base.capitalize()}
        states |= {flag.capitalize() for flag in one.flags if flag == "DRAIN"}
        return SlurmdPod(
            namespace="slurm", name=f"b-{one.pod['uid']}", uid=one.pod["uid"], node=one.name,
            hostname=one.name, node_set="b", is_ready=one.pod["age"] > 0,
            is_terminating=one.pod["going"],
            states=frozenset(states) if self.world.tells else frozenset(),
        )  # fmt: skip

    def read_sets(self) -> Sequence[NodeSet]:
        world = self.world
        found = NodeSet(
            namespace="slurm", name="b", is_daemon_set=world.mode, is_deleting=False,
            is_settled=world.is_settled, selector=world.selector, tolerations=world.tolerations,
        )  # fmt: skip
        return world.call("read sets", lambda: [found])

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        def read() -> list[PodOnNode]:
            one = self.world.machines[node]
            pods = [a_tenant(name) for name in one.tenants]
            if one.pod:
                pods.append(msgspec.structs.replace(a_tenant("slurmd"), stays=True))
            return pods

        return self.world.call("read pods", read)

    def set_cordon(self, node: str, cordon: bool) -> None:
        def act() -> None:
            one = self.world.machines[node]
            one.is_cordoned, one.version = cordon, one.version + 1

        self.world.call("cordon" if cordon else "uncordon", act)

    def evict(self, pod: PodOnNode) -> str:
        assert not pod.stays, "a pod of slurmd is never evicted"

        def act() -> str:
            for one in self.world.machines.values():
                if pod.name in one.tenants:
                    one.tenants.remove(pod.name)
            return ""

        return self.world.call("evict", act)

    def delete_node(self, name: str) -> None:
        raise AssertionError("a Node is never deleted")

    def remove_label(self, node: str, key: str, value: str) -> None:
        def act() -> None:
            one = self.world.machines[node]
            if one.labels.get(key) != value:
                raise KubeError("the test of the patch failed")
            del one.labels[key]
            one.version += 1

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
            world, one = self.world, self.world.machines[node.name]
            if str(one.version) != node.resource_version:
                world.conflicts += 1
                raise KubeConflict("the Node has changed meanwhile")
            for key, value in labels.items():
                if value is None:
                    one.labels.pop(key, None)
                else:
                    one.labels[key] = value
            one.taints = tuple(taints)
            one.is_cordoned = one.is_cordoned and not is_uncordoned
            for key, text in annotations.items():
                if text is None:
                    one.annotations.pop(key, None)
                else:
                    one.annotations[key] = text
            one.mark = None if f"{MARK_PREFIX}instance" in annotations else one.mark
            one.version += 1

        self.world.call("change", act)


def a_tenant(name: str) -> PodOnNode:
    return PodOnNode(namespace="dev", name=name, uid=name, stays=False, is_terminating=False)


def changed(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def patience() -> dict[str, timedelta]:
    """Returns settings with which a program waits only for the model's steps."""
    return {"poll_seconds": timedelta(0), "verify_seconds": timedelta(0)}
