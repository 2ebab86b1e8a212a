"""The validation load: Deployments of sleeping pods that a queue has to make room for.

Each Deployment has a name, a selector and a YuniKorn application of its own, so that two loads
never catch each other's pods, and one label by which dnm finds and deletes them and nothing else.
"""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stderr
from typing import Any

from dnm.cli.output import print_document, print_table
from dnm.config import names, values
from dnm.kube import deployments
from dnm.kube.access import load_access
from dnm.kube.errors import ApiRefused
from dnm.kube.requests import ApiRequests
from dnm.model.cluster import Deployment
from dnm.model.config import Config
from dnm.model.errors import ConfigError, DnmError, ExitCode
from dnm.model.node_type import NodeType, Taint
from dnm.model.printable import count_of
from dnm.model.quantity import parse_kubernetes
from dnm.model.value import Value

LABEL = "dynamic-node-manager/test-load"  # its value is the Deployment's own name
OF_LABEL = "dynamic-node-manager/test-load-of"  # its value is the instance that created it
QUEUE_LABELS = ("yunikorn.apache.org/queue", "queue")  # YuniKorn from 1.6, and before
APP_LABELS = ("yunikorn.apache.org/app-id", "applicationId")
_MOST_REPLICAS = 100_000


class Load(Value, frozen=True):
    """What `create` is asked for. An empty queue is the one of the namespace in the queue map."""

    namespace: str
    queue: str = ""
    name: str = ""  # empty: a new one
    replicas: int = 50
    cpu: str = "1000m"  # Kubernetes quantities, of each pod
    memory: str = "2Gi"
    image: str = "busybox"
    only_lent_nodes: bool = False  # a node selector; without it the scheduler is free


def create_load(config: Config, load: Load, output: str = "text") -> int:
    """`dnm test-load create`: prints the name. Raises ConfigError for what can't be, KubeError."""
    manifest = make_manifest(config, load)
    with _connected(config) as kube:
        created = deployments.create_deployment(kube, load.namespace, manifest)
    for doubt in _doubts(config, load):
        print(f"dnm: {doubt}", file=sys.stderr)
    if output != "text":
        _print_loads([created], output)
    else:
        print(created.name)
    return ExitCode.OK


def scale_load(
    config: Config, name: str, replicas: int, namespace: str = "", output: str = "text"
) -> int:
    """`dnm test-load scale`: of one load, found by its name."""
    _check_replicas(replicas)
    with _connected(config) as kube:
        load = _find_one(config, kube, name, namespace)
        scaled = deployments.scale_deployment(kube, load.namespace, load.name, replicas)
    if output != "text":
        _print_loads([scaled], output)
        return ExitCode.OK
    pods = count_of(scaled.replicas, "pod")
    print(f"{scaled.name} in {scaled.namespace}: {load.replicas} -> {pods}")
    return ExitCode.OK


def delete_loads(config: Config, name: str = "", namespace: str = "", output: str = "text") -> int:
    """`dnm test-load delete`: one, or without a name all of them. 1 if one could not be deleted."""
    deleted = []
    with _connected(config) as kube:
        if name:
            loads, failed = [_find_one(config, kube, name, namespace)], 0
        else:
            loads, failed = _find(config, kube, namespace)
        for load in loads:
            try:
                deployments.delete_deployment(kube, load.namespace, load.name)
                deleted.append(load)
            except DnmError as error:
                failed += 1
                print(f"dnm: {error}", file=sys.stderr)
    if output != "text":
        _print_loads(deleted, output)
        return ExitCode.FAILED if failed else ExitCode.OK
    for load in deleted:
        print(f"deleted {load.name} in {load.namespace}, {count_of(load.replicas, 'pod')}")
    if not loads and not failed:
        print("there is no test load")
    return ExitCode.FAILED if failed else ExitCode.OK


def list_loads(config: Config, namespace: str = "", output: str = "text") -> int:
    """`dnm test-load list`; `--output json` is schema dnm.test-load/1. 1 if a namespace could not
    be read."""
    with _connected(config) as kube:
        loads, failed = _find(config, kube, namespace)
    exit_code = ExitCode.FAILED if failed else ExitCode.OK
    if output != "text":
        _print_loads(loads, output)
        return exit_code
    header = ("NAMESPACE", "NAME", "QUEUE", "PODS", "READY", "CREATED")
    rows = [(d.namespace, d.name, _queue_of(d), str(d.replicas), str(d.ready), d.created)
            for d in loads]  # fmt: skip
    if rows or not failed:
        print_table("", header, rows, "there is no test load", indent=0)
    return exit_code


def make_manifest(config: Config, load: Load) -> dict[str, Any]:
    """The Deployment as JSON. Raises ConfigError that names the option and what would be right."""
    queue = _check(config, load)
    name = load.name or f"dnm-test-load-{secrets.token_hex(4)}"
    identity = {LABEL: name, **dict.fromkeys(APP_LABELS, name)}
    of_instance = {OF_LABEL: config.instance_id}
    # A queue's name may hold what no label value may; then the annotation alone carries it.
    labels = {**identity, **dict.fromkeys(QUEUE_LABELS if _is_label(queue) else (), queue)}
    annotations = {QUEUE_LABELS[0]: queue}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": load.namespace, "labels": {**labels, **of_instance},
                     "annotations": annotations},
        "spec": {
            "replicas": load.replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": {LABEL: name}},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod_spec(config, load),
            },
        },
    }  # fmt: skip


def _pod_spec(config: Config, load: Load) -> dict[str, Any]:
    """It passes the strictest pod security standard, and ends at once when it is told to."""
    amounts = {"cpu": load.cpu, "memory": load.memory}
    container = {
        "name": "sleep",
        "image": load.image,
        "command": ["sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec: dict[str, Any] = {
        "schedulerName": "yunikorn",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "tolerations": [_toleration(taint) for taint in _taints(config, load)],
        "containers": [container],
    }
    if load.only_lent_nodes:
        spec["nodeSelector"] = {load.namespace: "true"}  # the converter's label of a lent node
    return spec


def _node_types(config: Config, namespace: str) -> list[NodeType]:
    policy = config.namespaces.get(namespace)
    return [config.node_types[name] for name in policy.node_types] if policy else []


def _taints(config: Config, load: Load) -> list[Taint]:
    """Of all node types that the namespace may be given, each once."""
    kinds = _node_types(config, load.namespace)
    return list(dict.fromkeys(one for kind in kinds for one in kind.taints_for(load.namespace)))


def _toleration(taint: Taint) -> dict[str, str]:
    toleration = {"key": taint.key, "effect": taint.effect}
    if not taint.value:
        return {**toleration, "operator": "Exists"}
    return {**toleration, "operator": "Equal", "value": taint.value}


def _check(config: Config, load: Load) -> str:
    """The queue, in full; raises ConfigError for the first thing that is wrong."""
    known = config.namespaces.get(load.namespace)
    try:
        values.namespace(load.namespace)
        if load.name:
            values.namespace(load.name)  # also a label value, so RFC 1123's stricter form
        queue = values.queue_path(load.queue) if load.queue else known.queue if known else ""
    except ValueError as error:
        raise ConfigError(f"test load: {load.name or load.queue or 'it'} {error}") from error
    if not queue:
        hint = values.suggest(load.namespace, config.namespaces)
        raise ConfigError(
            f"test load: {load.namespace} is not a monitored namespace{hint or ','} "
            "or name its queue with --queue"
        )
    _check_amount("cpu", load.cpu, "vcore", "1000m")
    _check_amount("memory", load.memory, "memory", "2Gi")
    _check_replicas(load.replicas)
    return queue


def _check_amount(option: str, text: str, resource: str, example: str) -> None:
    try:
        is_enough = parse_kubernetes(resource, text) > 0
    except DnmError:
        is_enough = False
    if not is_enough:
        raise ConfigError(f"test load: --{option} {text} is not an amount; write e.g. {example}")


def _check_replicas(replicas: int) -> None:
    if not 0 <= replicas <= _MOST_REPLICAS:
        raise ConfigError(f"test load: {replicas} replicas; write 0 to {_MOST_REPLICAS}")


def _doubts(config: Config, load: Load) -> Iterator[str]:
    """Reasons why these pods may stay pending for ever."""
    kinds = _node_types(config, load.namespace)
    if not kinds:
        yield (
            f"{load.namespace} is not a monitored namespace: dnm lends it no node; where dnm may "
            "not list the Deployments of the cluster, name it: "
            f"`dnm test-load list -n {load.namespace}`"
        )
        return
    request = {"vcore": parse_kubernetes("vcore", load.cpu),
               "memory": parse_kubernetes("memory", load.memory)}  # fmt: skip
    if not any(all(request[r] <= kind.size.get(r, 0) for r in request) for kind in kinds):
        names = ", ".join(kind.name for kind in kinds)
        yield f"a pod of {load.cpu} and {load.memory} fits no empty node of the type {names}"


def _is_label(text: str) -> bool:
    try:
        return bool(names.label_value(text))
    except ValueError:
        return False


# --- finding them ----------------------------------------------------------------------------


@contextmanager
def _connected(config: Config) -> Iterator[ApiRequests]:
    with closing(ApiRequests(load_access(config), config.request_timeout)) as kube:
        yield kube


def _find(config: Config, kube: ApiRequests, namespace: str) -> tuple[list[Deployment], int]:
    """All loads of one namespace, or of the cluster, or where that is forbidden of the monitored
    namespaces, by namespace and age; and how many of them dnm may not read, which stderr tells and
    which stop no other."""
    found: list[Deployment] = []
    failed = 0
    if not namespace:
        try:  # one may have been created with --queue in a namespace that is not monitored
            everywhere = deployments.list_deployments(kube, "", LABEL)
            return _sorted(load for load in everywhere if _is_ours(config, load)), 0
        except ApiRefused as error:
            if error.status != 403:
                raise
    for name in [namespace] if namespace else sorted(config.namespaces):
        try:
            found += deployments.list_deployments(kube, name, LABEL)
        except ApiRefused as error:
            if error.status != 403:
                raise
            failed += 1
            print(f"dnm: {error}", file=sys.stderr)
    return _sorted(found), failed


def _is_ours(config: Config, load: Deployment) -> bool:
    """In a namespace that is not monitored another instance may have its own."""
    is_monitored = load.namespace in config.namespaces
    return is_monitored or load.labels.get(OF_LABEL) == config.instance_id


def _sorted(found: Iterable[Deployment]) -> list[Deployment]:
    return sorted(found, key=lambda load: (load.namespace, load.created, load.name))


def name_loads(config: Config) -> list[str]:
    """Returns the names of all loads, for the shell to complete."""
    with _connected(config) as kube, redirect_stderr(io.StringIO()):
        return [load.name for load in _find(config, kube, "")[0]]


def _find_one(config: Config, kube: ApiRequests, name: str, namespace: str) -> Deployment:
    loads, failed = _find(config, kube, namespace)
    named = [load for load in loads if load.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        where = ", ".join(load.namespace for load in named)
        raise ConfigError(f"test load: {name} is in {where}: say which with --namespace")
    hint = values.suggest(name, (load.name for load in loads))
    where = namespace or "the monitored namespaces"
    where += " that could be read" if failed else ""
    raise ConfigError(f"test load: there is no {name} in {where}{hint}")


def _queue_of(load: Deployment) -> str:
    return load.labels.get(QUEUE_LABELS[0], "")


def _print_loads(loads: Sequence[Deployment], output: str) -> None:
    document: Mapping[str, Any] = {
        "schema": "dnm.test-load/1",
        "loads": [
            {
                "namespace": load.namespace,
                "name": load.name,
                "queue": _queue_of(load),
                "replicas": load.replicas,
                "ready": load.ready,
                "created": load.created,
            }
            for load in loads
        ],
    }
    print_document(document, output, (load.name for load in loads))
