"""Rules that show which dnm instance or other program owns a node in Slurm: by the Reason of its
drain, Comment, Extra, and state flags.

node-convert moves machines that leave Kubernetes, nodeset-convert those with slurmd in a pod of
slurm-operator, bridge-convert those that slurm-bridge has put into Slurm. dnm never touches a drain
or reservation of the operator or of slurm-bridge."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dnm.converters.settings import Machines, Settings
from dnm.converters.slurm.text import Reservation, SlurmNode
from dnm.model.batch import SlurmReason
from dnm.model.errors import ConverterError
from dnm.model.slinky import BRIDGE_REASON, MAINTENANCE, OPERATOR_REASON, pod_of, writer_of

_KINDS = {  # why a node is of another kind, and how the manager's Reasons begin
    Machines.PODS: ("its slurmd runs in no pod of slurm-operator's", OPERATOR_REASON),
    Machines.BRIDGED: (
        "slurm-bridge has not put it into Slurm (no state flag EXTERNAL)", BRIDGE_REASON,
    ),
}  # fmt: skip
_OF_KIND = frozenset(("DYNAMIC_NORM", "EXTERNAL"))


def drain_reason(settings: Settings, operation: str) -> str:
    text = f"dnm:{settings.instance} {settings.mark_reason}".strip()
    return f"{text} op={operation}"


def is_own_reason(settings: Settings, reason: str) -> bool:
    """Returns whether a Reason begins with this instance's mark. Slurm may append a text to it."""
    return f"{reason} ".startswith(f"dnm:{settings.instance} ")


def reason_of_drain(node: SlurmNode) -> str:
    """Returns the Reason if the node is drained, otherwise an empty text: Slurm 23.11 to 25.11
    without slurmdbd leave an old Reason on a node in service."""
    return node.reason if "DRAIN" in node.state.flags else ""


def other_instance(settings: Settings, node: SlurmNode) -> str:
    """Returns the other dnm instance that has marked the node; empty if there is none. If this
    instance has drained the node, other marks are leftovers and do not count."""
    marks = [] if is_own_reason(settings, reason_of_drain(node)) else instances_on(node)
    return next((mark for mark in marks if mark != settings.instance), "")


def refuse_other_instance(settings: Settings, node: SlurmNode) -> None:
    """Raises ConverterError if another instance's mark is on the node."""
    refuse_other(settings, node.name, other_instance(settings, node) or settings.instance)


def refuse_other(settings: Settings, name: str, instance: str) -> None:
    """Raises ConverterError if `instance`, which has lent the node, is not this instance."""
    if instance != settings.instance:
        raise ConverterError(
            f"{name} is lent by instance '{instance}': nothing is done; "
            f"use its configuration, or DNM_INSTANCE={instance}"
        )


def instances_on(node: SlurmNode) -> list[str]:
    """Returns the instances of dnm named in the node's drain Reason, Comment and Extra fields."""
    texts = reason_of_drain(node), node.comment, node.extra or ""
    return [instance for text in texts if (instance := _instance_in(text))]


def _instance_in(text: str) -> str:
    begin, _, rest = text.partition(":")
    return (rest.split() or ["?"])[0] if begin == "dnm" and rest else ""


def slurm_reason_of(settings: Settings, node: SlurmNode, is_claimed: bool) -> SlurmReason | None:
    """Returns Slurm's Reason for a drained, down or failed node, with its author; None if there is
    none. With `is_claimed`, this instance has claimed the node. Then a Reason by the script that
    node-convert has replaced counts as this instance's."""
    is_out = node.state.base == "DOWN" or node.state.flags & {"DRAIN", "FAIL"}
    if not (node.reason and is_out):
        return None
    instance = _instance_in(node.reason)
    if not instance and is_claimed and is_predecessors_reason(settings, node.reason):
        instance = settings.instance
    return SlurmReason(text=node.reason, by=node.reason_by, since=node.reason_at, instance=instance)


def operation_of(reason: str) -> str:
    """Returns the name of dnm's operation in a Reason; empty if there is none."""
    return next((word[3:] for word in reason.split() if word.startswith("op=")), "")


def is_predecessors_reason(settings: Settings, reason: str) -> bool:
    """Returns whether node-convert's predecessor set the Reason, which is then only MARK_REASON."""
    return bool(settings.mark_reason) and reason.startswith(settings.mark_reason)


def plain_state(machines: Machines, node: SlurmNode) -> SlurmNode:
    """Returns the node without the state flags that all nodes of this converter always have."""
    if machines is Machines.OWN or not _is_of_kind(machines, node):
        return node
    state = msgspec.structs.replace(node.state, flags=node.state.flags - _OF_KIND)
    return msgspec.structs.replace(node, state=state)


def _is_of_kind(machines: Machines, node: SlurmNode) -> bool:
    """Returns whether this converter moves such nodes. Nodes of slurm-operator name a pod in
    Comment. Nodes of slurm-bridge have the flag EXTERNAL; their features are partitions."""
    if machines is Machines.PODS:
        return bool(pod_of(node.comment))
    return "EXTERNAL" in node.state.flags


def foreign_reason(
    machines: Machines, node: SlurmNode, maintained: dict[str, str] | None = None
) -> str:
    """Returns why this converter must not move the node, idle or not; empty if it may."""
    if machines is Machines.OWN:
        return slinky_reason(node, maintained)
    refusal, prefix = _KINDS[machines]
    if not _is_of_kind(machines, node):
        return refusal
    if machines is Machines.PODS:
        node = msgspec.structs.replace(node, comment="")
    if "DRAIN" not in node.state.flags and node.reason.startswith(prefix):
        node = msgspec.structs.replace(node, reason="")  # left by an undrain or an uncordon
    return slinky_reason(node, maintained)


def maintained_nodes(reservations: Iterable[Reservation]) -> dict[str, str]:
    """Returns for each node slurm-operator's maintenance reservation of it, if it has one."""
    return {
        node: reservation.name
        for reservation in reservations
        if reservation.name.startswith(MAINTENANCE)
        for node in reservation.nodes
    }


def slinky_reason(node: SlurmNode, maintained: dict[str, str] | None = None) -> str:
    """Returns why a node belongs to slurm-operator or slurm-bridge; empty if it does not."""
    if pod := pod_of(node.comment):
        return f"its slurmd runs in pod {pod} (slurm-operator): not a machine of its own"
    if reservation := (maintained or {}).get(node.name):
        return f"reservation {reservation} is slurm-operator's"
    if writer := writer_of(node.reason):
        if "DRAIN" in node.state.flags:
            return f"drained by {writer}, which alone lifts that: {node.reason}"
        return (
            f"{writer} has drained it before ({node.reason}): if it is {writer}'s no more, "
            f"set another text with 'scontrol update nodename={node.name} reason='"
        )
    return ""
