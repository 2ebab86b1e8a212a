"""The pods of one node are asked to go, each once in a run, by the Eviction API.

A budget that says no is no failure: the next run asks again. What can't be asked is one, and does
not keep the others from being asked, unless several in a row get no answer: then nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dnm.model.errors import KubeError
from dnm.model.eviction import PodOnNode
from dnm.model.value import Value

_MOST_FAILURES = 3  # in a row


class Evictor(Protocol):
    """What it needs of the Kubernetes edge."""

    def read_pods_to_evict(self, node: str) -> Sequence[PodOnNode]: ...
    def evict(self, pod: PodOnNode) -> str: ...


class Asked(Value):
    """`asked`: pods that go. `why`: what was said of the first that does not. `errors`: of pods
    that could not be asked."""

    asked: int = 0
    why: str = ""
    errors: tuple[str, ...] = ()


def ask_pods(kube: Evictor, node: str, may_go_on: Callable[[], bool]) -> Asked:
    """Asks every pod that keeps the node and is not on its way already. Raises KubeError where they
    can't be read."""
    asked, in_a_row = 0, 0
    refused: list[str] = []
    errors: list[str] = []
    for pod in kube.read_pods_to_evict(node):
        if pod.is_terminating or not pod.is_work:
            continue
        if not may_go_on() or in_a_row == _MOST_FAILURES:
            break
        if pod.stays:
            refused.append(f"{pod.key} is of a NodeSet, and never evicted")
            continue
        try:
            why = kube.evict(pod)
        except KubeError as error:
            errors.append(str(error))
            in_a_row += 1
            continue
        in_a_row = 0
        asked += not why
        refused += [f"{pod.key} does not go: {why}"] if why else []
    return Asked(asked=asked, why=_first_of([*errors, *refused]), errors=tuple(errors))


def _first_of(said: Sequence[str]) -> str:
    more = f"; and {len(said) - 1} more" if len(said) > 1 else ""
    return f"{said[0]}{more}" if said else ""
