"""The validation load: Deployments of sleeping pods that a queue has to make room for.

What is printed is for kubectl, which creates, scales and deletes. Each Deployment has a name, a
selector and a YuniKorn application of its own, so that two loads never catch each other's pods, and
one label by which all of them are found and nothing else.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from typing import Any

from dnm.cli.output import print_document
from dnm.config import names, values
from dnm.model.config import Config
from dnm.model.errors import ConfigError, DnmError
from dnm.model.node_type import NodeType, Taint
from dnm.model.quantity import parse_kubernetes
from dnm.model.value import Value

LABEL = "dynamic-node-manager/test-load"  # its value is the Deployment's own name
QUEUE_LABELS = ("yunikorn.apache.org/queue", "queue")  # YuniKorn from 1.6, and before
APP_LABELS = ("yunikorn.apache.org/app-id", "applicationId")
_MOST_REPLICAS = 100_000
_OLD_VERBS = {
    "create": "use `dnm test-load NAMESPACE | kubectl apply -f -`",
    "list": f"use `kubectl get deployments -A -l {LABEL}`",
    "scale": "use `kubectl scale deployment NAME -n NAMESPACE --replicas N`",
    "delete": f"use `kubectl delete deployments -A -l {LABEL}`",
}


class Load(Value, frozen=True):
    """What is asked for. An empty queue is the one of the namespace in the queue map."""

    namespace: str
    queue: str = ""
    name: str = ""  # empty: a new one
    replicas: int = 50
    cpu: str = "1000m"  # Kubernetes quantities, of each pod
    memory: str = "2Gi"
    image: str = "busybox"
    only_lent_nodes: bool = False  # a node selector; without it the scheduler is free


def check_not_old(word: str) -> None:
    """Raises ConfigError for what was a verb when dnm made and deleted loads itself."""
    if word in _OLD_VERBS:
        raise ConfigError(f"test-load only prints a load now; {_OLD_VERBS[word]}")


def print_load(config: Config, load: Load) -> None:
    """`dnm test-load`: the manifest, and on stderr why its pods may wait for ever. Raises
    ConfigError for what can't be."""
    manifest = make_manifest(config, load)
    for doubt in _doubts(config, load):
        print(f"dnm: {doubt}", file=sys.stderr)
    print_document(manifest, "yaml")


def make_manifest(config: Config, load: Load) -> dict[str, Any]:
    """The Deployment as JSON. Raises ConfigError that names the option and what would be right."""
    queue = _check(config, load)
    name = load.name or f"dnm-test-load-{secrets.token_hex(4)}"
    identity = {LABEL: name, **dict.fromkeys(APP_LABELS, name)}
    # A queue's name may hold what no label value may; then the annotation alone carries it.
    labels = {**identity, **dict.fromkeys(QUEUE_LABELS if _is_label(queue) else (), queue)}
    annotations = {QUEUE_LABELS[0]: queue}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": load.namespace, "labels": labels,
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
    known, option = config.namespaces.get(load.namespace), "NAMESPACE"
    try:
        values.namespace(load.namespace)
        option = "--name"
        if load.name:
            values.namespace(load.name)  # also a label value, so RFC 1123's stricter form
        option = "--queue"
        queue = values.queue_path(load.queue) if load.queue else known.queue if known else ""
    except ValueError as error:
        raise ConfigError(f"test load: {option} {error}") from error
    if not queue:
        hint = values.suggest(load.namespace, config.namespaces)
        raise ConfigError(
            f"test load: {load.namespace} is not a monitored namespace{hint or ','} "
            "or name its queue with --queue"
        )
    if load.image.split() != [load.image]:
        raise ConfigError(f"test load: --image {load.image!r} is no image; write e.g. busybox")
    _check_amount("cpu", load.cpu, "vcore", "1000m")
    _check_amount("memory", load.memory, "memory", "2Gi")
    if not 0 <= load.replicas <= _MOST_REPLICAS:
        raise ConfigError(f"test load: {load.replicas} replicas; write 0 to {_MOST_REPLICAS}")
    return queue


def _check_amount(option: str, text: str, resource: str, example: str) -> None:
    try:
        is_enough = parse_kubernetes(resource, text) > 0
    except DnmError:
        is_enough = False
    if not is_enough:
        raise ConfigError(f"test load: --{option} {text} is not an amount; write e.g. {example}")


def _doubts(config: Config, load: Load) -> Iterator[str]:
    """Reasons why these pods may stay pending for ever."""
    kinds = _node_types(config, load.namespace)
    if not kinds:
        yield f"{load.namespace} is not a monitored namespace: dnm lends it no node"
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
