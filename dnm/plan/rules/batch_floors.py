"""`batch_floor`: the number of nodes that stay in Slurm, however many pods wait. Pure.

The rule: a node is lent only if Slurm keeps the floor of its type, and of each partition with nodes
of that type. The node and every requested node that has not joined count as lent. A node in an
unknown state does not count for Slurm. dnm does not know in advance which node a converter takes,
so a partition at its floor stops every type that it has. A partition that is not listed stops all
types: its floor could not be counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.reason import ReasonText
from dnm.model.registry import Registry
from dnm.model.share import Floor
from dnm.plan.hooks import CountedFrom, Rule
from dnm.sizing.caps import Bound

BATCH_FLOOR = ReasonText(
    "Slurm has no more nodes than batch_floor requires",
    "a node that is returned or becomes idle, or a lower floor",
    has_pod_event=True,
    name="BATCH_FLOOR",
)


def floor_bounds(
    config: Config,
    registry: Registry,
    batch: Mapping[str, BatchNode],
    resumable: Mapping[str, int] = {},
) -> Iterator[Bound]:
    """Yields how many more nodes each batch_floor allows to lend. `resumable` has the number of
    nodes of a type that are claimed already: lending them takes none from Slurm."""
    of_types = {name: config.floor_of(name) for name in config.node_types}
    if not config.partition_floors and not any(of_types.values()):
        return
    types = {name: config.type_of(name) for name in batch}
    incoming: Counter[str] = Counter()
    for request in registry.requests:
        incoming[request.node_type] += request.count
    for node_type in config.node_types:
        rows = [node for name, node in batch.items() if types[name] == node_type]
        spare = resumable.get(node_type, 0) - incoming[node_type]
        yield from _bounds(f"of type {node_type}", of_types[node_type], rows, spare, {node_type})
    for partition, floor in config.partition_floors.items():
        rows = [node for node in batch.values() if partition in node.partitions]
        held_types = {item for node in rows if (item := types[node.name])} or set(config.node_types)
        spare = sum(resumable.get(name, 0) - incoming[name] for name in held_types)
        yield from _bounds(f"of partition {partition}", floor, rows, spare, held_types)


def _bounds(
    of: str, floor: Floor | None, rows: list[BatchNode], spare: int, types: Iterable[str]
) -> Iterator[Bound]:
    in_service = sum(node.in_service is True for node in rows)
    if floor is not None:
        left = max(0, in_service + spare - floor.of(len(rows)))
        yield Bound(
            name=f"batch_floor {of}", left=left, reason=BATCH_FLOOR, node_types=frozenset(types)
        )


def _yield_bounds(inputs: CountedFrom) -> Iterator[Bound]:
    batch = inputs.facts.batch
    if batch is not None and not inputs.is_move:
        yield from floor_bounds(inputs.config, inputs.registry, batch, inputs.resumable)


RULE = Rule(reasons=(BATCH_FLOOR,), bounds=_yield_bounds)
