"""What a person says of nodes: hold, exclude, and their ends. Each changes the registry under the
lock, with a line of history for each node; the next run acts on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import msgspec

from dnm.cli.admin import NotKnownError, change_told
from dnm.cli.output import shown, told_together
from dnm.cli.person import a_deed
from dnm.model.config import Config
from dnm.model.hostlist import expand_hostlist
from dnm.model.registry import Keeping, Registry
from dnm.run.registry import load_registry

V = TypeVar("V")


def named_nodes(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the nodes of names and host lists, each once. Raises SlurmError, and NotKnownError
    for a word that names none: a variable that is not set would keep nothing, and say so to
    nobody."""
    found: dict[str, None] = {}
    for word in words:
        names = expand_hostlist(word)
        if not names:
            raise NotKnownError(f"{word!r} names no node; write a name, or a host list: a[001-004]")
        found.update(dict.fromkeys(names))
    return tuple(found)


def hold(
    config: Config, words: Sequence[str], until: datetime | None = None, reason: str = ""
) -> list[str]:
    """Keeps nodes where they are: a lent one does not go back, any other is not lent."""
    answers = []
    for node, before in _known_nodes(config, words):
        _keep(config, "hold", node, (until, reason), _holding)
        end = _end(config, until, "dnm unhold NODE")
        was = "" if node not in before.held else ", as it was before"
        kept = "held" if node in before.nodes else "held: it is not lent"
        answers.append((node, f"NODE is {kept} until {end}{was}"))
    return told_together(answers)


def exclude(
    config: Config, words: Sequence[str], until: datetime | None = None, reason: str = ""
) -> list[str]:
    """Keeps nodes out of lending; one that is lent serves on, and is not lent again."""
    answers = []
    for node, before in _known_nodes(config, words):
        _keep(config, "exclude", node, (until, reason), _excluding)
        text = f"NODE is not lent until {_end(config, until, 'dnm unexclude NODE')}"
        if node in before.nodes:
            text += "; it is lent now, and serves on until it is idle"
        elif any(node in (one.node, *one.names) for one in before.requests):
            text += "; it is on its way now, and goes back as soon as it is there and empty"
        answers.append((node, text))
    return told_together(answers)


def unhold(config: Config, words: Sequence[str], reason: str = "") -> list[str]:
    """Ends holds."""
    return told_together(
        (node, "NODE is not held any more" if changed else "NODE was not held")
        for node, changed in _end_all(config, "unhold", words, reason, _let_go)
    )


def unexclude(config: Config, words: Sequence[str], reason: str = "") -> list[str]:
    """Lets nodes be lent again; what the configuration excludes stays so."""
    return told_together(
        (
            node,
            ("NODE is not excluded any more" if changed else "NODE was not excluded")
            + (f"; {config.path} still names it" if node in config.exclude_nodes else ""),
        )
        for node, changed in _end_all(config, "unexclude", words, reason, _let_in)
    )


# --- the changes -----------------------------------------------------------------------------


def _holding(node: str, keeping: Keeping, registry: Registry) -> Registry:
    held = tuple(sorted({*registry.held, node}))
    return _with(registry, held=held, holds={**registry.holds, node: keeping})


def _excluding(node: str, keeping: Keeping, registry: Registry) -> Registry:
    return _with(registry, excluded={**registry.excluded, node: keeping})


def _let_go(node: str, registry: Registry) -> Registry:
    held = tuple(name for name in registry.held if name != node)
    return _with(registry, held=held, holds=_without(registry.holds, node))


def _let_in(node: str, registry: Registry) -> Registry:
    return _with(registry, excluded=_without(registry.excluded, node))


def _keep(
    config: Config,
    verb: str,
    node: str,
    terms: tuple[datetime | None, str],
    keeps: Callable[[str, Keeping, Registry], Registry],
) -> None:
    until, reason = terms
    deed = a_deed(verb, node, reason, until=until.isoformat() if until else "")
    who = f"{deed.who} on {deed.host}"
    keeping = Keeping(since=datetime.now(UTC), until=until, reason=deed.reason, who=who)
    change_told(config, partial(keeps, node, keeping), deed)


def _end_all(
    config: Config,
    verb: str,
    words: Sequence[str],
    reason: str,
    ends: Callable[[str, Registry], Registry],
) -> list[tuple[str, bool]]:
    """Each node, and whether anything was to be ended."""
    return [
        (node, change_told(config, partial(ends, node), a_deed(verb, node, reason)))
        for node in named_nodes(words)
    ]


def _known_nodes(config: Config, words: Sequence[str]) -> list[tuple[str, Registry]]:
    """Each node with the registry as it is; raises for a name that no node of this configuration
    can have: a mistyped one would keep nothing."""
    registry, nodes = load_registry(config, datetime.now(UTC)), named_nodes(words)
    for node in nodes:
        if not (node in registry.nodes or node in registry.claimed or config.type_of(node)):
            types = (f"{one.name_prefix or one.name}…" for one in config.node_types.values())
            raise NotKnownError(
                f"{node!r} is not lent, and no name of a node that could be: these are "
                f"{', '.join(types)}; `dnm nodes` shows them"
            )
    return [(node, registry) for node in nodes]


def _end(config: Config, until: datetime | None, verb: str) -> str:
    return f"{shown(until, config.events_zone)}, or `{verb}`" if until else f"`{verb}`"


def _without(mapping: Mapping[str, V], key: str) -> dict[str, V]:
    return {name: value for name, value in mapping.items() if name != key}


def _with(registry: Registry, **changes: object) -> Registry:
    return msgspec.structs.replace(registry, **changes)
