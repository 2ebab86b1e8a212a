"""Requests of administrators (lend, return, hold and others) in a random history, made by the
functions of dnm's commands. A refused request changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.model.config import Config
from dnm.model.departure import Eviction
from dnm.model.orders import Keeping, LendOrder
from dnm.model.registry import Registry
from dnm.verbs import holds, lending
from dnm.verbs.refusal import Refusal

_WHILE = timedelta(minutes=30)
_GRACE = timedelta(minutes=2)
Request = Callable[[Config, Registry, str, datetime], Registry | Refusal]


def _a_while(now: datetime) -> Keeping:
    return Keeping(since=now, until=now + _WHILE, requester="kim")


def _lend(config: Config, registry: Registry, node: str, now: datetime) -> Registry | Refusal:
    """Orders one more node of the type of `node` with `--force`, unless three orders exist."""
    policy = min(config.namespaces.values(), key=lambda namespace: namespace.name)
    node_type = config.type_of(node)
    if node_type is None or len(registry.orders) > 2:
        return registry
    order = LendOrder(
        id=f"lend-{len(registry.orders)}-{now:%H%M%S}", node_type=node_type, count=1,
        requester="kim", namespace=policy.name, since=now, until=now + _WHILE, is_forced=True,
    )  # fmt: skip
    return lending.lend(config, registry, order)


def _give_back(
    config: Config, registry: Registry, node: str, now: datetime, eviction: Eviction | None = None
) -> Registry | Refusal:
    refusal = lending.nodes_to_return(config, registry, (), (node,))
    if isinstance(refusal, Refusal):
        return refusal
    return lending.return_nodes(config, registry, node, now, eviction)


_REQUESTS: Mapping[str, Request] = {
    "hold": lambda c, r, node, now: holds.hold(c, r, node, _a_while(now)),
    "exclude": lambda c, r, node, now: holds.exclude(c, r, node, _a_while(now)),
    "lend": _lend,
    "extend": lambda c, r, node, now: lending.extend(c, r, node, now + _WHILE),
    "return": _give_back,
    "return --evict": lambda c, r, node, now: _give_back(
        c, r, node, now, Eviction(since=now + _GRACE)
    ),
}
REQUESTS = sorted(_REQUESTS)


def make_request(
    kind: str, config: Config, registry: Registry, node: str, now: datetime
) -> Registry:
    """Returns the registry after an administrator's request of this kind for a node."""
    message = _REQUESTS[kind](config, registry, node, now)
    return registry if isinstance(message, Refusal) else message


def without_requests(registry: Registry) -> Registry:
    """Returns the registry without any administrator's requests."""
    return msgspec.structs.replace(
        registry, held=(), holds={}, excluded={}, orders=(),
        nodes={
            name: msgspec.structs.replace(entry, stays_until=None)
            for name, entry in registry.nodes.items()
        },
        requests=tuple(
            msgspec.structs.replace(request, stays_until=None) for request in registry.requests
        ),
    )  # fmt: skip
