"""Explanations of why a pod waits or a node is not lent, from a run's facts and decisions. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dnm.demand.constraints import describe_taint
from dnm.demand.pending import PendingGroup
from dnm.model.batch import BatchNode
from dnm.model.close_look import CLOSED
from dnm.model.node import Node
from dnm.model.node_type import NodeType
from dnm.model.pod import Pod, PodList
from dnm.model.printable import count_of
from dnm.model.quantity import amount_text
from dnm.model.queue_path import present_lineage
from dnm.model.reason import CORE_REASONS, ReasonText
from dnm.model.value import Unreadable, Value
from dnm.plan.conversions import Decided
from dnm.plan.counting import count_missing
from dnm.plan.inputs import Inputs, demand_of
from dnm.plan.lendable import find_brake, lendable_names, node_supply
from dnm.plan.rule import TABLE, excluded_nodes, rule_named
from dnm.plan.supply import supply_of
from dnm.sizing.backlog import describe_mismatch
from dnm.sizing.node_supply import expected_nodes, traits_of

_LEAST_SHARE = 0.9  # of a configured amount; a kubelet reserves a part


def list_reasons() -> Iterator[ReasonText]:
    """Yields every reason that dnm can give for a decision: the core's, then those of each rule."""
    yield from CORE_REASONS
    for name, _ in TABLE:
        yield from rule_named(name).reasons


class PodExplanation(Value):
    """The explanation of why a pod waits: `obstacles`, a sentence each. `node` is where it runs, if
    it does; `queue` is where it counts. `helpful_node_types` have empty nodes that could run it."""

    pod: str
    node: str = ""
    state: str = "pending"  # or rejected, unknown
    queue: str = ""
    obstacles: tuple[str, ...] = ()
    helpful_node_types: tuple[str, ...] = ()


def explain_pod(decided: Decided, namespace: str, name: str) -> PodExplanation | None:
    """Explains whether quota, capacity, its own constraints or a restriction keep a pod waiting.
    Returns None if the run has read no such pod."""
    inputs, title = decided.inputs, f"{namespace}/{name}"
    pods = inputs.snapshot.pods
    if isinstance(pods, Unreadable):
        return PodExplanation(pod=title, state="unknown", obstacles=(pods.error,))
    if namespace in pods.unreadable:
        unread = (pods.unreadable[namespace],)
        return PodExplanation(pod=title, state="unknown", obstacles=unread)
    matching = [pod for pod in pods.pods if (pod.namespace, pod.name) == (namespace, name)]
    if not matching:
        return None
    if matching[0].node:
        return PodExplanation(pod=title, node=matching[0].node)
    return _explain_pending(decided, matching[0], title)


def _explain_pending(decided: Decided, pod: Pod, title: str) -> PodExplanation:
    inputs = decided.inputs
    reason = _uncounted_reason(inputs, pod)
    waits = inputs.snapshot.waits
    causes = filter(None, [waits.unclear.get(title, "") if waits else ""])
    if reason:
        state = "rejected" if pod.is_rejected else "pending"
        uncounted = (f"it requests no node: it is {reason}", *causes)
        return PodExplanation(pod=title, state=state, obstacles=uncounted)
    group = _group_of(inputs, pod)
    if group is None:
        reason = "it requests no node: equal pods stayed pending while a node was idle"
        return PodExplanation(pod=title, obstacles=(reason,))
    monitored = [
        q for q in present_lineage(group.queue, inputs.limits) if q in decided.conversions.verdicts
    ]
    queue = monitored[0] if monitored else ""
    helpful_node_types, refusals = _helpful_types(decided, group, queue)
    obstacles = [*causes, *_list_obstacles(decided, group, queue)]
    if refusals and not helpful_node_types:
        obstacles.append(f"no new node would help it: {'; '.join(refusals)}")
    if not queue:
        obstacles.append(f"dnm does not monitor its queue {group.queue}")
    return PodExplanation(
        pod=title,
        queue=queue,
        obstacles=tuple(obstacles),
        helpful_node_types=tuple(helpful_node_types),
    )


def _uncounted_reason(inputs: Inputs, pod: Pod) -> str | None:
    """Returns why dnm lends no node for the pod, alone or as part of a gang or application."""
    snapshot = msgspec.structs.replace(inputs.snapshot, pods=PodList(pods=(pod,)))
    alone = demand_of(inputs.config, snapshot, inputs.limits)
    if alone is not None and alone.uncounted:
        return alone.uncounted[0].why.value
    demand = inputs.demand
    for uncounted in demand.uncounted if demand else ():
        if uncounted.namespace == pod.namespace and pod.name in uncounted.names:
            return uncounted.why.value
    return None


def _group_of(inputs: Inputs, pod: Pod) -> PendingGroup | None:
    groups = inputs.demand.groups if inputs.demand else ()
    alike = [g for g in groups if g.namespace == pod.namespace and g.shape == pod.shape]
    return next((g for g in alike if pod.name in g.names), alike[0] if alike else None)


def _list_obstacles(decided: Decided, group: PendingGroup, queue: str) -> Iterator[str]:
    """Yields sentences about the quota and capacity that this pod and equal pods lack."""
    inputs, sizing = decided.inputs, decided.conversions.sizing.queues.get(queue)
    if group.young and not group.count:
        yield "it has been pending for a few seconds only"
    if sizing is None or inputs.demand is None:
        return
    fits = sizing.fits.get(group.fingerprint, 0)
    if fits:
        yield (
            f"{fits} of {group.count} equal pods fit on existing nodes: the scheduler places them"
        )
    for path in present_lineage(group.queue, inputs.limits):
        used = inputs.demand.queues[path].used if path in inputs.demand.queues else {}
        for resource, limit in sorted(inputs.limits[path].max.items()):
            requested = group.request.get(resource, 0)
            if requested and used.get(resource, 0) + requested > limit:
                left = max(limit - used.get(resource, 0), 0)
                yield (
                    f"quota: {path} has {amount_text(resource, left)} left of "
                    f"{amount_text(resource, limit)}, it requests "
                    f"{amount_text(resource, requested)}"
                )
    if sizing.without_capacity and fits < group.count:
        pods = count_of(sizing.without_capacity, "pod")
        yield f"capacity: the existing nodes have none for {pods} of its queue"


def _helpful_types(
    decided: Decided, group: PendingGroup, queue: str
) -> tuple[list[str], list[str]]:
    """Returns the node types that could run the pods, and the reasons why others could not."""
    inputs = decided.inputs
    if inputs.demand is None:
        return [], []
    expected = expected_nodes(
        inputs.config, inputs.demand, node_supply(inputs, decided.decisions.registry)
    )
    helpful, refusals = [], []
    for policy in inputs.config.namespaces.values():
        for node_type in policy.node_types if policy.queue == queue else ():
            why = describe_mismatch(group, expected[policy.name, node_type])
            if why:
                refusals.append(why)
            else:
                helpful.append(node_type)
    return list(dict.fromkeys(helpful)), list(dict.fromkeys(refusals))


def describe_differences(node: Node, node_type: NodeType, namespace: str) -> list[str]:
    """Returns a sentence for each difference of a lent node from the configuration of its type."""
    configured = {CLOSED, *node_type.taints_for(namespace)}
    return [
        f"it has {amount_text(name, node.allocatable.get(name, 0))}, where type {node_type.name} "
        f"has {amount_text(name, amount)}"
        for name, amount in node_type.size.items()
        if node.allocatable.get(name, 0) < _LEAST_SHARE * amount
    ] + [
        f"it has the taint {describe_taint(taint)}, which type {node_type.name} does not have"
        for taint in traits_of(node).taints
        if taint not in configured and taint.effect != "PreferNoSchedule"
    ]


# --- a node that is not lent -----------------------------------------------------------------


def describe_unlent_node(decided: Decided, name: str, node_type: str) -> str:
    """Returns a node's state in Slurm and why it is not lent, or why this is not known."""
    inputs = decided.inputs
    if inputs.facts.batch is None:
        listed = inputs.snapshot.batch
        error = listed.error if isinstance(listed, Unreadable) else "run `dnm nodes`"
        return f"the batch nodes have not been read: {error}"
    if (row := inputs.facts.batch.get(name)) is None:
        return "the converter does not list it"
    why = _refusal_to_lend(decided, row, node_type)
    return f"Slurm has it as {row.state}, and {why}"


def _refusal_to_lend(decided: Decided, row: BatchNode, node_type: str) -> str:
    inputs = decided.inputs
    excluded = excluded_nodes(inputs.config, inputs.registry, inputs.facts.batch, inputs.now)
    if row.name in excluded:
        return f"it must not be lent: {excluded[row.name]}"
    if row.name not in lendable_names(inputs.config, inputs.registry, inputs.facts):
        off = "" if row.verdict == "SKIP" else ", and allow_preempt is off"
        return f"it cannot be lent: {row.reason}{off}"
    supply = supply_of(inputs.config, inputs.registry, inputs.facts, node_type)
    if not supply.now:
        return f"it stays: {supply.limiting_text}"
    desired = f"no queue and no order needs one more of type {node_type} now"
    if wanting := list(_list_claimants(decided, row.name, node_type)):
        verb = "needs" if len(wanting) == 1 else "need"
        desired = f"{', '.join(wanting)} {verb} more of type {node_type}"
    if brake := find_brake(inputs.config, inputs.registry, node_type, inputs.now):
        return f"it is not lent now: {brake.sentence}; {desired}"
    return f"it could be lent: {desired}"


def _list_claimants(decided: Decided, name: str, node_type: str) -> Iterator[str]:
    """Yields the `dnm lend` orders that could get this node, then the queues that need its type."""
    inputs = decided.inputs
    for order in inputs.registry.orders:
        could = order.node_type == node_type and name in (order.nodes or (name,))
        if could and inputs.now < order.until and count_missing(order, inputs.registry):
            yield order.id
    for queue, sizing in decided.conversions.sizing.queues.items():
        if any(pool.node_type == node_type for pool in sizing.wanted):
            yield queue
