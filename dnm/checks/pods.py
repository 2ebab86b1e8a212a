"""The checks of lent nodes, pending pods and readiness checks for `dnm check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dnm.checks.findings import Finding, doubtful, fine, looks_at, wrong
from dnm.checks.queue_checks import checks_of
from dnm.demand.constraints import NodeTraits, tolerates
from dnm.demand.demand import Demand, gather_demand
from dnm.demand.pod_waits import with_devices
from dnm.demand.waiting import DemandFacts
from dnm.kube.client import KubeClient
from dnm.kube.opening import list_daemons
from dnm.model.close_look import CLOSED
from dnm.model.cluster import QueueLimits, SchedulerView
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.node import Node
from dnm.model.opening import OPENING_TAINT
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.printable import count_of
from dnm.model.value import Unreadable
from dnm.plan.explain import describe_differences
from dnm.plan.inputs import offered_resources
from dnm.plan.rules.opening import required_daemons
from dnm.plan.uncertain_pods import describe_uncertain_pods
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.sizing import count_young_pods, size_queues

_MOST_KINDS = 50  # of pods, a line each


@looks_at("nodes")
def check_nodes(config: Config, nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Reports lent nodes that differ from the configuration of their type."""
    lent = [node for node in nodes if node.mark and node.mark.instance == config.instance_id]
    yield fine(f"{len(nodes)} in Kubernetes, {len(lent)} of them lent by this instance")
    for text, names in _differing_nodes(config, lent).items():
        yield doubtful(
            f"{fold_hostlist(names)}: {text}",
            "repair the node or return it (`dnm return NODE`); if all nodes of the type are like "
            "this, correct the type in the configuration",
        )


def _differing_nodes(config: Config, nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Returns how nodes differ from the configuration of their type, as difference -> nodes."""
    by_difference: dict[str, list[str]] = {}
    for node in nodes:
        node_type = config.node_types.get(node.mark.node_type) if node.mark else None
        if node_type is not None and node.mark is not None and node.is_ready:
            for text in describe_differences(node, node_type, node.mark.namespace):
                by_difference.setdefault(text, []).append(node.name)
    return by_difference


@looks_at("pods")
def check_pods(
    config: Config,
    limits: Mapping[str, QueueLimits],
    snapshot: Snapshot,
) -> Iterator[Finding]:
    """Reports pending pods that would fit no node type, and what each queue system's check finds in
    the demand."""
    pods, nodes = snapshot.pods, snapshot.nodes
    if isinstance(pods, Unreadable) or isinstance(nodes, Unreadable):
        for unread in (pods, nodes):
            if isinstance(unread, Unreadable):
                yield wrong(f"{unread.subject}: {unread.error}")
        return
    for namespace, error in pods.unreadable.items():
        yield wrong(f"those of {namespace} can't be read: {error}")
    scope = "of the cluster" if pods.cluster_wide else "of the monitored namespaces"
    yield fine(f"{len(pods.pods)} unfinished ones {scope}")
    waits = snapshot.waits
    for text in describe_uncertain_pods(config, waits, pods.pods) if waits else ():
        yield doubtful(text)
    nodes = waits.offering(nodes) if waits else nodes

    def count(counted_by: Config) -> Demand:
        return _own_demand(counted_by, limits, snapshot, pods)

    yield from _check_fit(config, limits, count(config), nodes)
    for system in checks_of(config):
        yield from system.check_demand(config, snapshot, pods, count)


def _own_demand(
    config: Config, limits: Mapping[str, QueueLimits], snapshot: Snapshot, pods: PodList
) -> Demand:
    """Returns the demand as dnm itself counts it, for a comparison with the scheduler's numbers."""
    read = snapshot.queue_facts.view
    twice = isinstance(read, SchedulerView) and read.counts_sidecars_twice
    view = SchedulerView(queue_of_pod={}, allocated={}, pending={}, counts_sidecars_twice=twice)
    facts = DemandFacts(
        now=snapshot.taken_at,
        claims=snapshot.claims,
        scheduler=view,
        resources=offered_resources(config, snapshot, limits),
    )
    demand: Demand = count_young_pods(gather_demand(pods.pods, config, limits, facts))
    return with_devices(demand, snapshot.waits) if snapshot.waits else demand


@looks_at("node types")
def _check_fit(
    config: Config, limits: Mapping[str, QueueLimits], demand: Demand, nodes: tuple[Node, ...]
) -> Iterator[Finding]:
    sizing = size_queues(config, demand, limits, NodeSupply(nodes=nodes))
    unschedulable = [item for queue in sizing.queues.values() for item in queue.unschedulable]
    pending = sum(group.total for group in demand.groups)
    remedy = "they bring no node: change the pods, or the size, labels and taints of the node type"
    if _differing_nodes(config, nodes):
        remedy = "they bring no node: first repair the lent nodes that differ from their type"
    for pods in unschedulable[:_MOST_KINDS]:
        yield doubtful(
            f"{count_of(pods.count, 'pending pod')} of {pods.group.namespace} "
            f"({', '.join(pods.group.names)}): {pods.why}",
            remedy,
        )
    for left_out in demand.uncounted[:_MOST_KINDS]:
        if left_out.namespace in config.namespaces:
            yield doubtful(
                f"{count_of(left_out.count, 'pending pod')} of {left_out.namespace} "
                f"({', '.join(left_out.names)}) not counted: {left_out.why.value}",
                check="pods",
            )
    if not unschedulable:
        yield fine(
            f"{count_of(pending, 'pending pod')} counted, and each would fit a node"
            if pending
            else "no pod is pending that would have to fit"
        )


@looks_at("readiness checks")
def check_opening(config: Config, kube: KubeClient) -> Iterator[Finding]:
    """Checks the DaemonSets for which joining nodes wait. Reports those that do not tolerate dnm's
    taint."""
    waiting = [
        item
        for item in config.node_types.values()
        if any(step.kind == "daemonsets" for step in item.readiness_checks)
    ]
    if not waiting:
        return
    daemons = list_daemons(kube.requests)
    tenants = [
        daemon.name for daemon in daemons if daemon.name.partition("/")[0] in config.namespaces
    ]
    for kind in waiting:
        traits = NodeTraits(labels=kind.labels, taints=kind.taints)
        required = required_daemons(daemons, config.namespaces, traits)
        late = sorted(
            daemon.name for daemon in required if not tolerates(daemon.shape.tolerations, CLOSED)
        )
        if late:
            yield doubtful(
                f"nodes of type {kind.name} wait for every DaemonSet, and these do not tolerate "
                f"{OPENING_TAINT}: {', '.join(late)}",
                "give them the toleration, or name in readiness_checks those that matter",
            )
        else:
            names = ", ".join(sorted(daemon.name for daemon in required)[:_MOST_SHOWN]) or "none"
            more = f" and {len(required) - _MOST_SHOWN} more" if len(required) > _MOST_SHOWN else ""
            yield fine(f"nodes of type {kind.name} wait for these DaemonSets: {names}{more}")
        if tenants:
            names = ", ".join(sorted(tenants)[:_MOST_SHOWN])
            more = f" and {len(tenants) - _MOST_SHOWN} more" if len(tenants) > _MOST_SHOWN else ""
            yield fine(
                f"nodes of type {kind.name} do not wait for DaemonSets of monitored namespaces "
                f"({names}{more}); to wait for one, set readiness_checks = daemonset NAMESPACE/NAME"
            )


_MOST_SHOWN = 5  # violations, of many
