"""The Kubernetes edge: every verb that dnm uses, in values of `model.py`.

Reads answer with values or an `Unreadable`; what a decision was made on is read once. Whatever goes
wrong becomes one sentence that names the thing and the next step; a write whose answer was lost
says that its outcome is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

import msgspec

from dnm.kube import objects as kube_objects
from dnm.kube.access import Access, load_access
from dnm.kube.errors import ApiRefused, asking
from dnm.kube.nodes import read_node_page, read_one_node
from dnm.kube.pods import PodReducer
from dnm.kube.session import MERGE_PATCH, Session
from dnm.model.cluster import Claim, ConfigMap, Deployment, Node, Pod, PodList
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.fault_points import fault_point
from dnm.model.value import Unreadable

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
_RESTARTS = 3  # of a LIST whose continue token has expired
_CORE = "/api/v1"
_APPS = "/apis/apps/v1"


class KubeClient:
    """One API server, one connection, one request at a time."""

    def __init__(self, access: Access, config: Config) -> None:
        self._access = access
        self._config = config
        self._session = Session(access, config.request_timeout)
        self._originals: dict[tuple[str, str, str], bytes] = {}

    @classmethod
    def connect(cls, config: Config) -> KubeClient:
        """Loads the access of `config`; nothing is asked of the server yet. Raises KubeError."""
        return cls(load_access(config), config)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._access.server

    def close(self) -> None:
        self._session.close()

    # --- the snapshot -------------------------------------------------------------------------

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable:
        """All unfinished pods: one LIST of the cluster, or one of each of `namespaces` where the
        permissions allow no more. A namespace that can't be read does not stop the others."""
        try:
            reducer = self._list_pods("list the pods of the cluster", f"{_CORE}/pods", UNFINISHED)
        except ApiRefused as error:
            if error.status == 403 and namespaces:
                return self._read_pods_by_namespace(namespaces)
            return Unreadable(what="pods", error=str(error))
        except KubeError as error:
            return Unreadable(what="pods", error=str(error))
        return PodList(pods=tuple(reducer.pods), unreadable=reducer.unreadable)

    def _read_pods_by_namespace(self, namespaces: tuple[str, ...]) -> PodList:
        pods: list[Pod] = []
        unreadable: dict[str, str] = {}
        for namespace, following in zip_longest(namespaces, namespaces[1:]):
            what = f"list the pods of namespace {namespace}"
            then = _pods_path(following) if following else ""
            try:
                reducer = self._list_pods(what, _pods_path(namespace), UNFINISHED, then)
            except KubeError as error:
                unreadable[namespace] = str(error)
                continue
            pods += reducer.pods
            unreadable |= reducer.unreadable
        return PodList(pods=tuple(pods), cluster_wide=False, unreadable=unreadable)

    def _list_pods(self, what: str, path: str, selector: str, then: str = "") -> PodReducer:
        """`then` is the path that is listed next: the server is asked for it ahead."""
        reducer = PodReducer(self._config.yunikorn_queue_annotation)

        def restart() -> Callable[[memoryview], None]:
            reducer.clear()
            return reducer.add

        with self._asking(what, "list pods"), fault_point("kube.list_pods"):
            self._list(path, {"fieldSelector": selector}, restart, then)
        return reducer

    def read_nodes(self) -> tuple[Node, ...] | Unreadable:
        """All nodes, or why not even one of them is known."""
        nodes: list[Node] = []

        def restart() -> Callable[[memoryview], None]:
            nodes.clear()
            return lambda page: nodes.extend(read_node_page(page))

        try:
            with self._asking("list the nodes", "list nodes"), fault_point("kube.list_nodes"):
                self._list(f"{_CORE}/nodes", {}, restart)
        except KubeError as error:
            return Unreadable(what="nodes", error=str(error))
        return tuple(nodes)

    def read_claims(self, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
        """The claims that unbound pods name, with the node affinity of their volumes.

        One LIST for each namespace, and one of the volumes if any claim has one; nothing where no
        pod names a claim. A claim that does not exist is not in the answer.
        """
        wanted = {(pod.namespace, name) for pod in pods if not pod.node for name in pod.claims}
        reader = kube_objects.ClaimReader(wanted)
        try:
            for namespace in sorted({namespace for namespace, _ in wanted}):
                self._read_claims_of(namespace, reader)
            if reader.needs_volumes:
                what = "list the persistent volumes"
                with self._asking(what, "list persistentvolumes"), fault_point("kube.list_volumes"):
                    self._list(f"{_CORE}/persistentvolumes", {}, lambda: reader.add_volumes)
        except KubeError as error:
            return Unreadable(what="volume claims", error=str(error))
        return reader.result()

    def _read_claims_of(self, namespace: str, reader: kube_objects.ClaimReader) -> None:
        path = f"{_CORE}/namespaces/{quote(namespace, safe='')}/persistentvolumeclaims"
        what = f"list the volume claims of namespace {namespace}"
        with self._asking(what, "list persistentvolumeclaims"), fault_point("kube.list_claims"):
            self._list(path, {}, lambda: reader.add_claims)

    # --- one thing ----------------------------------------------------------------------------

    def read_node(self, name: str) -> Node | None:
        """None: there is no such Node. Raises KubeError."""
        with self._asking(f"read node {name}", "get nodes"), fault_point("kube.read_node"):
            body = self._read_or_none(_node_path(name))
            return None if body is None else read_one_node(body)

    def read_pods_on(self, node: str) -> tuple[Pod, ...]:
        """The unfinished pods bound to a node, of all namespaces. Raises KubeError."""
        selector = f"spec.nodeName={node},{UNFINISHED}"
        what = f"list the pods on node {node}"
        return tuple(self._list_pods(what, f"{_CORE}/pods", selector).pods)

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """None: there is none. Raises KubeError."""
        what = f"read ConfigMap {namespace}/{name}"
        with self._asking(what, "get configmaps"), fault_point("kube.read_config_map"):
            body = self._read_or_none(_config_map_path(namespace, name))
            return None if body is None else self._remember(body)

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap:
        """Replaces data, binaryData and annotations by exactly those given, under the given
        resource version; every other field stays. Returns what stands there now.

        Raises KubeConflict if somebody wrote in between, KubeError otherwise.
        """
        namespace, name = config_map.namespace, config_map.name
        key = (namespace, name, config_map.resource_version)
        if key not in self._originals:
            self.read_config_map(namespace, name)
        if key not in self._originals:
            raise KubeConflict(
                f"can't write ConfigMap {namespace}/{name}: it is no longer at version "
                f"{config_map.resource_version}, read it again"
            )
        body = kube_objects.write_config_map(self._originals[key], config_map)
        what = f"write ConfigMap {namespace}/{name}"
        with self._changing(what, "update configmaps"), fault_point("kube.write_config_map"):
            answer = self._session.write("PUT", _config_map_path(namespace, name), body)
            return self._remember(answer.body)

    def _remember(self, body: memoryview) -> ConfigMap:
        found = kube_objects.read_config_map(body)
        self._originals[found.namespace, found.name, found.resource_version] = bytes(body)
        return found

    def patch_node(
        self,
        name: str,
        *,
        resource_version: str | None = None,
        cordon: bool | None = None,
        annotations: Mapping[str, str | None] = {},
    ) -> None:
        """Sets or (None) removes annotations, cordons or uncordons; the rest stays as it is.

        Raises KubeConflict if the Node is no longer at `resource_version`, KubeError otherwise.
        """
        metadata: dict[str, Any] = {}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if resource_version is not None:
            metadata["resourceVersion"] = resource_version
        patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
        if cordon is not None:
            patch["spec"] = {"unschedulable": True if cordon else None}
        body = msgspec.json.encode(patch)
        with self._changing(f"patch node {name}", "patch nodes"), fault_point("kube.patch_node"):
            self._session.write("PATCH", _node_path(name), body, MERGE_PATCH)

    def delete_node(self, name: str) -> bool:
        """Removes the Node object; False: there was none. Raises KubeError."""
        with self._changing(f"delete node {name}", "delete nodes"), fault_point("kube.delete_node"):
            return self._write_or_none("DELETE", _node_path(name)) is not None

    def evict(self, pod: Pod) -> str:
        """Asks for the eviction of a pod. Empty: it is granted or the pod is gone, and the pod may
        need its grace period still; else why a disruption budget does not allow it now."""
        path = f"{_pods_path(pod.namespace)}/{quote(pod.name, safe='')}/eviction"
        metadata = {"name": pod.name, "namespace": pod.namespace}
        eviction: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": metadata,
        }
        if pod.uid:
            eviction["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
        body = msgspec.json.encode(eviction)
        what = f"evict pod {pod.namespace}/{pod.name}"
        try:
            with self._changing(what, "create pods/eviction"), fault_point("kube.evict"):
                self._session.write("POST", path, body, is_throttled=False)
        except KubeConflict:
            return ""  # another pod has the name by now: this one is gone
        except ApiRefused as error:
            if error.status == 404:
                return ""
            if error.status == 429:
                return error.message or "a disruption budget does not allow it now"
            raise
        return ""

    # --- what `dnm check` asks ----------------------------------------------------------------

    def can_i(
        self,
        verb: str,
        resource: str,
        namespace: str,
        group: str = "",
        subresource: str = "",
        name: str = "",
    ) -> bool:
        """SelfSubjectAccessReview; an empty namespace asks for the whole cluster, an empty name for
        every object."""
        attributes = {
            "verb": verb,
            "resource": resource,
            "namespace": namespace,
            "group": group,
            "subresource": subresource,
            "name": name,
        }
        body = msgspec.json.encode(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
        )
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        rule = "create selfsubjectaccessreviews"
        with self._asking(f"ask whether it may {verb} {resource}", rule), fault_point("kube.can_i"):
            return kube_objects.read_review(self._session.ask(path, body).body)

    def version(self) -> str:
        """The server's version, e.g. v1.33.1. Raises KubeError."""
        with self._asking("ask for the version", "get /version"), fault_point("kube.version"):
            return kube_objects.read_version(self._session.read("/version").body)

    def server_time(self) -> datetime:
        """The server's clock, to the second. Raises KubeError."""
        with self._asking("ask for the time", "get /version"), fault_point("kube.server_time"):
            date = self._session.read("/version").date
            try:
                return parsedate_to_datetime(date).astimezone(UTC)
            except (TypeError, ValueError) as error:
                raise ValueError(f"its header Date is {date!r}") from error

    # --- Deployments of the validation load ---------------------------------------------------

    def create_deployment(self, namespace: str, body: Mapping[str, Any]) -> Deployment:
        """Creates from the object's JSON form. Raises KubeConflict if the name is taken."""
        encoded = msgspec.json.encode(body)
        what = f"create a Deployment in namespace {namespace}"
        with self._changing(what, "create deployments"), fault_point("kube.create_deployment"):
            answer = self._session.write("POST", _deployments_path(namespace), encoded)
            return kube_objects.read_deployment(answer.body)

    def list_deployments(self, namespace: str, label_selector: str) -> tuple[Deployment, ...]:
        """Those with the labels. Raises KubeError."""
        found: list[Deployment] = []

        def restart() -> Callable[[memoryview], None]:
            found.clear()
            return lambda page: found.extend(kube_objects.read_deployments(page))

        what = f"list the Deployments of namespace {namespace}"
        with self._asking(what, "list deployments"), fault_point("kube.list_deployments"):
            self._list(_deployments_path(namespace), {"labelSelector": label_selector}, restart)
        return tuple(found)

    def scale_deployment(self, namespace: str, name: str, replicas: int) -> Deployment:
        """Sets the number of replicas. Raises KubeError."""
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        path = f"{_deployments_path(namespace)}/{quote(name, safe='')}"
        what = f"scale Deployment {namespace}/{name}"
        with self._changing(what, "patch deployments"), fault_point("kube.scale_deployment"):
            answer = self._session.write("PATCH", path, body, MERGE_PATCH)
            return kube_objects.read_deployment(answer.body)

    def delete_deployment(self, namespace: str, name: str) -> bool:
        """With its pods; False: there was none. Raises KubeError."""
        path = f"{_deployments_path(namespace)}/{quote(name, safe='')}"
        what = f"delete Deployment {namespace}/{name}"
        with self._changing(what, "delete deployments"), fault_point("kube.delete_deployment"):
            return self._write_or_none("DELETE", path) is not None

    # --- how ----------------------------------------------------------------------------------

    def _asking(self, what: str, rule: str) -> AbstractContextManager[None]:
        return asking(self._access, what, rule)

    def _changing(self, what: str, rule: str) -> AbstractContextManager[None]:
        return asking(self._access, what, rule, is_write=True)

    def _list(
        self,
        path: str,
        query: Mapping[str, str],
        restart: Callable[[], Callable[[memoryview], None]],
        then: str = "",
    ) -> None:
        """All pages of a LIST. Where its token expires it starts over: `restart` forgets what was
        collected and says who takes the pages."""
        for attempt in range(_RESTARTS):
            take = restart()
            try:
                with closing(self._session.pages(path, query, then)) as pages:
                    for page in pages:
                        take(page)
                return
            except ApiRefused as error:
                if error.status != 410 or attempt == _RESTARTS - 1:
                    raise

    def _read_or_none(self, path: str) -> memoryview | None:
        try:
            return self._session.read(path).body
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise

    def _write_or_none(self, method: str, path: str) -> memoryview | None:
        try:
            return self._session.write(method, path, b'{"propagationPolicy":"Background"}').body
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise


def _node_path(name: str) -> str:
    return f"{_CORE}/nodes/{quote(name, safe='')}"


def _pods_path(namespace: str) -> str:
    return f"{_CORE}/namespaces/{quote(namespace, safe='')}/pods"


def _config_map_path(namespace: str, name: str) -> str:
    return f"{_CORE}/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"


def _deployments_path(namespace: str) -> str:
    return f"{_APPS}/namespaces/{quote(namespace, safe='')}/deployments"
