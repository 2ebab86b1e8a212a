"""The fate of a lent node, and why: the first row of one table that speaks. Every later stage reads
the fate, and asks nothing again. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from dnm.model.lent import Emptying, Leaving, LentNode, Phase
from dnm.model.orders import Way
from dnm.model.reason import Reason, Why
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Objection, Verdict
from dnm.plan.facts import NodeTransition, node_verdict, show_time
from dnm.plan.inputs import Inputs
from dnm.plan.rule import rules_of


class Fate(Enum):
    """What is done about a node."""

    STAYS = "serves its queue, and its fence comes off"
    WAITS = "stays as it is: something about it is not known, or not so far"
    PAUSED = "stays as it is, for a person has paused it"
    LEAVES = "is fenced and serves its pods until they have ended"
    EMPTIES = "leaves, and its pods are asked to go"
    MAY_GO = "goes if its queue can spare it"
    GOES = "is taken out of its queue's limits and fenced"
    OFFERED = "is in service in Slurm again while it is fenced: the next run marks it failed"
    RETURNS = "is given to the converter"


class Case(Value):
    """One node, and what its fate may depend on. `refusal`: why no limit can be changed. `wanted`:
    what its queue says of a fenced one."""

    name: str
    entry: LentNode
    seen: NodeTransition
    inputs: Inputs
    registry: Registry
    objection: Objection | None
    wanted: NodeVerdict | None = None

    @property
    def is_held(self) -> bool:
        """Whether a person holds it where it is."""
        return self.name in self.registry.held

    @property
    def pause(self) -> Objection | None:
        """What lets nothing go back now."""
        return self.inputs.paused(Way.RETURNING)

    def says(self, verdict: Verdict, reason: Why, detail: str = "") -> NodeVerdict:
        """Returns the verdict on this node."""
        return node_verdict(self.name, verdict, reason, detail)


class At(Enum):
    """Which decision about a node is open in this run."""

    LEAVING = "serves, and leaves whatever its queue wants"
    IDLE = "serves, and has been idle long enough"
    FENCED = "is fenced, and could still serve"
    EMPTY = "was seen fenced, without pods"


class Row(NamedTuple):
    """Says: of nodes that are up for one of these, the first that speaks gives the fate."""

    at: tuple[At, ...]
    speaks: Callable[[Case], NodeVerdict | None]
    fate: Fate


def _held(case: Case) -> NodeVerdict | None:
    detail = f"dnm unhold {case.name}"
    return case.says(Verdict.KEEP, Reason.HELD, detail) if case.is_held else None


def _leaves_no_more(case: Case) -> NodeVerdict | None:
    """What has just ceased to leave has not been idle for its time."""
    has_ceased = case.entry.leaves is None and case.seen.verdict.reason is Reason.LEAVING
    return case.says(Verdict.KEEP, Reason.IDLE) if has_ceased else None


def _asked_for(case: Case) -> NodeVerdict | None:
    until = case.entry.stays_until
    if until is None or not case.entry.is_kept_at(case.inputs.now):
        return None
    return case.says(Verdict.KEEP, Reason.ASKED_FOR, f"until {show_time(until)}")


def _cannot_shrink(case: Case) -> NodeVerdict | None:
    detail = "its queue can't be shrunk, so it serves on"
    return case.says(Verdict.KEEP, Reason.QUEUE_UNREADABLE, detail) if case.objection else None


def _wanted_again(case: Case) -> NodeVerdict | None:
    is_wanted = case.wanted is not None and case.wanted.verdict is not Verdict.REVERT
    return case.wanted if is_wanted else None


def _paused(case: Case) -> NodeVerdict | None:
    pause = case.pause
    return case.says(Verdict.WAIT, pause.reason, pause.detail) if pause else None


def _paused_unfenced(case: Case) -> NodeVerdict | None:
    node = case.inputs.facts.node(case.name)
    if node is not None and node.is_fenced:
        return None
    paused = _paused(case)
    return case.seen.verdict if paused and _is_anothers(case) else paused


def _limits_unreadable(case: Case) -> NodeVerdict | None:
    if not case.objection and case.inputs.document is not None:
        return None
    detail = case.objection.detail if case.objection else ""
    return case.says(Verdict.WAIT, Reason.QUEUE_UNREADABLE, detail)


def _pods_unreadable(case: Case) -> NodeVerdict | None:
    is_unread = case.inputs.unreadable_namespaces(case.entry.queue)
    return case.says(Verdict.WAIT, Reason.DEMAND_UNREADABLE) if is_unread else None


def _leaves_empty(case: Case) -> NodeVerdict | None:
    return _leaving_verdict(case) if case.entry.leaves is not None else None


_EMPTIED = (Leaving.BY_HAND, Leaving.SICK)


def _emptied(case: Case) -> NodeVerdict | None:
    """A person, or a sign of its sickness, has its pods asked to go, and nothing keeps them."""
    entry, inputs = case.entry, case.inputs
    if entry.leaves not in _EMPTIED or entry.emptying is None or _is_anothers(case):
        return None
    is_due = entry.emptying.since <= inputs.now and inputs.facts.sees_all_pods
    is_stopped = bool(case.pause or case.objection) or case.is_held
    return _leaving_verdict(case) if is_due and not is_stopped else None


def _leaves(case: Case) -> NodeVerdict | None:
    """A cordon of an administrator, and what can't be seen, are said as that."""
    return case.seen.verdict if _is_anothers(case) else _leaving_verdict(case)


def _slurm_is_mute(case: Case) -> NodeVerdict | None:
    if case.inputs.facts.is_in_service(case.name) is not None:
        return None
    return case.says(Verdict.WAIT, Reason.UNKNOWN, "Slurm could not be asked about it")


def _in_service(case: Case) -> NodeVerdict | None:
    return case.seen.verdict if case.inputs.facts.is_in_service(case.name) else None


def _still_counted(case: Case) -> NodeVerdict | None:
    document, instance = case.inputs.document, case.inputs.config.instance_id
    is_counted = document is None or document.is_counted(case.name, instance)
    return case.seen.verdict if is_counted else None


def _as_seen(case: Case) -> NodeVerdict:
    return case.seen.verdict


def _returns(case: Case) -> NodeVerdict:
    return case.says(Verdict.REVERT, Reason.RETURNING)


TABLE: tuple[Row, ...] = (
    Row((At.FENCED, At.IDLE), _held, Fate.STAYS),
    Row((At.IDLE,), _leaves_no_more, Fate.STAYS),
    Row((At.FENCED,), _asked_for, Fate.STAYS),
    Row((At.FENCED,), _cannot_shrink, Fate.STAYS),
    Row((At.FENCED,), _wanted_again, Fate.STAYS),
    Row((At.LEAVING,), _paused_unfenced, Fate.PAUSED),
    Row((At.IDLE,), _paused, Fate.PAUSED),
    Row((At.IDLE,), _limits_unreadable, Fate.WAITS),
    Row((At.IDLE,), _pods_unreadable, Fate.WAITS),
    Row((At.IDLE,), _leaves_empty, Fate.GOES),
    Row((At.IDLE,), _as_seen, Fate.MAY_GO),
    Row((At.LEAVING,), _emptied, Fate.EMPTIES),
    Row((At.LEAVING,), _leaves, Fate.LEAVES),
    Row((At.EMPTY,), _slurm_is_mute, Fate.WAITS),
    Row((At.EMPTY,), _in_service, Fate.OFFERED),
    Row((At.EMPTY,), _still_counted, Fate.WAITS),
    Row((At.EMPTY,), _held, Fate.WAITS),
    Row((At.EMPTY,), _paused, Fate.PAUSED),
    Row((At.EMPTY,), _returns, Fate.RETURNS),
    Row((At.FENCED,), _as_seen, Fate.WAITS),
)


def find_fate(case: Case) -> tuple[Fate, NodeVerdict] | None:
    """Returns what becomes of a node, and what is said of it; None: it is up for nothing."""
    at = up_for(case)
    for row in TABLE:
        if at & {*row.at} and (verdict := row.speaks(case)) is not None:
            return row.fate, verdict
    return None


def up_for(case: Case) -> set[At]:
    """Returns what a node is up for."""
    phase, seen, leaves = case.entry.phase, case.seen, case.entry.leaves
    if phase is Phase.SERVING:
        leaving = {At.LEAVING} if leaves is not None else set()
        return {At.IDLE} if seen.wants_release else leaving
    is_judged = case.inputs.demand is not None and case.inputs.facts.nodes is not None
    fenced = {At.FENCED} if phase is Phase.RELEASING and is_judged else set()
    is_empty = seen.wants_return and phase in (Phase.RELEASING, Phase.RETURNING)
    return fenced | {At.EMPTY} if is_empty else fenced


def _is_anothers(case: Case) -> bool:
    """Whether what was seen of it says more than that it leaves."""
    seen = case.seen.verdict
    return seen.verdict is Verdict.WAIT or seen.reason is Reason.HELD_BY_ADMIN


def _leaving_verdict(case: Case) -> NodeVerdict:
    """Why it leaves, and whether its pods are asked to go."""
    entry, inputs = case.entry, case.inputs
    detail = (
        "a person returns it" if entry.leaves == Leaving.BY_HAND else "what spoke for it is over"
    )
    for rule in rules_of(inputs.config, case.registry, inputs.facts):
        if rule.leave and rule.leave.word == entry.leaves:
            detail = rule.leave.reason
    if entry.emptying is not None:
        stopped = case.objection.detail if case.objection else None
        stopped = Reason.PAUSED.text if case.pause else stopped
        detail += f", and its pods are {_asked(entry.emptying, inputs.now, stopped)}"
    seen = case.seen.verdict
    more = seen.detail if seen.reason is Reason.IN_USE else ""  # of a dead node
    detail = f"{detail}, {more}" if more else detail
    return case.says(Verdict.REVERT, Reason.LEAVING, detail)


def _asked(emptying: Emptying, now: datetime, stopped: str | None) -> str:
    if now < emptying.since:
        return f"asked to go from {show_time(emptying.since)} on"
    if stopped:
        return f"not asked to go: {stopped}"
    return f"asked to go: {emptying.why}" if emptying.why else "asked to go"
