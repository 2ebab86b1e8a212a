"""`forecast`: what a namespace will need soon, by what it needed at this hour in the last weeks, as
a floor. Pure.

The rule: of a quarter of an hour of the week the need that was passed in at most a quarter of the
last four weeks; there must be two of them. The floor is the highest of this quarter and of that in
twenty minutes, and no more than `forecast_share` of the namespace's cap. It only ever adds nodes.
Days of `forecast_except` have no forecast, and none is made from them.

It has to earn its keep: over the two weeks before today the minutes that pods would have waited
less are held against the hours that nodes would have stood idle for it. Less than sixty pod-minutes
for a node-hour, and it is off until the score is better again. The score is made of what was
needed, which does not depend on what was lent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from math import ceil

from dnm.model.config import Config, Forecast, NamespacePolicy
from dnm.model.plan import Foresight
from dnm.model.registry import Needs, Registry
from dnm.plan.floors import NodeFloor
from dnm.plan.needs import QUARTERS_OF_A_WEEK, begin_of, point_at, quarter_of

AHEAD = timedelta(minutes=20)
WEEKS = 4
FEWEST_WEEKS = 2
SCORED_QUARTERS = 2 * QUARTERS_OF_A_WEEK
POD_MINUTES_OF_A_NODE_HOUR = 60
_SHARE_OF_WEEKS = 0.75
_QUARTERS_OF_A_DAY = 96
_MINUTES_TO_LEND = 10  # which pods wait for a node that is not there


def forecast_floors(config: Config, registry: Registry, now: datetime) -> Iterator[NodeFloor]:
    """Yields a floor for each namespace whose forecast is in force."""
    for one in foresee(config, registry, now):
        if one.is_in_force and one.nodes:
            why = f"forecast of {one.namespace}: {one.nodes} at this hour in earlier weeks"
            yield NodeFloor(namespace=one.namespace, nodes=one.nodes, why=why)


def foresee(config: Config, registry: Registry, now: datetime) -> tuple[Foresight, ...]:
    """Returns what is foreseen for each namespace that has a forecast, and how good that was."""
    return tuple(
        _foresee(config, policy, registry.needs.get(name, Needs()), now)
        for name, policy in sorted(config.namespaces.items())
        if policy.forecast is not Forecast.OFF
    )


def next_look(config: Config, now: datetime) -> datetime | None:
    """Returns when a floor may change next without anything else changing; None: there is none."""
    if all(one.forecast is Forecast.OFF for one in config.namespaces.values()):
        return None
    return min(begin_of(quarter_of(now) + 1), begin_of(quarter_of(now + AHEAD) + 1) - AHEAD)


def _foresee(config: Config, policy: NamespacePolicy, needs: Needs, now: datetime) -> Foresight:
    most = _most(config, policy)
    soon = {quarter_of(now), quarter_of(now + AHEAD)}
    found = [_expected(needs, one, config.forecast_except) for one in soon]
    known = [one for one in found if one is not None]
    today = quarter_of(now) // _QUARTERS_OF_A_DAY * _QUARTERS_OF_A_DAY
    saved, idle = _score(_before(needs, today), today, most, config.forecast_except)
    pays = saved >= POD_MINUTES_OF_A_NODE_HOUR * idle
    return Foresight(
        namespace=policy.name,
        nodes=min(max(known, default=0), most),
        is_known=bool(known),
        is_in_force=bool(known) and pays and policy.forecast is Forecast.FLOOR,
        pays=pays,
        pod_minutes_saved=saved,
        node_hours_idle=idle,
    )


def _before(needs: Needs, quarter: int) -> Needs:
    """What was known when a quarter began: a day's score is computed once."""
    return Needs(points=tuple(one for one in needs.points if one.quarter < quarter))


def _most(config: Config, policy: NamespacePolicy) -> int:
    caps = (policy.max_nodes, config.max_converted_nodes)
    return int(config.forecast_share * min(cap for cap in caps if cap is not None))


def _expected(needs: Needs, quarter: int, without: Collection[date]) -> int | None:
    """What will be needed in a quarter; None: too few weeks say it, or its day is an exception."""
    if without and begin_of(quarter).date() in without:
        return None
    earlier = [quarter - week * QUARTERS_OF_A_WEEK for week in range(1, WEEKS + 1)]
    points = [
        point_at(needs, one)
        for one in earlier
        if not without or begin_of(one).date() not in without
    ]
    amounts = sorted(one.nodes for one in points if one is not None)
    if len(amounts) < FEWEST_WEEKS:
        return None
    return amounts[ceil(_SHARE_OF_WEEKS * len(amounts)) - 1]


@lru_cache(maxsize=256)
def _score(needs: Needs, now: int, most: int, without: frozenset[date]) -> tuple[int, float]:
    """Pod-minutes saved and node-hours idle in the two weeks before a day, if the forecast had been
    in force."""
    saved, idle = 0, 0
    expected = _expected(needs, now - SCORED_QUARTERS, without)
    for quarter in range(now - SCORED_QUARTERS, now):
        following = _expected(needs, quarter + 1, without)
        at_hand = [one for one in (expected, following) if one is not None]
        point, before = point_at(needs, quarter), point_at(needs, quarter - 1)
        if at_hand and point is not None and before is not None:
            there = min(max(at_hand), most)
            idle += max(there - point.nodes, 0)
            if expected is not None:
                ahead = max(min(expected, most, point.nodes) - before.nodes, 0)
                saved += ahead * point.pods * _MINUTES_TO_LEND
        expected = following
    return saved, idle / 4
