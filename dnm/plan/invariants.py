"""Invariants of every plan, checked as a whole before any action. Pure.

The stages keep each of these true in their own ways; here they are checked independently. A plan
that breaks one shows a defect of dnm, and no part of it is executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.plan import (
    Action,
    EvictPods,
    Fence,
    MarkNode,
    Plan,
    RelabelNode,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.model.registry import Registry
from dnm.plan.facts import Facts


def check_invariants(config: Config, before: Registry, facts: Facts, plan: Plan) -> Iterator[str]:
    """Yields a sentence for each invariant that a plan breaks. The plan was made from the registry
    `before`."""
    yield from _check_caps(config, before, plan)
    yield from _check_limits(config, plan)
    yield from _check_owners(config, facts, plan)
    yield from _check_stability(before, plan)


def _check_caps(config: Config, before: Registry, plan: Plan) -> Iterator[str]:
    """Yields an error unless each new request is recorded and within each cap. If lent nodes exceed
    a cap that was lowered, nothing may be requested."""
    recorded_ids = {request.id for request in before.requests}
    new = [request for request in plan.registry.requests if request.id not in recorded_ids]
    asked = {action.request.id for action in plan.actions if isinstance(action, StartConversion)}
    if asked - {request.id for request in plan.registry.requests}:
        yield "a conversion is started that is not recorded"
    held = before.claimed.keys() | before.nodes.keys()  # each counts under the caps already
    unclaimed = [request for request in new if request.node not in held]
    if not unclaimed:
        return
    registry = plan.registry
    lent = [(node.node_type, node.namespace) for node in registry.nodes.values()]
    lent += [
        (claim.node_type, claim.namespace)
        for name, claim in registry.claimed.items()
        if name not in registry.nodes
    ]
    for request in registry.requests:
        lent += [(request.node_type, request.namespace)] * request.count
    caps = [("max_converted_nodes", config.max_converted_nodes, len(lent))]
    for request in unclaimed:
        node_type = config.node_types.get(request.node_type)
        policy = config.namespaces.get(request.namespace)
        of_type = sum(name == request.node_type for name, _ in lent)
        of_namespace = sum(name == request.namespace for _, name in lent)
        if node_type is not None and node_type.max_nodes is not None:
            caps.append((f"max_nodes of type {node_type.name}", node_type.max_nodes, of_type))
        if policy is not None and policy.max_nodes is not None:
            caps.append((f"max_nodes of namespace {policy.name}", policy.max_nodes, of_namespace))
    for cap, most, count in dict.fromkeys(caps):
        if not isinstance(most, int) or count > most:
            yield f"{count} nodes would be lent or requested, and {cap} is {most}"


def _check_limits(config: Config, plan: Plan) -> Iterator[str]:
    """Yields an error unless each limit counts exactly the nodes that serve, at recorded size."""
    serving: dict[str, dict[str, dict[str, int]]] = {}
    for name, entry in plan.registry.nodes.items():
        if entry.phase is Phase.SERVING and entry.owner == config.instance_id:
            serving.setdefault(entry.queue, {})[name] = dict(entry.counted)
    for action in plan.actions:
        if isinstance(action, SetQueueLimits):
            wanted = {
                queue: {name: dict(size) for name, size in nodes.items()}
                for queue, nodes in action.wants.nodes.items()
                if nodes
            }
            if wanted != serving:
                yield "the limits would not count exactly the nodes that serve"


def _check_owners(config: Config, facts: Facts, plan: Plan) -> Iterator[str]:
    """Yields an error unless a returned node was seen cordoned, without work and out of service in
    Slurm. Every action must concern a node of this instance and contradict no other action."""
    for action in plan.actions:
        name = _node_of(action)
        if not name:
            continue
        entry = plan.registry.nodes.get(name)
        if entry is None or entry.owner != config.instance_id:
            yield f"{name} would be changed, but is not recorded as lent by {config.instance_id}"
        elif isinstance(action, ReturnNode):
            node = facts.node(name)
            if entry.phase is not Phase.RETURNING:
                yield f"{name} would be returned in the phase {entry.phase.value}"
            if facts.is_in_service(name) is not False:
                yield f"{name} would be returned although Slurm may have it in service"
            if node is not None and (not node.is_cordoned or facts.work_on(name) != 0):
                yield f"{name} would be returned although pods may run or land on it"
        elif isinstance(action, Unfence) and entry.phase is not Phase.SERVING:
            yield f"the fence of {name} would be lifted in the phase {entry.phase.value}"
    kinds = Counter((type(action), _node_of(action)) for action in plan.actions)
    fenced = {name for (kind, name) in kinds if kind is Fence}
    opened = {name for (kind, name) in kinds if kind is Unfence}
    for name in sorted(fenced & opened):
        yield f"{name} would be fenced and unfenced at once"


def _node_of(action: Action) -> str:
    touching = (MarkNode, Fence, Unfence, EvictPods, RelabelNode, ReturnNode)
    return action.node if isinstance(action, touching) else ""


def _check_stability(before: Registry, plan: Plan) -> Iterator[str]:
    """Yields an error if the plan returns a node and requests an equal one for the same namespace.
    A node that is returned even if its queue needs it is an exception."""
    recorded_ids = {request.id for request in before.requests}
    requested = {
        (request.queue, request.namespace, request.node_type)
        for request in plan.registry.requests
        if request.id not in recorded_ids and not request.order
    }
    for name, entry in plan.registry.nodes.items():
        old = before.nodes.get(name)
        is_new = old is not None and old.phase is Phase.SERVING and entry.phase is Phase.RELEASING
        is_asked = (entry.queue, entry.namespace, entry.node_type) in requested
        if is_new and is_asked and entry.leaves is None:
            yield f"{name} would be returned while {entry.queue} requests one of its type"
