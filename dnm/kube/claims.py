"""Volume claims and their volumes: JSON in, values out."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.objects import Name, path_of
from dnm.kube.pod_reading import VolumeAffinity
from dnm.kube.requests import ApiRequests, List
from dnm.model.errors import KubeError
from dnm.model.pod import Claim, NodeSelectorTerm, Pod
from dnm.model.value import Unreadable


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
    """Returns the claims that unbound pods name, with the node affinity of their volumes.

    One LIST for each namespace, and one of the volumes if any claim has one; nothing where no
    pod names a claim. A claim that does not exist is not in the answer.
    """
    wanted = {(pod.namespace, name) for pod in pods if not pod.node for name in pod.claims}
    claims: list[_Claim] = []
    try:
        for namespace in sorted({namespace for namespace, _ in wanted}):
            claims += _list_claims(api, namespace, {name for of, name in wanted if of == namespace})
        named = {claim.spec.volume_name for claim in claims} - {""}
        affinities = _list_affinities(api, named) if named else {}
    except KubeError as error:
        return Unreadable(what="volume claims", error=str(error))
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
    what = f"list the volume claims of namespace {namespace}"
    with api.asking(what, "list persistentvolumeclaims"), fault_point("kube.list_claims"):
        return api.list_items(claims, _Claim, lambda one: one.metadata.name in names)


def _list_affinities(api: ApiRequests, names: Set[str]) -> dict[str, tuple[NodeSelectorTerm, ...]]:
    volumes = List(path_of("persistentvolumes"), "PersistentVolumeList")
    what = "list the persistent volumes"
    with api.asking(what, "list persistentvolumes"), fault_point("kube.list_volumes"):
        found = api.list_items(volumes, _BoundVolume, lambda one: one.metadata.name in names)
        return {one.metadata.name: one.spec.node_affinity.terms for one in found}
