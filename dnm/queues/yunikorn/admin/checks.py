"""The checks by `dnm check` of YuniKorn: queue document, queues, and the scheduler's sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import msgspec

from dnm.checks.findings import Finding, doubtful, fine, looks_at, skipped, wrong
from dnm.checks.queue_checks import QueueProperties
from dnm.config import values
from dnm.demand.demand import Demand
from dnm.kube.client import KubeClient
from dnm.kube.eviction import refuses_dry_run
from dnm.kube.questions import can_i
from dnm.model.amounts import amounts
from dnm.model.cluster import ConfigMap, SchedulerView
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, KubeError, QueueError
from dnm.model.permission import Permission
from dnm.model.plan import Snapshot
from dnm.model.pod import PodList
from dnm.model.printable import count_of
from dnm.model.queue_path import is_under
from dnm.model.registry import Registry, RunRecord
from dnm.model.value import Resources
from dnm.plan.inputs import offered_resources
from dnm.plan.limits import queue_wants
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
from dnm.queues.yunikorn.quantities import kubernetes_amounts, kubernetes_limits, yunikorn_amounts
from dnm.queues.yunikorn.rest import YunikornClient, checksum_of
from dnm.queues.yunikorn.source import DEFAULTS_NAME
from dnm.queues.yunikorn.system import source_of

# Headroom: yunikorn-core queue.go, getHeadRoom. A gang larger than the limit is rejected:
# partition.go, AddApplication. Devices: 1.8 allocates none and binds such pods without, 1.9.0 ends
# with a panic.
PROPERTIES = QueueProperties(
    writes_limits=True,
    zero_means="none",  # of a limit in which every amount is 0, since YuniKorn 1.5
    ancestors_grow=True,
    shrinking_may_evict=True,  # with preemption by quota, since YuniKorn 1.9
)
_MOST_SHOWN = 5  # violations, of many
_IF_IT_STAYS = (
    "look again in a minute; if it stays, a reload failed, or pods got their queue label too late"
)
_TRIED = "dynamic-node-manager/tried"  # an annotation that only a dry run writes


def find_trace(config: Config, kube: KubeClient) -> str:
    """Returns the ConfigMap with YuniKorn's queues, or an empty text if there is none."""
    has_document = kube.read_config_map(*config.queue_document) is not None
    return f"a ConfigMap {'/'.join(config.queue_document)}" if has_document else ""


def permissions(config: Config) -> tuple[Permission, ...]:
    """Returns the permissions that a run needs to read and write the queue document."""
    where, name = config.queue_document
    return (
        Permission(
            verb="get", resource="configmaps", namespace=where, name=name,
            without="the queues are not known",
        ),
        Permission(
            verb="update", resource="configmaps", namespace=where, name=name,
            without="no limit is changed, and no new node serves",
        ),
        Permission(
            verb="get", resource="configmaps", namespace=where, name=DEFAULTS_NAME,
            is_needed=False, without="queues that are only there are not known",
        ),
    )  # fmt: skip


def check_limits(config: Config, kube: KubeClient, snapshot: Snapshot) -> Iterator[Finding]:
    """Checks the queue document, and whether the API server would accept a change of it."""
    documents: list[QueueDocument] = []
    yield from check_queue_document(config, snapshot, documents)
    if documents and documents[0].source.config_map is not None:
        yield from check_admission(kube, documents[0].source.config_map)


def check_queues(config: Config, snapshot: Snapshot) -> Iterator[Finding]:
    """Checks the monitored queues, and whether the scheduler uses their limits."""
    if document := _read(config, snapshot):
        yield from check_monitored_queues(config, document)
        if config.yunikorn_url:
            yield from check_scheduler(config, document)


def check_demand(
    config: Config, snapshot: Snapshot, pods: PodList, count: Callable[[Config], Demand]
) -> Iterator[Finding]:
    """Reports differences between YuniKorn's sums of used and pending resources and dnm's. `count`
    returns dnm's sums with a given configuration."""
    document = _read(config, snapshot)
    if document is None:
        return
    yield from _warn_of_queues(config, document, count(config))
    yield from _warn_of_sidecars(config, snapshot, pods)
    if isinstance(view := snapshot.queue_facts.view, SchedulerView):
        plain = msgspec.structs.replace(config, default_request={}, pending_grace=timedelta(0))
        names = offered_resources(config, snapshot, kubernetes_limits(document.limits))
        yield from _compare_sums(config, document, count(plain), _of_names(view, names))


def _read(config: Config, snapshot: Snapshot) -> QueueDocument | None:
    """Returns the queue document, or None if it is unreadable, which `check_limits` reports."""
    try:
        return (
            None
            if snapshot.queue_facts.unread
            else read_document(source_of(config, snapshot.queue_facts))
        )
    except QueueError:
        return None


@looks_at("queue document")
def _warn_of_queues(config: Config, document: QueueDocument, own: Demand) -> Iterator[Finding]:
    """Reports queues in which a lower limit affects pods, and limits that dnm cannot count."""
    gangs = {
        path: yunikorn_amounts(queue.largest_gang)
        for path, queue in own.queues.items()
        if path in config.queues
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
    """Reports pods with sidecars that YuniKorn before 1.9 counts twice."""
    shapes = [
        pod.shape
        for pod in pods.pods
        if pod.shape.request_sidecars_twice
        and pod.is_managed
        and pod.namespace in config.namespaces
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


def _of_names(view: SchedulerView, names: frozenset[str]) -> SchedulerView:
    """Returns the scheduler's sums of these resources (`names`) only, without all others."""

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
    """Compares the scheduler's sums and limits of each monitored queue with dnm's. `own` is the
    demand as dnm counts it, with new pods and without defaults for missing requests."""
    for path in config.queues:
        counted = own.queues.get(path)
        if counted is None or path not in document.limits:
            continue
        limit = kubernetes_amounts(document.limits[path].max)
        differing = [
            (
                sums,
                f"{title} {amounts(sums.get(path, {})) or 'nothing'}, {own_title} "
                f"{amounts(own_sums) or 'nothing'}",
            )
            for title, sums, own_sums, own_title in (
                ("it has in use", view.allocated, counted.used, "dnm counts"),
                ("it has pending", view.pending, counted.pending, "dnm counts"),
                ("its limit is", view.max, limit, "the document's"),
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


@looks_at("queue document")
def check_queue_document(
    config: Config, snapshot: Snapshot, documents: list[QueueDocument]
) -> Iterator[Finding]:
    """Checks whether dnm can edit the queue document and whether it obeys YuniKorn's rules. Appends
    the document to `documents` if it is readable."""
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


def check_monitored_queues(config: Config, document: QueueDocument) -> Iterator[Finding]:
    """Checks that each monitored queue exists and has a limit that dnm can change."""
    counted = document.ledger.sections.get(config.instance_id, Section()).queues
    wants = queue_wants(config, Registry(last_run=RunRecord(ledger="")), counted)
    policies = config.namespaces.values()
    for policy in (policy for policy in policies if policy.queue_system == "yunikorn"):
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
        sizes = [yunikorn_amounts(config.node_types[name].size) for name in policy.node_types]
        obstacles = (why_no_growth(document, wants, path, [size]) for size in sizes)
        if not document.refusal and (why := next(filter(None, obstacles), None)):
            why_not = f"{path} gets no node, since its limit can't grow: {why.detail}"
            yield wrong(why_not, check=check)
        elif limit := amounts(kubernetes_amounts(limits.max)):
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


@looks_at("queue document")
def check_admission(kube: KubeClient, config_map: ConfigMap) -> Iterator[Finding]:
    """Checks whether the API server accepts a change of the queues' ConfigMap, by a dry run: an
    admission webhook or a policy may refuse it."""
    where = (config_map.namespace, config_map.name)
    if not can_i(kube.requests, "update", "configmaps", where[0], name=where[1]):
        return  # check_permissions has reported it
    annotations = {**config_map.annotations, _TRIED: "a dry run, of which nothing is kept"}
    try:
        kube.write_config_map(
            msgspec.structs.replace(config_map, annotations=annotations), dry_run=True
        )
    except KubeConflict:
        yield skipped("another client is writing it now: try again")
    except KubeError as error:
        if refuses_dry_run(error):
            yield skipped(f"whether a change is admitted: {error}")
            return
        yield wrong(
            f"the server refuses a change in a dry run: {error}",
            "until it accepts one, no limit is changed and no new node serves its queue: let the "
            "webhook or policy admit dnm's account",
        )
