"""Why one pod waits or one node is not lent, out of what a run knows and decides. Pure."""

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
from dnm.model.queue_path import known_lineage
from dnm.model.reason import OF_THE_SPINE, Why
from dnm.model.value import Unreadable, Value
from dnm.plan.conversions import Decided
from dnm.plan.counting import count_missing
from dnm.plan.inputs import Inputs, demand_of
from dnm.plan.lendable import lendable_names, node_supply, why_wait
from dnm.plan.rule import TABLE, nodes_kept_out, rule_named
from dnm.plan.supply import supply_of
from dnm.sizing.backlog import why_no_help
from dnm.sizing.node_supply import expected_nodes, traits_of
from dnm.sizing.wanted_words import amount_text

_LEAST_SHARE = 0.9  # of a configured amount; kubelets keep a part back


def list_reasons() -> Iterator[Why]:
    """Yields every reason there is: those of the spine, then those of each rule."""
    yield from OF_THE_SPINE
    for name, _ in TABLE:
        yield from rule_named(name).reasons


class PodExplanation(Value):
    """What keeps a pod waiting, a sentence each; `node`: where it is, if it is anywhere.
    `helped_by`: node types of which an empty node would take it; `queue`: whose verdict decides."""

    pod: str
    node: str = ""
    state: str = "pending"  # or rejected, unknown, not found
    queue: str = ""
    obstacles: tuple[str, ...] = ()
    helped_by: tuple[str, ...] = ()


def explain_pod(decided: Decided, namespace: str, name: str) -> PodExplanation:
    """Returns whether quota, room, its own constraints or dnm's brakes keep it waiting."""
    inputs, title = decided.inputs, f"{namespace}/{name}"
    pods = inputs.snapshot.pods
    if isinstance(pods, Unreadable):
        return PodExplanation(pod=title, state="unknown", obstacles=(pods.error,))
    if namespace in pods.unreadable:
        unread = (pods.unreadable[namespace],)
        return PodExplanation(pod=title, state="unknown", obstacles=unread)
    found = [pod for pod in pods.pods if (pod.namespace, pod.name) == (namespace, name)]
    if not found:
        return PodExplanation(pod=title, state="not found")
    if found[0].node:
        return PodExplanation(pod=title, node=found[0].node)
    return _explain_pending(decided, found[0], title)


def _explain_pending(decided: Decided, pod: Pod, title: str) -> PodExplanation:
    inputs = decided.inputs
    why = _why_not_counted(inputs, pod)
    waits = inputs.snapshot.waits
    doubt = filter(None, [waits.doubts.get(title, "") if waits else ""])
    if why:
        state = "rejected" if pod.is_rejected else "pending"
        uncounted = (f"it asks for no node: it is {why}", *doubt)
        return PodExplanation(pod=title, state=state, obstacles=uncounted)
    group = _group_of(inputs, pod)
    if group is None:
        why = "it asks for no node: pods like it stayed pending beside an idle node"
        return PodExplanation(pod=title, obstacles=(why,))
    monitored = [
        q for q in known_lineage(group.queue, inputs.limits) if q in decided.conversions.verdicts
    ]
    queue = monitored[0] if monitored else ""
    helped_by, refusals = _helpful_types(decided, group, queue)
    obstacles = [*doubt, *_of_group(decided, group, queue)]
    if refusals and not helped_by:
        obstacles.append(f"no new node would help it: {'; '.join(refusals)}")
    if not queue:
        obstacles.append(f"its queue {group.queue} is none that dnm monitors")
    return PodExplanation(
        pod=title, queue=queue, obstacles=tuple(obstacles), helped_by=tuple(helped_by)
    )


def _why_not_counted(inputs: Inputs, pod: Pod) -> str | None:
    """As the pod alone is judged; gangs and applications are told by others of their kind."""
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


def _of_group(decided: Decided, group: PendingGroup, queue: str) -> Iterator[str]:
    """What the pods that are equal to it lack."""
    inputs, sizing = decided.inputs, decided.conversions.sizing.queues.get(queue)
    if group.young and not group.count:
        yield "it has been pending for a few seconds only"
    if sizing is None or inputs.demand is None:
        return
    fits = sizing.fits.get(group.fingerprint, 0)
    if fits:
        yield (
            f"{fits} of {group.count} equal pods have room and quota on nodes that are there: "
            "the scheduler places them"
        )
    for path in known_lineage(group.queue, inputs.limits):
        used = inputs.demand.queues[path].used if path in inputs.demand.queues else {}
        for resource, limit in sorted(inputs.limits[path].max.items()):
            asked = group.request.get(resource, 0)
            if asked and used.get(resource, 0) + asked > limit:
                left = max(limit - used.get(resource, 0), 0)
                yield (
                    f"quota: {path} has {amount_text(resource, left)} left of "
                    f"{amount_text(resource, limit)}, it asks for {amount_text(resource, asked)}"
                )
    if sizing.no_room and fits < group.count:
        pods = count_of(sizing.no_room, "pod")
        yield f"room: the nodes that are there have none for {pods} of its queue"


def _helpful_types(
    decided: Decided, group: PendingGroup, queue: str
) -> tuple[list[str], list[str]]:
    """The node types that would help, and why the others would not."""
    inputs = decided.inputs
    if inputs.demand is None:
        return [], []
    expected = expected_nodes(
        inputs.config, inputs.demand, node_supply(inputs, decided.fates.registry)
    )
    helpful, refusals = [], []
    for policy in inputs.config.namespaces.values():
        for node_type in policy.node_types if policy.queue == queue else ():
            why = why_no_help(group, expected[policy.name, node_type])
            if why:
                refusals.append(why)
            else:
                helpful.append(node_type)
    return list(dict.fromkeys(helpful)), list(dict.fromkeys(refusals))


def describe_differences(node: Node, node_type: NodeType, namespace: str) -> list[str]:
    """Returns in what a lent node differs from its type as the configuration describes it."""
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


def as_slurm_has_it(decided: Decided, name: str, node_type: str) -> str:
    """Returns how Slurm has it, and why it is not lent, as far as the batch side could be asked."""
    known = decided.inputs
    if known.facts.batch is None:
        listed = known.snapshot.batch
        error = listed.error if isinstance(listed, Unreadable) else "`dnm nodes` does"
        return f"which batch nodes there are could not be asked now: {error}"
    if (row := known.facts.batch.get(name)) is None:
        return "the converter does not list it"
    why = _why_not_lent(decided, row, node_type)
    return f"Slurm has it as {row.state}, and {why}"


def _why_not_lent(decided: Decided, row: BatchNode, node_type: str) -> str:
    known = decided.inputs
    out = nodes_kept_out(known.config, known.registry, known.facts.batch, known.now)
    if row.name in out:
        return f"it may not be lent: {out[row.name]}"
    if row.name not in lendable_names(known.config, known.registry, known.facts):
        off = "" if row.verdict == "SKIP" else ", and allow_preempt is off"
        return f"it may not be lent: {row.reason}{off}"
    supply = supply_of(known.config, known.registry, known.facts, node_type)
    if not supply.now:
        return f"it stays: {supply.what_bounds}"
    wants = f"no queue and no order wants one more of type {node_type} now"
    if wanting := list(_who_wants(decided, row.name, node_type)):
        verb = "wants" if len(wanting) == 1 else "want"
        wants = f"{', '.join(wanting)} {verb} more of type {node_type}"
    if brake := why_wait(known.config, known.registry, node_type, known.now):
        return f"it is not lent now: {brake.sentence}; {wants}"
    return f"it could be lent: {wants}"


def _who_wants(decided: Decided, name: str, node_type: str) -> Iterator[str]:
    """Orders in force that could get it, and are short of nodes; then queues."""
    known = decided.inputs
    for order in known.registry.orders:
        could = order.node_type == node_type and name in (order.nodes or (name,))
        if could and known.now < order.until and count_missing(order, known.registry):
            yield order.id
    for queue, sizing in decided.conversions.sizing.queues.items():
        if any(pool.node_type == node_type for pool in sizing.wanted):
            yield queue
