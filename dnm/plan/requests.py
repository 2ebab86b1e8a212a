"""What has become of each open conversion request: the nodes it brought join the record, what did
not come in time is dropped; and what the end of a converter's call means for the record, which the
run books that started it, or the next one that finds it ended. And which of the nodes that the
batch side tells as claimed for this instance no request holds: a host was restarted in the middle
of a conversion, or a converter was killed with its keeper. Only the batch side's word makes a claim
ours: its marks are out of a kubelet's reach. What becomes of such a node is said in `found.py`.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from dnm.model.config import Config
from dnm.model.lent import (
    Charge,
    ClaimedNode,
    ConversionRequest,
    ConverterProcess,
    Ended,
    LentNode,
    Phase,
)  # fmt: skip
from dnm.model.registry import Registry
from dnm.plan.breaker import ConversionResult, backoff_delay
from dnm.plan.facts import Facts, has_stopped
from dnm.plan.found import Case, Found, claim_as_known, judge_claim
from dnm.plan.overdue import (
    RequestTransition,
    after_death,
    conversion_error,
    may_still_come,
    too_late,
)
from dnm.plan.rule import unwelcome_nodes


def advance_request(
    config: Config,
    request: ConversionRequest,
    taken: frozenset[str],
    facts: Facts,
    others: Sequence[ConversionRequest] = (),
) -> RequestTransition:
    """Adopts the nodes that a conversion brought.

    A node is the request's if it did not exist before and either the converter named it or it has
    the type's name and carries the namespace's label. `taken` are nodes that are recorded already,
    `others` the other open requests, as `with_report` gives them: what one of them has named is its
    own. While the converter is at work only what it has named is taken up: another host's look
    alike, and those that it is still to bring would then be more than were asked for.
    """
    if facts.nodes is None:
        return RequestTransition(request=request)
    reported = with_report(request, facts)
    transition = _adopt(config, reported, taken, facts, others)
    if reported.ended and not request.ended and _has_died(facts.ended.get(request.id, Ended())):
        return after_death(config, transition, reported, taken, facts)
    if reported.ended and not request.ended and reported.error:
        transition = msgspec.structs.replace(
            transition,
            conversion_failed=reported.is_given_up,
            note=conversion_error(reported.id, reported.error),
        )
    return transition


def with_report(request: ConversionRequest, facts: Facts) -> ConversionRequest:
    """Returns the request with what its converter has named and how it ended, as it was found after
    the run that had started it."""
    if request.ended:
        return request
    said = facts.ended.get(request.id, Ended())
    if facts.is_running(request.converter):
        return with_names(request, said)
    if _has_died(said) and facts.batch is None:
        return with_names(request, said)  # what it had claimed is not known yet
    return request_ended(request, said, facts.now)


def _has_died(said: Ended) -> bool:
    """Whether it ended without a word on how: killed together with what waited for it, as by a
    restart of the host."""
    return said.exit_code is None and not (said.error or said.left_running)


def _adopt(
    config: Config,
    request: ConversionRequest,
    taken: frozenset[str],
    facts: Facts,
    others: Sequence[ConversionRequest],
) -> RequestTransition:
    assert facts.nodes is not None
    came = [name for name in request.names if name not in taken]
    came = [name for name in came if _is_brought_by(config, request, name, facts)]
    if request.ended and not _may_be_named_yet(request, others):
        # Of those that nobody named no more than are missing: another host may have brought some.
        named = {*request.names, *(name for other in others for name in other.names)}
        unnamed = [name for name in sorted(facts.nodes) if name not in taken and name not in named]
        arrived = [name for name in unnamed if _is_brought_by(config, request, name, facts)]
        came += arrived[: max(request.count - len(came), 0)]
    joined = dict.fromkeys(came, _newly_lent(request, facts.now))
    left = max(request.count - len(joined), 0)
    if request.ended:
        left = max(left - len(facts.left_by(request, config.instance_id)), 0)
    if request.ended and request.error:
        # What a failed call has not named is asked for again at once.
        left = min(left, may_still_come(config, request, taken | joined.keys(), facts, others))
    rest = msgspec.structs.replace(request, count=left)
    if left == 0 and rest.ended:
        return RequestTransition(request=None, joined=joined)
    if rest.ended and facts.batch is not None and facts.now > rest.since + config.join_timeout:
        return too_late(config, rest, joined, taken, facts)
    return RequestTransition(request=rest, joined=joined)


def _may_be_named_yet(request: ConversionRequest, others: Sequence[ConversionRequest]) -> bool:
    """Whether a node that nobody has named may be the work of another call, which names its nodes
    in the end. A converter that succeeded and named none never names any: it does not wait."""
    succeeded_without_names = not request.error and not request.names
    return not succeeded_without_names and any(
        not other.ended and other.node_type == request.node_type for other in others
    )


def _is_brought_by(config: Config, request: ConversionRequest, name: str, facts: Facts) -> bool:
    """A word on the converter's stdout is only taken for a node if Slurm knows it, if it has the
    type's name, or if a Node of that name has come with the namespace's label."""
    node = facts.nodes.get(name) if facts.nodes else None
    instance = config.instance_id
    if facts.is_interrupted(name, instance) or facts.claimed_by_another(name, instance):
        return False
    is_of_type = config.type_of(name) == request.node_type
    is_named = name in request.names
    if facts.batch is None and not is_named:
        return False  # only Slurm can tell whose it is
    if node is None:
        if facts.tells_claims and facts.claim_of(name, instance) is None:
            return False  # it was given back, in service or as a health check has drained it
        return request.ended and is_named and (is_of_type or name in (facts.batch or {}))
    # A mark, ours too, was set when it joined for something else, or by its own kubelet; what the
    # converter has named is this request's all the same.
    is_old = name in request.known_nodes or (node.mark is not None and not is_named)
    if is_old or (request.ended and facts.is_let_go(name, request.namespace)):
        return False
    is_labelled = node.labels.get(request.namespace) == "true"
    return is_of_type + is_labelled + is_named >= 2


def _newly_lent(request: ConversionRequest, now: datetime) -> LentNode:
    return LentNode(
        node_type=request.node_type,
        namespace=request.namespace,
        queue=request.queue,
        owner=request.owner,
        phase=Phase.JOINING,
        since=now,
        asked_at=request.asked_at,
        converter=request.converter,
        order=request.order,
        stays_until=request.stays_until,
        charge=Charge(account=request.account, since=now) if request.account else None,
    )


def advance_requests(config: Config, registry: Registry, facts: Facts) -> Found:
    """Takes up what every open request has brought, one after the other: a node that one request
    has taken is no other's, and those that failed are asked last. `claimed`: what they left."""
    nodes = dict(registry.nodes)
    behind: dict[str, ClaimedNode] = {}
    left, failures, errors = [], [], []
    reported = {request.id: with_report(request, facts) for request in registry.requests}
    for request in sorted(registry.requests, key=lambda request: reported[request.id].is_given_up):
        report = reported[request.id]
        others = [other for other in reported.values() if other.id != request.id]
        after = advance_request(config, request, frozenset(nodes), facts, others)
        nodes |= after.joined
        behind |= after.left_behind
        if after.request is not None:
            left.append(after.request)
        if after.conversion_failed:
            error = report.error if report.is_given_up else after.note
            failures.append(
                ConversionResult(node_type=request.node_type, count=request.count, error=error)
            )
        if after.note:
            errors.append(after.note)
    return Found(
        nodes=nodes,
        claimed=behind,
        requests=tuple(left),
        failures=tuple(failures),
        errors=tuple(errors),
    )


# --- the end of a call --------------------------------------------------------------------------


def calls_until(
    config: Config, registry: Registry
) -> Iterator[tuple[str, ConverterProcess, datetime]]:
    """Yields the converters that may be at work, by key, and until when they may be."""
    longest = config.convert_timeout
    for request in registry.requests:
        if request.converter is not None:
            yield request.id, request.converter, request.since + longest
    for name, entry in registry.nodes_of(config.instance_id, Phase.RETURNING).items():
        if entry.converter is not None:
            yield name, entry.converter, entry.retry_after or entry.since + longest


def request_ended(request: ConversionRequest, end: Ended, now: datetime) -> ConversionRequest:
    """With what its converter named; the time to join counts from now. Where it failed and named
    none, nobody counts on its nodes; late ones that are nobody's are still adopted."""
    request = with_names(request, end)
    return msgspec.structs.replace(
        request,
        ended=True,
        is_given_up=bool(end.error and not request.names),
        since=now,
        error=end.error,
    )


def with_names(request: ConversionRequest, end: Ended) -> ConversionRequest:
    """With the names that were heard before and those that stand there now."""
    names = tuple(dict.fromkeys((*request.names, *end.names)))
    return msgspec.structs.replace(request, names=names)


def return_ended(config: Config, entry: LentNode, end: Ended, now: datetime) -> LentNode:
    """When it may be tried again, unless Slurm has the node by then."""
    wait = backoff_delay(config, entry.attempts) if end.error else config.join_timeout
    return msgspec.structs.replace(
        entry,
        converter=None,
        error=end.error,
        retry_after=now + wait,
        is_handed_over=not end.error and end.exit_code == 0,
    )


# --- claims that no request holds ---------------------------------------------------------------


def set_aside_interrupted(config: Config, registry: Registry, facts: Facts) -> Registry:
    """Returns the registry without the nodes that should be joining, but whose conversion was
    interrupted: they are claims like any other now."""
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


def take_in_claims(
    config: Config,
    before: Registry,
    nodes: Mapping[str, LentNode],
    requests: Sequence[ConversionRequest],
    facts: Facts,
) -> Found:
    """Returns what becomes of each claim of this instance that neither `nodes` nor `requests` hold.
    `before`: as the last run left it. While the batch side can't be read all stays as it was."""
    remembered = {name: claim for name, claim in before.claimed.items() if name not in nodes}
    if facts.batch is None or facts.nodes is None:
        return Found(claimed=remembered)
    held = _held(requests)
    running = _held(request for request in requests if facts.is_running(request.converter))
    found = Found(claimed=_left_behind(remembered, facts))
    out = unwelcome_nodes(config, before, facts)
    for name, row in sorted(facts.batch.items()):
        claim = row.claim
        if claim is None or claim.instance != config.instance_id or name in nodes:
            continue
        if not {name, claim.request} & (running if has_stopped(claim) else held):
            entry = before.nodes.get(name)
            if entry is None and claim.direction != "batch" and _is_marked(config, name, facts):
                continue  # it served, and is recorded again by its mark
            case = Case(
                config=config,
                name=name,
                row=row,
                claim=claim_as_known(config, claim, entry, facts.nodes.get(name)),
                facts=facts,
                kept_out=out.get(name),
                hold=f": dnm unhold {name}" if name in before.held else "",
            )
            found = _merged(found, judge_claim(case))
    return found


def _is_marked(config: Config, name: str, facts: Facts) -> bool:
    node = facts.node(name)
    mark = node.mark if node is not None and node.is_marked_by(config.instance_id) else None
    return mark is not None and mark.namespace in config.namespaces


def _held(requests: Iterable[ConversionRequest]) -> frozenset[str]:
    """The requests, and the nodes that they have named or are to go on with: what their converter
    has claimed and not left in the middle, they wait for."""
    return frozenset(
        text for request in requests for text in (request.id, *request.names, request.node) if text
    )


def _left_behind(remembered: Mapping[str, ClaimedNode], facts: Facts) -> dict[str, ClaimedNode]:
    """Returns the nodes that a converter left behind which does not report its claims, until Slurm
    has them in service."""
    assert facts.batch is not None
    rows = facts.batch
    return {
        name: node
        for name, node in remembered.items()
        if name not in rows or not (rows[name].tells_claim or rows[name].in_service)
    }


def _merged(found: Found, more: Found) -> Found:
    return Found(
        nodes={**found.nodes, **more.nodes},
        claimed={**found.claimed, **more.claimed},
        notes=found.notes + more.notes,
        errors=found.errors + more.errors,
    )
