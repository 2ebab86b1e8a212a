"""NodeResourceTopology objects: what is free on each NUMA node, as an exporter of the site says it.

Group topology.node.k8s.io, v1alpha2: one object a node, of its name. A zone of type Node has a
resource `memory` only where the kubelet's memory manager is static. What can't be read of one
object is not there.
"""

from __future__ import annotations

import msgspec

from dnm.model.quantity import QuantityError, parse_kubernetes

PATH = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
KIND = "NodeResourceTopologyList"


class _Resource(msgspec.Struct, frozen=True):
    name: str
    available: str | None = None


class _Zone(msgspec.Struct, frozen=True):
    type: str = ""
    resources: list[_Resource] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str


class _Topology(msgspec.Struct, frozen=True):
    metadata: _Metadata
    zones: list[_Zone] | None = None


class _Page(msgspec.Struct, frozen=True):
    items: list[_Topology]


_decode_page = msgspec.json.Decoder(_Page).decode


def read_zone_page(page: memoryview | bytes) -> dict[str, tuple[int, ...]]:
    """Returns node -> free memory of each of its NUMA nodes that tells it. Raises
    msgspec.MsgspecError."""
    found = {}
    for topology in _decode_page(page).items:
        free = [
            amount
            for zone in topology.zones or ()
            if zone.type == "Node"
            for resource in zone.resources or ()
            if resource.name == "memory" and (amount := _amount(resource.available)) is not None
        ]
        if free:
            found[topology.metadata.name] = tuple(free)
    return found


def _amount(text: str | None) -> int | None:
    try:
        return None if text is None else parse_kubernetes("memory", text)
    except (QuantityError, ValueError):
        return None
