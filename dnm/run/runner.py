"""The one pass: lock, plan, actions, record. Nothing else. `planning.py` is the part before the
actions, which takes no lock and writes nothing anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.model.fault_points import fault_point
from dnm.model.plan import Outcome, Pass, Plan
from dnm.model.registry import Registry, RunRecord
from dnm.model.trust import check_trust
from dnm.run import actuator, snapshot
from dnm.run.actuator import Actuator, Clock
from dnm.run.planning import connect, exit_code_of, make_pass_plan, wall_clock
from dnm.run.registry import load_registry, save_registry

_LONGEST_LOOK = timedelta(minutes=5)  # what a run takes beside listening to its converters


class KubeEdge(snapshot.KubeReader, actuator.KubeWriter, Protocol):
    """The Kubernetes edge of a whole pass."""


class ConverterEdge(snapshot.ConverterReader, actuator.ConverterCaller, Protocol):
    """The converter edge of a whole pass."""

    def forget_output(self, kept: Container[str]) -> None: ...


Edges: TypeAlias = tuple[KubeEdge, ConverterEdge]
Connect: TypeAlias = Callable[[Config, Mapping[str, str]], Edges]


@contextmanager
def run_lock(config: Config, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds the lock beside the registry, or raises LockedError: at once, or where `on_wait` is
    given, after having called it and waited for as long as a run may take."""
    from filelock import FileLock, Timeout

    path = config.lock_path
    try:
        check_trust(path.parent)
        # Whoever may open it can hold it, and stop dnm for ever.
        lock = FileLock(path, timeout=0, mode=0o600)
        with fault_point("lock.acquire"):
            try:
                lock.acquire()
            except Timeout:
                if on_wait is None:
                    raise
                on_wait()
                lock.acquire(timeout=(config.check_interval + _LONGEST_LOOK).total_seconds())
    except Timeout as error:
        raise LockedError(f"another run holds the lock {path}; it is left to finish") from error
    except OSError as error:
        raise RegistryError(
            f"the lock {path} can't be taken ({error.strerror}): create the state directory "
            f"{path.parent} and let this user write there"
        ) from error
    try:
        yield
    finally:
        # The process ends soon, and its end releases the lock too.
        with suppress(OSError), fault_point("lock.release"):
            lock.release()


def run_pass(
    config: Config,
    environ: Mapping[str, str],
    should_stop: Callable[[], bool],
    clock: Clock = wall_clock,
    connect: Connect = connect,
) -> Pass:
    """`dnm run`: the whole pass under the lock."""
    with run_lock(config):
        _mark_begin(config)
        plan, edges = make_pass_plan(config, environ, clock, connect)
        outcome = Outcome(registry=plan.registry)
        if edges is not None:
            outcome = Actuator(config, *edges, should_stop, clock).apply_plan(plan)
            edges[1].forget_output(outcome.registry.open_calls)
        exit_code = exit_code_of(plan, outcome)
        _record(config, plan, outcome, exit_code, clock())
        return Pass(plan=plan, exit_code=exit_code, outcome=outcome)


def _mark_begin(config: Config) -> None:
    _set_time("lock.time", config.lock_path)


def _set_time(point: str, path: Path, seconds: float | None = None) -> None:
    """Now, or a moment since the epoch."""
    try:
        with fault_point(point):
            os.utime(path, None if seconds is None else (seconds, seconds))
    except OSError as error:
        raise RegistryError(
            f"the time of {path} can't be set ({error.strerror}): look at the disk that it is on, "
            "and let this user write there"
        ) from error


def _record(
    config: Config, plan: Plan, outcome: Outcome, exit_code: int, ended_at: datetime
) -> None:
    """Saves what the run saw and did; where nothing changed only the file's time is new."""
    before = outcome.registry.last_run
    record = RunRecord(
        exit_code=exit_code,
        acted_at=ended_at if outcome.actions else before.acted_at,
        actions=outcome.actions or before.actions,
        errors=(*plan.errors, *outcome.errors),
        queues=dict(plan.status),
        nodes={verdict.node: verdict.sentence for verdict in plan.nodes},
        pods_seen=before.pods_seen,
        pods_doubted_since=before.pods_doubted_since,
    )
    registry: Registry = msgspec.structs.replace(outcome.registry, last_run=record)
    if not save_registry(config.converted_nodes_path, registry):
        _set_time("registry.time", config.converted_nodes_path)


def change_registry(
    config: Config,
    change: Callable[[Registry], Registry],
    on_wait: Callable[[], None] | None = None,
) -> bool:
    """For the verbs of a person: changes the registry under the lock (`on_wait` as of run_lock) and
    says whether it did. The file's time stays that of the end of the last run."""
    path = config.converted_nodes_path
    with run_lock(config, on_wait):
        registry = load_registry(config, wall_clock())
        changed = change(registry)
        if changed == registry:
            return False
        before = os.stat(path).st_mtime if path.exists() else None
        is_saved = save_registry(path, changed)
        if before is not None:
            _set_time("registry.time", path, before)
        return is_saved
