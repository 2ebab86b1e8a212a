"""What a conversion does in Kubernetes: cordon, evict by the Eviction API, delete, label.

Stands on the Kubernetes edge of a run; its own two calls are those that a run never needs. The
imports cost more than `--list` may, so the client is made when a stage first asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlencode

import msgspec

from dnm.convert.settings import Settings
from dnm.kube.client import KubeClient
from dnm.kube.session import MERGE_PATCH
from dnm.model.cluster import Node, Pod, PodShape
from dnm.model.config import Config, Taint
from dnm.model.fault_points import fault_point
from dnm.model.value import Value

_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")


class PodOnNode(Value, frozen=True):
    """An unfinished pod as eviction sees it."""

    namespace: str
    name: str
    uid: str
    stays: bool  # of a DaemonSet, or a mirror pod: goes with the node
    is_terminating: bool
    loss: str = ""  # what an eviction would lose for good; empty: nothing

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class KubeSide(Protocol):
    """What the stages need of Kubernetes. Every method raises KubeError."""

    def read_node(self, name: str) -> Node | None: ...
    def read_pods_on(self, node: str) -> Sequence[PodOnNode]: ...
    def set_cordon(self, node: str, cordon: bool) -> None: ...
    def evict(self, pod: PodOnNode) -> str:
        """Returns "" where it is granted, else why a disruption budget does not allow it now."""

    def delete_node(self, name: str) -> None: ...
    def dress_node(self, node: Node, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        """Adds the labels and taints to those that `node` was read with."""


class _Owner(msgspec.Struct):
    kind: str
    controller: bool = False


class _PodMetadata(msgspec.Struct, rename="camel"):
    namespace: str
    name: str
    uid: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _LocalVolume(msgspec.Struct, rename="camel"):
    empty_dir: dict[str, object] | None = None


class _PodSpec(msgspec.Struct):
    volumes: list[_LocalVolume] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _PodMetadata
    spec: _PodSpec
    status: _PodStatus


class _PodList(msgspec.Struct):
    items: list[_Pod] | None = None


class KubeConnection:
    """KubeSide on a real API server."""

    def __init__(self, settings: Settings) -> None:
        """Loads the access; nothing is asked yet. Raises KubeError."""
        config = Config(
            path=settings.config_path or Path("node-convert"),
            namespaces={},
            node_types={},
            kubeconfig_path=settings.kubeconfig_path,
        )
        self.client = KubeClient.connect(config)
        self.requests = self.client.requests

    def read_node(self, name: str) -> Node | None:
        return self.client.read_node(name)

    def read_pods_on(self, node: str) -> Sequence[PodOnNode]:
        query = urlencode({"fieldSelector": f"spec.nodeName={node}"})
        with (
            self.requests.asking(f"list the pods on node {node}", "list pods"),
            fault_point("kube.list_pods"),
        ):
            body = self.requests.session.read(f"/api/v1/pods?{query}").body
            found = msgspec.json.decode(body, type=_PodList).items or []
        return [_reduce(pod) for pod in found if pod.status.phase not in _FINISHED]

    def set_cordon(self, node: str, cordon: bool) -> None:
        self.client.patch_node(node, cordon=cordon)

    def evict(self, pod: PodOnNode) -> str:
        return self.client.evict(
            Pod(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                shape=PodShape(request={}),
            )
        )

    def delete_node(self, name: str) -> None:
        self.client.delete_node(name)

    def dress_node(self, node: Node, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        metadata = {"labels": dict(labels), "resourceVersion": node.resource_version}
        patch: dict[str, object] = {"metadata": metadata}
        if taints:  # a merge patch replaces the list, hence the resource version
            patch["spec"] = {"taints": [_taint(one) for one in (*node.taints, *taints)]}
        with (
            self.requests.changing(f"label node {node.name}", "patch nodes"),
            fault_point("kube.dress_node"),
        ):
            path = f"/api/v1/nodes/{quote(node.name, safe='')}"
            self.requests.session.write("PATCH", path, msgspec.json.encode(patch), MERGE_PATCH)


def _taint(taint: Taint) -> dict[str, str]:
    found = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {key: text for key, text in found.items() if text}


def _reduce(pod: _Pod) -> PodOnNode:
    owners = [owner.kind for owner in pod.metadata.owner_references or () if owner.controller]
    is_mirror = _MIRROR in (pod.metadata.annotations or {})
    has_local_data = any(volume.empty_dir is not None for volume in pod.spec.volumes or ())
    loss = "it has no controller that would bring it back" if not owners else ""
    if not loss and has_local_data:
        loss = "its emptyDir volume would be lost"
    return PodOnNode(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        stays=is_mirror or "DaemonSet" in owners,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        loss=loss,
    )
