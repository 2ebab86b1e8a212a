"""The stages of nodeset-convert. Lending: claim, verify, leave, gone, open. Return: check, fence,
drain, back, slurmd, return.

The machine is always a Node. While it has the fence, a taint, it belongs to Slurm. To lend it, dnm
lets its slurmd end safely: it claims the Slurm node and checks that it is drained and has no job.
Only then it removes the label by which the NodeSet selects the Node, so the operator's own check
decides nothing. dnm never deletes or evicts a slurmd pod, and changes only the scale of a NodeSet.
The reservation stays until the node is back, whatever the operator does to the drain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from dnm.converters import nodeset, standing_node, to_batch, to_k8s
from dnm.converters.claim import check_claim, clear_marks, in_slurm, settle_drain
from dnm.converters.conversion import (
    SLURM_PATIENCE,
    DryRun,
    NodeConversion,
    NotClaimed,
    Program,
    Stage,
)
from dnm.converters.kube_side import KubeSide
from dnm.converters.marks import instances_on, refuse_other_instance
from dnm.converters.nodeset import FENCE, OnNode, SlurmdPod
from dnm.converters.nodeset_replicas import SCALED, grow_in_turn, shrink, stateful_set
from dnm.converters.reservation import release, uncharge
from dnm.converters.select import Judged
from dnm.converters.settings import Settings
from dnm.converters.to_batch import CORDONED, AlreadyBack
from dnm.model.errors import ConverterError, KubeError
from dnm.model.node import Node
from dnm.model.slinky import OPERATOR_REASON
from dnm.model.value import Unreadable

_OPERATOR_PATIENCE = timedelta(minutes=2)  # slurm-operator checks a pod every 30 seconds


def _place(conversion: NodeConversion) -> OnNode:
    kube, name = conversion.kube, conversion.node
    return OnNode(
        node=kube.read_node(name),
        pods=kube.node_sets.read_pods(name),
        sets=kube.node_sets.read_sets(),
    )


def check_movable(conversion: NodeConversion) -> None:
    """Raises NotClaimed if the Node, its slurmd pod or its NodeSet forbids moving the node."""
    label = standing_node.label_of(conversion.settings)
    if refusal := nodeset.lend_refusal(conversion.node, _place(conversion), label):
        raise NotClaimed(refusal)


def check_leave(conversion: NodeConversion) -> None:
    """Checks dnm's drain and reservation again, since the operator may have lifted the drain."""
    node = standing_node.read_own_node(conversion)
    if standing_node.is_label_on(conversion, node):
        if conversion.journal.facts.get(SCALED):  # its pod is ending, or has ended
            return check_lent(conversion)
        check_movable(conversion)
        check_claim(conversion)


def leave(conversion: NodeConversion) -> str:
    """Removes the label by which the NodeSet keeps slurmd on the node, after a last check. In
    StatefulSet mode, first removes a replica."""
    if not standing_node.is_label_on(conversion, standing_node.read_own_node(conversion)):
        return "the label is off already"
    if not conversion.journal.facts.get(SCALED):  # else its pod is ending, or has ended
        _wait_until_reserved(conversion)
    if node_set := stateful_set(conversion):
        return shrink(conversion, node_set)
    check_movable(conversion)
    check_claim(conversion)
    key, value = standing_node.label_of(conversion.settings)
    conversion.kube.node_sets.remove_label(conversion.node, key, value)
    return f"label {key} taken off"


def _wait_until_reserved(conversion: NodeConversion) -> None:
    """Waits until Slurm shows the node as reserved, some seconds after the reservation. The ending
    slurmd pod (slurm-operator 1.1) deletes its Slurm node, and the reservation with it, unless
    Slurm refuses that because the node is shown as reserved."""

    def look() -> str:
        check_claim(conversion)
        flags = conversion.slurm.read_node(conversion.node).state.flags
        return "" if "RESERVED" in flags else "Slurm does not show yet that it is reserved"

    conversion.wait_until(look, SLURM_PATIENCE)


def check_lent(conversion: NodeConversion) -> None:
    """Checks dnm's reservation, since the operator may replace the drain when it ends the pod."""
    state = in_slurm(conversion)
    if not state.own:
        raise NotClaimed(f"the reservation {conversion.reservation} is gone ({state})")
    if state.in_service:
        raise NotClaimed(f"there is work on it ({state})")


def await_end(conversion: NodeConversion) -> str:
    """Waits until the slurmd pod has ended and Slurm shows the node as DOWN."""

    def look() -> str:
        pods = conversion.kube.node_sets.read_pods(conversion.node)
        if pods:
            return f"pod {pods[0].key} is still there"
        node = conversion.slurm.read_node(conversion.node)
        return "" if node.state.base == "DOWN" else f"Slurm has it {node.state.text} yet"

    conversion.wait_until(look, conversion.settings.drain_timeout_seconds)
    return "slurmd is gone"


def open_node(conversion: NodeConversion) -> str:
    """Gives the Node the labels and taints for its namespace, without the fence, in one change."""

    def refusal(node: Node) -> str:
        has_label = standing_node.is_label_on(conversion, node)
        return "the label of the NodeSet was added again outside dnm" if has_label else ""

    return standing_node.open_to_pods(conversion, refusal)


def check(conversion: NodeConversion) -> str:
    """Raises an error unless dnm has lent the node, it has no work, and its state is known."""
    state = in_slurm(conversion)
    slurm_node = state.node
    refuse_other_instance(conversion.settings, slurm_node)
    node = standing_node.read_own_node(conversion)
    # The reservation may have ended before another one began, and the pod's end may have replaced
    # the Reason of dnm's drain. Then only the mark in Comment or Extra is left.
    is_marked = conversion.settings.instance in instances_on(slurm_node)
    is_own = bool(state.own) or is_marked or to_batch.is_resumed(conversion, "fence")
    has_slurmd = standing_node.is_label_on(conversion, node)
    if has_slurmd and not is_own:
        raise AlreadyBack(f"slurmd runs on it ({slurm_node.state.text}): nothing is done to it")
    if has_slurmd:
        return f"slurmd comes back or has come: {slurm_node.state.text}"
    state.refuse_work()
    state.refuse_unknown()
    if not is_own:
        raise ConverterError(
            f"{conversion.node} is not lent by '{conversion.settings.instance}': no reservation "
            f"{conversion.reservation}, no mark of dnm; nothing is done"
        )
    return f"lent: {slurm_node.state.text}"


def drain(conversion: NodeConversion) -> str:
    """Evicts the remaining pods, unless the Node has the NodeSet's label: slurmd may be back."""
    if standing_node.is_label_on(conversion, standing_node.read_own_node(conversion)):
        return "slurmd comes back"
    return to_batch.drain(conversion)


def add_label(conversion: NodeConversion) -> str:
    """Adds the NodeSet's label and removes what lending has added. The same change removes dnm's
    cordon, which would keep slurmd's pod off. So a later cordon is an administrator's."""
    _read_uncordoned(conversion)
    uncharge(conversion)  # the new pod's record removes the drain
    conversion.change_node(lambda: _put_label_on(conversion))
    conversion.writer.remember({CORDONED: ""})
    return f"label {standing_node.label_of(conversion.settings)[0]} put on"


def _read_uncordoned(conversion: NodeConversion) -> Node:
    """Returns the Node. Raises ConverterError if an administrator has cordoned it."""
    node = standing_node.read_own_node(conversion)
    labels, mark, _ = standing_node.undress(conversion, node)
    if standing_node.is_label_on(conversion, node) and not labels and not mark:
        conversion.writer.remember({CORDONED: ""})
    if node.is_cordoned and not standing_node.is_our_cordon(conversion, node):
        raise ConverterError(
            f"{conversion.node} is cordoned by an administrator, and no slurmd comes to a cordoned "
            f"node: 'kubectl uncordon {conversion.node}', then repeat"
        )
    return node


def _put_label_on(conversion: NodeConversion) -> None:
    node = _read_uncordoned(conversion)
    labels, mark, taints = standing_node.undress(conversion, node)
    key, value = standing_node.label_of(conversion.settings)
    conversion.kube.change(
        node, {**labels, key: value}, [*taints, FENCE], is_uncordoned=True, annotations=mark
    )


def wait_for_slurmd(conversion: NodeConversion) -> str:
    """Waits until a slurmd pod on the Node is Ready, and operator and Slurm show the node as idle.
    The earlier pod left it DOWN in Slurm. The operator resumes it only if the new pod has another
    name, so in StatefulSet mode dnm resumes it."""
    node_set = stateful_set(conversion)

    def look() -> str:
        if node_set:
            grow_in_turn(conversion, node_set)
        pods = conversion.kube.node_sets.read_pods(conversion.node)
        if missing := nodeset.missing_for_return(conversion.node, pods):
            return missing
        node = conversion.slurm.read_node(conversion.node)
        is_back = "NOT_RESPONDING" not in node.state.flags
        is_own = standing_node.is_our_drain(conversion, node)
        is_lifted = is_own or nodeset.is_down_by_its_pod(node.reason)
        if is_back and node.state.base == "DOWN" and is_lifted:
            conversion.slurm.resume(conversion.node, {})
            return "Slurm is resuming the node"
        is_usable = node.state.base in ("IDLE", "MIXED", "ALLOCATED")
        if not (is_usable and is_back):
            return f"Slurm has it {node.state.text} {node.reason}".rstrip()
        return ""

    conversion.wait_until(look, conversion.settings.boot_timeout_seconds)
    has_hook = conversion.run_hook("health")
    return "slurmd is back" + ("" if has_hook else ", no hook health")


def finish_return(conversion: NodeConversion) -> str:
    """Lifts dnm's drain, or leaves a faulty node drained, and then deletes the reservation. The
    fence stays, since it shows that Slurm has the node."""
    node = conversion.read_node()
    note = settle_drain(
        conversion, node, standing_node.is_our_drain(conversion, node), OPERATOR_REASON
    )
    clear_marks(conversion)
    release(conversion)
    return "; ".join(filter(None, (note, _await_operator(conversion))))


def _await_operator(conversion: NodeConversion) -> str:
    """Waits until slurm-operator reports on the pod that the node is up, and drained if Slurm has
    it so. The report may be 30 s late, and until then the node can't be lent. Returns a note after
    a time-out, since Slurm already has the node."""

    def look() -> str:
        is_drained = "DRAIN" in conversion.slurm.read_node(conversion.node).state.flags
        pods = conversion.kube.node_sets.read_pods(conversion.node)
        return "; ".join(filter(None, (nodeset.outdated_report(pod, is_drained) for pod in pods)))

    try:
        conversion.wait_until(look, _OPERATOR_PATIENCE)
    except ConverterError as error:
        return str(error)
    return ""


def _show_leave(run: DryRun) -> list[str]:
    key, value = standing_node.label_of(run.settings)
    return [
        "in StatefulSet mode: one replica fewer, with the pod on it the cheapest",
        f"label node {run.node} {key}-, if it is {value} and Slurm has it drained, no job",
    ]


def _show_back(run: DryRun) -> list[str]:
    key, value = standing_node.label_of(run.settings)
    return [f"label node {run.node} {key}={value}; uncordon"]


def _judge(judged: Sequence[Judged], settings: Settings) -> Sequence[Judged]:
    """Returns the verdicts with regard to the state of Nodes and slurmd pods in Kubernetes."""
    label = standing_node.label_of(settings)
    kube = KubeSide(settings)
    nodes = kube.read_nodes()
    if isinstance(nodes, Unreadable):
        raise KubeError(nodes.error)
    pods, sets = kube.node_sets.read_pods(), kube.node_sets.read_sets()
    by_name = {node.name: node for node in nodes}
    on: dict[str, list[SlurmdPod]] = {}
    for pod in pods:
        on.setdefault(pod.node, []).append(pod)
    places = {
        name: OnNode(node=by_name.get(name), pods=on.get(name, ()), sets=sets)
        for name in (node.node.name for node in judged)
    }
    return nodeset.judge_places(judged, places, label)


PROGRAM = Program(
    lending=(
        *to_k8s.claiming(check_movable),
        Stage("leave", leave, check_leave, _show_leave),
        Stage("gone", await_end, shows="wait until slurmd's pod has ended and the node is down"),
        Stage(
            "open", open_node, check_lent,
            f"labels and taints of the namespace, and the taint {FENCE.key} off",
        ),
    ),
    touches="leave",
    check=Stage("check", check, shows=to_batch.SHOW_LOOK),
    returning=(
        Stage("fence", standing_node.fence, shows=standing_node.SHOW_FENCE),
        Stage("drain", drain, shows=to_batch.SHOW_EVICTION),
        Stage("back", add_label, shows=_show_back),
        Stage(
            "slurmd", wait_for_slurmd,
            shows="in StatefulSet mode: one replica more\n"
            "wait until slurmd's pod is Ready and Slurm has the node idle",
        ),
        Stage("return", finish_return, shows=to_batch.show_release),
    ),
    judge=_judge,
    check_settings=standing_node.label_of,
)  # fmt: skip
