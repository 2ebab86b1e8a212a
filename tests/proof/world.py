"""A model in memory of the world around dnm: machines, a cluster, a scheduler, administrators.

It is small on purpose and shares only values with the code under test. It takes Slurm, its jobs and
the computation of quota from the sandbox. Time passes only in `advance`. Forbidden events are
recorded in `broken` when they happen; `invariants.py` checks the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from dnm.lab.sandbox import batch
from dnm.lab.sandbox.batch import OWN_DRAIN, Batch
from dnm.lab.sandbox.clock import Clock
from dnm.lab.sandbox.deletion import Violations
from dnm.lab.sandbox.queue_tree import add_request, ancestors, fits, headroom
from dnm.model.cluster import ConfigMap, KubeEvent, QueueLimits
from dnm.model.lease import Lease
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.pod import Pod, PodShape, Toleration
from dnm.queues.yunikorn.source import DEFAULT_PLACE
from dnm.queues.yunikorn.tree import parse_tree
from tests.queue_kit import check_text

if TYPE_CHECKING:
    from tests.proof.edges import Operation

BEGIN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NAMESPACE = "yunikorn"
QUEUES = {"dev": "root.site.dev", "lab": "root.site.lab", "train": "root.site.train"}
SIZES = {  # allocatable of the machines, by type
    "a": {"cpu": 15_500, "memory": 60 * 10**9, "pods": 110},
    "b": {"cpu": 7_500, "memory": 30 * 10**9, "pods": 110},
}
TAINT = Taint(key="dedicated", value="{namespace}", effect="NoSchedule")
MANIFEST = """\
# edited manually
partitions:
  - name: default
    queues:
      - name: site   # everybody
        resources:
          max: {vcore: 40, memory: 160G}
        queues:
          - name: dev
            resources:
              guaranteed: {vcore: '4', memory: 16G}
              max:
                vcore: 8      # two seats
                memory: 32G
          - name: lab
            resources:
              max: {vcore: 8000m, memory: 32G}
          - name: train
            resources:
              max: {memory: 32G}
"""
LONGEST_JOB = timedelta(days=365)
BROKEN_DOCUMENTS = ("partitions: [", "a: b", MANIFEST.replace("vcore: 8 ", "vcore: -8 "), "")


class Kept:
    """The Lease and the versions of an instance in the API server, besides its registry."""

    def __init__(self) -> None:
        self.lease = Lease()
        self.number = self.version = 0


class Held(msgspec.Struct, kw_only=True):
    """The converter's claim of a machine. `operation` is the call that made it, and `is_open` is
    true until the work for it is complete."""

    instance: str
    direction: str
    namespace: str
    request: str
    operation: Operation
    is_open: bool = True


class Machine(batch.Machine, kw_only=True):
    """A machine as Slurm has it, with the converter's claim."""

    claim: Held | None = None
    is_shared_manually: bool = False  # an administrator resumed it while it is lent


class Slurm(Batch):
    """The sandbox's Slurm, in which an administrator may also resume a lent machine."""

    def is_in_service(self, machine: batch.Machine) -> bool:
        assert isinstance(machine, Machine)
        is_shared = machine.is_shared_manually and not machine.drains and not machine.is_down
        return is_shared or super().is_in_service(machine)

    @property
    def waiting(self) -> list[batch.BatchJob]:
        return [job for job in self.jobs.values() if not job.on]


class Instant(Clock):
    """The clock of the model, which only `World.advance` moves and which can be copied."""

    def __init__(self) -> None:
        self.at = BEGIN

    def now(self) -> float:
        return self.at.timestamp()

    def after(self, seconds: float) -> float:
        return self.now() + seconds


class Due(msgspec.Struct, kw_only=True):
    """Something that happens in the model at a later time."""

    at: datetime
    order: int
    happen: Callable[[], None]


class World:
    """The state of the clusters, and what changes it. Nothing here uses dnm's decisions."""

    def __init__(self) -> None:
        self.clock = Instant()
        self.batch = Slurm(self.clock, Violations(self.clock))
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.kube_events: list[KubeEvent] = []
        self.machines: dict[str, Machine] = {}
        self.batch.machines = self.machines  # type: ignore[assignment]  # they are of a subclass
        self.manifest = MANIFEST
        self.config_map: ConfigMap | None = None
        self.injected_jobs = 0  # jobs that a fault adds to Slurm's answer
        self.processes: dict[int, Operation] = {}  # running converters, by process id
        self.reports_claims = True  # False: the site's own converter, which lists no claims
        self.is_tainted = False  # a lent node accepts only pods of its namespace
        self.patience: float | None = None  # seconds that runs wait; None: half an interval
        self.budget = 1  # how many pods may be evicted until one has ended
        self.broken: list[str] = []
        self.ways: Counter[tuple[str, str]] = Counter()  # how runs with a store have read, and why
        self.fences: dict[str, str] = {}  # node -> who cordoned it: "admin" or an instance
        self.opened_manually: set[str] = set()  # nodes on which any pod may run
        self.astray_is_excused: set[str] = set()  # machines that dnm could not know of
        self.admin_wrote = True  # since dnm last wrote the queue document
        self.removed_at: dict[str, int] = {}
        self.used_at_write: Mapping[str, Mapping[str, int]] = {}
        self._due: list[Due] = []
        self.states: dict[str, Kept] = {}  # by instance
        self._number = 0
        self._limits: dict[str, Mapping[str, QueueLimits] | None] = {}
        self._limits_in_force: Mapping[str, QueueLimits] = {}
        for node_type, count in (("a", 6), ("b", 3)):
            for number in range(1, count + 1):
                name = f"{node_type}{number:03}"
                self.machines[name] = Machine(name=name, type=node_type)
        self.put_node("k001", SIZES["b"], {})
        self.apply_manifest(self.manifest)

    # --- time -------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.clock.at

    def number(self) -> int:
        """Returns a new number, for versions, process ids and names."""
        self._number += 1
        return self._number

    def later(self, seconds: float, happen: Callable[[], None]) -> None:
        due = Due(at=self.now + timedelta(seconds=seconds), order=self.number(), happen=happen)
        self._due.append(due)

    def advance(self, seconds: float) -> None:
        """Advances the time: plays all due events in order, and starts pods and jobs."""
        until = self.now + timedelta(seconds=seconds)
        self.settle()
        while self._due:
            first = min(self._due, key=lambda due: (due.at, due.order))
            if first.at > until:
                break
            self._due.remove(first)
            self.clock.at = max(self.now, first.at)
            first.happen()
            self.settle()
        self.clock.at = until
        self.batch.step()

    def settle(self) -> None:
        self.batch.step()
        self.schedule()
        for machine in self.machines.values():
            self._detect_two_owners(machine)
        for pod in self.pods.values():
            self._detect_foreign_pod(pod)

    # --- Kubernetes ---------------------------------------------------------------------------

    def put_node(self, name: str, size: Mapping[str, int], labels: Mapping[str, str]) -> None:
        labels = {"kubernetes.io/hostname": name, **labels}
        uid = f"uid-{name}-{self.number()}"  # as in Kubernetes, different each time
        self.nodes[name] = Node(name=name, uid=uid, allocatable=size, labels=labels)
        self.change_node(name)

    def change_node(self, name: str, **changes: object) -> None:
        version = str(self.number())
        self.nodes[name] = msgspec.structs.replace(
            self.nodes[name], resource_version=version, **changes
        )

    def remove_node(self, name: str, why: str) -> None:
        """Removes a Node with its pods. If pods run, that is a violation, unless `why` is empty."""
        if self.nodes.pop(name, None) is None:
            return
        self.removed_at[name] = self.number()
        self.fences.pop(name, None)
        for pod in [pod for pod in self.pods.values() if pod.node == name]:
            del self.pods[pod.name]
            if why:
                self.broken.append(f"{name} was taken with pod {pod.name} on it: {why}")

    def add_pods(self, count: int, namespace: str, vcore: int) -> None:
        shape = PodShape(
            request={"cpu": vcore * 1000, "memory": vcore * 4 * 10**9, "pods": 1},
            tolerations=(_tolerated(namespace),) if self.is_tainted else (),
        )
        for _ in range(count):
            name = f"p{self.number()}"
            self.pods[name] = Pod(
                namespace=namespace, name=name, uid=name, shape=shape, app_id=name,
                queue=QUEUES[namespace], is_managed=True,
                created=self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )  # fmt: skip

    def evict(self, name: str) -> None:
        """Ends the pod after half a minute. Then its controller creates another one."""
        pod = self.pods[name]
        if pod.is_terminating:
            return
        self.budget -= 1
        self.pods[name] = msgspec.structs.replace(pod, is_terminating=True)
        again = f"p{self.number()}"
        self.pods[again] = msgspec.structs.replace(
            pod, name=again, uid=again, app_id=again, node="",
            created=self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )  # fmt: skip

        def ends() -> None:
            self.pods.pop(name, None)
            self.budget = 1

        self.later(30, ends)

    def used(self, pods: Iterable[Pod] | None = None) -> dict[str, dict[str, int]]:
        """Returns queue -> what its bound pods use, with those of the queues below it."""
        used: dict[str, dict[str, int]] = {}
        for pod in self.pods.values() if pods is None else pods:
            if pod.node:
                add_request(used, pod.queue, pod.shape.request)
        return used

    def free_capacity(self) -> dict[str, dict[str, int]]:
        """Returns the free capacity of the nodes that accept pods."""
        free = {
            name: dict(node.allocatable)
            for name, node in self.nodes.items()
            if node.is_ready and not node.is_cordoned
        }
        for pod in self.pods.values():
            if pod.node in free:
                for resource, amount in pod.shape.request.items():
                    free[pod.node][resource] -= amount
        return free

    def schedule(self) -> None:
        """Binds pods as YuniKorn does: in order of arrival, within every limit up the tree."""
        pending = [pod for pod in self.pods.values() if not pod.node]
        if not pending:
            return
        limits, used, free = self.active_limits(), self.used(), self.free_capacity()
        for pod in sorted(pending, key=lambda pod: (pod.created, pod.uid)):
            request = pod.shape.request
            of_path = {path: limits[path].max for path in ancestors(pod.queue) if path in limits}
            has_quota = fits(request, headroom(of_path, used))
            open_to_it = (
                n for n in free if has_quota and owner_of(self.nodes[n]) in ("", pod.namespace)
            )
            node = next((n for n in open_to_it if _fits(request, free[n])), "")
            if node:
                self.pods[pod.name] = msgspec.structs.replace(pod, node=node)
                add_request(used, pod.queue, request)
                for resource, amount in request.items():
                    free[node][resource] -= amount

    # --- the queue document -------------------------------------------------------------------

    @property
    def text(self) -> str:
        return self.config_map.data.get("queues.yaml", "") if self.config_map else ""

    def active_limits(self) -> Mapping[str, QueueLimits]:
        """Returns the limits that YuniKorn uses: those of the last document it accepted."""
        text = self.text
        if text not in self._limits:
            self._limits[text] = read_limits(text)
        self._limits_in_force = self._limits[text] or self._limits_in_force
        return self._limits_in_force

    def apply_manifest(self, text: str, *, keeps_ledger: bool = True) -> None:
        """Applies a manifest; `keeps_ledger=False` drops dnm's annotation, as `kubectl replace`."""
        kept = self.config_map.annotations if self.config_map and keeps_ledger else {}
        self.put_config_map({"queues.yaml": text}, kept)
        self.admin_wrote = True

    def put_config_map(self, data: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self.config_map = ConfigMap(
            namespace=NAMESPACE, name=DEFAULT_PLACE[1], resource_version=str(self.number()),
            data=data, annotations=annotations,
        )  # fmt: skip

    # --- Slurm --------------------------------------------------------------------------------

    def submit_job(self) -> None:
        """Adds a waiting job; at most three may wait."""
        if len(self.batch.waiting) < 3:
            self.batch.submit(run_seconds=LONGEST_JOB.total_seconds())

    def take(self, machine: Machine) -> None:
        """Drains and reserves the machine, as a converter does."""
        self.batch.claim(machine, f"k8s-{machine.name}", "it is converted")

    def lose(self, machine: Machine) -> None:
        """Leaves a machine half converted. Without a list of claims, dnm cannot know of it."""
        if not self.reports_claims:
            self.astray_is_excused.add(machine.name)

    def return_nodes(self, machine: Machine) -> None:
        self.batch.release(machine)
        machine.claim, machine.is_shared_manually = None, False

    def share(self, machine: Machine) -> None:
        """Resumes a lent machine in Slurm, as an administrator."""
        self.batch.resume(machine.name, OWN_DRAIN)
        machine.reserved, machine.is_shared_manually = "", True

    def join(self, machine: Machine, namespace: str, node_name: str = "") -> None:
        """Registers the Node of a machine, unless the machine was returned meanwhile."""
        if machine.place != "leaving":
            return
        machine.place, machine.node_name = "kubernetes", node_name or machine.name
        self.put_node(machine.node_name, SIZES[machine.type], {namespace: "true"})
        if self.is_tainted:
            taint = msgspec.structs.replace(TAINT, value=namespace)
            self.change_node(machine.node_name, taints=(taint,))

    def machine_of(self, node: str) -> Machine | None:
        result = self.batch.find(node)
        assert result is None or isinstance(result, Machine)
        return result

    def _detect_two_owners(self, machine: Machine) -> None:
        node = self.nodes.get(machine.node_name)
        is_open = node is not None and node.is_ready and not node.is_cordoned
        in_service = self.batch.is_in_service(machine)
        if is_open and in_service and not machine.is_shared_manually:
            self.broken.append(f"{machine.name} is offered to Slurm and to Kubernetes at once")

    def _detect_foreign_pod(self, pod: Pod) -> None:
        """Records a violation if a pod runs on an open node of another namespace, except if an
        administrator opened the node."""
        node = self.nodes.get(pod.node)
        is_open = (
            node is not None and not node.is_cordoned and node.name not in self.opened_manually
        )
        if node is not None and is_open and owner_of(node) not in ("", pod.namespace):
            self.broken.append(f"{pod.namespace}/{pod.name} runs on {owner_of(node)}'s {node.name}")


def _tolerated(namespace: str) -> Toleration:
    return Toleration(key=TAINT.key, value=namespace)


def owner_of(node: Node) -> str:
    """Returns the namespace to which a taint reserves the node; empty if it accepts all pods."""
    owners = {taint.value for taint in node.taints if taint.key == TAINT.key}
    return owners.pop() if len(owners) == 1 else "".join(sorted(owners))


def read_limits(text: str) -> Mapping[str, QueueLimits] | None:
    """Returns the limits, or None if YuniKorn refuses the document or it is empty."""
    return None if not text or check_text(text) else parse_tree(text).queues


def _fits(request: Mapping[str, int], free: Mapping[str, int]) -> bool:
    return all(free.get(resource, 0) >= amount for resource, amount in request.items())
