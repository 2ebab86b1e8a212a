"""Nodes whose conversion to Kubernetes failed are left alone for a while. Pure.

The rule: a failure costs two boots and the wait of somebody's pods, and a machine that is broken
fails again. After each failure in a row it rests for twice as long, from twice `min_idle_seconds`
to a day; so the next call takes another node at once, and one that has healed comes back by itself.
A conversion that succeeds forgets them all; a person's `--node-name` goes before. The journal's
facts carry the count from one conversion of a node to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dnm.converters.journal import Journal
from dnm.converters.select import Judged, ListVerdict, format_duration

LONGEST_REST = timedelta(days=1)
_COUNT, _LAST = "failures", "failed_at"  # keys of the journal's facts


def carry_over(last: Journal | None) -> dict[str, str]:
    """Returns what the next conversion of the node is to know of the failures before it."""
    facts = last.facts if last else {}
    return {key: facts[key] for key in (_COUNT, _LAST) if key in facts}


def count_failure(journal: Journal, now: datetime) -> dict[str, str]:
    """Returns the facts after one more failure in a row."""
    return {_COUNT: str(_failures(journal) + 1), _LAST: now.isoformat()}


NO_FAILURE: Mapping[str, str] = {_COUNT: "0"}


def rests_until(journal: Journal, shortest: timedelta) -> datetime | None:
    """Returns until when the node is left alone; None: its last conversion did not fail, or nobody
    can tell when it did."""
    failures = _failures(journal)
    try:
        failed_at = datetime.fromisoformat(journal.facts.get(_LAST, ""))
    except ValueError:
        return None
    if failures < 1 or failed_at.tzinfo is None:
        return None
    doubled: int = 2 ** min(failures, 16)
    return failed_at + min(shortest * doubled, LONGEST_REST)


def _failures(journal: Journal) -> int:
    text = journal.facts.get(_COUNT, "0")
    return int(text) if text.isascii() and text.isdecimal() else 0


def hold_failed(
    judged: Sequence[Judged],
    journals: Mapping[str, Journal],
    shortest: timedelta,
    now: datetime,
) -> tuple[Judged, ...]:
    """Returns the verdicts, where a node that rests after a failure is not to be had."""
    return tuple(_held(one, journals.get(one.node.name), shortest, now) for one in judged)


def _held(one: Judged, journal: Journal | None, shortest: timedelta, now: datetime) -> Judged:
    until = rests_until(journal, shortest) if journal else None
    if journal is None or until is None or now >= until or one.verdict is ListVerdict.SKIP:
        return one
    failures = _failures(journal)
    times = "" if failures == 1 else f" {failures} times in a row"
    why = f" ({journal.error})" if journal.error else ""
    reason = f"its conversion failed{times}{why}: left alone for {format_duration(until - now)}"
    return msgspec.structs.replace(one, verdict=ListVerdict.SKIP, reason=reason)
