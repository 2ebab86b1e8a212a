"""bridge-convert. Lending: claim, verify, cordon, leave, gone, open. Return: check, fence, drain,
back, known, return.

The machine is always a Node. To lend it, slurm-bridge is made to take it out of Slurm in peace: its
node there is claimed, seen drained and without a job, the Node cordoned, and only then does it lose
the label by which slurm-bridge keeps it in Slurm. The drain is ours, so that slurm-bridge does not
lift it; the reservation goes just before the label, since Slurm deletes no node that is reserved.

The partitions of the Node's annotation are looked for in Slurm before anything is touched: where
one is missing slurm-bridge never puts the Node into Slurm. The Node stays cordoned, and so drained,
until Slurm has it as it shall be.
"""

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
    """Returns what Slurm has of the machine; None: it is not in its list. Raises SlurmError."""
    nodes = conversion.slurm.read_nodes()
    return next((one for one in nodes if one.name == conversion.node), None)


def read_bridged(conversion: NodeConversion) -> BridgedNode:
    """Returns the machine's Node. Raises ConverterError where there is none."""
    at = conversion.kube.bridge.read_node(conversion.node)
    if at is None:
        raise ConverterError(f"Kubernetes has no Node {conversion.node}: nothing is done to it")
    return at


def is_movable(conversion: NodeConversion) -> None:
    """slurm-bridge has the Node, and nobody keeps it from being moved."""
    is_cordoned = bool(conversion.journal.facts.get(CORDONED))
    at = conversion.kube.bridge.read_node(conversion.node)
    if why := bridge.why_not_moved(conversion.node, at, is_cordoned):
        raise NotClaimed(why)


def may_cordon(conversion: NodeConversion) -> None:
    is_movable(conversion)
    check_claim(conversion)


def cordon(conversion: NodeConversion) -> str:
    """Kept from now on by Kubernetes too: a schedulable Node's drain is lifted by slurm-bridge."""
    if not read_bridged(conversion).node.is_cordoned:
        conversion.book.remember({CORDONED: "yes"})
        conversion.kube.set_cordon(conversion.node, True)
    return "cordoned"


def may_leave(conversion: NodeConversion) -> None:
    """Slurm itself says: drained by us, nothing on it. Its record may have been made anew."""
    if not _is_off_by_us(read_bridged(conversion)):
        is_movable(conversion)
        check_claim(conversion, is_reserved=False)


def _is_off_by_us(at: BridgedNode) -> bool:
    """Raises NotClaimed where somebody else has taken the label off: they want it out of Slurm."""
    if not at.is_labelled and at.taken is None:
        raise NotClaimed(f"somebody has taken the label {EXTERNAL_NODE} off its Node")
    return not at.is_labelled


def leave(conversion: NodeConversion) -> str:
    """Takes off the label that keeps it in Slurm, with all looked at once more just before; what is
    taken off stands on the Node from then on. The fence comes in the same change: slurm-bridge
    takes its own taint off soon."""
    if _is_off_by_us(read_bridged(conversion)):
        return "the label is off already"
    release(conversion)
    check_claim(conversion, is_reserved=False)
    conversion.change_node(lambda: _take_label_off(conversion))
    return "slurm-bridge's label is taken off"


def _take_label_off(conversion: NodeConversion) -> None:
    at = read_bridged(conversion)
    why = bridge.why_not_moved(conversion.node, at, is_cordoned=True)
    if why or not at.node.is_cordoned:
        raise NotClaimed(why or "its Node was uncordoned")
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


def _not_gone(conversion: NodeConversion) -> str:
    at = read_bridged(conversion)
    if at.is_labelled:
        labels = " ".join(bridge_labels(at.node.labels))
        raise ConverterError(f"somebody has put the label {labels} on again")
    if node := find_slurm_node(conversion):
        return f"Slurm has it {node.state.text} yet"
    if at.node.is_managed:
        return f"slurm-bridge's taint {MANAGED_TAINT} is still on its Node"
    pods = [pod for pod in conversion.kube.read_pods_to_evict(conversion.node) if not pod.stays]
    return f"pod {pods[0].key} is still on it" if pods else ""


def gone(conversion: NodeConversion) -> str:
    """Slurm has no record of it, no pod of slurm-bridge's is left, and its taint is off: it would
    have pods evicted. Nobody hurries it."""
    conversion.wait_until(lambda: _not_gone(conversion), conversion.settings.drain_timeout_seconds)
    return "slurm-bridge has let go of it"


def is_lent_by_us(conversion: NodeConversion) -> None:
    """Slurm still has no record of it. Some of its pods may be back from an opening that was
    interrupted, so they are not looked at again."""
    if node := conversion.patiently(lambda: find_slurm_node(conversion)):
        raise NotClaimed(f"Slurm has it {node.state.text} again")


def open_node(conversion: NodeConversion) -> str:
    """Labels and taints of the namespace, fence and cordon off, in one change."""

    def why_not(node: Node) -> str:
        if labels := bridge_labels(node.labels):
            return f"somebody has put the label {' '.join(labels)} on again"
        if node.is_managed:
            return f"slurm-bridge has put its taint {MANAGED_TAINT} on again"
        return ""

    return standing_node.open_to_pods(conversion, why_not, is_uncordoned=True)


def _partitions(at: BridgedNode) -> str | None:
    """As they stand on the Node, else as they stood when it was lent."""
    return at.partitions or (at.taken.partitions if at.taken else None)


def check(conversion: NodeConversion) -> str:
    """Nothing is done to a node that Slurm works on, that is not ours, or that slurm-bridge could
    not take back."""
    at = read_bridged(conversion)
    node = conversion.patiently(lambda: find_slurm_node(conversion))
    found = InSlurm(node, conversion.read_jobs()) if node else None
    if node is not None:
        refuse_other_instance(conversion.settings, node)
    if at.taken is not None:
        refuse_other(conversion.settings, conversion.node, at.taken.instance)
    is_ours = _is_ours(conversion, at, node)
    if is_ours and not at.is_labelled and at.taken is None:
        _leave_to_others(conversion)
        raise AlreadyBack(f"somebody has taken the label {EXTERNAL_NODE} off: it is left to them")
    _forget_opened(conversion, at)
    if at.is_labelled and not is_ours:
        raise AlreadyBack("slurm-bridge has it: nothing is done to it")
    if not is_ours:
        raise ConverterError(
            f"{conversion.node} is not lent by '{conversion.settings.instance}': nothing on its "
            "Node or in the journal says so; nothing is done"
        )
    # The label goes on in the change that takes our note off: with both, another has put it on.
    if at.taken is not None and found and found.in_service is not False:
        raise ConverterError(
            f"Slurm has {conversion.node} in service or can't say ({found}) although it is lent: "
            "nothing is done to it; look at the node"
        )
    _require_partitions(conversion, at)
    return f"lent: {node.state.text if node else 'Slurm has no record of it'}"


def _leave_to_others(conversion: NodeConversion) -> None:
    """Whoever took the label off, without our note, wants the machine out of Slurm: what is ours
    goes off the Node, and the reservation, with which Slurm would keep the record. Our drain stays,
    for slurm-bridge lifts its own from a schedulable Node, and goes with the record."""
    conversion.change_node(lambda: _lift_own_cordon(conversion))
    conversion.book.remember({CORDONED: ""})
    release(conversion)


def _lift_own_cordon(conversion: NodeConversion) -> None:
    """Takes off the fence and the cordon of this conversion, in one change."""
    node = read_bridged(conversion).node
    is_ours = standing_node.is_our_cordon(conversion, node)
    if standing_node.is_fenced(node) or (is_ours and node.is_cordoned):
        taints = [one for one in node.taints if not standing_node.is_fence(one)]
        conversion.kube.change(node, {}, taints, is_uncordoned=is_ours)


def _forget_opened(conversion: NodeConversion, at: BridgedNode) -> None:
    """Our cordon goes only together with our fence: on a Node that was opened, or given back, and
    that has no fence, a cordon is not ours, whatever the journal says. Lending cordons before it
    puts the fence on; such a Node has its label, and nothing was taken off it."""
    was_moved = at.taken is not None or conversion.journal.has_begun("return")
    if was_moved and not standing_node.is_fenced(at.node):
        conversion.book.remember({CORDONED: ""})


def _is_ours(conversion: NodeConversion, at: BridgedNode, node: SlurmNode | None) -> bool:
    is_cordoned = conversion.journal.facts.get(CORDONED)
    if at.taken is not None or is_cordoned or to_batch.is_resumed(conversion, "fence"):
        return True
    if node is None:
        return False
    return standing_node.is_our_drain(conversion, node) or bool(own_reservations(conversion))


def _require_partitions(conversion: NodeConversion, at: BridgedNode) -> None:
    wanted = bridge.split_partitions(_partitions(at))
    if not wanted:
        return
    known = conversion.patiently(conversion.slurm.read_partitions)
    if missing := [one for one in wanted if one not in known]:
        raise ConverterError(
            f"Slurm has no partition {', '.join(missing)}, which the annotation {PARTITIONS} of "
            f"Node {conversion.node} names: slurm-bridge would not take the node back; make the "
            "partition, or mend the annotation, then repeat"
        )


def fence(conversion: NodeConversion) -> str:
    """Keeps pods off from now on; not where slurm-bridge has it already. A Node that lending has
    cordoned, and no more, gets it too: while it is on, the cordon is ours."""
    is_labelled = read_bridged(conversion).is_labelled
    is_at_work = is_labelled and not conversion.journal.facts.get(CORDONED)
    return "slurm-bridge has it" if is_at_work else standing_node.fence(conversion)


def drain(conversion: NodeConversion) -> str:
    """Evicts what is left, but for what belongs there; not where slurm-bridge may have pods."""
    if read_bridged(conversion).is_labelled:
        return "slurm-bridge has it"
    return to_batch.drain(conversion)


def back(conversion: NodeConversion) -> str:
    """Gives the Node slurm-bridge's label again, cordoned, without what lending has put on it."""
    at = read_bridged(conversion)
    if at.taken is None and at.is_labelled:
        return "the label is on"
    conversion.change_node(lambda: _put_label_on(conversion))
    return "slurm-bridge's label is put on"


def _put_label_on(conversion: NodeConversion) -> None:
    at = read_bridged(conversion)
    if at.taken is None:
        raise ConverterError(f"somebody has taken the label {EXTERNAL_NODE} off: repeat")
    node = at.node
    if node.is_cordoned and not standing_node.is_our_cordon(conversion, node):
        raise ConverterError(
            f"{conversion.node} is cordoned by an administrator, and slurm-bridge keeps a cordoned "
            f"node drained: 'kubectl uncordon {conversion.node}', then repeat"
        )
    conversion.book.remember({CORDONED: "yes"})
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


def known(conversion: NodeConversion) -> str:
    """slurm-bridge has put it into Slurm, idle and with its partitions as features."""

    def look() -> str:
        at = read_bridged(conversion)
        node = find_slurm_node(conversion)
        return bridge.why_not_back(at, node, bridge.split_partitions(at.partitions))

    conversion.wait_until(look, conversion.settings.boot_timeout_seconds)
    found = conversion.run_hook("health")
    return "Slurm has it" + ("" if found else ", no hook health")


def hand_over(conversion: NodeConversion) -> str:
    """Fence and cordon off in one change; then slurm-bridge lifts its drain, but for that of a sick
    node, which has another reason by then. An administrator's cordon stays."""
    node = conversion.read_node()
    if conversion.settings.leave_drained:
        settle_drain(conversion, node, standing_node.is_our_drain(conversion, node), BRIDGE_REASON)
    if standing_node.is_fenced(read_bridged(conversion).node):
        conversion.change_node(lambda: _lift_own_cordon(conversion))
    conversion.book.remember({CORDONED: ""})
    if standing_node.is_our_drain(conversion, conversion.read_node()):
        lift_drain(conversion)
    clear_marks(conversion)
    release(conversion)

    def look() -> str:
        node = conversion.slurm.read_node(conversion.node)
        is_held = "DRAIN" in node.state.flags and node.reason.startswith(BRIDGE_REASON)
        return f"Slurm has it {node.state.text} {node.reason}" if is_held else ""

    conversion.wait_until(look, conversion.settings.stage_timeout_seconds)
    return settle_drain(conversion, conversion.read_node(), is_ours=False)


def _judge(judged: Sequence[Judged], settings: Settings) -> Sequence[Judged]:
    """By what Kubernetes says of them, with those that are lent, of which Slurm has no record."""
    at = {one.node.name: one for one in KubeSide(settings).bridge.read_nodes()}
    return bridge.judge_bridged(judged, at)


def _show_leave(run: DryRun) -> list[str]:
    return [
        f"scontrol delete ReservationName={run.settings.res_name}-{run.node}",
        f"label node {run.node} {EXTERNAL_NODE}-, if Slurm has it drained, no job",
    ]


PROGRAM = Program(
    lending=(
        *to_k8s.claiming(is_movable),
        Stage("cordon", cordon, may_cordon, "cordon {node}"),
        Stage("leave", leave, may_leave, _show_leave),
        Stage(
            "gone", gone,
            shows=f"wait until Slurm has no node {{node}} and the taint {MANAGED_TAINT} is off",
        ),
        Stage(
            "open", open_node, is_lent_by_us, "labels and taints of the namespace; uncordon {node}"
        ),
    ),
    touches="cordon",
    check=Stage("check", check, shows="scontrol -a -o show nodes; scontrol -a -o show partition"),
    returning=(
        Stage("fence", fence, shows=standing_node.SHOW_FENCE),
        Stage("drain", drain, shows=to_batch.SHOW_EVICTION),
        Stage("back", back, shows=f"label node {{node}} {EXTERNAL_NODE}, annotate {PARTITIONS}"),
        Stage(
            "known", known,
            shows="wait until Slurm has {node} idle, with its partitions as features",
        ),
        Stage(
            "return", hand_over,
            shows="uncordon {node}, wait until slurm-bridge has lifted its drain",
        ),
    ),
    judge=_judge,
)  # fmt: skip
