"""How many nodes events need, by the packing and the quota that pending pods go through. Pure.

The pods of an event are sized as if all of them were pending now: beside what others use, onto what
is free of the nodes that are not lent, and then onto new ones. What is lent to its namespace is
left out, and so are that namespace's pods that came after lending for the event began: they are the
event's. Pods that were there before are others. Events at the same time are for different pods, so
they are sized together.
"""

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
from dnm.plan.rules.foreseen import (
    events_at,
    known_events,
    lead_of,
    why_incomplete,
    with_wants,
    words_for,
)
from dnm.queues.edit import foresee_edit
from dnm.sizing.sizing import size_queues

_LONG_AGO = "2000-01-01T00:00:00Z"  # no pod of an event is too young to count
_OURS = (Phase.JOINING, Phase.SERVING, Phase.RELEASING, Phase.MOVING)  # a fence can be lifted


def floors_in_force(inputs: Inputs) -> Iterator[NodeFloor]:
    """Yields what each namespace is to have for what is foreseen."""
    config, registry = inputs.config, inputs.registry
    at = inputs.snapshot.events_at or inputs.now
    foreseen = events_at(config, registry, at)
    if not foreseen.keep:
        return
    lend = nodes_needed(inputs, foreseen.lend)
    keep = lend if foreseen.keep == foreseen.lend else nodes_needed(inputs, foreseen.keep)
    have = nodes_had(registry, config.instance_id)
    for name in sorted({window.event.namespace for window in foreseen.keep}):
        of_type = {
            node_type: max(lend[name, node_type], min(keep[name, node_type], have[name, node_type]))
            for node_type in config.namespaces[name].node_types
        }
        of_type = {node_type: count for node_type, count in of_type.items() if count}
        why = words_for(window for window in foreseen.keep if window.event.namespace == name)
        yield NodeFloor(namespace=name, nodes=sum(of_type.values()), why=why, of_type=of_type)


def nodes_had(registry: Registry, instance: str) -> Counter[tuple[str, str]]:
    """Returns what each namespace has of a type, or will have."""
    ours = registry.nodes_of(instance, *_OURS).values()
    had = Counter((node.heads_for, node.node_type) for node in ours)
    for request in registry.requests:
        if not request.is_given_up:
            had[request.namespace, request.node_type] += request.count
    return had


def nodes_needed(inputs: Inputs, windows: Sequence[Window]) -> Counter[tuple[str, str]]:
    """Returns how many nodes of each namespace and type the events need together."""
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
    if inputs.document is None or inputs.facts.nodes is None:
        return needed
    if not isinstance(snapshot.pods, PodList):
        return needed
    names = {window.event.namespace for window in windows}
    limits = _limits_without(inputs, names)
    lent_to = {n for n, entry in inputs.registry.nodes.items() if entry.namespace in names}
    pods = (*_others(inputs, windows, snapshot.pods.pods, lent_to), *_pods_of(config, windows))
    there = msgspec.structs.replace(snapshot, pods=PodList(pods=pods))
    demand = demand_of(config, there, limits)
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


def _others(
    inputs: Inputs, windows: Sequence[Window], pods: Iterable[Pod], lent: Container[str]
) -> Iterator[Pod]:
    """Pods that need room beside the events'; those on nodes that are left out are pending."""
    config = inputs.config
    since: dict[str, str] = {}
    for window in windows:
        begins = (
            f"{window.begins - lead_of(config, inputs.registry, window.event):%Y-%m-%dT%H:%M:%SZ}"
        )
        known_since = since.get(window.event.namespace, begins)
        since[window.event.namespace] = min(known_since, begins)
    for pod in pods:
        if pod.namespace not in since:
            yield pod
        elif pod.node and pod.created < since[pod.namespace] and pod.counts_as_work:
            yield _anywhere(config, pod) if pod.node in lent else pod


def _anywhere(config: Config, pod: Pod) -> Pod:
    shape = PodShape(
        request=pod.shape.request,
        request_before_1_9=pod.shape.request_before_1_9,
        tolerations=_tolerations(config, pod.namespace),
    )
    return msgspec.structs.replace(pod, node="", shape=shape)


def _tolerations(config: Config, namespace: str) -> tuple[Toleration, ...]:
    """Of what nodes carry that are lent to the namespace."""
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
    """The limits as they would be if nothing were lent to these namespaces, whatever the document
    counts now: one that was just re-applied counts nothing that is lent."""
    assert inputs.document is not None
    others = {
        n: node for n, node in inputs.registry.nodes.items() if node.namespace not in namespaces
    }
    serving = serving_sizes(inputs.config, msgspec.structs.replace(inputs.registry, nodes=others))
    edit = foresee_edit(inputs.document, queue_wants(inputs.config, inputs.registry, serving)).edit
    return inputs.limits if edit.refusal else edit.limits


def _pods_of(config: Config, windows: Sequence[Window]) -> Iterator[Pod]:
    """All pods of the events, pending; they tolerate what nodes of their types carry."""
    for window in windows:
        event, policy = window.event, config.namespaces[window.event.namespace]
        shape = PodShape(
            request=request_of(config, event), tolerations=_tolerations(config, policy.name)
        )
        for number in range(event.pods):
            name = f"{event.name}-{number}"
            yield Pod(
                namespace=policy.name, name=name, uid=name, shape=shape, created=_LONG_AGO,
                app_id=event.name, queue=policy.queue, is_yunikorn=True,
            )  # fmt: skip


def _was_foreseen(inputs: Inputs, entry: LentNode) -> bool:
    """Whether a node may have been there for an event to which nobody came."""
    events = [
        event
        for event in known_events(inputs.config, inputs.registry)
        if event.namespace == entry.namespace
    ]
    return bool(list_windows(events, entry.since, inputs.now))


def _raise_floors(inputs: Inputs) -> Inputs:
    config = raise_floors(inputs.config, floors_in_force(inputs))
    return msgspec.structs.replace(inputs, config=config)


def _add_notes(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    at = inputs.snapshot.events_at or inputs.now
    notes = tuple(why_incomplete(inputs.config, inputs.registry, at))
    return Additions(registry=noted, notes=notes)


RULE = Rule(wants=with_wants, prepares=_raise_floors, excuses=_was_foreseen, adds=_add_notes)
