"""The names that the shell completes: of nodes, queues and so on, from registry and configuration.

typer itself completes only the names of commands and options. If a file is unreadable, dnm
completes nothing and prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from dnm.model.errors import DnmError

if TYPE_CHECKING:
    from dnm.model.config import Config
    from dnm.model.registry import Registry


def _completes(
    names: Callable[[Config], Iterable[str]],
) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        config: Config | None = ctx.params.get("config")
        if config is None:  # the file is unreadable
            return []
        try:
            return sorted(name for name in set(names(config)) if name.startswith(incomplete))
        except (DnmError, OSError):
            return []

    return complete


def _registry(config: Config) -> Registry:
    from datetime import UTC, datetime

    from dnm.run.registry import load_registry

    return load_registry(config, datetime.now(UTC))


def _events(config: Config) -> list[str]:
    from dnm.calendar.in_force import list_events

    return [event.name for event in list_events(config, _registry(config))]


nodes = _completes(lambda c: _registry(c).nodes)
queues = _completes(lambda c: c.queues)
namespaces = _completes(lambda c: c.namespaces)
events = _completes(_events)
resettable = _completes(lambda c: [*_registry(c).nodes, *c.queues, *c.node_types])
explainable = _completes(
    lambda c: [*_registry(c).nodes, *c.queues, *(f"{name}/" for name in c.namespaces)]
)
