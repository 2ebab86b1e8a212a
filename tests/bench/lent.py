"""A state file with many lent nodes, for measuring `dnm status`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from dnm.model.lent import LentNode, Phase
from dnm.model.registry import Registry
from dnm.run.registry import write_registry
from tests.bench.cluster import NAMESPACES


def write_lent_nodes(path: Path, count: int) -> None:
    """All of them serve, spread over the namespaces."""
    since = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
    nodes = {}
    for number in range(count):
        namespace = NAMESPACES[number % len(NAMESPACES)]
        nodes[f"a{number:04d}"] = LentNode(
            node_type="a",
            namespace=namespace,
            queue=f"root.site.{namespace}",
            owner="prod",
            phase=Phase.SERVING,
            since=since,
            counted={"vcore": 128_000, "memory": 256 * 10**9},
        )
    write_registry(path, Registry(nodes=nodes))
