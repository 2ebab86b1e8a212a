"""Lent nodes that do not come in time, or do not go back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from dnm.plan.bridged import why_pods_leave
from dnm.plan.facts import (
    UNSEEN_PODS,
    Facts,
    NodeTransition,
    becomes,
    enter_phase,
    fails,
    show_time,
)
from dnm.plan.hooks import Rule

MAX_ATTEMPTS = 3


def late_to_join(
    config: Config, name: str, entry: LentNode, facts: Facts, rules: Iterable[Rule]
) -> NodeTransition:
    """Says what has become of a node that was lent and does not serve in time."""
    node = (facts.nodes or {}).get(name)
    why = "is not in Kubernetes" if node is None else _why_not_joined(config, entry, node)
    likely = "".join(rule.why_late(config, entry.node_type) for rule in rules if rule.why_late)
    error = (
        f"{name} {why} since {show_time(entry.since)};{likely} look at it, then `dnm reset {name}` "
        "to return it to Slurm"
    )
    failed = enter_phase(entry, Phase.FAILED, facts.now, error=error, converter=entry.converter)
    after = becomes(name, failed, Verdict.FAILED, Reason.LATE, error)
    return msgspec.structs.replace(after, conversion_failed=True)


def _why_not_joined(config: Config, entry: LentNode, node: Node) -> str:
    if node.is_deleting:
        return "is being deleted from Kubernetes"
    if node.unreadable:
        return f"is in Kubernetes and can't be read ({node.unreadable})"
    if not node.is_ready:
        return "is in Kubernetes but not Ready"
    if node.evicting_taint:
        return f"is in Kubernetes and {why_pods_leave(node.evicting_taint)},"
    expected = config.node_types[entry.node_type].size
    missing = sorted(name for name in expected if node.allocatable.get(name, 0) <= 0)
    return f"is Ready but offers no {', '.join(missing)}"


def not_returned(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Says what follows where its converter has ended, and the node is not simply back."""
    assert facts.nodes is not None
    node, in_service = facts.nodes.get(name), facts.is_in_service(name)
    if in_service:
        error = (
            f"Slurm has {name} in service and Kubernetes still has its Node: drain it in Slurm or "
            f"`kubectl delete node {name}`, whichever is wrong"
        )
        return fails(name, entry, facts.now, Reason.GAVE_UP, error)
    pods = facts.work_on(name) if node is not None else 0
    if pods is None or (node is not None and node.unreadable):
        detail = (node.unreadable if node is not None else "") or UNSEEN_PODS
        return becomes(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if pods:
        serves = enter_phase(entry, Phase.SERVING, facts.now, idle_since=None, was_used=True)
        return becomes(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, "a pod runs on it")
    if node is not None and node.is_cordoned_by_another:
        # Without our own fence it is not given back, and an administrator's is not ours to take.
        return becomes(name, entry, Verdict.WAIT, Reason.HELD_BY_ADMIN, f"kubectl uncordon {name}")
    return _return_again(config, name, entry, facts)


def _return_again(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    if facts.is_drained_by_another(name, entry) and entry.sick:
        detail = f"and drained there: {entry.sick}"
        return becomes(name, None, Verdict.REVERT, Reason.RETURNED, detail)
    retry_after = entry.retry_after or entry.since
    if facts.now < retry_after:
        detail = f"until {show_time(retry_after)}" + (f"; {entry.error}" if entry.error else "")
        return becomes(name, entry, Verdict.WAIT, Reason.RETURNING, detail)
    if facts.is_unknown_to_slurm(name) and facts.now > entry.since + config.join_timeout:
        return unreturnable(name, entry, facts)
    if facts.is_in_service(name) is None:
        detail = "Slurm could not be asked whether it has the node"
        return becomes(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if facts.is_drained_by_another(name, entry):
        error = (
            f"{name} was returned, and Slurm has it drained since: see `sinfo -R -n {name}`. It "
            f"is forgotten once it is resumed; `dnm reset {name}` returns it once more"
        )
        return fails(name, entry, facts.now, Reason.GAVE_UP, error)
    if entry.attempts >= MAX_ATTEMPTS:
        why = entry.error or "it did not end"
        error = (
            f"{name} was not back in Slurm after {entry.attempts} tries ({why}); look at it, then "
            f"`dnm reset {name}` to try again, or `dnm forget {name}` once it is back"
        )
        return fails(name, entry, facts.now, Reason.GAVE_UP, error)
    after = becomes(name, entry, Verdict.REVERT, Reason.RETRY, entry.error)
    return msgspec.structs.replace(after, wants_return=True)


def unreturnable(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Gives up: only a person can return it."""
    error = (
        f"Slurm was asked and can't say whether it has {name}, so dnm can't return it: do it by "
        f"hand, under the name that Slurm knows, then `dnm forget {name}`"
    )
    return fails(name, entry, facts.now, Reason.GAVE_UP, error)
