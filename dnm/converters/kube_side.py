"""The Kubernetes side of a conversion: cordon, evict by the Eviction API, delete, label.

It extends the Kubernetes edge of a run by calls that a run never needs. The imports take too long
for `--list`, so the client is made when a stage first needs it.
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
    """The API server as the stages need it. Its methods raise KubeError."""

    def __init__(self, settings: Settings) -> None:
        """Loads the access; sends nothing yet. Raises KubeError."""
        config = Config(
            path=settings.config_path or Path("node-convert"),
            namespaces={},
            node_types={},
            kubeconfig_path=settings.kubeconfig_path,
        )
        super().__init__(load_access(config), config)

    @property
    def node_sets(self) -> NodeSetConnection:
        """The calls that only nodeset-convert needs."""
        return NodeSetConnection(self.requests)

    @property
    def bridge(self) -> BridgeConnection:
        """The calls that only bridge-convert needs."""
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
        """Makes one change of the Node, if it is still as it was read. `taints`: all of them;
        unchanged ones are not written, so that they keep their times."""
        self.patch_node(
            node.name,
            resource_version=node.resource_version,
            cordon=False if is_uncordoned else None,
            annotations=annotations,
            labels=labels,
            taints=None if tuple(taints) == node.taints else taints,
        )
