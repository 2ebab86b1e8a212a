"""What bridge-convert reads in Kubernetes beside `kube_side.py`: Nodes with the annotations of
slurm-bridge, and with our own of what was taken off them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from dnm.converters.bridge import BridgedNode, Taken
from dnm.host.fault_points import fault_point
from dnm.kube.lists import List
from dnm.kube.nodes import MARK_PREFIX, read_node_page, read_one_node
from dnm.kube.requests import ApiRequests
from dnm.model.node import Node
from dnm.model.slinky import PARTITIONS

TAKEN = f"{MARK_PREFIX}taken-from-slurm-bridge"
_NODES = "/api/v1/nodes"


class _Annotations(msgspec.Struct, rename={"partitions": PARTITIONS, "taken": TAKEN}, frozen=True):
    partitions: str | None = None
    taken: str | None = None


class _Metadata(msgspec.Struct, frozen=True):
    annotations: _Annotations | None = None


class _Annotated(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Page(msgspec.Struct, frozen=True):
    items: list[_Annotated]


def write_taken(taken: Taken) -> str:
    """Returns it as the annotation has it."""
    return msgspec.json.encode(taken).decode()


def _make(node: Node, annotated: _Annotated) -> BridgedNode:
    found = annotated.metadata.annotations or _Annotations()
    return BridgedNode(node=node, partitions=found.partitions, taken=_read_taken(found.taken))


def _read_taken(text: str | None) -> Taken | None:
    """What can't be read was written by somebody else: it counts for nothing."""
    try:
        return msgspec.json.decode(text, type=Taken) if text else None
    except msgspec.MsgspecError:
        return None


def read_bridged_page(page: memoryview | bytes) -> list[BridgedNode]:
    """Returns the nodes of a page."""
    annotated = msgspec.json.decode(page, type=_Page).items
    return [_make(node, one) for node, one in zip(read_node_page(page), annotated, strict=True)]


class BridgeConnection:
    """What the stages need of a real API server. Every method raises KubeError."""

    def __init__(self, requests: ApiRequests) -> None:
        self.requests = requests

    def read_node(self, name: str) -> BridgedNode | None:
        with self.requests.asking(f"read node {name}", "get nodes"), fault_point("kube.bridged"):
            found = self.requests.read_or_none(f"{_NODES}/{quote(name, safe='')}")
            if found is None:
                return None
            annotated = msgspec.json.decode(found.body, type=_Annotated)
            return _make(read_one_node(found.body, name), annotated)

    def read_nodes(self) -> Sequence[BridgedNode]:
        with self.requests.asking("list the Nodes", "list nodes"), fault_point("kube.bridged"):
            return self.requests.collect(List(_NODES, "NodeList"), read_bridged_page)
