"""The checks of the queue document, monitored queues, lent nodes, pending pods and the scheduler's
sums for `dnm check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec

from dnm.checks.findings import Finding, doubtful, fine, looks_at, wrong
from dnm.config import values
from dnm.demand.constraints import NodeTraits, tolerates
from dnm.demand.demand import Demand, gather_demand
from dnm.demand.pod_waits import with_devices
from dnm.demand.waiting import DemandFacts
from dnm.kube.client import KubeClient
from dnm.kube.opening import list_daemons
from dnm.model.amounts import amounts
from dnm.model.close_look import CLOSED
from dnm.model.cluster import SchedulerView
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.node import Node
from dnm.model.opening import OPENING_TAINT
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.printable import count_of
from dnm.model.queue_path import is_under
from dnm.model.registry import Registry, RunRecord
from dnm.model.value import Resources, Unreadable
from dnm.plan.explain import describe_differences
from dnm.plan.inputs import offered_resources
from dnm.plan.limits import queue_wants
from dnm.plan.rules.opening import required_daemons
from dnm.plan.uncertain_pods import describe_uncertain_pods
from dnm.queues.yunikorn.advice import (
    advise,
    warn_of_gangs,
    warn_of_quota_preemption,
    warn_of_spreading,
    warn_of_uncounted_limits,
)
from dnm.queues.yunikorn.document import QueueDocument, read_document
from dnm.queues.yunikorn.edit import why_no_growth
from dnm.queues.yunikorn.ledger import Section
from dnm.queues.yunikorn.rest import YunikornClient, checksum_of
from dnm.queues.yunikorn.system import source_of
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.sizing import count_young_pods, size_queues

_MOST_KINDS = 50  # of pods, a line each
_IF_IT_STAYS = (
    "look again in a minute; if it stays, a reload failed, or pods got their queue label too late"
)


@looks_at("nodes")
def check_nodes(config: Config, nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Reports lent nodes that differ from their type."""
    lent = [node for node in nodes if node.mark and node.mark.instance == config.instance_id]
    yield fine(f"{len(nodes)} in Kubernetes, {len(lent)} of them lent by this instance")
    for text, names in _differing_nodes(config, lent).items():
        yield doubtful(
            f"{fold_hostlist(names)}: {text}",
            "repair the node or return it (`dnm return NODE`); if all nodes of the type are like "
            "this, correct the type in the configuration",
        )


def _differing_nodes(config: Config, nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Returns each difference from the type that the mark names, with the nodes that have it."""
    by_difference: dict[str, list[str]] = {}
    for node in nodes:
        node_type = config.node_types.get(node.mark.node_type) if node.mark else None
        if node_type is not None and node.mark is not None and node.is_ready:
            for text in describe_differences(node, node_type, node.mark.namespace):
                by_difference.setdefault(text, []).append(node.name)
    return by_difference


@looks_at("pods")
def check_pods(config: Config, document: QueueDocument, snapshot: Snapshot) -> Iterator[Finding]:
    """Reports pending pods that no node type would help, and differences to the scheduler."""
    pods, nodes = snapshot.pods, snapshot.nodes
    if isinstance(pods, Unreadable) or isinstance(nodes, Unreadable):
        for unread in (pods, nodes):
            if isinstance(unread, Unreadable):
                yield wrong(f"{unread.subject}: {unread.error}")
        return
    for namespace, error in pods.unreadable.items():
        yield wrong(f"those of {namespace} can't be read: {error}")
    scope = "of the cluster" if pods.cluster_wide else "of the monitored namespaces"
    yield fine(f"{len(pods.pods)} unfinished ones {scope}")
    own = _own_demand(config, document, snapshot, pods)
    yield from _warn_of_queues(config, document, own)
    waits = snapshot.waits
    for text in describe_uncertain_pods(config, waits, pods.pods) if waits else ():
        yield doubtful(text)
    nodes = waits.offering(nodes) if waits else nodes
    yield from _check_fit(config, document, own, nodes)
    yield from _warn_of_sidecars(config, snapshot, pods)
    if isinstance(view := snapshot.queue_facts.view, SchedulerView):
        plain = msgspec.structs.replace(config, default_request={}, pending_grace=timedelta(0))
        asked = _own_demand(plain, document, snapshot, pods)
        names = offered_resources(config, snapshot, document.limits)
        yield from _compare_sums(config, document, asked, _of_names(view, names))


@looks_at("queue document")
def _warn_of_queues(config: Config, document: QueueDocument, own: Demand) -> Iterator[Finding]:
    """Reports effects of a lowered limit on pods, and limits that dnm cannot count."""
    gangs = {
        path: queue.largest_gang for path, queue in own.queues.items() if path in config.queues
    }
    warnings = (
        *warn_of_quota_preemption(document.tree, config.queues),
        *warn_of_gangs(document.tree, gangs),
    )
    for warning in warnings:
        yield doubtful(warning)
    if not config.yunikorn_url:
        for warning in warn_of_uncounted_limits(document.tree, config.queues):
            yield doubtful(warning, "set yunikorn_url")


def _warn_of_sidecars(config: Config, snapshot: Snapshot, pods: PodList) -> Iterator[Finding]:
    """Reports pods that YuniKorn may count with more than they use."""
    shapes = [
        pod.shape
        for pod in pods.pods
        if pod.shape.request_before_1_9 and pod.is_managed and pod.namespace in config.namespaces
    ]
    if not shapes:
        return
    subject = f"{count_of(len(shapes), 'pod')} with sidecars that YuniKorn before 1.9 counts twice"
    release = _release(snapshot)
    if release is None:
        yield doubtful(
            f"{subject}; dnm cannot read the release, and counts them once",
            "set yunikorn_url; with an older YuniKorn such pods can wait forever",
        )
    elif release < (1, 9):
        yield doubtful(
            f"{subject}, and so does dnm here: they use up more of their queue than they need",
            "upgrade YuniKorn to 1.9",
        )


def _release(snapshot: Snapshot) -> tuple[int, int] | None:
    view = snapshot.queue_facts.view
    return view.release if isinstance(view, SchedulerView) else None


def _own_demand(
    config: Config, document: QueueDocument, snapshot: Snapshot, pods: PodList
) -> Demand:
    """Returns the demand without the scheduler's queues and sums, to compare it with them."""
    release = _release(snapshot)
    view = SchedulerView(queue_of_pod={}, allocated={}, pending={}, release=release)
    facts = DemandFacts(
        now=snapshot.taken_at,
        claims=snapshot.claims,
        scheduler=view,
        resources=offered_resources(config, snapshot, document.limits),
    )
    demand: Demand = count_young_pods(gather_demand(pods.pods, config, document.limits, facts))
    return with_devices(demand, snapshot.waits) if snapshot.waits else demand


@looks_at("node types")
def _check_fit(
    config: Config, document: QueueDocument, demand: Demand, nodes: tuple[Node, ...]
) -> Iterator[Finding]:
    sizing = size_queues(config, demand, document.limits, NodeSupply(nodes=nodes))
    unschedulable = [item for queue in sizing.queues.values() for item in queue.unschedulable]
    pending = sum(group.total for group in demand.groups)
    remedy = "they bring no node: change the pods, or the size, labels and taints of the node type"
    if _differing_nodes(config, nodes):
        remedy = "they bring no node: first repair the lent nodes that differ from their type"
    for pods in unschedulable[:_MOST_KINDS]:
        yield doubtful(
            f"{count_of(pods.count, 'pending pod')} of {pods.group.namespace} "
            f"({', '.join(pods.group.names)}): {pods.why}",
            remedy,
        )
    for left_out in demand.uncounted[:_MOST_KINDS]:
        if left_out.namespace in config.namespaces:
            yield doubtful(
                f"{count_of(left_out.count, 'pending pod')} of {left_out.namespace} "
                f"({', '.join(left_out.names)}) not counted: {left_out.why.value}",
                check="pods",
            )
    if not unschedulable:
        yield fine(
            f"{count_of(pending, 'pending pod')} counted, and each would fit a node"
            if pending
            else "no pod is pending that would have to fit"
        )


def _of_names(view: SchedulerView, names: frozenset[str]) -> SchedulerView:
    """Returns the scheduler's sums of only these resources, which dnm has summed up too."""

    def cut(sums: Mapping[str, Resources]) -> dict[str, Resources]:
        return {
            path: {name: amount for name, amount in resources.items() if name in names}
            for path, resources in sums.items()
        }

    return msgspec.structs.replace(
        view, allocated=cut(view.allocated), pending=cut(view.pending), max=cut(view.max)
    )


@looks_at("YuniKorn")
def _compare_sums(
    config: Config, document: QueueDocument, own: Demand, view: SchedulerView
) -> Iterator[Finding]:
    """Compares the scheduler's sums and limits with dnm's, for each monitored queue. `own` is
    dnm's demand with pods that were just created, and without defaults for missing requests."""
    for path in config.queues:
        counted = own.queues.get(path)
        if counted is None or path not in document.limits:
            continue
        differing = [
            (
                sums,
                f"{title} {amounts(sums.get(path, {})) or 'nothing'}, {own_title} "
                f"{amounts(own_sums) or 'nothing'}",
            )
            for title, sums, own_sums, own_title in (
                ("it has in use", view.allocated, counted.used, "dnm counts"),
                ("it has pending", view.pending, counted.pending, "dnm counts"),
                ("its limit is", view.max, document.limits[path].max, "the document's"),
            )
            if _differs(sums.get(path, {}), own_sums)
        ]
        left_out = sum(
            uncounted.count for uncounted in own.uncounted if is_under(uncounted.queue, path)
        )
        for sums, text in differing:
            remedy = _IF_IT_STAYS
            if left_out and sums is view.pending:
                uncounted = count_of(left_out, "pod")
                remedy = f"perhaps {uncounted} of those that don't count (see 'pods'); or {remedy}"
            yield doubtful(f"{path}: {text}", remedy)
        if not differing:
            yield fine(f"{path}: in use, pending and limit are what dnm makes of them")


def _differs(theirs: Resources, mine: Resources) -> bool:
    names = (theirs.keys() | mine.keys()) - {"pods"}
    return any(theirs.get(name, 0) != mine.get(name, 0) for name in names)


@looks_at("readiness checks")
def check_opening(config: Config, kube: KubeClient) -> Iterator[Finding]:
    """Checks the DaemonSets that nodes wait for, and those that do not tolerate dnm's taint."""
    waiting = [
        item
        for item in config.node_types.values()
        if any(step.kind == "daemonsets" for step in item.readiness_checks)
    ]
    if not waiting:
        return
    daemons = list_daemons(kube.requests)
    tenants = [
        daemon.name for daemon in daemons if daemon.name.partition("/")[0] in config.namespaces
    ]
    for kind in waiting:
        traits = NodeTraits(labels=kind.labels, taints=kind.taints)
        required = required_daemons(daemons, config.namespaces, traits)
        late = sorted(
            daemon.name for daemon in required if not tolerates(daemon.shape.tolerations, CLOSED)
        )
        if late:
            yield doubtful(
                f"nodes of type {kind.name} wait for every DaemonSet, and these do not tolerate "
                f"{OPENING_TAINT}: {', '.join(late)}",
                "give them the toleration, or name in readiness_checks those that matter",
            )
        else:
            names = ", ".join(sorted(daemon.name for daemon in required)[:_MOST_SHOWN]) or "none"
            more = f" and {len(required) - _MOST_SHOWN} more" if len(required) > _MOST_SHOWN else ""
            yield fine(f"nodes of type {kind.name} wait for these DaemonSets: {names}{more}")
        if tenants:
            names = ", ".join(sorted(tenants)[:_MOST_SHOWN])
            more = f" and {len(tenants) - _MOST_SHOWN} more" if len(tenants) > _MOST_SHOWN else ""
            yield fine(
                f"nodes of type {kind.name} do not wait for DaemonSets of monitored namespaces "
                f"({names}{more}); to wait for one, set readiness_checks = daemonset NAMESPACE/NAME"
            )


_MOST_SHOWN = 5  # violations, of many


@looks_at("queue document")
def check_queue_document(
    config: Config, snapshot: Snapshot, documents: list[QueueDocument]
) -> Iterator[Finding]:
    """Checks place, editability and YuniKorn's rules, and appends the document to `documents`."""
    if unread := snapshot.queue_facts.unread:
        yield wrong(f"{unread.subject}: {unread.error}")
        return
    source = source_of(config, snapshot.queue_facts)
    for warning in source.warnings:
        yield doubtful(warning)
    document = read_document(source)
    documents.append(document)
    for refusal in filter(None, (source.refusal, document.tree.refusal)):
        yield wrong(f"dnm can't edit it: {refusal}")
    violations = document.violations
    for violation in violations[:_MOST_SHOWN]:
        yield wrong(
            f"line {violation.line}: {violation.message} ({violation.rule})",
            "fix it: dnm does not edit such a document",
        )
    if len(violations) > _MOST_SHOWN:
        yield wrong(f"{len(violations)} violations in all", "'dnm queues check' shows them")
    for advice in advise(document.tree):
        if advice.message != document.tree.refusal:
            yield doubtful(f"line {advice.line}: {advice.message}")
    if spreading := warn_of_spreading(document.tree):
        yield doubtful(spreading, "set nodesortpolicy: {type: binpacking} in the partition")
    if not violations and not source.refusal and source.config_map is not None:
        where = f"{source.config_map.namespace}/{source.config_map.name}"
        yield fine(f"{source.key} of {where}: {count_of(len(document.limits), 'queue')}, valid")


def check_queues(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Checks that each monitored queue exists and has a limit that dnm can change."""
    counted = document.ledger.sections.get(config.instance_id, Section()).queues
    wants = queue_wants(config, Registry(last_run=RunRecord(ledger="")), counted)
    for policy in config.namespaces.values():
        check, path = f"queue of {policy.name}", policy.queue
        limits = document.limits.get(path)
        if limits is None:
            hint = values.suggest(path, document.limits)
            yield wrong(
                f"there is no {path} in the queue document{hint}",
                "correct the queue map or write the queue",
                check,
            )
            continue
        children = [queue for queue in document.limits.values() if queue.parent == path]
        if children:
            yield doubtful(
                f"{path} has {count_of(len(children), 'queue')} below it, whose limits dnm "
                "does not change",
                "map the namespace to the leaf its pods run in",
                check,
            )
        sizes = [config.node_types[name].size for name in policy.node_types]
        obstacles = (why_no_growth(document, wants, path, [size]) for size in sizes)
        if not document.refusal and (why := next(filter(None, obstacles), None)):
            why_not = f"{path} gets no node, since its limit can't grow: {why.detail}"
            yield wrong(why_not, check=check)
        elif limit := amounts(limits.max):
            yield fine(f"{path}, limit {limit}", check)
        else:
            bare = f"{path}, without its own limit: it gets nodes only for lack of free capacity"
            yield fine(bare, check)


@looks_at("YuniKorn")
def check_scheduler(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Checks that the scheduler answers and uses the current document."""
    client = YunikornClient(config.yunikorn_url)
    refusal = client.validate(document.source.text)
    if refusal:
        yield wrong(
            f"the scheduler would refuse the document: {refusal}",
            "fix the document: the next restart of the scheduler fails with it",
        )
    elif client.read_checksum() != checksum_of(document.source.text):
        yield wrong(
            "the scheduler uses another document than the ConfigMap",
            "look for 'reload configuration failed' in the scheduler's log",
        )
    else:
        yield fine(f"{config.yunikorn_url} uses the current document")
