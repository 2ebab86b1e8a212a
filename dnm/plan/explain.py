"""Why one pod waits, out of what a run knows and decides. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dnm.demand.demand import DemandFacts, gather_demand
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import Pod, YunikornView
from dnm.model.printable import count_of
from dnm.model.queue_path import known_lineage
from dnm.model.value import Unreadable, Value
from dnm.plan.conversions import Converted
from dnm.plan.known import Known
from dnm.plan.supply import node_supply
from dnm.sizing.backlog import why_no_help
from dnm.sizing.node_supply import expected_nodes
from dnm.sizing.queue_sizing import amount_text


class PodExplanation(Value):
    """What keeps a pod waiting, a sentence each; `node`: where it is, if it is anywhere.
    `helped_by`: node types of which an empty node would take it; `queue`: whose verdict decides."""

    pod: str
    node: str = ""
    state: str = "pending"  # or rejected, unknown, not found
    queue: str = ""
    obstacles: tuple[str, ...] = ()
    helped_by: tuple[str, ...] = ()


def explain_pod(converted: Converted, namespace: str, name: str) -> PodExplanation:
    """Returns whether quota, room, its own constraints or dnm's brakes keep it waiting."""
    known, title = converted.known, f"{namespace}/{name}"
    pods = known.snapshot.pods
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
    return _explain_pending(converted, found[0], title)


def _explain_pending(converted: Converted, pod: Pod, title: str) -> PodExplanation:
    known = converted.known
    why = _why_not_counted(known, pod)
    if why:
        state = "rejected" if pod.is_rejected else "pending"
        uncounted = (f"it asks for no node: it is {why}",)
        return PodExplanation(pod=title, state=state, obstacles=uncounted)
    group = _group_of(known, pod)
    if group is None:
        why = "it asks for no node: pods like it stayed pending beside an idle node"
        return PodExplanation(pod=title, obstacles=(why,))
    monitored = [q for q in known_lineage(group.queue, known.limits) if q in converted.verdicts]
    queue = monitored[0] if monitored else ""
    helped_by, refusals = _helpful_types(converted, group, queue)
    obstacles = [*_of_group(converted, group, queue)]
    if refusals and not helped_by:
        obstacles.append(f"no new node would help it: {'; '.join(refusals)}")
    if not queue:
        obstacles.append(f"its queue {group.queue} is none that dnm monitors")
    return PodExplanation(
        pod=title, queue=queue, obstacles=tuple(obstacles), helped_by=tuple(helped_by)
    )


def _why_not_counted(known: Known, pod: Pod) -> str:
    """As the pod alone is judged; gangs and applications are told by others of their kind."""
    view, snapshot = known.snapshot.yunikorn, known.snapshot
    facts = DemandFacts(
        now=known.now,
        yunikorn=view if isinstance(view, YunikornView) else None,
        claims=snapshot.claims,
    )
    alone = gather_demand([pod], known.config, known.limits, facts)
    if alone.uncounted:
        return alone.uncounted[0].why.value
    demand = known.demand
    for one in demand.uncounted if demand else ():
        if one.namespace == pod.namespace and pod.name in one.names:
            return one.why.value
    return ""


def _group_of(known: Known, pod: Pod) -> PendingGroup | None:
    groups = known.demand.groups if known.demand else ()
    alike = [g for g in groups if g.namespace == pod.namespace and g.shape == pod.shape]
    return next((g for g in alike if pod.name in g.names), alike[0] if alike else None)


def _of_group(converted: Converted, group: PendingGroup, queue: str) -> Iterator[str]:
    """What the pods that are equal to it lack."""
    known, sizing = converted.known, converted.sizing
    if group.young and not group.count:
        yield "it has not been pending for pending_grace_seconds yet"
    one = sizing.queues.get(queue) if sizing else None
    if one is None or known.demand is None:
        return
    fits = one.fits.get(group.fingerprint, 0)
    if fits:
        yield (
            f"{fits} of {group.count} equal pods have room and quota on nodes that are there: "
            "the scheduler places them"
        )
    for path in known_lineage(group.queue, known.limits):
        used = known.demand.queues[path].used if path in known.demand.queues else {}
        for resource, limit in sorted(known.limits[path].max.items()):
            asked = group.request.get(resource, 0)
            if asked and used.get(resource, 0) + asked > limit:
                left = max(limit - used.get(resource, 0), 0)
                yield (
                    f"quota: {path} has {amount_text(resource, left)} left of "
                    f"{amount_text(resource, limit)}, it asks for {amount_text(resource, asked)}"
                )
    if one.no_room and fits < group.count:
        pods = count_of(one.no_room, "pod")
        yield f"room: the nodes that are there have none for {pods} of its queue"


def _helpful_types(
    converted: Converted, group: PendingGroup, queue: str
) -> tuple[list[str], list[str]]:
    """The node types that would help, and why the others would not."""
    known = converted.known
    if known.demand is None:
        return [], []
    expected = expected_nodes(
        known.config, known.demand, node_supply(known, converted.returned.registry)
    )
    helpful, refusals = [], []
    for policy in known.config.namespaces.values():
        for node_type in policy.node_types if policy.queue == queue else ():
            why = why_no_help(group, expected[policy.name, node_type])
            if why:
                refusals.append(why)
            else:
                helpful.append(node_type)
    return list(dict.fromkeys(helpful)), list(dict.fromkeys(refusals))
