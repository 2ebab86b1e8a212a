"""The Kubernetes client of the converters: cordon, evict by the Eviction API, delete, label.

It adds to the client of a run the calls that no run needs. Its imports take too long for `--list`,
so a stage creates the client when it first needs it."""

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
    """The Kubernetes client of the stages. Its methods raise KubeError."""

    def __init__(self, settings: Settings) -> None:
        """Loads the credentials, without a request. Raises KubeError."""
        config = Config(
            path=settings.config_path or Path("node-convert"),
            namespaces={},
            node_types={},
            kubeconfig_path=settings.kubeconfig_path,
        )
        super().__init__(load_access(config), config)

    @property
    def node_sets(self) -> NodeSetConnection:
        """Returns the client for calls that only nodeset-convert needs."""
        return NodeSetConnection(self.requests)

    @property
    def bridge(self) -> BridgeConnection:
        """Returns the client for calls that only bridge-convert needs."""
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
        """Changes the Node in one request, if it is unchanged since it was read. `taints` are all
        its taints; if they are unchanged, they are not sent and keep their times."""
        self.patch_node(
            node.name,
            resource_version=node.resource_version,
            cordon=False if is_uncordoned else None,
            annotations=annotations,
            labels=labels,
            taints=None if tuple(taints) == node.taints else taints,
        )
