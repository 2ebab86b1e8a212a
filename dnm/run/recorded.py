"""What the state says by itself, without asking the cluster: when a run was last at work, and which
brakes are on. `dnm status` shows it, `dnm check` judges it."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta

from dnm.model.config import Config
from dnm.model.printable import duration
from dnm.model.registry import Backoff, LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.brakes import counted_as_lent


class LastRun(Value):
    """When the last run began and ended; None: not known, or not yet."""

    began: datetime | None = None
    ended: datetime | None = None

    @property
    def took(self) -> timedelta | None:
        """None where it has not ended."""
        if self.began is None or self.ended is None or self.ended < self.began:
            return None
        return self.ended - self.began


class CapCount(Value):
    """How many nodes are lent or coming under a cap, and how many may be."""

    cap: str
    lent: int
    max: int


def read_last_run(config: Config) -> LastRun:
    """Returns the times of the lock file and of the registry, which a run writes at its end."""

    def changed(path: os.PathLike[str]) -> datetime | None:
        try:
            return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        except OSError:
            return None

    return LastRun(began=changed(config.lock_path), ended=changed(config.converted_nodes_path))


def warn_of_last_run(config: Config, run: LastRun, now: datetime) -> list[str]:
    """Returns a sentence for each sign that runs don't come, or don't end, as they should."""
    if run.began is None:
        return ["no run yet: start `dnm run` by hand once, then by cron or the systemd timer"]
    age = duration(now - run.began)
    if run.took is None:
        return [
            f"the run that began {age} ago has not ended: it is at work or was "
            "killed; the next run goes on from where it was"
        ]
    if now - run.began > 3 * config.check_interval:
        return [
            f"the last run began {age} ago, more than three times "
            f"check_interval_seconds: is the timer on? (systemctl status dnm.timer, crontab -l)"
        ]
    return []


def cooldown_left(config: Config, registry: Registry, now: datetime) -> timedelta:
    """Returns how long conversions still pause after the last one; zero where they don't."""
    last = registry.last_conversion
    if last is None or last > now:  # later: of a wrong clock
        return timedelta(0)
    return max(timedelta(0), last + config.global_cooldown - now)


def backoffs_in_force(registry: Registry, now: datetime) -> dict[str, Backoff]:
    """Returns the back-offs, by node type, that hold conversions back now."""
    return {name: backoff for name, backoff in registry.backoffs.items() if backoff.until > now}


def idle_time(entry: LentNode, now: datetime) -> timedelta | None:
    """Returns for how long a node has been seen without pods that count; None: it has some."""
    return now - entry.idle_since if entry.idle_since else None


def time_to_return(config: Config, entry: LentNode, now: datetime) -> timedelta | None:
    """Returns how long an idle node still waits before it may go back; None: it is not idle, or
    does not serve a monitored namespace."""
    idle, policy = idle_time(entry, now), config.namespaces.get(entry.namespace)
    if idle is None or policy is None or entry.phase is not Phase.SERVING:
        return None
    return max(timedelta(0), policy.reversion_idle - idle)


def count_caps(config: Config, registry: Registry) -> list[CapCount]:
    """Returns every cap that is set: of all nodes, of each type, of each namespace."""
    lent = counted_as_lent(config, registry, {})
    types = Counter(node_type for node_type, _ in lent)
    namespaces = Counter(namespace for _, namespace in lent)
    caps: list[tuple[str, int, int | None]] = [("all", len(lent), config.max_converted_nodes)]
    caps += [
        (f"type {one.name}", types[one.name], one.max_nodes) for one in config.node_types.values()
    ]
    caps += [
        (f"namespace {one.name}", namespaces[one.name], one.max_nodes)
        for one in config.namespaces.values()
    ]
    return [CapCount(cap=cap, lent=n, max=most) for cap, n, most in caps if most is not None]
