"""The number of nodes that each monitored queue needs, by type and namespace, for quota and
capacity.

The rule: the least number of nodes after which every pending pod that a node can help has both, and
no trigger applies any more. Pods are first packed onto existing and incoming nodes, within the
unused quota along the tree. Each further node adds its capacity, and raises its queue and every
limited ancestor by its size.

    size_queues(config, demand, queues, node_supply, budget) -> Sizing
    count_young_pods(demand) -> Demand    the same, with pods that are too young to request nodes

`queues` are the limits after this run's edits: baseline plus the serving nodes. Incoming nodes
(NodeSupply.incoming) are added here. The result has the needs, and what the budget grants of them;
limits per run, cooldown, back-off, breaker and pause are the planner's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.quantity import amount_text, number_text
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import Verdict
from dnm.sizing.allotment import Allotment
from dnm.sizing.backlog import make_backlogs
from dnm.sizing.caps import UNBOUNDED, ConversionBudget, describe_bounds
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.packing_input import make_packing_input
from dnm.sizing.queue_sizing import (
    QueueSizing,
    Sizing,
    count_by_type,
    make_sizing,
    size_without_demand,
)
from dnm.sizing.quota import Shortage


def count_young_pods(demand: Demand) -> Demand:
    """Returns the demand as if every pending pod had been pending long enough to count."""
    groups = tuple(
        msgspec.structs.replace(group, count=group.total) if group.young else group
        for group in demand.groups
    )
    return msgspec.structs.replace(demand, groups=groups)


def size_queues(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    node_supply: NodeSupply,
    budget: ConversionBudget = UNBOUNDED,
) -> Sizing:
    """Returns how many nodes every monitored queue needs, and how many it gets within `budget`.
    Without a budget, each gets all that it needs.

    Scarce nodes go to the queue of the highest priority. Queues of equal priority share them
    (`fair_shares.py`). If claims are equal, the pods that have lacked something for longest come
    first."""
    sizing = size_without_demand(config, demand, queues)
    return sizing or size_with_demand(config, demand, queues, node_supply, budget)


def size_with_demand(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    node_supply: NodeSupply,
    budget: ConversionBudget,
) -> Sizing:
    """Returns the result of `size_queues` if a queue may need nodes. It packs the pending pods of
    queue after queue, and does so again if the budget does not allow the result."""
    if demand.workloads:
        from dnm.sizing.workloads import size_workloads

        return size_workloads(size_with_demand, config, demand, queues, node_supply, budget)
    packing_input = make_packing_input(config, demand, node_supply)
    backlogs = make_backlogs(config, demand, queues, packing_input)
    allotment = Allotment(demand, queues, node_supply, packing_input)
    sizings = [allotment.serve(backlog) for backlog in backlogs]
    wanted = {pool: count for sizing in sizings for pool, count in sizing.wanted.items()}
    if not budget.covers(wanted):
        since = {sizing.queue: sizing.waits_since or "~" for sizing in sizings}
        backlogs.sort(
            key=lambda queue_backlog: (
                -queue_backlog.priority,
                since[queue_backlog.queue],
                queue_backlog.queue,
            )
        )
        allotment = Allotment(demand, queues, node_supply, packing_input)
        sizings = allotment.serve_within(budget, backlogs)
    reasons = {sizing.queue: describe_need(sizing) for sizing in sizings if sizing.wanted}
    return make_sizing(demand, sizings, reasons)


def describe_need(sizing: QueueSizing) -> tuple[Verdict, ReasonText, str]:
    """Returns the kind, reason and detail of the decision about a queue that needs nodes."""
    wanted, granted = sum(sizing.wanted.values()), sum(sizing.granted.values())
    verdict = Verdict.CONVERT if granted else Verdict.WAIT
    reason, detail = _reason_for_need(sizing)
    types = count_by_type(sizing.wanted).items()
    details = [detail, f"needs {', '.join(f'{count} of type {name}' for name, count in types)}"]
    if granted < wanted:
        details.append(describe_bounds(sizing.spent, granted))
    if not granted:
        details[0] = f"{reason.text}: {detail}"
        # If there were nodes, other queues got them.
        reason = next((bound.reason for bound in sizing.spent if bound.left <= 0), Reason.OUTRANKED)
    return verdict, reason, "; ".join(filter(None, details))


def _reason_for_need(sizing: QueueSizing) -> tuple[ReasonText, str]:
    if sizing.for_pods:
        reason = Reason.LACKS_NODES if not sizing.no_quota else Reason.LACKS_QUOTA
        if sizing.opened_for_capacity and sizing.no_quota:
            reason = Reason.LACKS_BOTH
        if sizing.no_quota and sizing.shortage is not None:
            return reason, _shortage_text(sizing.shortage)
        return reason, count_of(sizing.without_capacity, "pod")
    if sizing.shortage is not None:
        return Reason.NEARLY_FULL, _shortage_text(sizing.shortage)
    return Reason.MIN_NODES, ", ".join(sorted(set(sizing.below_min_nodes)))


def _shortage_text(short: Shortage) -> str:
    demand = number_text(short.resource, short.used + short.asked)
    return f"{short.path} has {amount_text(short.resource, short.limit)} for {demand}"
