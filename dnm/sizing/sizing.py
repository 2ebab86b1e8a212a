"""How many nodes each monitored queue needs, of which type, for which namespace: quota and room
asked together.

The rule: the least number of nodes after which every pending pod that a node can help has both, and
no trigger holds any more. Pods are first packed onto what is there and on its way, within what the
queues have left up the tree; each further node brings its room, and raises its queue and every
limited ancestor by its size.

    size_queues(config, demand, queues, node_supply, budget) -> Sizing
    counting_young(demand) -> Demand      the same, with pods that are too young to ask for nodes

`queues` are the limits that stand after this run's edits: baseline plus the serving nodes. Nodes on
their way (NodeSupply.incoming) are added here. The result says what is wanted, and what of it the
budget grants; limits per run, cooldown, back-off, breaker and pause are the planner's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.sizing.allotment import Allotment
from dnm.sizing.backlog import make_backlogs
from dnm.sizing.caps import UNBOUNDED, ConversionBudget
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.packing_input import make_packing_input
from dnm.sizing.queue_sizing import Sizing, answer, size_at_rest
from dnm.sizing.wanted_words import tell_wanted


def counting_young(demand: Demand) -> Demand:
    """Returns the same demand, as if every pending pod had waited long enough."""
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
    """Returns what every monitored queue needs, and who gets what there is; without bounds, all
    that is wanted is granted.

    Scarce nodes go to the queue of the highest priority. Queues of equal priority share them
    (`fair_shares.py`); of equal claims, the pods that have lacked something for the longest time
    come first.
    """
    at_rest = size_at_rest(config, demand, queues)
    return at_rest or size_wanting(config, demand, queues, node_supply, budget)


def size_wanting(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    node_supply: NodeSupply,
    budget: ConversionBudget,
) -> Sizing:
    """Returns the same where something may be wanted: packs what waits, queue after queue, and once
    more where the budget does not cover it all."""
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
    told = {sizing.queue: tell_wanted(sizing) for sizing in sizings if sizing.wanted}
    return answer(demand, sizings, told)
