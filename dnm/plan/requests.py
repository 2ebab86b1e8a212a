"""The update of each open request for nodes: nodes that it brought are recorded, and nodes that did
not join in time are dropped. Also the effect of a converter's end on the registry, by the run that
started it or by the next one. Also claims of this instance that belong to no request: a host
restarted, or a converter was killed with its parent. Only the converter's list counts as a claim,
since no kubelet can write it. `findings.py` decides about claimed nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from dnm.model.charge import Charge
from dnm.model.config import Config
from dnm.model.lent import ClaimedNode, ConversionRequest, Ended, LentNode, Phase, RequestEnd
from dnm.model.lent_state import ConverterProcess, Joining
from dnm.model.registry import Registry
from dnm.plan.breaker import ConversionResult, backoff_delay
from dnm.plan.facts import Facts, has_stopped
from dnm.plan.findings import ClaimCase, Findings, complete_claim, judge_claim
from dnm.plan.overdue import (
    RequestTransition,
    after_converter_death,
    conversion_error,
    expire_request,
    possible_nodes,
)
from dnm.plan.rule import nodes_to_return


def advance_request(
    config: Config,
    request: ConversionRequest,
    taken: frozenset[str],
    facts: Facts,
    siblings: Sequence[ConversionRequest] = (),
) -> RequestTransition:
    """Returns the transition of a request for nodes, with the nodes that its conversion brought.

    A node belongs to the request if it did not exist before and either the converter named it, or
    it has the type's name and the namespace's label. `taken` nodes are in the registry. `siblings`
    are the other open requests (`with_converter_report`); a node that they named belongs to them.
    While the converter runs, only nodes that it named are adopted: nodes of another host look the
    same, and with this request's later nodes they would exceed the request."""
    if facts.nodes is None:
        return RequestTransition(request=request)
    reported = with_converter_report(request, facts)
    transition = _adopt(config, reported, taken, facts, siblings)
    if reported.end and not request.end and _has_died(facts.ended.get(request.id, Ended())):
        return after_converter_death(config, transition, reported, taken, facts)
    if reported.end and not request.end and reported.error:
        transition = msgspec.structs.replace(
            transition,
            conversion_failed=reported.is_abandoned,
            note=conversion_error(reported.id, reported.error),
        )
    return transition


def with_converter_report(request: ConversionRequest, facts: Facts) -> ConversionRequest:
    """Returns the request with the nodes that its converter has named until now. If the converter
    has ended after the run that started it, the request also gets the result."""
    if request.end:
        return request
    end = facts.ended.get(request.id, Ended())
    if facts.is_running(request.converter):
        return with_names(request, end)
    if _has_died(end) and facts.batch is None:
        return with_names(request, end)  # its claims are not known yet
    return request_ended(request, end, facts.now)


def _has_died(end: Ended) -> bool:
    """Returns whether the converter was killed while no run watched it, or its result is lost."""
    return end.exit_code is None and not (end.error or end.left_running)


def _adopt(
    config: Config,
    request: ConversionRequest,
    taken: frozenset[str],
    facts: Facts,
    siblings: Sequence[ConversionRequest],
) -> RequestTransition:
    assert facts.nodes is not None
    joining = [name for name in request.names if name not in taken]
    joining = [name for name in joining if _is_brought_by(config, request, name, facts)]
    if request.end and not _may_be_named_yet(request, siblings):
        # At most the missing number of unnamed nodes: another host may have brought some.
        named = {*request.names, *(name for other in siblings for name in other.names)}
        unnamed = [name for name in sorted(facts.nodes) if name not in taken and name not in named]
        arrived = [name for name in unnamed if _is_brought_by(config, request, name, facts)]
        joining += arrived[: max(request.count - len(joining), 0)]
    joined = dict.fromkeys(joining, _newly_lent(request, facts.now))
    left = max(request.count - len(joined), 0)
    if request.end:
        left = max(left - len(facts.left_by(request, config.instance_id)), 0)
    if request.end and request.error:
        # Nodes that a failed call did not name are requested again at once.
        left = min(left, possible_nodes(config, request, taken | joined.keys(), facts, siblings))
    rest = msgspec.structs.replace(request, count=left)
    if left == 0 and rest.end:
        return RequestTransition(request=None, joined=joined)
    if rest.end and facts.batch is not None and facts.now > rest.since + config.join_timeout:
        return expire_request(config, rest, joined, taken, facts)
    return RequestTransition(request=rest, joined=joined)


def _may_be_named_yet(request: ConversionRequest, siblings: Sequence[ConversionRequest]) -> bool:
    """Returns whether an unnamed node may belong to another converter call, which names its nodes
    when it ends. If this request's converter succeeded without names, the answer is no."""
    succeeded_without_names = not request.error and not request.names
    return not succeeded_without_names and any(
        not other.end and other.node_type == request.node_type for other in siblings
    )


def _is_brought_by(config: Config, request: ConversionRequest, name: str, facts: Facts) -> bool:
    """Returns whether the request brought this node. A name that the converter printed counts only
    if Slurm knows it, if it is a name of the type, or if its Node has the namespace's label."""
    node = facts.nodes.get(name) if facts.nodes else None
    instance = config.instance_id
    if facts.is_interrupted(name, instance) or facts.claimed_by_another(name, instance):
        return False
    is_of_type = config.type_of(name) == request.node_type
    is_named = name in request.names
    if facts.batch is None and not is_named:
        return False  # only Slurm knows its owner
    if node is None:
        if facts.reports_claims and facts.claim_of(name, instance) is None:
            return False  # it was returned, in service or drained by a health check
        return request.end is not None and is_named and (is_of_type or name in (facts.batch or {}))
    # A mark, also of this instance, was set when it joined for another request, or by its kubelet.
    # A node that the converter named still belongs to this request.
    is_old = name in request.nodes_before or (node.mark is not None and not is_named)
    if is_old or (request.end and facts.is_abandoned(name, request.namespace)):
        return False
    is_labelled = node.labels.get(request.namespace) == "true"
    return is_of_type + is_labelled + is_named >= 2


def _newly_lent(request: ConversionRequest, now: datetime) -> LentNode:
    return LentNode(
        node_type=request.node_type,
        namespace=request.namespace,
        queue=request.queue,
        owner=request.owner,
        state=Joining(since=now, converter=request.converter),
        asked_at=request.asked_at,
        order=request.order,
        stays_until=request.stays_until,
        charge=Charge(account=request.account, since=now) if request.account else None,
    )


def advance_requests(config: Config, registry: Registry, facts: Facts) -> Findings:
    """Updates the open requests for nodes one by one, failed ones last, so that each node belongs
    to one. `claimed` in the result has nodes that an ended request may have begun to convert."""
    nodes = dict(registry.nodes)
    left_behind: dict[str, ClaimedNode] = {}
    left, failures, errors = [], [], {}
    reported = {request.id: with_converter_report(request, facts) for request in registry.requests}
    for request in sorted(registry.requests, key=lambda request: reported[request.id].is_abandoned):
        report = reported[request.id]
        siblings = [other for other in reported.values() if other.id != request.id]
        after = advance_request(config, request, frozenset(nodes), facts, siblings)
        nodes |= after.joined
        left_behind |= after.left_behind
        if after.request is not None:
            left.append(after.request)
        if after.conversion_failed:
            error = report.error if report.is_abandoned else after.note
            failures.append(
                ConversionResult(node_type=request.node_type, count=request.count, error=error)
            )
        if after.note:
            errors[request.id] = after.note
    return Findings(
        nodes=nodes,
        claimed=left_behind,
        requests=tuple(left),
        failures=tuple(failures),
        request_errors=errors,
    )


# --- the end of a call --------------------------------------------------------------------------


def calls_until(
    config: Config, registry: Registry
) -> Iterator[tuple[str, ConverterProcess, datetime]]:
    """Yields (id of a request or node, process, latest end) of converters that may still run."""
    longest = config.convert_timeout
    for request in registry.requests:
        if request.converter is not None:
            yield request.id, request.converter, request.since + longest
    for name, entry in registry.nodes_of(config.instance_id, Phase.RETURNING).items():
        call = entry.returning
        if call.converter is not None:
            yield name, call.converter, call.retry_after or call.since + longest


def request_ended(request: ConversionRequest, end: Ended, now: datetime) -> ConversionRequest:
    """Returns a request with the names of its ended converter; the time to join starts now. If the
    converter failed without names, dnm expects no node, but adopts unowned ones that join."""
    request = with_names(request, end)
    return msgspec.structs.replace(
        request,
        since=now,
        end=RequestEnd(error=end.error, is_abandoned=bool(end.error and not request.names)),
    )


def with_names(request: ConversionRequest, end: Ended) -> ConversionRequest:
    """Returns the request with the node names that its converter has printed until now."""
    names = tuple(dict.fromkeys((*request.names, *end.names)))
    return msgspec.structs.replace(request, names=names)


def return_ended(config: Config, entry: LentNode, end: Ended, now: datetime) -> LentNode:
    """Returns a node's entry after a call to return it ended, with the time of the next attempt."""
    wait = backoff_delay(config, entry.returning.attempts) if end.error else config.join_timeout
    return entry.with_state(
        converter=None,
        error=end.error,
        retry_after=now + wait,
        is_handed_over=not end.error and end.exit_code == 0,
    )


# --- claims of no request -----------------------------------------------------------------------


def set_aside_interrupted(config: Config, registry: Registry, facts: Facts) -> Registry:
    """Returns the registry without joining nodes that have an interrupted conversion: dnm handles
    these as claimed nodes."""
    nodes = {
        name: entry
        for name, entry in registry.nodes.items()
        if not (
            entry.phase is Phase.JOINING
            and entry.owner == config.instance_id
            and not facts.is_running(entry.converter)
            and facts.is_interrupted(name, config.instance_id)
        )
    }
    return msgspec.structs.replace(registry, nodes=nodes)


def record_claims(
    config: Config,
    before: Registry,
    nodes: Mapping[str, LentNode],
    requests: Sequence[ConversionRequest],
    facts: Facts,
) -> Findings:
    """Decides about nodes that are claimed for this instance without being lent or requested.
    `before` is the last run's registry. If Slurm could not be read, its claims stay."""
    recorded = {name: claim for name, claim in before.claimed.items() if name not in nodes}
    if facts.batch is None or facts.nodes is None:
        return Findings(claimed=recorded)
    held = _held(requests)
    running = _held(request for request in requests if facts.is_running(request.converter))
    findings = Findings(claimed=_left_behind(recorded, facts))
    excluded = nodes_to_return(config, before, facts)
    for name, row in sorted(facts.batch.items()):
        claim = row.claim
        if claim is None or claim.instance != config.instance_id or name in nodes:
            continue
        if not {name, claim.request} & (running if has_stopped(claim) else held):
            entry = before.nodes.get(name)
            if entry is None and claim.direction != "batch" and _is_marked(config, name, facts):
                continue  # it served, and its mark records it again
            case = ClaimCase(
                config=config,
                name=name,
                row=row,
                claim=complete_claim(config, claim, entry, facts.nodes.get(name)),
                facts=facts,
                exclusion=excluded.get(name),
                hold=f": dnm unhold {name}" if name in before.held else "",
            )
            findings = _merged(findings, judge_claim(case))
    return findings


def _is_marked(config: Config, name: str, facts: Facts) -> bool:
    node = facts.node(name)
    mark = node.mark if node is not None and node.is_marked_by(config.instance_id) else None
    return mark is not None and mark.namespace in config.namespaces


def _held(requests: Iterable[ConversionRequest]) -> frozenset[str]:
    """Returns the ids of the requests and the names of their nodes. A claim with one of these
    belongs to a request."""
    return frozenset(
        text for request in requests for text in (request.id, *request.names, request.node) if text
    )


def _left_behind(recorded: Mapping[str, ClaimedNode], facts: Facts) -> dict[str, ClaimedNode]:
    """Returns those `recorded` nodes that a converter may have begun to convert: not those that are
    in Slurm's service, nor those of a converter that lists its claims itself."""
    assert facts.batch is not None
    rows = facts.batch
    return {
        name: node
        for name, node in recorded.items()
        if name not in rows or not (rows[name].reports_claim or rows[name].in_service)
    }


def _merged(findings: Findings, more: Findings) -> Findings:
    return Findings(
        nodes={**findings.nodes, **more.nodes},
        claimed={**findings.claimed, **more.claimed},
        notes=findings.notes + more.notes,
        errors=findings.errors + more.errors,
        node_errors=findings.node_errors + more.node_errors,
    )
