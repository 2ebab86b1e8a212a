"""How long things take in the sandbox, in seconds of its clock (divided by its speed)."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, kw_only=True):
    """All zero: everything that can happen happens in the next step. `real_life` is for people."""

    pod_start: float = 0.0  # ContainerCreating
    pod_stop: float = 0.0  # Terminating
    convert: float = 0.0  # one call of the converter, batch -> Kubernetes
    revert: float = 0.0  # Kubernetes -> batch
    join: float = 0.0  # from the converter's end until the Node is registered, NotReady
    ready: float = 0.0  # from there until it is Ready
    device: float = 0.0  # from there until its device plugins have registered
    completing: float = 30.0  # an application lives on after its last pod (yunikorn-core)
    toleration: float = 300.0  # pods of a NotReady node are deleted after it
    taint: float = 0.0  # from a cordon until its taint is there
    orphans: float = 0.0  # pods outlive their Node by so much (podgc: 40 to 60)
    take_up: float = 0.0  # from a write of the queue document until the scheduler uses it


def real_life() -> Timing:
    """As on a real site, but minutes are seconds: for trying things out by hand."""
    return Timing(
        pod_start=3, pod_stop=1, convert=8, revert=8, join=1, ready=2, device=3,
        completing=5, toleration=60, take_up=0.5, taint=0.2, orphans=2,
    )  # fmt: skip
