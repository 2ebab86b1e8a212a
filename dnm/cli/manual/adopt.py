"""`dnm adopt`, which reads a node from Kubernetes and Slurm before the registry records the
node."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import typer

from dnm.cli.terminal.operation import carry_out, granted, new_operation, rehearse
from dnm.cli.terminal.options import ConfigOption, NamesOption, NamespaceOption, ReasonOption
from dnm.converter.node_convert import NodeConvert
from dnm.kube.client import KubeClient
from dnm.model.errors import ConverterError
from dnm.model.value import Unreadable
from dnm.run.registry import load_registry
from dnm.verbs import adoption
from dnm.verbs.adoption import refuse_adoption, refuse_node


def adopt(
    config: ConfigOption,
    node: Annotated[str, typer.Argument(show_default=False)],
    namespace: NamespaceOption,
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Start managing a node that was moved to Kubernetes manually."""
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    granted(refuse_adoption(config, registry, node, namespace, now))
    with closing(KubeClient.connect(config)) as kube:
        kube_node = kube.read_node(node)
    granted(refuse_node(config, node, kube_node))
    listed = NodeConvert(config, os.environ).list_nodes(node)
    if isinstance(listed, Unreadable):
        raise ConverterError(f"{listed.error}: whether {node} is in service in Slurm is unknown")
    operation = new_operation("adopt", node, reason, namespace=namespace)
    words = {
        "name": node, "namespace": namespace, "now": now, "node": kube_node, "batch": listed.nodes
    }  # fmt: skip
    rehearse(config, registry, adoption.adopt, words)
    carry_out(config, operation, adoption.adopt, **words)
    queue = config.namespaces[namespace].queue
    return (
        f"{node} is recorded for {namespace}: the next run marks it and adds it to the limit of "
        f"{queue}; dnm returns it when it is idle"
    )
