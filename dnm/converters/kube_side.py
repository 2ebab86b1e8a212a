"""What a conversion does in Kubernetes: cordon, evict by the Eviction API, delete, label.

Stands on the Kubernetes edge of a run; its own calls are those that a run never needs. The imports
cost more than `--list` may, so the client is made when a stage first asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dnm.converters.bridge import BridgeConnection
from dnm.converters.nodeset_side import NodeSetConnection
from dnm.converters.settings import Settings
from dnm.kube.access import load_access
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.node_type import Taint


class KubeSide(KubeClient):
    """What the stages need of a real API server. What they ask raises KubeError."""

    def __init__(self, settings: Settings) -> None:
        """Loads the access; nothing is asked yet. Raises KubeError."""
        config = Config(
            path=settings.config_path or Path("node-convert"),
            namespaces={},
            node_types={},
            kubeconfig_path=settings.kubeconfig_path,
        )
        super().__init__(load_access(config), config)

    @property
    def node_sets(self) -> NodeSetConnection:
        """What only nodeset-convert needs."""
        return NodeSetConnection(self.requests)

    @property
    def bridge(self) -> BridgeConnection:
        """What only bridge-convert needs."""
        return BridgeConnection(self.requests)

    def set_cordon(self, node: str, cordon: bool) -> None:
        self.patch_node(node, cordon=cordon)

    def change(
        self,
        node: Node,
        labels: Mapping[str, str | None],
        taints: Sequence[Taint],
        is_uncordoned: bool = False,
        annotations: Mapping[str, str | None] = {},
    ) -> None:
        """Changes all of it at once, if the Node is still as `node` was read. `taints`: all; as
        they were they are not written, with the time since when each is on."""
        self.patch_node(
            node.name,
            resource_version=node.resource_version,
            cordon=False if is_uncordoned else None,
            annotations=annotations,
            labels=labels,
            taints=None if tuple(taints) == node.taints else taints,
        )
