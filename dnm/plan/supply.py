"""The number of Slurm's nodes that can be lent now, within caps and minimums. Pure."""

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
from dnm.plan.cap_shares import resolve_shares
from dnm.plan.facts import Facts
from dnm.plan.lendable import conversion_budget, lendable_names
from dnm.sizing.caps import NodePool


class Supply(Value):
    """The number of nodes of a type that Slurm has, that the converter could lend, and that caps
    and minimums allow to lend `now`. `bounds` has the names of those that allow no more."""

    node_type: str
    listed: int
    lendable: int
    now: int
    bounds: tuple[str, ...] = ()

    @property
    def limiting_text(self) -> str:
        """Returns a clause like `max_nodes allows no more`; empty if no bound limits the nodes."""
        is_single = len(self.bounds) == 1
        return f"{' and '.join(self.bounds)} allow{'s' * is_single} no more" if self.bounds else ""

    @property
    def sentence(self) -> str:
        """Returns a sentence: how many nodes can be lent now, and why no more."""
        nodes = f"{self.now} of {count_of(self.listed, 'node')} of the type {self.node_type}"
        why = f": {self.lendable} are available, and {self.limiting_text}" if self.bounds else ""
        return f"{nodes} can be lent now{why}"


def supply_now(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode], now: datetime
) -> list[Supply]:
    """Returns how many nodes of each type can be lent now, without facts from Kubernetes."""
    facts = Facts(now=now, nodes=None, batch=batch, working_pods=None, running=frozenset())
    return [supply_of(config, registry, facts, node_type) for node_type in config.node_types]


def supply_of(config: Config, registry: Registry, facts: Facts, node_type: str) -> Supply:
    """Returns how many nodes of a type can be lent now, to the namespace that can get the most."""
    batch = facts.batch or {}
    config = resolve_shares(config, batch)
    lendable = Counter(map(config.type_of, lendable_names(config, registry, facts)))[node_type]
    supply = Supply(
        node_type=node_type,
        listed=sum(config.type_of(name) == node_type for name in batch),
        lendable=lendable,
        now=lendable,
    )
    budget = conversion_budget(config, registry, facts)
    pools = [
        NodePool(namespace.queue, namespace.name, node_type)
        for namespace in config.namespaces.values()
        if node_type in namespace.node_types
    ]
    of_pools = map(budget.bounds_of, pools)
    widest = max(of_pools, key=lambda bounds: min(bound.left for bound in bounds), default=[])
    now = min((bound.left for bound in widest), default=lendable)
    if now >= lendable:
        return supply
    tightest = (
        bound for bound in widest if bound.left == now and bound.reason is not Reason.NO_BATCH_NODE
    )
    return msgspec.structs.replace(supply, now=now, bounds=tuple(bound.name for bound in tightest))
