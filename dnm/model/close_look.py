"""What a close look at a node that joins asks for, and what it has found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.opening import OPENING_TAINT
from dnm.model.pod import PodShape
from dnm.model.value import Value

CLOSED = Taint(key=OPENING_TAINT, effect="NoSchedule")
"""What keeps pods off a node that joins, where its type has a list of what it opens by."""


def lacking_taints(node: Node, taints: Iterable[Taint]) -> list[Taint]:
    """Returns which of a converter's taints a Node lacks; whether one that dnm has marked is
    closed is dnm's to say."""
    return [
        taint
        for taint in taints
        if taint not in node.taints and not (taint == CLOSED and node.mark is not None)
    ]


class Asked(Value):
    """Which node is looked at closely, for whom, and for which kinds of steps."""

    node: str
    namespace: str
    kinds: frozenset[str]
    pods: tuple[str, ...] = ()


class DaemonPods(Value):
    """A DaemonSet, and how its pod on the node is; `why` it is not ready."""

    name: str  # namespace/name
    shape: PodShape
    is_ready: bool = False
    why: str = "has no pod there"


class ImageUsers(Value):
    """Equal pods that wait: where they may go, and what must be pulled for them."""

    shape: PodShape
    images: tuple[str, ...]
    secrets: tuple[str, ...] = ()


class OwnPod(Value):
    """A pod of dnm's own: its phase; which images it has; why it lacks others."""

    phase: str = ""
    why: str = ""
    pulled: frozenset[str] = frozenset()


class CloseLook(Value):
    """What was found. `images`: by their full names. `pods`: of dnm's own, by `namespace/name`."""

    conditions: Mapping[str, str] = {}
    images: frozenset[str] = frozenset()
    daemons: tuple[DaemonPods, ...] = ()
    waiting: tuple[ImageUsers, ...] = ()
    pods: Mapping[str, OwnPod] = {}
