"""What is learned of a site: for how long nodes of a queue are without work before they are wanted
again, and how long lending and returning take. Pure.

The rule: an idle node costs batch its time, one that goes and comes back costs two boots. Over the
last gaps of its queue that idle time is chosen that would have cost the least; it only ever extends
`reversion_idle_seconds`, never beyond `reversion_idle_at_most_seconds`, and needs a few gaps.

A gap begins when a node falls idle. It ends when a pod lands on the node, or, after the node has
gone, when its queue asks for another; one that lasts for longer than the most that could be waited
is known to be long, and no more is kept of it. Gaps shorter than the least idle time cost the same
whatever is chosen, so they are not kept at all.

How long lending takes is from asking for a node to its serving: the 95th percentile of the last
lends of a type; before there are ten of them, the configured `lead_minutes`. The same for returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil

import msgspec

from dnm.model.config import Config
from dnm.model.registry import IdleGaps, LendTimes, Phase, Registry
from dnm.model.verdict import NodeVerdict, Reason

KEPT_GAPS = 40
FEWEST_GAPS = 5
THERE_AND_BACK = timedelta(minutes=20)  # of no use to anybody: two boots and what they wait for


def learned_idle(gaps: IdleGaps, least: timedelta, config: Config) -> timedelta:
    """Returns the idle time that would have been the cheapest over these gaps."""
    most = max(least, config.reversion_idle_at_most)
    if len(gaps.recent) < FEWEST_GAPS:
        return least
    lengths = [timedelta(seconds=seconds) for seconds in gaps.recent]
    # A node that waits for a gap to end must wait for the run that sees it ended.
    choices = {least, *(min(length + config.check_interval, most) for length in lengths)}
    return min(sorted(choices), key=lambda wait: _cost(lengths, wait)) if most > least else least


def _cost(lengths: list[timedelta], wait: timedelta) -> timedelta:
    """What nodes would have cost that go after `wait`: idleness, and boots where they went."""
    costs = (length if length <= wait else wait + THERE_AND_BACK for length in lengths)
    return sum(costs, timedelta())


def learned_times(config: Config, registry: Registry) -> dict[str, timedelta]:
    """Returns by namespace the idle times that are longer than the configured ones."""
    times = {
        name: learned_idle(registry.idle_gaps[policy.queue], policy.reversion_idle, config)
        for name, policy in config.namespaces.items()
        if policy.queue in registry.idle_gaps
    }
    return {
        name: time for name, time in times.items() if time > config.namespaces[name].reversion_idle
    }


def note_gaps(
    config: Config,
    before: Registry,
    after: Registry,
    verdicts: Mapping[str, NodeVerdict],
    now: datetime,
) -> Registry:
    """Returns `after` with the gaps that have begun or ended since `before`."""
    noted = dict(after.idle_gaps)
    for queue in config.queues:
        gaps = _asked_again(config, noted.get(queue, IdleGaps()), before, after, queue, now)
        for name, entry in before.nodes.items():
            if entry.queue == queue and entry.owner == config.instance_id:
                gaps = _after_node(gaps, before, after, name, verdicts.get(name), now)
        noted[queue] = _closed_late(gaps, now - config.reversion_idle_at_most)
    kept = {queue: one for queue, one in noted.items() if queue in config.queues and one != _NONE}
    return msgspec.structs.replace(after, idle_gaps=_without_short(config, kept))


_NONE = IdleGaps()
_GOES = (Phase.RELEASING, Phase.MOVING)  # to Slurm, or to another queue


def _after_node(
    gaps: IdleGaps,
    before: Registry,
    after: Registry,
    name: str,
    verdict: NodeVerdict | None,
    now: datetime,
) -> IdleGaps:
    """A pod landed on an idle node, it was fenced, or its fence was lifted."""
    was, is_now = before.nodes[name], after.nodes.get(name)
    if was.idle_since is None or is_now is None:
        return gaps
    if was.phase is Phase.SERVING and is_now.phase in _GOES:
        return msgspec.structs.replace(gaps, open=(*gaps.open, was.idle_since)[-KEPT_GAPS:])
    if was.phase in _GOES and is_now.phase is Phase.SERVING and is_now.queue == was.queue:
        left = list(gaps.open)
        if was.idle_since in left:
            left.remove(was.idle_since)
        if is_now.idle_since is not None:  # nobody wanted it: it stands idle as before
            return msgspec.structs.replace(gaps, open=tuple(left))
        return _with(msgspec.structs.replace(gaps, open=tuple(left)), now - was.idle_since)
    if was.phase is Phase.SERVING and verdict is not None and verdict.reason is Reason.IN_USE:
        return _with(gaps, now - was.idle_since)
    return gaps


def _asked_again(
    config: Config,
    gaps: IdleGaps,
    before: Registry,
    after: Registry,
    queue: str,
    now: datetime,
) -> IdleGaps:
    """As many of those that went are wanted again as nodes are asked for, the last first."""
    known = {request.id for request in before.requests}
    new = [one for one in after.requests if one.id not in known and one.queue == queue]
    count = sum(request.count for request in new)
    served = {name for name, one in config.namespaces.items() if one.queue == queue}
    count += sum(
        one.phase is Phase.MOVING and one.heads_for in served and one.queue != queue
        for name, one in after.nodes.items()
        if name in before.nodes and before.nodes[name].phase is not Phase.MOVING
    )
    ended = sorted(gaps.open)[-count:] if count else []
    left = sorted(gaps.open)[: len(gaps.open) - len(ended)]
    gaps = msgspec.structs.replace(gaps, open=tuple(left))
    for since in ended:
        gaps = _with(gaps, now - since)
    return gaps


def _closed_late(gaps: IdleGaps, bound: datetime) -> IdleGaps:
    """Gaps that have lasted for longer than any wait are long, whenever they may end."""
    late = [since for since in gaps.open if since < bound]
    gaps = msgspec.structs.replace(gaps, open=tuple(one for one in gaps.open if one >= bound))
    for _ in late:
        gaps = _with(gaps, timedelta(days=1))
    return gaps


def _with(gaps: IdleGaps, length: timedelta) -> IdleGaps:
    recent = (*gaps.recent, int(length.total_seconds()))
    return msgspec.structs.replace(gaps, recent=recent)


def _without_short(config: Config, noted: Mapping[str, IdleGaps]) -> dict[str, IdleGaps]:
    """Without gaps shorter than the queue's least idle time, and no more than are kept."""
    kept = {}
    for queue, gaps in noted.items():
        least = min(one.reversion_idle for one in config.namespaces.values() if one.queue == queue)
        recent = tuple(one for one in gaps.recent if timedelta(seconds=one) >= least)
        if recent or gaps.open:
            kept[queue] = msgspec.structs.replace(gaps, recent=recent[-KEPT_GAPS:])
    return kept


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
