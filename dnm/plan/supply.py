"""How many batch nodes could be lent now, with what caps and floors leave. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.printable import count_of
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.plan.cap_shares import in_nodes
from dnm.plan.facts import Facts
from dnm.plan.lendable import conversion_budget, lendable_names
from dnm.sizing.caps import NodePool


class Supply(Value):
    """Nodes of a type: how many there are, and could be had by the converter's word; `now`: with
    what caps and floors leave. `bounds`: those that leave no more."""

    node_type: str
    listed: int
    to_be_had: int
    now: int
    bounds: tuple[str, ...] = ()

    @property
    def what_bounds(self) -> str:
        """Returns `max_converted_nodes allows no more`; empty: all that could be had may be."""
        is_one = len(self.bounds) == 1
        return f"{' and '.join(self.bounds)} allow{'s' * is_one} no more" if self.bounds else ""

    @property
    def sentence(self) -> str:
        """Returns how many can be lent now, and why not all that could be had."""
        nodes = f"{self.now} of {count_of(self.listed, 'node')} of the type {self.node_type}"
        why = f": {self.to_be_had} could be had, and {self.what_bounds}" if self.bounds else ""
        return f"{nodes} can be lent now{why}"


def supply_now(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode], now: datetime
) -> list[Supply]:
    """Returns that of each type, where Kubernetes was not asked."""
    facts = Facts(now=now, nodes=None, batch=batch, working_pods=None, running=frozenset())
    return [supply_of(config, registry, facts, node_type) for node_type in config.node_types]


def supply_of(config: Config, registry: Registry, facts: Facts, node_type: str) -> Supply:
    """Returns how many nodes of the type could be lent to the namespace for which most could be."""
    batch = facts.batch or {}
    config = in_nodes(config, batch)
    to_be_had = Counter(map(config.type_of, lendable_names(config, registry, facts)))[node_type]
    supply = Supply(
        node_type=node_type,
        listed=sum(config.type_of(name) == node_type for name in batch),
        to_be_had=to_be_had,
        now=to_be_had,
    )
    budget = conversion_budget(config, registry, facts)
    pools = [
        NodePool(namespace.queue, namespace.name, node_type)
        for namespace in config.namespaces.values()
        if node_type in namespace.node_types
    ]
    of_pools = map(budget.bounds_of, pools)
    widest = max(of_pools, key=lambda some: min(bound.left for bound in some), default=[])
    now = min((bound.left for bound in widest), default=to_be_had)
    if now >= to_be_had:
        return supply
    tight = (
        bound for bound in widest if bound.left == now and bound.reason is not Reason.NO_BATCH_NODE
    )
    return msgspec.structs.replace(supply, now=now, bounds=tuple(bound.name for bound in tight))
