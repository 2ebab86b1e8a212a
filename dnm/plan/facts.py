"""What a run's reads say of one node, as questions, and what one look makes of a recorded one: its
record after it, and what is said of it. Pure.

None stands for "could not be read": an unknown fact is neither a yes nor a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dnm.model.batch import BatchClaim, BatchNode, WaitingJobs
from dnm.model.close_look import CloseLook
from dnm.model.lent import ConversionRequest, ConverterProcess, Ended, LentNode, Phase
from dnm.model.node import Node
from dnm.model.reason import Reason, Why
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import NodeVerdict, Verdict


class Facts(Value):
    """What is known now. None stands for "could not be read", per kind."""

    now: datetime
    nodes: Mapping[str, Node] | None
    batch: Mapping[str, BatchNode] | None
    working_pods: Mapping[str, int] | None  # node -> pods that count; a node without: 0
    running: frozenset[ConverterProcess]
    elsewhere: frozenset[ConverterProcess] = frozenset()  # of those, by other hosts
    sees_all_pods: bool = True  # False: some namespaces could not be read
    unseen: frozenset[str] = frozenset()  # nodes whose pods the list can't have all
    ended: Mapping[str, Ended] = {}  # request or node -> how its converter ended, or goes on
    # Queues with pods that wait while their scheduler does not answer: what they leave unused says
    # nothing about them.
    unscheduled: frozenset[str] = frozenset()
    idle_times: Mapping[str, timedelta] = {}  # by namespace, for how long an idle node is kept
    lenders: Mapping[str, str] | None = {}  # node -> instance whose part of the ledger counts it
    # Nodes of machines that Slurm has, and so none for pods: they are not in `nodes`.
    with_batch: Mapping[str, Node] = {}
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # None: nobody says what jobs wait for
    close: Mapping[str, CloseLook | Unreadable] = {}  # at nodes that a rule has asked for

    def node(self, name: str) -> Node | None:
        return (self.nodes or {}).get(name)

    def row(self, name: str) -> BatchNode | None:
        return (self.batch or {}).get(name)

    def is_in_service(self, name: str) -> bool | None:
        """Whether Slurm has the node in service; None is unknown."""
        known = self.row(name)
        return known.in_service if known is not None else None

    def is_unknown_to_slurm(self, name: str) -> bool:
        """Slurm was asked, and does not know the node or what it does."""
        return self.batch is not None and self.is_in_service(name) is None

    def is_drained_by_another(self, name: str, entry: LentNode) -> bool:
        """Whether a node that its converter has handed over answers, but is drained: a health check
        or an administrator did that, and one more return would lift it."""
        known = self.row(name)
        is_away = entry.is_handed_over and name not in (self.nodes or {})
        return is_away and known is not None and known.is_drained

    def is_reserved(self, name: str) -> bool:
        """Whether a reservation holds it that may be its converter's: some scripts only warn when
        they can't drain a node. One that says what it has claimed would name it; it is another's
        then, or a booking for an event."""
        known = self.row(name)
        if known is None or (known.tells_claim and known.claim is None):
            return False
        return known.is_reserved

    @property
    def tells_claims(self) -> bool:
        """Whether the converter says what it has claimed: what it does not name is not claimed."""
        batch = self.batch or {}
        return bool(batch) and all(node.tells_claim for node in batch.values())

    def claim_of(self, name: str, instance: str) -> BatchClaim | None:
        """The instance's claim of a node, as the converter tells it."""
        claim = self._claim_on(name)
        return claim if claim is not None and claim.instance == instance else None

    def claimed_by_another(self, name: str, instance: str) -> str | None:
        """The other instance that has converted the node, as the batch side names it."""
        claim = self._claim_on(name)
        return None if claim is None or claim.instance in ("", instance) else claim.instance

    def is_let_go(self, name: str, namespace: str) -> bool:
        """Whether a Node is there that its converter, which tells its claims, does not claim and
        has not given to the namespace: it was left as it is, to whoever took it meanwhile."""
        node = self.node(name)
        labelled = node is not None and node.labels.get(namespace) == "true"
        return (
            node is not None and not labelled and self.tells_claims and self._claim_on(name) is None
        )

    def _claim_on(self, name: str) -> BatchClaim | None:
        known = self.row(name)
        return known.claim if known is not None else None

    def is_interrupted(self, name: str, instance: str) -> bool:
        """Whether a conversion of the node has stopped in the middle."""
        claim = self.claim_of(name, instance)
        return claim is not None and has_stopped(claim)

    def left_by(self, request: ConversionRequest, instance: str) -> list[str]:
        """The nodes on which a converter that is not at work any more has stopped in the middle:
        they are claims now, and no part of the request."""
        return [
            name
            for name in self.batch or {}
            if (claim := self.claim_of(name, instance)) is not None
            and has_stopped(claim)
            and (claim.request == request.id or name in request.names or name == request.node)
        ]

    def work_on(self, name: str) -> int | None:
        """Pods that count on a node; None: it can't be told that there are none."""
        pods = (self.working_pods or {}).get(name, 0)
        is_seen = self.working_pods is not None and self.sees_all_pods and name not in self.unseen
        return pods if pods or is_seen else None

    def is_running(self, process: ConverterProcess | None) -> bool:
        return process is not None and process in self.running

    def is_lent_by(self, name: str, instance: str) -> bool | None:
        """Whether more than its mark says that this instance has lent the node: the ledger counts
        it, or Slurm knows it and does not have it in service. None: neither could be asked. A mark
        alone can be written by the node's own kubelet."""
        if self.lenders is not None and name in self.lenders:
            return self.lenders[name] == instance
        if self.claimed_by_another(name, instance):
            return False
        known = self.row(name)
        if known is not None and known.in_service is not None:
            return not known.in_service
        return None if self.lenders is None or self.batch is None or known is not None else False


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
    name: str,
    entry: LentNode | None,
    verdict: Verdict,
    reason: Why,
    detail: str = "",
    **more: Any,
) -> NodeTransition:
    """Returns what comes of a node, and the sentence; `more`: as `NodeTransition` has it."""
    said = node_verdict(name, verdict, reason, detail)
    return NodeTransition(entry=entry, verdict=said, **more)


def has_stopped(claim: BatchClaim) -> bool:
    """Returns whether a conversion has stopped in the middle and no converter continues it."""
    return bool(claim.direction) and not claim.is_at_work


def fails(name: str, entry: LentNode, now: datetime, reason: Why, error: str) -> NodeTransition:
    """Returns a node that a person must see to; `error` says what he may do."""
    failed = enter_phase(entry, Phase.FAILED, now, error=error)
    return becomes(name, failed, Verdict.FAILED, reason, error)


def node_verdict(name: str, verdict: Verdict, reason: Why, detail: str = "") -> NodeVerdict:
    """What is said of a node in this run, in the order in which people read it."""
    return NodeVerdict(node=name, verdict=verdict, reason=reason, detail=detail)


def show_time(instant: datetime) -> str:
    """Writes a moment as sentences have it."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def left_kubernetes(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Its Node is gone and dnm did not return it: forgotten if Slurm has it, else a person's."""
    assert facts.nodes is not None  # an unread Node is not one that is gone
    in_service = facts.is_in_service(name)
    if in_service:
        return becomes(name, None, Verdict.REVERT, Reason.GONE, "Slurm has it in service")
    # Its queue must shrink, whatever Slurm says: a node that is not there serves nobody.
    slurm = "can't be asked about it" if in_service is None else "does not have it in service"
    error = (
        f"the Node of {name} is gone and Slurm {slurm}: make sure that kubeconfig_path still names "
        f"the cluster it was lent to, then return it by hand, or let dnm do it: `dnm reset {name}`"
    )
    return fails(name, entry, facts.now, Reason.GONE, error)
