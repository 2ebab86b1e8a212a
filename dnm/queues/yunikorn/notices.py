"""Notices for administrators: changes by other clients, and limits that miss their targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dnm.model.cluster import QueueLimits
from dnm.model.quantity import INT64_MAX
from dnm.model.queue_edit import LimitNews, QueueWants
from dnm.queues.yunikorn.ledger import LentAmounts
from dnm.queues.yunikorn.limits import Baseline, current
from dnm.queues.yunikorn.quantities import format_yunikorn
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace


def news_of(
    tree: DocumentTree, baselines: Mapping[LimitPlace, Baseline], lent: LentAmounts
) -> tuple[LimitNews, ...]:
    """Returns what other clients have changed in the limits since dnm last wrote the document."""
    reapplied: dict[str, list[str]] = {}
    news = []
    for place, baseline in sorted(baselines.items()):
        limit = f"{place.kind} {place.resource}"
        if baseline.news == "reapplied":
            reapplied.setdefault(place.queue, []).append(limit)
        elif baseline.news == "applied":
            text = (
                f"{limit} has a new baseline, {baseline.text.strip()} instead of "
                f"{baseline.before.strip()}, as after an applied manifest: lent nodes are added"
            )
            news.append(LimitNews(queue=place.queue, text=text))
        elif baseline.news == "changed" and not baseline.is_frozen:
            text, amount = current(tree, place)
            total = text.strip()
            note = (
                f"{limit} was changed to {total}, which is its new total; without "
                f"lent nodes that is {baseline.text.strip()}"
            )
            meant = amount + lent.at(place)
            if meant <= INT64_MAX:
                added = format_yunikorn(place.resource, lent.at(place), text).strip()
                meant_text = format_yunikorn(place.resource, meant, text).strip()
                note += (
                    f". If {total} was meant without them, write {meant_text}, which includes the "
                    f"{added} that is lent now"
                )
            news.append(LimitNews(queue=place.queue, text=note))
    resets = [
        LimitNews(
            queue=queue,
            text=f"back at its baseline ({', '.join(limit)}), as after a manifest was applied "
            "again: lent nodes are added again",
            is_reset=True,
        )
        for queue, limit in sorted(reapplied.items())
    ]
    return (*resets, *news)


def blocked_of(stuck: Mapping[LimitPlace, str], waiting: Mapping[str, str]) -> dict[str, str]:
    """Returns by queue what an administrator has to fix: a limit that dnm can't write (`stuck`), or
    nodes that limits do not contain for that reason (`waiting`)."""
    blocked = {queue: f"nodes are not counted: {why}" for queue, why in sorted(waiting.items())}
    for place, why in sorted(stuck.items()):
        blocked.setdefault(place.queue, f"a limit can't be changed: {why}")
    return blocked


def held_of(
    tree: DocumentTree,
    held: Mapping[LimitPlace, str],
    frozen: Iterable[LimitPlace],
    wants: QueueWants,
    blocked: Mapping[str, str],
) -> dict[str, str]:
    """Returns for each queue the reasons why its limits differ from their targets."""
    reasons: dict[str, list[str]] = {queue: [why] for queue, why in blocked.items()}
    for place in sorted(frozen):
        reasons.setdefault(place.queue, []).append(
            f"{place.kind} {place.resource} was set to {tree.places[place].text.strip()}, less "
            "than the lent amount. It stays so until nothing is lent, or run `dnm queues rebase "
            f"--queue {place.queue} --as baseline`"
        )
    for place, reason in sorted(held.items()):
        reasons.setdefault(place.queue, []).append(reason)
    for queue in sorted(wants.nodes):
        if queue not in tree.queues:
            reasons.setdefault(queue, []).append(
                "is not in the queue document: only the limits of queues above it grow"
            )
    return {queue: "; ".join(sentences) for queue, sentences in reasons.items()}


def limits_of(
    limits: Mapping[str, QueueLimits], frozen: Iterable[LimitPlace]
) -> Mapping[str, QueueLimits]:
    """Returns the limits. Marks `frozen` ones as `fixed`, because lending adds nothing to them."""
    fixed: dict[str, set[str]] = {}
    for place in frozen:
        if place.kind == "max":
            fixed.setdefault(place.queue, set()).add(place.resource)
    if not fixed:
        return limits
    return {
        path: msgspec.structs.replace(
            limit, fixed=frozenset(fixed.get(path, ())) & limit.max.keys()
        )
        for path, limit in limits.items()
    }
