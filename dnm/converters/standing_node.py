"""Operations on a machine that always has a Node in Kubernetes: its fence, its labels and taints
for a namespace, and the owner of its cordon and drain."""

from __future__ import annotations

from collections.abc import Callable

from dnm.converters.conversion import NodeConversion
from dnm.converters.marks import is_own_reason, reason_of_drain
from dnm.converters.nodeset import FENCE
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.converters.to_batch import CORDONED
from dnm.converters.to_k8s import set_namespace
from dnm.kube.nodes import MARK_PREFIX
from dnm.model.errors import ConfigError, ConverterError
from dnm.model.node import Node
from dnm.model.node_type import Taint

SHOW_FENCE = f"taint node {{node}} {FENCE.key}=:NoSchedule"


def read_own_node(conversion: NodeConversion) -> Node:
    """Returns the machine's Node. Raises ConverterError if there is none."""
    node = conversion.kube.read_node(conversion.node)
    if node is None:
        raise ConverterError(f"Kubernetes has no Node {conversion.node}: nothing is done to it")
    return node


def is_fence(taint: Taint) -> bool:
    """Returns whether the taint is dnm's fence, which shows that batch has the machine."""
    return (taint.key, taint.effect) == (FENCE.key, FENCE.effect)


def is_fenced(node: Node) -> bool:
    """Returns whether the Node has dnm's fence."""
    return any(map(is_fence, node.taints))


def is_our_drain(conversion: NodeConversion, node: SlurmNode) -> bool:
    """Returns whether this instance has drained the node."""
    return is_own_reason(conversion.settings, reason_of_drain(node))


def fence(conversion: NodeConversion) -> str:
    """Adds the fence to the Node, which keeps new pods off. dnm ignores a fenced Node."""

    def attempt() -> str:
        node = read_own_node(conversion)
        if not is_fenced(node):
            conversion.kube.change(node, {}, (*node.taints, FENCE))
        return "fenced"

    return conversion.change_node(attempt)


def open_to_pods(
    conversion: NodeConversion, refusal: Callable[[Node], str], is_uncordoned: bool = False
) -> str:
    """Sets labels and taints for the namespace and removes the fence, with `is_uncordoned` also the
    cordon, in one change. If the Node has no fence, an earlier call did this, and its cordon is an
    administrator's. Raises ConverterError as soon as `refusal` returns a reason."""

    def look() -> str:
        node = read_own_node(conversion)
        if reason := refusal(node):
            raise ConverterError(reason)
        kept = [taint for taint in node.taints if not is_fence(taint)]
        if set_namespace(conversion, node, kept, is_uncordoned and is_fenced(node)):
            return "the change is read back"
        return "" if node.is_ready else "the Node is not Ready"

    conversion.wait_until(look, conversion.settings.stage_timeout_seconds)
    if is_uncordoned:
        conversion.writer.remember({CORDONED: ""})
    conversion.run_hook("ready")
    return "the Node is open"


def undress(
    conversion: NodeConversion, node: Node
) -> tuple[dict[str, str | None], dict[str, str | None], list[Taint]]:
    """Returns two patches, which remove the labels for the namespace and dnm's annotations, and the
    taints that stay. If dnm has moved the Node to another namespace, both count. Their taints and
    the fence do not stay, since they would keep Slurm's pods off."""
    settings, node_type = conversion.settings, conversion.journal.node_type
    served = {conversion.journal.namespace, node.mark.namespace if node.mark else ""}
    names = {name for item in served for name in settings.labels(node_type, item)}
    own_taints = {taint for name in served for taint in settings.taints(node_type, name)}
    labels: dict[str, str | None] = {name: None for name in names if name in node.labels}
    words = ("instance", "node-type", "namespace", "queue", "fenced") if node.mark else ()
    mark: dict[str, str | None] = {f"{MARK_PREFIX}{word}": None for word in words}
    return (
        labels,
        mark,
        [taint for taint in node.taints if taint not in own_taints and not is_fence(taint)],
    )


def is_our_cordon(conversion: NodeConversion, node: Node) -> bool:
    """Returns whether dnm cordoned the Node: a run of this instance, or this conversion."""
    is_own = node.is_marked_by(conversion.settings.instance) and node.is_fenced
    return is_own or bool(conversion.journal.facts.get(CORDONED))


def label_of(settings: Settings) -> tuple[str, str]:
    """Returns the label by which the NodeSet selects Nodes. Raises ConfigError if none is set."""
    if settings.nodeset_label is None:
        raise ConfigError(
            "[node_convert] nodeset_label is missing: write the label of the NodeSet's "
            "nodeSelector that brings slurmd to a node, e.g. nodeset_label = slurm=yes"
        )
    return settings.nodeset_label


def is_label_on(conversion: NodeConversion, node: Node) -> bool:
    """Returns whether the Node has the NodeSet's label, so that slurmd runs on it, or will."""
    key, value = label_of(conversion.settings)
    return node.labels.get(key) == value
