"""What the state says by itself, without asking the cluster: when a run was last at work, and how
long nodes are idle. `dnm status` shows it, `dnm check` judges it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from dnm.model.config import Config
from dnm.model.printable import duration
from dnm.model.registry import LentNode, Phase, Registry
from dnm.model.value import Value
from dnm.plan.idle_gaps import learned_times


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


def idle_time(entry: LentNode, now: datetime) -> timedelta | None:
    """Returns for how long a node has been seen without pods that count; None: it has some."""
    return now - entry.idle_since if entry.idle_since else None


def time_to_return(
    config: Config, registry: Registry, entry: LentNode, now: datetime
) -> timedelta | None:
    """Returns how long an idle node still waits before it may go back; None: it is not idle, or
    does not serve a monitored namespace."""
    idle, policy = idle_time(entry, now), config.namespaces.get(entry.namespace)
    if idle is None or policy is None or entry.phase is not Phase.SERVING:
        return None
    timeout = learned_times(config, registry).get(policy.name, policy.reversion_idle)
    return max(timedelta(0), timeout - idle)
