"""How long lending takes here, learned: from asking for a node to its serving. Pure.

The rule: the 95th percentile of the last lends of a type; before there are ten of them, the
configured `lead_minutes`. The same for returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil

import msgspec

from dnm.model.config import Config
from dnm.model.plan import NodeVerdict, Reason
from dnm.model.registry import LendTimes, Phase, Registry

KEPT_TIMES = 40
FEWEST_TIMES = 10
_SHARE = 0.95


def lend_time(config: Config, registry: Registry, node_type: str) -> timedelta:
    """Returns how long a node of the type takes from being asked for to serving."""
    return _learned(config, registry.lend_times.get(node_type, LendTimes()).lends)


def return_time(config: Config, registry: Registry, node_type: str) -> timedelta:
    """Returns how long a node of the type takes to be back in Slurm."""
    return _learned(config, registry.lend_times.get(node_type, LendTimes()).returns)


def _learned(config: Config, seconds: Sequence[int]) -> timedelta:
    """The nearest rank; no longer than a conversion may take."""
    if len(seconds) < FEWEST_TIMES:
        return config.lead
    found = timedelta(seconds=sorted(seconds)[ceil(_SHARE * len(seconds)) - 1])
    return min(found, longest_lend_time(config))


def longest_lend_time(config: Config) -> timedelta:
    """Returns the most that is ever learned or taken for it."""
    return max(config.lead, config.convert_timeout + config.join_timeout)


def note_lends(
    config: Config,
    before: Registry,
    after: Registry,
    verdicts: Mapping[str, NodeVerdict],
    now: datetime,
) -> Registry:
    """Returns `after` with the times of the nodes that serve, or are back, since `before`."""
    noted = dict(after.lend_times)
    for name, entry in after.nodes.items():
        was = before.nodes.get(name)
        is_new = was is None or was.phase is Phase.JOINING
        if is_new and entry.phase is Phase.SERVING and entry.asked_at is not None:
            times = noted.get(entry.node_type, LendTimes())
            lends = _added(times.lends, now - entry.asked_at)
            noted[entry.node_type] = msgspec.structs.replace(times, lends=lends)
    for name, entry in before.nodes.items():
        verdict = verdicts.get(name)
        if verdict is not None and verdict.reason is Reason.RETURNED and name not in after.nodes:
            times = noted.get(entry.node_type, LendTimes())
            returns = _added(times.returns, now - entry.since)
            noted[entry.node_type] = msgspec.structs.replace(times, returns=returns)
    kept = {name: times for name, times in noted.items() if name in config.node_types}
    return msgspec.structs.replace(after, lend_times=kept)


def _added(seconds: tuple[int, ...], span: timedelta) -> tuple[int, ...]:
    return (*seconds, max(int(span.total_seconds()), 0))[-KEPT_TIMES:]
