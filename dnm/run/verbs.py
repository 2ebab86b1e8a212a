"""Changes of the registry by an administrator's commands. They hold the lock, wait until no run
acts, and record the change in the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.errors import LeaseError, LockedError
from dnm.model.history import Operation
from dnm.model.registry import Registry, run_name
from dnm.plan.hooks import Edit
from dnm.plan.lease import Actor, judge_lease
from dnm.plan.rule import rules_of
from dnm.record.recording import record_change, record_operation
from dnm.record.transitions import Cause
from dnm.run.lock import longest_run, run_lock
from dnm.run.move import check_existence, lease_words_of, move_registry
from dnm.run.recorded import open_history
from dnm.run.registry import load_registry, opened_state, save_registry
from dnm.run.state import State

_BEGIN_ANEW = ("resume", "takeover")
_LOOK_EVERY = 1.0  # seconds between checks for the end of a run elsewhere


def change_registry(
    config: Config,
    change: Callable[[Registry], Registry],
    on_wait: Callable[[], None] | None = None,
    operation: Operation | None = None,
) -> bool:
    """Calls `change` with the registry under the lock and saves the result. Returns whether it
    changed. Records `operation` in the history. Calls `on_wait` before it waits for another run."""
    begins_anew = operation is not None and operation.verb in _BEGIN_ANEW
    with acting_state(config, on_wait, begins_anew) as state:
        return change_in(config, state, change, operation)


def change_in(
    config: Config,
    state: State,
    change: Callable[[Registry], Registry],
    operation: Operation | None = None,
) -> bool:
    """Calls `change` with the registry, saves the result and returns whether that changed it."""
    now = datetime.now(UTC)
    registry = load_registry(config, now, state)
    changed = change(registry)
    if changed == registry:
        return False
    for rule in rules_of(config, changed):  # usage counts even if a command removes the node
        if rule.records:
            changed = rule.records(Edit(config=config, before=registry, after=changed, now=now))
    if operation is None:
        changed = record_change(registry, changed, _cause_at(config, now))
    else:
        changed = record_operation(registry, changed, operation, _cause_at(config, now))
    return _save_with_history(config, state, changed, now)


@contextmanager
def acting_state(
    config: Config, on_wait: Callable[[], None] | None = None, begins_anew: bool = False
) -> Iterator[State]:
    """Takes the lock and the Lease, and yields the registry's storage. Before it waits for another
    run, it calls `on_wait` if given. With `begins_anew`, a new registry may replace a lost one."""
    with run_lock(config, on_wait):
        give_up = time.monotonic() + longest_run(config).total_seconds()
        while True:
            with opened_state(config) as state:
                state.begins_anew = begins_anew
                try:
                    state.begin()
                except LockedError:
                    if on_wait is None or time.monotonic() > give_up:
                        raise
                else:
                    yield state
                    return
            on_wait()
            time.sleep(_LOOK_EVERY)


def move_registry_to(
    config: Config, kind: str, operation: Operation
) -> tuple[Registry | None, str]:
    """Moves the registry to a file or into Kubernetes. Returns the registry (None if it was there
    already) and a description of its new place. Raises LockedError at once if a run is active, and
    the errors of `move_registry`."""
    places = (
        replace(config, registry_storage="file"),
        replace(config, registry_storage="kubernetes"),
    )
    with run_lock(config), opened_state(places[0]) as file, opened_state(places[1]) as cluster:
        cluster.moves = True
        _check_mover(config, file, cluster)
        source, target = (file, cluster) if kind == cluster.kind else (cluster, file)
        check_existence(source, target)
        cluster.begin()
        now = datetime.now(UTC)
        moved = move_registry(config, source, target, operation, _cause_at(config, now))
        if moved is not None:
            with suppress(OSError):  # the registry keeps it until a run can write it
                open_history(config).append(moved.memory.unwritten, now)
        return moved, target.where


def _check_mover(config: Config, file: State, cluster: State) -> None:
    """Raises LeaseError if the Lease names another registry than the one that is being moved."""
    words = lease_words_of(file)
    actor = Actor(
        instance=config.instance_id, place=cluster.place, now=datetime.now(UTC),
        registry=Registry(lease_words=words), secret=cluster.registry,
    )  # fmt: skip
    if refusal := judge_lease(cluster.observe(), actor).refusal:
        raise LeaseError(refusal)


def note_operation(config: Config, state: State, operation: Operation) -> None:
    """Records in the history a command that changes something other than the registry."""
    now = datetime.now(UTC)
    registry = load_registry(config, now, state)
    changed = record_operation(registry, registry, operation, _cause_at(config, now))
    _save_with_history(config, state, changed, now)


def keep_ledger(config: Config, state: State, ledger: str | None) -> None:
    """Saves the limits' ledger in the registry. The next run compares the two copies of it."""
    registry = load_registry(config, datetime.now(UTC), state)
    system = config.quota_system
    last_run = replace(registry.last_run, ledger=ledger, ledger_system=system)
    save_registry(config, replace(registry, last_run=last_run), state)


def _cause_at(config: Config, now: datetime) -> Cause:
    return Cause(now=now, run=run_name(now), instance=config.instance_id)


def _save_with_history(config: Config, state: State, registry: Registry, now: datetime) -> bool:
    is_saved = save_registry(config, registry, state)
    with suppress(OSError):  # the registry keeps it until a run can write it
        open_history(config).append(registry.memory.unwritten, now)
    return is_saved
