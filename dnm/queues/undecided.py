"""The question to a person where limits and ledger don't tell what is lent. Pure."""

from __future__ import annotations

from dnm.model.errors import QueueError
from dnm.queues.baselines import current
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
    """Returns the question about a limit that is an older state's."""
    return undecided(
        f"{place.kind} {place.resource} of {place.queue} is {text.strip()}, which dnm itself has "
        "written earlier, with other nodes in it; if it contains some of the lent nodes, first "
        "write it as it is without any",
        "the queue document was changed, as by an older export,",
    )
