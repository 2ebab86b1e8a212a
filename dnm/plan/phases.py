"""The phases of a lent node, and how each fact of a run changes them. Pure.

This file applies what has happened. `node_decisions.py` and `conversions.py` decide about nodes.

- A node serves only once it is Ready with its allocatable known; its size is recorded then.
- A node is forgotten only when the batch side has it in service and Kubernetes has no such Node.
- A fact that could not be read moves nothing and restarts the idle clock.
- Every phase has a deadline. A node past it is `failed`; dnm watches it, and it can recover."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from dnm.model.config import Config
from dnm.model.departure import OVERRIDES_STAY
from dnm.model.lent import Ended, LentNode, Phase
from dnm.model.lent_state import Joining, Releasing, Serving
from dnm.model.node import Node
from dnm.model.printable import printable
from dnm.model.quantity import format_amount
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Resources, Value
from dnm.model.verdict import Verdict
from dnm.plan.bridged import describe_taint_eviction, eviction_remedy
from dnm.plan.facts import (
    UNSEEN_PODS,
    Facts,
    NodeTransition,
    after_deletion,
    changed,
    fail_node,
    outcome,
    show_time,
)
from dnm.plan.hooks import Rule
from dnm.plan.idle_times import USUAL
from dnm.plan.overdue import fail_return, judge_return, late_to_join, return_error
from dnm.plan.requests import return_ended
from dnm.plan.rule import rules_of
from dnm.queues import unlimited_namespaces

_SCHEDULER_UNREADABLE = (
    "its idle time does not count, because pods of its queue wait for their scheduler or controller"
)


def advance_node(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a lent node: how this run's facts change its phase."""
    if entry.owner != config.instance_id:
        return outcome(name, entry, Verdict.KEEP, Reason.FOREIGN, f"instance {entry.owner}")
    if facts.nodes is None:
        kept = changed(entry, idle_since=None) if entry.phase is Phase.SERVING else entry
        return outcome(name, kept, Verdict.WAIT, Reason.UNKNOWN, "the Nodes could not be read")
    node = facts.nodes.get(name)
    mark = node.mark.instance if node is not None and node.mark else ""
    # A node that this instance's converter returns stays recorded: else dnm could not end the call.
    if entry.phase is Phase.RETURNING and facts.is_running(entry.converter):
        return _returning(config, name, entry, facts)
    if mark != entry.owner and (other := facts.claimed_by_another(name, entry.owner)):
        # It was returned manually and lent by another instance since the last run.
        detail = f"Slurm names instance {printable(other, 80)}"
        return outcome(name, None, Verdict.KEEP, Reason.FOREIGN, detail)
    if mark in ("", entry.owner):
        return _BY_PHASE[entry.phase](config, name, entry, facts)
    return _marked_by_another(config, name, entry, facts, mark)


def _marked_by_another(
    config: Config, name: str, entry: LentNode, facts: Facts, mark: str
) -> NodeTransition:
    """Returns the transition of a node with annotations of another instance. The node's own kubelet
    could have written them, so the ledger decides; without an entry there, they have no effect."""
    other = printable(mark, 80)
    if (facts.lenders or {}).get(name) == mark:
        # Another instance lent it after its return, or was the first to count it.
        detail = f"the ledger counts it for instance {other}"
        return outcome(name, None, Verdict.KEEP, Reason.FOREIGN, detail)
    remark = f"{name} has the mark of instance {other}, and nothing else confirms it"
    without = unlimited_namespaces(config) | facts.unread_ledgers
    has_ledger = entry.queue not in without and facts.lenders is not None
    if entry.phase is Phase.SERVING and has_ledger and name not in (facts.lenders or {}):
        # Not in the ledger yet: the other instance marked it before this run could.
        entry = changed(entry, state=Joining(since=facts.now), counted={}, idle_since=None)
    deadline = entry.since + config.join_timeout
    if entry.phase is Phase.JOINING and facts.now <= deadline:
        # Two hosts adopted the same node: the first that counts it in the ledger owns it.
        after = outcome(name, entry, Verdict.WAIT, Reason.JOINING, f"until {show_time(deadline)}")
    elif entry.phase is Phase.JOINING:
        error = f"{remark}: check the Node's annotations, then `dnm reset {name}`"
        after = fail_node(name, entry, facts.now, Reason.LATE, error)
    else:
        after = _BY_PHASE[entry.phase](config, name, entry, facts)
    return msgspec.structs.replace(after, remark=f"{remark}: it has no effect")


def _joining(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node = facts.node(name)
    is_here = node is not None and node.is_ready and not (node.is_deleting or node.unreadable)
    if is_here and entry.leaves in OVERRIDES_STAY:
        leaving = changed(entry, state=Releasing(since=facts.now))
        return outcome(
            name, leaving, Verdict.REVERT, Reason.LEAVING, "it is returned before it has served"
        )
    has_ended = not facts.is_running(entry.converter)
    if entry.converter and has_ended and facts.is_abandoned(name, entry.namespace):
        detail = "its converter has abandoned it"
        return outcome(name, None, Verdict.FAILED, Reason.LEFT, detail, conversion_failed=True)
    if node is not None and is_here and not node.evicting_taint:
        size = measure_node(config, entry.node_type, node)
        if size is not None:
            joined = changed(entry, state=Serving(since=facts.now), counted=size.counted)
            return outcome(name, joined, Verdict.KEEP, Reason.JOINED, remark=size.remark)
    in_service = facts.is_in_service(name) and not facts.is_reserved(name)
    if node is None and in_service and has_ended:
        detail = "its conversion was rolled back"
        return outcome(name, None, Verdict.FAILED, Reason.LEFT, detail, conversion_failed=True)
    deadline = entry.since + config.join_timeout
    if facts.now <= deadline:
        return outcome(name, entry, Verdict.WAIT, Reason.JOINING, f"until {show_time(deadline)}")
    return late_to_join(config, name, entry, facts)


def _serving(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node = facts.node(name)
    if node is None:
        return after_deletion(name, entry, facts)
    if entry.leaves is None and node.evicting_taint:
        error = f"{name} {describe_taint_eviction(node.evicting_taint)}: {eviction_remedy(name)}"
        return fail_node(name, entry, facts.now, Reason.EVICTS, error)
    if node.is_cordoned_by_another:
        held = changed(entry, idle_since=None)
        return outcome(name, held, Verdict.KEEP, Reason.HELD_BY_ADMIN, f"kubectl uncordon {name}")
    if node.unreadable:
        unknown = changed(entry, idle_since=None)
        return outcome(name, unknown, Verdict.WAIT, Reason.UNKNOWN, node.unreadable)
    if entry.leaves is None and _is_foreign(config, entry, node, facts):
        error = (
            f"{name} has moved to {entry.namespace}, and its Node lacks that label (was it "
            f"registered again?): `dnm reset {name}` returns it to Slurm"
        )
        return fail_node(name, entry, facts.now, Reason.GAVE_UP, error)
    size = grown(config, entry.node_type, node, entry.counted)
    if size.counted != entry.counted:
        entry = changed(entry, counted=size.counted)
    after = _in_use_or_idle(node, entry, facts)
    return msgspec.structs.replace(after, remark=size.remark)


def _in_use_or_idle(node: Node, entry: LentNode, facts: Facts) -> NodeTransition:
    pods = facts.work_on(node.name)
    if pods is None:
        unknown = changed(entry, idle_since=None)
        return outcome(node.name, unknown, Verdict.WAIT, Reason.UNKNOWN, UNSEEN_PODS)
    if pods:
        used = changed(entry, idle_since=None, was_used=True, is_needed=False)
        # Pods of a dead node stay Terminating until an administrator removes them.
        detail = "" if node.is_ready else f"but it is NotReady; kubectl describe node {node.name}"
        return outcome(node.name, used, Verdict.KEEP, Reason.IN_USE, detail)
    if entry.queue in facts.unscheduled:
        waits = changed(entry, idle_since=None)
        return outcome(node.name, waits, Verdict.KEEP, Reason.IDLE, _SCHEDULER_UNREADABLE)
    return _idle(node.name, entry, facts)


def _idle(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    now = facts.now
    timeout = facts.idle_times.get(name, timedelta(seconds=USUAL))
    # A time in the future comes from a host with a wrong clock.
    since = min(entry.idle_since or now, now)
    idle = changed(entry, idle_since=since)
    if entry.stays_until is not None and entry.is_kept_at(now):
        detail = f"until {show_time(entry.stays_until)}"
        return outcome(name, idle, Verdict.KEEP, Reason.ASKED_FOR, detail)
    if entry.leaves is not None:
        detail = "it is empty"
        return outcome(name, idle, Verdict.REVERT, Reason.LEAVING, detail, wants_release=True)
    if now < since + timeout:
        detail = f"since {show_time(since)}, may be returned after {show_time(since + timeout)}"
        return outcome(name, idle, Verdict.KEEP, Reason.IDLE, detail)
    detail = f"since {show_time(since)}"
    return outcome(name, idle, Verdict.REVERT, Reason.IDLE_LONG_ENOUGH, detail, wants_release=True)


def _releasing(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node = facts.node(name)
    if node is None:
        return after_deletion(name, entry, facts)
    pods = facts.work_on(name)
    if pods is None or node.unreadable:
        detail = node.unreadable or UNSEEN_PODS
        return outcome(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if pods:
        state = Serving(since=facts.now)
        serves = changed(entry, state=state, idle_since=None, was_used=True)
        return outcome(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, "a pod landed on it")
    if node.is_cordoned != node.carries_fence:
        # An administrator cordoned it first, or lifted dnm's cordon: either way he decides.
        serves = changed(entry, state=Serving(since=facts.now), idle_since=None)
        if node.is_cordoned:
            detail = f"kubectl uncordon {name}"
            return outcome(name, serves, Verdict.KEEP, Reason.HELD_BY_ADMIN, detail)
        detail = "its fence was lifted manually"
        return outcome(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, detail)
    if facts.is_unknown_to_slurm(name) and facts.now > entry.since + config.join_timeout:
        return fail_return(name, entry, facts)
    return outcome(name, entry, Verdict.REVERT, Reason.FENCED, wants_return=node.is_fenced)


def _returning(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node, in_service = facts.node(name), facts.is_in_service(name)
    if facts.is_running(entry.converter):
        where = f" on {entry.converter.host}" if entry.converter in facts.elsewhere else ""
        failed = f"; {entry.failed_attempts}" if entry.failed_attempts else ""
        detail = f"a converter is at work{where}{failed}"
        return outcome(name, entry, Verdict.WAIT, Reason.RETURNING, detail)
    if in_service and node is None:
        return outcome(name, None, Verdict.REVERT, Reason.RETURNED)
    if entry.converter is not None:
        entry = return_ended(config, entry, facts.ended.get(name, Ended()), facts.now)
        if entry.error:
            after = judge_return(config, name, entry, facts)
            return msgspec.structs.replace(after, note=return_error(name, entry.error))
    return judge_return(config, name, entry, facts)


def _failed(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a failed node: it waits for an administrator, or serves again."""
    node, in_service = facts.node(name), facts.is_in_service(name)
    if node is None and in_service:
        return outcome(name, None, Verdict.REVERT, Reason.RETURNED)
    is_open = node is not None and in_service is False and not node.is_cordoned
    if node is not None and is_open and not _is_foreign(config, entry, node, facts):
        joining = changed(entry, state=Joining(since=facts.now))
        after = _joining(config, name, joining, facts)
        if after.entry is not None and after.entry.phase in (Phase.SERVING, Phase.RELEASING):
            return after
    return outcome(name, entry, Verdict.FAILED, Reason.GAVE_UP, entry.error)


def _rules(config: Config, name: str, entry: LentNode, facts: Facts) -> tuple[Rule, ...]:
    """Returns the rules that the configuration, or the state of this node, enables."""
    return rules_of(config, Registry(nodes={name: entry}), facts)


def _is_foreign(config: Config, entry: LentNode, node: Node, facts: Facts) -> bool:
    """Returns whether the Node has labels of a namespace that it does not serve, after a move."""
    rules = _rules(config, node.name, entry, facts)
    return any(rule.is_foreign(config, entry, node) for rule in rules if rule.is_foreign)


def _by_rule(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a node in a phase that a rule has added, computed by that rule."""
    rules = _rules(config, name, entry, facts)
    advance = next(rule.phases[entry.phase] for rule in rules if entry.phase in rule.phases)
    return advance(config, name, entry, facts)


_BY_PHASE = {
    Phase.JOINING: _joining,
    Phase.SERVING: _serving,
    Phase.RELEASING: _releasing,
    Phase.RETURNING: _returning,
    Phase.MOVING: _by_rule,
    Phase.FAILED: _failed,
}


# --- the size of a node -------------------------------------------------------------------------
#
# A kubelet reports what its own node offers, and dnm accepts only a part: else the rights of one
# node would suffice to raise a queue's limit to any amount, and to make the next edit overflow.
# Resources that a type does not declare are not counted, except `pods`, which every kubelet has.

_TOLERANCE = 0.1  # dnm accepts so much above the declared amount
_MOST_PODS = 1000  # of one node; kubelets have 110 by default, and are not tested beyond 500


class NodeSize(Value):
    """The size of a node that its queue's limit counts. `remark` describes what dnm does not accept
    of the amounts that the node reports, or is empty."""

    counted: dict[str, int]
    remark: str = ""


def measure_node(config: Config, node_type: str, node: Node) -> NodeSize | None:
    """Returns the size of a node to count, or None while a resource that its type declares is
    missing (a device plugin registers its resource after the node is Ready).

    An amount up to a tenth above the declared one is accepted; above that the declared one counts.
    Without a configured type there is no bound."""
    declared_type = config.node_types.get(node_type)
    if declared_type is None:
        return NodeSize(counted=_positive(node.allocatable))
    if any(node.allocatable.get(resource, 0) <= 0 for resource in declared_type.size):
        return None
    counted: dict[str, int] = {}
    excess: list[str] = []
    for resource, amount in _positive(node.allocatable).items():
        declared = declared_type.size.get(resource, _MOST_PODS if resource == "pods" else 0)
        if amount <= declared * (1 + _TOLERANCE):
            counted[resource] = amount
        elif declared:
            counted[resource] = declared
            excess.append(
                f"{format_amount(resource, amount)} {resource}, and "
                f"{format_amount(resource, declared)} are counted"
            )
    remark = ""
    if excess:
        remark = (
            f"{node.name} offers more than [node_type:{node_type}] declares: {'; '.join(excess)}: "
            "correct the declared size, or check its kubelet"
        )
    return NodeSize(counted=counted, remark=remark)


def grown(config: Config, node_type: str, node: Node, counted: Resources) -> NodeSize:
    """Returns the size that counts for a node: the largest that its Node has shown so far. An
    amount does not shrink, since a device plugin shows zero while it restarts, but an amount that
    exceeds the declared size is replaced by the declared one."""
    now = measure_node(config, node_type, node)
    if now is None or not node.is_ready:
        return NodeSize(counted=dict(counted))
    larger = {name: max(new, counted.get(name, 0)) for name, new in now.counted.items()}
    declared_type = config.node_types.get(node_type)
    for name, declared in declared_type.size.items() if declared_type else ():
        if larger[name] > declared * (1 + _TOLERANCE):
            larger[name] = declared
    return NodeSize(counted={**counted, **larger}, remark=now.remark)


def _positive(amounts: Resources) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount > 0}
