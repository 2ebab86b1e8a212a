"""Kueue as a queue system: a Cohort for each ClusterQueue is limit and ledger in one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, QueueLimits
from dnm.model.config import Config
from dnm.model.errors import DnmError, KubeConflict, KubeError
from dnm.model.kueue import KUEUE_API, MANAGER, KueueWorkload, Usage
from dnm.model.quantity import add_to
from dnm.model.queue_edit import Projection, QueueEdit, QueueNumbers, QueueOutcome, QueueWants
from dnm.model.reason import Reason
from dnm.model.value import Resources, Unreadable, Value
from dnm.model.verdict import Objection
from dnm.queues.kueue import edit as edits
from dnm.queues.kueue.demand import WorkloadDemand, count_used, find_demand, most_lent, waiting_in
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import ledger_of
from dnm.queues.kueue.refusals import borrowing_refusal, list_refusals
from dnm.queues.none.system import PodsByNamespace
from dnm.queues.system import ConfigMaps, KueueObjects, PodReading

_TRIES = 5  # if other clients write at the same time
_EXCLUSION = "dynamic-node-manager/fence"
"""An annotation that decides nothing, but a write of it gives a Cohort another version."""
_CONFLICTS = (
    f"cannot write the Cohorts: other clients changed them {_TRIES} times in a row. The next run "
    "tries again"
)


class KueueQueues(Value):
    """The queues of a run."""

    facts: KueueFacts

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        return edits.limits_of(self.facts, edits.current_cohorts(self.facts))

    @property
    def lenders(self) -> Mapping[str, str] | None:
        ledgers = [ledger_of(cohort) for cohort in self.facts.cohorts if cohort.ledger]
        if None in ledgers:
            return None
        return {
            node: instance
            for ledger in ledgers
            if ledger
            for instance, nodes in ledger.instances.items()
            for node in nodes
        }

    @property
    def is_missing(self) -> bool:
        return not self.facts.queues

    def is_counted(self, node: str, instance_id: str) -> bool:
        ledgers = map(ledger_of, self.facts.cohorts)
        return any(item and node in item.instances.get(instance_id, {}) for item in ledgers)

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        return edits.numbers_of(edits.current_cohorts(self.facts), instance_id)

    def project(self, wants: QueueWants) -> Projection:
        return Projection(wants=wants, edit=self.plan(wants, None))

    def plan(self, wants: QueueWants, projected: Projection | None) -> edits.KueueEdit:
        return edits.plan_cohorts(self.facts, wants)

    def shrink_objection(self, projected: Projection) -> Objection | None:
        return None  # each Cohort is written on its own

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        why = [f"{text}: {fix}" for text, fix in list_refusals(self.facts, queue)]
        why += [self.facts.write_error] if self.facts.write_error else []
        nodes = edits.with_more_nodes(wants.nodes, queue, sizes)
        edit = self.plan(replace(wants, nodes=nodes), None)
        for item in edit.planned:
            if item.path == queue and (text := borrowing_refusal(item.queue, item.quota)):
                why.append(text)
        return Objection(reason=Reason.QUEUE_UNREADABLE, detail="; ".join(why)) if why else None

    def show_difference(self, edit: QueueEdit) -> str:
        old = edits.show(edits.current_cohorts(self.facts)).splitlines(keepends=True)
        new = edit.text.splitlines(keepends=True)
        return "".join(difflib.unified_diff(old, new, "cohorts", "cohorts (planned)"))


class Kueue:
    """The queue system `kueue`."""

    def pod_reading(self, config: Config) -> PodReading:
        return PodsByNamespace(config.namespaces_with("kueue"))

    def collect(self, config: Config, kube: ConfigMaps) -> KueueFacts:
        try:
            facts = read_facts(config, kube)
        except DnmError as error:
            return KueueFacts(unread=Unreadable(subject="Kueue", error=str(error)))
        return replace(facts, write_error=try_write(kube, facts)) if facts.refused else facts

    def read_queues(self, config: Config, facts: QueueFacts) -> KueueQueues:
        return KueueQueues(facts=facts if isinstance(facts, KueueFacts) else KueueFacts())

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        cohorts = facts.cohorts if isinstance(facts, KueueFacts) else ()
        return any(item and instance_id in item.instances for item in map(ledger_of, cohorts))

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> None:
        """Creates a missing Cohort, because an earlier run may be about to do so."""
        objects = kube.kueue_objects
        for item in edits.current_cohorts(read_facts(config, kube, with_workloads=False)):
            before_write()
            if not item.cohort.version:
                try:
                    objects.create_object(_empty_cohort(item.cohort.name))
                    continue
                except KubeConflict:
                    pass  # it exists since
            objects.annotate_object("Cohort", item.cohort.name, {_EXCLUSION: text})

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        """Writes each Cohort on its own. Every number is absolute, so that the next run continues
        after a kill in between."""
        lost: KubeError | None = None
        first: edits.KueueEdit | None = None
        for _ in range(_TRIES):
            facts = read_facts(config, kube, with_workloads=_has_parent(first))
            edit = self.read_queues(config, facts).plan(wants, None)
            first = first or edit
            due = [item for item in edit.planned if item.is_changed]
            if not due:
                return _outcome(first, edit, lost)
            if lost:
                raise lost
            try:
                for item in due:
                    before_write()
                    _write(kube.kueue_objects, item)
            except KubeConflict:
                continue
            except KubeError as error:  # perhaps only its answer was lost
                lost = error
        raise KubeConflict(_CONFLICTS)


def read_facts(config: Config, kube: ConfigMaps, with_workloads: bool = True) -> KueueFacts:
    """Returns the facts of all namespaces with this queue system, from one list of each kind.
    Raises KubeError."""
    objects = kube.kueue_objects
    facts = KueueFacts(
        queues=tuple(objects.list_cluster_queues()),
        cohorts=tuple(objects.list_cohorts()),
        flavors=tuple(objects.list_flavors()),
        local_queues=tuple(objects.list_local_queues()),
    )
    facts = replace(facts, paths=_find_paths(config, facts))
    return _with_demand(config, facts, objects.list_kueue_workloads()) if with_workloads else facts


def _find_paths(config: Config, facts: KueueFacts) -> dict[str, str]:
    """Returns queue path -> ClusterQueue: the one named like the path, or the only one to which the
    LocalQueues of the namespace lead."""
    names = {queue.name for queue in facts.queues}
    paths = {}
    for namespace in sorted(config.namespaces_with("kueue")):
        path = config.namespaces[namespace].queue
        local = {item.cluster_queue for item in facts.local_queues if item.namespace == namespace}
        is_clear = path not in names and path == namespace and len(local) == 1
        paths[path] = local.pop() if is_clear else path
    return paths


def _with_demand(
    config: Config, facts: KueueFacts, workloads: Sequence[KueueWorkload | Usage]
) -> KueueFacts:
    usages = [item for item in workloads if isinstance(item, Usage)]
    monitored = config.namespaces_with("kueue")
    pending = [
        item
        for item in workloads
        if isinstance(item, KueueWorkload) and item.namespace in monitored
    ]
    flavors = {flavor.name: flavor for flavor in facts.flavors}
    demand = WorkloadDemand()
    for path in facts.paths:
        queue = facts.queue_at(path)
        if queue is None or queue.inactive or queue.group is None or facts.flavor is None:
            continue
        most = most_lent(config, path)
        add_to(most, {name: queue.own_quota.nominal.get(name, 0) for name in most})
        waiting = waiting_in(queue.name, pending, facts.local_queues)
        added = find_demand(queue, waiting, usages, flavors, most)
        demand = WorkloadDemand(
            refused=demand.refused + added.refused, left_out=demand.left_out + added.left_out
        )
    return replace(
        facts,
        refused=demand.refused,
        left_out=demand.left_out,
        used=count_used(usages, facts.paths),
        is_use_complete=True,
    )


def _empty_cohort(name: str) -> dict[str, object]:
    return {"apiVersion": KUEUE_API, "kind": "Cohort", "metadata": {"name": name}, "spec": {}}


def try_write(kube: ConfigMaps, facts: KueueFacts) -> str:
    """Returns why the API server, or a webhook of Kueue, would refuse a write; empty: it would not.
    The dry run changes nothing."""
    for item in edits.current_cohorts(facts):
        try:
            kube.kueue_objects.apply_object(item.manifest, MANAGER, dry_run=True)
        except KubeError as error:
            return str(error)
    return ""


def _write(objects: KueueObjects, item: edits.PlannedCohort) -> None:
    """Writes a Cohort under the version that was read. Creates a missing Cohort empty, to be
    written in the next try: an apply without a version could replace another instance's Cohort."""
    if not item.cohort.version:
        objects.create_object(_empty_cohort(item.cohort.name))
        return
    objects.apply_object(item.manifest, MANAGER)


def _has_parent(edit: edits.KueueEdit | None) -> bool:
    return edit is None or any(item.cohort.parent for item in edit.planned)


def _outcome(first: edits.KueueEdit, edit: edits.KueueEdit, lost: KubeError | None) -> QueueOutcome:
    notes = (f"a write took effect although its answer was lost: {lost}",) if lost else ()
    return QueueOutcome(
        edit=replace(edit, changes=first.changes),
        is_written=first.is_changed,
        is_confirmed=all(item.is_in_force for item in edit.planned) if first.is_changed else None,
        notes=notes,
    )


SYSTEM = Kueue()
