"""Volume claims and their volumes: JSON in, values out."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dnm.kube.constraints import read_volume_affinity
from dnm.kube.objects import Metadata
from dnm.model.pod import Claim, NodeSelectorTerm


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
