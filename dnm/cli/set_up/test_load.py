"""The validation load: a Deployment of sleeping pods, for which a queue needs lent nodes.

`dnm test-load` creates the Deployment, shows how many of its pods run, and ends when all run or
when the time in `--wait` has passed. A label marks the Deployments that are test loads of this
instance."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Annotated, Any

import typer

from dnm.cli.look.explain import explain_name
from dnm.cli.terminal import completion
from dnm.cli.terminal.deadline import parse_duration
from dnm.cli.terminal.options import ConfigOption, OutputOption
from dnm.cli.terminal.output import print_document, print_line
from dnm.config import values
from dnm.kube.client import KubeClient
from dnm.kube.deployments import (
    Deployment,
    change_deployment,
    count_wait_reasons,
    create_deployment,
    delete_deployment,
    list_deployments,
)
from dnm.kube.errors import ApiRefused
from dnm.kube.requests import ApiRequests
from dnm.model.config import Config
from dnm.model.errors import ConfigError, DnmError, ExitCode, KubeConflict, KubeError
from dnm.model.node_type import NodeType, Taint
from dnm.model.printable import count_of, duration
from dnm.model.quantity import parse_kubernetes
from dnm.model.value import Value
from dnm.queues import pod_reading_of, system_of

LABEL = "dynamic-node-manager/test-load"  # its value is the Deployment's own name
INSTANCE_LABEL = "dynamic-node-manager/test-load-of"  # its value is the instance id
DEFAULT_NAME = "dnm-test-load"
_MOST_REPLICAS = 100_000
_INTERVAL = 2.0  # seconds between two requests for the progress
_MOST_REASONS = 3  # reasons shown for pods that wait


class Load(Value, frozen=True):
    """The options of `dnm test-load`. An empty queue means the namespace's queue in the
    configuration."""

    namespace: str
    queue: str = ""
    name: str = DEFAULT_NAME
    replicas: int = 50
    cpu: str = "1000m"  # Kubernetes quantities, of each pod
    memory: str = "2Gi"
    image: str = "busybox"


def test_load(
    config: ConfigOption,
    namespace: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE",
            help="Namespace of the pods.",
            autocompletion=completion.namespaces,
        ),
    ],
    queue: Annotated[
        str,
        typer.Option(
            help="Queue of the pods; default: the queue of the namespace.",
            autocompletion=completion.queues,
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the Deployment; default: dnm-test-load.")] = "",
    replicas: Annotated[int, typer.Option(help="Number of pods.")] = 50,
    cpu: Annotated[str, typer.Option(help="CPU request of each pod.")] = "1000m",
    memory: Annotated[str, typer.Option(help="Memory request of each pod.")] = "2Gi",
    image: Annotated[
        str, typer.Option(help="Image of the pods; it must have `sh` and `sleep`.")
    ] = "busybox",
    wait: Annotated[str, typer.Option(help="Follow the progress for at most this time.")] = "5m",
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Delete this instance's test loads in the namespace, or only --name."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the manifest.")] = False,
    output: OutputOption = "text",
) -> int:
    """Create sleeping pods that can run on lent nodes, and show their progress.

    Run the command again to change the load. With -o yaml or json it only prints the manifest."""
    if delete and (dry_run or output != "text"):
        raise typer.BadParameter("it prints no manifest", param_hint="--delete")
    if delete:
        return delete_loads(config, namespace, name)
    load = Load(
        namespace=namespace, queue=queue, name=name or DEFAULT_NAME, replicas=replicas, cpu=cpu,
        memory=memory, image=image,
    )  # fmt: skip
    if dry_run or output != "text":
        return print_load(config, load, "yaml" if output == "text" else output)
    return run_load(
        config,
        load,
        parse_duration(wait, "--wait", timedelta(days=1), "e.g. 90s, 5m or 1h, at most a day"),
    )


def print_load(config: Config, load: Load, output: str) -> int:
    """Prints the manifest. Returns the exit code. Raises ConfigError."""
    manifest = make_manifest(config, load)
    _warn(config, load)
    print_document(manifest, output)
    return ExitCode.OK


def run_load(
    config: Config, load: Load, wait: timedelta, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Creates the test load, or changes it if it exists, and shows its progress until all pods run
    or `wait` has passed. Returns the exit code. Raises ConfigError and KubeError."""
    manifest, queue = make_manifest(config, load), find_queue(config, load)
    _warn(config, load)
    named = "" if load.name == DEFAULT_NAME else f" --name {load.name}"
    delete = f"delete them with `dnm test-load {load.namespace} --delete{named}`"
    with closing(KubeClient.connect(config)) as kube:
        _check_queue(config, kube, queue)
        try:
            print_line(_create(config, kube.requests, manifest, queue))
            deployment = _follow(kube.requests, load, wait, sleep)
            if deployment.running == load.replicas:
                print_line(f"all pods run; {delete}")
                return ExitCode.OK
            left = load.replicas - deployment.running
            print_line(f"not running after {duration(wait)}: {count_of(left, 'pod')}")
            _print_reasons(kube.requests, load, deployment)
        except KeyboardInterrupt:
            print(f"dnm: the pods stay; {delete}", file=sys.stderr)
            raise
    if queue.lower() in config.queues:
        explain_name(config, f"queue/{queue.lower()}")
    print_line(f"the pods stay: run the command again to follow them, or {delete}")
    return ExitCode.FAILED


def delete_loads(config: Config, namespace: str, name: str = "") -> int:
    """Deletes the test loads of this instance in a namespace, or the one with `name`. Returns the
    exit code. Raises ConfigError if the namespace is unknown, KubeError otherwise."""
    with closing(KubeClient.connect(config)) as kube:
        try:
            deployments = list_deployments(kube.requests, namespace, _selector(config, name))
        except ApiRefused as error:
            _refuse_unknown(config, namespace, error)
            raise
        for deployment in deployments:
            delete_deployment(kube.requests, deployment)
            print_line(f"deleted Deployment {namespace}/{deployment.metadata.name} and its pods")
    if not deployments and namespace not in config.namespaces:
        hint = values.suggest(namespace, config.namespaces)
        raise ConfigError(f"test load: there is none in namespace {namespace}{hint}")
    if not deployments:
        load = f"test load {name}" if name else "test load"
        print_line(f"there is no {load} of instance {config.instance_id} in {namespace}")
    return ExitCode.OK


def _selector(config: Config, name: str = "") -> str:
    return f"{LABEL}{f'={name}' if name else ''},{INSTANCE_LABEL}={config.instance_id}"


def _refuse_unknown(config: Config, namespace: str, error: ApiRefused) -> None:
    """Raises ConfigError if the API's error means that the namespace is unknown. Without rights in
    a namespace, the server answers 403 even if the namespace does not exist."""
    hint = values.suggest(namespace, config.namespaces)
    if error.status == 404:
        raise ConfigError(f"test load: there is no namespace {namespace}{hint}") from error
    if error.status == 403 and namespace not in config.namespaces:
        raise ConfigError(
            f"test load: namespace {namespace} is not monitored{hint or ':'} {error}"
        ) from error


def _check_queue(config: Config, kube: KubeClient, queue: str) -> None:
    """Raises ConfigError if the queue does not exist or, as a parent, takes no pods."""
    system = system_of(config)
    by_path = system.read_queues(config, system.collect(config, kube)).limits
    limits = by_path.get(queue.lower())
    leaves = [path for path, limits in by_path.items() if limits.is_leaf]
    if limits is None:
        hint = values.suggest(queue, leaves) or "; `dnm queues show` lists the queues"
        raise ConfigError(f"test load: there is no queue {queue}{hint}")
    if not limits.is_leaf:
        below = [path for path in leaves if path.startswith(f"{queue.lower()}.")]
        raise ConfigError(
            f"test load: {queue} is a parent queue and takes no pods; choose one below it: "
            f"{', '.join(below[:5])}"
        )


def _create(config: Config, api: ApiRequests, manifest: dict[str, Any], queue: str) -> str:
    """Creates the test load, or changes it if it exists. Returns a sentence about what it did."""
    metadata, replicas = manifest["metadata"], manifest["spec"]["replicas"]
    namespace, name = metadata["namespace"], metadata["name"]
    pods = f"{count_of(replicas, 'pod')} for queue {queue}"
    try:
        create_deployment(api, manifest)
    except KubeConflict:
        deployments = list_deployments(api, namespace, _selector(config, name))
        if not deployments:
            raise ConfigError(
                f"test load: Deployment {namespace}/{name} is not a test load of instance "
                f"{config.instance_id}: choose another --name"
            ) from None
        manifest["spec"]["template"]["spec"].setdefault("nodeSelector", None)  # an earlier one ends
        change_deployment(api, deployments[0], manifest)
        return f"changed Deployment {namespace}/{name}: {pods}"
    except ApiRefused as error:
        _refuse_unknown(config, namespace, error)
        raise
    return f"created Deployment {namespace}/{name}: {pods}"


def _follow(
    api: ApiRequests, load: Load, wait: timedelta, sleep: Callable[[float], None]
) -> Deployment:
    """Prints how many pods run, whenever that changes. Returns the Deployment when all run, or when
    `wait` has passed."""
    end, printed = time.monotonic() + wait.total_seconds(), ""
    while True:
        deployments = list_deployments(api, load.namespace, f"{LABEL}={load.name}")
        if not deployments:
            raise KubeError(f"Deployment {load.namespace}/{load.name} was deleted")
        running, failure = deployments[0].running, deployments[0].failure
        text = f"running: {running} of {count_of(load.replicas, 'pod')}"
        text += f"; more cannot be created: {failure}" if failure else ""
        if text != printed:
            print_line(text)
            printed = text
        left = end - time.monotonic()
        if running == load.replicas or left <= 0:
            return deployments[0]
        sleep(min(_INTERVAL, left))


def _print_reasons(api: ApiRequests, load: Load, deployment: Deployment) -> None:
    if deployment.failure:
        print_line(deployment.failure, indent=2)
    reasons = count_wait_reasons(api, load.namespace, f"{LABEL}={load.name}")
    for reason, count in reasons.most_common(_MOST_REASONS):
        print_line(f"{count_of(count, 'pod')}: {reason}", indent=2)


def make_manifest(config: Config, load: Load) -> dict[str, Any]:
    """Returns the Deployment as a JSON object. Raises ConfigError for an invalid option, with an
    example."""
    queue = find_queue(config, load)
    name = load.name
    labels, annotations = pod_reading_of(config).label(name, queue)
    labels = {LABEL: name, INSTANCE_LABEL: config.instance_id, **labels}
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
    """Returns the spec of the sleeping pods. They meet the strictest pod security standard and end
    at once on SIGTERM."""
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
    reading = pod_reading_of(config)
    is_plain = load.namespace in reading.namespaces
    return {
        **({} if is_plain else {"schedulerName": reading.scheduler}),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "tolerations": [_toleration(taint) for taint in _taints(config, load)],
        "containers": [container],
    }


def _node_types(config: Config, namespace: str) -> list[NodeType]:
    policy = config.namespaces.get(namespace)
    return [config.node_types[name] for name in policy.node_types] if policy else []


def _taints(config: Config, load: Load) -> list[Taint]:
    """Returns the distinct taints of the node types that the namespace may use."""
    kinds = _node_types(config, load.namespace)
    return list(dict.fromkeys(taint for kind in kinds for taint in kind.taints_for(load.namespace)))


def _toleration(taint: Taint) -> dict[str, str]:
    toleration = {"key": taint.key, "effect": taint.effect}
    if not taint.value:
        return {**toleration, "operator": "Exists"}
    return {**toleration, "operator": "Equal", "value": taint.value}


def find_queue(config: Config, load: Load) -> str:
    """Returns the full path of the test load's queue. Raises ConfigError for an invalid option."""
    policy, option = config.namespaces.get(load.namespace), "NAMESPACE"
    try:
        values.namespace(load.namespace)
        option = "--name"
        if load.name:
            values.namespace(load.name)  # also a label value, so RFC 1123's stricter form
        option = "--queue"
        if load.queue and load.namespace in config.namespace_queues:
            raise ValueError(f"{load.queue}: {load.namespace} is its only queue; leave it out")
        queue = values.queue_path(load.queue) if load.queue else policy.queue if policy else ""
    except ValueError as error:
        raise ConfigError(f"test load: {option} {error}") from error
    if not queue:
        hint = values.suggest(load.namespace, config.namespaces)
        raise ConfigError(
            f"test load: namespace {load.namespace} is not monitored{hint or ':'} name a monitored "
            "one, or its queue with --queue"
        )
    if load.image.split() != [load.image]:
        raise ConfigError(f"test load: --image {load.image!r} is not an image; write e.g. busybox")
    _check_amount("cpu", load.cpu, "cpu", "1000m")
    _check_amount("memory", load.memory, "memory", "2Gi")
    if not 0 <= load.replicas <= _MOST_REPLICAS:
        raise ConfigError(
            f"test load: --replicas {load.replicas} is out of range; write a number from 0 to "
            f"{_MOST_REPLICAS}"
        )
    return queue


def _check_amount(option: str, text: str, resource: str, example: str) -> None:
    try:
        is_enough = parse_kubernetes(resource, text) > 0
    except DnmError:
        is_enough = False
    if not is_enough:
        raise ConfigError(f"test load: --{option} {text} is not an amount; write e.g. {example}")


def _warn(config: Config, load: Load) -> None:
    for warning in _warnings(config, load):
        print(f"dnm: {warning}", file=sys.stderr)


def _warnings(config: Config, load: Load) -> Iterator[str]:
    """Yields the reasons why the test load's pods may stay pending forever."""
    kinds = _node_types(config, load.namespace)
    if not kinds:
        yield f"{load.namespace} is not a monitored namespace: dnm lends no nodes to it"
        return
    request = {"cpu": parse_kubernetes("cpu", load.cpu),
               "memory": parse_kubernetes("memory", load.memory)}  # fmt: skip
    if not any(all(request[r] <= kind.size.get(r, 0) for r in request) for kind in kinds):
        names = ", ".join(kind.name for kind in kinds)
        yield f"a pod of {load.cpu} and {load.memory} fits no empty node of the type {names}"
