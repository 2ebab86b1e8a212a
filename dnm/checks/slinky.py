"""The checks for Slinky in `dnm check`: conflicts of slurm-operator and slurm-bridge with lending.

slurm-operator's NodeSets could start a slurmd on a lent node. slurm-bridge taints Nodes that Slurm
knows by name, so that their pods are evicted, and schedules the pods of its namespaces itself.
Without signs of either, the check yields one line. It reports signs that it cannot verify for lack
of rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dnm.checks.findings import Finding, doubtful, fine, looks_at, skipped, wrong
from dnm.demand.constraints import NodeTraits, describe_misfit, meets
from dnm.demand.demand import Demand
from dnm.kube import slinky
from dnm.kube.requests import ApiRequests
from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.node import Node
from dnm.model.printable import count_of
from dnm.model.registry import Registry
from dnm.plan.bridged import bare_types, describe_taint_eviction, eviction_remedy, managed_nodes
from dnm.sizing.node_supply import NodeSupply, expected_nodes, traits_of

_CHECK = "Slinky"
_GRANT = "grant it as etc/rbac-slinky.yaml does"
_NO_DEMAND = Demand(queues={}, groups=(), nodes={})


@looks_at(_CHECK)
def check_slinky(
    config: Config,
    registry: Registry,
    api: ApiRequests,
    nodes: Sequence[Node],
    batch: Mapping[str, BatchNode] | None,
) -> Iterator[Finding]:
    """Yields all findings about Slinky. `batch` is None if Slurm's nodes could not be read."""
    versions = slinky.read_versions(api)
    bridges, unknown = _find_bridges(api)
    tainted = [node for node in nodes if node.is_managed]
    if not (versions or bridges or tainted):
        note = f"; whether slurm-bridge is installed is unknown ({unknown})" if unknown else ""
        yield fine(f"no sign of it: no API group {slinky.GROUP}, no managed Node{note}")
        return
    yield from judge_lent(registry, nodes)
    if versions:
        yield from _check_node_sets(config, registry, api, nodes, versions)
    if tainted:
        yield from judge_names(config, registry, nodes, batch)
    if unknown:
        yield doubtful(f"which namespaces slurm-bridge manages: {unknown}", _GRANT)
    for namespace in bridges:
        yield from _check_namespaces(config, api, namespace)


def _find_bridges(api: ApiRequests) -> tuple[tuple[str, ...], str]:
    try:
        return slinky.find_bridges(api), ""
    except KubeError as error:
        return (), str(error)


def judge_lent(registry: Registry, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Reports lent nodes with a taint of Slinky for which Kubernetes evicts their pods."""
    for node in nodes:
        if node.name in registry.nodes and (taint := node.evicting_taint):
            why = describe_taint_eviction(taint)
            yield wrong(f"{node.name} is lent and {why}", eviction_remedy(node.name))


def judge_names(
    config: Config,
    registry: Registry,
    nodes: Sequence[Node],
    batch: Mapping[str, BatchNode] | None,
) -> Iterator[Finding]:
    """Checks whether slurm-bridge would taint lent nodes, so that their pods are evicted."""
    if batch is None:
        yield skipped("whether slurm-bridge knows nodes that are lent: Slurm's list is")
        return
    managed = managed_nodes(nodes, batch)
    if not managed:
        yield fine("slurm-bridge is active, but manages no Node that this Slurm knows by name")
        return
    by_name = {node.name: node for node in nodes}
    for node_type, name in bare_types(config, registry, by_name, batch).items():
        yield wrong(
            f"slurm-bridge taints Nodes that Slurm knows by name ({managed[0]} is one), and would "
            f"taint {name} as soon as it is lent: its pods would be evicted, so none of the type "
            f"{node_type} is lent",
            "lend only nodes of a Slurm that this slurm-bridge does not use (docs/slinky.md)",
        )


@looks_at(_CHECK)
def _check_node_sets(
    config: Config,
    registry: Registry,
    api: ApiRequests,
    nodes: Sequence[Node],
    versions: Sequence[str],
) -> Iterator[Finding]:
    if slinky.VERSION not in versions:
        yield doubtful(
            f"NodeSets are served as {', '.join(versions)}, which dnm cannot read: whether one "
            "would start a slurmd on a lent node is unknown",
            "upgrade slurm-operator to 1.0 or later",
        )
        return
    try:
        node_sets = slinky.list_node_sets(api)
    except KubeError as error:
        yield doubtful(f"whether a NodeSet takes lent nodes: {error}", _GRANT)
        return
    yield from judge_node_sets(config, registry, nodes, node_sets)


def judge_node_sets(
    config: Config, registry: Registry, nodes: Sequence[Node], node_sets: Sequence[slinky.SlurmdSet]
) -> Iterator[Finding]:
    """Reports NodeSets that would start a slurmd on a node that is lent now, or that dnm would
    lend."""
    bad = 0
    traits = _lent_traits(config, registry, nodes)
    for item in node_sets:
        taken = [
            subject for subject, at in traits.items() if not describe_misfit(item.shape, (), at)
        ]
        if item.is_deleting or not taken:
            continue
        bad += 1
        finding = wrong if item.is_daemon_set else doubtful
        starts = "starts a slurmd" if item.is_daemon_set else "may start a slurmd"
        yield finding(
            f"the NodeSet {item.key} {starts} on {', '.join(taken)}: a second one of the same name "
            "would register in Slurm, and its pod takes the node",
            "give its template a nodeSelector that lent nodes don't meet, or the type a taint that "
            "it does not tolerate",
        )
    if not bad:
        yield fine(f"none of {count_of(len(node_sets), 'NodeSet')} takes a lent node")


def _lent_traits(
    config: Config, registry: Registry, nodes: Sequence[Node]
) -> dict[str, NodeTraits]:
    """Returns labels and taints of each lent node, and those of future lent nodes of each type."""
    supply = NodeSupply(nodes=tuple(nodes), lent=registry.nodes)
    traits = {node.name: traits_of(node) for node in nodes if node.name in registry.nodes}
    for (namespace, node_type), expected_node in expected_nodes(config, _NO_DEMAND, supply).items():
        policy = config.namespaces[namespace]
        if node_type in policy.node_types:
            traits[f"nodes of type {node_type} lent to {namespace}"] = expected_node.traits
    return traits


@looks_at(_CHECK)
def _check_namespaces(config: Config, api: ApiRequests, where: str) -> Iterator[Finding]:
    try:
        bridge = slinky.read_bridge(api, where)
        selector = bridge.selector
        managed = [
            name
            for name in config.namespaces
            if (
                name in bridge.namespaces
                if selector is None
                else all(
                    meets(requirement, slinky.read_namespace_labels(api, name))
                    for requirement in selector
                )
            )
        ]
    except KubeError as error:
        yield doubtful(f"which namespaces slurm-bridge manages: {error}", _GRANT)
        return
    for name in managed:
        yield wrong(
            f"slurm-bridge manages the monitored namespace {name} ({bridge.key}): it hands pods of "
            "the default scheduler to its own, and their own scheduler never sees them",
            "take it off managedNamespaces there, or off monitored_namespaces here",
        )
    if not managed:
        yield fine(f"slurm-bridge manages no monitored namespace ({bridge.key})")
