"""Nodes that join are kept closed, made ready by pods of dnm's own, and opened."""

from __future__ import annotations

import logging

import msgspec

from dnm.kube.nodes import mark_annotations
from dnm.kube.opening import drop_pod, start_pod
from dnm.model.close_look import CLOSED
from dnm.model.errors import KubeError
from dnm.model.node import Node
from dnm.model.node_type import Taint
from dnm.model.opening import OPENING_TAINT, Opening
from dnm.model.plan import DropPods, HoldClosed, StartPod
from dnm.run.step import Step

log = logging.getLogger("dnm")


def apply_opening(step: Step, action: HoldClosed | StartPod | DropPods) -> None:
    """Carries out one action. Raises DnmError."""
    match action:
        case HoldClosed(node=name, is_closed=is_closed):
            _hold(step, name, is_closed)
        case StartPod():
            _start(step, action)
        case DropPods(node=name):
            _drop(step, name)


def _hold(step: Step, name: str, is_closed: bool) -> None:
    """Only on a Node that is nobody else's, together with our mark."""
    entry = step.registry.nodes[name]

    def taints(node: Node) -> list[Taint]:
        others = [one for one in node.taints if one.key != OPENING_TAINT]
        return [*others, CLOSED] if is_closed else others

    is_ours = step.patch(
        name,
        lambda node: node.mark is None or node.mark.instance in ("", entry.owner),
        annotations=mark_annotations(entry.mark),
        taints=taints,
    )
    if is_ours:
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
    opening = step.registry.nodes[name].opening or Opening()
    step.save_node(name, opening=msgspec.structs.replace(opening, **changes))
