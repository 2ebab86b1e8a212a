"""Rules that decide which Nodes of slurm-bridge may be moved, from Kubernetes' state. The module
also reads these Nodes, their annotations, and dnm's record of removed labels.

slurm-bridge adds a Node with its label to Slurm, taints it while Slurm has it, and drains it in
Slurm while it is cordoned. If the label is removed, it drains the Slurm node, deletes its record
and removes the taint. Whenever it finds the Node schedulable, it lifts its own drain. So dnm drains
with its own Reason, and cordons, before it removes the label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dnm.converters.marks import plain_state
from dnm.converters.nodeset import node_fault
from dnm.converters.select import Judged, ListVerdict, held
from dnm.converters.settings import Machines
from dnm.converters.slurm.text import SlurmNode
from dnm.host.fault_points import fault_point
from dnm.kube.nodes import MARK_PREFIX, read_node_body, read_node_page
from dnm.kube.objects import Described, ListPage
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.model.node import BATCH_TAINT, Node
from dnm.model.slinky import (
    EXTERNAL_NODE,
    MANAGED_TAINT,
    PARTITIONS,
    SLURM_NAME,
    bridge_labels,
)
from dnm.model.slurm_state import ABSENT, NodeState
from dnm.model.value import Value

TAKEN = f"{MARK_PREFIX}taken-from-slurm-bridge"
_BASES = ("IDLE", "MIXED", "ALLOCATED")


class Taken(Value):
    """The labels and annotation of slurm-bridge that dnm removed, as recorded on the lent Node."""

    instance: str
    labels: Mapping[str, str]  # those that put it into Slurm
    partitions: str | None = None  # None: it had no such annotation


class BridgedNode(Value):
    """A Node with slurm-bridge's annotation. `taken` is what dnm removed from it, if anything."""

    node: Node
    partitions: str | None = None
    taken: Taken | None = None

    @property
    def is_labelled(self) -> bool:
        return bool(bridge_labels(self.node.labels))


def lend_refusal(name: str, at: BridgedNode | None, is_cordoned: bool = False) -> str:
    """Returns why the Node's state forbids lending; empty if it does not. With `is_cordoned`, dnm
    itself has cordoned the Node, so the cordon is no obstacle."""
    if (fault := node_fault(name, at.node if at else None, is_cordoned)) or at is None:
        return fault
    node = at.node
    if not at.is_labelled:
        return f"its Node has no label {EXTERNAL_NODE}: slurm-bridge is about to take it from Slurm"
    if (slurm_name := node.labels.get(SLURM_NAME, name)) != name:
        return f"its Node is {slurm_name} in Slurm by its label {SLURM_NAME}"
    if not at.node.is_managed:
        return f"slurm-bridge has not put the taint {MANAGED_TAINT} on its Node: is it running?"
    if any(taint.key == BATCH_TAINT for taint in node.taints):
        return f"its Node has {BATCH_TAINT}: an unfinished return, or an administrator's taint"
    return ""


def split_partitions(text: str | None) -> tuple[str, ...]:
    """Returns the Slurm partitions that slurm-bridge's annotation of a Node names."""
    return tuple(filter(None, (name.strip() for name in (text or "").split(","))))


def missing_for_return(at: BridgedNode, node: SlurmNode | None, partitions: Sequence[str]) -> str:
    """Returns why a node that was put back into Slurm is not in its usual state; empty if it is. A
    drain is no reason, since slurm-bridge drains a cordoned Node."""
    if node is None:
        return "slurm-bridge has not put it into Slurm yet"
    if "EXTERNAL" not in node.state.flags:
        return f"Slurm has it {node.state.text}, not as a node of slurm-bridge's"
    flags = plain_state(Machines.BRIDGED, node).state.flags - {"DRAIN", "RESERVED", "COMPLETING"}
    if node.state.base not in _BASES or flags:
        return f"Slurm has it {node.state.text} {node.reason}".rstrip()
    if missing := [partition for partition in partitions if partition not in node.features]:
        return f"its features in Slurm lack {', '.join(missing)}"
    if not at.node.is_managed:
        return f"slurm-bridge has not put the taint {MANAGED_TAINT} on its Node yet"
    return ""


def judge_bridged(judged: Sequence[Judged], at: Mapping[str, BridgedNode]) -> Sequence[Judged]:
    """Returns the verdicts on nodes, changed to SKIP for nodes that can't be moved. Adds a verdict
    for each lent Node, since Slurm does not list lent nodes."""
    listed = {node.node.name for node in judged}
    absent = [
        _absent(node) for name, node in sorted(at.items()) if node.taken and name not in listed
    ]
    names = (node.node.name for node in judged)
    refusals = [lend_refusal(name, at.get(name)) for name in names]
    return [*map(held, judged, refusals), *absent]


def _absent(node: BridgedNode) -> Judged:
    assert node.taken is not None
    state = NodeState(base=ABSENT)
    return Judged(
        node=SlurmNode(name=node.node.name, state=state, cpus_allocated=0, memory_allocated=0),
        verdict=ListVerdict.SKIP,
        reason=f"taken from slurm-bridge by instance {node.taken.instance}",
        idle=None,
        in_service=False,
    )


def write_taken(taken: Taken) -> str:
    """Returns the text of the annotation that records what dnm removed from a Node."""
    return msgspec.json.encode(taken).decode()


def _make(node: Node, annotated: Described) -> BridgedNode:
    annotations = annotated.metadata.annotations or {}
    taken = _read_taken(annotations.get(TAKEN))
    return BridgedNode(node=node, partitions=annotations.get(PARTITIONS), taken=taken)


def _read_taken(text: str | None) -> Taken | None:
    """Returns what dnm removed from a Node, by its annotation; None without a readable one."""
    try:
        return msgspec.json.decode(text, type=Taken) if text else None
    except msgspec.MsgspecError:
        return None


def read_bridged_page(page: memoryview | bytes) -> list[BridgedNode]:
    """Returns the Nodes of slurm-bridge in a page of a list of Nodes."""
    annotated = msgspec.json.decode(page, type=ListPage[Described]).items
    return [_make(node, state) for node, state in zip(read_node_page(page), annotated, strict=True)]


@dataclass(frozen=True)
class BridgeConnection:
    """The calls for Nodes that only bridge-convert needs. Every method raises KubeError."""

    requests: ApiRequests

    def read_node(self, name: str) -> BridgedNode | None:
        with self.requests.asking(f"read node {name}", "get nodes"), fault_point("kube.bridged"):
            answer = self.requests.read_or_none(path_of("nodes", name))
            if answer is None:
                return None
            annotated = msgspec.json.decode(answer.body, type=Described)
            return _make(read_node_body(answer.body, name), annotated)

    def read_nodes(self) -> Sequence[BridgedNode]:
        with self.requests.asking("list the Nodes", "list nodes"), fault_point("kube.bridged"):
            return self.requests.collect(List(path_of("nodes"), "NodeList"), read_bridged_page)
