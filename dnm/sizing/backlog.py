"""The pending pods of each monitored queue, and the kinds of new nodes that would help them.

The rule: a pending pod belongs to the nearest monitored queue above it. It is schedulable if an
empty new node of one of the queue's types could run it; otherwise it is reported with the reason,
and no node is lent for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.demand.constraints import describe_misfit
from dnm.demand.demand import Demand, pending_fingerprint
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config, NamespacePolicy
from dnm.model.quantity import amount_text
from dnm.model.queue_path import present_lineage
from dnm.model.value import Value
from dnm.sizing.node_supply import ExpectedNode
from dnm.sizing.packing_input import PackingInput


class Schedulable(Value):
    """A group of pending pods and the kinds of new nodes that would help it, best first, as indexes
    of QueueBacklog.options."""

    group: PendingGroup
    options: tuple[int, ...]


class QueueBacklog(Value):
    """The pending pods of a monitored queue, its namespaces, and the kinds of new nodes it may get.

    `unschedulable` groups have the reason why no new node helps; they still use existing capacity
    and quota. `fingerprint` is a hash that changes with the pending pods."""

    queue: str
    policies: tuple[NamespacePolicy, ...]
    options: tuple[ExpectedNode, ...]
    schedulable: tuple[Schedulable, ...] = ()
    unschedulable: tuple[tuple[PendingGroup, str], ...] = ()
    fingerprint: str = ""

    @property
    def priority(self) -> int:
        """Returns the highest priority of the namespaces that use the queue."""
        return max(policy.priority for policy in self.policies)

    @property
    def oldest(self) -> str:
        """Returns the creation time of the oldest pod that a node would help, or, without one, a
        text that sorts last."""
        return min((schedulable.group.oldest for schedulable in self.schedulable), default="~")


def make_backlogs(
    config: Config, demand: Demand, queues: Mapping[str, QueueLimits], packing_input: PackingInput
) -> list[QueueBacklog]:
    """Returns the pending pods of each monitored queue. The queues are in order of priority, and
    those of equal priority by their longest wait."""
    groups: dict[str, list[PendingGroup]] = {}
    for group in demand.groups:
        if group.count:
            for path in present_lineage(group.queue, queues):
                if path in packing_input.options:
                    groups.setdefault(path, []).append(group)
                    break
    backlogs = []
    for queue in config.queues:
        if queue in queues:
            policies = [
                namespace for namespace in config.namespaces.values() if namespace.queue == queue
            ]
            schedulable, unschedulable = _sort_out(
                groups.get(queue, ()), packing_input.options[queue]
            )
            backlogs.append(
                QueueBacklog(
                    queue=queue,
                    policies=tuple(
                        sorted(policies, key=lambda policy: (-policy.priority, policy.name))
                    ),
                    options=packing_input.options[queue],
                    schedulable=schedulable,
                    unschedulable=unschedulable,
                    fingerprint=pending_fingerprint(demand, queue),
                )
            )
    backlogs.sort(key=lambda backlog: (-backlog.priority, backlog.oldest, backlog.queue))
    return backlogs


def _sort_out(
    groups: Iterable[PendingGroup], options: tuple[ExpectedNode, ...]
) -> tuple[tuple[Schedulable, ...], tuple[tuple[PendingGroup, str], ...]]:
    """Separates groups of pods that a new node would help from the others. Each group prefers new
    nodes for its own namespace."""
    schedulable: list[Schedulable] = []
    unschedulable: list[tuple[PendingGroup, str]] = []
    for group in groups:
        reasons = [describe_mismatch(group, expected) for expected in options]
        useful = [number for number, why in enumerate(reasons) if not why]
        useful.sort(key=lambda number: options[number].pool.namespace != group.namespace)
        if useful:
            schedulable.append(Schedulable(group=group, options=tuple(useful)))
        else:
            why = _summarize(dict.fromkeys(filter(None, reasons))) or "no node type is given"
            unschedulable.append((group, why))
    return tuple(schedulable), tuple(unschedulable)


def describe_mismatch(group: PendingGroup, expected: ExpectedNode) -> str | None:
    """Returns why a pod of the group could not run on an empty new node, or None if it could."""
    node_type = expected.pool.node_type
    refused = describe_misfit(group.shape, group.volumes, expected.traits)
    if refused:
        return f"{refused}, unlike node type {node_type}"
    for resource, amount in sorted(group.request.items()):
        free = expected.free.get(resource, 0)
        if amount > free:
            return (
                f"requests {amount_text(resource, amount)}, an empty node of type "
                f"{node_type} has {amount_text(resource, max(free, 0))}"
            )
    return None


def _summarize(texts: Iterable[str], most: int = 3) -> str:
    """Returns the first `most` texts, joined, followed by the number of the remaining ones."""
    reasons = list(texts)
    more = [f"and {len(reasons) - most} more"] if len(reasons) > most else []
    return "; ".join((*reasons[:most], *more))
