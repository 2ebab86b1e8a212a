"""The embedded cluster in memory: it joins the parts, runs their steps, and has methods for tests.

These methods change the cluster like users, administrators and machines do. They acquire the lock
and take effect at once, and clients see their changes like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.admission import Admission
from dnm.lab.sandbox.batch import Batch, MachineType
from dnm.lab.sandbox.clock import Clock, Timing
from dnm.lab.sandbox.conversion import Behaviour, Converter, Result
from dnm.lab.sandbox.deletion import Violation, Violations
from dnm.lab.sandbox.field_owners import Manager, track_change
from dnm.lab.sandbox.http_values import Fault, Faults
from dnm.lab.sandbox.kinds import KINDS, kind_of
from dnm.lab.sandbox.kubelet import Kubelet
from dnm.lab.sandbox.requests_log import RequestLog
from dnm.lab.sandbox.scheduler import Scheduler
from dnm.lab.sandbox.store import ApiError, Object, Objects
from dnm.lab.sandbox.workloads import Workloads
from dnm.lab.sandbox.yunikorn_config import CONFIGS_NAME, NAMESPACE, YunikornConfig

_SETTLED_AFTER = 50  # rounds in one step; more means that two controllers undo each other


class EmbeddedCluster:
    """The cluster without HTTP. The HTTP routes and tests call its methods."""

    def __init__(
        self, directory: Path, *, manual: bool, speed: float, seed: int, timing: Timing | None
    ) -> None:
        self.directory = directory
        self.clock = Clock(manual=manual, speed=speed)
        self.store = Objects(self.clock, seed)
        self.lock = self.store.lock
        self.admission = Admission(self.store)
        self.faults = Faults(seed)
        self.requests = RequestLog()
        self.timing = timing or Timing()
        self.yunikorn = YunikornConfig(self.store, self.timing)
        self.admission.webhooks["configmaps"] = self.yunikorn.deny_invalid
        self.scheduler = Scheduler(self.store, self.timing, self.yunikorn)
        self.kubelet = Kubelet(self.store, self.timing)
        self.workloads = Workloads(self.store, self.admission)
        self._violations = Violations(self.clock)
        self.batch = Batch(self.clock, self._violations)
        self.conversion = Converter(self.store, self.batch, self.timing, self._violations)
        self._shared: set[str] = set()
        for namespace in ("default", "kube-system", NAMESPACE, "dnm"):  # "dnm" has the Lease
            self.add_namespace(namespace)

    @property
    def violations(self) -> list[Violation]:
        """Returns the violations so far: events that must never happen."""
        with self.lock:
            return list(self._violations.all)

    def fault(self, kind: str, **details: Any) -> Fault:
        """Injects a fault: `fault("status", path="configmaps", methods=("PATCH",), code=409)`."""
        return self.faults.add(msgspec.convert({"kind": kind, **details}, Fault))

    # --- time -------------------------------------------------------------------------------

    def tick(self, seconds: float = 0.0) -> None:
        """Advances a manual clock. At each due time on the way, runs what is due."""
        with self.lock:
            until = self.clock.now() + seconds
            self.step()
            while (due := self.clock.next_due()) is not None and due <= until:
                self.clock.set(max(due, self.clock.now()))
                self.step()
            self.clock.set(until)
            self.step()

    def step(self) -> None:
        """Runs all controllers until nothing changes any more."""
        with self.lock:
            self.clock.forget_due()
            for _ in range(_SETTLED_AFTER):
                before = self.store.version
                self.batch.step()
                self.conversion.joining.step()
                self.yunikorn.step()
                self.kubelet.step()
                self.workloads.step()
                self.admission.quotas.step()
                self.scheduler.step()
                if self.store.version == before:
                    break
            self._look_for_two_owners()

    def _look_for_two_owners(self) -> None:
        shared = set()
        for machine in self.batch.machines.values():
            node = self.store.get("nodes", "", machine.name)
            if node is None or node["spec"].get("unschedulable") or not manifests.is_ready(node):
                continue
            if self.batch.is_in_service(machine):
                shared.add(machine.name)
        for name in sorted(shared - self._shared):
            self._violations.note("two-owners", name, "Ready in Kubernetes, in service in Slurm")
        self._shared = shared

    # --- objects ----------------------------------------------------------------------------

    def create(self, manifest: Object) -> Object:
        """Creates an object from its manifest, with the API server's checks. Raises ApiError."""
        kind = kind_of(manifest)
        if kind is None:
            raise ApiError(404, f"no kind {manifest.get('apiVersion')}/{manifest.get('kind')}")
        with self.lock:
            own = msgspec.json.decode(msgspec.json.encode(manifest))
            if kind.namespaced:
                own["metadata"].setdefault("namespace", "default")
            else:
                own["metadata"].pop("namespace", None)
            self.admission.admit_creation(kind, own)
            return self.store.create(kind.plural, own)

    def get(self, plural: str, name: str, namespace: str = "") -> Object | None:
        """Returns a copy of the object, or None."""
        with self.lock:
            entry = self.store.entry(plural, namespace, name)
            return entry.copy() if entry else None

    def objects(self, plural: str, namespace: str = "") -> list[Object]:
        """Returns copies of the objects, sorted by namespace and name."""
        with self.lock:
            return [entry.copy() for entry in self.store.entries(plural, namespace)]

    def edit(
        self, plural: str, name: str, change: Callable[[Object], Any], namespace: str = ""
    ) -> Object:
        """Calls `change`, which modifies a copy of the object in place, and stores the copy."""
        with self.lock:
            return self.store.edit(plural, namespace, name, change)

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        """Deletes an object at once, without grace period or checks. It need not exist."""
        with self.lock, contextlib.suppress(ApiError):
            self.store.remove(plural, namespace, name)

    def add_namespace(self, name: str) -> None:
        with self.lock:
            if self.store.get("namespaces", "", name) is None:
                manifest = {"metadata": {"name": name}}
                self.admission.admit_creation(KINDS["namespaces"], manifest)
                self.store.create("namespaces", manifest)

    def add_node(
        self,
        name: str,
        cpu: str = "128",
        memory: str = "256G",
        *,
        more: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        ready: bool = True,
    ) -> Object:
        """Creates a permanent Node, not a lent one. `more` are further allocatable resources."""
        allocatable = {"cpu": cpu, "memory": memory, **(more or {})}
        return self.create(
            manifests.node_manifest(name, allocatable, labels=labels, taints=taints, ready=ready)
        )

    def add_pods(
        self,
        count: int,
        namespace: str = "default",
        *,
        queue: str = "",
        cpu: str = "1",
        memory: str = "1Gi",
        name: str = "pod",
        more: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        run_seconds: float | None = None,
    ) -> list[str]:
        """Creates pods `name-0` ... (YuniKorn's if `queue` is given) and returns their names."""
        self.add_namespace(namespace)
        notes = dict(annotations or {})
        if run_seconds is not None:
            notes[manifests.RUN_SECONDS] = str(run_seconds)
        requests = {"cpu": cpu, "memory": memory, **(more or {})}
        taken = {pod["metadata"]["name"] for pod in self.store.objects("pods", namespace)}
        free = (f"{name}-{number}" for number in range(len(taken) + count))
        names = [candidate for candidate in free if candidate not in taken][:count]
        for chosen in names:
            self.create(manifests.pod_manifest(
                chosen, namespace, requests, queue=queue, spec=spec, annotations=notes,
                labels=labels,
            ))  # fmt: skip
        return names

    def finish_pods(
        self, names: Iterable[str], namespace: str = "default", phase: str = "Succeeded"
    ) -> None:
        """Sets the pods' phase as if their containers had exited."""
        for name in names:
            self.edit("pods", name, lambda pod: pod["status"].update(phase=phase), namespace)

    def bind(
        self, name: str, node: str, namespace: str = "default", phase: str = "Running"
    ) -> None:
        """Binds a pod to a node without the scheduler, even if it does not fit."""

        def change(pod: Object) -> None:
            pod["spec"]["nodeName"] = node
            pod["status"]["phase"] = phase

        self.edit("pods", name, change, namespace)

    def cordon(self, node: str, on: bool = True) -> None:
        def change(item: Object) -> None:
            item["spec"]["unschedulable"] = True
            if not on:
                del item["spec"]["unschedulable"]

        self.edit("nodes", node, change)

    def set_ready(self, node: str, ready: bool) -> None:
        self.edit("nodes", node, lambda item: manifests.set_ready(item, ready))

    # --- the queue document -----------------------------------------------------------------

    def set_queues(self, text: str, *, name: str = CONFIGS_NAME, key: str = "queues.yaml") -> None:
        """Writes the queue document without checks, like an administrator with `kubectl apply`."""
        owner, stamp = Manager("kubectl-client-side-apply", "Update"), self.clock.stamp()
        with self.lock:
            if self.store.get("configmaps", NAMESPACE, name) is None:
                made = manifests.config_map_manifest(name, NAMESPACE, {key: text})
                self.store.create("configmaps", track_change({}, made, owner, stamp))
                return
            old = self.store.fetch("configmaps", NAMESPACE, name)
            new = {**old, "data": {**(old.get("data") or {}), key: text}}
            self.store.update("configmaps", track_change(old, new, owner, stamp))

    def queues_text(self, *, name: str = CONFIGS_NAME, key: str = "queues.yaml") -> str:
        config_map = self.get("configmaps", name, NAMESPACE) or {}
        return str((config_map.get("data") or {}).get(key, ""))

    # --- the batch side ---------------------------------------------------------------------

    def add_machine_type(
        self,
        name: str = "a",
        cpu: str = "128",
        memory: str = "256G",
        *,
        more: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        capacity: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a machine type with its allocatable resources in Kubernetes. `capacity` has amounts
        that are larger, because the kubelet reserves a part of them."""
        allocatable = {"cpu": cpu, "memory": memory, **(more or {})}
        with self.lock:
            self.batch.add_type(MachineType(
                name=name, allocatable=allocatable, capacity=dict(capacity or {}),
                labels=dict(labels or {}), taints=[dict(taint) for taint in taints],
            ))  # fmt: skip

    def add_machines(self, count: int, machine_type: str = "a") -> list[str]:
        """Adds idle batch nodes `a001` ...; an unknown type gets the default size."""
        if machine_type not in self.batch.types:
            self.add_machine_type(machine_type)
        with self.lock:
            first = 1 + sum(1 for m in self.batch.machines.values() if m.type == machine_type)
            names = [f"{machine_type}{number:03}" for number in range(first, first + count)]
            self.batch.add_machines(machine_type, names)
        return names

    def behave(self, **details: Any) -> Behaviour:
        """Sets how the converter behaves in its next calls, see `conversion.Behaviour`."""
        behaviour = msgspec.convert(details, Behaviour)
        with self.lock:
            self.conversion.behaviours.append(behaviour)
        return behaviour

    def node_convert(self, *arguments: str, **environment: str) -> Result:
        """Runs a converter's call in this process, `begin` and `finish`. Returns its result."""
        with self.lock:
            begun = self.conversion.begin(arguments, environment)
        if begun.operation is None or begun.hang:
            return begun
        done = self.finish_conversion(begun.operation)
        return Result(stdout=begun.stdout + done.stdout, stderr=begun.stderr + done.stderr,
                      exit_code=done.exit_code, hang=done.hang)  # fmt: skip

    def finish_conversion(self, operation: int) -> Result:
        """Runs `finish` of a converter's call. First advances a manual clock by its duration."""
        with self.lock:
            if self.clock.manual:
                self.tick(self.clock.scaled(self.conversion.duration(operation)))
            done = self.conversion.finish(operation)
            self.store.changed.notify_all()
            return done

    def return_manually(self, name: str) -> None:
        """Returns a lent node to Slurm like an administrator, without dnm."""
        with self.lock:
            machine = self.batch.machines[name]
            self.delete("nodes", machine.name)
            self.batch.release(machine)

    def join_manually(self, name: str, namespace: str = "") -> None:
        """Registers a machine's Node in Kubernetes, whatever state Slurm has for it."""
        with self.lock:
            machine = self.batch.machines[name]
            machine.place = "kubernetes"
            machine.claims += 1
            self.conversion.joining.expect(machine, namespace)
            self.store.changed.notify_all()
