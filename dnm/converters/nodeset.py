"""Rules that decide which Nodes with a slurmd pod may be moved, from Kubernetes' state.

The operator's own check before it ends a pod fails open: without Slurm's answer it treats a node as
drained. So dnm does not rely on it, and moves a node only if all facts allow it. A pod without a
condition is in an unknown state, not idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dnm.converters.select import Judged, ListVerdict, held
from dnm.demand.constraints import tolerates
from dnm.model.node import BATCH_TAINT, Node
from dnm.model.node_type import Taint
from dnm.model.pod import Toleration
from dnm.model.printable import count_of
from dnm.model.slinky import OPERATOR_REASON
from dnm.model.value import Value

FENCE = Taint(key=BATCH_TAINT, effect="NoSchedule")
LOWEST_COST = -(2**31)
"""The pod-deletion-cost that makes the operator remove a pod first."""
_BASES = frozenset(("Allocated", "Down", "Error", "Future", "Idle", "Mixed", "Unknown"))
_BUSY = frozenset(("Allocated", "Mixed", "Completing"))


class SlurmdPod(Value):
    """A pod of a NodeSet. `states` is the operator's report on its Slurm node, e.g. Idle, Drain."""

    namespace: str
    name: str
    uid: str
    node: str
    hostname: str  # its name in Slurm
    node_set: str
    is_ready: bool  # Running and Ready
    is_terminating: bool
    states: frozenset[str] = frozenset()
    cost: int = 0  # pod-deletion-cost
    is_condemned: bool = False  # pod-cordon: the operator or a user has it drained

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def key_of_set(self) -> str:
        return f"{self.namespace}/{self.node_set}"


class NodeSet(Value):
    namespace: str
    name: str
    is_daemon_set: bool
    is_deleting: bool
    is_settled: bool  # the operator has seen its newest spec, and all pods have it
    selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    replicas: int = 1  # desired; without meaning in DaemonSet mode
    resource_version: str = ""
    scalers: tuple[str, ...] = ()  # others that set `replicas`
    idle_scalers: tuple[str, ...] = ()  # others that may set it, but do not now

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class OnNode(Value):
    """A Node (None if it does not exist), the slurmd pods on it, and all NodeSets."""

    node: Node | None
    pods: Sequence[SlurmdPod]
    sets: Sequence[NodeSet]


def node_fault(name: str, node: Node | None, may_be_cordoned: bool = False) -> str:
    """Returns why a Node must not be moved, whichever system uses it; empty if it may."""
    if node is None:
        return f"Kubernetes has no Node {name}: its Node must have the name that Slurm knows"
    if node.is_deleting or not node.is_ready:
        return "its Node is not Ready"
    return "its Node is cordoned" if node.is_cordoned and not may_be_cordoned else ""


def lend_refusal(name: str, at: OnNode, label: tuple[str, str]) -> str:
    """Returns why Kubernetes' state forbids to lend the node; empty if it does not."""
    node, (key, value) = at.node, label
    if (fault := node_fault(name, node)) or node is None:
        return fault
    if node.labels.get(key) != value:
        return f"its Node has no label {key}={value}"
    if not node.is_with_batch:
        return (
            f"nothing keeps pods off it while Slurm has it: 'kubectl taint node {name} "
            f"{BATCH_TAINT}=:NoSchedule' does"
        )
    if len(at.pods) != 1:
        return f"{len(at.pods)} pods of slurmd are on its Node, not one"
    return _pod_refusal(name, at, label)


def _pod_refusal(name: str, at: OnNode, label: tuple[str, str]) -> str:
    pod, (key, value) = at.pods[0], label
    node_set = next((node_set for node_set in at.sets if node_set.key == pod.key_of_set), None)
    if pod.is_terminating or not pod.is_ready:
        return f"pod {pod.key} is not Running and Ready"
    if pod.hostname != name:
        return f"pod {pod.key} calls itself {pod.hostname} in Slurm"
    if node_set is None:
        return f"the NodeSet {pod.key_of_set} of its pod is not there"
    if refusal := _set_refusal(node_set):
        return refusal
    shown = f"NodeSet {node_set.key}"
    if node_set.selector.get(key) != value:
        return f"{shown} does not select by {key}={value}: without it its pod would stay"
    if not tolerates(node_set.tolerations, FENCE):
        return f"{shown} does not tolerate {BATCH_TAINT}:NoSchedule: its pod would not come back"
    return report_fault(pod)


def _set_refusal(node_set: NodeSet) -> str:
    """Returns which other program may end or start a NodeSet's pods now; empty if none may."""
    shown = f"NodeSet {node_set.key}"
    if node_set.is_deleting:
        return f"{shown} is being deleted"
    if not node_set.is_settled:
        return f"{shown} is being updated"
    if not node_set.is_daemon_set and node_set.scalers:
        return f"replicas of {shown} are set by {', '.join(node_set.scalers)} too"
    if not node_set.is_daemon_set and node_set.idle_scalers:
        return f"replicas of {shown} may be set by {', '.join(node_set.idle_scalers)} at any time"
    return ""


def turn_refusal(node_set: NodeSet, fellows: Sequence[SlurmdPod], pod: SlurmdPod) -> str:
    """Returns a message if a conversion on any host is removing another pod; empty if none is."""
    for other in fellows:
        if other.uid != pod.uid and other.cost <= LOWEST_COST:
            return f"pod {other.key} of NodeSet {node_set.key} is being removed: one at a time"
    return ""


def scale_refusal(
    node_set: NodeSet, fellows: Sequence[SlurmdPod], pod: SlurmdPod, spares: Sequence[str]
) -> str:
    """Returns why, in StatefulSet mode, a scale-down might end another pod than `pod`, or a later
    scale-up might start a pod on another Node; empty if it can't. A pod's deletion cost decides
    only if all are Running and Ready. `spares` are Nodes without a pod that the NodeSet selects."""
    if refusal := _set_refusal(node_set):
        return refusal
    shown = f"NodeSet {node_set.key}"
    if len(fellows) != node_set.replicas:
        return f"{shown} has {count_of(len(fellows), 'pod')} of {node_set.replicas}"
    for other in fellows:
        if other.uid == pod.uid:
            continue
        if other.is_terminating or not other.is_ready or not other.node:
            return f"pod {other.key} of {shown} is not Running and Ready: it would end first"
        if other.is_condemned:
            return f"slurm-operator drains pod {other.key} of {shown}: it would end first"
    if spares:
        return f"{shown} has no slurmd on {spares[0]}, which it selects too: a pod may start there"
    return ""


def wrong_pod_removal(fellows: Sequence[SlurmdPod], pod: SlurmdPod, replicas: int) -> str:
    """Returns a message if the operator ends or has ended another pod than `pod`; else empty."""
    for other in fellows:
        if other.uid != pod.uid and (other.is_terminating or other.is_condemned):
            return f"slurm-operator ends pod {other.key}, not {pod.key}"
    if len(fellows) <= replicas:
        return f"slurm-operator has ended another pod, not {pod.key}"
    return ""


def report_fault(pod: SlurmdPod) -> str:
    """Returns why the operator's report on a pod's Slurm node is unusable; empty if usable."""
    if len(pod.states & _BASES) != 1:
        return f"slurm-operator reports no Slurm state for pod {pod.key}"
    return ""


def busy_reason(pod: SlurmdPod) -> str:
    """Returns why slurm-operator's report shows the node as busy or is unusable; empty if idle."""
    if fault := report_fault(pod):
        return fault
    if "Idle" not in pod.states or pod.states & _BUSY:
        return f"slurm-operator reports pod {pod.key} as {', '.join(sorted(pod.states))}"
    return ""


def outdated_report(pod: SlurmdPod, is_drained: bool) -> str:
    """Returns a message until slurm-operator reports the pod's Slurm node as up, and as drained or
    not drained as `is_drained` requires; then an empty text."""
    is_shown = not report_fault(pod) and "Down" not in pod.states
    if is_shown and ("Drain" in pod.states) == is_drained:
        return ""
    return f"slurm-operator still shows on pod {pod.key}: {', '.join(sorted(pod.states)) or '-'}"


def is_down_by_its_pod(reason: str) -> bool:
    """Returns whether the Reason shows that a node is down because its pod ended. The Reason comes
    from the pod's preStop hook (slurm-operator 1.1.0 writes it without a prefix), from a later
    undrain, or from Slurm if no hook ran."""
    return reason.startswith((OPERATOR_REASON, "Pod is terminating", "Not responding"))


def missing_for_return(name: str, pods: Sequence[SlurmdPod]) -> str:
    """Returns why slurmd does not run in a pod on the node again; empty if it does."""
    staying = [pod for pod in pods if not pod.is_terminating]
    if len(staying) != 1:
        return f"no pod of slurmd is on {name} yet" if not staying else "it has two slurmd pods"
    pod = staying[0]
    if not pod.is_ready:
        return f"pod {pod.key} is not Running and Ready"
    if pod.hostname != name:
        return f"pod {pod.key} calls itself {pod.hostname} in Slurm"
    return report_fault(pod)


def judge_places(
    judged: Sequence[Judged], places: dict[str, OnNode], label: tuple[str, str]
) -> Sequence[Judged]:
    """Returns the verdicts on nodes, changed to SKIP for nodes that can't be moved and for nodes
    that slurm-operator reports as not idle."""
    return [held(node, _skip_reason(node, places[node.node.name], label)) for node in judged]


def _skip_reason(node: Judged, at: OnNode, label: tuple[str, str]) -> str:
    refusal = lend_refusal(node.node.name, at, label)
    return refusal or (busy_reason(at.pods[0]) if node.verdict is ListVerdict.OK else "")
