"""Small models of what a run calls: cluster, Lease, converter. Their state shows its effects."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from dnm.model.batch import BatchList, BatchNode
from dnm.model.cluster import ConfigMap, KubeEvent, PodOnNode, Reading
from dnm.model.errors import ConverterError, KubeConflict, KubeError
from dnm.model.kubelet import Amounts
from dnm.model.lease import Lease
from dnm.model.lent import Ended
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.pod import Claim, DaemonSet, Pod, PodList
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from tests.builders import NOW
from tests.fakes import ConverterFake, KubeFake, LeaseFake
from tests.plan.worlds import queue_map

PROCESS = ConverterProcess(pid=77, start_ticks=5)


class Leases(LeaseFake):
    """The Lease of an instance, on an API server with a clock and optimistic locking. `meanwhile`
    is called before the next write, to play another client."""

    secret_name = lease_name = "dnm/dnm-prod"

    def __init__(self, kube: Kube | None = None) -> None:
        self.kube = kube
        self.stored = Lease()
        self.now: datetime = NOW
        self.writes = self.reads = 0
        self.meanwhile: Callable[[], object] = lambda: None
        self.loses_answer = False

    def read_lease(self) -> Lease:
        self.reads += 1
        if self.kube is not None:
            self.kube._check("read lease")
        return msgspec.structs.replace(self.stored, read_at=self.now)

    def write_lease(self, lease: Lease, *, is_dry_run: bool = False) -> Lease:
        assert not is_dry_run
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if self.kube is not None:
            self.kube._check("write lease")
        if lease.version != self.stored.version:
            raise KubeConflict("it was changed")
        self.writes += 1
        self.stored = msgspec.structs.replace(lease, version=str(self.writes))
        if self.loses_answer:
            raise KubeError("the answer was lost")
        return msgspec.structs.replace(self.stored, read_at=self.now)


class Kube(KubeFake):
    """Nodes, pods and the queues' ConfigMap. `refuses` has the names of the calls that fail."""

    def __init__(self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.pods = tuple(pods)
        self.queues: ConfigMap | None = queue_map()
        self.leases = Leases(self)
        self.asked: list[str] = []  # reads by a snapshot
        self.refuses: set[str] = set()
        self.events: list[KubeEvent] = []
        self.on_nodes: list[tuple[str, PodOnNode]] = []
        self.daemon_sets: tuple[DaemonSet, ...] | Unreadable = ()
        self.budgets: set[str] = set()  # pods that may not be evicted
        self.evicted: list[str] = []
        self.conflicts = 0  # that many patches meet a newer object first

    def keep(self) -> Reading:
        return Reading()

    def _check(self, word: str) -> None:
        if word in self.refuses:
            raise KubeError(f"{word}: 403 Forbidden")

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        self.asked.append("nodes")
        if "nodes" in self.refuses:
            return Unreadable(subject="nodes", error="nodes: 403 Forbidden")
        return tuple(self.nodes.values())

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        self.asked.append(f"pods {','.join(namespaces)}")
        return PodList(pods=self.pods)

    def read_zones(self) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
        self.asked.append("zones")
        return {}

    def read_claims(self, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
        self.asked.append(f"claims of {','.join(pod.name for pod in pods)}")
        return ()

    def read_node(self, name: str) -> Node | None:
        self._check(f"get {name}")
        return self.nodes.get(name)

    def read_pods_on(self, node: str) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.node == node)

    def read_daemon_sets(self) -> tuple[DaemonSet, ...] | Unreadable:
        self.asked.append("daemon sets")
        return self.daemon_sets

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        self._check(f"pods on {node}")
        return [on_node for name, on_node in self.on_nodes if name == node]

    def evict(self, pod: Pod | PodOnNode, *, is_dry_run: bool = False) -> str:
        self._check(f"evict {pod.name}")
        if pod.name in self.budgets:
            return "its budget says no"
        self.evicted.append(pod.name)
        return ""

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        self.asked.append(f"{namespace}/{name}")
        return self.queues if name == "yunikorn-configs" else None

    def write_config_map(self, config_map: ConfigMap, *, dry_run: bool = False) -> ConfigMap:
        self._check("write queues")
        assert self.queues and config_map.resource_version == self.queues.resource_version
        version = str(int(config_map.resource_version) + 1)
        self.queues = msgspec.structs.replace(config_map, resource_version=version)
        return self.queues

    def lease_object(self, namespace: str, name: str) -> Leases:
        return self.leases

    def create_event(self, event: KubeEvent) -> None:
        self._check("create event")
        self.events.append(event)

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
        self._check(f"patch {name}")
        node = self.nodes[name]
        if self.conflicts:
            self.conflicts -= 1
            raise KubeConflict(f"{name} has changed")
        assert resource_version == node.resource_version
        changes: dict[str, Any] = {} if cordon is None else {"is_cordoned": cordon}
        if labels:
            kept = {**node.labels, **labels}
            changes["labels"] = {key: text for key, text in kept.items() if text is not None}
        if taints is not None:
            changes["taints"] = tuple(taints)
        self.nodes[name] = msgspec.structs.replace(
            node, mark=_marked(node.mark, annotations), **changes
        )


def _marked(mark: Mark | None, annotations: Mapping[str, str | None]) -> Mark:
    fields: dict[str, Any] = msgspec.structs.asdict(mark) if mark else {}
    for key, value in annotations.items():
        name = key.removeprefix("dynamic-node-manager/").replace("-", "_")
        fields[name] = value == "true" if name == "fenced" else value
    return Mark(**fields)


class Converter(ConverterFake):
    """A converter that records its calls. A call ends with the result in `ends`, or continues."""

    def __init__(self, batch: Iterable[BatchNode] = (), registry_path: Path | None = None) -> None:
        self.batch: dict[str, BatchNode] | Unreadable = {node.name: node for node in batch}
        self.calls: dict[str, list[str]] = {}  # type: ignore[assignment]  # the commands alone
        self.lists = 0  # number of list calls
        self.ends: dict[str, Ended] = {}
        self.refuses = False
        self.ended: list[ConverterProcess] = []
        self.kept: list[str] = []
        self.registry_path = registry_path
        self.recorded: dict[str, Registry] = {}  # on disk when a call started

    def list_nodes(self, node: str = "") -> BatchList | Unreadable:
        self.lists += 1
        if isinstance(self.batch, Unreadable):
            return self.batch
        return BatchList(nodes=self.batch)

    def still_running(self, processes: Iterable[ConverterProcess]) -> frozenset[ConverterProcess]:
        return frozenset()

    def reserve(self, command: Sequence[str]) -> tuple[str, ...]:
        raise AssertionError(command)  # no test reserves nodes here

    def find(self, key: str) -> ConverterProcess | None:
        return None

    def start(
        self, key: str, command: Sequence[str], until: float | None = None
    ) -> ConverterProcess:
        if self.refuses:
            raise ConverterError("it can't be started")
        if self.registry_path is not None:
            self.recorded[key] = msgspec.json.decode(self.registry_path.read_bytes(), type=Registry)
        self.calls[key] = list(command)
        return PROCESS

    def end(self, process: ConverterProcess) -> bool:
        self.ended.append(process)
        return True

    def read_end(self, key: str) -> Ended:
        return self.ends.get(key, Ended())

    def read_earlier_output(self, on_line: Callable[[str, str], None]) -> None:
        on_line("r0", "said between two runs")

    def listen(
        self, on_line: Callable[[str, str], None], should_leave: Callable[[], bool]
    ) -> dict[str, Ended]:
        return {key: self.ends.get(key, Ended(exit_code=0)) for key in self.calls}

    def forget_output(self, kept: Container[str]) -> None:
        self.kept = [key for key in self.calls if key in kept]
