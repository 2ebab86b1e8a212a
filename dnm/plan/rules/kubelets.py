"""Effects of kubelet settings on a run: types that are not lent, and nodes that differ.

Pure. The rule is on if any node type configures its kubelets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dnm.kubelet import compare
from dnm.kubelet.check import lending_error
from dnm.kubelet.compare import difference_sentence, differences
from dnm.model.config import Config
from dnm.model.lent import LentNode, Phase
from dnm.model.node import Node
from dnm.model.reason import Reason, ReasonText
from dnm.plan.facts import NodeTransition
from dnm.plan.hooks import CountedFrom, Rule
from dnm.plan.inputs import Inputs
from dnm.sizing.caps import Bound

KUBELET_SETTINGS = ReasonText(
    "kubelets of its node types would not start with their settings",
    "corrected kubelet settings: `dnm node-types check` shows what is wrong",
    has_pod_event=True,
    name="KUBELET_SETTINGS",
)


def _closed_types(inputs: CountedFrom) -> Iterator[Bound]:
    """Yields a bound of zero nodes for each type with settings that stop its kubelets."""
    for name, node_type in inputs.config.node_types.items():
        if not inputs.is_move and (why := lending_error(node_type)):
            yield Bound(
                name=f"kubelet settings of type {name}",
                left=0,
                reason=KUBELET_SETTINGS,
                node_types=frozenset((name,)),
                why=why,
            )


def differing_kubelets(
    config: Config, lent: Mapping[str, LentNode], nodes: Mapping[str, Node]
) -> dict[str, str]:
    """Returns how the kubelet of each lent node differs from the configuration of its type."""
    by_node = {}
    for name, entry in lent.items():
        node_type, node = config.node_types.get(entry.node_type), nodes.get(name)
        if node_type is None or node is None or entry.phase is not Phase.SERVING:
            continue
        contradictions = differences(node_type, node)
        if contradictions:
            by_node[name] = difference_sentence(node_type, name, contradictions)
    return by_node


def _report_differences(
    inputs: Inputs, after: Mapping[str, NodeTransition]
) -> dict[str, NodeTransition]:
    """Reports kubelets that differ from the settings of their node type. Decisions stay the same,
    since a node counts with its own amounts. A difference is recorded as long as it exists."""
    entries = {
        name: transition.entry for name, transition in after.items() if transition.entry is not None
    }
    differing = differing_kubelets(inputs.config, entries, inputs.facts.nodes or {})
    changed_nodes = dict(after)
    for name, entry in entries.items():
        if after[name].verdict.reason is Reason.LATE:
            changed_nodes[name] = _with_likely_refusal(inputs.config, after[name], entry)
        sentence = differing.get(name, "")
        if entry.phase is not Phase.SERVING or sentence == entry.error == "":
            continue
        with_error = msgspec.structs.replace(after[name], entry=entry.with_state(error=sentence))
        changed_nodes[name] = _with_remark(with_error, sentence, sentence)
    return changed_nodes


def _with_likely_refusal(config: Config, after: NodeTransition, entry: LentNode) -> NodeTransition:
    """Adds to the error of a node that joins too late why its kubelet probably did not start."""
    likely = compare.likely_refusal(config.node_types.get(entry.node_type))
    if not likely:
        return after
    error = f"{entry.error}; {likely}"
    verdict = msgspec.structs.replace(after.verdict, detail=error)
    return msgspec.structs.replace(after, entry=entry.with_state(error=error), verdict=verdict)


RULE = Rule(reasons=(KUBELET_SETTINGS,), bounds=_closed_types, annotates=_report_differences)


def _with_remark(after: NodeTransition, detail: str, remark: str) -> NodeTransition:
    """Returns a node's transition with these texts added to its messages. No decision changes."""
    verdict = msgspec.structs.replace(
        after.verdict, detail="; ".join(filter(None, (after.verdict.detail, detail)))
    )
    remark = "; ".join(filter(None, (after.remark, remark)))
    return msgspec.structs.replace(after, verdict=verdict, remark=remark)
