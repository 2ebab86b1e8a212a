"""Whether a run has to ask the batch side at all: its list is the dearest of all reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.node import Node
from dnm.model.pod import PodList
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.model.verdict import Verdict
from dnm.plan.counting import count_missing


def needs_batch_side(
    config: Config, registry: Registry, nodes: Iterable[Node], pods: PodList | Unreadable
) -> bool:
    """Whether something depends on it: a conversion may be wanted, or a lent node is not simply
    serving."""
    nodes = tuple(nodes)
    present = {node.name for node in nodes}
    if any(_is_unrecorded_mark(config, registry, node) for node in nodes):
        return True
    is_under_way = (
        registry.requests
        or registry.claimed
        or any(
            entry.phase is not Phase.SERVING or entry.is_unjudged or name not in present
            for name, entry in registry.nodes.items()
        )
    )
    if is_under_way or any(count_missing(order, registry) for order in registry.orders):
        return True
    if config.book_ahead or (config.node_conditions and registry.nodes):
        return True
    if any(policy.min_nodes for policy in config.namespaces.values()):
        return True
    return wanted_nodes(registry) or _may_want_nodes(config, pods)


def asks_anyway(config: Config, registry: Registry, now: datetime) -> bool:
    """Whether this is the first run of an hour, or the first of all: what is claimed for this
    instance is looked for then, though nothing depends on it as far as the record knows."""
    if not (registry.nodes or registry.last_run.queues):
        return True
    return timedelta(minutes=now.minute, seconds=now.second) < config.check_interval


def _is_unrecorded_mark(config: Config, registry: Registry, node: Node) -> bool:
    """Only Slurm or the ledger can tell whether such a mark is true."""
    return node.is_marked_by(config.instance_id) and node.name not in registry.nodes


def wanted_nodes(registry: Registry) -> bool:
    """Whether the last run wanted a conversion, or would have if it had known what is at hand."""
    queues = registry.last_run.queues.values()
    return any(status.verdict != Verdict.KEEP.value for status in queues)


def _may_want_nodes(config: Config, pods: PodList | Unreadable) -> bool:
    return not isinstance(pods, Unreadable) and any(
        not pod.node and pod.is_yunikorn and pod.namespace in config.namespaces for pod in pods.pods
    )
