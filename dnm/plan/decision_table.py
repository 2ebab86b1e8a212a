"""The table that decides about a lent node. The first row that applies to the node gives the
decision, which later stages execute. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from dnm.model.departure import Eviction, Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.orders import Way
from dnm.model.reason import Reason, ReasonText
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Objection, Verdict
from dnm.plan.facts import NodeTransition, node_verdict, show_time
from dnm.plan.inputs import Inputs
from dnm.plan.rule import rules_of


class NodeDecision(Enum):
    """The possible decisions of the table about a lent node in one run."""

    STAYS = "serves its queue, and its fence is lifted"
    WAITS = "stays as it is: a fact is unknown, or a condition is not met yet"
    PAUSED = "stays as it is, because an administrator paused dnm"
    LEAVES = "is fenced and serves its pods until they have ended"
    EMPTIES = "leaves, and its pods are evicted"
    RELEASABLE = "is released if its queue can spare it"
    RELEASED = "is taken out of its queue's limits and fenced"
    OFFERED = "is in service in Slurm again while it is fenced: the next run marks it failed"
    RETURNS = "is passed to the converter"


class Case(Value):
    """A lent node with the facts for its decision. `objection` is the reason why no limit can be
    changed. `wanted` is the decision whether the queue of a cordoned node needs it again."""

    name: str
    entry: LentNode
    seen: NodeTransition
    inputs: Inputs
    registry: Registry
    objection: Objection | None
    wanted: NodeVerdict | None = None

    @property
    def is_held(self) -> bool:
        """Returns whether an administrator keeps the node as it is (`dnm hold`)."""
        return self.name in self.registry.held

    @property
    def pause(self) -> Objection | None:
        """Returns an objection if an administrator has paused the return of nodes, else None."""
        return self.inputs.paused(Way.RETURNING)

    def judge(self, verdict: Verdict, reason: ReasonText, detail: str = "") -> NodeVerdict:
        """Returns a decision about this node with its reason."""
        return node_verdict(self.name, verdict, reason, detail)


class At(Enum):
    """The situations of a lent node in which a run must decide about it."""

    LEAVING = "serves, and leaves even if its queue needs it"
    IDLE = "serves, and has been idle long enough"
    FENCED = "is fenced, and could still serve"
    EMPTY = "was seen fenced, without pods"


class Row(NamedTuple):
    """A row for nodes in the situations `at`. It applies if `speaks` returns a reason, not None."""

    at: tuple[At, ...]
    speaks: Callable[[Case], NodeVerdict | None]
    decision: NodeDecision


def _is_held(case: Case) -> NodeVerdict | None:
    detail = f"dnm unhold {case.name}"
    return case.judge(Verdict.KEEP, Reason.HELD, detail) if case.is_held else None


def _has_ceased_to_leave(case: Case) -> NodeVerdict | None:
    """Returns the reason to keep a node for its idle time, if its reason to leave has ended."""
    has_ceased = case.entry.leaves is None and case.seen.verdict.reason is Reason.LEAVING
    return case.judge(Verdict.KEEP, Reason.IDLE) if has_ceased else None


def _is_ordered(case: Case) -> NodeVerdict | None:
    until = case.entry.stays_until
    if until is None or not case.entry.is_kept_at(case.inputs.now):
        return None
    return case.judge(Verdict.KEEP, Reason.ASKED_FOR, f"until {show_time(until)}")


def _cannot_shrink(case: Case) -> NodeVerdict | None:
    detail = "its queue can't be shrunk, so it keeps serving"
    return case.judge(Verdict.KEEP, Reason.QUEUE_UNREADABLE, detail) if case.objection else None


def _is_wanted_again(case: Case) -> NodeVerdict | None:
    is_wanted = case.wanted is not None and case.wanted.verdict is not Verdict.REVERT
    return case.wanted if is_wanted else None


def _is_paused(case: Case) -> NodeVerdict | None:
    pause = case.pause
    return case.judge(Verdict.WAIT, pause.reason, pause.detail) if pause else None


def _is_paused_unfenced(case: Case) -> NodeVerdict | None:
    node = case.inputs.facts.node(case.name)
    if node is not None and node.is_fenced:
        return None
    paused = _is_paused(case)
    return case.seen.verdict if paused and _has_other_verdict(case) else paused


def _limits_unreadable(case: Case) -> NodeVerdict | None:
    if not case.objection:
        return None
    return case.judge(Verdict.WAIT, Reason.QUEUE_UNREADABLE, case.objection.detail)


def _pods_unreadable(case: Case) -> NodeVerdict | None:
    is_unread = case.inputs.unreadable_namespaces(case.entry.queue)
    return case.judge(Verdict.WAIT, Reason.DEMAND_UNREADABLE) if is_unread else None


def _leaves_empty(case: Case) -> NodeVerdict | None:
    return _leaving_verdict(case) if case.entry.leaves is not None else None


_EMPTIED = (Leaving.MANUAL, Leaving.FAULTY)


def _evicts_pods(case: Case) -> NodeVerdict | None:
    """Returns a reason if the node's pods are to be evicted: it is faulty or returned manually."""
    entry, inputs = case.entry, case.inputs
    if entry.leaves not in _EMPTIED or entry.eviction is None or _has_other_verdict(case):
        return None
    is_due = entry.eviction.since <= inputs.now and inputs.facts.sees_all_pods
    is_blocked = bool(case.pause or case.objection) or case.is_held
    return _leaving_verdict(case) if is_due and not is_blocked else None


def _leaves(case: Case) -> NodeVerdict | None:
    """Returns why a node leaves; if it cannot, returns that it is cordoned by an administrator, or
    that a fact about it is unknown."""
    return case.seen.verdict if _has_other_verdict(case) else _leaving_verdict(case)


def _slurm_is_unknown(case: Case) -> NodeVerdict | None:
    if case.inputs.facts.is_in_service(case.name) is not None:
        return None
    return case.judge(Verdict.WAIT, Reason.UNKNOWN, "its state in Slurm could not be read")


def _is_in_service(case: Case) -> NodeVerdict | None:
    return case.seen.verdict if case.inputs.facts.is_in_service(case.name) else None


def _is_still_counted(case: Case) -> NodeVerdict | None:
    inputs, queues, queue = case.inputs, case.inputs.queues, case.entry.queue
    is_counted = queues is None or queues.is_counted(case.name, queue, inputs.config.instance_id)
    return case.seen.verdict if is_counted or inputs.objection_to(queue) else None


def _as_seen(case: Case) -> NodeVerdict:
    return case.seen.verdict


def _returns(case: Case) -> NodeVerdict:
    return case.judge(Verdict.REVERT, Reason.RETURNING)


TABLE: tuple[Row, ...] = (
    Row((At.FENCED, At.IDLE), _is_held, NodeDecision.STAYS),
    Row((At.IDLE,), _has_ceased_to_leave, NodeDecision.STAYS),
    Row((At.FENCED,), _is_ordered, NodeDecision.STAYS),
    Row((At.FENCED,), _cannot_shrink, NodeDecision.STAYS),
    Row((At.FENCED,), _is_wanted_again, NodeDecision.STAYS),
    Row((At.LEAVING,), _is_paused_unfenced, NodeDecision.PAUSED),
    Row((At.IDLE,), _is_paused, NodeDecision.PAUSED),
    Row((At.IDLE,), _limits_unreadable, NodeDecision.WAITS),
    Row((At.IDLE,), _pods_unreadable, NodeDecision.WAITS),
    Row((At.IDLE,), _leaves_empty, NodeDecision.RELEASED),
    Row((At.IDLE,), _as_seen, NodeDecision.RELEASABLE),
    Row((At.LEAVING,), _evicts_pods, NodeDecision.EMPTIES),
    Row((At.LEAVING,), _leaves, NodeDecision.LEAVES),
    Row((At.EMPTY,), _slurm_is_unknown, NodeDecision.WAITS),
    Row((At.EMPTY,), _is_in_service, NodeDecision.OFFERED),
    Row((At.EMPTY,), _is_still_counted, NodeDecision.WAITS),
    Row((At.EMPTY,), _is_held, NodeDecision.WAITS),
    Row((At.EMPTY,), _is_paused, NodeDecision.PAUSED),
    Row((At.EMPTY,), _returns, NodeDecision.RETURNS),
    Row((At.FENCED,), _as_seen, NodeDecision.WAITS),
)


def decide_node(case: Case) -> tuple[NodeDecision, NodeVerdict] | None:
    """Returns the decision about a node and its reason, or None if there is nothing to decide."""
    at = situations_of(case)
    for row in TABLE:
        if at & {*row.at} and (verdict := row.speaks(case)) is not None:
            return row.decision, verdict
    return None


def situations_of(case: Case) -> set[At]:
    """Returns the situations in which a node is, and for which the table has rows."""
    phase, seen, leaves = case.entry.phase, case.seen, case.entry.leaves
    if phase is Phase.SERVING:
        leaving = {At.LEAVING} if leaves is not None else set()
        return {At.IDLE} if seen.wants_release else leaving
    is_judged = case.inputs.demand is not None and case.inputs.facts.nodes is not None
    fenced = {At.FENCED} if phase is Phase.RELEASING and is_judged else set()
    is_empty = seen.wants_return and phase in (Phase.RELEASING, Phase.RETURNING)
    return fenced | {At.EMPTY} if is_empty else fenced


def _has_other_verdict(case: Case) -> bool:
    """Returns whether a fact about the node is missing, or an administrator has cordoned it."""
    seen = case.seen.verdict
    return seen.verdict is Verdict.WAIT or seen.reason is Reason.HELD_BY_ADMIN


def _leaving_verdict(case: Case) -> NodeVerdict:
    """Returns the reason why a node leaves its queue, and whether its pods are evicted."""
    entry, inputs = case.entry, case.inputs
    detail = (
        "an administrator returns it"
        if entry.leaves == Leaving.MANUAL
        else "its reason to stay ended"
    )
    for rule in rules_of(inputs.config, case.registry, inputs.facts):
        if rule.leave and rule.leave.word == entry.leaves:
            detail = rule.leave.reason
    if entry.eviction is not None:
        block = case.objection.detail if case.objection else None
        block = Reason.PAUSED.text if case.pause else block
        detail += f", and its pods are {_describe_eviction(entry.eviction, inputs.now, block)}"
    seen = case.seen.verdict
    extra = seen.detail if seen.reason is Reason.IN_USE else ""  # of a dead node
    detail = f"{detail}, {extra}" if extra else detail
    return case.judge(Verdict.REVERT, Reason.LEAVING, detail)


def _describe_eviction(eviction: Eviction, now: datetime, block: str | None) -> str:
    if now < eviction.since:
        return f"evicted from {show_time(eviction.since)} on"
    if block:
        return f"not evicted: {block}"
    return f"being evicted: {eviction.reason}" if eviction.reason else "being evicted"
