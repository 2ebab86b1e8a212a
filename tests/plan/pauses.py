"""The cost of keeping a node for a sequence of idle times, by the rule that learns idle times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from dnm.model.lent import Phase
from dnm.model.registry import Registry
from dnm.plan.idle_times import USUAL, idle_times, note_returns
from tests.builders import NOW, QUEUE, a_config, a_lent_node

BACK = 2 * USUAL  # seconds of a return and a lend of a type without history
CONFIG = a_config()


def paid(pauses: Sequence[int]) -> tuple[float, timedelta]:
    """Plays idle times of a node, in seconds. Returns what the rule costs for them in node-seconds,
    and how long it keeps the next idle node."""
    registry, now, total = Registry(), NOW, 0.0
    for pause in pauses:
        serving = {"a001": a_lent_node(Phase.SERVING, idle_since=now)}
        before = msgspec.structs.replace(registry, nodes=serving)
        wait = idle_times(CONFIG, before, now)["a001"]
        since, now = now, now + timedelta(seconds=pause)
        if pause <= wait.total_seconds():
            total += pause
            busy = msgspec.structs.replace(before, nodes={"a001": a_lent_node()})
            registry = note_returns(CONFIG, before, busy, {}, now)
            continue
        total += wait.total_seconds() + BACK
        fenced = {"a001": a_lent_node(Phase.RELEASING, idle_since=since)}
        returned = msgspec.structs.replace(before, nodes=fenced)
        after = note_returns(CONFIG, before, returned, {}, since + wait)
        after = msgspec.structs.replace(after, nodes={})
        registry = note_returns(CONFIG, after, after, {QUEUE: 1}, now)
    idle = {"a001": a_lent_node(Phase.SERVING, idle_since=now)}
    return total, idle_times(CONFIG, msgspec.structs.replace(registry, nodes=idle), now)["a001"]
