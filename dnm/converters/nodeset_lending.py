"""nodeset-convert, lending: claim, verify, leave, gone, open.

The machine is always a Node. Its taint says who has it: while the fence is on, Slurm. To lend it,
its slurmd is made to go in peace: Slurm's node is claimed, seen drained and without a job, and only
then does the Node lose the label by which the NodeSet chose it, so that the operator's own check
decides nothing. No pod of slurmd is ever deleted or evicted, and of a NodeSet nothing but the scale
is changed. The reservation outlasts what the operator does to the drain, until the node is back.
"""

from __future__ import annotations

from dnm.converters import to_k8s
from dnm.converters.claim import check_claim, own_reservations
from dnm.converters.conversion import SLURM_PATIENCE, NodeConversion, NotClaimed, Stage
from dnm.converters.nodeset import FENCE, OnNode, why_not_moved
from dnm.converters.nodeset_replicas import SCALED, shrink, stateful_set
from dnm.converters.settings import Settings
from dnm.converters.standing_node import is_label_on, label_of, open_to_pods, read_own_node
from dnm.model.errors import KubeError, SlurmError
from dnm.model.node import Node

TOUCHES = "leave"
_LEFT = "pod that left"  # key of the journal's facts: its uid


def _place(conversion: NodeConversion) -> OnNode:
    kube, name = conversion.kube, conversion.node
    return OnNode(
        node=kube.read_node(name),
        pods=kube.node_sets.read_pods(name),
        sets=kube.node_sets.read_sets(),
    )


def is_movable(conversion: NodeConversion) -> None:
    """The operator and the NodeSet are such that slurmd goes when it is told to, and comes back."""
    if why := why_not_moved(conversion.node, _place(conversion), label_of(conversion.settings)):
        raise NotClaimed(why)


def may_leave(conversion: NodeConversion) -> None:
    """Slurm itself says: drained by us, nothing on it. The operator may have lifted our drain."""
    node = read_own_node(conversion)
    if is_label_on(conversion, node):
        if conversion.journal.facts.get(SCALED):  # its pod goes already, or has gone
            return is_lent_by_us(conversion)
        is_movable(conversion)
        check_claim(conversion)


def leave(conversion: NodeConversion) -> str:
    """Takes off the label that keeps slurmd there, with all looked at once more just before; in
    StatefulSet mode a replica, and then the label."""
    if not is_label_on(conversion, read_own_node(conversion)):
        return "the label is off already"
    if not conversion.journal.facts.get(SCALED):  # then its pod goes already, or has gone
        _wait_until_reserved(conversion)
    if node_set := stateful_set(conversion):
        return shrink(conversion, node_set)
    pods = conversion.kube.node_sets.read_pods(conversion.node)
    conversion.book.remember({_LEFT: ",".join(pod.uid for pod in pods)})
    is_movable(conversion)
    check_claim(conversion)
    key, value = label_of(conversion.settings)
    conversion.kube.node_sets.remove_label(conversion.node, key, value)
    return f"label {key} taken off"


def _wait_until_reserved(conversion: NodeConversion) -> None:
    """slurmd's pod has its own node deleted when it ends (slurm-operator 1.1), and Slurm refuses
    that while the node shows that it is reserved, some seconds after it is. Else the reservation
    would go with the node."""

    def look() -> str:
        check_claim(conversion)
        flags = conversion.slurm.read_node(conversion.node).state.flags
        return "" if "RESERVED" in flags else "Slurm does not show yet that it is reserved"

    conversion.wait_until(look, SLURM_PATIENCE, SlurmError)


def is_lent_by_us(conversion: NodeConversion) -> None:
    """What holds the node for us is still there. The operator drains a node whose pod it ends."""
    node = conversion.read_node()
    jobs = conversion.patiently(lambda: conversion.slurm.read_jobs_on(conversion.node))
    if jobs or node.cpus_allocated or node.memory_allocated or node.state.has_work:
        raise NotClaimed(f"there is work on it ({node.state.text}, {len(jobs)} job(s))")
    if not own_reservations(conversion):
        raise NotClaimed(f"the reservation {conversion.reservation} is gone")


def gone(conversion: NodeConversion) -> str:
    """slurmd's pod is gone, and Slurm has the node down. Nobody hurries it."""

    def look() -> str:
        pods = conversion.kube.node_sets.read_pods(conversion.node)
        if pods:
            return f"pod {pods[0].key} is still there"
        node = conversion.slurm.read_node(conversion.node)
        return "" if node.state.base == "DOWN" else f"Slurm has it {node.state.text} yet"

    conversion.wait_until(look, conversion.settings.drain_timeout_seconds, (KubeError, SlurmError))
    return "slurmd is gone"


def open_node(conversion: NodeConversion) -> str:
    """Labels and taints as for a node that joins, and the fence off, in one change."""

    def why_not(node: Node) -> str:
        is_wanted_back = is_label_on(conversion, node)
        return "somebody has put the label of the NodeSet on again" if is_wanted_back else ""

    return open_to_pods(conversion, why_not)


LENDING = (
    Stage("claim", to_k8s.claim, is_movable),
    Stage("verify", to_k8s.verify),
    Stage("leave", leave, may_leave),
    Stage("gone", gone),
    Stage("open", open_node, is_lent_by_us),
)


def describe_lending(settings: Settings, node: str, jobs: str = "") -> list[tuple[str, str]]:
    """What a conversion would do: (stage, command or deed)."""
    key, value = label_of(settings)
    return [
        *to_k8s.describe_claim(settings, node, jobs),
        ("leave", "in StatefulSet mode: one replica fewer, with the pod on it the cheapest"),
        ("leave", f"label node {node} {key}-, if it is {value} and Slurm has it drained, no job"),
        ("gone", "wait until slurmd's pod is gone and Slurm has the node down"),
        ("open", f"labels and taints of the namespace, and the taint {FENCE.key} off"),
    ]
