"""The devices that are allocated on each node, among what its pods use. Pure."""

from __future__ import annotations

import msgspec

from dnm.demand.demand import NO_USE, Demand
from dnm.model.pod_waits import PodWaits


def with_devices(demand: Demand, waits: PodWaits) -> Demand:
    """Returns the demand with what is allocated on each node among what it uses."""
    nodes = dict(demand.nodes)
    for name, taken in waits.taken.items():
        use = nodes.get(name, NO_USE)
        nodes[name] = msgspec.structs.replace(use, used={**use.used, **taken})
    return msgspec.structs.replace(demand, nodes=nodes)
