"""Volume claims and their volumes: JSON in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.constraints import read_volume_affinity
from dnm.kube.lists import List
from dnm.kube.objects import Metadata
from dnm.kube.requests import ApiRequests
from dnm.model.errors import KubeError
from dnm.model.pod import Claim, NodeSelectorTerm, Pod
from dnm.model.value import Unreadable

_CORE = "/api/v1"


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class _Phase(msgspec.Struct, frozen=True):
    phase: str = "Pending"


class _Claim(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _ClaimSpec = _ClaimSpec()
    status: _Phase = _Phase()


class _ClaimPage(msgspec.Struct, frozen=True):
    items: list[_Claim]


class _VolumeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: msgspec.Raw = msgspec.Raw()


class _BoundVolume(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _VolumeSpec = _VolumeSpec()


class _VolumePage(msgspec.Struct, frozen=True):
    items: list[_BoundVolume]


class ClaimReader:
    """Collects the wanted claims of several lists, then the affinities of their volumes."""

    def __init__(self, wanted: Iterable[tuple[str, str]]) -> None:
        self._wanted = frozenset(wanted)
        self._claims: dict[tuple[str, str], _Claim] = {}
        self._affinities: dict[str, tuple[NodeSelectorTerm, ...]] = {}

    def add_claims(self, page: memoryview | bytes) -> None:
        for claim in msgspec.json.decode(page, type=_ClaimPage).items:
            key = (claim.metadata.namespace, claim.metadata.name)
            if key in self._wanted:
                self._claims[key] = claim

    @property
    def needs_volumes(self) -> bool:
        return any(claim.spec.volume_name for claim in self._claims.values())

    def add_volumes(self, page: memoryview | bytes) -> None:
        needed = {claim.spec.volume_name for claim in self._claims.values()}
        for volume in msgspec.json.decode(page, type=_VolumePage).items:
            if volume.metadata.name in needed:
                raw = bytes(volume.spec.node_affinity)
                self._affinities[volume.metadata.name] = read_volume_affinity(raw)

    def result(self) -> tuple[Claim, ...]:
        return tuple(
            Claim(
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                phase=claim.status.phase,
                node_affinity=self._affinities.get(claim.spec.volume_name, ()),
            )
            for claim in self._claims.values()
        )


def read_claims(api: ApiRequests, pods: Sequence[Pod]) -> tuple[Claim, ...] | Unreadable:
    """Returns the claims that unbound pods name, with the node affinity of their volumes.

    One LIST for each namespace, and one of the volumes if any claim has one; nothing where no
    pod names a claim. A claim that does not exist is not in the answer.
    """
    wanted = {(pod.namespace, name) for pod in pods if not pod.node for name in pod.claims}
    reader = ClaimReader(wanted)
    try:
        for namespace in sorted({namespace for namespace, _ in wanted}):
            _read_claims_of(api, namespace, reader)
        if reader.needs_volumes:
            what = "list the persistent volumes"
            with (
                api.asking(what, "list persistentvolumes"),
                fault_point("kube.list_volumes"),
            ):
                volumes = List(f"{_CORE}/persistentvolumes", "PersistentVolumeList")
                api.list_pages(volumes, lambda: reader.add_volumes)
    except KubeError as error:
        return Unreadable(what="volume claims", error=str(error))
    return reader.result()


def _read_claims_of(api: ApiRequests, namespace: str, reader: ClaimReader) -> None:
    path = f"{_CORE}/namespaces/{quote(namespace, safe='')}/persistentvolumeclaims"
    what = f"list the volume claims of namespace {namespace}"
    with (
        api.asking(what, "list persistentvolumeclaims"),
        fault_point("kube.list_claims"),
    ):
        claims = List(path, "PersistentVolumeClaimList")
        api.list_pages(claims, lambda: reader.add_claims)
