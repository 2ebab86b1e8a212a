"""`batch_floor`: what is left to Slurm, however many pods wait. Pure.

The rule: a node is lent only while Slurm keeps the floor without it and without every node that is
asked for and has not come yet, of its type and of each partition that nodes of its type are in. A
node whose state is not understood is none that Slurm has. Which node a converter takes nobody knows
before, so a partition at its floor holds for every type that it has; and so does one that is not
listed, for all: its floor could not be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.reason import Why
from dnm.model.registry import Registry
from dnm.model.share import Floor
from dnm.plan.hooks import CountedFrom, Rule
from dnm.sizing.caps import Bound

BATCH_FLOOR = Why(
    "as few nodes are left to Slurm as batch_floor allows",
    "a node that goes back or falls idle, or a lower floor",
    pods_are_told=True,
    name="BATCH_FLOOR",
)


def floor_bounds(
    config: Config,
    registry: Registry,
    batch: Mapping[str, BatchNode],
    resumable: Mapping[str, int] = {},
) -> Iterator[Bound]:
    """Yields how many more nodes each floor allows. `resumable`: nodes of a type that are claimed
    already, and may be lent without Slurm losing one."""
    of_types = {name: config.floor_of(name) for name in config.node_types}
    if not config.partition_floors and not any(of_types.values()):
        return
    types = {name: config.type_of(name) for name in batch}
    coming: Counter[str] = Counter()
    for request in registry.requests:
        coming[request.node_type] += request.count
    for node_type in config.node_types:
        rows = [node for name, node in batch.items() if types[name] == node_type]
        spare = resumable.get(node_type, 0) - coming[node_type]
        yield from _bounds(f"of type {node_type}", of_types[node_type], rows, spare, {node_type})
    for partition, floor in config.partition_floors.items():
        rows = [node for node in batch.values() if partition in node.partitions]
        held = {item for node in rows if (item := types[node.name])} or set(config.node_types)
        spare = sum(resumable.get(name, 0) - coming[name] for name in held)
        yield from _bounds(f"of partition {partition}", floor, rows, spare, held)


def _bounds(
    of: str, floor: Floor | None, rows: list[BatchNode], spare: int, types: Iterable[str]
) -> Iterator[Bound]:
    in_service = sum(node.in_service is True for node in rows)
    if floor is not None:
        left = max(0, in_service + spare - floor.of(len(rows)))
        yield Bound(
            name=f"batch_floor {of}", left=left, reason=BATCH_FLOOR, node_types=frozenset(types)
        )


def _left(asked: CountedFrom) -> Iterator[Bound]:
    batch = asked.facts.batch
    if batch is not None and not asked.is_move:
        yield from floor_bounds(asked.config, asked.registry, batch, asked.resumable)


RULE = Rule(reasons=(BATCH_FLOOR,), bounds=_left)
