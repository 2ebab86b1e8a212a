"""Decisions about nodes that join or return too late, and about conversions after the death or
failure of their converter. `findings.py` then judges the nodes that it claimed. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from dnm.model.config import Config
from dnm.model.lent import MAX_ATTEMPTS, ClaimedNode, ConversionRequest, LentNode, RequestEnd
from dnm.model.lent_state import Failed, Releasing, Serving
from dnm.model.node import Node
from dnm.model.printable import count_of, printable
from dnm.model.reason import Reason
from dnm.model.value import Value
from dnm.model.verdict import Verdict
from dnm.plan.bridged import describe_taint_eviction
from dnm.plan.facts import (
    UNSEEN_PODS,
    Facts,
    NodeTransition,
    changed,
    fail_node,
    outcome,
    show_time,
)


def late_to_join(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a joining node that did not serve in time: it is failed now."""
    node = facts.node(name)
    why = "is not in Kubernetes" if node is None else _describe_late_node(config, entry, node)
    error = (
        f"{name} {why} since {show_time(entry.since)}; check it, then `dnm reset {name}` to "
        "return it to Slurm"
    )
    failed = Failed(since=facts.now, error=error, converter=entry.converter)
    after = changed(entry, state=failed)
    return outcome(name, after, Verdict.FAILED, Reason.LATE, error, conversion_failed=True)


def _describe_late_node(config: Config, entry: LentNode, node: Node) -> str:
    if node.is_deleting:
        return "is being deleted from Kubernetes"
    if node.unreadable:
        return f"is in Kubernetes and can't be read ({node.unreadable})"
    if not node.is_ready:
        return "is in Kubernetes but not Ready"
    if node.evicting_taint:
        return f"is in Kubernetes and {describe_taint_eviction(node.evicting_taint)},"
    expected = config.node_types[entry.node_type].size
    missing = sorted(name for name in expected if node.allocatable.get(name, 0) <= 0)
    return f"is Ready but offers no {', '.join(missing)}"


def judge_return(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a node that is not back in Slurm after its converter has ended or
    was killed. The return is tried again once `retry_after` has passed."""
    node, in_service = facts.node(name), facts.is_in_service(name)
    if in_service:
        error = (
            f"Slurm has {name} in service and Kubernetes still has its Node: drain it in Slurm or "
            f"`kubectl delete node {name}`, whichever is wrong"
        )
        return fail_node(name, entry, facts.now, Reason.GAVE_UP, error)
    pods = facts.work_on(name) if node is not None else 0
    if pods is None or (node is not None and node.unreadable):
        detail = (node.unreadable if node is not None else "") or UNSEEN_PODS
        return outcome(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if pods:
        state = Serving(since=facts.now)
        serves = changed(entry, state=state, idle_since=None, was_used=True)
        return outcome(name, serves, Verdict.KEEP, Reason.DEMAND_RETURNED, "a pod runs on it")
    if node is not None and node.is_cordoned_by_another:
        # A return needs dnm's own fence, and only an administrator may lift his cordon.
        return outcome(name, entry, Verdict.WAIT, Reason.HELD_BY_ADMIN, f"kubectl uncordon {name}")
    return _return_again(config, name, entry, facts)


def _return_again(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    if facts.is_drained_by_another(name, entry) and entry.fault:
        detail = f"and drained there: {entry.fault}"
        return outcome(name, None, Verdict.REVERT, Reason.RETURNED, detail)
    state = entry.returning
    retry_after = state.retry_after or state.since
    is_last = state.attempts >= MAX_ATTEMPTS and bool(state.error)
    if facts.now < retry_after and not is_last:
        if failed := entry.failed_attempts:
            detail = f"{failed}; the next one is at {show_time(retry_after)}"
            return outcome(name, entry, Verdict.WAIT, Reason.RETRY, detail)
        detail = f"until {show_time(retry_after)}"
        return outcome(name, entry, Verdict.WAIT, Reason.RETURNING, detail)
    if facts.is_unknown_to_slurm(name) and facts.now > entry.since + config.join_timeout:
        return fail_return(name, entry, facts)
    if facts.is_in_service(name) is None:
        detail = "its state in Slurm could not be read"
        return outcome(name, entry, Verdict.WAIT, Reason.UNKNOWN, detail)
    if facts.is_drained_by_another(name, entry):
        error = (
            f"{name} was returned, and Slurm has it drained since: see `sinfo -R -n {name}`. dnm "
            f"forgets it once it is resumed; `dnm reset {name}` returns it once more"
        )
        return fail_node(name, entry, facts.now, Reason.GAVE_UP, error)
    if state.attempts >= MAX_ATTEMPTS:
        failed = _ended(entry).failed_attempts
        error = (
            f"{name} is not back in Slurm: {failed}; check it, then `dnm reset {name}` to try "
            f"again, or `dnm forget {name}` once it is back"
        )
        return fail_node(name, entry, facts.now, Reason.GAVE_UP, error)
    if (node := facts.node(name)) is not None and not node.is_cordoned:  # as when it was released
        fenced = changed(entry, state=Releasing(since=facts.now))
        return outcome(name, fenced, Verdict.REVERT, Reason.RETRY, "it is fenced first")
    failed = _ended(entry).failed_attempts
    return outcome(name, entry, Verdict.REVERT, Reason.RETRY, failed, wants_return=True)


def _ended(entry: LentNode) -> LentNode:
    """Returns the entry of a node with its last attempt to return it counted as failed."""
    return entry.with_state(is_handed_over=False, converter=None)


def fail_return(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Returns the transition of a node that dnm cannot return: an administrator must."""
    error = (
        f"Slurm does not report whether it has {name}, so dnm can't return it: return it manually, "
        f"under the name that Slurm knows, then `dnm forget {name}`"
    )
    return fail_node(name, entry, facts.now, Reason.GAVE_UP, error)


_MOST_NAMES = 20  # in one sentence


class RequestTransition(Value):
    """A request for nodes after this run's facts: the nodes that joined, and what remains of it."""

    request: ConversionRequest | None
    joined: Mapping[str, LentNode] = {}
    conversion_failed: bool = False
    note: str = ""
    left_behind: Mapping[str, ClaimedNode] = {}


def after_converter_death(
    config: Config,
    after: RequestTransition,
    request: ConversionRequest,
    taken: frozenset[str],
    facts: Facts,
) -> RequestTransition:
    """Returns the transition of a request after its converter died. The request ends if this kind
    of converter lists its claims: these are complete. Otherwise it stays open, since nodes may
    still join. `requests.request_ended` handles one whose output a run was still reading."""
    if after.request is None and not facts.left_by(request, config.instance_id):
        return after  # all nodes had joined
    taken_nodes = taken | after.joined.keys()
    error = _describe_death(config, request, taken_nodes, facts)
    note = conversion_error(request.id, error)
    rest = None
    if not facts.reports_claims and after.request is not None:
        rest = msgspec.structs.replace(after.request, end=RequestEnd(error=error))
    has_failed = request.converter is not None  # else the run was killed before it was started
    return msgspec.structs.replace(after, request=rest, note=note, conversion_failed=has_failed)


def possible_nodes(
    config: Config,
    request: ConversionRequest,
    taken: Container[str],
    facts: Facts,
    other_requests: Sequence[ConversionRequest],
) -> int:
    """Returns how many nodes a failed converter may have begun to convert without naming them:
    unowned nodes of the type that are out of service in Slurm, or all if Slurm was not read."""
    if not facts.batch:
        return request.count
    if facts.reports_claims:
        return 0
    named = {name for other in other_requests for name in other.names}
    return sum(
        config.type_of(name) == request.node_type
        and (not node.in_service or node.is_reserved)
        and not (name in taken or name in named or name in request.nodes_before)
        for name, node in facts.batch.items()
    )


def expire_request(
    config: Config,
    request: ConversionRequest,
    joined: Mapping[str, LentNode],
    taken: frozenset[str],
    facts: Facts,
) -> RequestTransition:
    """Ends a request after its deadline. The conversion has failed. If its converter had
    ended without a node before (`is_abandoned`), an earlier run has counted that."""
    missing = _out_of_service(config, request, taken | joined.keys(), facts)
    claims = _claimed_by(config, request, missing)
    if request.is_abandoned:
        return RequestTransition(request=None, joined=joined, left_behind=claims)
    error = request.error or "its converter reported no error"
    for name in request.names:
        if other := facts.claimed_by_another(name, request.owner):
            error = f"Slurm names instance {printable(other, 80)} for {name}: that instance "
            error += "has lent it since, or node_convert_path does not pass DNM_INSTANCE on"
    note = (
        f"{count_of(request.count, 'node')} of type {request.node_type} did not join in time "
        f"(request={request.id}): {error}; the log has its output "
        f"(converter={request.id}), `dnm nodes` shows the nodes in Slurm"
    )
    return RequestTransition(
        request=None, joined=joined, conversion_failed=True, note=note, left_behind=claims
    )


def _out_of_service(
    config: Config, request: ConversionRequest, taken: Container[str], facts: Facts
) -> list[str]:
    """Returns the type's nodes without owner that left Slurm's service since the request."""
    return [
        name
        for name, node in sorted((facts.batch or {}).items())
        if config.type_of(name) == request.node_type
        and node.in_service is False
        and not (name in taken or name in request.out_before or name in (facts.nodes or {}))
    ]


def _claimed_by(
    config: Config, request: ConversionRequest, names: Sequence[str]
) -> dict[str, ClaimedNode]:
    """Returns these nodes as claimed, since a converter that reports no claims may have begun to
    convert them. They count until Slurm has them again, or an administrator runs `dnm forget`."""
    why = (
        f"was probably claimed by request {request.id}, which did not end: "
        f"'{config.node_convert_path} --set batch --node-name NODE' returns it; "
        "if it has another owner, `dnm forget NODE`"
    )
    return {
        name: ClaimedNode(
            node_type=request.node_type,
            namespace=request.namespace,
            since=request.since,
            why=why.replace("NODE", name),
        )
        for name in names[: request.count]
    }


def _describe_death(
    config: Config, request: ConversionRequest, taken: Container[str], facts: Facts
) -> str:
    """Returns a sentence on the death of a converter. If the converter reports its claims, it has
    no next step, since the run records them."""
    died = "its converter died before it had ended (was the host restarted?)"
    if request.converter is None:
        died = "its converter was not started: the run was killed before"
    if facts.reports_claims:
        names = ", ".join(facts.left_by(request, config.instance_id))
        claimed = (
            f"it had claimed {names}, which dnm records" if names else "it had claimed no node"
        )
        return f"{died}; {claimed}"
    names = ", ".join(_out_of_service(config, request, taken, facts)[:_MOST_NAMES])
    if not names:
        return f"{died}; no node has left Slurm's service for it"
    return (
        f"{died}; Slurm does not have {names} in service any more: if a node does not join, "
        f"return it by '{config.node_convert_path} --set batch --node-name NODE'"
    )


def conversion_error(request_id: str, error: str) -> str:
    """Returns the log line about the failed conversion of a request."""
    return f"action=convert request={request_id} error={error!r}"


def return_error(name: str, error: str) -> str:
    """Returns the log line about a failed return of a node."""
    return f"action=return node={name} error={error!r}"
