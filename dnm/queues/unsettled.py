"""What only a person can settle, and what is done until then. Pure.

Where limits and ledger don't tell what is lent, he is asked. A number that can't be written holds
up its own queue and those below it, and nothing else: it stays as it is, no further node is counted
where that would raise it, and every other limit moves.
"""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.errors import QueueError
from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.ledger import Section
from dnm.queues.limits import current
from dnm.queues.tree import DocumentTree, LimitPlace

GONE = "the ledger of this instance is gone from the ConfigMap"
NEVER_WRITTEN = "the ConfigMap has no ledger of this instance"
NOT_OF_THIS_TEXT = "the ledger in the ConfigMap is not the one of this queue document"
OTHERS = "another instance's ledger is gone from the ConfigMap"


def undecided(why: str, what: str = GONE) -> QueueError:
    """Returns the question to a person, with what he can answer."""
    return QueueError(
        f"{what} while nodes are lent, and the limits don't tell whether they contain them: {why}. "
        "Look at `dnm queues show`, then say "
        "`dnm queues rebase --as total` if they do or `dnm queues rebase --as baseline` if not"
    )


def why_mixed(tree: DocumentTree, held: dict[str, list[LimitPlace]]) -> str:
    """Says what of the limits that nodes move tells nothing."""
    if "neither" in held:
        place = held["neither"][0]
        text = current(tree, place)[0].strip()
        return f"{place.kind} {place.resource} of {place.queue} is {text}, which fits neither"
    if not held:
        return "they had no limits when they were last seen"
    if len(held) == 1:
        return "the document is another one than the last run has noted"
    first, second = held["with"][0], held["without"][0]
    return (
        f"{first.kind} {first.resource} of {first.queue} contains them, {second.kind} "
        f"{second.resource} of {second.queue} does not"
    )


def older_total(place: LimitPlace, text: str) -> QueueError:
    """Returns the question about a limit that equals a earlier total."""
    return QueueError(
        f"{place.kind} {place.resource} of {place.queue} is {text.strip()}, which dnm itself has "
        "written earlier, with lent nodes in it: an older export of the queue document may have "
        "been applied. Apply the current one. If the limits are correct, look at `dnm queues show` "
        "and run `dnm queues rebase --as total` if they contain all nodes that are lent now, or "
        "`dnm queues rebase --as baseline` if they contain none"
    )


# --- numbers that can not be written -----------------------------------------------------------


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
