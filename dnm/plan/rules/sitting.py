"""Queues that sit on lent nodes: a pod of one core on each of thirty holds them all. Pure.

The rule: where pods use less than a tenth of what the lent nodes offer that they hold, by whichever
resource they use most of, it is noted since when; after hours of that people are told. Nothing else
follows. It looks once nodes have served for hours. While it can't be told what pods use, what is
noted stands.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import ceil

import msgspec

from dnm.demand.demand import NodeUse
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import Sitting
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.plan.hooks import Additions, Rule
from dnm.plan.inputs import Inputs
from dnm.plan.rule import SITS

FEW = 0.1  # of what the nodes offer

_Held = list[tuple[LentNode, NodeUse]]


def _add(inputs: Inputs, registry: Registry, noted: Registry) -> Additions:
    held = _held_nodes(inputs, registry)
    if held is None:
        return Additions(registry=noted)
    found = {queue: _note(inputs, queue, nodes) for queue, nodes in sorted(held.items())}
    sitting = {queue: queue_use for queue, queue_use in found.items() if queue_use is not None}
    return Additions(registry=msgspec.structs.replace(noted, sitting=sitting))


def _held_nodes(inputs: Inputs, registry: Registry) -> dict[str, _Held] | None:
    """The serving nodes of each queue that pods hold and nobody has told to go, or to stay; None:
    not all pods could be read."""
    serving = registry.nodes_of(inputs.config.instance_id, Phase.SERVING)
    pods = inputs.snapshot.pods
    if inputs.demand is None or not isinstance(pods, PodList) or pods.unreadable:
        return None
    if not pods.cluster_wide or inputs.facts.unseen & serving.keys():
        return None
    held: defaultdict[str, _Held] = defaultdict(list)
    for name, entry in serving.items():
        use, is_told = inputs.demand.nodes.get(name), entry.leaves or entry.is_kept_at(inputs.now)
        if use is not None and use.work_pods and not is_told:
            held[entry.queue].append((entry, use))
    return held


def _note(inputs: Inputs, queue: str, nodes: _Held) -> Sitting | None:
    share, now = used_share(nodes), inputs.now
    if share >= FEW:
        return None
    known = inputs.registry.sitting.get(queue)
    since = min(known.since, now) if known else now
    percent = max(ceil(round(100 * share, 6)), 1)
    return Sitting(since=since, percent=percent, nodes=len(nodes), is_told=now - since >= SITS)


def used_share(nodes: Iterable[tuple[LentNode, NodeUse]]) -> float:
    """Returns the largest share of a resource that pods use, those of DaemonSets aside; all where
    nothing is known to be offered."""
    offered: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for entry, use in nodes:
        offered.update(entry.counted)
        used.update(use.used)
        used.subtract(use.daemonsets)
    return max((used[name] / most for name, most in offered.items() if most > 0), default=1.0)


RULE = Rule(adds=_add)
