"""Questions that only an administrator can answer, and the edit that is possible without an answer.

dnm asks if limits and ledger don't show which nodes are lent. If a limit can't be written, dnm
leaves it as it is. In its queue and those below it, dnm adds no further node that would raise it.
All other limits change as usual."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.errors import QueueError
from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.yunikorn.ledger import Section
from dnm.queues.yunikorn.limits import current
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace

LEDGER_LOST = "the ledger of this instance is gone from the ConfigMap"
NEVER_WRITTEN = "the ConfigMap has no ledger of this instance"
NOT_OF_THIS_TEXT = "the ledger in the ConfigMap is not the one of this queue document"
OTHER_LEDGER_LOST = "another instance's ledger is gone from the ConfigMap"


def undecided(why: str, problem: str = LEDGER_LOST) -> QueueError:
    """Returns an error that asks the administrator whether the limits contain lent nodes."""
    return QueueError(
        f"{problem} while nodes are lent, and dnm can't decide whether the limits contain "
        f"them: {why}. Look at `dnm queues show`. If they do, run `dnm queues rebase --as total`, "
        "if not, `dnm queues rebase --as baseline`"
    )


def why_mixed(tree: DocumentTree, held: dict[str, list[LimitPlace]]) -> str:
    """Returns why it is unclear from the limits whether they contain the lent nodes."""
    if "neither" in held:
        place = held["neither"][0]
        text = current(tree, place)[0].strip()
        return f"{place.kind} {place.resource} of {place.queue} is {text}, which fits neither"
    if not held:
        return "the queues had no limits when the last run read them"
    if len(held) == 1:
        return "the document differs from the one that the last run recorded"
    first, second = held["with"][0], held["without"][0]
    return (
        f"{first.kind} {first.resource} of {first.queue} contains them, {second.kind} "
        f"{second.resource} of {second.queue} does not"
    )


def older_total(place: LimitPlace, text: str) -> QueueError:
    """Returns an error that asks about a limit with an amount that dnm wrote in an earlier lend."""
    return QueueError(
        f"{place.kind} {place.resource} of {place.queue} is {text.strip()}, which dnm itself wrote "
        "earlier, with lent nodes in it. An older export of the queue document may have been "
        "applied: apply the current one. If the limits are correct, look at `dnm queues show`. If "
        "they contain all nodes that are lent now, run `dnm queues rebase --as total`. If they "
        "contain none, run `dnm queues rebase --as baseline`"
    )


# --- numbers that can't be written -------------------------------------------------------------


def only_recorded(own: Section, recorded: Section) -> Section:
    """Returns the nodes of `own` that are also in `recorded`, the ledger. A node that has grown
    since it was recorded keeps its recorded size."""
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
    """Returns the nodes of `own`, without new ones that would raise a limit that dnm can't write
    (`stuck`). Also returns the queues that these new nodes serve, each with the reason."""
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
