"""What one pod of an event asks for, and whether any node here would take it, ever. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.calendar.windows import why_never
from dnm.model.calendar import CalendarEvent
from dnm.model.config import Config


def request_of(config: Config, event: CalendarEvent) -> dict[str, int]:
    """Returns the request of one pod, with what a pod that does not say it is taken to ask for."""
    return {**config.default_request, **event.request, "pods": 1}


def why_of_no_use(config: Config, event: CalendarEvent) -> str | None:
    """Says why the event can't bring a node here."""
    policy = config.namespaces.get(event.namespace)
    if policy is None:
        known = ", ".join(sorted(config.namespaces)) or "none"
        return (
            f"namespace = {event.namespace}: is not a monitored namespace; name it in "
            f"monitored_namespaces, or write one of {known}"
        )
    request = request_of(config, event)
    sizes = (config.node_types[one].size for one in policy.node_types if one in config.node_types)
    if event.pods and not any(_takes(size, request) for size in sizes):
        types = ", ".join(policy.node_types)
        return f"pods = {event.pods}: one of them fits no node type of {event.namespace} ({types})"
    return why_never(event)


def _takes(size: Mapping[str, int], request: Mapping[str, int]) -> bool:
    return all(amount <= size.get(name, 0) for name, amount in request.items() if name != "pods")
