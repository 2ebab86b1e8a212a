"""Pods that do not exist because a quota refuses them. dnm counts them, too, as demand. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from dnm.demand.pending import NotCounted, text_time
from dnm.model.cluster import RefusedPods
from dnm.model.pod import Pod


def list_refused(
    refused: Sequence[RefusedPods], now: datetime
) -> Iterator[tuple[Pod, int, NotCounted | None]]:
    """Yields a pod of each group of refused pods, their number, and why they do not count. If the
    quota admits them now, they do not count until `retry_until`, when their controller has tried
    again. If they do not exist after that, they count like pending pods."""
    for pods in refused:
        why = NotCounted.BEYOND if pods.pod.shape.is_cut else None
        if pods.is_invalid or pods.is_unhelped:
            reason = NotCounted.INVALID if pods.is_invalid else NotCounted.UNHELPED
            yield pods.pod, pods.count, reason
            continue
        is_due = pods.retry_until >= text_time(now)
        yield pods.pod, pods.count, NotCounted.RETRY if is_due else why
