"""Queues that use little of their lent nodes: a small pod on each of thirty keeps them all. Pure.

The rule: if pods use less than a tenth of what their lent nodes offer, by the resource that they
use most, dnm records since when. After two hours of that, dnm reports the queue; it does nothing
else. The rule is on once nodes have served for hours. While the use of pods is unknown, the record
stays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import ceil

import msgspec

from dnm.demand.demand import NodeUse
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import LowUse
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.rule import LOW_UTILIZATION_FOR

FEW = 0.1  # of the nodes' amounts

_Held = list[tuple[LentNode, NodeUse]]


def _record_low_use(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    held = _held_nodes(inputs, registry)
    if held is None:
        return Additions(registry=noted)
    by_queue = {queue: _measure(inputs, queue, nodes) for queue, nodes in sorted(held.items())}
    low_use = {queue: queue_use for queue, queue_use in by_queue.items() if queue_use is not None}
    return Additions(registry=msgspec.structs.replace(noted, low_utilization=low_use))


def _held_nodes(inputs: Inputs, registry: Registry) -> dict[str, _Held] | None:
    """Returns, by queue, the serving nodes with pods, except nodes that an administrator keeps or
    returns. Returns None if not all pods could be read."""
    serving = registry.nodes_of(inputs.config.instance_id, Phase.SERVING)
    pods = inputs.snapshot.pods
    if inputs.demand is None or not isinstance(pods, PodList) or pods.unreadable:
        return None
    if not pods.cluster_wide or inputs.facts.unseen & serving.keys():
        return None
    held: defaultdict[str, _Held] = defaultdict(list)
    for name, entry in serving.items():
        use, is_kept = inputs.demand.nodes.get(name), entry.leaves or entry.is_kept_at(inputs.now)
        if use is not None and use.work_pods and not is_kept:
            held[entry.queue].append((entry, use))
    return held


def _measure(inputs: Inputs, queue: str, nodes: _Held) -> LowUse | None:
    share, now = used_share(nodes), inputs.now
    if share >= FEW:
        return None
    previous = inputs.registry.low_utilization.get(queue)
    since = min(previous.since, now) if previous else now
    percent = max(ceil(round(100 * share, 6)), 1)
    is_reported = now - since >= LOW_UTILIZATION_FOR
    return LowUse(since=since, percent=percent, nodes=len(nodes), is_reported=is_reported)


def used_share(nodes: Iterable[tuple[LentNode, NodeUse]]) -> float:
    """Returns which share of the nodes pods use, without those of DaemonSets, by the resource that
    they use most. It is 1 if no amount is known."""
    offered: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for entry, use in nodes:
        offered.update(entry.counted)
        used.update(use.used)
        used.subtract(use.daemonsets)
    return max((used[name] / most for name, most in offered.items() if most > 0), default=1.0)


RULE = Rule(adds=_record_low_use)
