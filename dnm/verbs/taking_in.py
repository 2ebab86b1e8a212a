"""`adopt` and `forget`: a node that came by hand enters the record, and one that went by hand
leaves it. Pure: what Kubernetes and Slurm say of it is handed in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.registry import Registry
from dnm.verbs.refusal import Refusal, policy_of, why_kept_out, without


def why_not_adopted(
    config: Config, registry: Registry, name: str, namespace: str, now: datetime
) -> Refusal | None:
    """Says what speaks against it before anybody is asked about the node."""
    policy = policy_of(config, namespace)
    if isinstance(policy, Refusal):
        return policy
    if config.type_of(name) not in policy.node_types:
        return Refusal(f"{name!r} is of no type that is lent to {namespace}")
    if name in registry.nodes:
        return Refusal(f"{name} is recorded already: {registry.nodes[name].phase.value}")
    return why_kept_out(config, registry, None, name, now)


def why_not_in_kubernetes(config: Config, name: str, node: Node | None) -> Refusal | None:
    """Says what its Node has against it; None: there is no such Node."""
    if node is None:
        return Refusal(f"Kubernetes has no Node {name}")
    if node.mark is None or node.is_free_for(config.instance_id):
        return None
    return Refusal(
        f"{name} carries the mark of instance {node.mark.instance}: it is that one's; take the "
        "dynamic-node-manager/ annotations off the Node if that is wrong"
    )


def _why_not_in_slurm(config: Config, name: str, row: BatchNode | None) -> Refusal | None:
    if row is None or row.in_service is None:
        why = f"Slurm does not know {name}, or can't say whether it has it in service"
        return Refusal(f"{why}: dnm could never return it")
    if row.in_service:
        return Refusal(
            f"Slurm has {name} in service ({row.state}): it would be offered to both; drain it in "
            "Slurm first, or delete the Node"
        )
    if row.claim is not None and row.claim.instance not in ("", config.instance_id):
        return Refusal(f"instance {row.claim.instance} has claimed {name} in Slurm")
    if row.claim is not None and row.claim.is_at_work:
        return Refusal(f"a converter is at work on {name}: wait for its end")
    return None


def adopt(
    config: Config,
    registry: Registry,
    name: str,
    namespace: str,
    now: datetime,
    node: Node | None,
    batch: Mapping[str, BatchNode],
) -> Registry | Refusal:
    """Records it as joining, so that the next run marks it and counts it for its queue. Refused
    where Slurm has it in service, or can't say, and where it is another's."""
    refusal = (
        why_not_adopted(config, registry, name, namespace, now)
        or why_not_in_kubernetes(config, name, node)
        or _why_not_in_slurm(config, name, batch.get(name))
        or why_kept_out(config, registry, batch, name, now)
    )
    if refusal is not None:
        return refusal
    entry = LentNode(
        node_type=config.type_of(name) or "",
        namespace=namespace,
        queue=config.namespaces[namespace].queue,
        owner=config.instance_id,
        phase=Phase.JOINING,
        since=now,
    )
    nodes = {**registry.nodes, name: entry}
    return replace(registry, nodes=nodes, claimed=without(registry.claimed, name))


def why_not_known(registry: Registry, node: str) -> Refusal | None:
    """Says that a node is neither lent nor claimed."""
    if node in registry.claimed or node in registry.nodes:
        return None
    lent = fold_hostlist(registry.nodes) or "none"
    return Refusal(f"{node!r} is not a lent node; lent are: {lent}")


def forget(config: Config, registry: Registry, name: str, node: Node | None) -> Registry | Refusal:
    """Takes out a node that a person has found to be back in Slurm. Refused while its Node carries
    dnm's mark: the next run would record it again."""
    if refusal := why_not_known(registry, name):
        return refusal
    mark = node.mark if node is not None else None
    if mark is not None and mark.instance == config.instance_id:
        return Refusal(
            f"{name} is still in Kubernetes with dnm's mark: the next run would record it again; "
            f"return it with `{config.node_convert_path} --set batch --node-name {name}`; if Slurm "
            f"has it already, `kubectl delete node {name}`; then forget it"
        )
    return replace(
        registry,
        nodes=without(registry.nodes, name),
        claimed=without(registry.claimed, name),
    )
