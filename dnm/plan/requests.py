"""What has become of each open conversion request: the nodes it brought join the record, what did
not come in time is dropped. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dnm.model.config import Config
from dnm.model.registry import ConversionRequest, Ended, LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.backoff import ConversionResult
from dnm.plan.ended_calls import conversion_error, request_ended, with_names
from dnm.plan.facts import Facts


class RequestTransition(Value):
    """One request after this look: the nodes it brought, and what is left of it."""

    request: ConversionRequest | None
    joined: Mapping[str, LentNode] = {}
    conversion_failed: bool = False
    note: str = ""


def advance_request(
    config: Config, request: ConversionRequest, taken: frozenset[str], facts: Facts
) -> RequestTransition:
    """Adopts the nodes that a conversion brought.

    A node is the request's if it did not exist before and either the converter named it or it has
    the type's name and carries the namespace's label. `taken` are nodes that are recorded already.
    While the converter is at work only what it has named is taken up: another host's look alike,
    and those that it is still to bring would then be more than were asked for.
    """
    if facts.nodes is None:
        return RequestTransition(request=request)
    said = facts.ended.get(request.id, Ended())
    ended_now = not request.ended and not facts.is_running(request.converter)
    if ended_now:
        # After the run that started it, or that run was killed.
        request = request_ended(request, said, facts.now)
    elif not request.ended:
        request = with_names(request, said)
    transition = _adopt(config, request, taken, facts)
    if ended_now and request.error:
        transition = msgspec.structs.replace(
            transition,
            conversion_failed=request.is_given_up,
            note=conversion_error(request.id, request.error),
        )
    return transition


def _adopt(
    config: Config, request: ConversionRequest, taken: frozenset[str], facts: Facts
) -> RequestTransition:
    assert facts.nodes is not None
    named = [name for name in request.names if name not in taken]
    others = [name for name in sorted(facts.nodes) if name not in taken and name not in named]
    came = [name for name in named if _is_brought_by(config, request, name, facts)]
    # Of those that nobody named no more than are missing: another host may have brought some.
    arrived = [name for name in others if _is_brought_by(config, request, name, facts)]
    if request.ended:
        came += arrived[: max(request.count - len(came), 0)]
    joined = {name: _newly_lent(request, name, facts.now) for name in came}
    left = max(request.count - len(joined), 0)
    rest = msgspec.structs.replace(request, count=left)
    if left == 0 and rest.ended:
        return RequestTransition(request=None, joined=joined)
    if rest.ended and facts.now > rest.since + config.join_timeout:
        note = (
            f"request={request.id} type={request.node_type} missing={left} did not join in time: "
            f"{request.error or 'its converter reported no error'}; the log has what it said "
            f"(converter={request.id}), `dnm nodes` how Slurm has the nodes now"
        )
        return RequestTransition(
            request=None, joined=joined, conversion_failed=not request.is_given_up, note=note
        )
    return RequestTransition(request=rest, joined=joined)


def _is_brought_by(config: Config, request: ConversionRequest, name: str, facts: Facts) -> bool:
    """A word on the converter's stdout is only taken for a node if Slurm knows it, if it has the
    type's name, or if a Node of that name has come with the namespace's label."""
    node = facts.nodes.get(name) if facts.nodes else None
    is_of_type = config.type_of(name) == request.node_type
    is_named = name in request.names
    if node is None:
        return request.ended and is_named and (is_of_type or name in (facts.batch or {}))
    if name in request.known_nodes or (node.mark is not None and not is_named):
        # A mark, ours too, was set when it joined for something else, or by its own kubelet; what
        # the converter has named is this request's all the same.
        return False
    is_labelled = node.labels.get(request.namespace) == "true"
    return is_of_type + is_labelled + is_named >= 2


def _newly_lent(request: ConversionRequest, name: str, now: datetime) -> LentNode:
    return LentNode(
        node_type=request.node_type,
        namespace=request.namespace,
        queue=request.queue,
        owner=request.owner,
        phase=Phase.JOINING,
        since=now,
        converter=request.converter,
    )


class Arrivals(Value):
    """All requests after this look: `nodes` are all that are recorded now, `requests` those that
    still wait for nodes, `failures` the conversions that failed."""

    nodes: Mapping[str, LentNode]
    requests: tuple[ConversionRequest, ...]
    failures: tuple[ConversionResult, ...]
    errors: tuple[str, ...]


def advance_requests(config: Config, registry: Registry, facts: Facts) -> Arrivals:
    """Takes up what every open request has brought, one after the other: a node that one request
    has taken is no other's."""
    nodes = dict(registry.nodes)
    left, failures, errors = [], [], []
    for request in registry.requests:
        after = advance_request(config, request, frozenset(nodes), facts)
        nodes |= after.joined
        if after.request is not None:
            left.append(after.request)
        if after.conversion_failed:
            error = (after.request and after.request.error) or after.note
            failures.append(
                ConversionResult(node_type=request.node_type, count=request.count, error=error)
            )
        if after.note:
            errors.append(after.note)
    return Arrivals(
        nodes=nodes, requests=tuple(left), failures=tuple(failures), errors=tuple(errors)
    )
