"""What the shell may complete: names from registry and configuration. What can't be read
completes nothing, and says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from dnm.model.errors import DnmError

if TYPE_CHECKING:
    from dnm.model.config import Config


def _completes(
    names: Callable[[Config], Iterable[str]],
) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        config: Config | None = ctx.params.get("config")
        if config is None:  # it can't be read
            return []
        try:
            return sorted(name for name in set(names(config)) if name.startswith(incomplete))
        except (DnmError, OSError):
            return []

    return complete


def _nodes(config: Config) -> list[str]:
    from datetime import UTC, datetime

    from dnm.run.registry import load_registry

    return list(load_registry(config, datetime.now(UTC)).nodes)


def _queues(config: Config) -> list[str]:
    return [policy.queue for policy in config.namespaces.values()]


def _events(config: Config) -> list[str]:
    from datetime import UTC, datetime

    from dnm.calendar.in_force import list_events
    from dnm.run.registry import load_registry

    return [one.name for one in list_events(config, load_registry(config, datetime.now(UTC)))]


nodes = _completes(_nodes)
queues = _completes(_queues)
namespaces = _completes(lambda config: config.namespaces)
events = _completes(_events)
resettable = _completes(lambda c: [*_nodes(c), *_queues(c), *c.node_types])
explainable = _completes(lambda c: [*_nodes(c), *_queues(c), *(f"{n}/" for n in c.namespaces)])
