"""Numbers of the document that can't be written, and the nodes that can't be counted for them.

A number that a person has to mend holds up its own queue and those below it, and nothing else: it
stays as it is, no further node is counted where that would raise it, and every other limit moves.
"""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.ledger import Section
from dnm.queues.tree import LimitPlace


def only_recorded(own: Section, recorded: Section) -> Section:
    """Returns what is lent without what is not in the limits yet: nodes that are new, and what
    others have grown by."""
    queues: dict[str, dict[str, Resources]] = {}
    for queue, nodes in own.queues.items():
        before = recorded.queues.get(queue, {})
        kept = {node: before[node] for node in nodes if node in before}
        if kept:
            queues[queue] = kept
    return Section(queues=queues, guaranteed=own.guaranteed)


def hold_back(
    own: Section, recorded: Section, stuck: Mapping[LimitPlace, str]
) -> tuple[Section, dict[str, str]]:
    """Returns what is lent without the nodes that would raise a limit that is stuck, and the queues
    that they serve, each with why."""
    held: dict[str, str] = {}
    queues = dict(own.queues)
    settled = only_recorded(own, recorded).queues
    for queue, nodes in own.queues.items():
        kept = settled.get(queue, {})
        new = {resource for node, size in nodes.items() if kept.get(node) != size
               for resource in size}  # fmt: skip
        path = lineage(queue)
        why = [why for place, why in stuck.items() if place.queue in path and place.resource in new]
        if why:
            held[queue] = why[0]
            queues.pop(queue)
            if kept:
                queues[queue] = kept
    return Section(queues=queues, guaranteed=own.guaranteed), held
