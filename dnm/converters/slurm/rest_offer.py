"""Which version of its API slurmrestd is asked in, and what that can change. Pure.

The newest that both know and that hides no state: one that hides one would have a busy or a foreign
node look idle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from dnm.converters.slurm.rest_body import decode
from dnm.model.errors import SlurmError

OLDEST, NEWEST = 38, 45  # v0.0.37 (Slurm 21.08) and before hide states


class _Info(msgspec.Struct):
    version: str = ""  # Slurm-24.11.5&openapi/slurmctld


class _Specification(msgspec.Struct):
    paths: Mapping[str, Mapping[str, msgspec.Raw]]
    info: _Info = msgspec.field(default_factory=_Info)


class Offer(msgspec.Struct, frozen=True):
    """The API version to speak, and what it can change: (method, path below the version)."""

    version: str
    methods: frozenset[tuple[str, str]]

    def can(self, method: str, path: str) -> bool:
        return (method, path) in self.methods


_specification = msgspec.json.Decoder(_Specification)


def choose_version(body: bytes, newest: int = NEWEST) -> Offer:
    """Returns the newest version that both slurmrestd and dnm know, of the answer to `/openapi/v3`.
    Raises SlurmError with the way, where there is none."""
    specification = decode(_specification, body, "openapi/v3")
    found: dict[int, set[tuple[str, str]]] = {}
    for path, methods in specification.paths.items():
        if match := re.fullmatch(r"/slurm/v0\.0\.([0-9]{1,4})/([^/]+)(/.*)?", path):
            below = match[2] + ("/" if (match[3] or "").strip("/") else "")
            known = found.setdefault(int(match[1]), set())
            known.update((method.upper(), below) for method in methods)
    hidden = _hiding(specification.info.version)
    if usable := [one for one in found if OLDEST <= one <= newest and one not in hidden]:
        return Offer(version=f"v0.0.{max(usable)}", methods=frozenset(found[max(usable)]))
    offered = ", ".join(f"v0.0.{number}" for number in sorted(found)) or "no version"
    raise SlurmError(
        f"slurmrestd offers {offered} of Slurm's API, and dnm reads v0.0.{OLDEST} to "
        f"v0.0.{NEWEST}, of Slurm 25.05 and later v0.0.44 and v0.0.45, since the ones before hide "
        "EXTERNAL nodes: start slurmrestd with one of these, or leave slurmrestd_url out"
    )


def _hiding(version: str) -> range:
    """The versions of the API in which this Slurm has nodes in states that are not told: EXTERNAL
    came with 25.05, and v0.0.43 of 26.05 shows such a node as IDLE."""
    release = re.match(r"Slurm-([0-9]{2})\.([0-9]{2})\b", version)
    is_old = release is not None and (int(release[1]), int(release[2])) < (25, 5)
    return range(0) if is_old else range(40, 44)
