"""The nodes and orders that an administrator names."""

from __future__ import annotations

from collections.abc import Iterable

from dnm.cli.terminal.operation import RefusedError
from dnm.model.errors import SlurmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.registry import Registry


def named_nodes(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the nodes of names and host lists, each once. Raises RefusedError for a word that
    can't be read, or names none: a variable that is not set would keep nothing, and say so to
    nobody."""
    found: dict[str, None] = {}
    for word in words:
        try:
            names = expand_hostlist(word)
        except SlurmError as error:
            raise RefusedError(f"{error}; nothing is done") from error
        if not names:
            raise RefusedError(f"{word!r} names no node; write a name, or a host list: a[001-004]")
        found.update(dict.fromkeys(names))
    return tuple(found)


def orders_and_nodes(
    registry: Registry, words: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the orders, and the nodes, that the words name, each once."""
    known = {order.id: None for order in registry.orders}
    said = tuple(dict.fromkeys(words))
    return tuple(w for w in said if w in known), named_nodes(w for w in said if w not in known)
