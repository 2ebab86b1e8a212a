"""Namespaces as queues: the reader of their pods, and the queues of those without limits."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts
from dnm.model.config import Config
from dnm.model.pod import PodIdentity
from dnm.queues import system_of, unlimited_namespaces
from dnm.queues.system import PodReading, Queues


def unlimited_queues(config: Config) -> Queues | None:
    """Returns the queues without limits, or None if there is none. It needs no facts."""
    own = {name: config.namespaces[name] for name in unlimited_namespaces(config)}
    alone = replace(config, namespaces=own)
    return system_of(alone).read_queues(alone, QueueFacts()) if own else None


class PodsByNamespace:
    """The finder of a pod's queue. In a namespace without a queue system, it is the namespace, and
    labels have no effect. `quota_pods` finds it for the pods of all other namespaces."""

    def __init__(self, namespaces: frozenset[str], quota_pods: PodReading | None = None) -> None:
        self.namespaces, self._quota_pods = namespaces, quota_pods
        self.scheduler = quota_pods.scheduler if quota_pods else ""
        self.labels = quota_pods.labels if quota_pods else ()
        self.annotations = quota_pods.annotations if quota_pods else ()

    def identify(
        self,
        key: tuple[str, str],
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        is_managed: bool,
    ) -> PodIdentity:
        if self._quota_pods is None or key[0] in self.namespaces:
            return PodIdentity(app_id=key[0] if is_managed else "", queue="")
        return self._quota_pods.identify(key, labels, annotations, is_managed)

    def label(self, application: str, queue: str) -> tuple[dict[str, str], dict[str, str]]:
        if self._quota_pods is None or queue in self.namespaces:
            return {}, {}
        return self._quota_pods.label(application, queue)
