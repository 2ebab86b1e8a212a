"""The actions that a run skips because it could not write the limits of their queues."""

from __future__ import annotations

import logging

from dnm.model.plan import (
    Action,
    EvictPods,
    Fence,
    RelabelNode,
    ReturnNode,
    StartConversion,
)
from dnm.queues import unlimited_namespaces
from dnm.run.step import Step

log = logging.getLogger("dnm")


def limited_queues(step: Step) -> set[str]:
    """Returns the queues of all lent nodes and requests, except queues without limits."""
    registry = step.registry
    served = {node.queue for node in registry.nodes.values()}
    served |= {request.queue for request in registry.requests}
    return served - unlimited_namespaces(step.config)


def is_skipped(step: Step, action: Action) -> bool:
    """Returns whether the run skips the action because the limits of its queue could not be
    written. Logs a skipped action."""
    queues = _queues_of(step, action) & step.unwritten
    if queues:
        names = ", ".join(sorted(queues))
        word = type(action).__name__
        log.info("action=%s skipped='the limits of %s could not be written'", word, names)
    return bool(queues)


def _queues_of(step: Step, action: Action) -> set[str]:
    """Returns the queues whose limits must be written before the action."""
    nodes = step.registry.nodes
    match action:
        case StartConversion(request=request):
            return {request.queue}
        case RelabelNode(node=name, mark=mark):
            return {nodes[name].queue, mark.queue}
        case Fence(node=name) | EvictPods(node=name) | ReturnNode(node=name):
            return {nodes[name].queue}
        case _:
            return set()
