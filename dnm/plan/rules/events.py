"""The number of nodes that planned events need, by the packing and quota of pending pods. Pure.

The pods of an event are sized as if all were pending now. Other pods keep their place; the pods go
on free capacity of nodes that are not lent, and then on new nodes. Nodes lent to the event's
namespace are left out, and so are its pods that were created after lending for the event began:
they belong to the event. Earlier pods count as others. Events at the same time have different pods,
so they are sized together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from dnm.calendar.windows import list_windows, request_of
from dnm.model.calendar import Window
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.pod import Pod, PodList, PodShape, Toleration
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, NodeFloor, Rule, raise_floors
from dnm.plan.inputs import Inputs, demand_of
from dnm.plan.lendable import node_supply
from dnm.plan.limits import queue_wants, serving_sizes
from dnm.plan.rules.event_windows import (
    lead_of,
    list_problems,
    name_events,
    projected_at,
    usable_events,
    with_wants,
)
from dnm.sizing.sizing import size_queues

_LONG_AGO = "2000-01-01T00:00:00Z"  # so that no pod of an event is too young to count
_HERE = (Phase.JOINING, Phase.SERVING, Phase.RELEASING, Phase.MOVING)  # a fence can be lifted


def active_floors(inputs: Inputs) -> Iterator[NodeFloor]:
    """Yields the minimum of nodes that current and next events require for each namespace."""
    config, registry = inputs.config, inputs.registry
    at = inputs.snapshot.events_at or inputs.now
    windows = projected_at(config, registry, at)
    if not windows.keep:
        return
    lend = nodes_needed(inputs, windows.lend)
    keep = lend if windows.keep == windows.lend else nodes_needed(inputs, windows.keep)
    held = count_nodes(registry, config.instance_id)
    for name in sorted({window.event.namespace for window in windows.keep}):
        of_type = {
            node_type: max(lend[name, node_type], min(keep[name, node_type], held[name, node_type]))
            for node_type in config.namespaces[name].node_types
        }
        of_type = {node_type: count for node_type, count in of_type.items() if count}
        why = name_events(window for window in windows.keep if window.event.namespace == name)
        yield NodeFloor(namespace=name, nodes=sum(of_type.values()), why=why, of_type=of_type)


def count_nodes(registry: Registry, instance: str) -> Counter[tuple[str, str]]:
    """Returns how many nodes each namespace has, with incoming ones, by namespace and type."""
    own_nodes = registry.nodes_of(instance, *_HERE).values()
    counts = Counter((node.heads_for, node.node_type) for node in own_nodes)
    for request in registry.requests:
        if not request.is_abandoned:
            counts[request.namespace, request.node_type] += request.count
    return counts


def nodes_needed(inputs: Inputs, windows: Sequence[Window]) -> Counter[tuple[str, str]]:
    """Returns how many nodes these events need together, by namespace and node type."""
    config = inputs.config
    needed: Counter[tuple[str, str]] = Counter()
    for window in windows:
        if window.event.nodes:
            policy = config.namespaces[window.event.namespace]
            needed[policy.name, policy.node_types[0]] += window.event.nodes
    if any(item.event.pods for item in windows):
        needed += _needed_by_pods(inputs, windows)
    return needed


def _needed_by_pods(inputs: Inputs, windows: Sequence[Window]) -> Counter[tuple[str, str]]:
    snapshot, config = inputs.snapshot, inputs.config
    needed: Counter[tuple[str, str]] = Counter()
    if inputs.queues is None or inputs.facts.nodes is None:
        return needed
    if not isinstance(snapshot.pods, PodList):
        return needed
    names = {window.event.namespace for window in windows}
    limits = _limits_without(inputs, names)
    lent_to = {n for n, entry in inputs.registry.nodes.items() if entry.namespace in names}
    pods = (*_other_pods(inputs, windows, snapshot.pods.pods, lent_to), *_pods_of(config, windows))
    projected = msgspec.structs.replace(snapshot, pods=PodList(pods=pods))
    demand = demand_of(config, projected, limits)
    assert demand is not None
    supply = node_supply(inputs, inputs.registry)
    supply = msgspec.structs.replace(
        supply,
        nodes=tuple(node for node in supply.nodes if node.name not in lent_to),
        lent={name: entry for name, entry in supply.lent.items() if name not in lent_to},
        incoming=tuple(incoming for incoming in supply.incoming if incoming.namespace not in names),
    )
    sizing = size_queues(_without_floors(config), demand, limits, supply)
    for pool, count in sizing.wanted().items():
        if pool.namespace in names:
            needed[pool.namespace, pool.node_type] += count
    return needed


def _other_pods(
    inputs: Inputs, windows: Sequence[Window], pods: Iterable[Pod], lent: Container[str]
) -> Iterator[Pod]:
    """Yields the pods that need capacity and do not belong to an event. Pods on nodes in `lent`
    count as pending."""
    config = inputs.config
    since: dict[str, str] = {}
    for window in windows:
        begins = (
            f"{window.begins - lead_of(config, inputs.registry, window.event):%Y-%m-%dT%H:%M:%SZ}"
        )
        earliest = since.get(window.event.namespace, begins)
        since[window.event.namespace] = min(earliest, begins)
    for pod in pods:
        if pod.namespace not in since:
            yield pod
        elif pod.node and pod.created < since[pod.namespace] and pod.counts_as_work:
            yield _anywhere(config, pod) if pod.node in lent else pod


def _anywhere(config: Config, pod: Pod) -> Pod:
    shape = PodShape(
        request=pod.shape.request,
        request_sidecars_twice=pod.shape.request_sidecars_twice,
        tolerations=_tolerations(config, pod.namespace),
    )
    return msgspec.structs.replace(pod, node="", shape=shape)


def _tolerations(config: Config, namespace: str) -> tuple[Toleration, ...]:
    """Returns tolerations for all taints that nodes lent to the namespace can have."""
    taints = (
        taint
        for name in config.namespaces[namespace].node_types
        for taint in config.node_types[name].taints_for(namespace)
    )
    return tuple(Toleration(key=t.key, value=t.value, effect=t.effect) for t in taints)


def _without_floors(config: Config) -> Config:
    namespaces = {
        name: msgspec.structs.replace(policy, min_nodes=0, min_of_type={})
        for name, policy in config.namespaces.items()
    }
    return msgspec.structs.replace(config, namespaces=namespaces)


def _limits_without(inputs: Inputs, namespaces: set[str]) -> Mapping[str, QueueLimits]:
    """Returns the limits as if no node were lent to these namespaces. They are not read from the
    document, since a manifest that was just applied again may have removed lent nodes."""
    assert inputs.queues is not None
    kept = {
        n: node for n, node in inputs.registry.nodes.items() if node.namespace not in namespaces
    }
    serving = serving_sizes(inputs.config, msgspec.structs.replace(inputs.registry, nodes=kept))
    edit = inputs.queues.project(queue_wants(inputs.config, inputs.registry, serving)).edit
    return inputs.limits if edit.refusal else edit.limits


def _pods_of(config: Config, windows: Sequence[Window]) -> Iterator[Pod]:
    """Yields the events' pods as pending pods that tolerate the taints of their node types."""
    for window in windows:
        event, policy = window.event, config.namespaces[window.event.namespace]
        shape = PodShape(
            request=request_of(config, event), tolerations=_tolerations(config, policy.name)
        )
        for number in range(event.pods):
            name = f"{event.name}-{number}"
            yield Pod(
                namespace=policy.name, name=name, uid=name, shape=shape, created=_LONG_AGO,
                app_id=event.name, queue=policy.queue, is_managed=True,
            )  # fmt: skip


def _was_for_event(inputs: Inputs, entry: LentNode) -> bool:
    """Returns whether the node's namespace had an event since the node's phase began. Then the node
    counts as needed, even if the event had no pods."""
    events = [
        event
        for event in usable_events(inputs.config, inputs.registry)
        if event.namespace == entry.namespace
    ]
    return bool(list_windows(events, entry.since, inputs.now))


def _raise_floors(inputs: Inputs) -> Inputs:
    config = raise_floors(inputs.config, active_floors(inputs))
    return msgspec.structs.replace(inputs, config=config)


def _report_problems(inputs: Inputs, registry: Registry, recorded: Registry) -> Additions:
    at = inputs.snapshot.events_at or inputs.now
    notes = tuple(list_problems(inputs.config, inputs.registry, at))
    return Additions(registry=recorded, notes=notes)


RULE = Rule(wants=with_wants, prepares=_raise_floors, excuses=_was_for_event, adds=_report_problems)
