"""Notes and Events about pods that wait for a cause that dnm does not understand. Pure."""

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


def with_uncertain_pods(plan: Plan, inputs: Inputs) -> Plan:
    """Returns the plan with notes and Events about pods that wait for something unknown to dnm."""
    waits, pods = inputs.snapshot.waits, inputs.snapshot.pods
    if waits is None or isinstance(pods, Unreadable) or not waits.unclear:
        return plan
    notes = (*plan.notes, *describe_uncertain_pods(inputs.config, waits, pods.pods))
    last_run = msgspec.structs.replace(plan.registry.last_run, notes=notes)
    return msgspec.structs.replace(
        plan,
        notes=notes,
        registry=msgspec.structs.replace(plan.registry, last_run=last_run),
        waiting=(*plan.waiting, *_uncertain(inputs.config, waits, pods.pods)),
    )


def describe_uncertain_pods(
    config: Config, waits: PodWaits, pods: Iterable[Pod]
) -> tuple[str, ...]:
    """Returns a line for each cause in each namespace: how many pods wait, and one name. Namespaces
    take turns in the list, since one tenant can create many causes."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, str]] = []
    for cause, peers in _by_cause(config, waits, pods):
        first = peers[0]
        turns[first.namespace] += 1
        line = f"{count_of(len(peers), 'pod')} like {first.namespace}/{first.name}: {cause}"
        ranked.append((turns[first.namespace], line))
    lines = [line for _, line in sorted(ranked, key=itemgetter(0))]
    more = len(lines) - _MOST_NOTES
    return (*lines[:_MOST_NOTES], *([f"and {more} more such causes"] if more > 0 else []))


def _uncertain(config: Config, waits: PodWaits, pods: Iterable[Pod]) -> tuple[WaitingPods, ...]:
    """Returns an entry for each unknown cause for which pods wait, a few per namespace."""
    listed: dict[str, list[WaitingPods]] = {}
    for cause, peers in _by_cause(config, waits, pods):
        first = peers[0]
        entries = listed.setdefault(first.namespace, [])
        if first.devices and len(entries) < MOST_KINDS:
            kind = hashlib.sha256(f"{first.namespace} {cause}".encode()).hexdigest()[:16]
            entries.append(WaitingPods(
                kind=kind, queue=config.namespaces[first.namespace].queue,
                namespace=first.namespace, name=first.name, uid=first.uid, count=len(peers),
                sentence=f"it requests devices that dnm does not understand: {cause}"
            ))  # fmt: skip
    return tuple(waiting_pods for peers in listed.values() for waiting_pods in peers)


def _by_cause(
    config: Config, waits: PodWaits, pods: Iterable[Pod]
) -> Iterator[tuple[str, list[Pod]]]:
    """Yields each unknown cause with the pods of one namespace that wait, the oldest first."""
    pods_by_cause: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        cause = waits.unclear.get(f"{pod.namespace}/{pod.name}")
        if cause and pod.namespace in config.namespaces:
            pods_by_cause.setdefault((pod.namespace, cause), []).append(pod)
    for (_, cause), peers in sorted(pods_by_cause.items()):
        yield cause, sorted(peers, key=lambda pod: (pod.created, pod.name))
