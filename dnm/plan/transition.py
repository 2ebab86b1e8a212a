"""What one look makes of a recorded node: its record after it, and what is said of it. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dnm.model.lent import LentNode, Phase
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Reason, Verdict
from dnm.plan.facts import Facts

UNSEEN_PODS = (
    "not all pods could be read (it needs list on pods, cluster-wide, with those of its DaemonSets)"
)


class NodeTransition(Value):
    """One node's record after this look; `entry` None: it is forgotten."""

    entry: LentNode | None
    verdict: NodeVerdict
    conversion_failed: bool = False  # backs off the node type
    wants_release: bool = False  # idle long enough, if its queue can spare it
    wants_return: bool = False  # the converter may be called for it
    wants_relabel: bool = False  # its labels and taints may be exchanged
    note: str = ""  # what went wrong, for the log
    remark: str = ""  # what the Node says of itself and is not believed


def changed(entry: LentNode, **changes: object) -> LentNode:
    """Returns the record with these fields anew."""
    return msgspec.structs.replace(entry, **changes)


def enter_phase(entry: LentNode, phase: Phase, now: datetime, **changes: object) -> LentNode:
    """A new phase starts its own clock, tries and error."""
    fresh: dict[str, object] = {
        "attempts": 0, "is_handed_over": False, "retry_after": None, "error": "", "converter": None,
    }  # fmt: skip
    return changed(entry, phase=phase, since=now, **{**fresh, **changes})


def becomes(
    name: str, entry: LentNode | None, verdict: Verdict, reason: Reason, detail: str = ""
) -> NodeTransition:
    """Returns what comes of a node, and the sentence."""
    return NodeTransition(entry=entry, verdict=node_verdict(name, verdict, reason, detail))


def fails(name: str, entry: LentNode, now: datetime, reason: Reason, error: str) -> NodeTransition:
    """Returns a node that a person must see to; `error` says what he may do."""
    failed = enter_phase(entry, Phase.FAILED, now, error=error)
    return becomes(name, failed, Verdict.FAILED, reason, error)


def node_verdict(name: str, verdict: Verdict, reason: Reason, detail: str = "") -> NodeVerdict:
    """What is said of a node in this run, in the order in which people read it."""
    return NodeVerdict(node=name, verdict=verdict, reason=reason, detail=detail)


def show_time(instant: datetime) -> str:
    """Writes a moment as sentences have it."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def left_kubernetes(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Its Node is gone and dnm did not return it: forgotten if Slurm has it, else a person's."""
    in_service = facts.is_in_service(name)
    if in_service:
        return becomes(name, None, Verdict.KEEP, Reason.GONE, "Slurm has it in service")
    # Its queue must shrink, whatever Slurm says: a node that is not there serves nobody.
    slurm = "can't be asked about it" if in_service is None else "does not have it in service"
    error = (
        f"the Node of {name} is gone and Slurm {slurm}: make sure that kubeconfig_path still names "
        f"the cluster it was lent to, then return it by hand, or let dnm do it: `dnm reset {name}`"
    )
    return fails(name, entry, facts.now, Reason.GONE, error)
