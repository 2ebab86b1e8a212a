"""Requests for nodes as they are written down: how many, whose, and which nodes they may not bring.
Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.plan import NodeVerdict, QueueVerdict, Reason, Verdict
from dnm.model.registry import ConversionRequest, LendOrder, Registry
from dnm.model.value import Value
from dnm.plan.brakes import lendable_names
from dnm.plan.known import Known
from dnm.plan.limits import PlannedLimits
from dnm.plan.resumption import without_claim
from dnm.plan.returns import Returned
from dnm.plan.rule import nodes_kept_out
from dnm.plan.supply import node_supply
from dnm.queues.edit import why_no_growth
from dnm.sizing.budget import NodePool
from dnm.sizing.queue_sizing import Sizing

LONGEST_LIST = 60_000  # characters in one argument; Linux takes twice as many


class Converted(Value):
    """`verdicts` by monitored queue. `requests`: the new ones, which `registry` holds already.
    `questions`: why queues get no node that a person has to mend the document for. `sizing` None:
    nothing is known of any queue. `nodes`: what is said of those whose conversion was
    interrupted."""

    returned: Returned
    registry: Registry
    verdicts: Mapping[str, QueueVerdict]
    requests: tuple[ConversionRequest, ...] = ()
    errors: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    sizing: Sizing | None = None
    nodes: Mapping[str, NodeVerdict] = {}

    @property
    def known(self) -> Known:
        return self.returned.known

    @property
    def limits(self) -> PlannedLimits:
        return self.returned.limits


def left_out_list(config: Config, node_type: str, names: Iterable[str]) -> str:
    """Returns those of a type that the converter may not choose, as a host list."""
    return fold_hostlist(name for name in names if config.type_of(name) == node_type)


def with_fresh(
    before: Converted, pool: NodePool, count: int, order: LendOrder | None = None
) -> Converted:
    """With requests for nodes that nobody has claimed yet, none of them kept out: where the
    converter can't be told what to leave out, it is told what to take."""
    known, registry = before.known, before.registry
    out = nodes_kept_out(known.config, registry, known.facts)
    leave_out = left_out_list(known.config, pool.node_type, out)
    is_told = known.snapshot.leaves_out and len(leave_out) <= LONGEST_LIST
    if count > 0 and (is_told or not leave_out):
        return with_request(before, pool, count, leave_out=leave_out, order=order)
    named = {request.node for request in registry.requests}
    names = [
        name
        for name in lendable_names(known.config, registry, known.facts)
        if known.config.type_of(name) == pool.node_type and name not in named
        if name not in (known.facts.nodes or {})
    ]
    for name in _after_failures(known, pool.node_type, names)[: max(count, 0)]:
        before = with_request(before, pool, 1, name, order=order)
    return before


def _after_failures(known: Known, node_type: str, names: list[str]) -> list[str]:
    """Begins further down after each failure in a row, so that one node that always fails does not
    keep the others from being asked for."""
    backoff = known.registry.backoffs.get(node_type)
    at = backoff.failures % len(names) if backoff and names else 0
    return names[at:] + names[:at]


def resumed(before: Converted, name: str) -> Converted:
    verdict = NodeVerdict(
        node=name,
        verdict=Verdict.CONVERT,
        reason=Reason.CLAIMED,
        detail=f"its conversion was interrupted and goes on as request {before.requests[-1].id}",
    )
    return msgspec.structs.replace(before, nodes={**before.nodes, name: verdict})


def with_request(
    before: Converted,
    pool: NodePool,
    count: int,
    name: str = "",
    *,
    leave_out: str = "",
    order: LendOrder | None = None,
) -> Converted:
    """With one request more: for any nodes but those left out, or for the one named; `order`: a
    person's, for which it is."""
    known, registry = before.known, without_claim(before.registry, name)
    request = ConversionRequest(
        id=f"{known.now:%Y%m%dT%H%M%S%f}-{len(before.requests) + 1}",
        node_type=pool.node_type,
        namespace=pool.namespace,
        queue=pool.queue,
        owner=known.config.instance_id,
        count=count,
        since=known.now,
        asked_at=known.now,
        known_nodes=_known_nodes(known, registry, pool.node_type, name),
        known_out=_known_out(known, pool.node_type, name),
        node=name,
        leave_out=leave_out,
        order=order.id if order else "",
        stays_until=order.until if order else None,
    )
    return msgspec.structs.replace(
        before,
        registry=msgspec.structs.replace(
            registry,
            requests=(*registry.requests, request),
            last_conversion=known.now,
        ),
        requests=(*before.requests, request),
    )


def _known_out(known: Known, node_type: str, but: str) -> tuple[str, ...]:
    """Nodes of the type that are not in Slurm's service before; a converter that tells what it has
    claimed needs no such memory."""
    if known.facts.tells_claims:
        return ()
    return tuple(
        name
        for name, node in sorted((known.facts.batch or {}).items())
        if known.config.type_of(name) == node_type and not node.in_service and name != but
    )


def _known_nodes(known: Known, registry: Registry, node_type: str, but: str) -> tuple[str, ...]:
    """Nodes of the type that are there and not recorded: the conversion did not bring them."""
    return tuple(
        name
        for name in sorted(known.facts.nodes or {})
        if known.config.type_of(name) == node_type and name not in registry.nodes and name != but
    )


def why_not_judge(limits: PlannedLimits, queue: str) -> QueueVerdict | None:
    """Why nothing that is known of the queue's pods and limits may be acted on; None: it may."""
    if queue not in limits.limits:
        close = difflib.get_close_matches(queue, limits.limits, n=1)
        hint = (
            f", did you mean {close[0]}?" if close else "; `dnm queues show` lists those there are"
        )
        detail = f"the queue document has no queue {queue}{hint}"
        return waiting(queue, Reason.QUEUE_UNREADABLE, detail)
    unread = limits.known.unreadable_namespaces(queue)
    if unread:
        return waiting(queue, Reason.DEMAND_UNREADABLE, f"namespace {', '.join(unread)}")
    return None


def why_not_counted(before: Converted, pool: NodePool, count: int) -> str:
    """Why the size of these nodes, and of those on their way, could not be written into the limits;
    empty: it could."""
    known, asked = before.known, before.limits.action
    if known.document is None or asked is None:
        return ""
    types = [pool.node_type] * count + [
        one.node_type for one in node_supply(known, before.registry).incoming
        if one.queue == pool.queue
    ]  # fmt: skip
    known_types = known.config.node_types
    sizes = [known_types[name].size for name in types if name in known_types]
    return why_no_growth(known.document, asked.wants, pool.queue, sizes)


def waiting(queue: str, reason: Reason, detail: str = "") -> QueueVerdict:
    return QueueVerdict(queue=queue, verdict=Verdict.WAIT, reason=reason, detail=detail)
