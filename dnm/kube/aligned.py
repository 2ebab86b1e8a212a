"""The parts of a pod's request that a kubelet may take from one NUMA node. Few sites have a kubelet
that does so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dnm.demand.pod_request import (
    ContainerRequest,
    PodRequest,
    effective_request,
    with_counted_names,
)
from dnm.kube.pod_fields import Container, Spec, has_value
from dnm.kube.pod_reading import container_request_of
from dnm.model.kubelet import Amounts
from dnm.model.quantity import kube_resources, parse_kubernetes


def aligned_amounts(spec: Spec, is_guaranteed: bool) -> tuple[Amounts, Amounts] | None:
    """Returns the amounts of a pod that a kubelet may take from one NUMA node: the largest of a
    container, and the pod's total without overhead. Counts devices, and whole CPUs, memory and huge
    pages only of a Guaranteed pod without pod-level resources. Returns None if nothing counts."""
    is_pinned = is_guaranteed and not has_value(spec.resources)

    def kept(containers: Sequence[Container] | None) -> tuple[ContainerRequest, ...]:
        requests = map(container_request_of, containers or ())
        return tuple(
            msgspec.structs.replace(container_request, requests={
                name: amount for name, amount in container_request.requests.items()
                if "/" in name or (is_pinned and _is_pinned(name, amount))
            })
            for container_request in requests
        )  # fmt: skip

    asked = PodRequest(containers=kept(spec.containers), init_containers=kept(spec.init_containers))
    asked = with_counted_names(asked) or asked
    largest: dict[str, int] = {}
    for container in (*asked.containers, *asked.init_containers):
        for name, amount in kube_resources(container.requests).items():
            largest[name] = max(amount, largest.get(name, 0))
    total = {name: n for name, n in effective_request(asked).items() if name != "pods"}
    return (tuple(sorted(largest.items())), tuple(sorted(total.items()))) if total else None


def _is_pinned(name: str, amount: str) -> bool:
    if name == "cpu":
        return parse_kubernetes("cpu", amount) % 1000 == 0
    return name == "memory" or name.startswith("hugepages-")
