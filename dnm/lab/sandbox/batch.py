"""The simulated Slurm: machines with states like Slurm's, and a FIFO of jobs.

A machine is in one place at a time: `batch`, `leaving` (claimed by a converter), `kubernetes`, or
`returning`. Each drain is stored with its owner, so that resuming one leaves the others."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import inf
from typing import Any, Literal

import msgspec

from dnm.lab.sandbox.clock import Clock
from dnm.lab.sandbox.deletion import Violations
from dnm.lab.sandbox.reservations import Reservations, Reserved

OWN_DRAIN = "dnm"
Place = Literal["batch", "leaving", "kubernetes", "returning"]


class MachineType(msgspec.Struct, kw_only=True):
    """A type's capacity, labels and taints. A namespace replaces `{namespace}` in these texts."""

    name: str
    allocatable: dict[str, str]
    capacity: dict[str, str] = {}  # where it is more: what the kubelet keeps back is the rest
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []


class BatchJob(msgspec.Struct, kw_only=True):
    """A batch job, waiting or running."""

    id: int
    nodes: int = 1
    on: list[str] = []  # machines; empty while it waits
    ends_at: float | None = None  # None: until a test ends it
    run_seconds: float | None = None


class CallRecord(msgspec.Struct, kw_only=True):
    """The record of the last conversion of a machine, which `--list` shows as its claim."""

    instance: str
    direction: Literal["k8s", "batch"]
    namespace: str
    request: str
    since: str
    is_open: bool = True


class Machine(msgspec.Struct, kw_only=True):
    """A physical machine: its state in Slurm, and its `place`, e.g. in Kubernetes."""

    name: str
    type: str
    place: Place = "batch"
    drains: dict[str, str] = {}  # owner -> reason
    reserved: str = ""  # reservation that holds it
    partitions: tuple[str, ...] = ("batch",)
    features: tuple[str, ...] = ()
    is_down: bool = False
    idle_since: float = 0.0
    node_name: str = ""  # in Kubernetes, where it differs
    journal: CallRecord | None = None
    claims: int = 0  # counts conversions, so that a late join of an old one is not mistaken


class Batch:
    """The simulated Slurm. Callers hold the store's lock. A node is lent if idle long enough."""

    def __init__(self, clock: Clock, violations: Violations) -> None:
        self.clock = clock
        self.violations = violations
        self.types: dict[str, MachineType] = {}
        self.machines: dict[str, Machine] = {}
        self.jobs: dict[int, BatchJob] = {}
        self.reservations = Reservations()
        self.min_idle_seconds = 0.0
        self._last_job = 1000

    # --- what there is ----------------------------------------------------------------------

    def add_type(self, machine_type: MachineType) -> None:
        self.types[machine_type.name] = machine_type

    def add_machines(self, machine_type: str, names: Sequence[str]) -> None:
        """Adds machines with an idle time that is long enough for lending."""
        since = self.clock.now() - self.min_idle_seconds - 1
        for name in names:
            self.machines[name] = Machine(name=name, type=machine_type, idle_since=since)

    def find(self, name: str) -> Machine | None:
        """Returns the machine with this name in Slurm or in Kubernetes, or None."""
        return self.machines.get(name) or next(
            (m for m in self.machines.values() if m.node_name == name), None
        )

    def jobs_on(self, machine: Machine) -> list[BatchJob]:
        return [job for job in self.jobs.values() if machine.name in job.on]

    def is_in_service(self, machine: Machine) -> bool:
        """Returns whether Slurm has jobs on the machine, or may start jobs on it."""
        if self.jobs_on(machine):
            return True
        is_free = not machine.drains and not machine.reserved and not machine.is_down
        return machine.place == "batch" and is_free

    def state_of(self, machine: Machine) -> str:
        """Returns Slurm's state with its flags, as `sinfo` and `scontrol` print them."""
        if machine.is_down or machine.place in ("kubernetes", "returning"):
            base = "DOWN"
        else:
            base = "ALLOCATED" if self.jobs_on(machine) else "IDLE"
        flags = ["DRAIN"] if machine.drains else []
        now = self.clock.now()
        is_held = machine.reserved or self.reservations.in_force(machine.name, now)
        flags += ["RESERVED"] if is_held else []
        return "+".join([base, *flags])

    def judge(self, machine: Machine, instance: str = "") -> tuple[str, str]:
        """Returns OK or SKIP (it can or can't be lent) and the reason, as `--list` reports them."""
        jobs = self.jobs_on(machine)
        if machine.place != "batch":
            return "SKIP", f"is {_PLACE_WORDS[machine.place]}"
        if machine.drains:
            owner, reason = next(iter(machine.drains.items()))
            return "SKIP", f"drained by {owner}: {reason}"
        if machine.is_down:
            return "SKIP", "state is DOWN"
        if machine.reserved:
            return "SKIP", f"reserved by {machine.reserved}"
        now = self.clock.now()
        if (other := self.reservations.holds_back(machine.name, instance, now)) is not None:
            return "SKIP", f"reservation {other.name}"
        if jobs:
            return "SKIP", f"job {jobs[0].id} is running"
        idle = self.idle_seconds(machine)
        is_reserved = self.reservations.in_force(machine.name, now) is not None
        if idle < self.min_idle_seconds and not is_reserved:
            return "SKIP", f"idle for {idle} s, less than {self.min_idle_seconds:.0f} s"
        return "OK", f"idle for {idle} s"

    def idle_seconds(self, machine: Machine) -> int:
        if machine.place != "batch" or self.jobs_on(machine):
            return 0
        return max(0, int(self.clock.now() - machine.idle_since))

    # --- jobs -------------------------------------------------------------------------------

    def submit(self, nodes: int = 1, *, run_seconds: float | None = None) -> int:
        """Adds a job that waits for machines. Returns its number."""
        self._last_job += 1
        number = self._last_job
        self.jobs[number] = BatchJob(id=number, nodes=nodes, run_seconds=run_seconds)
        return self._last_job

    def start_job(self, names: Sequence[str], *, run_seconds: float | None = None) -> int:
        """Starts a job at once on these machines, even if they are busy. Returns its number."""
        number = self.submit(len(names), run_seconds=run_seconds)
        self._run(self.jobs[number], [self.machines[name] for name in names])
        return number

    def finish_job(self, number: int) -> None:
        job = self.jobs.pop(number)
        for name in job.on:
            self.machines[name].idle_since = self.clock.now()

    def step(self) -> None:
        """Ends jobs at the end of their time. Starts waiting jobs in the order of submission."""
        now = self.clock.now()
        self.reservations.purge(now)
        for job in list(self.jobs.values()):
            if job.on and job.ends_at is not None and job.ends_at <= now:
                self.finish_job(job.id)
        for job in list(self.jobs.values()):
            if not job.on:
                until = inf if job.run_seconds is None else self.clock.after(job.run_seconds)
                free = [
                    m for m in self.machines.values()
                    if self.is_in_service(m) and not self.jobs_on(m)
                    and self.reservations.may_start(m.name, until)
                ][: job.nodes]  # fmt: skip
                if len(free) < job.nodes:
                    break
                self._run(job, free)

    def _run(self, job: BatchJob, machines: Sequence[Machine]) -> None:
        job.on = [machine.name for machine in machines]
        if job.run_seconds is not None:
            job.ends_at = self.clock.after(job.run_seconds)

    def kill_jobs(self, machine: Machine, why: str) -> None:
        """Power-cycles a machine. Each job on it ends and is recorded as a violation."""
        for job in self.jobs_on(machine):
            self.violations.note("job-killed", machine.name, f"job {job.id} ran on it: {why}")
            del self.jobs[job.id]

    # --- reservations -----------------------------------------------------------------------

    def reserve(self, name: str, node: str, span: tuple[float, float], instance: str = "") -> str:
        """Reserves a machine for this span. Returns Slurm's refusal, or an empty text. Slurm
        refuses if a converter has the machine, or if a job may still run when the span begins."""
        machine = self.machines[node]
        new = Reserved(name=name, node=node, begins=span[0], ends=span[1], instance=instance)
        if machine.reserved:
            return "Requested reservation overlaps with another reservation"
        ends = [inf if job.ends_at is None else job.ends_at for job in self.jobs_on(machine)]
        return self.reservations.create(new, self.clock.now(), max(ends, default=0.0))

    def reserve_for(
        self, name: str, of_type: str, count: int, span: tuple[float, float],
        instance: str, left_out: Container[str] = (),
    ) -> list[str]:  # fmt: skip
        """Reserves machines of a type and returns their names. First moves later reservations of
        this name to this span of time. If Slurm refuses to move one, it stays as it is."""
        machines = [
            machine
            for machine in self.machines.values()
            if machine.type == of_type and machine.name not in left_out
            and self.is_in_service(machine)
        ]  # fmt: skip
        reserved: list[str] = []
        of_name = self.reservations.by_name
        late = {
            m.name: entry for m in machines
            if (entry := of_name.get(f"{name}-{m.name}")) and entry.begins > span[0] + 300
        }  # fmt: skip
        for machine in sorted(
            machines, key=lambda m: (m.name not in late, bool(self.jobs_on(m)), m.name)
        ):
            if len(reserved) == count:
                break
            before = of_name.pop(f"{name}-{machine.name}") if machine.name in late else None
            if not self.reserve(f"{name}-{machine.name}", machine.name, span, instance):
                reserved.append(machine.name)
            elif before is not None:
                of_name[before.name] = before
        return reserved

    def unreserve(self, name: str, instance: str, left_out: Container[str] = ()) -> list[str]:
        """Deletes all reservations with this name. Records a violation for another instance's."""
        abandoned = list(self.reservations.delete_by_name(name, left_out))
        for resv in abandoned:
            if resv.instance != instance:
                self.violations.note("reservation-taken", resv.node, f"{resv.name}, by {instance}")
        return [item.node for item in abandoned]

    # --- administrators ---------------------------------------------------------------------

    def drain(self, name: str, reason: str, owner: str = "root") -> None:
        self.machines[name].drains = {**self.machines[name].drains, owner: reason}

    def resume(self, name: str, owner: str = "root") -> None:
        machine = self.machines[name]
        machine.drains = {holder: why for holder, why in machine.drains.items() if holder != owner}
        machine.idle_since = self.clock.now()

    def set_down(self, name: str, is_down: bool = True) -> None:
        self.machines[name].is_down = is_down

    # --- conversion -------------------------------------------------------------------------

    def candidates(self, machine_type: str, instance: str = "") -> list[Machine]:
        """Returns the machines that can be lent: first those reserved for an event that has begun,
        then those with the longest idle time."""
        now = self.clock.now()
        machines = [
            machine
            for machine in self.machines.values()
            if machine.type == machine_type and self.judge(machine, instance)[0] == "OK"
        ]
        return sorted(
            machines,
            key=lambda m: (
                self.reservations.in_force(m.name, now) is None, m.idle_since, m.name,
            ),
        )  # fmt: skip

    def claim(self, machine: Machine, reservation: str, reason: str) -> None:
        """Drains and reserves a machine for a converter."""
        machine.place = "leaving"
        machine.reserved = reservation
        machine.drains = {**machine.drains, OWN_DRAIN: reason}
        machine.claims += 1

    def release(self, machine: Machine) -> None:
        """Returns a machine to service; an administrator's drain stays."""
        machine.place = "batch"
        machine.reserved = ""
        machine.node_name = ""
        machine.journal = None
        machine.is_down = False
        machine.idle_since = self.clock.now()
        machine.drains = {by: why for by, why in machine.drains.items() if by != OWN_DRAIN}
        machine.claims += 1

    # --- keeping ----------------------------------------------------------------------------

    def dump(self) -> Mapping[str, Any]:
        return {
            "types": list(self.types.values()), "machines": list(self.machines.values()),
            "jobs": list(self.jobs.values()), "min_idle_seconds": self.min_idle_seconds,
            "last_job": self._last_job, "reservations": list(self.reservations.by_name.values()),
        }  # fmt: skip

    def load(self, document: Mapping[str, Any]) -> None:
        types = msgspec.convert(document["types"], list[MachineType])
        machines = msgspec.convert(document["machines"], list[Machine])
        self.types = {entry.name: entry for entry in types}
        self.machines = {machine.name: machine for machine in machines}
        self.jobs = {job.id: job for job in msgspec.convert(document["jobs"], list[BatchJob])}
        self.min_idle_seconds = document["min_idle_seconds"]
        self._last_job = document["last_job"]
        reservations = msgspec.convert(document["reservations"], list[Reserved])
        self.reservations.by_name = {reservation.name: reservation for reservation in reservations}


_PLACE_WORDS = {
    "leaving": "being converted",
    "kubernetes": "a Kubernetes node",
    "returning": "being returned",
}
