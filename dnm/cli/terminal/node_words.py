"""The parsing of the names of nodes and orders on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from dnm.cli.terminal.operation import RefusedError
from dnm.model.errors import SlurmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.registry import Registry


def named_nodes(words: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct nodes that names and host lists denote. Raises RefusedError for a
    malformed word, and for an empty one: if a shell variable is unset, the command would silently
    do nothing."""
    nodes: dict[str, None] = {}
    for word in words:
        try:
            names = expand_hostlist(word)
        except SlurmError as error:
            raise RefusedError(f"{error}; nothing was changed") from error
        if not names:
            raise RefusedError(f"{word!r} names no node; write a name, or a host list: a[001-004]")
        nodes.update(dict.fromkeys(names))
    return tuple(nodes)


def orders_and_nodes(
    registry: Registry, words: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the distinct orders and nodes that the words denote."""
    orders = {order.id for order in registry.orders}
    unique = tuple(dict.fromkeys(words))
    return (
        tuple(word for word in unique if word in orders),
        named_nodes(word for word in unique if word not in orders),
    )
