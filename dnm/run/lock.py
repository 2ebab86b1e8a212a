"""The lock beside the registry: on one host and path one run is at work, or one verb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from dnm.model.config import Config
from dnm.model.errors import LockedError, RegistryError
from dnm.model.fault_points import fault_point
from dnm.model.trust import check_trust

_LONGEST_LOOK = timedelta(minutes=5)  # what a run takes beside listening to its converters


def longest_run(config: Config) -> timedelta:
    """Returns how long another run is waited for."""
    return config.check_interval + _LONGEST_LOOK


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
                lock.acquire(timeout=longest_run(config).total_seconds())
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
