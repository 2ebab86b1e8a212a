"""What a run reads of a cluster, in values of `model/`.

Reads answer with values or an `Unreadable`; what a decision was made on is read once. Each failure
becomes one sentence that names the thing and the next step. A run with nothing to do needs no more
than this; `client.py` makes changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from dnm.host.fault_points import fault_point
from dnm.kube import objects, placing
from dnm.kube.access import Access, load_access
from dnm.kube.errors import ApiRefused, ListTooLarge
from dnm.kube.nodes import read_node_page, read_one_node
from dnm.kube.objects import path_of
from dnm.kube.pods import UNFINISHED, PodReducer, make_reducer
from dnm.kube.requests import ApiRequests, List
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

_MANY_NODES = 100  # their pods are thousands: all in one answer, from servers that stream it


class ClusterReader:
    """One API server, one connection, one request at a time."""

    def __init__(self, access: Access, config: Config, reflector: Reflector | None = None) -> None:
        """`reflector`: what an earlier run has kept may be used; without, everything is listed."""
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
        """Loads the access of `config`; nothing is asked of the server yet. Raises KubeError."""
        return cls(load_access(config), config, reflector)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self.requests.access.server

    def close(self) -> None:
        self.requests.close()

    # --- the snapshot -------------------------------------------------------------------------

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        """All unfinished pods: one LIST of the cluster, or one of each of `namespaces` where the
        permissions allow no more. A namespace that can't be read does not stop the others. No LIST
        where it is proved what changed since the last one."""
        if self._reflector and self._reflector.look(self.requests):
            return self._reflector.pods
        try:
            reducer, version = self._list_pods(
                "list the pods of the cluster", path_of("pods"), UNFINISHED
            )
        except KubeError as error:
            # Somebody's pods are too many or too large: the monitored namespaces are read alone,
            # so that he holds up nobody's lending. Nothing is returned on such a look.
            is_refused = isinstance(error, ApiRefused) and error.status == 403 and namespaces
            if is_refused or isinstance(error, ListTooLarge):
                return self._read_pods_by_namespace(namespaces)
            return Unreadable(what="pods", error=str(error))
        self._pods = reducer, version
        if self._reflector is not None:
            self._reflector.learn_pods(reducer, version)
        return PodList(pods=tuple(reducer.pods), unreadable=reducer.unreadable)

    def _read_pods_by_namespace(self, namespaces: tuple[str, ...]) -> PodList:
        pods: list[Pod] = []
        unreadable: dict[str, str] = {}
        for namespace in namespaces:
            what = f"list the pods of namespace {namespace}"
            try:
                reducer, _ = self._list_pods(what, path_of("pods", namespace=namespace), UNFINISHED)
            except KubeError as error:
                unreadable[namespace] = str(error)
                continue
            pods += reducer.pods
            unreadable |= reducer.unreadable
        return PodList(pods=tuple(pods), cluster_wide=False, unreadable=unreadable)

    def _list_pods(self, what: str, path: str, selector: str) -> tuple[PodReducer, str]:
        """The pods and the list's version."""
        reducer = make_reducer(self._config)
        with self.requests.asking(what, "list pods"), fault_point("kube.list_pods"):
            is_long = self._has_many_nodes and selector == UNFINISHED
            pods = List(path, "PodList", {"fieldSelector": selector}, is_long)
            return reducer, self.requests.list_pages(pods, reducer.add, reducer.clear)

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        """All nodes, or why not even one of them is known. No LIST as with the pods."""
        if self._reflector and self._reflector.look(self.requests):
            return self._reflector.nodes
        nodes: list[Node] = []

        def take(page: memoryview) -> None:
            nodes.extend(read_node_page(page, self._config.has_kubelets))

        what = List(path_of("nodes"), "NodeList")
        asking = self.requests.asking("list the nodes", "list nodes")
        try:
            with asking, fault_point("kube.list_nodes"):
                version = self.requests.list_pages(what, take, nodes.clear)
        except KubeError as error:
            return Unreadable(what="nodes", error=str(error))
        self._has_many_nodes = len(nodes) >= _MANY_NODES
        self._nodes = tuple(nodes), version
        if self._reflector is not None:
            self._reflector.learn_nodes(*self._nodes)
        return tuple(nodes)

    def keep(self) -> Reading:
        """Keeps what was read for the next run; returns how this one has read."""
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
        """All DaemonSets whose pods can be counted, read once."""
        if self._daemon_sets is None:
            from dnm.kube.shapes import read_daemon_sets  # an idle run does not need them

            self._daemon_sets = read_daemon_sets(self.requests)
        return self._daemon_sets

    def read_claims(self, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
        """The claims that unbound pods name, with the node affinity of their volumes."""
        return placing.read_claims(self.requests, pods)

    def read_zones(self) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
        """Node -> what is free on each of its NUMA nodes, where an exporter says so."""
        return placing.read_zones(self.requests)

    # --- one thing ----------------------------------------------------------------------------

    def read_node(self, name: str) -> Node | None:
        """None: there is no such Node. Raises KubeError."""
        with self.requests.asking(f"read node {name}", "get nodes"), fault_point("kube.read_node"):
            found = self.requests.read_or_none(path_of("nodes", name))
            return None if found is None else read_one_node(found.body, name)

    def read_pods_on(self, node: str) -> tuple[Pod, ...]:
        """The unfinished pods bound to a node, of all namespaces. Raises KubeError."""
        selector = f"spec.nodeName={node},{UNFINISHED}"
        what = f"list the pods on node {node}"
        return tuple(self._list_pods(what, path_of("pods"), selector)[0].pods)

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """None: there is none. Raises KubeError."""
        what = f"read ConfigMap {namespace}/{name}"
        with self.requests.asking(what, "get configmaps"), fault_point("kube.read_config_map"):
            found = self.requests.read_or_none(path_of("configmaps", name, namespace))
            return None if found is None else self._remember(found, namespace, name)

    def _remember(self, answer: ApiAnswer, namespace: str, name: str) -> ConfigMap:
        found = objects.read_config_map(answer.body, namespace, name)
        self._originals[found.namespace, found.name, found.resource_version] = bytes(answer.body)
        return found

    def lease_object(self, namespace: str, name: str) -> LeaseObject:
        """Returns the edge to the Lease of an instance."""
        from dnm.kube.leases import LeaseObject  # converters have none

        return LeaseObject(self.requests, namespace, name)
