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
from dnm.plan.rule import nodes_kept_out
from dnm.verbs.refusal import Refusal, policy_of, without


def why_not_adopted(
    config: Config, registry: Registry, name: str, namespace: str, now: datetime
) -> Refusal | None:
    """Says what speaks against it before anybody is asked about the node."""
    policy = policy_of(config, namespace)
    if isinstance(policy, Refusal):
        return policy
    if config.type_of(name) not in policy.node_types:
        return Refusal(what=name, why=f"{name!r} is of no type that is lent to {namespace}")
    if name in registry.nodes:
        phase = registry.nodes[name].phase.value
        return Refusal(what=name, why=f"{name} is recorded already: {phase}")
    return _why_kept_out(config, registry, None, name, now)


def _why_kept_out(
    config: Config,
    registry: Registry,
    batch: Mapping[str, BatchNode] | None,
    name: str,
    now: datetime,
) -> Refusal | None:
    if why := nodes_kept_out(config, registry, batch, now).get(name, ""):
        return Refusal(what=name, why=f"{name} is kept out of lending: {why}")
    return None


def why_not_in_kubernetes(config: Config, name: str, node: Node | None) -> Refusal | None:
    """Says what its Node has against it; None: there is no such Node."""
    if node is None:
        return Refusal(what=name, why=f"Kubernetes has no Node {name}")
    if node.mark is None or node.mark.instance in ("", config.instance_id):
        return None
    return Refusal(
        what=name,
        why=f"{name} carries the mark of instance {node.mark.instance}: it is that one's",
        next_step="take the dynamic-node-manager/ annotations off the Node if that is wrong",
        mark=";",
    )


def _why_not_in_slurm(config: Config, name: str, row: BatchNode | None) -> Refusal | None:
    if row is None or row.in_service is None:
        why = f"Slurm does not know {name}, or can't say whether it has it in service"
        return Refusal(what=name, why=f"{why}: dnm could never return it")
    if row.in_service:
        return Refusal(
            what=name,
            why=f"Slurm has {name} in service ({row.state}): it would be offered to both",
            next_step="drain it in Slurm first, or delete the Node",
            mark=";",
        )
    if row.claim is not None and row.claim.instance not in ("", config.instance_id):
        return Refusal(what=name, why=f"instance {row.claim.instance} has claimed {name} in Slurm")
    if row.claim is not None and row.claim.is_at_work:
        why = f"a converter is at work on {name}"
        return Refusal(what=name, why=why, next_step="wait for its end")
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
        or _why_kept_out(config, registry, batch, name, now)
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
    return Refusal(
        what=node,
        why=f"{node!r} is not a lent node",
        next_step=f"lent are: {fold_hostlist(registry.nodes) or 'none'}",
        mark=";",
    )


def forget(config: Config, registry: Registry, name: str, node: Node | None) -> Registry | Refusal:
    """Takes out a node that a person has found to be back in Slurm. Refused while its Node carries
    dnm's mark: the next run would record it again."""
    if refusal := why_not_known(registry, name):
        return refusal
    mark = node.mark if node is not None else None
    if mark is not None and mark.instance == config.instance_id:
        return Refusal(
            what=name,
            why=(
                f"{name} is still in Kubernetes with dnm's mark: the next run would record it again"
            ),
            next_step=(
                f"return it with `{config.node_convert_path} --set batch --node-name {name}`; if "
                f"Slurm has it already, `kubectl delete node {name}`; then forget it"
            ),
            mark=";",
        )
    return replace(
        registry,
        nodes=without(registry.nodes, name),
        claimed=without(registry.claimed, name),
    )
