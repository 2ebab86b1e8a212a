"""The back-off of a node type: after failed conversions the next one waits longer and asks for
fewer nodes. A node that joins ends it. And the cooldown after any conversion. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from dnm.model.config import Config
from dnm.model.registry import Backoff, Registry
from dnm.model.value import Value

LONGEST_BACKOFF = timedelta(hours=1)


class ConversionResult(Value):
    """How a conversion of a node type went: a node of it has joined, or `error` says what failed
    for `count` nodes."""

    node_type: str
    count: int = 1
    error: str = ""


def backoff_delay(config: Config, failures: int) -> timedelta:
    """Doubling from one check interval, an hour at most."""
    doubled: int = 2 ** min(failures, 12)
    return min(config.check_interval * doubled, LONGEST_BACKOFF)


def with_failure(
    config: Config, before: Backoff | None, asked: int, now: datetime, error: str
) -> Backoff:
    """After a failed conversion: the next one waits longer and asks for fewer."""
    failures = (before.failures if before else 0) + 1
    most = min(asked, before.ask_at_most) if before else asked
    return Backoff(
        failures=failures,
        until=now + backoff_delay(config, failures),
        ask_at_most=max(1, most // 2),
        last_error=error,
        since=now,
    )


def after_conversions(
    config: Config,
    backoffs: Mapping[str, Backoff],
    results: Iterable[ConversionResult],
    now: datetime,
) -> dict[str, Backoff]:
    """The back-offs after this look's results, in their order. A type fails once in a look, however
    many nodes it was: they were one conversion."""
    changed = dict(backoffs)
    failed: set[str] = set()
    for result in results:
        node_type = result.node_type
        if not result.error:
            changed.pop(node_type, None)
        elif node_type not in failed:
            failed.add(node_type)
            changed[node_type] = with_failure(
                config, changed.get(node_type), result.count, now, result.error
            )
    return changed


def cooldown_end(config: Config, registry: Registry, now: datetime) -> datetime | None:
    """Returns when the pause after the last conversion is over; None: there is none now."""
    last = registry.last_conversion
    # A moment in the future was written by a host whose clock was wrong: it brakes nothing.
    if last is None or not last <= now < last + config.global_cooldown:
        return None
    return last + config.global_cooldown


def backoffs_in_force(registry: Registry, now: datetime) -> dict[str, Backoff]:
    """Returns the back-offs, by node type, that hold conversions back now."""
    return {name: backoff for name, backoff in registry.backoffs.items() if now < backoff.until}
