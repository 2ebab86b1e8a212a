"""The facts of a run about each node, as answers to questions, and a node's transition. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dnm.model.batch import BatchClaim, BatchNode, WaitingJobs
from dnm.model.close_look import CloseLook
from dnm.model.lent import ConversionRequest, Ended, LentNode
from dnm.model.lent_state import ConverterProcess, Failed, Moving
from dnm.model.node import Node
from dnm.model.reason import Reason, ReasonText
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import NodeVerdict, Verdict


class Facts(Value):
    """The facts of a run about nodes. A field or answer of None is unknown, neither yes nor no."""

    now: datetime
    nodes: Mapping[str, Node] | None
    batch: Mapping[str, BatchNode] | None
    working_pods: Mapping[str, int] | None  # node -> pods that count; absent: 0
    running: frozenset[ConverterProcess]
    elsewhere: frozenset[ConverterProcess] = frozenset()  # of those, the ones on other hosts
    sees_all_pods: bool = True  # False: some namespaces could not be read
    unseen: frozenset[str] = frozenset()  # nodes with pods that the list may lack
    ended: Mapping[str, Ended] = {}  # request or node -> how its converter ended or continues
    # Queues with pods that wait while their scheduler does not answer: their unused quota does not
    # show what they need.
    unscheduled: frozenset[str] = frozenset()
    idle_times: Mapping[str, timedelta] = {}  # by node
    lenders: Mapping[str, str] | None = {}  # node -> instance that counts it in the ledger
    unread_ledgers: frozenset[str] = frozenset()  # queues whose ledger could not be read
    # Nodes that Slurm has in service, so not for pods: they are not in `nodes`.
    with_batch: Mapping[str, Node] = {}
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # None: not reported
    close: Mapping[str, CloseLook | Unreadable] = {}  # nodes that a rule reads closely

    def node(self, name: str) -> Node | None:
        return (self.nodes or {}).get(name)

    def row(self, name: str) -> BatchNode | None:
        return (self.batch or {}).get(name)

    def is_in_service(self, name: str) -> bool | None:
        """Returns whether Slurm has the node in service; None if that is unknown."""
        row = self.row(name)
        return row.in_service if row is not None else None

    def is_unknown_to_slurm(self, name: str) -> bool:
        """Returns whether Slurm was read and does not know the node or its state."""
        return self.batch is not None and self.is_in_service(name) is None

    def is_drained_by_another(self, name: str, entry: LentNode) -> bool:
        """Returns whether Slurm has a node drained that its converter has returned already. A
        health check or an administrator drained it, and another return would undo that."""
        row = self.row(name)
        is_away = entry.returning.is_handed_over and name not in (self.nodes or {})
        return is_away and row is not None and row.is_drained

    def is_reserved(self, name: str) -> bool:
        """Returns whether Slurm has a reservation on the node that may be its converter's. Such a
        node is taken even if it is not drained, since some converters only warn if a drain fails.
        If the converter lists its claims, and none on this node, the reservation is not its own."""
        row = self.row(name)
        if row is None or (row.reports_claim and row.claim is None):
            return False
        return row.is_reserved

    @property
    def reports_claims(self) -> bool:
        """Returns whether the converter lists the nodes that it has claimed, and so all of them."""
        batch = self.batch or {}
        return bool(batch) and all(node.reports_claim for node in batch.values())

    def claim_of(self, name: str, instance: str) -> BatchClaim | None:
        """Returns the claim of `instance` on a node that the converter's list reports, or None."""
        claim = self._claim_on(name)
        return claim if claim is not None and claim.instance == instance else None

    def claimed_by_another(self, name: str, instance: str) -> str | None:
        """Returns the other instance for which the converter's list reports a claim, or None."""
        claim = self._claim_on(name)
        return None if claim is None or claim.instance in ("", instance) else claim.instance

    def is_abandoned(self, name: str, namespace: str) -> bool:
        """Returns whether the Node exists, but has neither the namespace's label nor a claim in the
        list of a converter that reports all claims. Another client may use the Node by now."""
        node = self.node(name)
        tagged = node is not None and node.labels.get(namespace) == "true"
        return (
            node is not None and not tagged and self.reports_claims and self._claim_on(name) is None
        )

    def _claim_on(self, name: str) -> BatchClaim | None:
        row = self.row(name)
        return row.claim if row is not None else None

    def is_interrupted(self, name: str, instance: str) -> bool:
        """Returns whether a conversion of the node for `instance` was interrupted."""
        claim = self.claim_of(name, instance)
        return claim is not None and has_stopped(claim)

    def left_by(self, request: ConversionRequest, instance: str) -> list[str]:
        """Returns the nodes of a request that its converter left in the middle of a conversion. dnm
        handles them as claimed nodes now, and not as part of the request."""
        return [
            name
            for name in self.batch or {}
            if (claim := self.claim_of(name, instance)) is not None
            and has_stopped(claim)
            and (claim.request == request.id or name in request.names or name == request.node)
        ]

    def work_on(self, name: str) -> int | None:
        """Returns how many pods make the node busy, or None if not all pods could be read."""
        pods = (self.working_pods or {}).get(name, 0)
        is_seen = self.working_pods is not None and self.sees_all_pods and name not in self.unseen
        return pods if pods or is_seen else None

    def is_running(self, process: ConverterProcess | None) -> bool:
        return process is not None and process in self.running

    def is_lent_by(self, name: str, instance: str) -> bool | None:
        """Returns whether this instance has lent the node: the ledger (kept with the limits) counts
        it, or Slurm does not have it in service. None: neither could be read. The Node's
        annotations alone are no evidence, since the node's kubelet could write them."""
        if self.lenders is not None and name in self.lenders:
            return self.lenders[name] == instance
        if self.claimed_by_another(name, instance):
            return False
        row = self.row(name)
        if row is not None and row.in_service is not None:
            return not row.in_service
        is_unknown = self.lenders is None or bool(self.unread_ledgers)
        return None if is_unknown or self.batch is None or row is not None else False


UNSEEN_PODS = (
    "not all pods could be read (it needs list on pods, cluster-wide, with those of its DaemonSets)"
)


class NodeTransition(Value):
    """A node's entry and decision after this run's facts. `entry` None: it leaves the registry."""

    entry: LentNode | None
    verdict: NodeVerdict
    conversion_failed: bool = False  # backs off the node type
    wants_release: bool = False  # idle long enough, if its queue can spare it
    wants_return: bool = False  # the converter may be called for it
    wants_relabel: bool = False  # its labels and taints may be exchanged
    note: str = ""  # an error for the log
    remark: str = ""  # a claim of the Node about itself that dnm does not accept


def changed(entry: LentNode, **changes: object) -> LentNode:
    """Returns a copy of a node's entry with these fields replaced."""
    return msgspec.structs.replace(entry, **changes)


def outcome(
    name: str,
    entry: LentNode | None,
    verdict: Verdict,
    reason: ReasonText,
    detail: str = "",
    **more: Any,
) -> NodeTransition:
    """Returns a node's transition with a decision; `more` has other fields of `NodeTransition`."""
    node_decision = node_verdict(name, verdict, reason, detail)
    return NodeTransition(entry=entry, verdict=node_decision, **more)


def has_stopped(claim: BatchClaim) -> bool:
    """Returns whether a claimed node's conversion stopped halfway and no converter is at work."""
    return bool(claim.direction) and not claim.is_at_work


def fail_node(
    name: str, entry: LentNode, now: datetime, reason: ReasonText, error: str
) -> NodeTransition:
    """Returns the transition of a node that needs an administrator. `error` names the next step."""
    half_moved = entry.state.to if isinstance(entry.state, Moving) else entry.failed_move
    failed = changed(entry, state=Failed(since=now, error=error), failed_move=half_moved)
    return outcome(name, failed, Verdict.FAILED, reason, error)


def node_verdict(name: str, verdict: Verdict, reason: ReasonText, detail: str = "") -> NodeVerdict:
    """Returns the decision about a node in this run, with its reason."""
    return NodeVerdict(node=name, verdict=verdict, reason=reason, detail=detail)


def show_time(instant: datetime) -> str:
    """Returns a time in UTC, in the format of messages."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def after_deletion(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a node without a Node: forgotten if Slurm has it, else failed."""
    assert facts.nodes is not None  # a Node that was not read is not gone
    in_service = facts.is_in_service(name)
    if in_service:
        return outcome(name, None, Verdict.REVERT, Reason.LEFT, "Slurm has it in service")
    # Its queue must shrink, whatever Slurm reports: a missing node serves no pod.
    slurm = "could not be read" if in_service is None else "does not have it in service"
    error = (
        f"the Node of {name} is gone and Slurm {slurm}: make sure that kubeconfig_path still names "
        f"the cluster it was lent to, then return it manually, or let dnm do it: `dnm reset {name}`"
    )
    return fail_node(name, entry, facts.now, Reason.LEFT, error)
