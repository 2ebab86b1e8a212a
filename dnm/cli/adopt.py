"""`dnm adopt`: a Node that came to Kubernetes by hand is taken into the record."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime

import msgspec

from dnm.cli.admin import change_told
from dnm.cli.lend import RefusedError
from dnm.cli.person import a_deed
from dnm.converter.contract import given_to_converter
from dnm.converter.node_list import list_batch_nodes
from dnm.kube.client import KubeClient
from dnm.model.cluster import BatchNode
from dnm.model.config import Config
from dnm.model.errors import ConverterError
from dnm.model.registry import LentNode, Phase, Registry
from dnm.model.value import Unreadable
from dnm.plan.rules.kept_out import kept_out
from dnm.run.registry import load_registry


def adopt(
    config: Config, environ: Mapping[str, str], name: str, namespace: str, reason: str = ""
) -> str:
    """Records it as joining, so that the next run marks it and counts it for its queue. Refused
    where Slurm has it in service, or can't say, and where it is another's."""
    policy = config.namespaces.get(namespace)
    if policy is None:
        raise RefusedError(
            f"namespace {namespace!r} is not monitored; there are "
            f"{', '.join(sorted(config.namespaces))}"
        )
    now = datetime.now(UTC)
    node_type = config.type_of(name)
    if node_type not in policy.node_types or node_type is None:
        raise RefusedError(f"{name!r} is of no type that is lent to {namespace}")
    registry = load_registry(config, now)
    if name in registry.nodes:
        raise RefusedError(f"{name} is recorded already: {registry.nodes[name].phase.value}")
    _check_kept_out(config, registry, None, name)
    _check_kubernetes(config, name)
    _check_kept_out(config, registry, _check_slurm(config, environ, name), name)
    entry = LentNode(
        node_type=node_type,
        namespace=namespace,
        queue=policy.queue,
        owner=config.instance_id,
        phase=Phase.JOINING,
        since=now,
    )

    def taking_in(one: Registry) -> Registry:
        if name in one.nodes:
            return one
        claimed = {other: claim for other, claim in one.claimed.items() if other != name}
        return msgspec.structs.replace(one, nodes={**one.nodes, name: entry}, claimed=claimed)

    deed = a_deed("adopt", name, reason, namespace=namespace)
    if not change_told(config, taking_in, deed):
        return f"{name} was recorded meanwhile"
    return (
        f"{name} is recorded for {namespace}: the next run marks it and counts it for "
        f"{policy.queue}; it goes back when it is idle"
    )


def _check_kept_out(
    config: Config, registry: Registry, batch: Mapping[str, BatchNode] | None, name: str
) -> None:
    if why := kept_out(config, registry, batch, datetime.now(UTC)).get(name):
        raise RefusedError(f"{name} is kept out of lending: {why}")


def _check_kubernetes(config: Config, name: str) -> None:
    with closing(KubeClient.connect(config)) as kube:
        node = kube.read_node(name)
    if node is None:
        raise RefusedError(f"Kubernetes has no Node {name}")
    if node.mark is not None and node.mark.instance not in ("", config.instance_id):
        raise RefusedError(
            f"{name} carries the mark of instance {node.mark.instance}: it is that one's; take the "
            "dynamic-node-manager/ annotations off the Node if that is wrong"
        )


def _check_slurm(config: Config, environ: Mapping[str, str], name: str) -> Mapping[str, BatchNode]:
    """Returns what it says of the node, too."""
    listed = list_batch_nodes(config, given_to_converter(config, environ), name)
    if isinstance(listed, Unreadable):
        raise ConverterError(f"{listed.error}: whether Slurm has {name} in service is not known")
    row = listed.nodes.get(name)
    if row is None or row.in_service is None:
        raise RefusedError(
            f"Slurm does not know {name}, or can't say whether it has it in service: dnm could "
            "never return it"
        )
    if row.in_service:
        raise RefusedError(
            f"Slurm has {name} in service ({row.state}): it would be offered to both; drain it in "
            "Slurm first, or delete the Node"
        )
    if row.claim is not None and row.claim.instance not in ("", config.instance_id):
        raise RefusedError(f"instance {row.claim.instance} has claimed {name} in Slurm")
    if row.claim is not None and row.claim.is_at_work:
        raise RefusedError(f"a converter is at work on {name}: wait for its end")
    return listed.nodes
