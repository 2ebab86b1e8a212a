"""`dnm status --health`: one word for a monitor, with the exit codes of its plug-ins.

    ok       0   runs come and succeed
    failed   1   the last run failed in part; the next one tries again
    stale    2   no run has ended for three intervals
    person   2   something waits for a person: a failed node, or a run that asks

Behind a word other than ok stands why. Who holds the lock, and since when, is said with each of
them: another user's process there stops dnm, whatever the last run was.
"""

from __future__ import annotations

from datetime import datetime

from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.run.lock import find_lock_holder
from dnm.run.recorded import read_last_run, warn_of_last_run
from dnm.run.registry import load_registry, opened_state

_OK, _WARNING, _CRITICAL = 0, 1, 2


def print_health(config: Config, now: datetime) -> int:
    """Prints it and returns the exit code."""
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
    """Returns the word, why, and the exit code; `elsewhere`: who is at work there."""
    times, run = read_last_run(config), registry.last_run
    holder = find_lock_holder(config.lock_path)
    held = [f"{config.lock_path} is held by {holder.text}"] if holder else []
    held += [elsewhere] if elsewhere else []
    if holder is not None and holder.is_foreign:
        return "person", f"{held[0]}, which is no run of dnm: nothing is done", _CRITICAL
    is_old = times.began is None or now - times.began > 3 * config.check_interval
    if is_old:
        return "stale", "; ".join([*warn_of_last_run(config, times, now), *held]), _CRITICAL
    failed = [f"{name} has failed: {error}" for name, error in registry.failed_nodes.items()]
    if failed or run.exit_code == ExitCode.NEEDS_PERSON:
        return "person", "; ".join([*(failed or run.errors), *held]), _CRITICAL
    if run.exit_code != ExitCode.OK:
        return "failed", "; ".join([*run.errors, *held]), _WARNING
    return "ok", "; ".join(held), _OK
