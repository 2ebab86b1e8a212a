"""The reads of a run from the cluster, as values of `model/`.

Each read returns values or an `Unreadable`, and a run reads each fact once. Each failure becomes a
sentence that names the object and the next step. A run without changes needs only this module;
`client.py` makes changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from dnm.host.fault_points import fault_point
from dnm.kube import objects, placing
from dnm.kube.access import Access, load_access
from dnm.kube.errors import ApiRefused, ListTooLarge
from dnm.kube.nodes import read_node_body, read_node_page
from dnm.kube.pods import UNFINISHED, PodReducer, make_reducer
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.kube.session import ApiAnswer
from dnm.model.cluster import ConfigMap, Reading
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.kubelet import Amounts
from dnm.model.node import Node
from dnm.model.pod import Claim, DaemonSet, Pod, PodList
from dnm.model.value import Unreadable

if TYPE_CHECKING:
    from dnm.kube.leases import LeaseObject
    from dnm.kube.reflector import Reflector

_MANY_NODES = 100  # then there are thousands of pods: read in one answer if the server streams it


class ClusterReader:
    """The reads of a run from one API server, on one connection, one request at a time."""

    def __init__(self, access: Access, config: Config, reflector: Reflector | None = None) -> None:
        """`reflector` has the objects of an earlier run. Without it, this run lists all objects."""
        self.requests = ApiRequests(access, config.request_timeout)
        self._config = config
        self._reflector = reflector
        self._has_many_nodes = False
        self._nodes: tuple[tuple[Node, ...], str] | None = None  # as listed, with the version
        self._pods: tuple[PodReducer, str] | None = None
        self._daemon_sets: tuple[DaemonSet, ...] | Unreadable | None = None
        self._originals: dict[tuple[str, str, str], bytes] = {}

    @classmethod
    def connect(cls, config: Config, reflector: Reflector | None = None) -> Self:
        """Loads the access of `config` without a request to the server. Raises KubeError."""
        return cls(load_access(config), config, reflector)

    @property
    def server(self) -> str:
        """Returns the URL of the API server."""
        return self.requests.access.server

    def close(self) -> None:
        self.requests.close()

    # --- the snapshot -------------------------------------------------------------------------

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        """Returns all unfinished pods from one LIST of the cluster, or from one for each of
        `namespaces` if more is forbidden or too large. An unreadable namespace does not stop the
        others. Sends no LIST if a watch has proved all changes since the last run."""
        if self._reflector and self._reflector.look(self.requests):
            return self._reflector.pods
        try:
            reducer, version = self._list_pods(
                "list the pods of the cluster", path_of("pods"), UNFINISHED
            )
        except KubeError as error:
            # The pods of one tenant are too many or too large. dnm reads only the monitored
            # namespaces, so that lending for other tenants continues, and returns no node.
            is_refused = isinstance(error, ApiRefused) and error.status == 403 and namespaces
            if is_refused or isinstance(error, ListTooLarge):
                return self._read_pods_by_namespace(namespaces)
            return Unreadable(subject="pods", error=str(error))
        self._pods = reducer, version
        if self._reflector is not None:
            self._reflector.learn_pods(reducer, version)
        return PodList(pods=tuple(reducer.pods), unreadable=reducer.unreadable)

    def _read_pods_by_namespace(self, namespaces: tuple[str, ...]) -> PodList:
        from dnm.kube.namespace_reads import read_each  # few sites forbid the LIST of all pods

        def read(namespace: str) -> PodReducer:
            task = f"list the pods of namespace {namespace}"
            return self._list_pods(task, path_of("pods", namespace=namespace), UNFINISHED)[0]

        reducers, unreadable = read_each(self.requests, namespaces, read)
        pods = tuple(pod for reducer in reducers.values() for pod in reducer.pods)
        unreadable |= {n: why for r in reducers.values() for n, why in r.unreadable.items()}
        return PodList(pods=pods, cluster_wide=False, unreadable=unreadable)

    def _list_pods(self, task: str, path: str, selector: str) -> tuple[PodReducer, str]:
        """Returns the pods of one LIST and the version of the list."""
        reducer = make_reducer(self._config)
        with self.requests.asking(task, "list pods"), fault_point("kube.list_pods"):
            is_long = self._has_many_nodes and selector == UNFINISHED
            pods = List(path, "PodList", {"fieldSelector": selector}, is_long)
            return reducer, self.requests.list_pages(pods, reducer.add, reducer.clear)

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        """Returns all nodes or the error. Sends no LIST if a watch has proved all changes."""
        if self._reflector and self._reflector.look(self.requests):
            return self._reflector.nodes
        nodes: list[Node] = []

        def take(page: memoryview) -> None:
            nodes.extend(read_node_page(page, self._config.has_kubelets))

        listing = List(path_of("nodes"), "NodeList")
        asking = self.requests.asking("list the nodes", "list nodes")
        try:
            with asking, fault_point("kube.list_nodes"):
                version = self.requests.list_pages(listing, take, nodes.clear)
        except KubeError as error:
            return Unreadable(subject="nodes", error=str(error))
        self._has_many_nodes = len(nodes) >= _MANY_NODES
        self._nodes = tuple(nodes), version
        if self._reflector is not None:
            self._reflector.learn_nodes(*self._nodes)
        return tuple(nodes)

    def keep(self) -> Reading:
        """Stores nodes and pods for the next run. Returns how this run has read them."""
        if self._reflector is not None:
            return self._reflector.keep(self.requests)
        least = self._config.watch_from_pods
        if self._nodes is None or self._pods is None:
            return Reading(reason="partial", sentence="not all of the cluster was listed")
        if len(self._pods[0].pods) < least:
            return Reading(reason="small", sentence=f"there are fewer than {least:,} pods")
        from dnm.kube.reflector import Reflector  # the first run of a large cluster

        first = Reflector(self._config, datetime.now(UTC))
        first.look(self.requests)
        first.learn_nodes(*self._nodes)
        first.learn_pods(*self._pods)
        return first.keep(self.requests)

    def read_daemon_sets(self) -> tuple[DaemonSet, ...] | Unreadable:
        """Returns the DaemonSets with pods that dnm can count. A run reads them only once."""
        if self._daemon_sets is None:
            from dnm.kube.shapes import read_daemon_sets  # an idle run does not need them

            self._daemon_sets = read_daemon_sets(self.requests)
        return self._daemon_sets

    def read_claims(self, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
        """Returns the volume claims of unbound pods, with the node affinity of their volumes."""
        return placing.read_claims(self.requests, pods)

    def read_zones(self) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
        """Returns for each node the free capacity of its NUMA nodes, if an exporter reports it."""
        return placing.read_zones(self.requests)

    # --- one thing ----------------------------------------------------------------------------

    def read_node(self, name: str) -> Node | None:
        """Returns the Node, or None if it does not exist. Raises KubeError."""
        with self.requests.asking(f"read node {name}", "get nodes"), fault_point("kube.read_node"):
            answer = self.requests.read_or_none(path_of("nodes", name))
            return None if answer is None else read_node_body(answer.body, name)

    def read_pods_on(self, node: str) -> tuple[Pod, ...]:
        """Returns the unfinished pods on a node, of all namespaces. Raises KubeError."""
        selector = f"spec.nodeName={node},{UNFINISHED}"
        task = f"list the pods on node {node}"
        return tuple(self._list_pods(task, path_of("pods"), selector)[0].pods)

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Returns the ConfigMap, or None if it does not exist. Raises KubeError."""
        task = f"read ConfigMap {namespace}/{name}"
        with self.requests.asking(task, "get configmaps"), fault_point("kube.read_config_map"):
            answer = self.requests.read_or_none(path_of("configmaps", name, namespace))
            return None if answer is None else self._remember(answer, namespace, name)

    def _remember(self, answer: ApiAnswer, namespace: str, name: str) -> ConfigMap:
        fresh = objects.read_config_map(answer.body, namespace, name)
        self._originals[fresh.namespace, fresh.name, fresh.resource_version] = bytes(answer.body)
        return fresh

    def lease_object(self, namespace: str, name: str) -> LeaseObject:
        """Returns the client of an instance's Lease."""
        from dnm.kube.leases import LeaseObject  # converters need none

        return LeaseObject(self.requests, namespace, name)
