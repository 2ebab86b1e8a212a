"""From which nodes pods are asked to go: a person has said so (`dnm return --evict`). Pure.

The rule: only a node that leaves by that word, that dnm itself has fenced or fences in this run,
and that could go back once it is empty. What can't be read, a hold and a pause stop it. Nothing
else in dnm's own runs ends a pod.
"""

from __future__ import annotations

from dnm.model.plan import EvictPods
from dnm.model.queue_path import may_edit
from dnm.model.registry import Half, Leaving, LentNode, Phase
from dnm.model.value import Unreadable
from dnm.plan.brakes import is_paused
from dnm.plan.conversions import Converted
from dnm.plan.known import Known


def list_evictions(converted: Converted) -> list[EvictPods]:
    """Returns the nodes that have pods who were not asked yet, or did not go."""
    known, registry = converted.known, converted.registry
    serving = registry.nodes_of(known.config.instance_id, Phase.SERVING)
    due = [name for name, entry in serving.items() if _is_due(entry, known)]
    is_stopped = converted.limits.refusal or is_paused(registry, known.now, Half.RETURNING)
    if not due or is_stopped or not known.facts.sees_all_pods:
        return []
    occupied = _occupied(known)
    return [
        EvictPods(node=name)
        for name in due
        if name in occupied and name not in registry.held and _is_ours(known, name)
    ]


def _is_due(entry: LentNode, known: Known) -> bool:
    is_meant = entry.leaves is Leaving.BY_HAND and entry.emptying is not None
    may_shrink = may_edit(entry.queue, known.config.allowed_queue_prefixes)
    return bool(is_meant and may_shrink and entry.emptying and entry.emptying.since <= known.now)


def _occupied(known: Known) -> set[str]:
    """Nodes with pods that keep them, and are not on their way already."""
    pods = known.snapshot.pods
    if isinstance(pods, Unreadable):
        return set()
    return {pod.node for pod in pods.pods if pod.counts_as_work and not pod.is_terminating}


def _is_ours(known: Known, name: str) -> bool:
    """Whether the Node is there, and nobody else has cordoned it."""
    node = (known.facts.nodes or {}).get(name)
    return node is not None and not (node.is_cordoned_by_another or node.unreadable)
