"""The facts about a joining node that its readiness checks need."""

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
    """Returns those of the converter's `taints` that a Node lacks. If the Node has dnm's mark, this
    does not include the taint for readiness checks, since dnm itself has removed that taint."""
    return [
        taint
        for taint in taints
        if taint not in node.taints and not (taint == CLOSED and node.mark is not None)
    ]


class FactsRequest(Value):
    """A request for the facts about a joining node that readiness checks of these `kinds` need."""

    node: str
    namespace: str
    kinds: frozenset[str]
    pods: tuple[str, ...] = ()


class DaemonPods(Value):
    """A DaemonSet and the state of its pod on a joining node. `why`: why the pod is not ready."""

    name: str  # namespace/name
    shape: PodShape
    is_ready: bool = False
    why: str = "has no pod there"


class ImageUsers(Value):
    """Equal waiting pods: the images that they need, and the shape that decides where they fit."""

    shape: PodShape
    images: tuple[str, ...]
    secrets: tuple[str, ...] = ()


class OwnPod(Value):
    """A pod of dnm on a node: its phase, its pulled images, and why other images are missing."""

    phase: str = ""
    why: str = ""
    pulled: frozenset[str] = frozenset()


class CloseLook(Value):
    """The facts about a joining node. `images` have full names. `pods`: those that dnm started."""

    conditions: Mapping[str, str] = {}
    images: frozenset[str] = frozenset()
    daemons: tuple[DaemonPods, ...] = ()
    waiting: tuple[ImageUsers, ...] = ()
    pods: Mapping[str, OwnPod] = {}
