"""What waits in each monitored queue, and which new nodes would help it.

The rule: a pending pod is the concern of the nearest monitored queue above it. It is schedulable if
an empty new node of one of the queue's types would take it; else it is named with the reason, and
brings no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.demand.constraints import why_unfit
from dnm.demand.demand import Demand, pending_fingerprint
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config, NamespacePolicy
from dnm.model.queue_path import known_lineage
from dnm.model.value import Value
from dnm.sizing.node_supply import ExpectedNode
from dnm.sizing.packing_input import PackingInput
from dnm.sizing.wanted_words import amount_text


class Schedulable(Value):
    """Names a group of pending pods, and the new nodes that would help it, best first, as indexes
    of QueueBacklog.options."""

    group: PendingGroup
    options: tuple[int, ...]


class QueueBacklog(Value):
    """Holds one monitored queue: its policies, the new nodes it may get, its pending pods.

    `unschedulable` groups come with the reason why no new node helps; they still use what room and
    quota there is. `fingerprint` changes when the pending pods do.
    """

    queue: str
    policies: tuple[NamespacePolicy, ...]
    options: tuple[ExpectedNode, ...]
    schedulable: tuple[Schedulable, ...] = ()
    unschedulable: tuple[tuple[PendingGroup, str], ...] = ()
    fingerprint: str = ""

    @property
    def priority(self) -> int:
        """The highest of its namespaces."""
        return max(policy.priority for policy in self.policies)

    @property
    def oldest(self) -> str:
        """When the oldest pod was created that a new node would help; sorts last without one."""
        return min((schedulable.group.oldest for schedulable in self.schedulable), default="~")


def make_backlogs(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    packing_input: PackingInput,
) -> list[QueueBacklog]:
    """Returns the monitored queues that the document has, each with the pods that are its concern:
    by priority, then the longest wait first."""
    groups: dict[str, list[PendingGroup]] = {}
    for group in demand.groups:
        if group.count:
            for path in known_lineage(group.queue, queues):
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
    """Tells the groups that a new node would help from the others. Nodes of a group's own namespace
    come first."""
    schedulable: list[Schedulable] = []
    unschedulable: list[tuple[PendingGroup, str]] = []
    for group in groups:
        reasons = [why_no_help(group, expected) for expected in options]
        useful = [number for number, why in enumerate(reasons) if not why]
        useful.sort(key=lambda number: options[number].pool.namespace != group.namespace)
        if useful:
            schedulable.append(Schedulable(group=group, options=tuple(useful)))
        else:
            why = _some_of(dict.fromkeys(filter(None, reasons))) or "no node type is given"
            unschedulable.append((group, why))
    return tuple(schedulable), tuple(unschedulable)


def why_no_help(group: PendingGroup, expected: ExpectedNode) -> str | None:
    """Says why an empty node of a type would not take one of the pods."""
    node_type = expected.pool.node_type
    refused = why_unfit(group.shape, group.volumes, expected.traits)
    if refused:
        return f"{refused}, unlike node type {node_type}"
    for resource, amount in sorted(group.request.items()):
        free = expected.free.get(resource, 0)
        if amount > free:
            return (
                f"asks for {amount_text(resource, amount)}, an empty node of type "
                f"{node_type} has {amount_text(resource, max(free, 0))}"
            )
    return None


def _some_of(texts: Iterable[str], most: int = 3) -> str:
    """Returns the first texts, and the number of the others."""
    found = list(texts)
    more = [f"and {len(found) - most} more"] if len(found) > most else []
    return "; ".join((*found[:most], *more))
