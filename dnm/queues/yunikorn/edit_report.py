"""The report of an edit: the numbers that it changes, with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import count_of
from dnm.model.queue_edit import LimitChange
from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.yunikorn.ledger import Section
from dnm.queues.yunikorn.limits import Baseline
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace

_LONGEST_LIST = 200  # characters


def changes_of(
    tree: DocumentTree,
    texts: Mapping[LimitPlace, str],
    baselines: Mapping[LimitPlace, Baseline],
    sections: tuple[Mapping[str, Section], Mapping[str, Section]],
) -> tuple[LimitChange, ...]:
    """Returns every limit that the edit changes, before and after it, with the reason. `sections`
    are the nodes that the ledgers have before and after the edit."""
    if not texts:
        return ()
    counted = tuple(_nodes_by_queue(section.values()) for section in sections)
    return tuple(
        LimitChange(
            queue=place.queue,
            kind=place.kind,
            resource=place.resource,
            before=tree.places[place].text.strip(),
            after=text.strip(),
            why=_why_changed(baselines[place], *(nodes.get(place.queue, {}) for nodes in counted)),
        )
        for place, text in sorted(texts.items())
    )


def _nodes_by_queue(sections: Iterable[Section]) -> dict[str, dict[str, Resources]]:
    """Returns the nodes that each queue's limits contain, with those of the queues below."""
    limits: dict[str, dict[str, Resources]] = {}
    for section in sections:
        for queue, nodes in section.queues.items():
            for path in lineage(queue):
                limits.setdefault(path, {}).update(nodes)
    return limits


_NEWS = {
    "reapplied": "the queue document was applied again without lent nodes",
    "applied": "the queue document was applied with a new baseline",
    "changed": "the limit was changed manually",
}


def _why_changed(
    baseline: Baseline, before: Mapping[str, Resources], after: Mapping[str, Resources]
) -> str:
    """Returns why a limit changes, e.g. which nodes it newly contains or no longer contains."""
    resized = [name for name in before.keys() & after.keys() if before[name] != after[name]]
    parts = [
        sentence.format(_host_list(names))
        for names, sentence in (
            (after.keys() - before.keys(), "it now contains {}"),
            (before.keys() - after.keys(), "it no longer contains {}"),
            (resized, "the size of {} has changed"),
        )
        if names
    ]
    if baseline.news:
        parts.append(_NEWS[baseline.news])
    return "; ".join(parts) or "a postponed change is possible now"


def _host_list(names: Iterable[str]) -> str:
    text = fold_hostlist(names)
    return text if len(text) <= _LONGEST_LIST else count_of(len(set(names)), "node")
