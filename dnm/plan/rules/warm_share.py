"""`headroom` below 1: queues keep a share of each limit free for new pods. Pure.

The rule: a limit must be at least what is used and requested, divided by `headroom`. It applies if
a queue has pods, at the nearest level that limits a resource."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.plan.hooks import Rule
from dnm.plan.inputs import Inputs


def mark_of(config: Config) -> Callable[[int], int]:
    """Returns a function: used and requested amount -> the lowest limit that `headroom` allows."""
    share = Fraction(config.headroom).limit_denominator(10**9)
    return lambda demand: ceil(demand / share)


def _prepare(inputs: Inputs) -> Inputs:
    if inputs.demand is None:
        return inputs
    return replace(inputs, demand=replace(inputs.demand, mark=mark_of(inputs.config)))


RULE = Rule(prepares=_prepare)
