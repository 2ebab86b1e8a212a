"""Lent nodes that do not come in time, or do not go back; and what a conversion leaves whose
converter died or failed, or whose nodes came too late. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from dnm.model.config import Config
from dnm.model.lent import MAX_ATTEMPTS, ClaimedNode, ConversionRequest, LentNode, Phase
from dnm.model.node import Node
from dnm.model.printable import printable
from dnm.model.reason import Reason
from dnm.model.value import Value
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


def late_to_join(config: Config, name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Says what has become of a node that was lent and does not serve in time."""
    node = facts.node(name)
    why = "is not in Kubernetes" if node is None else _why_not_joined(config, entry, node)
    error = (
        f"{name} {why} since {show_time(entry.since)}; look at it, then `dnm reset {name}` to "
        "return it to Slurm"
    )
    failed = enter_phase(entry, Phase.FAILED, facts.now, error=error, converter=entry.converter)
    return becomes(name, failed, Verdict.FAILED, Reason.LATE, error, conversion_failed=True)


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
    node, in_service = facts.node(name), facts.is_in_service(name)
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
    is_last = entry.attempts >= MAX_ATTEMPTS and bool(entry.error)
    if facts.now < retry_after and not is_last:
        if failed := entry.failed_attempts:
            detail = f"{failed}; the next one is at {show_time(retry_after)}"
            return becomes(name, entry, Verdict.WAIT, Reason.RETRY, detail)
        detail = f"until {show_time(retry_after)}"
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
        failed = _ended(entry).failed_attempts
        error = (
            f"{name} is not back in Slurm: {failed}; look at it, then `dnm reset {name}` to try "
            f"again, or `dnm forget {name}` once it is back"
        )
        return fails(name, entry, facts.now, Reason.GAVE_UP, error)
    if (node := facts.node(name)) is not None and not node.is_cordoned:  # as when it was released
        fenced = enter_phase(entry, Phase.RELEASING, facts.now)
        return becomes(name, fenced, Verdict.REVERT, Reason.RETRY, "it is fenced first")
    failed = _ended(entry).failed_attempts
    return becomes(name, entry, Verdict.REVERT, Reason.RETRY, failed, wants_return=True)


def _ended(entry: LentNode) -> LentNode:
    """Returns the entry with its last attempt counted as failed."""
    return msgspec.structs.replace(entry, is_handed_over=False, converter=None)


def unreturnable(name: str, entry: LentNode, facts: Facts) -> NodeTransition:
    """Gives up: only a person can return it."""
    error = (
        f"Slurm was asked and can't say whether it has {name}, so dnm can't return it: do it by "
        f"hand, under the name that Slurm knows, then `dnm forget {name}`"
    )
    return fails(name, entry, facts.now, Reason.GAVE_UP, error)


_MOST_NAMES = 20  # in one sentence


class RequestTransition(Value):
    """One request after this look: the nodes it brought, and what is left of it."""

    request: ConversionRequest | None
    joined: Mapping[str, LentNode] = {}
    conversion_failed: bool = False
    note: str = ""
    left_behind: Mapping[str, ClaimedNode] = {}


def after_death(
    config: Config,
    after: RequestTransition,
    request: ConversionRequest,
    taken: frozenset[str],
    facts: Facts,
) -> RequestTransition:
    """Where the converter tells its claims nothing else will come of it; else what it has begun may
    go on by itself, on the nodes."""
    if after.request is None and not facts.left_by(request, config.instance_id):
        return after  # everything had come
    known = taken | after.joined.keys()
    error = _note_of_death(config, request, known, facts)
    note = conversion_error(request.id, error)
    rest = None
    if not facts.tells_claims and after.request is not None:
        rest = msgspec.structs.replace(after.request, error=error)
    has_failed = request.converter is not None  # else the run was killed before it was started
    return msgspec.structs.replace(after, request=rest, note=note, conversion_failed=has_failed)


def may_still_come(
    config: Config,
    request: ConversionRequest,
    taken: Container[str],
    facts: Facts,
    others: Sequence[ConversionRequest],
) -> int:
    """How many nodes that it did not name a converter that failed may have left half converted:
    those of the type that Slurm does not have in service and that are nobody's. Unknown means
    all."""
    if not facts.batch:
        return request.count
    if facts.tells_claims:
        return 0
    named = {name for other in others for name in other.names}
    return sum(
        config.type_of(name) == request.node_type
        and (not node.in_service or node.is_reserved)
        and not (name in taken or name in named or name in request.known_nodes)
        for name, node in facts.batch.items()
    )


def too_late(
    config: Config,
    request: ConversionRequest,
    joined: Mapping[str, LentNode],
    taken: frozenset[str],
    facts: Facts,
) -> RequestTransition:
    """What has not come is not expected any more. That a converter failed was said when it did."""
    gone = _out_of_service(config, request, taken | joined.keys(), facts)
    behind = _claimed_by(config, request, gone)
    if request.is_given_up:
        return RequestTransition(request=None, joined=joined, left_behind=behind)
    error = request.error or "its converter reported no error"
    for name in request.names:
        if other := facts.claimed_by_another(name, request.owner):
            error = f"Slurm names instance {printable(other, 80)} for {name}: it was lent to that "
            error += "one since, or node_convert_path does not hand DNM_INSTANCE on"
    note = (
        f"request={request.id} type={request.node_type} missing={request.count} did not join in "
        f"time: {error}; the log has what it said "
        f"(converter={request.id}), `dnm nodes` how Slurm has the nodes now"
    )
    return RequestTransition(
        request=None, joined=joined, conversion_failed=True, note=note, left_behind=behind
    )


def _out_of_service(
    config: Config, request: ConversionRequest, taken: Container[str], facts: Facts
) -> list[str]:
    """Nodes of the type that Slurm has not in service any more, and that are nobody's."""
    return [
        name
        for name, node in sorted((facts.batch or {}).items())
        if config.type_of(name) == request.node_type
        and node.in_service is False
        and not (name in taken or name in request.known_out or name in (facts.nodes or {}))
    ]


def _claimed_by(
    config: Config, request: ConversionRequest, names: Sequence[str]
) -> dict[str, ClaimedNode]:
    """What a converter that does not tell its claims may have left: they count until Slurm has them
    again, or a person says that they are nobody's."""
    why = (
        f"was claimed, as it seems, by request {request.id}, which did not end: "
        f"'{config.node_convert_path} --set batch --node-name NODE' returns it; "
        "if it is another's, `dnm forget NODE`"
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


def _note_of_death(
    config: Config, request: ConversionRequest, taken: Container[str], facts: Facts
) -> str:
    """What to do about a converter that died: nothing where it tells its claims, which the run
    takes in. Else a person must look at the nodes."""
    died = "its converter died before it had ended (was the host restarted?)"
    if request.converter is None:
        died = "its converter was not started: the run was killed before"
    if facts.tells_claims:
        names = ", ".join(facts.left_by(request, config.instance_id))
        claimed = (
            f"it had claimed {names}, which dnm takes in" if names else "it had claimed no node"
        )
        return f"{died}; {claimed}"
    names = ", ".join(_out_of_service(config, request, taken, facts)[:_MOST_NAMES])
    if not names:
        return f"{died}; no node has left Slurm's service for it"
    return (
        f"{died}; Slurm does not have {names} in service any more: what does not come by itself, "
        f"give back by '{config.node_convert_path} --set batch --node-name NODE'"
    )


def conversion_error(request_id: str, error: str) -> str:
    """The line of a conversion whose converter failed."""
    return f"action=convert request={request_id} error={error!r}"


def return_error(name: str, error: str) -> str:
    """The line of a return whose converter failed."""
    return f"action=return node={name} error={error!r}"
