"""The checks of the Kubernetes cluster for `dnm check`: kubeconfig, clock, permissions.

`pods.py` checks nodes and pods. The package of each queue system checks its queues."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote

import msgspec

from dnm.checks.findings import CheckResult, Finding, doubtful, fine, looks_at, skipped, wrong
from dnm.checks.permissions import permissions
from dnm.checks.pods import check_nodes, check_opening, check_pods
from dnm.checks.queue_checks import check_other_systems, checks_of
from dnm.checks.slinky import check_slinky
from dnm.converter.node_convert import NodeConvert
from dnm.host.trust import find_distrust
from dnm.kube.access import find_kubeconfig
from dnm.kube.client import KubeClient
from dnm.kube.questions import can_i, read_server_time, read_version
from dnm.model.batch import BatchNode
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config
from dnm.model.errors import DnmError, KubeError, QueueError
from dnm.model.lease import LEASE_NAMESPACE, Lease
from dnm.model.node import Node
from dnm.model.plan import Snapshot
from dnm.model.printable import duration
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.inputs import lent_with
from dnm.plan.refusal import explain_changed_system
from dnm.plan.rules.kubelets import differing_kubelets
from dnm.queues import system_of, unlimited_namespaces
from dnm.queues.namespaces import unlimited_queues
from dnm.run.lease import judge_here
from dnm.run.lease_view import lease_seconds
from dnm.run.registry import attach_lease, opened_state
from dnm.run.snapshot import take_snapshot

_SKEW_FINE = timedelta(seconds=5)  # the server's Date has whole seconds, and the answer takes time
_SKEW_WRONG = timedelta(seconds=60)


@looks_at("Kubernetes")
def check_cluster(
    config: Config, registry: Registry, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Checks everything that needs the API server, or reports only that the server does not
    answer."""
    findings = list(check_kubeconfig(config))
    yield from findings
    if any(finding.result is CheckResult.FAILED for finding in findings):
        yield skipped("it needs a usable kubeconfig")
        return
    with closing(KubeClient.connect(config)) as kube:
        try:
            yield fine(f"{kube.server} answers, version {read_version(kube.requests)}")
        except DnmError as error:
            yield wrong(str(error))
            yield skipped("they need the API server", "permissions, queues, pods")
            return
        yield from check_clock(kube)
        yield from check_permissions(config, kube)
        snapshot = take_snapshot(
            config, registry, kube, NodeConvert(config, environ), datetime.now(UTC)
        )
        checks = checks_of(config)
        yield from check_queue_systems(config, registry)
        yield from check_other_systems(config, kube)
        for system in checks:
            yield from system.check_limits(config, kube, snapshot)
        if isinstance(nodes := snapshot.nodes, tuple):
            rows = _batch_rows(config, environ, snapshot, nodes)
            yield from check_slinky(config, registry, kube.requests, nodes, rows)
        yield from check_opening(config, kube)
        yield from check_lease(config, registry, kube)
    for system in checks:
        yield from system.check_queues(config, snapshot)
    if readable := _readable_limits(config, snapshot):
        yield from check_pods(*readable, snapshot)
    if isinstance(snapshot.nodes, tuple):
        yield from check_nodes(config, snapshot.nodes)
        by_name = {node.name: node for node in snapshot.nodes}
        for name, sentence in differing_kubelets(config, registry.nodes, by_name).items():
            yield doubtful(sentence, check=f"node {name}")


@looks_at("queue system")
def check_queue_systems(config: Config, registry: Registry) -> Iterator[Finding]:
    """Reports which queue system each namespace has, and how dnm changes limits in that system."""
    lent = lent_with(config, registry)
    if any(config.namespaces[name].queue_system != system for name, system in lent.items()):
        yield wrong(explain_changed_system(config, registry, lent).detail)
    for name, system in zip(sorted(config.queue_systems), checks_of(config), strict=True):
        namespaces = ", ".join(sorted(config.namespaces_with(name)))
        yield fine(f"{namespaces}: queue_system = {name}, {system.PROPERTIES.sentence}")


def _readable_limits(
    config: Config, snapshot: Snapshot
) -> tuple[Config, Mapping[str, QueueLimits]] | None:
    """Returns the configuration and the limits of its queues. If limits are unreadable, returns
    both for namespaces without limits (None: there are none), and `check_limits` reports it."""
    if not snapshot.queue_facts.unread:
        with suppress(QueueError):
            return config, system_of(config).read_queues(config, snapshot.queue_facts).limits
    queues = unlimited_queues(config)
    if queues is None:
        return None
    policies = {name: config.namespaces[name] for name in unlimited_namespaces(config)}
    return msgspec.structs.replace(config, namespaces=policies), queues.limits


def _batch_rows(
    config: Config, environ: Mapping[str, str], snapshot: Snapshot, nodes: Iterable[Node]
) -> Mapping[str, BatchNode] | None:
    """Returns Slurm's nodes from the snapshot. If the snapshot lacks them and slurm-bridge manages
    a Node, reads them now. Returns None if they were not read or are unreadable."""
    rows = snapshot.batch
    if rows is None and any(node.is_managed for node in nodes):
        listed = NodeConvert(config, environ).list_nodes()
        rows = listed if isinstance(listed, Unreadable) else listed.nodes
    return None if isinstance(rows, Unreadable) else rows


@looks_at("lease")
def check_lease(config: Config, registry: Registry, kube: KubeClient) -> Iterator[Finding]:
    """Checks whether this registry may act, and whether a run on another host is active."""
    with opened_state(config) as state:
        attach_lease(config, state, kube)
        if refusal := judge_here(config, state, registry, datetime.now(UTC)).refusal:
            yield wrong(refusal)
        elif state.observe() == Lease() and (obstacle := _try_to_create(config, kube)):
            yield wrong(obstacle)
        elif holder := state.holder:
            yield doubtful(holder, "wait for its end; if that host is off, run `dnm takeover`")
        else:
            yield fine(f"no other dnm acts as {config.instance_id}, and no other run is at work")


def _try_to_create(config: Config, kube: KubeClient) -> str:
    """Returns why the first run can't create the Lease, e.g. no such namespace, or an empty
    text."""
    try:
        lease = kube.lease_object(LEASE_NAMESPACE, config.object_name)
        lease.write_lease(Lease(seconds=lease_seconds(config)), is_dry_run=True)
    except KubeError as error:
        return str(error)
    return ""


@looks_at("kubeconfig")
def check_kubeconfig(config: Config) -> Iterator[Finding]:
    """Checks the kubeconfig's owner and mode: it contains a key and may name a program to run."""
    for text in find_kubeconfig(config).split(os.pathsep):
        path = Path(text).expanduser()
        if not text or not path.exists():
            continue
        info = path.stat()
        if distrust := find_distrust(path, info):
            yield wrong(distrust.problem, distrust.remedy)
        elif info.st_mode & (stat.S_IRGRP | stat.S_IROTH):
            yield doubtful(
                f"other users can read {path} and its key",
                f"run 'chmod 600 {quote(str(path))}'",
            )
        else:
            yield fine(f"only its owner can read {path}")


@looks_at("clock")
def check_clock(kube: KubeClient) -> Iterator[Finding]:
    """Compares this host's clock with the API server's. The ages of pods depend on the server's
    clock, idle times on this host's clock."""
    skew = abs(datetime.now(UTC) - read_server_time(kube.requests))
    text = f"this host and the API server differ by {duration(skew)}"
    remedy = "synchronise both (chronyc tracking): grace times and idle times depend on them"
    if skew > _SKEW_WRONG:
        yield wrong(text, remedy)
    elif skew > _SKEW_FINE:
        yield doubtful(text, remedy)
    else:
        yield fine(text)


@looks_at("permission")
def check_permissions(config: Config, kube: KubeClient) -> Iterator[Finding]:
    for permission in permissions(config):
        resource, _, subresource = permission.resource.partition("/")
        shown = f"{permission.verb} {permission.resource}"
        if permission.name:
            shown += f" {permission.namespace}/{permission.name}"
        allowed = can_i(
            kube.requests,
            permission.verb,
            resource,
            permission.namespace,
            permission.group,
            subresource,
            permission.name,
        )
        if allowed:
            yield fine(shown)
            continue
        finding = wrong if permission.is_needed else doubtful
        yield finding(
            f"may not {shown}: {permission.without}", f"grant it as etc/{permission.role} does"
        )
        if (permission.verb, permission.resource) == ("list", "pods"):
            yield from _pods_by_namespace(config, kube)
    yield from _check_test_load(config, kube)


def _check_test_load(config: Config, kube: KubeClient) -> Iterator[Finding]:
    """Checks the optional role for test loads. A namespace without it gets advice, one with only a
    part of its permissions a warning."""
    account = f"{config.account_namespace}:dynamic-node-manager"
    bind = (
        "kubectl create rolebinding dnm-test-load --namespace {} --clusterrole "
        f"dynamic-node-manager-test-load --serviceaccount {account}"
    )
    unbound = []
    for namespace in config.namespaces:
        missing = [
            verb
            for verb in ("create", "patch", "delete", "list")
            if not can_i(kube.requests, verb, "deployments", namespace, "apps")
        ]
        if {"create", "patch", "delete"} <= set(missing):  # other roles give list too
            unbound.append(namespace)
        elif missing:
            text = f"may not {', '.join(missing)} deployments in {namespace}"
            yield doubtful(f"{text}: dnm test-load fails there", f"run '{bind.format(namespace)}'")
        else:
            yield fine(f"dnm test-load in {namespace}")
    if unbound:
        yield skipped(
            f"`dnm test-load` is not allowed in {', '.join(unbound)}; it is optional; to allow it, "
            f"run '{bind.format(unbound[0])}'"
        )


def _pods_by_namespace(config: Config, kube: KubeClient) -> Iterator[Finding]:
    for namespace in config.namespaces:
        if can_i(kube.requests, "list", "pods", namespace):
            yield fine(f"list pods in {namespace}")
        else:
            yield wrong(
                f"may not list pods in {namespace}: it gets no nodes",
                "grant it as etc/rbac.yaml does",
            )
