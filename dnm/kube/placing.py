"""The volumes of pods and the free capacity of NUMA nodes, which also decide where pods fit.

An exporter of the site reports NUMA nodes as NodeResourceTopology objects (topology.node.k8s.io,
v1alpha2), each with the name of its node. A zone of type Node has a resource `memory` only if the
kubelet's memory manager is static. An unreadable part of an object counts as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused
from dnm.kube.objects import Name
from dnm.kube.pod_reading import VolumeAffinity
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.model.errors import KubeError
from dnm.model.kubelet import Amounts
from dnm.model.pod import MOST_RESOURCES, Claim, NodeSelectorTerm, Pod
from dnm.model.quantity import QuantityError, kube_resources
from dnm.model.value import Unreadable

_ZONES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class _Phase(msgspec.Struct, frozen=True):
    phase: str = "Pending"


class _Claim(msgspec.Struct, frozen=True):
    metadata: Name
    spec: _ClaimSpec = _ClaimSpec()
    status: _Phase = _Phase()


class _VolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: VolumeAffinity = VolumeAffinity()


class _BoundVolume(msgspec.Struct, frozen=True):
    metadata: Name
    spec: _VolumeSpec = _VolumeSpec()


def read_claims(api: ApiRequests, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
    """Returns the volume claims of unbound pods, with the node affinity of their volumes.

    Sends one LIST for each namespace, and one for volumes if a claim has one. Sends none if no pod
    names a claim. The result lacks claims that do not exist."""
    wanted = {(pod.namespace, name) for pod in pods if not pod.node for name in pod.claims}
    claims: list[_Claim] = []
    try:
        for namespace in sorted({namespace for namespace, _ in wanted}):
            claims += _list_claims(api, namespace, {name for of, name in wanted if of == namespace})
        named = {claim.spec.volume_name for claim in claims} - {""}
        affinities = _list_affinities(api, named) if named else {}
    except KubeError as error:
        return Unreadable(subject="volume claims", error=str(error))
    return tuple(
        Claim(
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            phase=claim.status.phase,
            node_affinity=affinities.get(claim.spec.volume_name, ()),
        )
        for claim in claims
    )


def _list_claims(api: ApiRequests, namespace: str, names: Set[str]) -> list[_Claim]:
    path = path_of("persistentvolumeclaims", namespace=namespace)
    claims = List(path, "PersistentVolumeClaimList")
    task = f"list the volume claims of namespace {namespace}"
    with api.asking(task, "list persistentvolumeclaims"), fault_point("kube.list_claims"):
        return api.list_items(claims, _Claim, lambda claim: claim.metadata.name in names)


def _list_affinities(api: ApiRequests, names: Set[str]) -> dict[str, tuple[NodeSelectorTerm, ...]]:
    volumes = List(path_of("persistentvolumes"), "PersistentVolumeList")
    task = "list the persistent volumes"
    with api.asking(task, "list persistentvolumes"), fault_point("kube.list_volumes"):
        bound_volumes = api.list_items(
            volumes, _BoundVolume, lambda bound_volume: bound_volume.metadata.name in names
        )
        return {
            bound_volume.metadata.name: bound_volume.spec.node_affinity.terms
            for bound_volume in bound_volumes
        }


# --- NUMA nodes ----------------------------------------------------------------------------------


class _Resource(msgspec.Struct, frozen=True):
    name: str
    available: str | int | None = None


class _Zone(msgspec.Struct, frozen=True):
    type: str = ""
    resources: list[_Resource] | None = None


class _Topology(msgspec.Struct, frozen=True):
    metadata: Name
    zones: list[_Zone] | None = None

    @property
    def free(self) -> tuple[Amounts, ...]:
        """Returns the free capacity of each NUMA node that reports any."""
        zones = (_free(zone) for zone in self.zones or () if zone.type == "Node")
        return tuple(filter(None, zones))


def _free(zone: _Zone) -> Amounts:
    amounts: dict[str, int] = {}
    for resource in (zone.resources or ())[:MOST_RESOURCES]:
        with suppress(QuantityError, ValueError):
            if resource.available is not None:
                amounts |= kube_resources({resource.name: str(resource.available)})
    return tuple(sorted(amounts.items()))


def read_zones(api: ApiRequests) -> Mapping[str, tuple[Amounts, ...]] | Unreadable:
    """Returns for each node the free capacity of its NUMA nodes, if an exporter reports it."""
    task = "list the NodeResourceTopology objects"
    try:
        with api.asking(task, "list noderesourcetopologies"), fault_point("kube.list_zones"):
            topologies = api.list_items(List(_ZONES, "NodeResourceTopologyList"), _Topology)
        return {topology.metadata.name: free for topology in topologies if (free := topology.free)}
    except KubeError as error:
        if isinstance(error, ApiRefused) and error.status in (403, 404):
            return {}  # there is no exporter, or no permission to read it
        return Unreadable(subject="NUMA nodes", error=str(error))
