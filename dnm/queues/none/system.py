"""The queue system `none`: every namespace without a queue system is a queue without limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, QueueLimits
from dnm.model.config import Config
from dnm.model.queue_edit import Projection, QueueEdit, QueueNumbers, QueueOutcome, QueueWants
from dnm.model.value import Resources, Value
from dnm.model.verdict import Objection
from dnm.queues.namespaces import PodsByNamespace
from dnm.queues.system import ConfigMaps, Queues, QueueSystem


class NamespaceQueues(Value):
    """The queues of a run if a namespace has no queue system. `own` has a queue for each such
    namespace. `quota_queues` are the queues of all other namespaces, or None."""

    own: Mapping[str, QueueLimits]
    limits: Mapping[str, QueueLimits]
    quota_queues: Queues | None = None

    @property
    def lenders(self) -> Mapping[str, str] | None:
        return self.quota_queues.lenders if self.quota_queues else {}

    @property
    def is_missing(self) -> bool:
        return self.quota_queues is not None and self.quota_queues.is_missing

    def is_counted(self, node: str, queue: str, instance_id: str) -> bool:
        queues = None if queue in self.own else self.quota_queues
        return queues is not None and queues.is_counted(node, queue, instance_id)

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        numbers = self.quota_queues.numbers_of(instance_id) if self.quota_queues else {}
        return {**numbers, **self._numbers()}

    def _numbers(self) -> dict[str, QueueNumbers]:
        return {path: QueueNumbers() for path in self.own}

    def project(self, wants: QueueWants) -> Projection:
        if self.quota_queues is None:
            return Projection(wants=wants, edit=self._with_own(_unchanged(wants)))
        projected = self.quota_queues.project(self._quota_wants(wants))
        return replace(projected, edit=self._with_own(projected.edit))

    def plan(self, wants: QueueWants, projected: Projection | None) -> QueueEdit:
        if self.quota_queues is None:
            return self._with_own(_unchanged(wants))
        return self._with_own(self.quota_queues.plan(self._quota_wants(wants), projected))

    def shrink_objection(self, projected: Projection) -> Objection | None:
        return self.quota_queues.shrink_objection(projected) if self.quota_queues else None

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        if self.quota_queues is None or queue in self.own:
            return None
        return self.quota_queues.growth_objection(self._quota_wants(wants), queue, sizes)

    def show_difference(self, edit: QueueEdit) -> str:
        return self.quota_queues.show_difference(edit) if self.quota_queues else ""

    def _quota_wants(self, wants: QueueWants) -> QueueWants:
        return _without_queues(wants, self.own)

    def _with_own(self, edit: QueueEdit) -> QueueEdit:
        return replace(
            edit,
            limits={**edit.limits, **self.own},
            numbers={**edit.numbers, **self._numbers()},
        )


class NamespacesAsQueues:
    """The queue system `none`. `quota_system` serves the namespaces with another queue system."""

    def __init__(self, quota_system: QueueSystem | None = None) -> None:
        self._quota_system = quota_system

    def pod_reading(self, config: Config) -> PodsByNamespace:
        quota_pods = self._quota_system.pod_reading(config) if self._quota_system else None
        return PodsByNamespace(config.namespace_queues, quota_pods)

    def collect(self, config: Config, kube: ConfigMaps) -> QueueFacts:
        return self._quota_system.collect(config, kube) if self._quota_system else QueueFacts()

    def read_queues(self, config: Config, facts: QueueFacts) -> NamespaceQueues:
        quota_queues = self._quota_system.read_queues(config, facts) if self._quota_system else None
        own = {
            name: QueueLimits(path=name, parent=None, is_leaf=True)
            for name in config.namespaces_with("none")
        }
        limits = {**quota_queues.limits, **own} if quota_queues else own
        return NamespaceQueues(own=own, limits=limits, quota_queues=quota_queues)

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        return self._quota_system is not None and self._quota_system.names_instance(
            facts, instance_id
        )

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> Mapping[str, str]:
        system = self._quota_system
        return system.exclude_earlier_writes(config, kube, text, before_write) if system else {}

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        wants = _without_queues(wants, config.namespaces_with("none"))
        if self._quota_system:
            return self._quota_system.write(config, kube, wants, planned, before_write)
        return QueueOutcome(edit=planned or _unchanged(wants))


def _unchanged(wants: QueueWants) -> QueueEdit:
    """Returns an edit that writes nothing. It keeps the ledger in the registry, which belongs to
    the queue system that the site used before."""
    return QueueEdit(record=wants.remembered)


def _without_queues(wants: QueueWants, own: Mapping[str, object] | frozenset[str]) -> QueueWants:
    """Returns a copy of `wants`, the nodes that queues are to have, without the queues in `own`."""
    return replace(
        wants,
        nodes={queue: nodes for queue, nodes in wants.nodes.items() if queue not in own},
        floors={queue: floor for queue, floor in wants.floors.items() if queue not in own},
    )
