"""dnm as a policy of the measurements, configured for a workload and otherwise by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dnm.model.config import Config, NamespacePolicy
from dnm.model.node_type import NodeType
from dnm.simulate import policy
from dnm.simulate.values import Workload


class DnmPolicy(policy.DnmPolicy):
    """dnm at its default settings, except for `changes`."""

    def __init__(self, workload: Workload, **changes: Any) -> None:
        super().__init__(workload, make_config(workload, **changes))


class MinutePolicy(DnmPolicy):
    """dnm started only by cron: a run of the next minute detects a joined node, not one at once."""

    runs_after: float | None = None


class AwakePolicy(DnmPolicy):
    """dnm that plans in every run, even when the simulator knows that nothing changes."""

    may_rest = False


def make_config(workload: Workload, **changes: Any) -> Config:
    """Returns a site's configuration for this workload, with `changes` and otherwise defaults."""
    values: dict[str, Any] = {
        "path": Path("/nonexistent/dnm.ini"),
        "namespaces": {
            name: NamespacePolicy(name=name, queue=queue, node_types=(node_type,))
            for name, (queue, node_type) in workload.namespaces.items()
        },
        "node_types": {
            name: NodeType(
                name=name,
                size={key: amount for key, amount in kind.size if key != "pods"},
                taints=(policy.TAINT,),
            )
            for name, kind in workload.classes.items()
        },
        "max_converted_nodes": workload.cap,
    }
    return Config(**{**values, **changes})
