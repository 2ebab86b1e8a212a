"""StatefulSet mode of nodeset-convert: one replica fewer, or one more, on this node.

The operator chooses which pod ends, and a pod's deletion cost decides only if all pods are Ready.
So dnm moves one node at a time, and checks everything just before it scales an unchanged NodeSet.
Then it watches which pod ends. If it is another pod, dnm restores the number at once; the operator
keeps a pod that still has jobs. If a node must wait for another one, it is unchanged, and that is
no failure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from dnm.converters import nodeset
from dnm.converters.claim import check_claim
from dnm.converters.conversion import NodeConversion, NotClaimed
from dnm.converters.nodeset import LOWEST_COST, NodeSet, SlurmdPod
from dnm.converters.standing_node import is_label_on, label_of, read_own_node
from dnm.model.errors import ConverterError, KubeConflict, KubeError

SCALED = "scaled"  # keys of the journal's facts: the NodeSet that dnm is about to scale,
_BEFORE = "replicas before"  # and its replicas before that


class OthersTurn(NotClaimed):
    """The error if another node of the NodeSet is being moved. It does not count as a failure."""


def stateful_set(conversion: NodeConversion) -> str:
    """Returns the NodeSet in StatefulSet mode that selects the Node; empty if a NodeSet in
    DaemonSet mode does. Raises ConverterError if dnm can't decide which NodeSet selects it."""
    if scaled := conversion.journal.facts.get(SCALED):
        return scaled
    key, value = label_of(conversion.settings)
    sets = [
        item for item in conversion.kube.node_sets.read_sets() if item.selector.get(key) == value
    ]
    on = {pod.key_of_set for pod in _pods_on(conversion)}
    of_pod = [item for item in sets if item.key in on] or sets
    if len({item.key for item in of_pod}) > 1 and not all(item.is_daemon_set for item in of_pod):
        raise ConverterError(
            f"the NodeSets {', '.join(item.key for item in of_pod)} all choose by {key}={value}: "
            f"dnm can't decide which of them has {conversion.node}; give each a label of "
            "its own"
        )
    return "".join(node_set.key for node_set in of_pod if not node_set.is_daemon_set)


def _pods_on(conversion: NodeConversion) -> Sequence[SlurmdPod]:
    return conversion.kube.node_sets.read_pods(conversion.node)


def _read(conversion: NodeConversion, key: str) -> tuple[NodeSet, list[SlurmdPod]]:
    """Returns a NodeSet and its pods. Pods are read last, so that none is missed."""
    side = conversion.kube.node_sets
    node_set = next((node_set for node_set in side.read_sets() if node_set.key == key), None)
    if node_set is None or node_set.is_daemon_set:
        raise ConverterError(f"there is no NodeSet {key} in StatefulSet mode (any more)")
    pods = [pod for pod in side.read_pods() if pod.key_of_set == key]
    return node_set, pods


@contextmanager
def _turn(conversion: NodeConversion, key: str) -> Iterator[None]:
    """Holds a lock during the block: only one conversion on this host may scale the NodeSet."""
    name = f"NodeSet_{key.replace('/', '_')}"  # no node name has a `_`
    deadline = time.monotonic() + conversion.settings.drain_timeout_seconds.total_seconds()
    while True:
        with conversion.writer.store.lock(name) as is_locked:
            if is_locked:
                yield
                return
        if time.monotonic() > deadline:
            raise OthersTurn(f"another node of NodeSet {key} is still being moved: repeat")
        conversion.wait(conversion.settings.poll_seconds)


def shrink(conversion: NodeConversion, key: str) -> str:
    """Makes the operator end the pod on the Node, then removes the NodeSet's label."""
    with _turn(conversion, key):
        try:
            conversion.wait_until(
                lambda: _shrink_once(conversion, key),
                conversion.settings.drain_timeout_seconds,
                (KubeError, OthersTurn),
            )
        except ConverterError:
            with suppress(KubeError):  # else the rollback does it
                grow(conversion, key)
            raise
    return f"NodeSet {key} has one replica fewer"


def _shrink_once(conversion: NodeConversion, key: str) -> str:
    node_set, fellows = _read(conversion, key)
    on_node = [pod for pod in fellows if pod.node == conversion.node]
    if not on_node:
        return _take_label_off(conversion)
    pod = on_node[0]
    if pod.is_terminating:
        return f"pod {pod.key} is still there"
    if _is_scaled(conversion, node_set):
        if refusal := nodeset.wrong_pod_removal(fellows, pod, node_set.replicas):
            raise NotClaimed(refusal)
        return f"pod {pod.key} is still there"
    if pod.cost != LOWEST_COST:
        conversion.kube.node_sets.set_cost(pod, LOWEST_COST)
        return "its deletion cost is read back"
    if refusal := nodeset.turn_refusal(node_set, fellows, pod):
        raise OthersTurn(refusal)
    if refusal := nodeset.scale_refusal(node_set, fellows, pod, _spares(conversion, fellows)):
        return refusal
    check_claim(conversion)
    _scale_down(conversion, node_set)
    return f"pod {pod.key} is still there"


def _scale_down(conversion: NodeConversion, node_set: NodeSet) -> None:
    """Scales down by one. The journal records the scaling first. If the API server refuses the
    write (conflict), the earlier record is restored."""
    facts = conversion.journal.facts
    before = {name: facts.get(name, "") for name in (SCALED, _BEFORE)}
    conversion.writer.remember({SCALED: node_set.key, _BEFORE: str(node_set.replicas)})
    try:
        conversion.kube.node_sets.scale(node_set, node_set.replicas - 1)
    except KubeConflict:
        conversion.writer.remember(before)
        raise


def _is_scaled(conversion: NodeConversion, node_set: NodeSet) -> bool:
    """Returns whether this conversion has scaled the NodeSet down and has not restored the number.
    Other conversions wait until the pod has ended or the number is restored."""
    facts = conversion.journal.facts
    return bool(facts.get(SCALED)) and node_set.replicas < int(facts.get(_BEFORE, "0"))


def _spares(conversion: NodeConversion, fellows: Sequence[SlurmdPod]) -> list[str]:
    taken = {pod.node for pod in fellows}
    chosen = conversion.kube.node_sets.read_chosen(*label_of(conversion.settings))
    return [name for name in chosen if name not in taken]


def _take_label_off(conversion: NodeConversion) -> str:
    """Removes the NodeSet's label. Returns a message if another slurmd pod has started."""
    if is_label_on(conversion, read_own_node(conversion)):
        key, value = label_of(conversion.settings)
        conversion.kube.node_sets.remove_label(conversion.node, key, value)
    return "another pod of slurmd has come" if _pods_on(conversion) else ""


def grow(conversion: NodeConversion, key: str) -> None:
    """Takes the next step to start slurmd again: adds a replica if every pod has its Node, or
    restores a pod's deletion cost. Raises KubeError, also if the NodeSet has changed."""
    node_set, fellows = _read(conversion, key)
    side = conversion.kube.node_sets
    staying = [pod for pod in fellows if not pod.is_terminating]
    on_node = [pod for pod in staying if pod.node == conversion.node]
    if on_node:
        if _is_scaled(conversion, node_set):  # the pod that dnm wanted to end is still there
            side.scale(node_set, node_set.replicas + 1)
        elif on_node[0].cost == LOWEST_COST:
            side.set_cost(on_node[0], None)
        return
    if len(fellows) == node_set.replicas and all(pod.node for pod in fellows):
        side.scale(node_set, node_set.replicas + 1)


def grow_in_turn(conversion: NodeConversion, key: str) -> None:
    """Calls `grow` under the lock of the NodeSet. Does nothing if a pod is on the Node and neither
    scale nor deletion cost is to be restored."""
    staying = [pod for pod in _pods_on(conversion) if not pod.is_terminating]
    is_scaled = bool(conversion.journal.facts.get(SCALED))
    if staying and not is_scaled and all(pod.cost != LOWEST_COST for pod in staying):
        return
    with _turn(conversion, key):
        grow(conversion, key)
