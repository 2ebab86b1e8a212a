"""The changes that `hold`, `exclude`, `pause` and the commands that end them make to the registry;
also `takeover` (which host acts) and `reset` (retry after failures). Pure."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.departure import Leaving
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import Phase
from dnm.model.lent_state import Returning
from dnm.model.observed import Breaker
from dnm.model.orders import Keeping, Pause
from dnm.model.registry import Registry
from dnm.plan.lost_registry import restore_names
from dnm.verbs.refusal import Refusal, without

# --- nodes -----------------------------------------------------------------------------------


def hold(config: Config, registry: Registry, node: str, keeping: Keeping) -> Registry | Refusal:
    """Makes dnm leave a node where it is: a lent node is not returned, any other is not lent."""
    if refusal := _refuse_unknown_name(config, registry, node):
        return refusal
    held, nodes = tuple(sorted({*registry.held, node})), dict(registry.nodes)
    if (entry := nodes.get(node)) is not None and entry.phase is Phase.JOINING:
        nodes[node] = replace(entry, departure=None)  # its readiness checks apply again
    return replace(registry, held=held, holds={**registry.holds, node: keeping}, nodes=nodes)


def exclude(config: Config, registry: Registry, node: str, keeping: Keeping) -> Registry | Refusal:
    """Excludes a node from lending; a lent node serves until it is idle, and is not lent again."""
    if refusal := _refuse_unknown_name(config, registry, node):
        return refusal
    return replace(registry, excluded={**registry.excluded, node: keeping})


def unhold(config: Config, registry: Registry, node: str) -> Registry:
    """Ends the hold of a node, so that dnm may lend or return it again."""
    held = tuple(name for name in registry.held if name != node)
    return replace(registry, held=held, holds=without(registry.holds, node))


def unexclude(config: Config, registry: Registry, node: str) -> Registry:
    """Allows a node to be lent again, unless the configuration excludes it."""
    return replace(registry, excluded=without(registry.excluded, node))


def _refuse_unknown_name(config: Config, registry: Registry, node: str) -> Refusal | None:
    """Returns a refusal if no node of this configuration can have this name, else None."""
    if node in registry.nodes or node in registry.claimed or config.type_of(node):
        return None
    types = ", ".join(
        f"{node_type.name_prefix or node_type.name}…" for node_type in config.node_types.values()
    )
    return Refusal(
        f"{node!r} is not a name of a lent node or of a node type ({types}): `dnm nodes` lists "
        "the nodes; nothing was changed"
    )


# --- the instance ----------------------------------------------------------------------------


def pause(
    config: Config, registry: Registry, paused: Pause, is_forced: bool = False
) -> Registry | Refusal:
    """Stops lending, returning or both. A pause that stops less than the current one must be
    forced, since the administrator who set that relies on it. Without a new reason, the current
    reason stays."""
    current = registry.pause if registry.paused(paused.since) else None
    if current and not is_forced and _stops_less(paused, current):
        return Refusal("this pause would stop less: add --force to replace it")
    reason = paused.reason or (current.reason if current else "")
    return replace(registry, pause=replace(paused, reason=reason))


def _stops_less(new: Pause, old: Pause) -> bool:
    ends_before = new.until is not None and (old.until is None or new.until < old.until)
    return ends_before or new.half not in (None, old.half)


def resume(config: Config, registry: Registry) -> Registry:
    """Ends the pause. If dnm had paused because its registry was lost, the pause from before the
    loss applies again."""
    return replace(registry, pause=registry.pause.earlier if registry.pause else None)


def take_over(config: Config, registry: Registry, word: str, kept: str, now: datetime) -> Registry:
    """Returns the registry that acts for the instance from now on. `word` is its random name in the
    Lease. A new registry gets the pause, holds and exclusions from `kept`, a text of the Lease."""
    if not registry.lease_words:
        registry = restore_names(registry, kept, now)
    return replace(registry, lease_words=(word,), elsewhere=None)


# --- reset -----------------------------------------------------------------------------------


class Resettable(Enum):
    """The kinds of object that `dnm reset` accepts."""

    NODE = "node"
    QUEUE = "queue"
    NODE_TYPE = "node type"


def find_resettable(config: Config, registry: Registry, name: str) -> Resettable | Refusal:
    """Returns which kind of object has this name, in the order: lent node, queue, node type."""
    if name in registry.nodes:
        return Resettable.NODE
    if name.lower() in registry.breakers or name.lower() in config.queues:
        return Resettable.QUEUE
    if name in config.node_types:
        return Resettable.NODE_TYPE
    lent = [fold_hostlist(registry.nodes)] if registry.nodes else []
    names = ", ".join([*lent, *sorted([*config.queues, *config.node_types])])
    return Refusal(
        f"{name!r} is not a lent node, monitored queue or node type; existing names: {names}"
    )


def reset(config: Config, registry: Registry, name: str, now: datetime) -> Registry | Refusal:
    """Closes the circuit breaker of a queue, ends the back-off of a node type, or lets dnm try
    again to return a failed node."""
    kind = find_resettable(config, registry, name)
    if isinstance(kind, Refusal):
        return kind
    if kind is Resettable.NODE:
        return _returning_again(registry, name, now)
    if kind is Resettable.NODE_TYPE:
        return replace(registry, backoffs=without(registry.backoffs, name))
    queue = name.lower()
    # Stalled pods of all queues are evaluated again too: the registry does not have their queue,
    # and the next runs soon detect them again.
    breakers = {**registry.breakers, queue: close_breaker(registry, queue)}
    return replace(registry, breakers=breakers, stalled={})


def _returning_again(registry: Registry, name: str, now: datetime) -> Registry | Refusal:
    entry = registry.nodes[name]
    if entry.phase not in (Phase.FAILED, Phase.RETURNING):
        return Refusal(
            f"{name} is {entry.phase.value}, not failed: there is nothing to reset; `dnm status` "
            "shows what it waits for"
        )
    if name in registry.held:
        return Refusal(f"{name} is held: `dnm unhold {name}` first")
    # dnm still waits for a converter of an earlier run: two converters on one node would
    # power-cycle it under each other. The node is returned whatever its queue needs.
    state = Returning(since=now, converter=entry.converter)
    again = replace(entry.leave(Leaving.MANUAL), state=state, stays_until=None)
    return replace(registry, nodes={**registry.nodes, name: again})


def close_breaker(registry: Registry, queue: str) -> Breaker:
    """Returns a closed circuit breaker for the queue. Its nodes that are unused now do not count
    for it, even after their return."""
    phases = (Phase.SERVING, Phase.RELEASING, Phase.RETURNING)
    forgiven = sum(
        entry.queue == queue and entry.phase in phases and not entry.was_used
        for entry in registry.nodes.values()
    )
    return Breaker(unused=-forgiven)
