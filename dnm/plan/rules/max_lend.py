"""`max_lend_hours`: the longest time for which a node may be lent. Pure.

The rule: after that time the node is fenced, its pods end, and it is returned; its queue may be
lent another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from dnm.model.lent import Phase
from dnm.model.registry import Registry
from dnm.plan.hooks import Leave, Rule
from dnm.plan.inputs import Inputs


def _overdue(inputs: Inputs, registry: Registry) -> Iterator[str]:
    for name in registry.nodes_of(inputs.config.instance_id, Phase.SERVING):
        if _is_overdue(inputs, registry, name):
            yield name


def _is_overdue(inputs: Inputs, registry: Registry, name: str) -> bool:
    most: timedelta = inputs.config.options["max_lend_hours"]
    return inputs.now >= registry.nodes[name].lent_from + most


RULE = Rule(
    leave=Leave(
        word="overdue",
        reason="it has been lent for max_lend_hours",
        find_nodes=_overdue,
        is_over=lambda inputs, registry, name: not _is_overdue(inputs, registry, name),
        needs_lent_since=True,
    )
)
