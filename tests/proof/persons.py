"""What persons say of nodes, in the middle of a history: a change of a registry each, as the verbs
write it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from dnm.model.config import Config
from dnm.model.lent import Emptying, Leaving, Phase
from dnm.model.orders import Keeping, LendOrder
from dnm.model.registry import Registry

_WHILE = timedelta(minutes=30)
_GRACE = timedelta(minutes=2)
_STAYS = (Phase.JOINING, Phase.SERVING, Phase.RELEASING)
Said = Callable[[Config, Registry, str, datetime], Registry]


def hold(config: Config, registry: Registry, node: str, now: datetime) -> Registry:
    """Any node, for a while."""
    keeping = Keeping(since=now, until=now + _WHILE, who="kim")
    held = tuple(sorted({*registry.held, node}))
    return _with(registry, held=held, holds={**registry.holds, node: keeping})


def exclude(config: Config, registry: Registry, node: str, now: datetime) -> Registry:
    """Any node, for a while."""
    keeping = Keeping(since=now, until=now + _WHILE, who="kim")
    return _with(registry, excluded={**registry.excluded, node: keeping})


def lend(config: Config, registry: Registry, node: str, now: datetime) -> Registry:
    """One node more, of the type of the one that is named, whatever brakes say."""
    policy = min(config.namespaces.values(), key=lambda one: one.name)
    node_type = config.type_of(node)
    if node_type is None or len(registry.orders) > 2:
        return registry
    order = LendOrder(
        id=f"lend-{len(registry.orders)}-{now:%H%M%S}", node_type=node_type, count=1, who="kim",
        namespace=policy.name, since=now, until=now + _WHILE, is_forced=True,
    )  # fmt: skip
    return _with(registry, orders=(*registry.orders, order))


def extend(config: Config, registry: Registry, node: str, now: datetime) -> Registry:
    entry = registry.nodes.get(node)
    if entry is None or entry.owner != config.instance_id or entry.phase not in _STAYS:
        return registry
    stays = msgspec.structs.replace(entry, stays_until=now + _WHILE)
    return _with(registry, nodes={**registry.nodes, node: stays})


def give_back(config: Config, registry: Registry, node: str, now: datetime) -> Registry:
    entry = registry.nodes.get(node)
    if entry is None or entry.owner != config.instance_id or entry.phase not in _STAYS:
        return registry
    gone = msgspec.structs.replace(entry, leaves=Leaving.BY_HAND, stays_until=None, order="")
    orders = tuple(order for order in registry.orders if order.id != entry.order)
    return _with(registry, nodes={**registry.nodes, node: gone}, orders=orders)


def evict(config: Config, registry: Registry, node: str, now: datetime) -> Registry:
    """As `give_back`, and its pods are asked to go."""
    after = give_back(config, registry, node, now)
    if after == registry:
        return registry
    entry = msgspec.structs.replace(after.nodes[node], emptying=Emptying(since=now + _GRACE))
    return _with(after, nodes={**after.nodes, node: entry})


SAID: Mapping[str, Said] = {
    "hold": hold, "exclude": exclude, "lend": lend, "extend": extend, "return": give_back,
    "return --evict": evict,
}  # fmt: skip


def silent(registry: Registry) -> Registry:
    """Returns the registry as if nobody had said anything of a node."""
    return _with(
        registry, held=(), holds={}, excluded={}, orders=(),
        nodes={
            name: msgspec.structs.replace(entry, stays_until=None)
            for name, entry in registry.nodes.items()
        },
        requests=tuple(
            msgspec.structs.replace(one, stays_until=None) for one in registry.requests
        ),
    )  # fmt: skip


def _with(registry: Registry, **changes: object) -> Registry:
    return msgspec.structs.replace(registry, **changes)
