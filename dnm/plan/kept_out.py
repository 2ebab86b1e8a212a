"""Which nodes are kept out of lending, and why: by the configuration, or by a person. Pure.

The rule: a node that may not be lent is not counted among those that can be had, the converter is
told not to choose it, and one that came all the same is fenced and goes back as soon as it is
empty. What a node is in can't always be told: with a rule that asks for it, it is not lent then;
one that came is judged once it can be told. A lent node serves on when it is excluded, and is not
lent again; a hold keeps a node where it is, so it sends none back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from dnm.model.cluster import BatchNode
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import printable
from dnm.model.registry import Keeping, Registry

LONGEST_LIST = 60_000  # characters in one argument; Linux takes twice as many
_LONGEST_REASON = 120


def kept_out(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> dict[str, str]:
    """Returns why each node that is kept out may not be lent, by name; `batch` None: what Slurm
    says of the nodes is not known."""
    why = {
        name: f"{keys[0]} is set, and the converter does not say what it has"
        for name, row in (batch or {}).items()
        if (keys := _untold(config, row))
    }
    unwelcome = unwelcome_nodes(config, registry, batch, now)
    for name in registry.held:
        one = registry.holds.get(name)
        if one is None or one.is_in_force(now):
            why[name] = f"{kept_sentence(one, 'holds')}: dnm unhold {name}"
    return {**why, **unwelcome}


def unwelcome_nodes(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, now: datetime
) -> dict[str, str]:
    """Returns why each node goes back that has come all the same, by name: only what is known to
    be kept out, and not by a hold."""
    why: dict[str, str] = {}
    for name, row in (batch or {}).items():
        for sentence in _by_configuration(config, row):
            why.setdefault(name, sentence)
    why |= dict.fromkeys(sorted(config.exclude_nodes), "exclude_nodes names it")
    for name, one in registry.excluded.items():
        if one.is_in_force(now):
            why[name] = f"{kept_sentence(one, 'excluded')}: dnm unexclude {name}"
    return why


def kept_sentence(one: Keeping | None, verb: str) -> str:
    """Says who keeps a node, until when and why; None: that was not written down."""
    if one is None:
        return f"somebody {verb} it"
    until = f" until {one.until:%Y-%m-%d %H:%M} UTC" if one.until else ""
    said = f" ({printable(one.reason, _LONGEST_REASON)})" if one.reason else ""
    return f"{printable(one.who, 80) or 'somebody'} {verb} it{until}{said}"


def can_be_judged(config: Config, batch: Mapping[str, BatchNode] | None, name: str) -> bool:
    """Whether all is known that the rules of the configuration ask of the node."""
    row = (batch or {}).get(name)
    return not _untold(config, row or BatchNode(name=name, state="", verdict=""))


def _rules(
    config: Config, row: BatchNode
) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...] | None], ...]:
    """(key, the words it names, those that the row has; None: it does not say) of those set."""
    rules = (
        ("exclude_partitions", config.exclude_partitions, row.partitions or None),
        ("exclude_features", config.exclude_features, row.features),
        ("exclude_reservations", config.exclude_reservations, row.reservations),
    )
    return tuple(rule for rule in rules if rule[1])


def _untold(config: Config, row: BatchNode) -> list[str]:
    return [key for key, _, has in _rules(config, row) if has is None]


def _by_configuration(config: Config, row: BatchNode) -> Iterator[str]:
    for key, named, has in _rules(config, row):
        for word in named:
            if word in (has or ()):
                yield f"{key} names {word}"


def left_out_list(config: Config, node_type: str, why: Mapping[str, str]) -> str:
    """Returns the nodes of a type that the converter may not choose, as a host list."""
    return fold_hostlist(name for name in why if config.type_of(name) == node_type)
