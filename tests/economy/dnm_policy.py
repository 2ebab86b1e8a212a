"""dnm as a site would configure it for a workload, with defaults otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dnm.model.config import Config, NamespacePolicy
from dnm.model.node_type import NodeType
from dnm.simulate import policy
from dnm.simulate.values import Workload


class DnmPolicy(policy.DnmPolicy):
    """One installation of dnm at its defaults, with these changes."""

    def __init__(self, workload: Workload, **changes: Any) -> None:
        super().__init__(workload, make_config(workload, **changes))


class MinutePolicy(DnmPolicy):
    """The same, started by cron: the next minute's run detects a joined node."""

    runs_after: float | None = None


class AwakePolicy(DnmPolicy):
    """The same, without skipped runs."""

    may_rest = False


def make_config(workload: Workload, **changes: Any) -> Config:
    """Returns a site's configuration for this workload, with defaults otherwise."""
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
