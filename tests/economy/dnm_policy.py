"""dnm as a site would have it for a workload; all else as it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dnm.model.config import Config, NamespacePolicy
from dnm.model.node_type import NodeType
from dnm.simulate import policy
from dnm.simulate.values import Workload


class DnmPolicy(policy.DnmPolicy):
    """One installation of dnm at its defaults, but for these changes."""

    def __init__(self, workload: Workload, **changes: Any) -> None:
        super().__init__(workload, make_config(workload, **changes))


class MinutePolicy(DnmPolicy):
    """The same, by cron: what has joined is seen by the next minute's run."""

    woken_after = None


class AwakePolicy(DnmPolicy):
    """The same, with every run made."""

    may_rest = False


def make_config(workload: Workload, **changes: Any) -> Config:
    """The configuration a site would have for this workload; all else as it comes."""
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
