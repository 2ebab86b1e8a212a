"""Would anything be wanted, or broken, if some lent nodes had left? Pure.

The rule: sizing as if they had left wants nothing that sizing as it is does not want.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dnm.demand.demand import Demand
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.queue_path import known_lineage
from dnm.sizing.budget import ConversionBudget, pool_of
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.sizing import size_queues


class Trial:
    """Sizing as if some lent nodes had left; compared with sizing as it is."""

    def __init__(
        self,
        config: Config,
        demand: Demand,
        queues: Mapping[str, QueueLimits],
        node_supply: NodeSupply,
        budget: ConversionBudget | None,
    ) -> None:
        self._config = config
        self._demand = demand
        self._queues = queues
        self._node_supply = node_supply
        self._budget = budget
        self.base = size_queues(config, demand, queues, node_supply, budget)

    def without_headroom(self, queues: Iterable[str]) -> Trial:
        """Returns the same for queues that keep no headroom free."""
        there = self._node_supply
        unbuffered = there.unbuffered | frozenset(queues)
        there = msgspec.structs.replace(there, unbuffered=unbuffered)
        return Trial(self._config, self._demand, self._queues, there, self._budget)

    def count_spare(self, gone: Sequence[str], rivals: Sequence[str]) -> tuple[int, str]:
        """Counts how many of `rivals`, taken in order, may go when `gone` go too; and what speaks
        against one more. All or none is answered at once, the rest by halving."""
        if not rivals:
            return 0, ""
        objection = self.objection([*gone, *rivals])
        if not objection:
            return len(rivals), ""
        low, high = 0, len(rivals) - 1
        while low < high:
            middle = (low + high + 1) // 2
            against = self.objection([*gone, *rivals[:middle]])
            if against:
                objection, high = against, middle - 1
            else:
                low = middle
        return low, objection

    def queue_of(self, name: str) -> str:
        """Returns the queue that a lent node serves."""
        return self._node_supply.lent[name].queue

    def objection(self, names: Sequence[str]) -> str:
        """Says what would be wanted, or broken, if these nodes had left; empty if nothing."""
        limits = self._limits_without(names)
        for name in names:
            for path in known_lineage(self._node_supply.lent[name].queue, limits):
                gang = self._demand.queues[path].largest_gang if path in self._demand.queues else {}
                for resource, limit in limits[path].max.items():
                    if limit < gang.get(resource, 0) <= self._queues[path].max[resource]:
                        return f"a gang application of {path} asks for more {resource} at once"
        node_supply = msgspec.structs.replace(
            self._node_supply,
            lent={name: one for name, one in self._node_supply.lent.items() if name not in names},
            leaving=self._node_supply.leaving | set(names),
        )
        own = [pool_of(self._node_supply.lent[name]) for name in names]
        budget = self._budget.plus(own) if self._budget is not None else None
        sizing = size_queues(self._config, self._demand, limits, node_supply, budget)
        base = self.base
        granted = {pool: count for pool, count in sizing.granted().items() if pool in own}
        for after, before in ((sizing.wanted(), base.wanted()), (granted, base.granted())):
            for pool, count in after.items():
                if count > before.get(pool, 0):
                    return sizing.verdicts[pool.queue].sentence
        return ""

    def _limits_without(self, names: Sequence[str]) -> dict[str, QueueLimits]:
        limits = {path: dict(one.max) for path, one in self._queues.items()}
        for name in names:
            entry = self._node_supply.lent[name]
            for path in known_lineage(entry.queue, self._queues):
                for resource in limits[path].keys() - self._queues[path].fixed:
                    limits[path][resource] -= entry.counted.get(resource, 0)
        return {
            path: msgspec.structs.replace(one, max=limits[path])
            for path, one in self._queues.items()
        }
