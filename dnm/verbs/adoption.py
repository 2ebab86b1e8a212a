"""`dnm adopt` and `dnm forget`: they record a node that was moved to Kubernetes manually, or remove
one that was returned manually. Pure: facts from Kubernetes and Slurm are parameters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import LentNode
from dnm.model.lent_state import Joining
from dnm.model.node import Node
from dnm.model.registry import Registry
from dnm.verbs.refusal import Refusal, policy_of, refuse_excluded, without


def refuse_adoption(
    config: Config, registry: Registry, name: str, namespace: str, now: datetime
) -> Refusal | None:
    """Returns why the configuration or the registry forbids adopting this node, or None."""
    policy = policy_of(config, namespace)
    if isinstance(policy, Refusal):
        return policy
    if config.type_of(name) not in policy.node_types:
        types = ", ".join(policy.node_types)
        return Refusal(f"{name!r} is not of a type that is lent to {namespace}; its types: {types}")
    if name in registry.nodes:
        return Refusal(f"{name} is recorded already: {registry.nodes[name].phase.value}")
    return refuse_excluded(config, registry, None, name, now)


def refuse_node(config: Config, name: str, node: Node | None) -> Refusal | None:
    """Returns why the node's Node (None: there is none) forbids adopting the node, or None."""
    if node is None:
        return Refusal(f"Kubernetes has no Node {name}; adopt it after its kubelet has joined")
    if node.mark is None or node.is_free_for(config.instance_id):
        return None
    return Refusal(
        f"{name} has the mark of instance {node.mark.instance}, which manages it; remove the "
        "dynamic-node-manager/ annotations from the Node if that is wrong"
    )


def _refuse_in_slurm(config: Config, name: str, row: BatchNode | None) -> Refusal | None:
    if row is None or row.in_service is None:
        return Refusal(f"Slurm does not report whether {name} is in service: dnm cannot return it")
    if row.in_service:
        return Refusal(
            f"{name} is in service in Slurm ({row.state}): both systems would use it; drain it in "
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
    """Records a node as joining, so that the next run marks it and adds it to its queue. Refuses a
    node that is, or may be, in service in Slurm, or that another instance manages."""
    refusal = (
        refuse_adoption(config, registry, name, namespace, now)
        or refuse_node(config, name, node)
        or _refuse_in_slurm(config, name, batch.get(name))
        or refuse_excluded(config, registry, batch, name, now)
    )
    if refusal is not None:
        return refusal
    entry = LentNode(
        node_type=config.type_of(name) or "",
        namespace=namespace,
        queue=config.namespaces[namespace].queue,
        owner=config.instance_id,
        state=Joining(since=now),
    )
    nodes = {**registry.nodes, name: entry}
    return replace(registry, nodes=nodes, claimed=without(registry.claimed, name))


def refuse_unknown(registry: Registry, node: str) -> Refusal | None:
    """Returns a refusal if a node is neither lent nor claimed by a converter, else None."""
    if node in registry.claimed or node in registry.nodes:
        return None
    lent = fold_hostlist(registry.nodes) or "none"
    return Refusal(f"{node!r} is not a lent node; lent nodes: {lent}")


def forget(config: Config, registry: Registry, name: str, node: Node | None) -> Registry | Refusal:
    """Removes a node from the registry that an administrator has returned to Slurm. Refuses this
    while its Node has dnm's annotations, because the next run would record the node again."""
    if refusal := refuse_unknown(registry, name):
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
