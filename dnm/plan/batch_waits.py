"""`when_batch_waits`: what becomes of lending while jobs wait that nodes of a type would start.
Pure.

The rule: with `wait` no node of the type is lent, with `return` those that are idle go back at once
too, but never to or from a namespace whose `priority` is above 0: that comes before jobs. Where
nobody says what jobs wait for, nothing follows. A node that its queue's pods wait for is not given
back, and a queue that gave its warm node back gets another only once pods have waited: so jobs that
come and go move no node that pods would not have moved.
"""

from __future__ import annotations

from collections.abc import Iterator

from dnm.model.config import Config, WhenBatchWaits
from dnm.model.registry import LentNode
from dnm.plan.facts import Facts
from dnm.sizing.budget import WAITING_JOBS, Bound


def types_for_jobs(config: Config, facts: Facts) -> frozenset[str]:
    """Returns the node types that jobs wait for, where lending has regard to them."""
    if config.when_batch_waits is WhenBatchWaits.LEND:
        return frozenset()
    return frozenset(one.node_type for one in facts.waiting_jobs or () if one.jobs)


def comes_first(config: Config, namespace: str) -> bool:
    """Returns whether a namespace comes before jobs that wait."""
    policy = config.namespaces.get(namespace)
    return policy is not None and policy.priority > 0


def waiting_bounds(config: Config, facts: Facts) -> Iterator[Bound]:
    """Yields the bound of each type that is not lent now."""
    behind = frozenset(name for name in config.namespaces if not comes_first(config, name))
    for node_type in sorted(types_for_jobs(config, facts)):
        yield Bound(
            name=f"{WAITING_JOBS} of type {node_type}",
            left=0,
            node_types=frozenset((node_type,)),
            namespaces=behind,
        )


def goes_at_once(config: Config, entry: LentNode, facts: Facts) -> bool:
    """Returns whether an idle lent node need not wait out its idle time."""
    return (
        config.when_batch_waits is WhenBatchWaits.RETURN
        and entry.node_type in types_for_jobs(config, facts)
        and not comes_first(config, entry.namespace)
    )
