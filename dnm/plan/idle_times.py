"""How long an idle node is kept, and how long lending and returning take. Pure.

An idle node goes after `reversion_idle_seconds`. If its queue asks for a node again soon after, the
return was a mistake: from then on two idle nodes of the queue are kept for longer than that pause
lasted, each until a node has been kept for so long in vain. A key that is set is followed exactly.

docs/economy.md proves how much more than with hindsight this can cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, fsum

import msgspec

from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.observed import LendTimes, LentAgain
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict

IDLE_TIME = timedelta(minutes=3)  # where no key sets it
USUAL = 600.0  # seconds that going, and coming, takes a node of a type of which none has been seen
SOON = 1.5  # times what a return and a conversion take: a pause that is longer teaches nothing
LONGER = 1.25  # times the pause that has been seen
KEPT_FOR_EACH = 2  # idle nodes, for each return that was a mistake
MOST_KEPT = 100  # of one queue
_NONE = LentAgain()


def idle_times(config: Config, registry: Registry) -> dict[str, timedelta]:
    """Returns how long each lent node is kept once it is idle, by name. Those of a queue that have
    been idle for longest are kept for longest."""
    kept = {queue: sorted(memory.kept) for queue, memory in registry.lent_again.items()}
    times: dict[str, timedelta] = {}
    for name, entry in sorted(registry.nodes.items(), key=_idle_first):
        policy = config.namespaces.get(entry.namespace)
        times[name] = IDLE_TIME
        if policy is not None and policy.reversion_idle is not None:
            times[name] = policy.reversion_idle
        elif entry.idle_since is not None and kept.get(entry.queue):
            times[name] = max(IDLE_TIME, timedelta(seconds=kept[entry.queue].pop()))
    return times


def _idle_first(item: tuple[str, LentNode]) -> tuple[bool, str, str]:
    name, entry = item
    return entry.idle_since is None, str(entry.idle_since), name


def longest_pause(registry: Registry, node_type: str) -> timedelta:
    """Returns how long after a node fell idle its queue may ask for one of the type again so that
    its return was a mistake."""
    times = registry.lend_times.get(node_type, LendTimes())
    return timedelta(seconds=round(SOON * (_mean(times.lends) + _mean(times.returns))))


def _mean(seconds: Sequence[int]) -> float:
    return fsum(seconds) / len(seconds) if seconds else USUAL


def note_returns(config: Config, before: Registry, after: Registry, now: datetime) -> Registry:
    """Returns `after` with what is learned from nodes that were let go since `before`, and from
    nodes that were asked for again."""
    noted = dict(after.lent_again)
    for name, entry in after.nodes_of(config.instance_id, Phase.SERVING, Phase.RELEASING).items():
        was = before.nodes.get(name)
        if was is None or was.phase is entry.phase or entry.leaves is not None:
            continue
        known = noted.get(entry.queue, _NONE)
        if entry.phase is Phase.RELEASING and was.idle_since is not None:
            noted[entry.queue] = _let_go(known, was.idle_since, now)
        elif entry.phase is Phase.SERVING and was.phase is Phase.RELEASING:
            noted[entry.queue] = msgspec.structs.replace(known, gone=known.gone[:-1])
    asked = {request.id for request in before.requests}
    for request in after.requests:
        known = noted.get(request.queue, _NONE)
        if request.id not in asked and not request.order and known.gone:
            soon = now - longest_pause(after, request.node_type)
            noted[request.queue] = _asked_again(known, request.count, soon, now)
    noted = {
        queue: memory
        for queue, memory in noted.items()
        if queue in config.queues and memory != _NONE
    }
    return msgspec.structs.replace(after, lent_again=noted)


def _let_go(known: LentAgain, idle_since: datetime, now: datetime) -> LentAgain:
    """A node went that had been idle since then; if it was kept for longer, it was in vain."""
    vain = max(
        (number for number in known.kept if timedelta(seconds=number) <= now - idle_since),
        default=0,
    )
    kept = list(known.kept)
    if vain > IDLE_TIME.total_seconds():
        kept.remove(vain)
    return LentAgain(kept=tuple(kept), gone=(*known.gone, idle_since)[-MOST_KEPT:])


def _asked_again(known: LentAgain, count: int, soon: datetime, now: datetime) -> LentAgain:
    """A queue asks for nodes: as many of those that went would have been of use, the last first."""
    recent = [since for since in known.gone if since >= soon]
    mistakes = recent[max(len(recent) - count, 0) :]
    longer = [int(LONGER * (now - since).total_seconds()) for since in mistakes]
    return LentAgain(
        kept=(*known.kept, *(longer * KEPT_FOR_EACH))[-MOST_KEPT:],
        gone=tuple(recent[: len(recent) - len(mistakes)]),
    )


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
