"""`dnm status --health`: one word for a monitor, with the exit codes of a monitoring plug-in.

    ok       0   runs happen and succeed
    failed   1   the last run failed in part; the next one tries again
    warning  1   runs work as far as they can, but an administrator should act
    stale    2   no run has ended for three intervals
    person   2   an administrator must act: a failed node, a question of a run, a lost registry

After each word except ok, the reason follows. The holder of the lock and its start are always
reported, because dnm does nothing while a process of another user holds the lock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from dnm.model.amounts import shown_amount
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.hostlist import fold_hostlist
from dnm.model.printable import count_of, duration, printable
from dnm.model.registry import Registry
from dnm.plan.breaker import active_backoffs
from dnm.plan.counting import count_missing, count_missing_of_floor
from dnm.run.lock_holder import LockHolder, find_lock_holder
from dnm.run.recorded import LastRun, read_last_run
from dnm.run.registry import load_registry, opened_state

_OK, _WARNING, _CRITICAL = 0, 1, 2
_TICK = timedelta(seconds=1)  # the possible delay of the kernel's time of a process
_LONG = timedelta(hours=1)  # a long wait; the alert has the same limit


def print_health(config: Config, now: datetime) -> int:
    """Prints the state of dnm as one word for a monitor, with the reason. Returns the exit code."""
    try:
        with opened_state(config) as state:
            registry = load_registry(config, now, state)
            word, why, exit_code = judge_health(config, registry, now, state.holder)
    except DnmError as error:
        word, why, exit_code = "person", str(error), _CRITICAL
    print(f"{word}: {printable(why)}" if why else word)
    return exit_code


def judge_health(
    config: Config, registry: Registry, now: datetime, elsewhere: str = ""
) -> tuple[str, str, int]:
    """Returns the word for the monitor, its reason and the exit code. `elsewhere` describes an
    active run on another host, or is empty."""
    times, run = read_last_run(config), registry.last_run
    holder = find_lock_holder(config.lock_path)
    held = [f"{config.lock_path} is held by {holder.text}"] if holder else []
    held += [elsewhere] if elsewhere else []
    if holder is not None and holder.is_foreign:
        return "person", f"{held[0]}, which is not a run of dnm: dnm does nothing", _CRITICAL
    # A run that begins again and again without an end is as bad as no run.
    last = times.began and min(times.began, times.ended or times.began)
    if last is None or now - last > 3 * config.check_interval:
        late = warn_of_last_run(config, times, now, at_work(config, times))
        return "stale", "; ".join([*late, *held]), _CRITICAL
    failed = [f"{name} has failed: {error}" for name, error in registry.failed_nodes.items()]
    if registry.pause is not None and registry.pause.is_after_loss:
        failed.append(registry.pause.reason)
    if failed or run.exit_code == ExitCode.NEEDS_PERSON:
        return "person", "; ".join([*(failed or run.errors), *held]), _CRITICAL
    if run.exit_code != ExitCode.OK:
        return "failed", "; ".join([*run.errors, *held]), _WARNING
    if troubles := [
        *_warn_of_attempts(config, registry, now),
        *warn_of_quiet(config, registry, now),
    ]:
        return "warning", "; ".join([*troubles, *held]), _WARNING
    return "ok", "; ".join(held), _OK


def _warn_of_attempts(config: Config, registry: Registry, now: datetime) -> Iterator[str]:
    """Yields a sentence for each failed return, node type in back-off, and claim left in Slurm."""
    for name, entry in registry.nodes.items():
        if entry.failed_attempts and entry.owner == config.instance_id:
            yield f"{name} is not returned to Slurm: {entry.failed_attempts}"
    for node_type, backoff in active_backoffs(registry, now).items():
        yield (
            f"type {node_type} lends no node for {duration(backoff.until - now)}: "
            f"{count_of(backoff.failures, 'attempt')} failed: {backoff.last_error}"
        )
    for name, claim in registry.claimed.items():
        if claim.since is not None and claim.since <= now - config.convert_timeout:
            yield f"{name} {claim.why}"


def warn_of_quiet(config: Config, registry: Registry, now: datetime) -> list[str]:
    """Returns a sentence for each problem that does not make a run fail, but needs attention."""
    resets = registry.last_run.resets
    return [
        *([resets.sentence] if resets and resets.is_repeated(now) else []),
        *(line for queue in config.queues for line in _warn_of_queue(queue, registry, now)),
        *_warn_of_missing(config, registry, now),
        *_warn_of_other_instances(config, registry),
    ]


def _warn_of_queue(queue: str, registry: Registry, now: datetime) -> Iterator[str]:
    status = registry.last_run.queues.get(queue)
    if status is None:
        return
    for resource, lent in status.lent.items():
        limit = status.limit.get(resource, lent)
        if status.is_judged and limit < lent:
            yield (
                f"{queue}: its {resource} limit {shown_amount(resource, limit)} is below the "
                f"{shown_amount(resource, lent)} that are lent to it, because another client set "
                "it: raise it, or `dnm return` nodes that it can't use"
            )
    if status.waits_since:
        waited = now - datetime.fromisoformat(status.waits_since)
        if waited > _LONG:
            yield (
                f"{queue}: a pod has been pending for {duration(waited)}: "
                f"`dnm explain {queue}` shows why"
            )


def _warn_of_missing(config: Config, registry: Registry, now: datetime) -> Iterator[str]:
    for order in registry.orders:
        missing = count_missing(order, registry)
        if missing and order.since <= now - config.convert_timeout and now < order.until:
            why = f": {order.waiting_reason}" if order.waiting_reason else ""
            yield f"order {order.id} is short of {count_of(missing, 'node')}{why}"
    for queue in config.queues:
        if missing := count_missing_of_floor(queue, registry):
            floor = registry.last_run.queues[queue].floor
            yield (
                f"{queue}: {count_of(missing, 'node')} of the {floor} that min_nodes or an event "
                f"requires are missing: `dnm explain {queue}` shows why"
            )


def _warn_of_other_instances(config: Config, registry: Registry) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for name, entry in registry.nodes.items():
        if entry.owner != config.instance_id:
            names.setdefault(entry.owner, []).append(name)
    for owner, of in names.items():
        were = "was" if len(of) == 1 else "were"
        yield (
            f"{fold_hostlist(of)} {were} lent by the instance {owner}, and this one, "
            f"{config.instance_id}, leaves them alone: if instance_id was changed, change it back "
            "until they are back in Slurm"
        )


def at_work(config: Config, run: LastRun) -> LockHolder | None:
    """Returns the process of the last run while that run is active (holds the lock), else None."""
    if run.began is None or run.took is not None:
        return None
    holder = find_lock_holder(config.lock_path)
    is_it = holder and (holder.since is None or holder.since <= run.began + _TICK)
    return holder if is_it else None


def warn_of_last_run(
    config: Config, run: LastRun, now: datetime, holder: LockHolder | None = None
) -> list[str]:
    """Returns a sentence for each sign that runs do not start or end. `holder` is the process of
    the last run, if that run is still active."""
    if run.began is None:
        return ["no run yet: start `dnm run` manually once, then by cron or the systemd timer"]
    age = duration(now - run.began)
    is_old = now - run.began > 3 * config.check_interval
    if holder is not None:
        return [f"the run that began {age} ago is still active: {holder.text}"] if is_old else []
    if run.ended is None:
        return [f"the run that began {age} ago is the last; dnm cannot tell whether it ended"]
    if run.took is None:
        return [
            f"the run that began {age} ago has not ended, and no process here executes "
            "it: a signal, a kill or an error ended it (see the log); the next run continues "
            "where it stopped"
        ]
    if is_old:
        return [
            f"the last run began {age} ago, more than three times "
            f"check_interval_seconds: is the timer on? (systemctl status dnm.timer, crontab -l)"
        ]
    return []
