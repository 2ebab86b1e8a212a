"""Which Slurm nodes a program may convert, and whose the others are. Pure.

node-convert moves machines of their own, nodeset-convert those whose slurmd runs in a pod of
slurm-operator's, bridge-convert those that slurm-bridge has put into Slurm. What the operator or
slurm-bridge has drained or reserved is theirs alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from dnm.converters.slurm.text import Reservation, SlurmNode
from dnm.model.slinky import BRIDGE_REASON, MAINTENANCE, OPERATOR_REASON, pod_of, writer_of


class Machines(Enum):
    """What a program moves; the value is its name."""

    OWN = "node-convert"
    PODS = "nodeset-convert"
    BRIDGED = "bridge-convert"


_OF_KIND = frozenset(("DYNAMIC_NORM", "EXTERNAL"))


def plain_state(machines: Machines, node: SlurmNode) -> SlurmNode:
    """Returns the node without the flags that every node of its kind has: they say nothing of
    it."""
    if machines is Machines.OWN or not _is_of_kind(machines, node):
        return node
    state = msgspec.structs.replace(node.state, flags=node.state.flags - _OF_KIND)
    return msgspec.structs.replace(node, state=state)


def _is_of_kind(machines: Machines, node: SlurmNode) -> bool:
    """The features of a bridged node are its partitions, so that flags alone tell its kind. Where
    they were taken off already its record stands as one of its kind."""
    if machines is Machines.PODS:
        return bool(pod_of(node.comment))
    return "EXTERNAL" in node.state.flags


def why_not_ours(
    machines: Machines, node: SlurmNode, maintained: dict[str, str] | None = None
) -> str:
    """Says why a program leaves a node alone, whatever runs on it; empty: it is of its kind."""
    if machines is Machines.PODS:
        if not _is_of_kind(machines, node):
            return "its slurmd runs in no pod of slurm-operator's"
        node = msgspec.structs.replace(node, comment="")
        if "DRAIN" not in node.state.flags and node.reason.startswith(OPERATOR_REASON):
            node = msgspec.structs.replace(node, reason="")  # of an undrain
    elif machines is Machines.BRIDGED:
        if not _is_of_kind(machines, node):
            return "slurm-bridge has not put it into Slurm (no state flag EXTERNAL)"
        if "DRAIN" not in node.state.flags and node.reason.startswith(BRIDGE_REASON):
            node = msgspec.structs.replace(node, reason="")  # of an uncordon, on every one of them
    return why_slinkys(node, maintained)


def maintained_nodes(reservations: Iterable[Reservation]) -> dict[str, str]:
    """Returns node -> the operator's reservation that it is in, however far off that begins."""
    return {
        node: one.name
        for one in reservations
        if one.name.startswith(MAINTENANCE)
        for node in one.nodes
    }


def why_slinkys(node: SlurmNode, maintained: dict[str, str] | None = None) -> str:
    """Says why a node is slurm-operator's or slurm-bridge's; empty: it is neither's."""
    if pod := pod_of(node.comment):
        return f"its slurmd runs in pod {pod} (slurm-operator): not a machine of its own"
    if reservation := (maintained or {}).get(node.name):
        return f"reservation {reservation} is slurm-operator's"
    if writer := writer_of(node.reason):
        if "DRAIN" in node.state.flags:
            return f"drained by {writer}, which alone lifts that: {node.reason}"
        return (
            f"{writer} has drained it before ({node.reason}): if it is {writer}'s no more, "
            f"'scontrol update nodename={node.name} reason=' with any other text says so"
        )
    return ""
