"""The clients of a run in the model: for the cluster's API and for the site's converter.

They have the interfaces of the real clients and return the same values and errors. `Weather` holds
the faults of one run. Every effect of dnm passes here, where the model compares it with dnm's files
on disk at that moment."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from dnm.host.fault_points import fault_point
from dnm.model.batch import BatchClaim, BatchList, BatchNode, WaitingJobs
from dnm.model.cluster import ConfigMap, KubeEvent, PodOnNode, Reading
from dnm.model.config import Config
from dnm.model.errors import ConverterError, DnmError, KubeConflict, KubeError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.kubelet import Amounts
from dnm.model.lease import Lease
from dnm.model.lent import Ended, Phase
from dnm.model.lent_state import ConverterProcess, Moving
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.pod import Claim, DaemonSet, Pod, PodList
from dnm.model.registry import Registry
from dnm.model.stored_registry import StoredRegistry
from dnm.model.value import Unreadable
from dnm.queues.yunikorn.ledger import decode_ledger
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from dnm.run.kube_state import pack, unpack
from dnm.run.state import previous_path
from tests.fakes import ConverterFake, KubeFake, StateFake
from tests.proof.invariants import over_cap
from tests.proof.world import Held, Kept, Machine, World

PREFIX = "dynamic-node-manager/"
CONVERT_SECONDS = 60.0
NUMBERS = re.compile(r"\d+[a-zA-Z]*")

CALL_FAULTS = ("500", "429", "403", "no answer", "409", "answer lost", "late", "unknown")
LENDING = (
    "good", "short", "nothing", "lies: failed", "lies: done", "late", "too late",
    "too late, unnamed", "silent", "renamed", "renamed and said", "misnamed", "chatty", "stuck",
    "dies", "hangs", "hangs half done", "unready", "rolls back",
)  # fmt: skip
GOES = (Phase.RELEASING, Phase.RETURNING, Phase.MOVING)
RETURNING = ("good", "fails", "half", "lies: done", "late", "hangs")


class Killed(BaseException):
    """The exception that ends dnm as SIGKILL would. Nothing in dnm may catch it."""


class Weather:
    """The faults of one run. `faults` are by the number of a call of API or converter, `strikes` by
    that of a fault point (kill, restart, full, io). `failed` has what dnm could not read."""

    def __init__(
        self,
        faults: Mapping[int, str] = {},
        strikes: Mapping[int, str] = {},
        meanwhile: Callable[[str], None] = lambda subject: None,
        is_stopped_at: int | None = None,
    ) -> None:
        self.faults, self.strikes, self.meanwhile = faults, strikes, meanwhile
        self.calls = self.passes = 0
        self.is_stopped_at = is_stopped_at
        self.failed: set[str] = set()
        self.effects: list[str] = []

    def strike(self, point: str, when: str) -> None:
        """Injects the fault for this fault point, if any; dnm calls it at every fault point."""
        text = self.strikes.get(self.passes)
        self.passes += 1
        if text == "kill":
            raise Killed
        if text == "restart":
            self.meanwhile("restart")
            raise Killed
        if text and when == "before":
            self.failed.add("")
            number = {"full": 28, "io": 5}[text]
            raise OSError(number, {"full": "No space left on device", "io": "I/O error"}[text])

    def should_stop(self) -> bool:
        return self.is_stopped_at is not None and self.calls >= self.is_stopped_at

    def next_fault(self) -> str:
        fault = self.faults.get(self.calls, "")
        self.calls += 1
        if fault.startswith("meanwhile "):
            self.meanwhile(fault.removeprefix("meanwhile "))
            return ""
        return fault


class RunsDnm(Protocol):
    """The part of a host that the classes of this file use."""

    config: Config
    outputs: dict[str, Operation]  # the output that converters wrote on it

    def registry(self) -> Registry: ...
    def now(self) -> datetime: ...


def _document(config_map: ConfigMap) -> tuple[Mapping[str, str], str]:
    """Returns what dnm writes in YuniKorn's ConfigMap: the queue document and its ledger."""
    return config_map.data, config_map.annotations.get(LEDGER_ANNOTATION, "")


def as_read(node: Node) -> Node:
    """Returns the Node as dnm reads it, with conditions only if the Node has dnm's mark."""
    if node.mark is None:
        return node
    return msgspec.structs.replace(node, conditions={"Ready": str(node.is_ready)})


class ModelKube(KubeFake):
    """The Kubernetes client of one run on a host, which reads and changes the model."""

    def __init__(self, world: World, host: RunsDnm, weather: Weather) -> None:
        self.world, self.host, self.weather = world, host, weather
        self.instance = host.config.instance_id
        self.used: Mapping[str, Mapping[str, int]] = {}  # as this run has read it

    def keep(self) -> Reading:
        return Reading()

    @contextmanager
    def _call(self, point: str, fact: str = "", is_write: bool = False) -> Iterator[None]:
        """Wraps one API call with its fault; `fact` is what dnm does not know if it fails."""
        fault = self.weather.next_fault()
        if fault == "late":
            self.world.advance(20)
        elif fault == "409" and is_write:
            raise KubeConflict(f"{point}: another client wrote in between")
        elif fault and fault not in ("answer lost", "unknown"):
            self.weather.failed.add(fact)
            raise KubeError(f"{point}: {fault}")
        try:
            with fault_point(point):
                yield
        except OSError as error:
            self.weather.failed.add(fact)
            raise KubeError(f"{point}: {error}") from error
        if fault == "answer lost":
            self.weather.failed.add(fact)
            raise KubeError(f"{point}: the result is unknown")

    # --- reads --------------------------------------------------------------------------------

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        try:
            with self._call("kube.list_nodes", "nodes"):
                return tuple(map(as_read, self.world.nodes.values()))
        except KubeError as error:
            return Unreadable(subject="nodes", error=str(error))

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        try:
            with self._call("kube.list_pods", "pods"):
                self.used = self.world.used()
                return PodList(pods=tuple(self.world.pods.values()))
        except KubeError as error:
            if "403" not in str(error):
                return Unreadable(subject="pods", error=str(error))
            self.weather.failed.remove("pods")
            self.weather.failed.add("all pods")
        seen = tuple(pod for pod in self.world.pods.values() if pod.namespace in namespaces)
        return PodList(pods=seen, cluster_wide=False)

    def read_zones(self) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
        return {}

    def read_claims(self, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
        return ()

    def read_daemon_sets(self) -> tuple[DaemonSet, ...] | Unreadable:
        return ()  # no pod of this world claims to belong to a DaemonSet

    def read_node(self, name: str) -> Node | None:
        with self._call("kube.read_node"):
            return self.world.nodes.get(name)

    def read_pods_on(self, node: str) -> tuple[Pod, ...]:
        with self._call("kube.list_pods"):
            return tuple(pod for pod in self.world.pods.values() if pod.node == node)

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        return [
            PodOnNode(namespace=pod.namespace, name=pod.name, uid=pod.uid, stays=False,
                      is_terminating=pod.is_terminating)
            for pod in self.read_pods_on(node)
        ]  # fmt: skip

    def evict(self, pod: Pod | PodOnNode, *, is_dry_run: bool = False) -> str:
        """Evicts the pod, which ends within half a minute and is created again."""
        with self._call("kube.evict", is_write=True):
            there = self.world.pods.get(pod.name)
            if there is None:
                return ""
            self._judge_eviction(there)
            if self.world.budget < 1:
                return "its disruption budget does not allow it now"
            self.world.evict(pod.name)
            self.weather.effects.append(f"evict {pod.name}")
            return ""

    def _judge_eviction(self, pod: Pod) -> None:
        """Checks that an administrator requested the eviction, behind this instance's fence."""
        entry = self.host.registry().nodes.get(pod.node)
        if entry is None or entry.eviction is None or entry.eviction.since > self.host.now():
            self.world.broken.append(f"{pod.name} was evicted without a request")
        if self.world.fences.get(pod.node) != self.instance:
            self.world.broken.append(f"{pod.name} was evicted from {pod.node}, which has no fence")
        if self.weather.failed & {"nodes", "pods", "all pods"}:
            self.world.broken.append(f"{pod.name} was evicted although some pods could not be read")

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        with self._call("kube.read_config_map"):
            config_map = self.world.config_map
            if config_map is None or config_map.name != name:
                return None
            return config_map

    # --- writes -------------------------------------------------------------------------------

    def write_config_map(self, config_map: ConfigMap, *, dry_run: bool = False) -> ConfigMap:
        world = self.world
        with self._call("kube.write_config_map", is_write=True):
            before = world.config_map
            if before is None or before.resource_version != config_map.resource_version:
                raise KubeConflict("another client wrote in between")
            self._judge_write(before, config_map)
            world.used_at_write = self.used or world.used()
            world.put_config_map(config_map.data, config_map.annotations)
            # A run that only claims the ledger has not written the document yet, and may end first.
            if _document(config_map) != _document(before):
                world.admin_wrote = False
            world.schedule()
            self.weather.effects.append("write")
            assert world.config_map is not None
            return world.config_map

    def _judge_write(self, before: ConfigMap, after: ConfigMap) -> None:
        broken = self.world.broken
        old, new = (m.data.get("queues.yaml", "") for m in (before, after))
        if NUMBERS.sub("#", old) != NUMBERS.sub("#", new):
            broken.append("the queue document changed in more than its numbers")
        if self.weather.failed & {"nodes", "pods"} and old != new:
            broken.append("limits changed although nodes or pods could not be read")
        with suppress(DnmError):
            sections = [
                {
                    instance: section
                    for instance, section in decode_ledger(
                        m.annotations.get(LEDGER_ANNOTATION, "")
                    ).sections.items()
                    if instance != self.instance
                }
                for m in (before, after)
            ]
            if sections[0] != sections[1]:
                broken.append(f"{self.instance} changed another instance's part of the ledger")

    def lease_object(self, namespace: str, name: str) -> ModelState:
        return ModelState(self, "", f"{namespace}/{name}")

    def state_objects(self, namespace: str, lease_namespace: str, name: str) -> ModelState:
        return ModelState(self, f"{namespace}/{name}", f"{lease_namespace}/{name}")

    def create_event(self, event: KubeEvent) -> None:
        with self._call("kube.create_event", "events"):
            self.world.kube_events.append(event)

    def patch_node(
        self,
        name: str,
        *,
        resource_version: str | None = None,
        cordon: bool | None = None,
        annotations: Mapping[str, str | None] = {},
        labels: Mapping[str, str | None] = {},
        taints: Sequence[Taint] | None = None,
    ) -> None:
        world = self.world
        with self._call("kube.patch_node", is_write=True):
            node = world.nodes.get(name)
            if node is None:
                raise KubeError(f"node {name} does not exist (404)")
            if resource_version is not None and node.resource_version != resource_version:
                raise KubeConflict("another client wrote in between")
            self._judge_patch(node, cordon)
            if labels:
                self._judge_dress(node, labels, taints or ())
            changes: dict[str, Any] = {"mark": patched(node.mark, annotations)}
            if cordon is not None:
                changes["is_cordoned"] = cordon
                if cordon:
                    world.fences[name] = self.instance
                else:
                    world.fences.pop(name, None)
            if labels:
                kept = {**node.labels, **labels}
                changes["labels"] = {key: text for key, text in kept.items() if text is not None}
                changes["taints"] = tuple(taints or ())
            world.change_node(name, **changes)
            word = {None: "mark", True: "fence", False: "unfence"}[cordon]
            word = "dress" if labels else word
            self.weather.effects.append(f"{word} {name}")
            world.schedule()

    def _judge_patch(self, node: Node, cordon: bool | None) -> None:
        broken = self.world.broken
        if node.mark is not None and node.mark.instance not in ("", self.instance):
            broken.append(f"{self.instance} wrote over {node.mark.instance}'s mark on {node.name}")
        is_lifted = cordon is False and node.is_cordoned
        if is_lifted and self.world.fences.get(node.name) != self.instance:
            broken.append(f"{self.instance} removed another's cordon of {node.name}")
        if cordon and node.is_cordoned:
            broken.append(f"{self.instance} took over another's cordon of {node.name}")
        if cordon:
            entry = self.host.registry().nodes.get(node.name)
            returned = entry and (entry.leaves or entry.phase in GOES)
            if not returned:
                broken.append(f"{node.name} was fenced before the registry recorded it")

    def _judge_dress(
        self, node: Node, labels: Mapping[str, str | None], taints: Sequence[Taint]
    ) -> None:
        """Checks a change of labels and taints: only for a moving node, and both at once. Before it
        gets those of the new namespace, the node must be fenced, empty and in no limit."""
        broken, entry = self.world.broken, self.host.registry().nodes.get(node.name)
        if entry is None or not isinstance(entry.state, Moving):
            broken.append(f"{node.name} was relabelled before the registry recorded it")
            return
        owner, other = entry.heads_for, {entry.namespace, entry.state.to} - {entry.heads_for}
        if labels != {owner: "true", **dict.fromkeys(other)} or len(taints) != 1:
            broken.append(f"{node.name} has only some of the labels and taints: {labels} {taints}")
        if owner == entry.namespace:
            return
        if self.world.fences.get(node.name) != self.instance:
            broken.append(f"{node.name} was relabelled without a fence")
        if any(pod.node == node.name for pod in self.world.pods.values()):
            broken.append(f"{node.name} was relabelled with pods on it")
        config_map = self.world.config_map
        ledger = config_map.annotations.get(LEDGER_ANNOTATION, "") if config_map else ""
        if f'"{node.name}"' in ledger and not self.world.admin_wrote:
            broken.append(f"{node.name} was relabelled while a queue counts it")


class ModelState(StateFake):
    """The Secret and the Lease of an instance. The registry is in the usual file instead of the
    Secret, so that faults, restores and checks find it at the same path."""

    def __init__(self, kube: ModelKube, secret_name: str, lease_name: str) -> None:
        self.secret_name, self.lease_name = secret_name, lease_name
        self.kube, self.path = kube, kube.host.config.converted_nodes_path
        self.kept = kube.world.states.setdefault(kube.instance, Kept())

    def read_registry(self) -> StoredRegistry | None:
        with self.kube._call("kube.read_state", "registry"):
            return self._read_stored()

    def _read_stored(self) -> StoredRegistry | None:
        if not self.path.exists():
            return StoredRegistry(version="0") if self.kept.number == 0 else None
        content = self.path.read_bytes()
        version = f"{self.kept.version}.{zlib.crc32(content)}"
        return StoredRegistry(
            version=version, number=self.kept.number, data=pack(content, "registry.json")
        )

    def write_registry(self, stored: StoredRegistry) -> StoredRegistry:
        with self.kube._call("kube.write_state", is_write=True):
            before = self._read_stored()
            if (before.version if before else "") != stored.version:
                raise KubeConflict("another client wrote in between")
            if stored.number < self.kept.number:
                self.kube.world.broken.append("the registry was written with an old number")
            if self.path.exists():
                os.replace(self.path, previous_path(self.path))
            self.path.write_bytes(unpack(stored.data, "registry.json"))
            self.kept.number, self.kept.version = stored.number, self.kube.world.number()
            stored_registry = self._read_stored()
            assert stored_registry is not None
            return msgspec.structs.replace(stored_registry, data=stored.data)

    def read_lease(self) -> Lease:
        with self.kube._call("kube.read_lease", "lease"):
            return msgspec.structs.replace(self.kept.lease, read_at=self.kube.world.now)

    def write_lease(self, lease: Lease, *, is_dry_run: bool = False) -> Lease:
        assert not is_dry_run
        with self.kube._call("kube.write_lease", is_write=True):
            if lease.version != self.kept.lease.version:
                raise KubeConflict("another client wrote in between")
            version = str(self.kube.world.number())
            now = self.kube.world.now
            self.kept.lease = msgspec.structs.replace(lease, version=version, read_at=now)
            return self.kept.lease


def patched(mark: Mark | None, annotations: Mapping[str, str | None]) -> Mark | None:
    """Returns dnm's mark of a Node after a change of these annotations."""
    fields: dict[str, Any] = msgspec.structs.asdict(mark) if mark else {}
    for key, value in annotations.items():
        field = key.removeprefix(PREFIX).replace("-", "_")
        fields[field] = value == "true" if field == "fenced" else value
    missing = dict.fromkeys(("instance", "node_type", "namespace", "queue"), "")
    return Mark(**{**missing, **fields}) if fields else None


# --- the converter ----------------------------------------------------------------------------


class Operation:
    """A call of the converter: its process, its machines and its output."""

    def __init__(self, world: World, behaviour: str, machines: Sequence[Machine]) -> None:
        self.world, self.behaviour, self.machines = world, behaviour, machines
        self.pid = world.number()
        self.lines: list[str] = []
        self.exit_code: int | None = None
        self.timed_out = False
        self.claims: list[Held] = []
        world.processes[self.pid] = self

    @property
    def has_ended(self) -> bool:
        return self.pid not in self.world.processes

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the lines of the converter's output that can be node names."""
        return tuple(dict.fromkeys(line for line in self.lines if " " not in line))

    @property
    def ended(self) -> Ended:
        return Ended(
            exit_code=self.exit_code,
            names=self.names,
            last_lines=tuple(self.lines[-5:]),
            timed_out=self.timed_out,
        )

    def end(self, exit_code: int | None, *lines: str) -> None:
        if self.has_ended:
            return
        del self.world.processes[self.pid]
        self.exit_code = exit_code
        self.lines += lines

    def kill(self) -> None:
        """Plays SIGTERM and SIGKILL: the conversion stays half done, or is rolled back."""
        if self.has_ended:
            return
        self.timed_out = True
        self.end(None)
        for machine in self.machines:
            if machine.place == "leaving" and self.behaviour == "hangs":
                self.world.return_nodes(machine)
            elif machine.place == "leaving":
                self.world.lose(machine)

    def vanish(self) -> None:
        """Plays a restart of the host: no more output, and the conversion stays half done."""
        if self.has_ended:
            return
        del self.world.processes[self.pid]
        for machine in self.machines:
            if machine.place == "leaving":
                self.world.lose(machine)


class ModelConverter(ConverterFake):
    """The site's converter as one run on a host uses it. `behaviour(direction)` chooses how the
    next call behaves, such as `hangs`."""

    def __init__(
        self, world: World, host: RunsDnm, weather: Weather, behaviour: Callable[[str], str]
    ) -> None:
        self.world, self.host, self.weather, self.behaviour = world, host, weather, behaviour
        self.instance, self.outputs = host.config.instance_id, host.outputs
        self.calls: dict[str, Operation] = {}  # type: ignore[assignment]  # in no process

    def list_nodes(self, node: str = "") -> BatchList | Unreadable:
        fault = self.weather.next_fault()
        try:
            with fault_point("converter.list"):
                if fault not in ("", "late", "unknown"):
                    raise OSError(5, fault)
        except OSError as error:
            self.weather.failed.add("batch")
            return Unreadable(subject="--list", error=str(error))
        nodes = {
            machine.name: self._row(machine, is_known=fault != "unknown")
            for machine in self.world.machines.values()
            if node in ("", machine.name)
        }
        return BatchList(
            nodes=nodes,
            waiting=self._waiting() if self.world.reports_claims else None,
            leaves_out=True,
        )

    def _row(self, machine: Machine, is_known: bool) -> BatchNode:
        row = BatchNode(
            name=machine.name,
            state=self.world.batch.state_of(machine),
            verdict=self.world.batch.judge(machine, self.instance)[0],
            in_service=self.world.batch.is_in_service(machine) if is_known else None,
        )
        if self.world.reports_claims:
            row = msgspec.structs.replace(row, claim=claim_of(machine), reports_claim=True)
        return row

    def _waiting(self) -> tuple[WaitingJobs, ...]:
        """Returns the waiting jobs of the model and of a fault, as the converter counts them."""
        jobs = len(self.world.batch.waiting) + self.world.injected_jobs
        types = sorted({machine.type for machine in self.world.machines.values()})
        return tuple(
            WaitingJobs(partition="batch", node_type=node_type, jobs=jobs, nodes=jobs)
            for node_type in types
            if jobs
        )

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        return frozenset(p for p in processes if p.pid in self.world.processes)

    def start(
        self, key: str, command: Sequence[str], until: float | None = None
    ) -> ConverterProcess:
        options = dict(zip(command[1::2], command[2::2], strict=True))
        try:
            with fault_point("converter.start"):
                if options["--set"] == "k8s":
                    self._keeps_floor(options)
                    operation = self._lend(key, options)
                else:
                    operation = self._return(options["--node-name"])
                self.outputs[key] = operation
        except OSError as error:
            raise ConverterError(f"it can't be started: {error}") from error
        self.calls[key] = operation
        return ConverterProcess(pid=operation.pid, start_ticks=1)

    def _keeps_floor(self, options: Mapping[str, str]) -> None:
        """Checks that enough nodes stay in Slurm (`batch_floor`) if all requested nodes join."""
        floor = self.host.config.batch_floor
        if floor is None or "--num-nodes" not in options:
            return
        node_type = options["--node-type"]
        alike = [machine for machine in self.world.machines.values() if machine.type == node_type]
        left = sum(map(self.world.batch.is_in_service, alike)) - int(options["--num-nodes"])
        if left < floor.of(len(alike)):
            self.world.broken.append(f"{left} of type {node_type} are left to Slurm")

    def end(self, process: ConverterProcess) -> bool:
        with suppress(OSError), fault_point("converter.signal"):
            self.world.processes[process.pid].kill()
            self.weather.effects.append("end converter")
        return process.pid not in self.world.processes

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        late = self.world.now + self.host.config.convert_timeout
        half = self.host.config.check_interval.total_seconds() / 2
        leave = self.world.now + timedelta(seconds=self.world.patience or half)
        ended: dict[str, Ended] = {}
        for key, call in self.calls.items():
            while not call.has_ended and self.world.now < min(late, leave) and not should_leave():
                self.world.advance(10)
            left_running = not call.has_ended and self.world.now < late
            if not left_running:
                call.kill()
            for line in call.lines:
                on_line(key, line)
            with suppress(OSError), fault_point("converter.end"):
                pass
            ended[key] = msgspec.structs.replace(call.ended, left_running=left_running)
        return ended

    def read_earlier_output(self, on_line: Callable[[str, str], None]) -> None:
        for key, call in self.outputs.items():
            with suppress(OSError), fault_point("converter.heard"):
                for line in call.lines:
                    on_line(key, line)

    def find(self, key: str) -> ConverterProcess | None:
        with suppress(OSError), fault_point("converter.read_output"):
            operation = self.outputs.get(key)
            return ConverterProcess(pid=operation.pid, start_ticks=1) if operation else None
        return None

    def read_end(self, key: str) -> Ended:
        with suppress(OSError), fault_point("converter.read_output"):
            return self.outputs[key].ended if key in self.outputs else Ended()
        return Ended()

    def forget_output(self, kept: Container[str]) -> None:
        for key in [key for key in self.outputs if key not in kept]:
            with suppress(OSError), fault_point("converter.forget_output"):
                del self.outputs[key]

    # --- --set k8s ----------------------------------------------------------------------------

    def _claim(self, operation: Operation, request: str, direction: str, namespace: str) -> None:
        for machine in operation.machines:
            machine.claim = Held(
                instance=self.instance, direction=direction, namespace=namespace,
                request=request, operation=operation,
            )  # fmt: skip
            operation.claims.append(machine.claim)

    def _resume(self, request: str, name: str, namespace: str) -> Operation:
        """Plays a call that resumes an interrupted lend, if its claim still exists."""
        machine = self.world.machines[name]
        self._judge_lending(machine.type, namespace, 1)
        self.weather.effects.append(f"resume {name} {namespace}")
        claim, behaviour = machine.claim, self.behaviour("k8s")
        is_there = (
            claim is not None
            and claim.is_open
            and claim.operation.has_ended
            and (claim.instance, claim.namespace) == (self.instance, namespace)
            and claim.direction == "k8s"
        )
        if claim is not None and not claim.operation.has_ended:
            self.world.broken.append(f"{name} was resumed while a converter worked on it")
        machines = [machine] if is_there and not behaviour.startswith("renamed") else []
        operation = Operation(self.world, behaviour, machines)
        self._claim(operation, request, "k8s", namespace)
        if not behaviour.startswith("hangs"):
            how = (namespace, 1, [name])
            self.world.later(CONVERT_SECONDS, lambda: _end_lending(operation, *how))
        return operation

    def _lend(self, request: str, options: Mapping[str, str]) -> Operation:
        if "--node-name" in options:
            return self._resume(request, options["--node-name"], options["--namespace"])
        node_type, namespace = options["--node-type"], options["--namespace"]
        asked = int(options["--num-nodes"])
        self._judge_lending(node_type, namespace, asked)
        self.weather.effects.append(f"convert {asked} {node_type} {namespace}")
        behaviour = self.behaviour("k8s")
        wanted = {"nothing": 0, "lies: done": 0, "short": asked - 1}.get(behaviour, asked)
        left_out = expand_hostlist(options.get("--exclude", ""))
        self._judge_left_out(node_type, left_out)
        free = [
            m
            for m in self.world.machines.values()
            if m.type == node_type and m.name not in left_out
            if self.world.batch.judge(m, self.instance)[0] == "OK"
        ]
        machines = free[:wanted]
        for machine in machines:
            self.world.take(machine)
        operation = Operation(self.world, behaviour, machines)
        self._claim(operation, request, "k8s", namespace)
        if not behaviour.startswith("hangs"):
            pretended = [m.name for m in free[:asked]]
            self.world.later(
                CONVERT_SECONDS, lambda: _end_lending(operation, namespace, asked, pretended)
            )
        return operation

    def _judge_left_out(self, node_type: str, left_out: Sequence[str]) -> None:
        """Checks that dnm's call of the converter excludes all nodes that it must."""
        registry, now = self.host.registry(), self.host.now()
        kept = [name for name, hold in registry.holds.items() if hold.is_in_force(now)]
        kept += [name for name, keeping in registry.excluded.items() if keeping.is_in_force(now)]
        for name in kept:
            if self.world.machines[name].type == node_type and name not in left_out:
                self.world.broken.append(f"dnm did not exclude {name} for the converter")

    def _judge_lending(self, node_type: str, namespace: str, asked: int) -> None:
        broken, registry = self.world.broken, self.host.registry()
        broken += [
            f"a conversion was started: {text}"
            for text in over_cap(self.host.config, registry, self.world)
        ]
        requests = [
            r
            for r in registry.requests
            if (r.node_type, r.namespace, r.count) == (node_type, namespace, asked)
        ]
        if not requests:
            broken.append("a conversion was started before the registry recorded it")
        if self.weather.failed & {"nodes", "pods", "batch"}:
            broken.append("a conversion was started although a fact could not be read")
        if registry.pause is not None:
            broken.append("a conversion was started although dnm is paused")

    # --- --set batch --------------------------------------------------------------------------

    def _return(self, name: str) -> Operation:
        world = self.world
        machine = world.machine_of(name)
        self._judge_return(name, machine)
        self.weather.effects.append(f"return {name}")
        behaviour = self.behaviour("batch")
        operation = Operation(world, behaviour, [machine] if machine else [])
        if machine is None or behaviour in ("fails", "lies: done"):
            code = 0 if behaviour == "lies: done" else 1
            world.later(CONVERT_SECONDS, lambda: operation.end(code))
            return operation
        if behaviour != "hangs":
            machine.place = "returning"
            self._claim(operation, "", "batch", machine.claim.namespace if machine.claim else "")
            world.remove_node(machine.node_name or name, f"--set batch by {self.instance}")
            world.later(CONVERT_SECONDS, lambda: _end_return(operation))
        return operation

    def _judge_return(self, name: str, machine: Machine | None) -> None:
        broken, entry = self.world.broken, self.host.registry().nodes.get(name)
        if entry is None or entry.phase is not Phase.RETURNING:
            broken.append(f"{name} was returned before the registry recorded it")
        if machine is None:
            if name in self.world.nodes:
                broken.append(f"{name} was returned to Slurm, which does not have it")
            return
        if self.world.batch.is_in_service(machine):
            broken.append(f"{name} was returned while Slurm has it in service")
        node = self.world.nodes.get(name)
        if node is not None and node.mark and node.mark.instance != self.instance:
            broken.append(f"{self.instance} returned {name}, which {node.mark.instance} marked")
        if name in self.world.nodes and self.world.fences.get(name) != self.instance:
            broken.append(f"{name} was returned without {self.instance}'s fence")
        if name in self.world.nodes and self.weather.failed & {"pods", "all pods"}:
            broken.append(f"{name} was returned although some pods could not be read")


def claim_of(machine: Machine) -> BatchClaim | None:
    """Returns the claim of a machine in the converter's list, which omits renamed nodes."""
    claim = machine.claim
    is_renamed = machine.node_name not in ("", machine.name)
    if claim is None or machine.place == "batch":
        return None
    if is_renamed and claim.operation.behaviour == "renamed and said":
        return None
    return BatchClaim(
        instance=claim.instance,
        direction=claim.direction if claim.is_open else "",
        namespace=claim.namespace,
        node_type=machine.type,
        request=claim.request,
        is_at_work=claim.is_open and not claim.operation.has_ended,
    )


def _end_lending(
    operation: Operation, namespace: str, asked: int, pretended: Sequence[str]
) -> None:
    """Ends a call that lends, in its chosen behaviour. A killed converter does nothing more."""
    world, behaviour = operation.world, operation.behaviour
    if operation.has_ended:
        return
    names = [machine.name for machine in operation.machines]
    late = {"late": 200.0, "too late": 600.0, "too late, unnamed": 600.0}.get(behaviour, 0.0)
    for machine in operation.machines:
        if behaviour == "rolls back":
            world.return_nodes(machine)
        elif behaviour not in ("stuck", "dies"):
            _join_later(world, machine, (namespace, behaviour), late)
    for claim in operation.claims:
        claim.is_open = behaviour == "dies"
    if behaviour in ("dies", "too late, unnamed"):
        for machine in operation.machines:
            world.lose(machine)
    match behaviour:
        case "nothing" | "lies: failed" | "dies" | "too late, unnamed":
            operation.end(1, "the conversion failed")
        case "rolls back":
            operation.end(1, *names)
        case "lies: done":
            operation.end(0, *pretended)
        case "renamed and said":
            operation.end(0, *(f"{name}-x" for name in names))
        case "misnamed":
            operation.end(0, "k001")
        case "chatty":
            operation.end(0, "starting", *names, "done")
        case "silent":
            operation.end(0)
        case _:
            operation.end(0 if len(names) == asked else 1, *names)


def _join_later(world: World, machine: Machine, how: tuple[str, str], late: float) -> None:
    namespace, behaviour = how
    node_name = f"{machine.name}-x" if behaviour.startswith("renamed") else machine.name

    def ready() -> None:
        if node_name in world.nodes:
            world.change_node(node_name, is_ready=True)

    def join() -> None:
        world.join(machine, namespace, node_name)
        if behaviour == "unready" and node_name in world.nodes:
            world.change_node(node_name, is_ready=False)
            world.later(100, ready)

    if late:
        world.later(late, join)
    else:
        join()


def _end_return(operation: Operation) -> None:
    world = operation.world
    if operation.has_ended:
        return
    (machine,) = operation.machines
    if operation.behaviour == "half":
        operation.end(1, "its slurmd did not come up")
        return
    operation.end(0, machine.name)
    for claim in operation.claims:
        claim.is_open = False

    def finish_return() -> None:
        if machine.place == "returning":
            world.return_nodes(machine)

    world.later(200 if operation.behaviour == "late" else 0, finish_return)
