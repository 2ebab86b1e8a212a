"""The phases of a lent node: what each fact means in each phase.

Pure. Nothing here decides whether a queue can spare a node or wants one more (`fates.py` and
`conversions.py` do); this file only reads what has happened since the last run, and moves the
record after it.

- A node serves only once it is Ready with its allocatable known; its size is recorded then.
- A node is forgotten only when the batch side has it in service and Kubernetes has no such Node.
- A fact that could not be read moves nothing and restarts the idle clock.
- Every phase has a deadline; what passes it is `failed`, which still watches and recovers.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from dnm.model.config import Config
from dnm.model.lent import TOLD_TO_GO, Ended, LentNode, Phase
from dnm.model.node import Node
from dnm.model.printable import printable
from dnm.model.quantity import format_amount
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Resources, Value
from dnm.model.verdict import Verdict
from dnm.plan.bridged import what_to_do, why_pods_leave
from dnm.plan.facts import (
    UNSEEN_PODS,
    Facts,
    NodeTransition,
    becomes,
    changed,
    enter_phase,
    fails,
    left_kubernetes,
    show_time,
)
from dnm.plan.hooks import Rule
from dnm.plan.idle_times import USUAL
from dnm.plan.overdue import late_to_join, not_returned, return_error, unreturnable
from dnm.plan.requests import return_ended
from dnm.plan.rule import rules_of

_NO_SCHEDULER = "its time does not count while YuniKorn, which its pods wait for, does not answer"


def advance_node(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """What this run's facts make of one recorded node."""
    if entry.owner != config.instance_id:
        return becomes(name, entry, Verdict.KEEP, Reason.NOT_OURS, f"instance {entry.owner}")
    if facts.nodes is None:
        kept = changed(entry, idle_since=None) if entry.phase is Phase.SERVING else entry
        return becomes(name, kept, Verdict.WAIT, Reason.UNKNOWN, "the Nodes could not be read")
    node = facts.nodes.get(name)
    mark = node.mark.instance if node is not None and node.mark else ""
    # One that a converter of ours is returning is kept, for who forgets it can't end that any more.
    if entry.phase is Phase.RETURNING and facts.is_running(entry.converter):
        return _returning(config, name, entry, facts)
    if mark != entry.owner and (other := facts.claimed_by_another(name, entry.owner)):
        # It was given back by hand and lent again by another, before this run could see it gone.
        detail = f"Slurm names instance {printable(other, 80)}"
        return becomes(name, None, Verdict.KEEP, Reason.NOT_OURS, detail)
    if mark in ("", entry.owner):
        return _BY_PHASE[entry.phase](config, name, entry, facts)
    return _marked_by_another(config, name, entry, facts, mark)


def _marked_by_another(
    config: Config, name: str, entry: LentNode, facts: Facts, mark: str
) -> NodeTransition:
    """Its Node carries another instance's mark, which the node's own kubelet could have written:
    what the ledger says decides, and as long as that is silent nothing follows from the mark."""
    other = printable(mark, 80)
    if (facts.lenders or {}).get(name) == mark:
        # It was given back and lent again by another, or the other was first to count it.
        detail = f"the ledger counts it for instance {other}"
        return becomes(name, None, Verdict.KEEP, Reason.NOT_OURS, detail)
    remark = f"{name} carries the mark of instance {other}, and nothing else says that it is theirs"
    if entry.phase is Phase.SERVING and facts.lenders is not None and name not in facts.lenders:
        # Not counted by anybody yet: it was marked by them before this run could.
        entry = enter_phase(entry, Phase.JOINING, facts.now, counted={}, idle_since=None)
    deadline = entry.since + config.join_timeout
    if entry.phase is Phase.JOINING and facts.now <= deadline:
        # Two hosts took the same node up: who counts it in the ledger first has it.
        after = becomes(name, entry, Verdict.WAIT, Reason.JOINING, f"until {show_time(deadline)}")
    elif entry.phase is Phase.JOINING:
        error = f"{remark}: look at the Node's annotations, then `dnm reset {name}`"
        after = fails(name, entry, facts.now, Reason.LATE, error)
    else:
        after = _BY_PHASE[entry.phase](config, name, entry, facts)
    return msgspec.structs.replace(after, remark=f"{remark}: it changes nothing")


def _joining(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node = facts.node(name)
    is_here = node is not None and node.is_ready and not (node.is_deleting or node.unreadable)
    if is_here and entry.leaves in TOLD_TO_GO:
        leaving = enter_phase(entry, Phase.RELEASING, facts.now)
        return becomes(name, leaving, Verdict.REVERT, Reason.LEAVING, "it goes before it serves")
    has_ended = not facts.is_running(entry.converter)
    if entry.converter and has_ended and facts.is_let_go(name, entry.namespace):
        detail = "its converter has left it to others"
        return becomes(name, None, Verdict.FAILED, Reason.GONE, detail, conversion_failed=True)
    if node is not None and is_here and not node.evicting_taint:
        size = measure_node(config, entry.node_type, node)
        if size is not None:
            joined = enter_phase(entry, Phase.SERVING, facts.now, counted=size.counted)
            return becomes(name, joined, Verdict.KEEP, Reason.JOINED, remark=size.remark)
    in_service = facts.is_in_service(name) and not facts.is_reserved(name)
    if node is None and in_service and has_ended:
        detail = "its conversion was rolled back"
        return becomes(name, None, Verdict.FAILED, Reason.GONE, detail, conversion_failed=True)
    deadline = entry.since + config.join_timeout
    if facts.now <= deadline:
        return becomes(name, entry, Verdict.WAIT, Reason.JOINING, f"until {show_time(deadline)}")
    return late_to_join(config, name, entry, facts)


def _serving(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node = facts.node(name)
    if node is None:
        return left_kubernetes(name, entry, facts)
    if entry.leaves is None and node.evicting_taint:
        error = f"{name} {why_pods_leave(node.evicting_taint)}: {what_to_do(name)}"
        return fails(name, entry, facts.now, Reason.EVICTS, error)
    if node.is_cordoned_by_another:
        held = changed(entry, idle_since=None)
        return becomes(name, held, Verdict.KEEP, Reason.HELD_BY_ADMIN, f"kubectl uncordon {name}")
    if node.unreadable:
        unknown = changed(entry, idle_since=None)
        return becomes(name, unknown, Verdict.WAIT, Reason.UNKNOWN, node.unreadable)
    if entry.leaves is None and _is_anothers(config, entry, node, facts):
        error = (
            f"{name} has moved to {entry.namespace}, and its Node does not carry that any more "
            f"(was it registered anew?): `dnm reset {name}` returns it to Slurm"
        )
        return fails(name, entry, facts.now, Reason.GAVE_UP, error)
    size = grown(config, entry.node_type, node, entry.counted)
    if size.counted != entry.counted:
        entry = changed(entry, counted=size.counted)
    after = _in_use_or_idle(node, entry, facts)
    return msgspec.structs.replace(after, remark=size.remark)


def _in_use_or_idle(node: Node, entry: LentNode, facts: Facts) -> NodeTransition:
    pods = facts.work_on(node.name)
    if pods is None:
        unknown = changed(entry, idle_since=None)
        return becomes(node.name, unknown, Verdict.WAIT, Reason.UNKNOWN, UNSEEN_PODS)
    if pods:
        used = changed(entry, idle_since=None, was_used=True, is_needed=False)
        # Pods of a dead node stay Terminating until a person removes them.
        detail = "" if node.is_ready else f"but it is NotReady; kubectl describe node {node.name}"
        return becomes(node.name, used, Verdict.KEEP, Reason.IN_USE, detail)
    if entry.queue in facts.unscheduled:
        waits = changed(entry, idle_since=None)
        return becomes(node.name, waits, Verdict.KEEP, Reason.IDLE, _NO_SCHEDULER)
    return _idle(node.name, entry, facts)


def _idle(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    now = facts.now
    timeout = facts.idle_times.get(name, timedelta(seconds=USUAL))
    # A clock that stands in the future was set by a host whose time was wrong.
    since = min(entry.idle_since or now, now)
    idle = changed(entry, idle_since=since)
    if entry.stays_until is not None and entry.is_kept_at(now):
        detail = f"until {show_time(entry.stays_until)}"
        return becomes(name, idle, Verdict.KEEP, Reason.ASKED_FOR, detail)
    if entry.leaves is not None:
        detail = "it is empty"
        return becomes(name, idle, Verdict.REVERT, Reason.LEAVING, detail, wants_release=True)
    if now < since + timeout:
        detail = f"since {show_time(since)}, may go back after {show_time(since + timeout)}"
        return becomes(name, idle, Verdict.KEEP, Reason.IDLE, detail)
    detail = f"since {show_time(since)}"
    return becomes(name, idle, Verdict.REVERT, Reason.IDLE_LONG_ENOUGH, detail, wants_release=True)


def _releasing(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node = facts.node(name)
    if node is None:
        return left_kubernetes(name, entry, facts)
    pods = facts.work_on(name)
    if pods is None or node.unreadable:
        detail = node.unreadable or UNSEEN_PODS
        return becomes(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if pods:
        serves = enter_phase(entry, Phase.SERVING, facts.now, idle_since=None, was_used=True)
        return becomes(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, "a pod landed on it")
    if node.is_cordoned != node.carries_fence:
        # Somebody cordoned it first, or has lifted our cordon: either way it is his to decide.
        serves = enter_phase(entry, Phase.SERVING, facts.now, idle_since=None)
        if node.is_cordoned:
            detail = f"kubectl uncordon {name}"
            return becomes(name, serves, Verdict.KEEP, Reason.HELD_BY_ADMIN, detail)
        detail = "its fence was lifted by hand"
        return becomes(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, detail)
    if facts.is_unknown_to_slurm(name) and facts.now > entry.since + config.join_timeout:
        return unreturnable(name, entry, facts)
    return becomes(name, entry, Verdict.REVERT, Reason.FENCED, wants_return=node.is_fenced)


def _returning(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    node, in_service = facts.node(name), facts.is_in_service(name)
    if facts.is_running(entry.converter):
        where = f" on {entry.converter.host}" if entry.converter in facts.elsewhere else ""
        failed = f"; {entry.failed_attempts}" if entry.failed_attempts else ""
        detail = f"a converter is at work{where}{failed}"
        return becomes(name, entry, Verdict.WAIT, Reason.RETURNING, detail)
    if in_service and node is None:
        return becomes(name, None, Verdict.REVERT, Reason.RETURNED)
    if entry.converter is not None:
        entry = return_ended(config, entry, facts.ended.get(name, Ended()), facts.now)
        if entry.error:
            after = not_returned(config, name, entry, facts)
            return msgspec.structs.replace(after, note=return_error(name, entry.error))
    return not_returned(config, name, entry, facts)


def _failed(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Waits for a person, and watches: what mends itself is taken up again."""
    node, in_service = facts.node(name), facts.is_in_service(name)
    if node is None and in_service:
        return becomes(name, None, Verdict.REVERT, Reason.RETURNED)
    is_open = node is not None and in_service is False and not node.is_cordoned
    if node is not None and is_open and not _is_anothers(config, entry, node, facts):
        joining = enter_phase(entry, Phase.JOINING, facts.now)
        after = _joining(config, name, joining, facts)
        if after.entry is not None and after.entry.phase in (Phase.SERVING, Phase.RELEASING):
            return after
    return becomes(name, entry, Verdict.FAILED, Reason.GAVE_UP, entry.error)


def _rules(config: Config, name: str, entry: LentNode, facts: Facts) -> tuple[Rule, ...]:
    """Those that are on for this node."""
    return rules_of(config, Registry(nodes={name: entry}), facts)


def _is_anothers(config: Config, entry: LentNode, node: Node, facts: Facts) -> bool:
    """Whether its Node carries what is another namespace's."""
    rules = _rules(config, node.name, entry, facts)
    return any(rule.is_anothers(config, entry, node) for rule in rules if rule.is_anothers)


def _by_rule(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """A phase that a rule knows: that rule is on for as long as a node is in it."""
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


# --- what a node is counted as ------------------------------------------------------------------
#
# A kubelet says what its own node offers, and only that much of it is believed: with the rights of
# one node anybody could else raise a queue's limit to what he likes, and make the next edit
# overflow. What a type does not declare is not counted, but for `pods`, which every kubelet has.

_TOLERANCE = 0.1  # so much above the declared amount is believed
_MOST_PODS = 1000  # of one node; kubelets have 110 by default, and are not tested beyond 500


class NodeSize(Value):
    """`counted`: what the queue grows by. `remark`: what of the node's word is not believed, as a
    sentence; empty: nothing."""

    counted: dict[str, int]
    remark: str = ""


def measure_node(config: Config, node_type: str, node: Node) -> NodeSize | None:
    """Returns what the node is counted as; None while a resource that its type declares is missing
    (a device plugin registers its resource after the node is Ready).

    An amount up to a tenth above the declared one is taken as it is; beyond that the
    declared one counts. A type that the configuration no longer has bounds nothing.
    """
    known = config.node_types.get(node_type)
    if known is None:
        return NodeSize(counted=_positive(node.allocatable))
    if any(node.allocatable.get(resource, 0) <= 0 for resource in known.size):
        return None
    counted: dict[str, int] = {}
    beyond: list[str] = []
    for resource, amount in _positive(node.allocatable).items():
        declared = known.size.get(resource, _MOST_PODS if resource == "pods" else 0)
        if amount <= declared * (1 + _TOLERANCE):
            counted[resource] = amount
        elif declared:
            counted[resource] = declared
            beyond.append(
                f"{format_amount(resource, amount)} {resource}, and "
                f"{format_amount(resource, declared)} are counted"
            )
    remark = ""
    if beyond:
        remark = (
            f"{node.name} offers more than [node_type:{node_type}] declares: {'; '.join(beyond)}: "
            "correct the declared size, or look at its kubelet"
        )
    return NodeSize(counted=counted, remark=remark)


def grown(config: Config, node_type: str, node: Node, counted: Resources) -> NodeSize:
    """Returns the recorded size with what the node offers now. Growth only, since a device plugin
    that restarts shows zero for a moment; what was recorded beyond the bound comes down to it."""
    now = measure_node(config, node_type, node)
    if now is None or not node.is_ready:
        return NodeSize(counted=dict(counted))
    larger = {name: max(new, counted.get(name, 0)) for name, new in now.counted.items()}
    known = config.node_types.get(node_type)
    for name, declared in known.size.items() if known else ():
        if larger[name] > declared * (1 + _TOLERANCE):
            larger[name] = declared
    return NodeSize(counted={**counted, **larger}, remark=now.remark)


def _positive(amounts: Resources) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount > 0}
