"""Kueue as a queue system: a Cohort for each ClusterQueue is limit and ledger in one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dnm.model.cluster import QueueFacts, QueueLimits
from dnm.model.config import Config
from dnm.model.errors import DnmError
from dnm.model.kueue import KueueWorkload, Usage
from dnm.model.quantity import add_to
from dnm.model.queue_edit import Projection, QueueEdit, QueueNumbers, QueueOutcome, QueueWants
from dnm.model.reason import Reason
from dnm.model.value import Resources, Unreadable, Value
from dnm.model.verdict import Objection
from dnm.queues.kueue import edit as edits
from dnm.queues.kueue.demand import WorkloadDemand, count_used, find_demand, most_lent, waiting_in
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import ledger_of
from dnm.queues.kueue.refusals import growth_refusals
from dnm.queues.namespaces import PodsByNamespace
from dnm.queues.system import ConfigMaps, PodReading


class KueueQueues(Value):
    """The queues of a run."""

    facts: KueueFacts

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        return edits.limits_of(self.facts, edits.current_cohorts(self.facts))

    @property
    def lenders(self) -> Mapping[str, str] | None:
        return {
            node: instance
            for ledger in filter(None, map(ledger_of, self.facts.cohorts))
            for instance, nodes in ledger.instances.items()
            for node in nodes
        }

    @property
    def is_missing(self) -> bool:
        return not self.facts.queues

    def is_counted(self, node: str, queue: str, instance_id: str) -> bool:
        ledgers = filter(None, map(ledger_of, self.facts.cohorts))
        is_counted = any(node in item.instances.get(instance_id, {}) for item in ledgers)
        return is_counted or queue in self.facts.unread_ledgers

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        return edits.numbers_of(edits.current_cohorts(self.facts), instance_id)

    def project(self, wants: QueueWants) -> Projection:
        return Projection(wants=wants, edit=self.plan(wants, None))

    def plan(self, wants: QueueWants, projected: Projection | None) -> edits.KueueEdit:
        if any(queue.held for queue in self.facts.queues):
            from dnm.queues.kueue.in_queue import plan_queues  # of a site without Cohorts

            return plan_queues(self.facts, wants)
        return edits.plan_cohorts(self.facts, wants)

    def shrink_objection(self, projected: Projection) -> Objection | None:
        return None  # each Cohort is written on its own

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        planned = self.plan(wants.with_more_nodes(queue, sizes), None).planned
        items = [(p.queue, p.cohort, p.quota, p.ledger) for p in planned if p.path == queue]
        why = growth_refusals(self.facts, queue, items)
        return Objection(reason=Reason.QUEUE_UNREADABLE, detail="; ".join(why)) if why else None

    def show_difference(self, edit: QueueEdit) -> str:
        if not isinstance(edit, edits.KueueEdit):
            return ""
        items = (edits.current_cohorts(self.facts), edit.planned)
        old, new = (edits.show(cohorts).splitlines(keepends=True) for cohorts in items)
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
        if all(pods.is_unhelped for pods in facts.refused):
            return facts
        from dnm.queues.kueue.writes import try_writes  # pods wait

        return replace(facts, write_errors=try_writes(kube.kueue_objects, facts))

    def read_queues(self, config: Config, facts: QueueFacts) -> KueueQueues:
        return KueueQueues(facts=facts if isinstance(facts, KueueFacts) else KueueFacts())

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        cohorts = facts.cohorts if isinstance(facts, KueueFacts) else ()
        return any(item and instance_id in item.instances for item in map(ledger_of, cohorts))

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> Mapping[str, str]:
        from dnm.queues.kueue.writes import exclude_earlier_writes  # after a killed run

        facts = read_facts(config, kube, with_workloads=False)
        return exclude_earlier_writes(kube.kueue_objects, facts, text, before_write)

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> QueueOutcome:
        from dnm.queues.kueue.writes import write_cohorts  # most runs write nothing

        def plan(with_workloads: bool) -> edits.KueueEdit:
            return KueueQueues(facts=read_facts(config, kube, with_workloads)).plan(wants, None)

        return write_cohorts(kube.kueue_objects, plan, before_write)


def read_facts(config: Config, kube: ConfigMaps, with_workloads: bool = True) -> KueueFacts:
    """Returns the facts of all namespaces, from one list of each kind. Raises KubeError."""
    objects = kube.kueue_objects
    facts = KueueFacts(
        queues=tuple(objects.list_cluster_queues()),
        cohorts=tuple(objects.list_cohorts()),
        flavors=tuple(objects.list_flavors()),
        local_queues=tuple(objects.list_local_queues()),
    )
    facts = replace(facts, paths=_find_paths(config, facts))
    if any(queue.is_provided or queue.effective is not None for queue in facts.queues):
        from dnm.queues.kueue.provider import find_provided  # of a site with CapacityProviders

        facts = find_provided(facts, objects.list_capacity_providers())
    if any(queue.held for queue in facts.queues):
        from dnm.queues.kueue.in_queue import split_queues  # of a site without Cohorts

        facts = split_queues(facts, QueueWants(instance_id=""))
    facts = replace(facts, unread_ledgers=_find_unread(facts))
    return _with_demand(config, facts, objects.list_kueue_workloads()) if with_workloads else facts


def _find_paths(config: Config, facts: KueueFacts) -> dict[str, str]:
    """Returns queue path -> ClusterQueue: the one named like the path, or the only one to which the
    LocalQueues of the namespace lead, unless another path has it."""
    paths: dict[str, str] = {}
    own = {policy.queue for policy in config.namespaces.values()}
    for namespace in sorted(config.namespaces_with("kueue")):
        path = config.namespaces[namespace].queue
        local = {item.cluster_queue for item in facts.local_queues if item.namespace == namespace}
        is_free = len(local) == 1 and not local & {*own, *paths.values()}
        is_clear = path == namespace and facts.queue_at(path) is None and is_free
        paths[path] = local.pop() if is_clear else path
    return paths


def _find_unread(facts: KueueFacts) -> frozenset[str]:
    """Returns the queues, or other Cohorts, whose ledger is invalid."""
    paths = {queue.own_cohort: path for path in facts.paths if (queue := facts.queue_at(path))}
    unread = (item.name for item in facts.cohorts if item.ledger and ledger_of(item) is None)
    return frozenset(paths.get(name, name) for name in unread)


def _with_demand(
    config: Config, facts: KueueFacts, workloads: Sequence[KueueWorkload | Usage]
) -> KueueFacts:
    usages = [item for item in workloads if isinstance(item, Usage)]
    monitored = config.namespaces_with("kueue")
    queued = (item for item in workloads if isinstance(item, KueueWorkload))
    pending = [item for item in queued if item.namespace in monitored]
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
    used = count_used(usages, facts.paths)
    return replace(
        facts, refused=demand.refused, left_out=demand.left_out, used=used, is_use_complete=True
    )


SYSTEM = Kueue()
