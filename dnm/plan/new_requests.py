"""The requests for nodes that this run makes for queues: how many nodes, of which type for which
namespace, and which nodes the converter must not choose. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import ConversionRequest, Phase
from dnm.model.observed import Breaker
from dnm.model.orders import LendOrder
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Objection, QueueVerdict, Verdict
from dnm.plan.breaker import allowed_at_once, judge_breaker, next_chance, take_chance
from dnm.plan.counting import count_missing
from dnm.plan.facts import node_verdict, show_time
from dnm.plan.findings import resumable_nodes, return_unwanted
from dnm.plan.inputs import Inputs
from dnm.plan.lendable import conversion_budget, lendable_names, limit_objection, start_objection
from dnm.plan.limits import PlannedLimits, lending_objection
from dnm.plan.rule import excluded_nodes, rules_of
from dnm.sizing.caps import Bound, NodePool, budget_of, lent_in, pool_of
from dnm.sizing.queue_sizing import QueueSizing, Sizing

LONGEST_LIST = 60_000  # characters in one argument; Linux takes twice as many
_CLAIMED_FIRST = "nodes that are claimed and not lent count; `dnm plan` names them"


class Conversions(Value):
    """The requests and decisions of this run so far. `verdicts` has the decision about each
    monitored queue. `requests` has the new requests, which `registry` includes too. `questions` has
    problems with limits that stop a queue until an administrator fixes them. `sizing` is empty if
    no queue could be evaluated. `nodes` has decisions about nodes whose lend was interrupted."""

    inputs: Inputs
    limits: PlannedLimits
    registry: Registry
    verdicts: Mapping[str, QueueVerdict] = {}
    requests: tuple[ConversionRequest, ...] = ()
    errors: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    sizing: Sizing = Sizing()
    nodes: Mapping[str, NodeVerdict] = {}

    @property
    def left(self) -> int:
        """Returns how many more nodes this run may request (max_conversions_per_run)."""
        asked = sum(request.count for request in self.requests)
        return self.inputs.config.max_conversions_per_run - asked


# --- for the queues -----------------------------------------------------------------------------


def request_for_queues(start: Conversions, sizing: Sizing, before: Registry) -> Conversions:
    """Requests nodes for one pool (queue, namespace and type) after the other, in fair order. A
    pool gets its share of the conversions left in this run, or leaves it to later pools if it must
    wait. `before` is the registry before any request of this run."""
    so_far = start
    wanted: dict[NodePool, int] = {}
    granted = sizing.granted()
    shares: dict[NodePool, int] | None = None
    while granted:
        if shares is None:
            shares = _share_of_run(so_far, sizing, granted)
        pool = next(iter(shares or granted))
        share, count = shares.pop(pool, 0), granted.pop(pool)
        so_far, objection = _judge(so_far, sizing.queues[pool.queue], pool, count, before)
        asked = so_far
        so_far = _wait_or_request(so_far, pool, share, objection)
        new = sum(request.count for request in so_far.requests[len(asked.requests) :])
        is_wanted = objection is None or objection.reason is not Reason.BREAKER
        wanted[pool] = count - new if is_wanted else 0
        if new < share:
            shares = None  # the other pools share the rest
    return _return_unwanted(so_far, wanted)


def _share_of_run(
    so_far: Conversions, sizing: Sizing, granted: Mapping[NodePool, int]
) -> dict[NodePool, int]:
    """Returns how many nodes each pool may request in this run, in the order of their turns."""
    if sum(granted.values()) <= so_far.left:
        return dict(granted)
    if len(granted) == 1:
        return dict.fromkeys(granted, so_far.left)
    from dnm.sizing.fair_shares import divide_fairly

    held = Counter((name, node_type) for node_type, name in lent_in(so_far.registry))
    bound = Bound(name="max_conversions_per_run", left=so_far.left)
    priorities = {queue: item.priority for queue, item in sizing.queues.items()}
    return dict(divide_fairly(budget_of([bound]), granted, held, priorities))


def _judge(
    so_far: Conversions, sizing: QueueSizing, pool: NodePool, count: int, before: Registry
) -> tuple[Conversions, Objection | None]:
    """Returns the first objection to a request for nodes, or None. Adds a question if only an
    administrator can resolve it."""
    inputs, limits = so_far.inputs, so_far.limits
    if objection := lending_objection(inputs, limits, pool.queue):
        return so_far, objection
    so_far, objection = _judge_breaker(so_far, sizing)
    if objection := objection or start_objection(inputs, before, pool.node_type):
        return so_far, objection
    if objection := limit_objection(inputs, limits, so_far.registry, pool, count):
        so_far = _with_question(so_far, f"{sizing.queue} gets no node: {objection.detail}")
    return so_far, objection or _find_release_objection(inputs, before, pool)


def _find_release_objection(inputs: Inputs, before: Registry, pool: NodePool) -> Objection | None:
    """Returns an objection if this run has just released an equal node of the queue. The next run
    decides again, so that no plan returns a node and requests an equal one."""
    served = inputs.registry.nodes_of(inputs.config.instance_id, Phase.SERVING)
    for name, entry in before.nodes_of(inputs.config.instance_id, Phase.RELEASING).items():
        if name in served and entry.leaves is None and pool_of(entry) == pool:
            return Objection(reason=Reason.RETRY, detail=f"{name} is released in this run")
    return None


def _judge_breaker(
    so_far: Conversions, sizing: QueueSizing
) -> tuple[Conversions, Objection | None]:
    """Returns the objection of a queue's tripped circuit breaker, or None. Records a breaker that
    trips now. One that a missing image has tripped stops lends for min_nodes and events too."""
    inputs, queue, demand = so_far.inputs, sizing.queue, sizing.fingerprint
    has_joined = not sizing.first_lacks
    breaker = judge_breaker(inputs.config, so_far.registry, queue, demand, inputs.now, has_joined)
    is_new = breaker != (previous := so_far.registry.breakers.get(queue))
    is_of_image = breaker is not None and not (is_new or breaker.demand)
    asking = {request.queue for request in so_far.requests}
    is_coming = has_joined and (sizing.relies_on_incoming or queue in asking)
    if breaker is None and previous and previous.trips and sizing.for_pods and is_coming:
        return so_far, Objection(reason=Reason.RETRY, detail="one incoming node is tried first")
    if breaker is None or not (sizing.for_pods or is_of_image):
        return so_far, None
    if is_new and queue in inputs.facts.unscheduled:  # reported, but not recorded against its pods
        return so_far, Objection(reason=Reason.BREAKER, detail="the scheduler does not answer")
    target = "it" if is_of_image else "changed demand"
    chance = show_time(next_chance(inputs.config, breaker))
    since = f"{breaker.unused} since {breaker.tripped_at:%Y-%m-%d %H:%M:%S} UTC"
    detail = f"{since}; {target} is tried after {chance}"
    return with_breaker(so_far, queue, breaker), Objection(reason=Reason.BREAKER, detail=detail)


def _wait_or_request(
    before: Conversions, pool: NodePool, granted: int, objection: Objection | None
) -> Conversions:
    """Records a request for nodes of a pool, or the objection because of which its queue waits."""
    if objection is None and granted <= 0:
        most = before.inputs.config.max_conversions_per_run
        objection = Objection(reason=Reason.CAPPED, detail=f"max_conversions_per_run = {most}")
    if objection is None:
        after = _request(before, pool, granted)
        if after.requests != before.requests:  # another pool of the queue may wait
            verdict = before.sizing.verdicts[pool.queue]
            return msgspec.structs.replace(after, verdicts={**after.verdicts, pool.queue: verdict})
        objection = Objection(reason=Reason.CAPPED, detail=_CLAIMED_FIRST)
    if pool.queue in {request.queue for request in before.requests if not request.order}:
        return before
    verdicts = {**before.verdicts, pool.queue: waiting_verdict(pool.queue, objection)}
    return msgspec.structs.replace(before, verdicts=verdicts)


def _with_question(before: Conversions, question: str) -> Conversions:
    """Adds a question for an administrator, unless the edit of limits already asks one."""
    edit = before.limits.edit
    if edit is not None and edit.refusal:
        return before
    return msgspec.structs.replace(before, questions=(*before.questions, question))


def with_breaker(before: Conversions, queue: str, breaker: Breaker) -> Conversions:
    breakers = {**before.registry.breakers, queue: breaker}
    registry = msgspec.structs.replace(before.registry, breakers=breakers)
    return msgspec.structs.replace(before, registry=registry)


def _request(before: Conversions, pool: NodePool, count: int) -> Conversions:
    """Records requests for up to `count` nodes, as many as the type's back-off and the queue's
    breaker allow. Interrupted lends are resumed first, each by the node's name. Their nodes are
    claimed already, so that only new nodes must fit under the caps."""
    inputs, registry = before.inputs, before.registry
    backoff, breaker = registry.backoffs.get(pool.node_type), registry.breakers.get(pool.queue)
    if backoff is not None and backoff.failures > 1:
        count = min(count, backoff.ask_at_most)
    if breaker is not None and breaker.demand and not before.sizing.of(pool.queue).for_pods:
        breaker = None  # it concerns pods only, and their chance is not used here
    count = allowed_at_once(breaker, count, before.sizing.of(pool.queue).first_lacks or 1)
    claimed = resumable_nodes(inputs.config, registry) if registry.claimed else {}
    names = claimed.get(pool, [])[:count]
    budget = conversion_budget(inputs.config, registry, inputs.facts, unclaimed=True)
    free = min(budget.left[bound.name] for bound in budget.bounds_of(pool))
    new_nodes = min(count - len(names), free)
    if not names and new_nodes <= 0:
        return before
    if breaker is not None:
        before = with_breaker(before, pool.queue, take_chance(inputs.config, breaker))
    for name in names:
        before = with_resumed(with_request(before, pool, 1, name), name)
    return with_fresh(before, pool, new_nodes)


def _return_unwanted(before: Conversions, wanted: dict[NodePool, int]) -> Conversions:
    """Starts to return nodes of interrupted lends that no queue and no `dnm lend` order needs."""
    limits, inputs = before.limits, before.inputs
    if not before.registry.claimed:
        return before
    undecided = [
        queue for queue in inputs.config.queues if lending_objection(inputs, limits, queue)
    ]
    named: set[tuple[NodePool, str]] = set()
    for order in before.registry.orders:  # orders need nodes too
        if policy := inputs.config.namespaces.get(order.namespace):
            pool = NodePool(policy.queue, order.namespace, order.node_type)
            missing = count_missing(order, before.registry)
            if missing and order.nodes:  # only these nodes of the pool
                named.update((pool, name) for name in order.nodes)
            else:
                wanted[pool] = wanted.get(pool, 0) + missing
    registry, nodes = return_unwanted(inputs, before.registry, wanted, undecided, named)
    return msgspec.structs.replace(before, registry=registry, nodes={**before.nodes, **nodes})


def waiting_verdict(queue: str, objection: Objection) -> QueueVerdict:
    """Returns the decision that a queue waits and gets no node, with this objection."""
    return QueueVerdict(
        queue=queue, verdict=Verdict.WAIT, reason=objection.reason, detail=objection.detail
    )


# --- recording requests -------------------------------------------------------------------------


def exclusion_list(config: Config, node_type: str, names: Iterable[str]) -> str:
    """Returns those of `names` that are of the node type, as a hostlist for the converter."""
    return fold_hostlist(name for name in names if config.type_of(name) == node_type)


def with_fresh(
    before: Conversions, pool: NodePool, count: int, order: LendOrder | None = None
) -> Conversions:
    """Adds requests for nodes that are neither claimed nor excluded. If the converter cannot be
    given the excluded names, each node is requested by its name."""
    inputs, registry = before.inputs, before.registry
    excluded = excluded_nodes(inputs.config, registry, inputs.facts.batch, inputs.now)
    leave_out = exclusion_list(inputs.config, pool.node_type, excluded) if excluded else ""
    is_passed = inputs.snapshot.leaves_out and len(leave_out) <= LONGEST_LIST
    if count > 0 and (is_passed or not leave_out):
        return with_request(before, pool, count, leave_out=leave_out, order=order)
    named = {request.node for request in registry.requests}
    names = [
        name
        for name in lendable_names(inputs.config, registry, inputs.facts)
        if inputs.config.type_of(name) == pool.node_type and name not in named
        if name not in (inputs.facts.nodes or {})
    ]
    for name in _after_failures(inputs, pool.node_type, names)[: max(count, 0)]:
        before = with_request(before, pool, 1, name, order=order)
    return before


def _after_failures(inputs: Inputs, node_type: str, names: list[str]) -> list[str]:
    """Returns the names, rotated by one for each failure in a row. So a node that always fails does
    not block requests for the others."""
    backoff = inputs.registry.backoffs.get(node_type)
    at = backoff.failures % len(names) if backoff and names else 0
    return names[at:] + names[:at]


def with_resumed(before: Conversions, name: str) -> Conversions:
    detail = f"its conversion was interrupted and resumes as request {before.requests[-1].id}"
    verdict = node_verdict(name, Verdict.CONVERT, Reason.CLAIMED, detail)
    return msgspec.structs.replace(before, nodes={**before.nodes, name: verdict})


def with_request(
    before: Conversions,
    pool: NodePool,
    count: int,
    name: str = "",
    *,
    leave_out: str = "",
    order: LendOrder | None = None,
) -> Conversions:
    """Adds a request for the node `name`, or for any nodes except those in `leave_out`. `order` is
    the `dnm lend` order that it serves."""
    inputs, registry = before.inputs, before.registry
    claimed = {other: claim for other, claim in registry.claimed.items() if other != name}
    request = ConversionRequest(
        id=f"{inputs.now:%Y%m%dT%H%M%S%f}-{len(before.requests) + 1}",
        node_type=pool.node_type,
        namespace=pool.namespace,
        queue=pool.queue,
        owner=inputs.config.instance_id,
        count=count,
        since=inputs.now,
        asked_at=inputs.now,
        nodes_before=_stray_nodes(inputs, registry, pool.node_type, name),
        out_before=_nodes_out_of_service(inputs, pool.node_type, name),
        node=name,
        leave_out=leave_out,
        order=order.id if order else "",
        stays_until=order.until if order else None,
    )
    for rule in rules_of(inputs.config, registry, inputs.facts):
        request = rule.asks(inputs, request) if rule.asks else request
    return msgspec.structs.replace(
        before,
        registry=msgspec.structs.replace(
            registry,
            requests=(*registry.requests, request),
            claimed=claimed,
            last_conversion=inputs.now,
        ),
        requests=(*before.requests, request),
    )


def _nodes_out_of_service(inputs: Inputs, node_type: str, but: str) -> tuple[str, ...]:
    """Returns the type's nodes, except `but`, that are out of service in Slurm before the request.
    These are needed only if the converter does not report its claims."""
    if inputs.facts.reports_claims:
        return ()
    return tuple(
        name
        for name, node in sorted((inputs.facts.batch or {}).items())
        if inputs.config.type_of(name) == node_type and not node.in_service and name != but
    )


def _stray_nodes(inputs: Inputs, registry: Registry, node_type: str, but: str) -> tuple[str, ...]:
    """Returns the type's Nodes, except `but`, that are not in the registry before the request."""
    return tuple(
        name
        for name in sorted(inputs.facts.nodes or {})
        if inputs.config.type_of(name) == node_type and name not in registry.nodes and name != but
    )
