"""The model's API server for runs that keep the objects they have read and then read only changes.

The server finds changes by comparing the world with its previous snapshot. The state that a run
takes as complete must equal the world at some moment after the run began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from dnm.kube.access import Access
from dnm.kube.pods import PodReducer
from dnm.kube.reflector import Reflector
from dnm.kube.watching import WatchLog, Witness
from dnm.model.cluster import Reading
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.pod import Pod, PodList
from dnm.model.value import Unreadable
from dnm.queues.yunikorn.pods import YunikornPods
from tests.proof.edges import PREFIX, ModelKube, RunsDnm, Weather, as_read
from tests.proof.fake_api import ApiServer, Cluster, Object, Watches
from tests.proof.world import World
from tests.scripted_server import an_access

ACCESS = an_access("https://api")
HOW = ("restart", "forget", "lag", "cut", "no bookmarks", "well")
Moment = Mapping[str, Node | Pod]


class ReportedWorld:
    """The world as an API server reports it. `moments` has all states of each kind of object, those
    between two changes included, which a run may have read."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(_document)
        self.moments: dict[str, list[Moment]] = {"Node": [], "Pod": []}

    def look(self) -> int:
        """Records the changes since the last snapshot; returns the version of this moment."""
        world, etcd = self.world, self.cluster.etcd
        for name, pod in world.pods.items():
            if self._last("Pod", name) is not pod:
                self._put("Pod", name, pod, world.number())
        for name, node in sorted(world.nodes.items(), key=lambda item: _version(item[1])):
            if self._last("Node", name) is not node:
                self._put("Node", name, node, _version(node))
        present = {("Node", name) for name in world.nodes} | {("Pod", name) for name in world.pods}
        for kind, name in sorted(etcd.objects.keys() - present):
            etcd.revision = world.number() - 1
            etcd.drop(kind, name)
            self._note(kind)
        for kind in self.moments:
            self._note(kind)
        etcd.revision = world.number()
        return etcd.revision

    def _last(self, kind: str, name: str) -> Node | Pod | None:
        results = self.cluster.etcd.objects.get((kind, name))
        value: Node | Pod | None = results["value"] if results else None
        return value

    def _put(self, kind: str, name: str, value: Node | Pod, version: int) -> None:
        self.cluster.etcd.revision = version - 1
        self.cluster.etcd.put(kind, name, value=value, uid=value.uid)
        self._note(kind)

    def _note(self, kind: str) -> None:
        results = {key[1]: entry["value"] for key, entry in self.cluster.etcd.objects.items()
                 if key[0] == kind}  # fmt: skip
        if kind == "Node":
            results = {name: as_read(node) for name, node in results.items()}
        if results not in self.moments[kind][-1:]:
            self.moments[kind].append(results)

    def disturb(self, how: str) -> None:
        """Injects a fault into the API server, which lasts until a later call ends it."""
        cluster, server = self.cluster, self.cluster.server
        match how:
            case "restart":
                self.look()
                cluster.server = ApiServer(after=cluster.etcd.revision)
            case "forget":
                server.after = max(server.after, cluster.etcd.revision - 5)
            case "lag":
                server.lag = 3
            case "cut":
                cluster.cut_after = 1
            case "no bookmarks":
                cluster.has_bookmarks = False
            case _:
                server.lag, cluster.cut_after, cluster.has_bookmarks = 0, 1000, True


class RememberingKube(ModelKube):
    """The Kubernetes client of a run that reads only changes since the host's last run."""

    _reflector: Reflector

    def __init__(self, reported: ReportedWorld, host: RunsDnm, weather: Weather) -> None:
        super().__init__(reported.world, host, weather)
        self.reported = reported
        self.barriers = {"Node": 0, "Pod": 0}  # how many moments there were before this run's
        self._reflector = Reflector(host.config, host.now(), self._open)
        session = SimpleNamespace(read=self._read_cluster)
        self._requests: Any = SimpleNamespace(
            access=ACCESS, session=session, asking=lambda subject, rule: nullcontext()
        )

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        if self._reflector.look(self._requests):
            nodes = self._reflector.nodes
            self._judge("Node", {node.name: node for node in nodes})
            return nodes
        result = super().read_nodes()
        if isinstance(result, tuple):
            self._reflector.learn_nodes(result, str(self.reported.look()))
        return result

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        if self._reflector.look(self._requests):
            pods = self._reflector.pods
            self.used = self.world.used(pods.pods)
            self._judge("Pod", {pod.name: pod for pod in pods.pods})
            return pods
        pod_list = super().read_pods(namespaces)
        if isinstance(pod_list, PodList) and pod_list.cluster_wide:
            version, reducer = self.reported.look(), PodReducer(YunikornPods())
            reducer.add(self.reported.cluster.page("Pod"))
            self._reflector.learn_pods(reducer, str(version))
        return pod_list

    def keep(self) -> Reading:
        reading = self._reflector.keep(self._requests)
        if reading.trouble:
            self.world.broken.append(f"a correct server is distrusted: {reading.trouble}")
        self.world.ways[reading.way, reading.reason] += 1
        return reading

    def _judge(self, kind: str, seen: Moment) -> None:
        if seen not in self.reported.moments[kind][self.barriers[kind] :]:
            self.world.broken.append(f"a {kind} differs from all moments since the barrier: {seen}")

    def _read_cluster(self, path: str) -> object:
        with self._call("kube.read_cluster"):
            return SimpleNamespace(body=b'{"metadata":{"name":"kube-system","uid":"the-cluster"}}')

    @contextmanager
    def _open(self, access: Access, config: Config) -> Iterator[tuple[Watches, Watches]]:
        yield _Watches(self, "Node"), _Watches(self, "Pod")

    def passes(self, point: str) -> Any:
        """Wraps one call of a watch with the faults of this run."""
        return self._call(point)


class _Watches(Watches):
    def __init__(self, kube: RememberingKube, kind: str) -> None:
        super().__init__(kube.reported.cluster, kind)
        self.kube = kube

    def read_barrier(self, witness: Witness) -> tuple[int, int]:
        with self.kube.passes("kube.barrier"):
            self.kube.reported.look()
            self.kube.barriers[self.kind] = len(self.kube.reported.moments[self.kind]) - 1
            return super().read_barrier(witness)

    def begin(self, since: int) -> None:
        with self.kube.passes("kube.watch"):
            super().begin(since)

    def follow(self, log: WatchLog) -> None:
        with self.kube.passes("kube.follow"):
            self.kube.reported.look()
            super().follow(log)


def _version(node: Node) -> int:
    return int(node.resource_version)


def _document(kind: str, data: Object) -> Object:
    """Returns an object as an API server prints it."""
    value = data["value"]
    metadata = {
        "name": value.name, "uid": value.uid, "resourceVersion": str(data["version"]),
    }  # fmt: skip
    if kind == "Pod":
        return _pod_document(value, metadata)
    mark = value.mark
    notes = {} if mark is None else {
        "instance": mark.instance, "node-type": mark.node_type, "namespace": mark.namespace,
        "queue": mark.queue, "fenced": "true" if mark.fenced else "",
    }  # fmt: skip
    annotations = {f"{PREFIX}{key}": text for key, text in notes.items() if text}
    ready = {"type": "Ready", "status": "True" if value.is_ready else "False"}
    return {
        "metadata": {**metadata, "labels": value.labels, "annotations": annotations},
        "spec": {"unschedulable": value.is_cordoned},
        "status": {"allocatable": _amounts(value.allocatable), "conditions": [ready]},
    }


def _pod_document(pod: Pod, metadata: Object) -> Object:
    metadata = {**metadata, "creationTimestamp": pod.created}
    requests = _amounts(pod.shape.request)
    del requests["pods"]
    labels = {"applicationId": pod.app_id, "queue": pod.queue}
    if pod.is_terminating:
        metadata = {**metadata, "deletionTimestamp": pod.created}  # the model has no other time
    return {
        "metadata": {**metadata, "namespace": pod.namespace, "labels": labels},
        "spec": {
            "schedulerName": "yunikorn",
            "nodeName": pod.node,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running" if pod.node else "Pending"},
    }


def _amounts(resources: Mapping[str, int]) -> dict[str, str]:
    return {
        name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in resources.items()
    }
