"""The facts about a joining node that its readiness checks evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.opening import OPENING_TAINT
from dnm.model.pod import PodShape
from dnm.model.value import Value

CLOSED = Taint(key=OPENING_TAINT, effect="NoSchedule")
"""The taint that keeps pods off a joining node if its type has readiness checks."""


def lacking_taints(node: Node, taints: Iterable[Taint]) -> list[Taint]:
    """Returns those of `taints`, which the converter must set, that a Node lacks. It omits the
    taint for readiness checks if the Node has dnm's mark, since dnm itself has then removed it."""
    return [
        taint
        for taint in taints
        if taint not in node.taints and not (taint == CLOSED and node.mark is not None)
    ]


class FactsRequest(Value):
    """A request to read the facts about a joining node that checks of these `kinds` evaluate."""

    node: str
    namespace: str
    kinds: frozenset[str]
    pods: tuple[str, ...] = ()


class DaemonPods(Value):
    """A DaemonSet and its pod on a joining node. `why` explains why this pod is not ready."""

    name: str  # namespace/name
    shape: PodShape
    is_ready: bool = False
    why: str = "has no pod there"


class ImageUsers(Value):
    """Equal pending pods: the images that they need, and the shape that decides where they fit."""

    shape: PodShape
    images: tuple[str, ...]
    secrets: tuple[str, ...] = ()


class OwnPod(Value):
    """A pod that dnm started on a node: its phase, the images it pulled, and why others failed."""

    phase: str = ""
    why: str = ""
    pulled: frozenset[str] = frozenset()


class CloseLook(Value):
    """The facts about a joining node. `pods` are those that dnm itself has started on the node."""

    conditions: Mapping[str, str] = {}
    images: frozenset[str] = frozenset()
    daemons: tuple[DaemonPods, ...] = ()
    waiting: tuple[ImageUsers, ...] = ()
    pods: Mapping[str, OwnPod] = {}
