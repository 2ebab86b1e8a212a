"""NodeResourceTopology objects: what is free on each NUMA node, as an exporter of the site says it.

Group topology.node.k8s.io, v1alpha2: one object a node, of its name. A zone of type Node has a
resource `memory` only where the kubelet's memory manager is static. What can't be read of one
object is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from dnm.demand.pod_request import MOST_RESOURCES
from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused
from dnm.kube.objects import Name
from dnm.kube.requests import ApiRequests, List
from dnm.model.errors import KubeError
from dnm.model.kubelet import Amounts
from dnm.model.quantity import QuantityError, kube_resources
from dnm.model.value import Unreadable

PATH = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
KIND = "NodeResourceTopologyList"


class _Resource(msgspec.Struct, frozen=True):
    name: str
    available: str | None = None


class _Zone(msgspec.Struct, frozen=True):
    type: str = ""
    resources: list[_Resource] | None = None


class _Topology(msgspec.Struct, frozen=True):
    metadata: Name
    zones: list[_Zone] | None = None

    @property
    def free(self) -> tuple[Amounts, ...]:
        """What is free on each NUMA node that tells it."""
        zones = (_free(zone) for zone in self.zones or () if zone.type == "Node")
        return tuple(filter(None, zones))


def _free(zone: _Zone) -> Amounts:
    found: dict[str, int] = {}
    for resource in (zone.resources or ())[:MOST_RESOURCES]:
        with suppress(QuantityError, ValueError):
            if resource.available is not None:
                found |= kube_resources({resource.name: resource.available})
    return tuple(sorted(found.items()))


def read_zones(api: ApiRequests) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
    """Returns node -> what is free on each of its NUMA nodes, where an exporter says so."""
    what = "list the NodeResourceTopology objects"
    try:
        with api.asking(what, "list noderesourcetopologies"), fault_point("kube.list_zones"):
            found = api.list_items(List(PATH, KIND), _Topology)
        return {one.metadata.name: free for one in found if (free := one.free)}
    except KubeError as error:
        if isinstance(error, ApiRefused) and error.status in (403, 404):
            return {}  # there is no such exporter, or the role does not ask it
        return Unreadable(what="NUMA nodes", error=str(error))
