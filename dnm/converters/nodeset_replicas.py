"""nodeset-convert in StatefulSet mode: one replica fewer, and it is ours that goes; one more again.

The operator chooses which pod goes, and a pod's deletion cost decides only where all are well. So
one goes after the other, all is looked at just before the number changes, the NodeSet must be as it
was read then, and it is watched who goes. Should it be another's pod, the number is put back at
once: the operator lets a pod live whose node still has jobs. A node whose turn does not come is as
it was, and nothing is held against it.
"""

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

SCALED = "scaled"  # keys of the journal's facts: the NodeSet of which we set out to take one,
_BEFORE = "replicas before"  # and how many it wanted then


class OthersTurn(NotClaimed):
    """Another node of the NodeSet is being moved: waited for, and not the machine's doing."""


def stateful_set(conversion: NodeConversion) -> str:
    """Returns the NodeSet in StatefulSet mode that has the machine; empty: one in DaemonSet mode
    has. Raises ConverterError where that can't be told."""
    if found := conversion.journal.facts.get(SCALED):
        return found
    key, value = label_of(conversion.settings)
    sets = [one for one in conversion.kube.node_sets.read_sets() if one.selector.get(key) == value]
    on = {pod.key_of_set for pod in _pods_on(conversion)}
    of_pod = [one for one in sets if one.key in on] or sets
    if len({one.key for one in of_pod}) > 1 and not all(one.is_daemon_set for one in of_pod):
        raise ConverterError(
            f"the NodeSets {', '.join(one.key for one in of_pod)} all choose by {key}={value}: "
            f"which of them shall have {conversion.node} can't be told; give each a label of its "
            "own"
        )
    return "".join(one.key for one in of_pod if not one.is_daemon_set)


def _pods_on(conversion: NodeConversion) -> Sequence[SlurmdPod]:
    return conversion.kube.node_sets.read_pods(conversion.node)


def _read(conversion: NodeConversion, key: str) -> tuple[NodeSet, list[SlurmdPod]]:
    """The NodeSet, then its pods: what comes in between is seen."""
    side = conversion.kube.node_sets
    node_set = next((one for one in side.read_sets() if one.key == key), None)
    if node_set is None or node_set.is_daemon_set:
        raise ConverterError(f"there is no NodeSet {key} in StatefulSet mode (any more)")
    pods = [pod for pod in side.read_pods() if pod.key_of_set == key]
    return node_set, pods


@contextmanager
def _turn(conversion: NodeConversion, key: str) -> Iterator[None]:
    """Of the conversions of this host, one after the other changes a NodeSet's number."""
    name = f"NodeSet_{key.replace('/', '_')}"  # no node's name has a `_`
    deadline = time.monotonic() + conversion.settings.drain_timeout_seconds.total_seconds()
    while True:
        with conversion.book.store.lock(name) as is_ours:
            if is_ours:
                yield
                return
        if time.monotonic() > deadline:
            raise OthersTurn(f"another node of NodeSet {key} is still being moved: repeat")
        conversion.wait(conversion.settings.poll_seconds)


def shrink(conversion: NodeConversion, key: str) -> str:
    """Has the pod on the Node ended, and takes the NodeSet's label off it then."""
    with _turn(conversion, key):
        try:
            conversion.wait_until(
                lambda: _shrink_once(conversion, key),
                conversion.settings.drain_timeout_seconds,
                (KubeError, OthersTurn),
            )
        except ConverterError:
            with suppress(KubeError):  # else the way back does it
                grow(conversion, key)
            raise
    return f"NodeSet {key} has one replica fewer"


def _shrink_once(conversion: NodeConversion, key: str) -> str:
    node_set, fellows = _read(conversion, key)
    mine = [pod for pod in fellows if pod.node == conversion.node]
    if not mine:
        return _take_label_off(conversion)
    pod = mine[0]
    if pod.is_terminating:
        return f"pod {pod.key} is still there"
    if _is_scaled(conversion, node_set):
        if why := nodeset.why_other_goes(fellows, pod, node_set.replicas):
            raise NotClaimed(why)
        return f"pod {pod.key} is still there"
    if pod.cost != LOWEST_COST:
        conversion.kube.node_sets.set_cost(pod, LOWEST_COST)
        return "its deletion cost is read back"
    if why := nodeset.why_others_turn(node_set, fellows, pod):
        raise OthersTurn(why)
    if why := nodeset.why_not_next(node_set, fellows, pod, _spares(conversion, fellows)):
        return why
    check_claim(conversion)
    _take_one(conversion, node_set)
    return f"pod {pod.key} is still there"


def _take_one(conversion: NodeConversion, node_set: NodeSet) -> None:
    """A write that was refused for another's in between has not come about: should the number have
    become less by that, it is not our doing."""
    facts = conversion.journal.facts
    before = {name: facts.get(name, "") for name in (SCALED, _BEFORE)}
    conversion.book.remember({SCALED: node_set.key, _BEFORE: str(node_set.replicas)})
    try:
        conversion.kube.node_sets.scale(node_set, node_set.replicas - 1)
    except KubeConflict:
        conversion.book.remember(before)
        raise


def _is_scaled(conversion: NodeConversion, node_set: NodeSet) -> bool:
    """Whether the NodeSet wants fewer pods by our doing. Others wait for their turn until the pod
    is gone, or the number is what it was."""
    facts = conversion.journal.facts
    return bool(facts.get(SCALED)) and node_set.replicas < int(facts.get(_BEFORE, "0"))


def _spares(conversion: NodeConversion, fellows: Sequence[SlurmdPod]) -> list[str]:
    taken = {pod.node for pod in fellows}
    chosen = conversion.kube.node_sets.read_chosen(*label_of(conversion.settings))
    return [name for name in chosen if name not in taken]


def _take_label_off(conversion: NodeConversion) -> str:
    """So that no other pod of the NodeSet comes; it may just have come."""
    if is_label_on(conversion, read_own_node(conversion)):
        key, value = label_of(conversion.settings)
        conversion.kube.node_sets.remove_label(conversion.node, key, value)
    return "another pod of slurmd has come" if _pods_on(conversion) else ""


def grow(conversion: NodeConversion, key: str) -> None:
    """Does the next thing that brings slurmd back: a replica more where every pod has its Node, and
    a cost as it was. Raises KubeError, also where somebody has changed the NodeSet meanwhile."""
    node_set, fellows = _read(conversion, key)
    side = conversion.kube.node_sets
    staying = [pod for pod in fellows if not pod.is_terminating]
    mine = [pod for pod in staying if pod.node == conversion.node]
    if mine:
        if _is_scaled(conversion, node_set):  # what was set out for has not come about
            side.scale(node_set, node_set.replicas + 1)
        elif mine[0].cost == LOWEST_COST:
            side.set_cost(mine[0], None)
        return
    if len(fellows) == node_set.replicas and all(pod.node for pod in fellows):
        side.scale(node_set, node_set.replicas + 1)


def grow_in_turn(conversion: NodeConversion, key: str) -> None:
    """`grow`, as long as no other conversion waits for a pod of the NodeSet to go or to come. With
    nothing of it to be undone there is no turn to wait for."""
    staying = [pod for pod in _pods_on(conversion) if not pod.is_terminating]
    is_scaled = bool(conversion.journal.facts.get(SCALED))
    if staying and not is_scaled and all(pod.cost != LOWEST_COST for pod in staying):
        return
    with _turn(conversion, key):
        grow(conversion, key)
