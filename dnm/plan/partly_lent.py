"""Idle nodes that were lent for a Workload before the rest of its nodes, which cannot be lent now.

The rule: they are kept for one more idle time, since the rest may be available soon. Then they are
returned, and count as one unused node for the circuit breaker: no pod could have used them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec.structs import replace

from dnm.model.lent import LentNode, Phase
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from dnm.plan.facts import node_verdict
from dnm.sizing.releases import Releases

_DETAIL = "too few nodes can be lent for its Workload; it is kept for one more idle time"
Restart = Callable[
    [Releases, Mapping[str, LentNode], datetime], tuple[Releases, dict[str, LentNode]]
]


def await_workloads(
    chosen: Releases, nodes: Mapping[str, LentNode], now: datetime, restart: Restart
) -> tuple[Releases, dict[str, LentNode]]:
    """Returns the releases without nodes that are kept for one more idle time, and changed registry
    entries. `is_needed` marks nodes kept before or now. `restart` decides about the others."""
    waiting = {
        name: nodes[name]
        for name in chosen.verdicts
        if nodes[name].queue in chosen.incomplete
        if not nodes[name].was_used and name not in chosen.quota_in_use
    }
    rest = {name: item for name, item in chosen.verdicts.items() if name not in waiting}
    settled, clocks = restart(
        replace(chosen, verdicts=rest, go=(), incomplete=frozenset()), nodes, now
    )
    verdicts = {**chosen.verdicts, **settled.verdicts}
    for name, entry in waiting.items():
        may_go = verdicts[name].reason in (Reason.IDLE_LONG_ENOUGH, Reason.BUDGET)
        if may_go and not entry.is_needed:
            clocks[name] = replace(entry, is_needed=True, idle_since=now)
            verdicts[name] = node_verdict(name, Verdict.KEEP, Reason.IDLE, _DETAIL)
        elif entry.is_needed and not may_go:
            clocks[name] = replace(entry, is_needed=False)
    go = tuple(name for name in chosen.go if verdicts[name].verdict is Verdict.REVERT)
    for queue in chosen.incomplete:
        own = [name for name in go if name in waiting and nodes[name].queue == queue]
        if own and not _list_unused(nodes, queue) - {*own}:
            clocks[own[-1]] = replace(nodes[own[-1]], is_needed=False)
    return replace(chosen, go=go, verdicts=verdicts), clocks


def _list_unused(nodes: Mapping[str, LentNode], queue: str) -> set[str]:
    """Returns the serving nodes of a queue that no pod has used."""
    return {
        name
        for name, entry in nodes.items()
        if entry.queue == queue and entry.phase is Phase.SERVING and not entry.was_used
    }
