"""The queue system `resource_quota`. Each ResourceQuota has dnm's ledger in an annotation."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, QueueLimits
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.queue_edit import (
    Projection,
    QueueEdit,
    QueueNumbers,
    QueueOutcome,
    QueueWants,
)
from dnm.model.quota import ResourceQuota
from dnm.model.value import Resources, Value
from dnm.model.verdict import Objection, limits_objection
from dnm.model.workload import WOKEN
from dnm.queues.each import try_each
from dnm.queues.namespaces import PodsByNamespace
from dnm.queues.resource_quota import edit as edits
from dnm.queues.resource_quota.edit import PlannedQuota
from dnm.queues.resource_quota.objects import QuotaFacts, read_facts
from dnm.queues.system import ConfigMaps, PodReading

_TRIES = 5  # if other clients write at the same time
_READY_TRIES, _READY_PAUSE = 20, 0.1  # kube-controller-manager takes about 0.2 seconds
_LONGEST_FAILURE = 20.0  # seconds after which a failed write ends a try
_LONGEST_WAKING = 10.0  # seconds; the next run wakes the rest
_EXCLUSION = "dynamic-node-manager/fence"
"""An annotation that decides nothing, but a write of it gives a quota another version."""


class QuotaQueues(Value):
    """The queues of a run: each namespace with ResourceQuotas as queue system is one."""

    facts: QuotaFacts
    namespaces: frozenset[str]

    @property
    def _current(self) -> list[PlannedQuota]:
        return [*map(edits.current_quota, self.facts.quotas)]

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        return edits.limits_of(self._readable, self._current)

    @property
    def _readable(self) -> frozenset[str]:
        return self.namespaces - self.facts.unread_queues.keys()

    @property
    def lenders(self) -> Mapping[str, str] | None:
        pairs = (pair for item in self._current for pair in item.ledger.instances.items())
        return {node: instance for instance, nodes in pairs for node in nodes}

    @property
    def is_missing(self) -> bool:
        return False

    def is_counted(self, node: str, queue: str, instance_id: str) -> bool:
        if queue in self.facts.unread_ledgers:
            return True
        return any(node in item.ledger.instances.get(instance_id, {}) for item in self._current)

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        return edits.numbers_of(self._readable, self._current, instance_id)

    def project(self, wants: QueueWants) -> Projection:
        return Projection(wants=wants, edit=self.plan(wants, None))

    def plan(self, wants: QueueWants, projected: Projection | None) -> edits.QuotaEdit:
        return edits.plan_edit(self.facts, self._readable, wants)

    def shrink_objection(self, projected: Projection) -> Objection | None:
        return None  # each quota is changed on its own

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        is_first = wants.remembered is None and not any(wants.nodes.values())
        remembered = "" if is_first else wants.remembered
        more = replace(wants.with_more_nodes(queue, sizes), remembered=remembered)
        edit = self.plan(more, None)
        return limits_objection(edit.blocked.get(queue))

    def show_difference(self, edit: QueueEdit) -> str:
        if not isinstance(edit, edits.QuotaEdit):
            return ""
        items = (self._current, edit.planned)
        old, new = (edits.show(quotas).splitlines(keepends=True) for quotas in items)
        return "".join(difflib.unified_diff(old, new, "quotas", "quotas (planned)"))


class ResourceQuotas:
    """The queue system `resource_quota`: the default scheduler with ResourceQuotas."""

    def pod_reading(self, config: Config) -> PodReading:
        return PodsByNamespace(config.namespaces_with("resource_quota"))

    def collect(self, config: Config, kube: ConfigMaps) -> QuotaFacts:
        return read_facts(config, kube.typed_objects)

    def read_queues(self, config: Config, facts: QueueFacts) -> QuotaQueues:
        own = facts if isinstance(facts, QuotaFacts) else QuotaFacts()
        return QuotaQueues(facts=own, namespaces=config.namespaces_with("resource_quota"))

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        quotas = facts.quotas if isinstance(facts, QuotaFacts) else ()
        return any(instance_id in edits.current_quota(item).ledger.instances for item in quotas)

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> Mapping[str, str]:
        facts = read_facts(config, kube.typed_objects, with_pods=False)
        patch = {"metadata": {"annotations": {_EXCLUSION: text}}}

        def exclude(quota: ResourceQuota) -> None:
            before_write()
            objects = kube.typed_objects
            objects.patch_object("ResourceQuota", quota.namespace, quota.name, patch)

        failed = try_each(
            [(item.namespace, item) for item in facts.quotas], exclude, _LONGEST_FAILURE
        )
        unread = {name: item.error for name, item in facts.unread_queues.items()}
        return {**failed, **unread}

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        """Writes the quotas one after the other. New limits are absolute numbers, so that the next
        run can continue if this run is killed between two writes. A quota that cannot be written
        delays the others for a bounded time."""
        done: dict[str, PlannedQuota] = {}
        failed: dict[str, KubeError] = {}  # by quota; perhaps only the answer was lost
        give_up = time.monotonic() + _LONGEST_FAILURE
        for left in reversed(range(_TRIES + 1)):
            facts = read_facts(config, kube.typed_objects, with_pods=False)
            edit = self.read_queues(config, facts).plan(wants, None)
            changed = {item.quota.place: item for item in edit.planned if item.is_changed}
            due = [item for place, item in changed.items() if place not in failed]
            if not (due and left):
                break
            try:
                before_write()
            except KubeError as error:
                failed |= {item.quota.place: error for item in due}
                continue
            for item in due:
                hard = {change.resource: change.after for change in item.changes}
                try:
                    _patch(kube, item.quota, item.annotations, hard)
                except KubeConflict:
                    continue  # the next try reads it again
                except KubeError as error:
                    failed[item.quota.place] = error
                done[item.quota.place] = item
                if item.quota.place in failed and time.monotonic() > give_up:
                    break
            noted = edits.noted_without(edit, wants.remembered, failed)
            wants = replace(wants, remembered=noted)
        notes = _annotate_workloads(config, kube, before_write)
        unread = {name: item.error for name, item in facts.unread_queues.items()}
        unknown = [place for place in failed if place.partition("/")[0] in unread]
        for place in failed.keys() - changed.keys() - set(unknown):
            notes += (f"the write took effect although its answer was lost: {failed[place]}",)
        written = [
            item for place, item in done.items() if place not in changed and place not in unknown
        ]
        changes = tuple(change for item in written for change in item.changes)
        noted = edits.noted_without(edit, wants.remembered, [*changed, *unknown])
        usual = _LATER if failed and time.monotonic() > give_up else _CONFLICTS
        unwritten = {
            item.quota.namespace: str(failed.get(place, usual)) for place, item in changed.items()
        }
        return QueueOutcome(
            edit=replace(edit, changes=changes, record=noted),
            is_written=bool(written),
            failed={**unwritten, **unread},
            notes=notes,
        )


_CONFLICTS = (
    f"cannot write the ResourceQuotas: other clients changed them {_TRIES} times in a row. The "
    "next run tries again"
)
_LATER = "cannot write all ResourceQuotas, because a write took too long. The next run tries again"


def _patch(
    kube: ConfigMaps, quota: ResourceQuota, notes: Mapping[str, str | None], hard: Mapping[str, str]
) -> None:
    """Writes annotations and limits of a quota in one request. The API server refuses it if another
    client has changed the quota since dnm read it."""
    metadata = {"resourceVersion": quota.version, "annotations": notes}
    patch = {"metadata": metadata, **({"spec": {"hard": hard}} if hard else {})}
    kube.typed_objects.patch_object("ResourceQuota", quota.namespace, quota.name, patch)


def _annotate_workloads(
    config: Config, kube: ConfigMaps, before_write: Callable[[], None]
) -> tuple[str, ...]:
    """Waits until the new limits are in effect. Then annotates the workloads that wait for quota,
    so that their controllers create pods at once. Does nothing unless `annotate_workloads` is set.
    Returns notes for the log."""
    if not config.annotate_workloads:
        return ()
    for _ in range(_READY_TRIES):
        facts = read_facts(config, kube.typed_objects, with_pods=False)
        if all(quota.is_ready for quota in facts.quotas):
            break
        time.sleep(_READY_PAUSE)
    waiting = read_facts(config, kube.typed_objects).waiting
    failed: dict[tuple[str, str], KubeError] = {}  # by kind and namespace
    give_up = time.monotonic() + _LONGEST_WAKING
    for number, pods in enumerate(waiting):
        if time.monotonic() > give_up:
            later = f"{len(waiting) - number} of {len(waiting)} workloads wait for the next run"
            return (*_wake_notes(failed), f"{later} to be woken, or try again themselves")
        if (pods.kind, pods.namespace) not in failed:
            before_write()
            patch = {"metadata": {"annotations": {WOKEN: pods.woken}}}
            try:
                kube.typed_objects.patch_object(pods.kind, pods.namespace, pods.name, patch)
            except KubeError as error:
                failed[pods.kind, pods.namespace] = error
    return _wake_notes(failed)


def _wake_notes(failed: Mapping[tuple[str, str], KubeError]) -> tuple[str, ...]:
    return tuple(
        f"cannot wake all {kind}s of namespace {namespace}, which try again themselves: {error}"
        for (kind, namespace), error in failed.items()
    )


SYSTEM = ResourceQuotas()
