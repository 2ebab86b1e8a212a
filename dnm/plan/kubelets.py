"""What the kubelets of node types mean for a run: which types are not lent, and which nodes differ.

Pure, and without effect where no node type says anything about its kubelets.
"""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.cluster import Node
from dnm.model.config import Config
from dnm.model.registry import LentNode, Phase


def barred_types(config: Config) -> dict[str, str]:
    """Node type -> why no node of it is lent: its kubelets would not start."""
    if not config.has_kubelets:
        return {}
    from dnm.kubelet.check import why_not_lent

    found = {name: why_not_lent(one) for name, one in config.node_types.items()}
    return {name: why for name, why in found.items() if why}


def differing_kubelets(
    config: Config, lent: Mapping[str, LentNode], nodes: Mapping[str, Node]
) -> dict[str, str]:
    """Lent node -> a sentence on how its kubelet differs from what its type says."""
    if not config.has_kubelets:
        return {}
    from dnm.kubelet.compare import difference_sentence, differences

    found = {}
    for name, entry in lent.items():
        node_type, node = config.node_types.get(entry.node_type), nodes.get(name)
        if node_type is None or node is None or entry.phase is not Phase.SERVING:
            continue
        contradictions = differences(node_type, node)
        if contradictions:
            found[name] = difference_sentence(node_type, name, contradictions)
    return found


def likely_refusal(config: Config, node_type: str) -> str:
    """What may keep the kubelet of a node of this type from starting, with a blank before it."""
    if not config.has_kubelets:
        return ""
    from dnm.kubelet import compare

    likely = compare.likely_refusal(config.node_types.get(node_type))
    return f" {likely};" if likely else ""
