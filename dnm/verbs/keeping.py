"""`hold`, `exclude`, `pause` and their ends, `takeover` and `reset`: what dnm is to leave as it is,
who acts, and what is to be tried anew. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import Leaving, Phase
from dnm.model.observed import Breaker
from dnm.model.orders import Keeping, Pause
from dnm.model.registry import Registry
from dnm.plan.facts import enter_phase
from dnm.plan.lost_registry import restore_names
from dnm.verbs.refusal import Refusal, without

# --- nodes -----------------------------------------------------------------------------------


def hold(config: Config, registry: Registry, node: str, keeping: Keeping) -> Registry | Refusal:
    """Keeps a node where it is: a lent one does not go back, any other is not lent."""
    if refusal := _why_no_node(config, registry, node):
        return refusal
    held, nodes = tuple(sorted({*registry.held, node})), dict(registry.nodes)
    if (entry := nodes.get(node)) is not None and entry.phase is Phase.JOINING:
        nodes[node] = replace(entry, leaves=None, emptying=None)  # it joins by its list again
    return replace(registry, held=held, holds={**registry.holds, node: keeping}, nodes=nodes)


def exclude(config: Config, registry: Registry, node: str, keeping: Keeping) -> Registry | Refusal:
    """Keeps a node out of lending; one that is lent serves on, and is not lent again."""
    if refusal := _why_no_node(config, registry, node):
        return refusal
    return replace(registry, excluded={**registry.excluded, node: keeping})


def unhold(config: Config, registry: Registry, node: str) -> Registry:
    """Ends a hold."""
    held = tuple(name for name in registry.held if name != node)
    return replace(registry, held=held, holds=without(registry.holds, node))


def unexclude(config: Config, registry: Registry, node: str) -> Registry:
    """Lets a node be lent again; what the configuration excludes stays so."""
    return replace(registry, excluded=without(registry.excluded, node))


def _why_no_node(config: Config, registry: Registry, node: str) -> Refusal | None:
    """Of a name that no node of this configuration can have: a mistyped one would keep nothing."""
    if node in registry.nodes or node in registry.claimed or config.type_of(node):
        return None
    types = ", ".join(
        f"{node_type.name_prefix or node_type.name}…" for node_type in config.node_types.values()
    )
    return Refusal(
        f"{node!r} is not lent, and no name of a node that could be: these are {types}; "
        "`dnm nodes` shows them; nothing is done"
    )


# --- all of it -------------------------------------------------------------------------------


def pause(
    config: Config, registry: Registry, paused: Pause, is_forced: bool = False
) -> Registry | Refusal:
    """Stops lending and returning, or one of them. One that stops less than the pause in force
    must be forced: somebody counts on that one. Its reason stands until another is given."""
    was = registry.pause if registry.paused(paused.since) else None
    if was and not is_forced and _stops_less(paused, was):
        return Refusal("this one would stop less: add --force to replace it")
    reason = paused.reason or (was.reason if was else "")
    return replace(registry, pause=replace(paused, reason=reason))


def _stops_less(new: Pause, old: Pause) -> bool:
    ends_before = new.until is not None and (old.until is None or new.until < old.until)
    return ends_before or new.half not in (None, old.half)


def resume(config: Config, registry: Registry) -> Registry:
    """Ends the pause. After the pause of a lost registry, the pause before the loss is in force
    again."""
    return replace(registry, pause=registry.pause.earlier if registry.pause else None)


def take_over(config: Config, registry: Registry, word: str, kept: str, now: datetime) -> Registry:
    """Makes it the registry that acts for the instance, by this word of its Lease. A registry that
    has never acted gets the pause, holds and exclusions that the Lease keeps."""
    if not registry.lease_words:
        registry = restore_names(registry, kept, now)
    return replace(registry, lease_words=(word,), elsewhere=None)


# --- reset -----------------------------------------------------------------------------------


class Resettable(Enum):
    """What a name that is to be reset is one of."""

    NODE = "node"
    QUEUE = "queue"
    NODE_TYPE = "node type"


def what_is_reset(config: Config, registry: Registry, name: str) -> Resettable | Refusal:
    """Returns what the name is one of, a lent node first."""
    if name in registry.nodes:
        return Resettable.NODE
    if name.lower() in registry.breakers or name.lower() in config.queues:
        return Resettable.QUEUE
    if name in config.node_types:
        return Resettable.NODE_TYPE
    lent = [fold_hostlist(registry.nodes)] if registry.nodes else []
    known = ", ".join([*lent, *sorted([*config.queues, *config.node_types])])
    return Refusal(f"{name!r} is no lent node, monitored queue or node type; known are {known}")


def reset(config: Config, registry: Registry, name: str, now: datetime) -> Registry | Refusal:
    """Of a queue: closes its breaker. Of a node type: ends its back-off. Of a failed node: tries
    to return it again."""
    kind = what_is_reset(config, registry, name)
    if isinstance(kind, Refusal):
        return kind
    if kind is Resettable.NODE:
        return _returning_again(registry, name, now)
    if kind is Resettable.NODE_TYPE:
        return replace(registry, backoffs=without(registry.backoffs, name))
    queue = name.lower()
    # Pods found to wait for something else are looked at afresh too, whatever their queue: the
    # record has no queue, and they are soon found out again.
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
    # A converter that a run has left at work is still waited for: two of them on one node would
    # power-cycle it under each other. It goes whatever its queue wants and until when it was lent.
    again = enter_phase(
        entry, Phase.RETURNING, now,
        converter=entry.converter, leaves=Leaving.BY_HAND, stays_until=None,
    )  # fmt: skip
    return replace(registry, nodes={**registry.nodes, name: again})


def close_breaker(registry: Registry, queue: str) -> Breaker:
    """As a person wants it: the nodes that stand unused now are held against the queue no more,
    neither while they stand nor when they go back."""
    standing = (Phase.SERVING, Phase.RELEASING, Phase.RETURNING)
    forgiven = sum(
        entry.queue == queue and entry.phase in standing and not entry.was_used
        for entry in registry.nodes.values()
    )
    return Breaker(unused=-forgiven)
