"""`dnm check`, the cluster's part: access, permissions, the queue document, nodes and pods."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote

import msgspec

from dnm.cli.check import Finding, Result, doubtful, fine, guarded, skipped, wrong
from dnm.cli.report import amounts, count_of, duration
from dnm.config import values
from dnm.converter.node_convert import NodeConvert
from dnm.demand.demand import Demand, DemandFacts, gather_demand
from dnm.kube.client import KubeClient
from dnm.kube.credentials import find_kubeconfig
from dnm.kube.questions import can_i, read_server_time, read_version
from dnm.model.cluster import Node, PodList, YunikornView
from dnm.model.config import Config
from dnm.model.errors import DnmError
from dnm.model.plan import Snapshot
from dnm.model.registry import Registry
from dnm.model.trust import find_distrust
from dnm.model.value import Resources, Unreadable, Value
from dnm.queues.advice import warn_of_gangs, warn_of_quota_preemption
from dnm.queues.document import (
    DEFAULTS_NAME,
    QueueDocument,
    advise,
    check_rules,
    parse_document,
    resolve_document,
)
from dnm.queues.yunikorn_rest import YunikornClient, checksum_of
from dnm.run.snapshot import take_snapshot
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.sizing import counting_young, size_queues

_SKEW_FINE = timedelta(seconds=5)  # the server's Date has whole seconds, and the answer takes time
_SKEW_WRONG = timedelta(seconds=60)
_MOST_SHOWN = 5  # violations, of many
_MOST_KINDS = 50  # of pods, a line each
_IF_IT_STAYS = (
    "look again in a minute; if it stays, a reload failed, or pods got their queue label too late"
)


class Permission(Value, frozen=True):
    """Something a run does. `is_needed` is False where a run goes on without it, knowing less."""

    verb: str
    resource: str  # with its subresource: pods/eviction
    without: str  # what happens without it
    namespace: str = ""  # empty: cluster-wide
    name: str = ""
    is_needed: bool = True


def permissions(config: Config) -> tuple[Permission, ...]:
    """What a run asks for; etc/rbac.yaml grants exactly this."""
    where, name = config.yunikorn_cm_namespace, config.yunikorn_cm_name
    only_converter = "node-convert can't do it, where it uses dnm's kubeconfig"
    return (
        Permission(verb="list", resource="nodes", without="nothing is decided"),
        Permission(verb="get", resource="nodes", without="no node is fenced or given back"),
        Permission(verb="patch", resource="nodes", without="no node is marked or fenced"),
        Permission(verb="list", resource="pods",
                   without="pods are read by namespace, and no node is ever given back, since pods "
                   "of any namespace may run on it"),
        Permission(verb="get", resource="configmaps", namespace=where, name=name,
                   without="the queues are not known"),
        Permission(verb="update", resource="configmaps", namespace=where, name=name,
                   without="no limit is changed"),
        Permission(verb="get", resource="configmaps", namespace=where, name=DEFAULTS_NAME,
                   is_needed=False, without="queues that stand only there are not known"),
        Permission(verb="list", resource="persistentvolumeclaims", is_needed=False,
                   without="pending pods with claims count for nothing"),
        Permission(verb="list", resource="persistentvolumes", is_needed=False,
                   without="pending pods with claims count for nothing"),
        Permission(verb="delete", resource="nodes", is_needed=False, without=only_converter),
        Permission(verb="create", resource="pods/eviction", is_needed=False,
                   without=only_converter),
    )  # fmt: skip


def check_cluster(
    config: Config, registry: Registry, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Everything behind the API; where it does not answer, the one finding says so."""
    found = list(guarded("kubeconfig", lambda: check_kubeconfig(config)))
    yield from found
    if any(finding.result is Result.FAILED for finding in found):
        yield skipped("Kubernetes", "it needs a kubeconfig that can be used")
        return
    with closing(KubeClient.connect(config)) as kube:
        try:
            yield fine(
                "Kubernetes", f"{kube.server} answers, version {read_version(kube.requests)}"
            )
        except DnmError as error:
            yield wrong("Kubernetes", str(error))
            yield skipped("permissions, queues, pods", "they need the API")
            return
        yield from guarded("clock", lambda: check_clock(kube))
        yield from guarded("permission", lambda: check_permissions(config, kube))
        snapshot = take_snapshot(
            config, registry, kube, NodeConvert(config, environ), datetime.now(UTC)
        )
    document: list[QueueDocument] = []
    yield from guarded("queue document", lambda: check_queue_document(config, snapshot, document))
    if document:
        yield from check_queues(config, document[0])
        if config.yunikorn_url:
            yield from guarded("YuniKorn", lambda: check_scheduler(config, document[0]))
        yield from check_pods(config, document[0], snapshot)
    if isinstance(snapshot.nodes, tuple):
        yield from check_nodes(config, snapshot.nodes)


def check_kubeconfig(config: Config) -> Iterator[Finding]:
    """It holds a key to the cluster, and may name a program to run."""
    for text in find_kubeconfig(config).split(os.pathsep):
        path = Path(text).expanduser()
        if not text or not path.exists():
            continue
        info = path.stat()
        if distrust := find_distrust(path, info):
            yield wrong("kubeconfig", *distrust.rsplit(": ", 1))
        elif info.st_mode & (stat.S_IRGRP | stat.S_IROTH):
            yield doubtful(
                "kubeconfig",
                f"{path} can be read by others, with the key in it",
                f"run 'chmod 600 {quote(str(path))}'",
            )
        else:
            yield fine("kubeconfig", f"{path} is its owner's alone")


def check_clock(kube: KubeClient) -> Iterator[Finding]:
    """Pods' ages are of the server's clock, idle times of this one."""
    theirs = read_server_time(kube.requests)
    skew = abs(datetime.now(UTC) - theirs)
    text = f"this host and the API server differ by {duration(skew)}"
    remedy = "synchronise both (chronyc tracking): grace times and idle times rest on them"
    if skew > _SKEW_WRONG:
        yield wrong("clock", text, remedy)
    elif skew > _SKEW_FINE:
        yield doubtful("clock", text, remedy)
    else:
        yield fine("clock", text)


def check_permissions(config: Config, kube: KubeClient) -> Iterator[Finding]:
    for one in permissions(config):
        resource, _, subresource = one.resource.partition("/")
        shown = f"{one.verb} {one.resource}"
        if one.namespace:
            shown += f" {one.namespace}/{one.name}"
        allowed = can_i(kube.requests, one.verb, resource, one.namespace, "", subresource, one.name)
        if allowed:
            yield fine("permission", shown)
            continue
        finding = wrong if one.is_needed else doubtful
        yield finding(
            "permission", f"may not {shown}: {one.without}", "grant it as etc/rbac.yaml does"
        )
        if (one.verb, one.resource) == ("list", "pods"):
            yield from _pods_by_namespace(config, kube)


def _pods_by_namespace(config: Config, kube: KubeClient) -> Iterator[Finding]:
    for namespace in config.namespaces:
        if can_i(kube.requests, "list", "pods", namespace):
            yield fine("permission", f"list pods in {namespace}")
        else:
            yield wrong(
                "permission",
                f"may not list pods in {namespace}: it gets no nodes",
                "grant it as etc/rbac.yaml does",
            )


# --- queues ----------------------------------------------------------------------------------


def check_queue_document(
    config: Config, snapshot: Snapshot, found: list[QueueDocument]
) -> Iterator[Finding]:
    """Where it is, whether dnm may edit it there, and YuniKorn's rules; leaves it in `found`."""
    check = "queue document"
    if isinstance(snapshot.queue_maps, Unreadable):
        yield wrong(check, f"{snapshot.queue_maps.what}: {snapshot.queue_maps.error}")
        return
    asked = (config.yunikorn_cm_namespace, config.yunikorn_cm_name)
    source = resolve_document(*snapshot.queue_maps, asked)
    for warning in source.warnings:
        yield doubtful(check, warning)
    document = parse_document(source.text)
    found.append(document)
    for refusal in filter(None, (source.refusal, document.refusal)):
        yield wrong(check, f"dnm can't edit it: {refusal}")
    violations = check_rules(document)
    for violation in violations[:_MOST_SHOWN]:
        yield wrong(
            check,
            f"line {violation.line}: {violation.message} ({violation.rule})",
            "mend it: YuniKorn would not start with it, and dnm does not edit it",
        )
    if len(violations) > _MOST_SHOWN:
        yield wrong(check, f"{len(violations)} violations in all", "'dnm queues check' shows them")
    for advice in advise(document):
        if advice.message != document.refusal:
            yield doubtful(check, f"line {advice.line}: {advice.message}")
    if not violations and not source.refusal and source.config_map is not None:
        where = f"{source.config_map.namespace}/{source.config_map.name}"
        yield fine(check, f"{source.key} of {where}: {len(document.queues)} queues, valid")


def check_queues(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Of each monitored queue: there, and with a limit that dnm can move."""
    for policy in config.namespaces.values():
        check, path = f"queue of {policy.name}", policy.queue
        limits = document.queues.get(path)
        if limits is None:
            hint = values.suggest(path, document.queues)
            yield wrong(
                check,
                f"there is no {path} in the queue document{hint}",
                "correct the queue map or write the queue",
            )
            continue
        children = [queue for queue in document.queues.values() if queue.parent == path]
        if children:
            yield doubtful(
                check,
                f"{path} has {len(children)} queues below it, whose own limits dnm leaves alone",
                "map the namespace to the leaf its pods run in",
            )
        limit = amounts(limits.max)
        yield fine(
            check,
            f"{path}, limit {limit}"
            if limit
            else f"{path}, without a limit of its own: only a lack of room brings it nodes",
        )


def check_scheduler(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Whether it answers, and whether the document is the one in force."""
    client = YunikornClient(config.yunikorn_url)
    refusal = client.validate(document.text)
    if refusal:
        yield wrong(
            "YuniKorn",
            f"the scheduler would refuse the document: {refusal}",
            "mend the document: the next restart of the scheduler fails with it",
        )
    elif client.read_checksum() != checksum_of(document.text):
        yield wrong(
            "YuniKorn",
            "the scheduler has another document in force than the ConfigMap",
            "look for 'reload configuration failed' in the scheduler's log",
        )
    else:
        yield fine("YuniKorn", f"{config.yunikorn_url} has the document in force")


# --- nodes and pods --------------------------------------------------------------------------


def check_nodes(config: Config, nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """What lent nodes bring against what the configuration expects of their type."""
    ours = [node for node in nodes if node.mark and node.mark.instance == config.instance_id]
    yield fine("nodes", f"{len(nodes)} in Kubernetes, {len(ours)} of them lent by this instance")
    for node in ours:
        node_type = config.node_types.get(node.mark.node_type) if node.mark else None
        if node_type is None or not node.is_ready:
            continue
        less = {
            name: node.allocatable.get(name, 0)
            for name, amount in node_type.size.items()
            if node.allocatable.get(name, 0) < 0.9 * amount
        }
        if less:
            expected = amounts({name: node_type.size[name] for name in less})
            yield doubtful(
                "nodes",
                f"{node.name} brings {amounts(less)}, not {expected} as type {node_type.name} has",
                "write down what such a node really brings",
            )


def check_pods(config: Config, document: QueueDocument, snapshot: Snapshot) -> Iterator[Finding]:
    """Pending pods that no node type would help, and what the scheduler itself counts."""
    pods, nodes = snapshot.pods, snapshot.nodes
    if isinstance(pods, Unreadable) or isinstance(nodes, Unreadable):
        for unread in (pods, nodes):
            if isinstance(unread, Unreadable):
                yield wrong("pods", f"{unread.what}: {unread.error}")
        return
    for namespace, error in pods.unreadable.items():
        yield wrong("pods", f"those of {namespace} can't be read: {error}")
    scope = "of the cluster" if pods.cluster_wide else "of the monitored namespaces"
    yield fine("pods", f"{len(pods.pods)} unfinished ones {scope}")
    own = _own_demand(config, document, snapshot, pods)
    yield from _warn_of_queues(config, document, own)
    yield from _check_fit(config, document, own, nodes)
    if isinstance(snapshot.yunikorn, YunikornView):
        plain = msgspec.structs.replace(config, default_request={}, pending_grace=timedelta(0))
        asked = _own_demand(plain, document, snapshot, pods)
        yield from _compare_sums(config, document, asked, snapshot.yunikorn)


def _warn_of_queues(config: Config, document: QueueDocument, own: Demand) -> Iterator[Finding]:
    """What a lowered limit could do to pods."""
    gangs = {
        path: queue.largest_gang for path, queue in own.queues.items() if path in config.queues
    }
    warnings = (
        *warn_of_quota_preemption(document, config.queues),
        *warn_of_gangs(document, gangs),
    )
    for warning in warnings:
        yield doubtful("queue document", warning)


def _own_demand(
    config: Config, document: QueueDocument, snapshot: Snapshot, pods: PodList
) -> Demand:
    """Without the scheduler's word, so that the two can be compared."""
    facts = DemandFacts(now=snapshot.taken_at, claims=snapshot.claims)
    demand: Demand = counting_young(gather_demand(pods.pods, config, document.queues, facts))
    return demand


def _check_fit(
    config: Config, document: QueueDocument, demand: Demand, nodes: tuple[Node, ...]
) -> Iterator[Finding]:
    sizing = size_queues(config, demand, document.queues, NodeSupply(nodes=nodes))
    unschedulable = [one for queue in sizing.queues.values() for one in queue.unschedulable]
    pending = sum(group.total for group in demand.groups)
    for one in unschedulable[:_MOST_KINDS]:
        yield doubtful(
            "node types",
            f"{one.count} pending pods of {one.group.namespace} "
            f"({', '.join(one.group.names)}): {one.why}",
            "they never bring a node; mend the pods, or the type's size, labels, taints",
        )
    for left_out in demand.uncounted[:_MOST_KINDS]:
        if left_out.namespace in config.namespaces:
            yield doubtful(
                "pods",
                f"{left_out.count} pending pods of {left_out.namespace} "
                f"({', '.join(left_out.names)}) don't count: {left_out.why.value}",
            )
    if not unschedulable:
        yield fine(
            "node types",
            f"each of the {pending} pending pods that count would fit a node"
            if pending
            else "no pod is pending that would have to fit",
        )


def _compare_sums(
    config: Config, document: QueueDocument, own: Demand, view: YunikornView
) -> Iterator[Finding]:
    """The scheduler's own sums and limits against dnm's, for each monitored queue; `own` as the
    scheduler counts: young pods too, and none with a default request."""
    for path in config.queues:
        counted = own.queues.get(path)
        if counted is None or path not in document.queues:
            continue
        differing = [
            f"{what} {amounts(theirs.get(path, {})) or 'nothing'}, {mine_word} "
            f"{amounts(mine) or 'nothing'}"
            for what, theirs, mine, mine_word in (
                ("it has in use", view.allocated, counted.used, "dnm counts"),
                ("it has pending", view.pending, counted.pending, "dnm counts"),
                ("its limit is", view.max, document.queues[path].max, "the document's"),
            )
            if _differs(theirs.get(path, {}), mine)
        ]
        left_out = sum(one.count for one in own.uncounted if f"{one.queue}.".startswith(f"{path}."))
        for text in differing:
            remedy = _IF_IT_STAYS
            if left_out and text.startswith("it has pending"):
                uncounted = count_of(left_out, "pod")
                remedy = f"perhaps {uncounted} of those that don't count (see 'pods'); or {remedy}"
            yield doubtful("YuniKorn", f"{path}: {text}", remedy)
        if not differing:
            yield fine("YuniKorn", f"{path}: in use, pending and limit are what dnm makes of them")


def _differs(theirs: Resources, mine: Resources) -> bool:
    names = (theirs.keys() | mine.keys()) - {"pods"}
    return any(theirs.get(name, 0) != mine.get(name, 0) for name in names)
