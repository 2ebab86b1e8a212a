"""The snapshot: all facts of a run, read once before any decision.

A fact that cannot be read is an `Unreadable`. The nodes of Slurm are read only if a decision
depends on them: a queue may need a node, or a lent node is in another phase than serving."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dnm.converter.processes import is_elsewhere
from dnm.host.place import this_place
from dnm.model.batch import BatchList
from dnm.model.cluster import QueueFacts
from dnm.model.config import Config
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Node
from dnm.model.plan import Snapshot
from dnm.model.pod import Claim, PodList
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.inputs import is_hourly_read_due, may_want_nodes, needs_batch_side
from dnm.plan.requests import calls_until
from dnm.queues import system_of

if TYPE_CHECKING:
    from dnm.converter.node_convert import NodeConvert
    from dnm.kube.client import KubeClient

_CLOCKS_DIFFER = timedelta(minutes=15)  # the most by which two hosts' clocks differ


def take_snapshot(
    config: Config, registry: Registry, kube: KubeClient, converter: NodeConvert, taken_at: datetime
) -> Snapshot:
    """Reads nodes, pods, queues and, if needed, volume claims and the nodes of Slurm."""
    called = [entry.converter for entry in registry.nodes.values()]
    called += [request.converter for request in registry.requests]
    started = [process for process in called if process is not None]
    elsewhere = _at_work_elsewhere(config, registry, taken_at) if started else frozenset()
    running = converter.still_running(started) | elsewhere
    nodes = kube.read_nodes()
    if isinstance(nodes, Unreadable):
        # Nothing is decided without the nodes: an API that is down is asked once a run.
        return nothing_readable(nodes, taken_at)
    pods = kube.read_pods(tuple(sorted(config.namespaces)))
    queue_facts = system_of(config).collect(config, kube)
    may_want = bool(queue_facts.refused) or may_want_nodes(config, pods)
    asks = may_want or needs_batch_side(config, registry, nodes, pods)
    asks = asks or is_hourly_read_due(config, registry, taken_at)
    batch = _batch_fields(converter.list_nodes()) if asks else {}
    nodes, unread_zones = _with_zones(config, kube, nodes, pods)
    pods, verified = _verify(may_want, registry, kube, nodes, pods)
    waits = None
    if isinstance(pods, PodList) and any(pod.devices or pod.group for pod in pods.pods):
        from dnm.run.pod_waits import understand_pods

        pods, waits = understand_pods(config, registry, kube.requests, pods, nodes)
    return Snapshot(
        taken_at=taken_at,
        pods=pods,
        nodes=nodes,
        queue_facts=queue_facts,
        claims=_read_claims(kube, pods),
        running_converters=running,
        converters_elsewhere=elsewhere,
        ended={key: converter.read_end(key) for key in registry.open_calls},
        unread_zones=unread_zones,
        waits=waits,
        place=this_place(config),
        **batch,
        **verified,
    )


def _verify(
    may_want: bool,
    registry: Registry,
    kube: KubeClient,
    nodes: tuple[Node, ...],
    pods: PodList | Unreadable,
) -> tuple[PodList | Unreadable, dict[str, Any]]:
    """Returns the pods, and the fields of the snapshot about DaemonSets. Reads the DaemonSets if a
    decision depends on them: a pod that falsely claims to belong to one then counts as work."""
    if isinstance(pods, Unreadable) or not (registry.nodes or may_want):
        return pods, {}
    from dnm.demand.daemon_pods import nodes_to_verify, own_pods, verify_pods

    doubtful = nodes_to_verify(registry, nodes, pods)
    if not doubtful and not may_want:
        return pods, {}
    daemon_sets = kube.read_daemon_sets()
    if isinstance(daemon_sets, Unreadable):
        return pods, {"daemon_sets": daemon_sets, "unverified_nodes": doubtful}
    verified = verify_pods(pods.pods, daemon_sets, nodes, own_pods(registry))
    return replace(pods, pods=verified), {"daemon_sets": daemon_sets}


def with_batch_nodes(facts: Snapshot, converter: NodeConvert) -> Snapshot:
    """Returns the snapshot with the nodes of Slurm. `take_snapshot` does not always read them."""
    return replace(facts, **_batch_fields(converter.list_nodes()))


def _batch_fields(listed: BatchList | Unreadable) -> dict[str, Any]:
    if isinstance(listed, Unreadable):
        return {"batch": listed}
    return {
        "batch": listed.nodes,
        "waiting_jobs": listed.waiting,
        **{name: getattr(listed, name) for name in ("can_reserve", "leaves_out", "charges")},
    }


def nothing_readable(why: Unreadable, taken_at: datetime) -> Snapshot:
    """Returns the snapshot of a run without an answer of the API server: each fact is `why`."""
    return Snapshot(taken_at=taken_at, pods=why, nodes=why, queue_facts=QueueFacts(unread=why))


def _at_work_elsewhere(
    config: Config, registry: Registry, now: datetime
) -> frozenset[ConverterProcess]:
    """Returns the converters that other hosts started. This host cannot see when they end, so they
    count as active until their time limit, plus a margin because clocks differ."""
    return frozenset(
        process
        for _, process, until in calls_until(config, registry)
        if is_elsewhere(process) and now <= until + _CLOCKS_DIFFER
    )


def _with_zones(
    config: Config, kube: KubeClient, nodes: tuple[Node, ...], pods: PodList | Unreadable
) -> tuple[tuple[Node, ...], Unreadable | None]:
    """Returns the nodes with the free capacity of their NUMA nodes, which dnm reads only if a
    waiting pod must fit on one NUMA node. Without it, a node's entire capacity counts."""
    if not (config.has_aligned_pods and isinstance(pods, PodList)):
        return nodes, None
    if not any(pod.shape.aligned and not pod.node for pod in pods.pods):
        return nodes, None
    zones = kube.read_zones()
    if isinstance(zones, Unreadable):
        return nodes, zones
    return tuple(replace(node, zones=zones.get(node.name, ())) for node in nodes), None


def _read_claims(kube: KubeClient, pods: PodList | Unreadable) -> tuple[Claim, ...] | Unreadable:
    if isinstance(pods, Unreadable):
        return ()
    with_claims = tuple(pod for pod in pods.pods if pod.claims and not pod.node)
    return kube.read_claims(with_claims) if with_claims else ()
