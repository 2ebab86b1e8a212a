"""The checks of Kueue for `dnm check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from dnm.checks.findings import Finding, doubtful, fine, looks_at, wrong
from dnm.checks.queue_checks import QueueProperties
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.kube.questions import has_api
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.kueue import COHORT_PREFIX, KUEUE_API, Flavor
from dnm.model.node_type import NodeType
from dnm.model.permission import Permission
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.queues.kueue.demand import tolerates
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.refusals import borrowing_refusal, list_refusals
from dnm.queues.kueue.writes import try_writes

PROPERTIES = QueueProperties(
    writes_limits=True,
    zero_means="nothing",
    ancestors_grow=False,
    shrinking_may_evict=True,
    every_queue_is_limited=True,
)
_MOST_LEFT_OUT = 10


def find_trace(config: Config, kube: KubeClient) -> str:
    """Returns a ClusterQueue, or the API of Kueue if its ClusterQueues cannot be read."""
    if not has_api(kube.requests, KUEUE_API):
        return ""
    try:
        queues = kube.kueue_objects.list_cluster_queues()
    except KubeError:
        return f"an API {KUEUE_API}"
    return f"a ClusterQueue {queues[0].name}" if queues else ""


def permissions(config: Config) -> tuple[Permission, ...]:
    """Returns the permissions to list objects of Kueue and to create and write Cohorts."""
    permission = partial(Permission, group="kueue.x-k8s.io", role="rbac-kueue.yaml")
    kinds = ("clusterqueues", "cohorts", "resourceflavors", "localqueues", "workloads")
    # Without a queue map only the LocalQueues name the ClusterQueue, and so the Cohort. The dry run
    # of `check_limits` then shows whether it can be written.
    names = sorted(
        COHORT_PREFIX + queue
        for name in config.namespaces_with("kueue")
        for queue in [config.namespaces[name].queue]
        if queue != name
    )
    blind, fixed = "no queue can be read", "no limit changes, so no node is lent"
    return (
        *(permission(verb="list", resource=kind, without=blind) for kind in kinds),
        permission(verb="create", resource="cohorts", without=fixed),
        *(
            permission(verb="patch", resource="cohorts", name=name, without=fixed)
            for name in dict.fromkeys(names)
        ),
    )


@looks_at("queue system")
def check_limits(config: Config, kube: KubeClient, snapshot: Snapshot) -> Iterator[Finding]:
    """Checks whether the objects of Kueue can be read and written."""
    facts = snapshot.queue_facts
    if facts.unread:
        yield wrong(
            facts.unread.error,
            "dnm needs Kueue 0.14 with v1beta2; CapacityProviders need 0.20 and their CRDs",
        )
        return
    if not isinstance(facts, KueueFacts):
        return
    errors = facts.write_errors or try_writes(kube.kueue_objects, facts)
    for error in sorted(set(errors.values())):
        yield wrong(
            f"a dry run of a write of lent quota failed: {error}",
            "while Kueue's webhooks do not answer, no limit can change and no pod can be created",
        )


def check_queues(config: Config, snapshot: Snapshot) -> Iterator[Finding]:
    """Checks whether each ClusterQueue can get lent nodes, and whether its pods can use them."""
    facts = snapshot.queue_facts
    if not isinstance(facts, KueueFacts) or facts.unread:
        return
    for name in sorted(config.namespaces_with("kueue")):
        policy, check = config.namespaces[name], f"queue of {name}"
        queue = facts.queue_at(policy.queue)
        problems = list(list_refusals(facts, policy.queue))
        leading = {item.cluster_queue for item in facts.local_queues if item.namespace == name}
        if queue and queue.name not in leading:
            problems.append((f"no LocalQueue of {name} leads to {queue.name}", "create one"))
        for kind in policy.node_types:
            node_type = config.node_types[kind]
            problems += _of_type(facts.flavor, node_type, name) if facts.flavor else ()
            if queue and (text := borrowing_refusal(queue, node_type.size)):
                problems.append((text, "remove the borrowingLimit"))
        for text, fix in problems:
            yield wrong(text, fix, check)
        if queue and not problems:
            kind = "" if queue.is_provided else "Cohort "
            raised = "" if queue.held else f"{kind}{queue.own_cohort} of "
            yield fine(f"lent nodes raise {raised}ClusterQueue {queue.name}", check)


def _of_type(flavor: Flavor, node_type: NodeType, namespace: str) -> Iterator[tuple[str, str]]:
    labels = node_type.labels_for(namespace)
    missing = sorted(
        f"{key}={value}" for key, value in flavor.labels.items() if labels.get(key) != value
    )
    if missing:
        yield (
            f"node type {node_type.name} lacks the labels {', '.join(missing)} of the "
            f"ResourceFlavor {flavor.name}, so that its pods cannot run on lent nodes",
            f"write labels = {', '.join(missing)}",
        )
    for taint in node_type.taints_for(namespace):
        if taint.effect != "PreferNoSchedule" and not any(
            tolerates(item, taint.key, taint.value, taint.effect) for item in flavor.tolerations
        ):
            yield (
                f"the ResourceFlavor {flavor.name} has no toleration of the taint {taint.key} of "
                f"node type {node_type.name}",
                "add it to spec.tolerations, so that Kueue gives it to the pods",
            )


def check_demand(
    config: Config, snapshot: Snapshot, pods: PodList, count: Callable[[Config], Demand]
) -> Iterator[Finding]:
    """Reports the Workloads that lent nodes cannot help."""
    facts = snapshot.queue_facts
    left_out = facts.left_out if isinstance(facts, KueueFacts) else ()
    for key, why in left_out[:_MOST_LEFT_OUT]:
        yield doubtful(f"Workload {key} requests no node: {why}", "see docs/kueue.md", "demand")
