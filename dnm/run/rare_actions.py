"""The actions of few runs: readiness checks of joining nodes with dnm's own pods, moves to another
queue, evictions, and reservations of nodes. Only an optional rule or a command requests them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from dnm.converter.contract import reserve_command, unreserve_command
from dnm.kube.client import KubeClient
from dnm.kube.nodes import mark_annotations
from dnm.kube.opening import drop_pod, start_pod
from dnm.model.close_look import CLOSED
from dnm.model.errors import KubeError
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.opening import OPENING_TAINT, Opening
from dnm.model.plan import (
    Action,
    DropPods,
    EvictPods,
    HoldClosed,
    RelabelNode,
    ReserveNodes,
    StartPod,
    UnreserveNodes,
)
from dnm.model.value import Value
from dnm.run.step import Step, read_pods_to_evict

log = logging.getLogger("dnm")

_MOST_FAILURES = 3  # consecutive


def apply_rare(step: Step, action: Action) -> None:
    """Carries out an action that few plans contain. Raises DnmError."""
    match action:
        case HoldClosed(node=name, is_closed=is_closed):
            _hold(step, name, is_closed)
        case StartPod():
            _start(step, action)
        case DropPods(node=name):
            _drop(step, name)
        case EvictPods(node=name):
            _evict(step, name)
        case RelabelNode():
            _relabel(step, action)
        case ReserveNodes(reservation=reservation):
            if names := step.converter.reserve(reserve_command(step.config, reservation)):
                nodes = ",".join(names)
                step.note_done(f"action=reserve reservation={reservation.name} nodes={nodes}")
        case UnreserveNodes(name=name, reason=reason, leave_out=leave_out):
            if names := step.converter.reserve(unreserve_command(step.config, name, leave_out)):
                nodes = ",".join(names)
                step.note_done(f"action=unreserve reservation={name} nodes={nodes} {reason=}")


# --- nodes that join ---------------------------------------------------------------------------


def _hold(step: Step, name: str, is_closed: bool) -> None:
    """Sets or removes the taint that keeps pods off a joining Node. Does nothing if another
    instance has marked the Node."""
    entry = step.registry.nodes[name]

    def taints(node: Node) -> list[Taint]:
        other_taints = [taint for taint in node.taints if taint.key != OPENING_TAINT]
        return [*other_taints, CLOSED] if is_closed else other_taints

    is_changed = step.patch(
        name,
        lambda node: node.is_free_for(entry.owner),
        annotations=mark_annotations(entry.mark),
        taints=taints,
    )
    if is_changed:
        step.note_done(f"action={'close' if is_closed else 'open'} node={name}", name)


def _start(step: Step, action: StartPod) -> None:
    node = step.kube.read_node(action.node)
    if node is None:
        raise KubeError(f"Node {action.node} is gone from Kubernetes")
    refusal = start_pod(step.kube.requests, node, action.pod)
    pod = f"{action.pod.namespace}/{action.pod.name}"
    if not refusal:
        step.note_done(f"action=start-pod node={action.node} pod={pod}", action.node)
        return
    log.warning("action=start-pod node=%s refused=%r", action.node, refusal)
    entry = step.registry.nodes[action.node]
    refused = entry.opening.refused if entry.opening else {}
    _change(step, action.node, refused={**refused, pod: refusal})


def _drop(step: Step, name: str) -> None:
    entry = step.registry.nodes[name]
    for pod in entry.opening.pods if entry.opening else ():
        drop_pod(step.kube.requests, *pod.split("/"))
    _change(step, name, pods=())
    step.note_done(f"action=drop-pods node={name}", name)


def _change(step: Step, name: str, **changes: object) -> None:
    entry, replace = step.registry.nodes[name], msgspec.structs.replace
    opening = replace(entry.opening or Opening(), **changes)
    step.save_node(name, replace(entry, opening=opening))


# --- nodes that serve --------------------------------------------------------------------------


def _evict(step: Step, name: str) -> None:
    """Evicts the pods of a node that dnm has fenced, so that they start again on other nodes."""
    entry, node = step.registry.nodes[name], step.kube.read_node(name)
    departure = entry.departure
    if node is None or not node.is_fenced or departure is None or departure.eviction is None:
        log.info("action=evict node=%s skipped='it is not fenced'", name)
        return
    result = evict_pods(step.kube, node, step.may_go_on)
    replace, evicted = msgspec.structs.replace, departure.eviction.evicted + result.evicted
    eviction = replace(departure.eviction, evicted=evicted, reason=result.reason)
    step.save_node(name, replace(entry, departure=replace(departure, eviction=eviction)))
    if result.evicted:
        step.note_done(f"action=evict node={name} pods={result.evicted} queue={entry.queue}", name)
    elif result.reason and not result.errors:
        log.info("action=evict node=%s pods=0 reason=%r", name, result.reason)
    if result.errors:
        raise KubeError("; ".join(dict.fromkeys(result.errors)))


class EvictionResult(Value):
    """The result of `evict_pods`: the number of evicted pods, the reason why the first of the other
    pods stays on the node, and the errors of failed requests."""

    evicted: int = 0
    reason: str = ""
    errors: tuple[str, ...] = ()


def evict_pods(kube: KubeClient, node: Node, may_go_on: Callable[[], bool]) -> EvictionResult:
    """Requests, once in a run, the eviction of every pod that keeps the node from being returned. A
    refusal by a PodDisruptionBudget is no failure: the next run tries again. If a request fails,
    dnm evicts the other pods, but stops after several consecutive failures. Raises KubeError if the
    pods cannot be read."""
    evicted, in_a_row = 0, 0
    refused: list[str] = []
    errors: list[str] = []
    for pod in read_pods_to_evict(kube, node):
        if pod.is_terminating or not pod.is_work:
            continue
        if not may_go_on() or in_a_row == _MOST_FAILURES:
            break
        if pod.stays:
            refused.append(f"{pod.key} is of a NodeSet and is never evicted")
            continue
        try:
            refusal = kube.evict(pod)
        except KubeError as error:
            errors.append(str(error))
            in_a_row += 1
            continue
        in_a_row = 0
        evicted += not refusal
        refused += [f"{pod.key} is not evicted: {refusal}"] if refusal else []
    reason = _first_of([*errors, *refused])
    return EvictionResult(evicted=evicted, reason=reason, errors=tuple(errors))


def _first_of(answers: Sequence[str]) -> str:
    more = f"; and {len(answers) - 1} more" if len(answers) > 1 else ""
    return f"{answers[0]}{more}" if answers else ""


def _relabel(step: Step, action: RelabelNode) -> None:
    """Moves a lent node to another namespace, if the node is still fenced and empty. These
    conditions do not apply to a move back to the previous namespace."""
    name, instance = action.node, step.config.instance_id
    obstacle = "" if action.is_back else _move_obstacle(step, name)
    if not obstacle:
        is_free = step.patch(
            name,
            lambda node: (node.is_fenced or action.is_back) and node.is_free_for(instance),
            annotations=mark_annotations(action.mark),
            labels=action.labels,
            taints=lambda node: _taints(node, action) if action.on or action.off else None,
        )
        obstacle = None if is_free else "it is not fenced any more"
    if obstacle:
        log.info("action=move node=%s skipped=%r", name, obstacle)
        return
    step.note_done(f"action=move node={name} to={action.mark.namespace}", name)


def _move_obstacle(step: Step, name: str) -> str | None:
    """Returns why the node must not move to another namespace now, or None. Reads its pods last."""
    if obstacle := step.batch_obstacle(name):
        return obstacle
    node = step.kube.read_node(name)
    return step.find_work(node) if node is not None else None


def _taints(node: Node, relabelled: RelabelNode) -> Sequence[Taint]:
    """Returns the Node's taints after its move, with one taint for each key and effect."""
    changed = {(taint.key, taint.effect) for taint in (*relabelled.off, *relabelled.on)}
    kept = [taint for taint in node.taints if (taint.key, taint.effect) not in changed]
    return [*kept, *relabelled.on]
