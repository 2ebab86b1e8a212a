"""Node types: the classes of equal machines in the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.kubelet import KubeletSettings
from dnm.model.opening import Check
from dnm.model.share import Share
from dnm.model.value import Resources, Value

NAMESPACE = "{namespace}"


def fill_namespace(text: str, namespace: str) -> str:
    """Returns a configured label or taint with its placeholder `{namespace}` replaced."""
    return text.replace(NAMESPACE, namespace)


class Taint(Value):
    key: str
    effect: str  # NoSchedule | PreferNoSchedule | NoExecute
    value: str = ""


class NodeType(Value):
    """A class of equal machines. `{namespace}` in labels or taints means the served namespace."""

    name: str
    size: Resources  # expected; used until a node has joined
    name_prefix: str = ""  # of node names, followed by digits; empty: the type's name
    max_nodes: int | Share | None = None
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    readiness_checks: tuple[Check, ...] = ()  # besides Ready and its resources
    kubelet: KubeletSettings | None = None  # None: its section has no key about kubelets

    def labels_for(self, namespace: str) -> dict[str, str]:
        """Returns the labels that a node of this type gets when it is lent to the namespace."""
        return {
            fill_namespace(key, namespace): fill_namespace(value, namespace)
            for key, value in self.labels.items()
        }

    def taints_for(self, namespace: str) -> tuple[Taint, ...]:
        """Returns the taints that a node of this type gets when it is lent to the namespace."""
        return tuple(
            Taint(
                key=fill_namespace(taint.key, namespace),
                value=fill_namespace(taint.value, namespace),
                effect=taint.effect,
            )
            for taint in self.taints
        )
