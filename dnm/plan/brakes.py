"""What keeps a wanted conversion from being started now: one table, whose first row that speaks is
the reason. Pure.

The cooldown is between conversions; a node type backs off after failures. How many nodes may be had
at all is in `lendable.py`; what stops a queue whose nodes went unused, in `breaker.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from dnm.model.config import Config
from dnm.model.observed import Backoff
from dnm.model.orders import LendOrder, Way
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Unreadable, Value
from dnm.model.verdict import Objection
from dnm.plan.breaker import backoffs_in_force, cooldown_end
from dnm.plan.inputs import Inputs
from dnm.plan.lendable import node_supply
from dnm.plan.limits import PlannedLimits, why_unjudged
from dnm.queues.edit import why_no_growth
from dnm.sizing.caps import NodePool


class Wish(Value):
    """Nodes of a pool that a queue, or a person by an order, is to get. `registry`: as it is when
    it is asked; `before`: as it was before any conversion of this run, for the brakes. `limits`: as
    this run writes them."""

    inputs: Inputs
    limits: PlannedLimits
    pool: NodePool
    registry: Registry
    before: Registry
    count: int = 1
    order: LendOrder | None = None


def _unjudged(wish: Wish) -> Objection | None:
    return why_unjudged(wish.inputs, wish.limits, wish.pool.queue)


def _limits_refused(wish: Wish) -> Objection | None:
    return wish.limits.objection


def _batch_side(wish: Wish) -> Objection | None:
    batch = wish.inputs.snapshot.batch
    if isinstance(batch, Unreadable):
        return Objection(reason=Reason.NO_BATCH_NODE, detail=batch.error)
    if batch is None:
        detail = "" if wish.order else "the next run asks"
        return Objection(reason=Reason.BATCH_NOT_ASKED, detail=detail)
    return None


def _waiting(wish: Wish) -> Objection | None:
    inputs = wish.inputs
    return why_wait(inputs.config, wish.before, wish.pool.node_type, inputs.now, wish.order)


def why_wait(
    config: Config,
    registry: Registry,
    node_type: str,
    now: datetime,
    order: LendOrder | None = None,
) -> Objection | None:
    """The pause, the cooldown (which force passes) or the back-off that holds a conversion of this
    type back for now."""
    if pause := registry.paused(now, Way.LENDING):
        return pause
    is_forced = order is not None and order.is_forced
    if not is_forced and (until := cooldown_end(config, registry, now)) is not None:
        return Objection(reason=Reason.COOLDOWN, detail=f"until {until:%H:%M:%S} UTC")
    backoff = backoffs_in_force(registry, now).get(node_type)
    if backoff is None or (order is not None and _passes(order, backoff)):
        return None
    error = f"{backoff.last_error}; " if backoff.last_error else ""
    return Objection(
        reason=Reason.BACKOFF,
        detail=f"{backoff.failures} of type {node_type}, until {backoff.until:%H:%M:%S} UTC; "
        f"{error}`dnm reset {node_type}` ends it",
    )


def _passes(order: LendOrder, backoff: Backoff) -> bool:
    """Whether force passes a back-off: one that the order itself has made it does not."""
    return order.is_forced and (backoff.since is None or backoff.since <= order.since)


def _not_to_be_counted(wish: Wish) -> Objection | None:
    """The size of these nodes, and of those on their way, must fit into the limits."""
    inputs, asked = wish.inputs, wish.limits.action
    if inputs.document is None or asked is None or not wish.count:
        return None
    types = [wish.pool.node_type] * wish.count + [
        one.node_type for one in node_supply(inputs, wish.registry).incoming
        if one.queue == wish.pool.queue
    ]  # fmt: skip
    known_types = inputs.config.node_types
    sizes = [known_types[name].size for name in types if name in known_types]
    return why_no_growth(inputs.document, asked.wants, wish.pool.queue, sizes)


Row = Callable[[Wish], Objection | None]
OF_THE_QUEUE: tuple[Row, ...] = (_unjudged, _limits_refused)
OF_THE_MOMENT: tuple[Row, ...] = (_batch_side, _waiting)
OF_THE_SIZE: tuple[Row, ...] = (_not_to_be_counted,)


def first_objection(rows: tuple[Row, ...], wish: Wish) -> Objection | None:
    """Returns what the first row that speaks says."""
    return next((found for row in rows if (found := row(wish)) is not None), None)
