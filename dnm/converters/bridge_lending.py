"""bridge-convert, lending: claim, verify, cordon, leave, gone, open.

The machine is always a Node. To lend it, slurm-bridge is made to take it out of Slurm in peace: its
node there is claimed, seen drained and without a job, the Node cordoned, and only then does it lose
the label by which slurm-bridge keeps it in Slurm. The drain is ours, so that slurm-bridge does not
lift it; the reservation goes just before the label, since Slurm deletes no node that is reserved.
"""

from __future__ import annotations

from dnm.converters import to_k8s
from dnm.converters.bridge import BridgedNode, Taken, why_not_moved
from dnm.converters.bridge_side import TAKEN, write_taken
from dnm.converters.claim import check_claim, release
from dnm.converters.conversion import NodeConversion, NotClaimed, Stage
from dnm.converters.nodeset import FENCE
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.converters.standing_node import CORDONED, open_to_pods
from dnm.model.errors import ConverterError, KubeError, SlurmError
from dnm.model.node import Node
from dnm.model.slinky import EXTERNAL_NODE, MANAGED_TAINT

TOUCHES = "cordon"


def find_slurm_node(conversion: NodeConversion) -> SlurmNode | None:
    """Returns what Slurm has of the machine; None: its list was read, and the machine is not in it.
    Raises SlurmError."""
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
    if why := why_not_moved(conversion.node, at, is_cordoned):
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
    """Raises NotClaimed where somebody else has taken the label off: they want the machine out of
    Slurm, and not for us."""
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
    at = read_bridged(conversion)
    why = why_not_moved(conversion.node, at, is_cordoned=True)
    if why or not at.node.is_cordoned:
        raise NotClaimed(why or "somebody has uncordoned its Node")
    check_claim(conversion, is_reserved=False)
    taken = Taken(
        instance=conversion.settings.instance,
        label=at.node.labels[EXTERNAL_NODE],
        partitions=at.partitions,
    )
    conversion.kube.node_sets.change(
        at.node,
        {EXTERNAL_NODE: None},
        (*at.node.taints, FENCE),
        annotations={TAKEN: write_taken(taken)},
    )
    return f"label {EXTERNAL_NODE} taken off"


def _why_not_gone(conversion: NodeConversion) -> str:
    at = read_bridged(conversion)
    if at.is_labelled:
        raise ConverterError(f"somebody has put the label {EXTERNAL_NODE} on again")
    if node := find_slurm_node(conversion):
        return f"Slurm has it {node.state.text} yet"
    if at.is_managed:
        return f"slurm-bridge's taint {MANAGED_TAINT} is still on its Node"
    pods = [pod for pod in conversion.kube.read_pods_on(conversion.node) if not pod.stays]
    return f"pod {pods[0].key} is still on it" if pods else ""


def gone(conversion: NodeConversion) -> str:
    """Slurm has no record of it, no pod of slurm-bridge's is left, and its taint is off: it would
    have pods evicted. Nobody hurries it."""

    def look() -> str:
        return _why_not_gone(conversion)

    conversion.wait_until(look, conversion.settings.drain_timeout_seconds, (KubeError, SlurmError))
    return "slurm-bridge has let go of it"


def is_lent_by_us(conversion: NodeConversion) -> None:
    """Slurm still has no record of it. Some of its pods may be back from an opening that was
    interrupted, so they are not looked at again."""
    if node := conversion.patiently(lambda: find_slurm_node(conversion)):
        raise NotClaimed(f"Slurm has it {node.state.text} again")


def open_node(conversion: NodeConversion) -> str:
    """Labels and taints of the namespace, fence and cordon off, in one change."""

    def why_not(node: Node) -> str:
        if EXTERNAL_NODE in node.labels:
            return f"somebody has put the label {EXTERNAL_NODE} on again"
        if any(taint.key == MANAGED_TAINT for taint in node.taints):
            return f"slurm-bridge has put its taint {MANAGED_TAINT} on again"
        return ""

    return open_to_pods(conversion, why_not, is_uncordoned=True)


LENDING = (
    Stage("claim", to_k8s.claim, is_movable),
    Stage("verify", to_k8s.verify),
    Stage("cordon", cordon, may_cordon),
    Stage("leave", leave, may_leave),
    Stage("gone", gone),
    Stage("open", open_node, is_lent_by_us),
)


def describe_lending(settings: Settings, node: str, jobs: str = "") -> list[tuple[str, str]]:
    """What a conversion would do: (stage, command or deed)."""
    return [
        *to_k8s.describe_claim(settings, node, jobs),
        ("cordon", f"cordon {node}"),
        ("leave", f"scontrol delete ReservationName={settings.res_name}-{node}"),
        ("leave", f"label node {node} {EXTERNAL_NODE}-, if Slurm has it drained, no job"),
        ("gone", f"wait until Slurm has no node {node} and the taint {MANAGED_TAINT} is off"),
        ("open", f"labels and taints of the namespace; uncordon {node}"),
    ]
