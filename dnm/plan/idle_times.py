"""What is learned of a site: for how long nodes of a queue are without work before they are wanted
again, how long lending and returning take, and how long an idle node is therefore kept. Pure.

The rule is that of who rents skis and does not know for how many days. An idle node costs batch its
time; one that goes and comes back costs two boots, and pods wait for the second:

    beta = mean(last lends) + mean(last returns)
    B    = beta + pod_minute_worth x pods per lend x mean(last lends)
    T    = B until five gaps are known; then what would have cost least over the last forty (the gap
           where it is no longer than T, else T + B), between B / 2 and 2 B; B / 4 where none of
           them could have been waited for: the first that can be has the others to pay for it

So it never costs more than three times what one pays who knows every gap beforehand, twice while
nothing is learned, and over gaps that are like those before hardly more than the best fixed time.

A gap begins when a node falls idle. It ends when a pod lands on the node, or, after the node has
gone, when its queue asks for another; one that lasts for longer than the most that could be waited
is known to be long, and no more is kept of it. Gaps shorter than the least idle time cost the same
whatever is chosen, so they are not kept at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, fsum

import msgspec

from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import Phase
from dnm.model.observed import IdleGaps, LendTimes
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict

KEPT_GAPS = 40
FEWEST_GAPS = 5
USUAL = 600.0  # seconds that going, and coming, takes a node of a type of which none has been seen


def best_wait(gaps: Sequence[float], back: float, slack: float = 0.0) -> float:
    """Returns how long to keep an idle node that it costs `back` to give back and fetch again. A
    node that waits for a gap to end must wait `slack` longer, for the run that sees it ended."""
    if len(gaps) < FEWEST_GAPS:
        return back
    most = 2 * back
    least = back / (4 if min(gaps) >= most else 2)
    choices = {least, most, *(gap + slack for gap in gaps if least < gap + slack < most)}
    return min(sorted(choices), key=lambda wait: cost_of(gaps, wait, back))


def cost_of(gaps: Iterable[float], wait: float, back: float) -> float:
    """Returns what a node has cost over these gaps that goes after `wait`."""
    return sum(gap if gap <= wait else wait + back for gap in gaps)


def cost_of_return(config: Config, registry: Registry, policy: NamespacePolicy) -> float:
    """Returns B, in seconds of a node: what it costs to give one back and to fetch it again, with
    the pods that wait for it."""
    times = [registry.lend_times.get(name, LendTimes()) for name in policy.node_types]
    lend = _mean(second for one in times for second in one.lends)
    back = _mean(second for one in times for second in one.returns)
    gaps = registry.idle_gaps.get(policy.queue, IdleGaps())
    pods = fsum(gaps.pods) / len(gaps.pods) if gaps.pods else 1.0
    return lend + back + config.worth_of(policy) * pods * lend


def _mean(seconds: Iterable[int]) -> float:
    known = tuple(seconds)
    return fsum(known) / len(known) if known else USUAL


def idle_times(config: Config, registry: Registry) -> dict[str, timedelta]:
    """Returns how long idle nodes are kept, by namespace: for `reversion_idle_seconds` if it is
    set, otherwise for as long as that costs less than lending them again."""
    return {
        name: policy.reversion_idle
        if policy.reversion_idle is not None
        else _paying_time(config, registry, policy)
        for name, policy in config.namespaces.items()
    }


def _paying_time(config: Config, registry: Registry, policy: NamespacePolicy) -> timedelta:
    gaps = registry.idle_gaps.get(policy.queue, IdleGaps())
    back = cost_of_return(config, registry, policy)
    wait = best_wait(gaps.recent, back, config.check_interval.total_seconds())
    return timedelta(seconds=round(wait))


def next_closed(config: Config, registry: Registry) -> list[datetime]:
    """Returns when gaps that are open now will have lasted for longer than any wait."""
    return [
        since + _longest(config, registry, queue)
        for queue, gaps in registry.idle_gaps.items()
        for since in gaps.open
    ]


def _bounds(config: Config, registry: Registry, queue: str) -> list[float]:
    """B of each namespace that the queue is of."""
    policies = [one for one in config.namespaces.values() if one.queue == queue]
    return [cost_of_return(config, registry, one) for one in policies] or [2 * USUAL]


def _longest(config: Config, registry: Registry, queue: str) -> timedelta:
    return timedelta(seconds=2 * max(_bounds(config, registry, queue)))


def note_gaps(
    config: Config,
    before: Registry,
    after: Registry,
    verdicts: Mapping[str, NodeVerdict],
    now: datetime,
    pods_per_node: Mapping[str, float] = {},
) -> Registry:
    """Returns `after` with the gaps that have begun or ended since `before`. `pods_per_node`: by
    queue how many pods wait now for each node that it wants."""
    noted = dict(after.idle_gaps)
    for queue in config.queues:
        known = noted.get(queue, IdleGaps())
        gaps = _asked_again(config, known, before, after, queue, now)
        if gaps is not known and (waiting := pods_per_node.get(queue)):
            pods = (*gaps.pods, max(1, round(waiting)))
            gaps = msgspec.structs.replace(gaps, pods=pods[-KEPT_GAPS:])
        for name, entry in before.nodes.items():
            if entry.queue == queue and entry.owner == config.instance_id:
                gaps = _after_node(gaps, before, after, name, verdicts.get(name), now)
        noted[queue] = _closed_late(gaps, now - _longest(config, after, queue))
    kept = {queue: one for queue, one in noted.items() if queue in config.queues and one != _NONE}
    return msgspec.structs.replace(after, idle_gaps=_without_short(config, after, kept))


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
    ended = [now - was.idle_since]
    if was.phase in _GOES and is_now.phase is Phase.SERVING and is_now.queue == was.queue:
        left = list(gaps.open)
        if was.idle_since in left:
            left.remove(was.idle_since)
        # Where nobody wanted it, it stands idle as before.
        return _ended(gaps, left, ended if is_now.idle_since is None else ())
    if was.phase is Phase.SERVING and verdict is not None and verdict.reason is Reason.IN_USE:
        return _ended(gaps, gaps.open, ended)
    return gaps


def _asked_again(
    config: Config, gaps: IdleGaps, before: Registry, after: Registry, queue: str, now: datetime
) -> IdleGaps:
    """As many of those that went are wanted again as nodes are asked for, the last first."""
    known = {request.id for request in before.requests}
    count = sum(one.count for one in after.requests if one.id not in known and one.queue == queue)
    served = {name for name, one in config.namespaces.items() if one.queue == queue}
    count += sum(
        one.phase is Phase.MOVING and one.heads_for in served and one.queue != queue
        for name, one in after.nodes.items()
        if name in before.nodes and before.nodes[name].phase is not Phase.MOVING
    )
    if not count:
        return gaps
    since = sorted(gaps.open)
    return _ended(gaps, since[:-count], [now - one for one in since[-count:]])


def _closed_late(gaps: IdleGaps, bound: datetime) -> IdleGaps:
    """Gaps that have lasted for longer than any wait are long, whenever they may end."""
    left = [since for since in gaps.open if since >= bound]
    return _ended(gaps, left, [timedelta(days=1)] * (len(gaps.open) - len(left)))


def _ended(gaps: IdleGaps, left: Iterable[datetime], lengths: Iterable[timedelta]) -> IdleGaps:
    """With these lengths more, and only those that are left open."""
    recent = (*gaps.recent, *(int(one.total_seconds()) for one in lengths))
    return msgspec.structs.replace(gaps, open=tuple(left), recent=recent)


def _without_short(
    config: Config, registry: Registry, noted: Mapping[str, IdleGaps]
) -> dict[str, IdleGaps]:
    """Without new gaps shorter than the queue's least idle time, and no more than are kept."""
    kept = {}
    for queue, gaps in noted.items():
        known = registry.idle_gaps.get(queue, IdleGaps()).recent
        least = min(_bounds(config, registry, queue)) / 4
        new = (one for one in gaps.recent[len(known) :] if one >= least)
        recent = (*known, *new)[-KEPT_GAPS:]
        if recent or gaps.open or gaps.pods:
            kept[queue] = msgspec.structs.replace(gaps, recent=recent)
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
    """The 95th percentile; half an hour before there are ten. No longer than it may take."""
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
