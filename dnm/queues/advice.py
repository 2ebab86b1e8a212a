"""What `dnm check` warns of before dnm raises and lowers the limits of a site's queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.model.quantity import format_amount
from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.document import QueueDocument

_DELAYS = ("quota.preemption.delay", "preemption.quota.delay")  # of 1.9, of 1.8
_NO_DELAY = frozenset(("", "0", "0s", "0m", "0h"))


def warn_of_quota_preemption(document: QueueDocument, queues: Iterable[str]) -> tuple[str, ...]:
    """Queues whose pods YuniKorn (1.8 and later) would kill when their max is lowered."""
    partition = document.partition
    if partition is None or not partition.preemption.quotapreemptionenabled:
        return ()
    warnings = []
    for path in queues:
        for place in lineage(path):
            delay = _delay_of(document, place)
            if delay not in _NO_DELAY:
                warnings.append(
                    f"{path}: quota preemption is on ({place} has a delay of {delay}): pods above "
                    "a lowered max are killed after it. dnm never lowers below what is allocated, "
                    "but pods that start meanwhile can be hit"
                )
                break
    return tuple(warnings)


def _delay_of(document: QueueDocument, path: str) -> str:
    queue = document.tree.get(path)
    properties = (queue.properties or {}) if queue is not None else {}
    return next((properties[name].strip() for name in _DELAYS if name in properties), "")


def warn_of_gangs(document: QueueDocument, largest: Mapping[str, Resources]) -> tuple[str, ...]:
    """Queues with gang applications; `largest`: what the largest of each asks for."""
    warnings = []
    for path, ask in sorted(largest.items()):
        if not any(ask.values()) or path not in document.queues:
            continue
        told = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in ask.items())
        text = (
            f"{path}: gang applications run here, the largest asks for {told}: while it exists the "
            "max is not lowered below that"
        )
        tight = [
            place
            for place in lineage(path)
            if any(ask.get(name, 0) > amount for name, amount in document.queues[place].max.items())
        ]
        if tight:
            text += (
                f"; the max of {tight[0]} is smaller, so YuniKorn rejects it at once, its pods "
                "fail and never ask for nodes: raise the baseline"
            )
        warnings.append(text)
    return tuple(warnings)
