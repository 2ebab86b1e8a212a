"""Pods of which dnm does not understand what they wait for: in words, and for Events. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import itemgetter

import msgspec

from dnm.model.config import Config
from dnm.model.plan import Plan, WaitingPods
from dnm.model.pod import Pod
from dnm.model.pod_waits import PodWaits
from dnm.model.printable import count_of
from dnm.model.value import Unreadable
from dnm.plan.inputs import Inputs
from dnm.plan.waiting_pods import MOST_KINDS

_MOST_NOTES = 10


def with_doubts(plan: Plan, inputs: Inputs) -> Plan:
    """Returns the plan with what dnm does not understand of pods that wait, and for whom that is
    told."""
    waits, pods = inputs.snapshot.waits, inputs.snapshot.pods
    if waits is None or isinstance(pods, Unreadable) or not waits.doubts:
        return plan
    notes = (*plan.notes, *tell_doubts(inputs.config, waits, pods.pods))
    last_run = msgspec.structs.replace(plan.registry.last_run, notes=notes)
    return msgspec.structs.replace(
        plan,
        notes=notes,
        registry=msgspec.structs.replace(plan.registry, last_run=last_run),
        waiting=(*plan.waiting, *_list_doubted(inputs.config, waits, pods.pods)),
    )


def tell_doubts(config: Config, waits: PodWaits, pods: Iterable[Pod]) -> tuple[str, ...]:
    """Returns a line for each doubt, of each namespace: how many pods, and one of them. One of each
    namespace comes before the second of any, for a tenant makes as many doubts as he likes."""
    turns: Counter[str] = Counter()
    told: list[tuple[int, str]] = []
    for why, many in _by_doubt(config, waits, pods):
        first = many[0]
        turns[first.namespace] += 1
        line = f"{count_of(len(many), 'pod')} like {first.namespace}/{first.name}: {why}"
        told.append((turns[first.namespace], line))
    lines = [line for _, line in sorted(told, key=itemgetter(0))]
    more = len(lines) - _MOST_NOTES
    return (*lines[:_MOST_NOTES], *([f"and {more} more of that kind"] if more > 0 else []))


def _list_doubted(config: Config, waits: PodWaits, pods: Iterable[Pod]) -> tuple[WaitingPods, ...]:
    """Returns one for each doubt because of which pods ask for nothing, a few of each namespace."""
    found: dict[str, list[WaitingPods]] = {}
    for why, many in _by_doubt(config, waits, pods):
        first = many[0]
        of_namespace = found.setdefault(first.namespace, [])
        if first.devices and len(of_namespace) < MOST_KINDS:
            kind = hashlib.sha256(f"{first.namespace} {why}".encode()).hexdigest()[:16]
            of_namespace.append(WaitingPods(
                kind=kind, queue=config.namespaces[first.namespace].queue,
                namespace=first.namespace, name=first.name, uid=first.uid, count=len(many),
                sentence=f"it asks for devices, which dnm does not understand: {why}",
            ))  # fmt: skip
    return tuple(waiting_pods for many in found.values() for waiting_pods in many)


def _by_doubt(
    config: Config, waits: PodWaits, pods: Iterable[Pod]
) -> Iterator[tuple[str, list[Pod]]]:
    """Yields each doubt with its pods of one namespace, the oldest first."""
    found: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        why = waits.doubts.get(f"{pod.namespace}/{pod.name}")
        if why and pod.namespace in config.namespaces:
            found.setdefault((pod.namespace, why), []).append(pod)
    for (_, why), many in sorted(found.items()):
        yield why, sorted(many, key=lambda pod: (pod.created, pod.name))
