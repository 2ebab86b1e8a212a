"""Namespaces as queues without limits, alone or beside the queues of a queue system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, QueueLimits
from dnm.model.config import Config
from dnm.model.queue_edit import Projection, QueueEdit, QueueNumbers, QueueOutcome, QueueWants
from dnm.model.value import Resources, Value
from dnm.model.verdict import Objection
from dnm.queues.system import ConfigMaps, Queues, QueueSystem


class NamespaceQueues(Value):
    """The queues of a run: `own` has the namespaces without a queue system, `others` the queues of
    the queue system that other namespaces have."""

    own: Mapping[str, QueueLimits]
    limits: Mapping[str, QueueLimits]
    others: Queues | None = None

    @property
    def lenders(self) -> Mapping[str, str] | None:
        return self.others.lenders if self.others else None

    @property
    def is_missing(self) -> bool:
        return self.others is not None and self.others.is_missing

    def is_counted(self, node: str, instance_id: str) -> bool:
        return self.others is not None and self.others.is_counted(node, instance_id)

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        others = self.others.numbers_of(instance_id) if self.others else {}
        return {**others, **self._numbers()}

    def _numbers(self) -> dict[str, QueueNumbers]:
        return {path: QueueNumbers() for path in self.own}

    def project(self, wants: QueueWants) -> Projection:
        if self.others is None:
            return Projection(wants=wants, edit=self._with_own(_unchanged(wants)))
        projected = self.others.project(self._of_others(wants))
        return replace(projected, edit=self._with_own(projected.edit))

    def plan(self, wants: QueueWants, projected: Projection | None) -> QueueEdit:
        if self.others is None:
            return self._with_own(_unchanged(wants))
        return self._with_own(self.others.plan(self._of_others(wants), projected))

    def shrink_objection(self, projected: Projection) -> Objection | None:
        return self.others.shrink_objection(projected) if self.others else None

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        if self.others is None or queue in self.own:
            return None
        return self.others.growth_objection(self._of_others(wants), queue, sizes)

    def show_difference(self, edit: QueueEdit) -> str:
        return self.others.show_difference(edit) if self.others else ""

    def _of_others(self, wants: QueueWants) -> QueueWants:
        return _without_queues(wants, self.own)

    def _with_own(self, edit: QueueEdit) -> QueueEdit:
        return replace(
            edit,
            limits={**edit.limits, **self.own},
            numbers={**edit.numbers, **self._numbers()},
        )


class NamespacesAsQueues:
    """The queue system `none`, beside another one if some namespaces have that."""

    def __init__(self, others: QueueSystem | None = None) -> None:
        self._others = others

    def collect(self, config: Config, kube: ConfigMaps) -> QueueFacts:
        return self._others.collect(config, kube) if self._others else QueueFacts()

    def read_queues(self, config: Config, facts: QueueFacts) -> NamespaceQueues:
        others = self._others.read_queues(config, facts) if self._others else None
        own = {
            name: QueueLimits(path=name, parent=None, is_leaf=True)
            for name in config.namespaces_without_quota
        }
        limits = {**others.limits, **own} if others else own
        return NamespaceQueues(own=own, limits=limits, others=others)

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        return self._others is not None and self._others.names_instance(facts, instance_id)

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> None:
        if self._others:
            self._others.exclude_earlier_writes(config, kube, text, before_write)

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        wants = _without_queues(wants, config.namespaces_without_quota)
        if self._others:
            return self._others.write(config, kube, wants, planned, before_write)
        return QueueOutcome(edit=planned or _unchanged(wants))


def _unchanged(wants: QueueWants) -> QueueEdit:
    """Returns the edit that writes nothing. The registry keeps the ledger that it has: it belongs
    to the queue system which the site had before."""
    return QueueEdit(text="", ledger="", noted=wants.remembered)


def _without_queues(wants: QueueWants, own: Mapping[str, object] | frozenset[str]) -> QueueWants:
    """Returns the wants without the queues in `own`."""
    return replace(
        wants,
        nodes={queue: nodes for queue, nodes in wants.nodes.items() if queue not in own},
        floors={queue: floor for queue, floor in wants.floors.items() if queue not in own},
    )
