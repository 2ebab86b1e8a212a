"""A workload that an administrator has written as JSON of schema dnm.workload/1. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dnm.model.config import Config
from dnm.model.quantity import QuantityError, parse_kubernetes
from dnm.model.share import most_of
from dnm.model.value import Value
from dnm.simulate.accounting import SimulationError
from dnm.simulate.batch import SimJob
from dnm.simulate.replay import MOST_PODS, namespaces_of
from dnm.simulate.values import CONVERSION, MONDAY, Ask, NodeClass, Workload

SCHEMA = "dnm.workload/1"
Moment = Annotated[float, Meta(ge=0, le=3.2e8)]  # seconds since it begins
Length = Annotated[float, Meta(gt=0, le=3.2e8)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Amounts = Mapping[str, Annotated[str, Meta(pattern="^[^-]")] | Annotated[int, Meta(ge=0)]]


class PodsOfFile(Value):
    """Equal pods that are created at one moment; with `gang` they begin together."""

    at: Moment
    lasts: Length
    queue: str
    request: Amounts
    count: Count = 1
    gang: bool = False


class JobsOfFile(Value):
    """Equal jobs of whole nodes. `limit`: their time limit (None: as long as they take)."""

    at: Moment
    lasts: Length
    nodes: Count
    node_type: str
    limit: Length | None = None
    count: Count = 1


class WorkloadFile(Value):
    """A workload file. `queues`: path -> limit without lent nodes. `permanent`: what each permanent
    node has free. `nodes`: type -> how many Slurm has. `fails`: share of failing conversions."""

    schema: str
    seconds: Length
    queues: dict[str, Amounts]
    permanent: list[Amounts]
    nodes: dict[str, Count]
    pods: list[PodsOfFile]
    jobs: list[JobsOfFile] = []
    begins: datetime = MONDAY
    conversion_seconds: tuple[Length, Length] = CONVERSION
    fails: Annotated[float, Meta(ge=0, le=1)] = 0.0


def parse_workload(content: bytes, config: Config, seed: int) -> Workload:
    """Returns the workload in the file. Raises SimulationError, which names the malformed part."""
    try:
        file = msgspec.json.decode(content, type=WorkloadFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SimulationError(f"it is not a workload: {error}; docs/simulate.md has one") from error
    _check(file, config)
    return _workload(file, config, seed)


def _check(file: WorkloadFile, config: Config) -> None:
    if file.schema != SCHEMA:
        raise SimulationError(f"schema = {file.schema!r}: this dnm plays {SCHEMA}")
    if file.begins.tzinfo is None or not 1970 <= file.begins.year < 2500:
        raise SimulationError(f"begins = {file.begins}: write e.g. 2026-03-02T00:00:00Z")
    count = sum(pod.count for pod in file.pods) + sum(job.count for job in file.jobs)
    if count > MOST_PODS:
        raise SimulationError(f"it has more than {MOST_PODS:,} pods and jobs")
    for queue in sorted({pod.queue for pod in file.pods}):
        if queue not in file.queues or queue not in config.queues:
            raise SimulationError(
                f"pods request the queue {queue}, which must be in queues and be monitored; "
                f"monitored are {', '.join(config.queues)}"
            )
    for kind in sorted({*file.nodes, *(job.node_type for job in file.jobs)}):
        if kind not in config.node_types or kind not in file.nodes:
            raise SimulationError(
                f"node type {kind!r} must be in nodes and in the configuration, which has "
                f"{', '.join(config.node_types)}"
            )


def _workload(file: WorkloadFile, config: Config, seed: int) -> Workload:
    asks = []
    for number, pods_of_file in enumerate(file.pods, start=1):
        request = tuple(_amounts(pods_of_file.request).items())
        gang = number if pods_of_file.gang else 0
        asks += [
            Ask(
                at=pods_of_file.at,
                lasts=pods_of_file.lasts,
                request=request,
                queue=pods_of_file.queue,
                gang=gang,
            )
        ] * (pods_of_file.count)
    jobs: list[SimJob] = []
    for job in file.jobs:
        limit = max(job.limit or job.lasts, job.lasts)
        fields: dict[str, Any] = {"at": job.at, "nodes": job.nodes, "lasts": job.lasts}
        jobs += [SimJob(**fields, limit=limit, node_type=job.node_type)] * job.count
    return Workload(
        name="the file",
        asks=tuple(sorted(asks, key=lambda request: request.at)),
        limits={queue: _amounts(limit) for queue, limit in file.queues.items()},
        namespaces=namespaces_of(config, file.queues),
        free=tuple({"cpu": 0, "pods": 110, **_amounts(free)} for free in file.permanent),
        classes={
            name: NodeClass(
                size=tuple({"pods": 110, **config.node_types[name].size}.items()),
                count=count,
                prefix=config.node_types[name].name_prefix,
            )
            for name, count in file.nodes.items()
        },
        seed=seed,
        lasts=file.seconds,
        nothing_ends_after=float("inf"),
        jobs=tuple(sorted(jobs, key=lambda job: job.at)),
        cap=most_of(config.max_converted_nodes, sum(file.nodes.values())),
        fails=file.fails,
        conversion=file.conversion_seconds,
        begins=file.begins.astimezone(UTC),
    )


def _amounts(amounts: Amounts) -> dict[str, int]:
    """Parses resource amounts as a pod requests them: cores (4, 500m), bytes, pieces."""
    return {name: _amount(name, str(amount)) for name, amount in amounts.items()}


def _amount(name: str, text: str) -> int:
    try:
        return parse_kubernetes(name, text)
    except QuantityError as error:
        raise SimulationError(f"{name} = {text!r}: {error}; write 4, 500m or 16G") from error
