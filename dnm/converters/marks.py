"""Whose a node is by what stands on it in Slurm: the Reason of its drain, Comment, Extra. Pure."""

from __future__ import annotations

from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.model.batch import SlurmReason
from dnm.model.errors import ConverterError


def drain_reason(settings: Settings, operation: str) -> str:
    text = f"dnm:{settings.instance} {settings.mark_reason}".strip()
    return f"{text} op={operation}"


def is_own_reason(settings: Settings, reason: str) -> bool:
    """Returns whether a Reason is ours by its beginning: Slurm appends ("… : Not responding")."""
    return f"{reason} ".startswith(f"dnm:{settings.instance} ")


def reason_of_drain(node: SlurmNode) -> str:
    """Returns the Reason while the node is drained. On one in service it is nobody's mark: Slurm
    23.11 to 25.11 without slurmdbd leaves it there."""
    return node.reason if "DRAIN" in node.state.flags else ""


def other_instance(settings: Settings, node: SlurmNode) -> str:
    """The instance whose mark the node carries, if it is not this one: in the reason, or in what is
    left of its mark when an administrator has written another reason."""
    return next((one for one in instances_on(node) if one != settings.instance), "")


def refuse_other_instance(settings: Settings, node: SlurmNode) -> None:
    """Raises ConverterError where another instance's mark is on the node."""
    if other := other_instance(settings, node):
        raise ConverterError(
            f"{node.name} is lent by instance '{other}': nothing is done; "
            f"use its configuration, or DNM_INSTANCE={other}"
        )


def instances_on(node: SlurmNode) -> list[str]:
    """Returns the instances whose marks stand on the node, that of its drain first."""
    texts = reason_of_drain(node), node.comment, node.extra or ""
    return [instance for text in texts if (instance := _instance_in(text))]


def _instance_in(text: str) -> str:
    begin, _, rest = text.partition(":")
    return (rest.split() or ["?"])[0] if begin == "dnm" and rest else ""


def slurm_reason_of(settings: Settings, node: SlurmNode, is_claimed: bool) -> SlurmReason | None:
    """Returns why a node is drained, down or failed, and whose word that is; None: it is none of
    these, or nobody says why. `is_claimed`: for this instance, so that what the site's script
    before wrote is its word."""
    is_out = node.state.base == "DOWN" or node.state.flags & {"DRAIN", "FAIL"}
    if not (node.reason and is_out):
        return None
    instance = _instance_in(node.reason)
    if not instance and is_claimed and is_predecessors_reason(settings, node.reason):
        instance = settings.instance
    return SlurmReason(text=node.reason, by=node.reason_by, since=node.reason_at, instance=instance)


def operation_of(reason: str) -> str:
    """Returns the operation that a Reason names; empty: none."""
    return next((word[3:] for word in reason.split() if word.startswith("op=")), "")


def is_predecessors_reason(settings: Settings, reason: str) -> bool:
    """Returns whether the site's script before wrote the Reason: it only wrote MARK_REASON."""
    return bool(settings.mark_reason) and reason.startswith(settings.mark_reason)
