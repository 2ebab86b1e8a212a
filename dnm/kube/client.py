"""The writes of a run to Kubernetes. `cluster_reader.py` has its reads.

Each failure becomes a sentence that names the object and the next step. If the answer to a write is
lost, the sentence states that its outcome is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dnm.host.fault_points import fault_point
from dnm.kube import objects
from dnm.kube.cluster_reader import ClusterReader
from dnm.kube.events import create_event
from dnm.kube.objects import check_kind
from dnm.kube.queue_clients import QueueClients
from dnm.kube.requests import ApiRequests, path_of
from dnm.kube.session import MERGE_PATCH
from dnm.model.cluster import ConfigMap, KubeEvent
from dnm.model.errors import KubeConflict
from dnm.model.node_type import Taint
from dnm.model.pod import Pod

if TYPE_CHECKING:
    from dnm.kube.state import StateObjects
    from dnm.model.cluster import PodOnNode

_EVENT_TIMEOUT = timedelta(seconds=5)


class KubeClient(ClusterReader, QueueClients):
    """A client that reads and changes objects of one API server."""

    _events: ApiRequests | None = None  # on its own connection, with a shorter time-out

    def close(self) -> None:
        super().close()
        if self._events is not None:
            self._events.close()

    def write_config_map(self, config_map: ConfigMap, *, dry_run: bool = False) -> ConfigMap:
        """Replaces data, binaryData and annotations if the object is still at the version of
        `config_map`, and keeps its other fields. Returns the new object. With `dry_run`, the server
        and its admission webhooks only check the write.

        Raises KubeConflict if another client wrote in between, KubeError otherwise."""
        namespace, name = config_map.namespace, config_map.name
        key = (namespace, name, config_map.resource_version)
        if key not in self._originals:
            self.read_config_map(namespace, name)
        if key not in self._originals:
            raise KubeConflict(
                f"can't write ConfigMap {namespace}/{name}: it is no longer at version "
                f"{config_map.resource_version}, read it again"
            )
        body = objects.write_config_map(self._originals[key], config_map)
        task = f"write ConfigMap {namespace}/{name}"
        changing = self.requests.changing(task, "update configmaps")
        with changing, fault_point("kube.write_config_map"):
            path = path_of("configmaps", name, namespace) + ("?dryRun=All" if dry_run else "")
            answer = self.requests.session.write("PUT", path, body)
            return config_map if dry_run else self._remember(answer, namespace, name)

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
        """Changes the given parts of a Node. A label or annotation of None is removed; `taints`
        replaces all taints. Everything else stays.

        Raises KubeConflict if the Node is no longer at `resource_version`, KubeError otherwise. If
        `resource_version` is None, repeats the change if another client writes the Node in between.
        """
        metadata: dict[str, Any] = {}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        if resource_version is not None:
            metadata["resourceVersion"] = resource_version
        patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
        if cordon is not None:
            patch["spec"] = {"unschedulable": True if cordon else None}
        if taints is not None:
            spec = patch.setdefault("spec", {})
            spec["taints"] = [_taint_fields(taint) for taint in taints] or None
        path = path_of("nodes", name)

        def change() -> None:
            changing = self.requests.changing(f"patch node {name}", "patch nodes")
            with changing, fault_point("kube.patch_node"):
                answer = self.requests.session.write("PATCH", path, patch, MERGE_PATCH)
                check_kind(answer.body, "Node")

        if resource_version is None:
            self.requests.change_node(change)
        else:
            change()

    def state_objects(self, namespace: str, lease_namespace: str, name: str) -> StateObjects:
        """Returns the client of an instance's Lease and of its registry in Kubernetes."""
        from dnm.kube.state import StateObjects  # only with `registry = kubernetes`

        return StateObjects(self.requests, namespace, lease_namespace, name)

    def create_event(self, event: KubeEvent) -> None:
        """Creates an Event and waits for a few seconds at most. Raises KubeError."""
        if self._events is None:
            timeout = min(self._config.request_timeout, _EVENT_TIMEOUT)
            self._events = ApiRequests(self.requests.access, timeout)
        create_event(self._events, event, self._config.instance_id)

    def delete_node(self, name: str) -> bool:
        """Deletes the Node object. Returns False if there was none. Raises KubeError."""
        changing = self.requests.changing(f"delete node {name}", "delete nodes")
        with changing, fault_point("kube.delete_node"):
            return self.requests.delete(path_of("nodes", name), "Node")

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]:
        """Returns the unfinished pods on a node with the fields for eviction. Raises KubeError."""
        from dnm.kube import eviction  # few runs evict pods

        return eviction.read_pods_to_evict(self.requests, node)

    def evict(self, pod: Pod | PodOnNode, *, is_dry_run: bool = False) -> str:
        """Requests the eviction of a pod, which keeps its grace period. Returns an empty text if
        the eviction is granted or the pod is gone, otherwise why a disruption budget forbids it."""
        from dnm.kube import eviction

        return eviction.evict(self.requests, pod, is_dry_run=is_dry_run)


def _taint_fields(taint: Taint) -> dict[str, str]:
    """Returns a taint as a JSON object of the API."""
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {key: text for key, text in fields.items() if text}
