"""The reads of single namespaces. One that does not answer costs a request time-out, so a run waits
for a few of them only. It reads them in another order than the last run did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from dnm.kube.requests import ApiRequests
from dnm.model.errors import KubeError
from dnm.model.turns import in_turn

T = TypeVar("T")
MOST_SLOW = 2  # twice as many for namespaces that the run has read before


@contextmanager
def reading(api: ApiRequests, namespace: str) -> Iterator[None]:
    """Raises KubeError without a read if the run has waited too long for this namespace, or for
    several others."""
    most = MOST_SLOW * (2 if namespace in api.answered else 1)
    if namespace in api.slow:
        raise KubeError(api.slow[namespace])
    if len(api.slow) >= most:
        unread, *slow = (
            f"namespace {name}" if name else "a list of the whole cluster"
            for name in (namespace, *sorted(api.slow)[:MOST_SLOW])
        )
        raise KubeError(
            f"{unread} was not read in this run, because the reads of {' and '.join(slow)} took "
            f"too long: {min(api.slow.values())}"
        )
    began = time.monotonic()
    try:
        yield
    except KubeError as error:
        if time.monotonic() - began > api.session.timeout / 2:
            api.slow[namespace] = str(error)
        raise
    api.answered.add(namespace)


def read_each(
    api: ApiRequests, namespaces: Iterable[str], read: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """Returns what `read` returns for each namespace, and the errors of those it could not read."""
    found: dict[str, T] = {}
    errors: dict[str, str] = {}
    for namespace in in_turn(namespaces, int(time.time() // 60)):
        try:
            with reading(api, namespace):
                found[namespace] = read(namespace)
        except KubeError as error:
            errors[namespace] = str(error)
    return dict(sorted(found.items())), dict(sorted(errors.items()))
