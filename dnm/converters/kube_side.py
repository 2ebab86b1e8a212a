"""What a conversion does in Kubernetes: cordon, evict by the Eviction API, delete, label.

Stands on the Kubernetes edge of a run; its own two calls are those that a run never needs. The
imports cost more than `--list` may, so the client is made when a stage first asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from dnm.converters.settings import Settings
from dnm.host.fault_points import fault_point
from dnm.kube.client import KubeClient
from dnm.kube.nodes import taint_fields
from dnm.kube.session import MERGE_PATCH
from dnm.model.config import Config
from dnm.model.eviction import PodOnNode
from dnm.model.node import Node
from dnm.model.node_type import Taint

if TYPE_CHECKING:
    from dnm.converters.bridge_side import BridgeConnection
    from dnm.converters.nodeset_side import NodeSetConnection


class KubeSide:
    """What the stages need of a real API server. Every method raises KubeError."""

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

    @property
    def node_sets(self) -> NodeSetConnection:
        """What programs need whose machines are always Nodes."""
        from dnm.converters.nodeset_side import NodeSetConnection  # which only its program pays for

        return NodeSetConnection(self.requests)

    @property
    def bridge(self) -> BridgeConnection:
        """What only bridge-convert needs."""
        from dnm.converters.bridge_side import BridgeConnection

        return BridgeConnection(self.requests)

    def read_node(self, name: str) -> Node | None:
        return self.client.read_node(name)

    def read_pods_on(self, node: str) -> Sequence[PodOnNode]:
        return self.client.read_pods_to_evict(node)

    def set_cordon(self, node: str, cordon: bool) -> None:
        self.client.patch_node(node, cordon=cordon)

    def evict(self, pod: PodOnNode) -> str:
        """Returns "" where it is granted, else why a disruption budget does not allow it now."""
        return self.client.evict(pod)

    def delete_node(self, name: str) -> None:
        self.client.delete_node(name)

    def dress_node(self, node: Node, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        """Adds the labels and taints to those that `node` was read with."""
        metadata = {"labels": dict(labels), "resourceVersion": node.resource_version}
        patch: dict[str, object] = {"metadata": metadata}
        if taints:  # a merge patch replaces the list, hence the resource version
            patch["spec"] = {"taints": [taint_fields(one) for one in (*node.taints, *taints)]}
        with (
            self.requests.changing(f"label node {node.name}", "patch nodes"),
            fault_point("kube.dress_node"),
        ):
            path = f"/api/v1/nodes/{quote(node.name, safe='')}"
            self.requests.session.write("PATCH", path, patch, MERGE_PATCH)
