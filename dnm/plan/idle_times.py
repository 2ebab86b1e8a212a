"""The idle time after which lent nodes are returned, and how long lending and returning take.

The idle time is a multiple of the time that a return and a new conversion take at this site: SHORT,
or LONG if LONG would have cost less over the queue's last pauses; FIRST before the first pause. A
configured idle time is used as it is. docs/adr/0010-one-idle-rule.md has a proof. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from math import ceil, fsum

import msgspec

from dnm.model.config import Config
from dnm.model.lent import Phase
from dnm.model.observed import LendTimes, LentAgain
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import NodeVerdict

USUAL = 600.0  # seconds of a return, and of a conversion, if none of the type is recorded
LEAST = 180.0  # seconds: the least idle time
SHORT, FIRST, LONG = 0.6, 1.5, 2.25  # multiples of the time of a return and a conversion
SOON = 3  # likewise: a node that is needed again later was not missed
REGRET = 2  # the weight of a return if the node was needed again, since pods waited
MOST = 20  # recorded pauses of one queue, the latest
_NONE = LentAgain()


def idle_times(config: Config, registry: Registry, now: datetime) -> dict[str, timedelta]:
    """Returns, by name, for how long each lent node must be idle before it may be returned."""
    learned = {}
    for queue in {entry.queue for entry in registry.nodes.values()}:
        recorded = registry.lent_again.get(queue, _NONE)
        back = return_seconds(config, registry, queue)
        late = [s for since in recorded.gone if (s := now - since) >= _soon(back)]
        pauses = [*recorded.pauses, *(span.total_seconds() for span in late)][-MOST:]
        learned[queue] = timedelta(seconds=round(best_time(pauses, back)))
    times = {}
    for name, entry in registry.nodes.items():
        policy = config.namespaces.get(entry.namespace)
        fixed = policy.reversion_idle if policy is not None else None
        times[name] = learned[entry.queue] if fixed is None else fixed
    return times


def next_judged(config: Config, registry: Registry) -> list[datetime]:
    """Returns when dnm stops observing whether each returned node is needed again soon."""
    return [
        since + _soon(return_seconds(config, registry, queue))
        for queue, entry in registry.lent_again.items()
        for since in entry.gone
    ]


def best_time(pauses: Sequence[float], back: float) -> float:
    """Returns the best idle time for `pauses`, if a return plus a new lend takes `back` seconds."""
    short, first, long = (max(share * back, LEAST) for share in (SHORT, FIRST, LONG))
    if not pauses:
        return first
    gained = sum(
        short + REGRET * back - pause if pause <= long else short - long
        for pause in pauses
        if pause > short
    )
    return long if gained > 0 else short


def return_seconds(config: Config, registry: Registry, queue: str) -> float:
    """Returns the mean seconds of a return plus a new lend, for the node types of a queue."""
    policies = (policy for policy in config.namespaces.values() if policy.queue == queue)
    types = {name for policy in policies for name in policy.node_types}
    times = [registry.lend_times.get(name, LendTimes()) for name in sorted(types)]
    lends, returns = [entry.lends for entry in times], [entry.returns for entry in times]
    return _mean([*chain(*lends)]) + _mean([*chain(*returns)])


def _mean(seconds: Sequence[int]) -> float:
    return fsum(seconds) / len(seconds) if seconds else USUAL


def note_returns(
    config: Config, before: Registry, after: Registry, needed: Mapping[str, int], now: datetime
) -> Registry:
    """Returns `after` with the idle pauses of nodes that ended since `before`. `needed`: queue ->
    how many nodes it lacks. A pause that gets too long is recorded with the queue's next change."""
    returned = {queue: list(entry.gone) for queue, entry in after.lent_again.items()}
    ended = {queue: list(entry.pauses) for queue, entry in after.lent_again.items()}
    for name, entry in after.nodes_of(config.instance_id, Phase.SERVING, Phase.RELEASING).items():
        was = before.nodes.get(name)
        if was is None or was.idle_since is None or entry.leaves is not None:
            continue
        of_queue = returned.setdefault(entry.queue, [])
        pauses = ended.setdefault(entry.queue, [])
        if entry.phase is Phase.RELEASING:
            of_queue += [was.idle_since] if was.phase is Phase.SERVING else []
        elif was.phase is Phase.SERVING:
            pauses += [_seconds(was.idle_since, now)] if entry.idle_since is None else []
        elif was.idle_since in of_queue:  # its fence is lifted
            of_queue.remove(was.idle_since)
            pauses.append(_seconds(was.idle_since, now))
    noted: dict[str, LentAgain] = {}
    for queue in sorted(returned.keys() & set(config.queues)):
        back = return_seconds(config, after, queue)
        recorded = after.lent_again.get(queue, _NONE)
        is_new = (*returned[queue],) != recorded.gone or (*ended[queue],) != recorded.pauses
        if is_new or needed.get(queue):
            recorded = _judge(returned[queue], ended[queue], needed.get(queue, 0), back, now)
        noted |= {queue: recorded} if recorded != _NONE else {}
    return msgspec.structs.replace(after, lent_again=noted)


def _judge(
    returned: list[datetime], ended: list[int], needed: int, back: float, now: datetime
) -> LentAgain:
    """Returns a queue's record with the pauses that end now: nodes are needed, or gone too long."""
    recent = [since for since in returned if now - since < _soon(back)]
    missed = recent[max(len(recent) - needed, 0) :]
    pauses = [*ended, *(_seconds(since, now) for since in returned if since not in recent)]
    # A node that was needed soon after the long time is no argument against that time.
    pauses += [entry for since in missed if (entry := _seconds(since, now)) <= LONG * back]
    long_enough = [entry for entry in pauses if entry > max(SHORT * back, LEAST)]
    return LentAgain(
        pauses=tuple(long_enough[-MOST:]),
        gone=tuple(recent[: len(recent) - len(missed)][-MOST:]),
    )


def _soon(back: float) -> timedelta:
    return timedelta(seconds=round(SOON * back))


def _seconds(since: datetime, now: datetime) -> int:
    return int((now - since).total_seconds())


KEPT_TIMES = 40
FEWEST_TIMES = 10
_SHARE = 0.95


def lend_time(config: Config, registry: Registry, node_type: str) -> timedelta:
    """Returns the measured time from a request for a node of the type until the node serves."""
    return _learned(config, registry.lend_times.get(node_type, LendTimes()).lends)


def return_time(config: Config, registry: Registry, node_type: str) -> timedelta:
    """Returns the measured time until a node of the type is back in Slurm."""
    return _learned(config, registry.lend_times.get(node_type, LendTimes()).returns)


def _learned(config: Config, seconds: Sequence[int]) -> timedelta:
    """Returns the 95th percentile of these durations, or the setting `lead` if they are few."""
    if len(seconds) < FEWEST_TIMES:
        return config.lead
    learned = timedelta(seconds=sorted(seconds)[ceil(_SHARE * len(seconds)) - 1])
    return min(learned, longest_lend_time(config))


def longest_lend_time(config: Config) -> timedelta:
    """Returns the longest time that dnm assumes for lending a node."""
    return max(config.lead, config.convert_timeout + config.join_timeout)


def note_lends(
    config: Config,
    before: Registry,
    after: Registry,
    verdicts: Mapping[str, NodeVerdict],
    now: datetime,
) -> Registry:
    """Returns `after` with the measured times of nodes that began to serve, or are back, now."""
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
