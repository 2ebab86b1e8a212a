"""The stages of bridge-convert. Lending: claim, verify, cordon, leave, gone, open. Return: check,
fence, drain, back, known, return.

The machine is always a Node. To lend it, dnm makes slurm-bridge remove it from Slurm: it claims the
Slurm node, checks that it is drained and has no job, and cordons the Node. Only then it removes the
label by which slurm-bridge keeps the Node in Slurm. The drain is dnm's, so slurm-bridge does not
lift it. The reservation is deleted just before the label, since Slurm deletes no reserved node.

dnm checks that Slurm has the partitions of the Node's annotation before it changes anything: if one
is missing, slurm-bridge never puts the Node into Slurm. The Node stays cordoned, and so drained,
until Slurm has it again as expected."""

from __future__ import annotations

from collections.abc import Sequence

from dnm.converters import bridge, standing_node, to_batch, to_k8s
from dnm.converters.bridge import BridgedNode
from dnm.converters.claim import InSlurm, check_claim, clear_marks, lift_drain, settle_drain
from dnm.converters.conversion import DryRun, NodeConversion, NotClaimed, Program, Stage
from dnm.converters.kube_side import KubeSide
from dnm.converters.marks import refuse_other, refuse_other_instance
from dnm.converters.nodeset import FENCE
from dnm.converters.reservation import own_reservations, release
from dnm.converters.select import Judged
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.converters.to_batch import CORDONED, AlreadyBack
from dnm.model.errors import ConverterError
from dnm.model.node import Node
from dnm.model.slinky import (
    BRIDGE_REASON,
    EXTERNAL_NODE,
    MANAGED_TAINT,
    PARTITIONS,
    bridge_labels,
)


def find_slurm_node(conversion: NodeConversion) -> SlurmNode | None:
    """Returns Slurm's record of the node; None if there is none. Raises SlurmError."""
    nodes = conversion.slurm.read_nodes()
    return next((node for node in nodes if node.name == conversion.node), None)


def read_bridged(conversion: NodeConversion) -> BridgedNode:
    """Returns the machine's Node. Raises ConverterError if there is none."""
    at = conversion.kube.bridge.read_node(conversion.node)
    if at is None:
        raise ConverterError(f"Kubernetes has no Node {conversion.node}: nothing is done to it")
    return at


def check_movable(conversion: NodeConversion) -> None:
    """Raises NotClaimed if the state of the Node or of slurm-bridge forbids moving the node."""
    is_cordoned = bool(conversion.journal.facts.get(CORDONED))
    at = conversion.kube.bridge.read_node(conversion.node)
    if refusal := bridge.lend_refusal(conversion.node, at, is_cordoned):
        raise NotClaimed(refusal)


def check_cordon(conversion: NodeConversion) -> None:
    check_movable(conversion)
    check_claim(conversion)


def cordon(conversion: NodeConversion) -> str:
    """Cordons the Node, since slurm-bridge would lift the drain of a schedulable Node."""
    if not read_bridged(conversion).node.is_cordoned:
        conversion.writer.remember({CORDONED: "yes"})
        conversion.kube.set_cordon(conversion.node, True)
    return "cordoned"


def check_leave(conversion: NodeConversion) -> None:
    """Checks dnm's drain again, since slurm-bridge may have replaced Slurm's record of the node."""
    if not _has_removed_label(read_bridged(conversion)):
        check_movable(conversion)
        check_claim(conversion, is_reserved=False)


def _has_removed_label(at: BridgedNode) -> bool:
    """Returns whether dnm removed slurm-bridge's label. Raises NotClaimed if another client did."""
    if not at.is_labelled and at.taken is None:
        raise NotClaimed(f"the label {EXTERNAL_NODE} of its Node was removed outside dnm")
    return not at.is_labelled


def leave(conversion: NodeConversion) -> str:
    """Removes, after a last check, the label that keeps the node in Slurm. The same change records
    the label on the Node and adds the fence, since slurm-bridge soon removes its own taint."""
    if _has_removed_label(read_bridged(conversion)):
        return "the label is off already"
    release(conversion)
    check_claim(conversion, is_reserved=False)
    conversion.change_node(lambda: _take_label_off(conversion))
    return "slurm-bridge's label is taken off"


def _take_label_off(conversion: NodeConversion) -> None:
    at = read_bridged(conversion)
    refusal = bridge.lend_refusal(conversion.node, at, is_cordoned=True)
    if refusal or not at.node.is_cordoned:
        raise NotClaimed(refusal or "its Node was uncordoned")
    taken = bridge.Taken(
        instance=conversion.settings.instance,
        labels=bridge_labels(at.node.labels),
        partitions=at.partitions,
    )
    conversion.kube.change(
        at.node,
        dict.fromkeys(taken.labels),
        (*at.node.taints, FENCE),
        annotations={bridge.TAKEN: bridge.write_taken(taken)},
    )


def _remainder(conversion: NodeConversion) -> str:
    at = read_bridged(conversion)
    if at.is_labelled:
        labels = " ".join(bridge_labels(at.node.labels))
        raise ConverterError(f"the label {labels} was added again outside dnm")
    if node := find_slurm_node(conversion):
        return f"Slurm has it {node.state.text} yet"
    if at.node.is_managed:
        return f"slurm-bridge's taint {MANAGED_TAINT} is still on its Node"
    pods = [pod for pod in conversion.kube.read_pods_to_evict(conversion.node) if not pod.stays]
    return f"pod {pods[0].key} is still on it" if pods else ""


def await_end(conversion: NodeConversion) -> str:
    """Waits until Slurm has no record of the node, slurm-bridge's pods have ended, and
    slurm-bridge's taint, which would evict other pods, is removed."""
    conversion.wait_until(lambda: _remainder(conversion), conversion.settings.drain_timeout_seconds)
    return "slurm-bridge has let go of it"


def check_lent(conversion: NodeConversion) -> None:
    """Checks that Slurm has no record of the node. Pods on it do not matter: they may have started
    before an earlier call was interrupted."""
    if node := conversion.patiently(lambda: find_slurm_node(conversion)):
        raise NotClaimed(f"Slurm has it {node.state.text} again")


def open_node(conversion: NodeConversion) -> str:
    """Adds labels and taints for the Node's namespace and lifts fence and cordon, in one change."""

    def refusal(node: Node) -> str:
        if labels := bridge_labels(node.labels):
            return f"the label {' '.join(labels)} was added again outside dnm"
        if node.is_managed:
            return f"slurm-bridge has put its taint {MANAGED_TAINT} on again"
        return ""

    return standing_node.open_to_pods(conversion, refusal, is_uncordoned=True)


def _partitions(at: BridgedNode) -> str | None:
    """Returns the Node's annotation of partitions or, if dnm removed that, its recorded copy."""
    return at.partitions or (at.taken.partitions if at.taken else None)


def check(conversion: NodeConversion) -> str:
    """Raises an error unless the node can be returned: Slurm has no work on it, this instance lent
    it, and slurm-bridge can add it to Slurm again."""
    at = read_bridged(conversion)
    node = conversion.patiently(lambda: find_slurm_node(conversion))
    state = InSlurm(node, conversion.read_jobs()) if node else None
    if node is not None:
        refuse_other_instance(conversion.settings, node)
    if at.taken is not None:
        refuse_other(conversion.settings, conversion.node, at.taken.instance)
    is_own = _is_own(conversion, at, node)
    if is_own and not at.is_labelled and at.taken is None:
        _give_up_node(conversion)
        raise AlreadyBack(f"the label {EXTERNAL_NODE} was removed outside dnm: nothing is done")
    _forget_opened(conversion, at)
    if at.is_labelled and not is_own:
        raise AlreadyBack("slurm-bridge has it: nothing is done to it")
    if not is_own:
        raise ConverterError(
            f"{conversion.node} is not lent by '{conversion.settings.instance}': neither its "
            "Node nor the journal shows it; nothing is done"
        )
    # The label and dnm's record change together. If both exist, the label is not dnm's.
    if at.taken is not None and state and state.in_service is not False:
        raise ConverterError(
            f"{conversion.node} is lent, but Slurm may have it in service ({state}): "
            "nothing is done to it; check the node"
        )
    _require_partitions(conversion, at)
    return f"lent: {node.state.text if node else 'Slurm has no record of it'}"


def _give_up_node(conversion: NodeConversion) -> None:
    """Gives up a node that was removed from Slurm outside dnm. Removes dnm's fence and cordon, and
    its reservation, since Slurm deletes no reserved node. dnm's drain stays until Slurm has deleted
    the node, since slurm-bridge lifts its own drain from a schedulable Node."""
    conversion.change_node(lambda: _lift_own_cordon(conversion))
    conversion.writer.remember({CORDONED: ""})
    release(conversion)


def _lift_own_cordon(conversion: NodeConversion) -> None:
    """Removes the fence and this conversion's cordon, in one change."""
    node = read_bridged(conversion).node
    is_own = standing_node.is_our_cordon(conversion, node)
    if standing_node.is_fenced(node) or (is_own and node.is_cordoned):
        taints = [taint for taint in node.taints if not standing_node.is_fence(taint)]
        conversion.kube.change(node, {}, taints, is_uncordoned=is_own)


def _forget_opened(conversion: NodeConversion, at: BridgedNode) -> None:
    """Removes dnm's cordon from the journal if dnm has lifted it. dnm lifts cordon and fence
    together: on a lent or returned Node without a fence, a cordon is an administrator's. Before it
    is fenced for lending, a Node that dnm cordoned still has slurm-bridge's label."""
    was_moved = at.taken is not None or conversion.journal.has_begun("return")
    if was_moved and not standing_node.is_fenced(at.node):
        conversion.writer.remember({CORDONED: ""})


def _is_own(conversion: NodeConversion, at: BridgedNode, node: SlurmNode | None) -> bool:
    is_cordoned = conversion.journal.facts.get(CORDONED)
    if at.taken is not None or is_cordoned or to_batch.is_resumed(conversion, "fence"):
        return True
    if node is None:
        return False
    return standing_node.is_our_drain(conversion, node) or bool(own_reservations(conversion))


def _require_partitions(conversion: NodeConversion, at: BridgedNode) -> None:
    partitions = bridge.split_partitions(_partitions(at))
    if not partitions:
        return
    await_record = conversion.patiently(conversion.slurm.read_partitions)
    if missing := [partition for partition in partitions if partition not in await_record]:
        raise ConverterError(
            f"Slurm has no partition {', '.join(missing)}, which the annotation {PARTITIONS} of "
            f"Node {conversion.node} names: slurm-bridge would not take the node back; make the "
            "partition, or fix the annotation, then repeat"
        )


def fence(conversion: NodeConversion) -> str:
    """Adds the fence, which keeps new pods off, unless slurm-bridge already uses the Node. A Node
    that was only cordoned gets it too, to show that the cordon is dnm's."""
    is_labelled = read_bridged(conversion).is_labelled
    is_at_work = is_labelled and not conversion.journal.facts.get(CORDONED)
    return "slurm-bridge has it" if is_at_work else standing_node.fence(conversion)


def drain(conversion: NodeConversion) -> str:
    """Evicts the remaining pods, unless slurm-bridge has the node: they may be slurm-bridge's."""
    if read_bridged(conversion).is_labelled:
        return "slurm-bridge has it"
    return to_batch.drain(conversion)


def relabel(conversion: NodeConversion) -> str:
    """Adds slurm-bridge's label to the cordoned Node and removes what lending has added."""
    at = read_bridged(conversion)
    if at.taken is None and at.is_labelled:
        return "the label is on"
    conversion.change_node(lambda: _put_label_on(conversion))
    return "slurm-bridge's label is put on"


def _put_label_on(conversion: NodeConversion) -> None:
    at = read_bridged(conversion)
    if at.taken is None:
        raise ConverterError(f"the label {EXTERNAL_NODE} was removed outside dnm: repeat")
    node = at.node
    if node.is_cordoned and not standing_node.is_our_cordon(conversion, node):
        raise ConverterError(
            f"{conversion.node} is cordoned by an administrator, and slurm-bridge keeps a cordoned "
            f"node drained: 'kubectl uncordon {conversion.node}', then repeat"
        )
    conversion.writer.remember({CORDONED: "yes"})
    if not node.is_cordoned:
        conversion.kube.set_cordon(conversion.node, True)
        node = read_bridged(conversion).node
    labels, mark, taints = standing_node.undress(conversion, node)
    partitions = _partitions(at)
    kept = {PARTITIONS: partitions} if partitions else {}
    conversion.kube.change(
        node,
        {**labels, **at.taken.labels},
        [*taints, FENCE],
        annotations={**mark, bridge.TAKEN: None, **kept},
    )


def await_record(conversion: NodeConversion) -> str:
    """Waits until slurm-bridge has added the node to Slurm: IDLE, with partitions as features."""

    def look() -> str:
        at = read_bridged(conversion)
        node = find_slurm_node(conversion)
        return bridge.missing_for_return(at, node, bridge.split_partitions(at.partitions))

    conversion.wait_until(look, conversion.settings.boot_timeout_seconds)
    has_hook = conversion.run_hook("health")
    return "Slurm has it" + ("" if has_hook else ", no hook health")


def finish_return(conversion: NodeConversion) -> str:
    """Removes fence and cordon in one change, after which slurm-bridge lifts its drain. A faulty
    node stays drained with another Reason, and an administrator's cordon stays."""
    node = conversion.read_node()
    if conversion.settings.leave_drained:
        settle_drain(conversion, node, standing_node.is_our_drain(conversion, node), BRIDGE_REASON)
    if standing_node.is_fenced(read_bridged(conversion).node):
        conversion.change_node(lambda: _lift_own_cordon(conversion))
    conversion.writer.remember({CORDONED: ""})
    if standing_node.is_our_drain(conversion, conversion.read_node()):
        lift_drain(conversion)
    clear_marks(conversion)
    release(conversion)

    def look() -> str:
        node = conversion.slurm.read_node(conversion.node)
        is_held = "DRAIN" in node.state.flags and node.reason.startswith(BRIDGE_REASON)
        return f"Slurm has it {node.state.text} {node.reason}" if is_held else ""

    conversion.wait_until(look, conversion.settings.stage_timeout_seconds)
    return settle_drain(conversion, conversion.read_node(), is_own=False)


def _judge(judged: Sequence[Judged], settings: Settings) -> Sequence[Judged]:
    """Returns the verdicts, with regard to the Nodes' state, and a verdict on each lent node."""
    at = {node.node.name: node for node in KubeSide(settings).bridge.read_nodes()}
    return bridge.judge_bridged(judged, at)


def _show_leave(run: DryRun) -> list[str]:
    return [
        f"scontrol delete ReservationName={run.settings.res_name}-{run.node}",
        f"label node {run.node} {EXTERNAL_NODE}-, if Slurm has it drained, no job",
    ]


PROGRAM = Program(
    lending=(
        *to_k8s.claiming(check_movable),
        Stage("cordon", cordon, check_cordon, "cordon {node}"),
        Stage("leave", leave, check_leave, _show_leave),
        Stage(
            "gone", await_end,
            shows=f"wait until Slurm has no node {{node}} and the taint {MANAGED_TAINT} is off",
        ),
        Stage(
            "open", open_node, check_lent, "labels and taints of the namespace; uncordon {node}"
        ),
    ),
    touches="cordon",
    check=Stage("check", check, shows="scontrol -a -o show nodes; scontrol -a -o show partition"),
    returning=(
        Stage("fence", fence, shows=standing_node.SHOW_FENCE),
        Stage("drain", drain, shows=to_batch.SHOW_EVICTION),
        Stage("back", relabel, shows=f"label node {{node}} {EXTERNAL_NODE}, annotate {PARTITIONS}"),
        Stage(
            "known", await_record,
            shows="wait until Slurm has {node} idle, with its partitions as features",
        ),
        Stage(
            "return", finish_return,
            shows="uncordon {node}, wait until slurm-bridge has lifted its drain",
        ),
    ),
    judge=_judge,
)  # fmt: skip
