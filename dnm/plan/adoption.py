"""Takes up the nodes that conversions brought, and those that carry our mark but are not recorded
(a registry that was lost). Pure."""

from __future__ import annotations

from dnm.model.cluster import Node
from dnm.model.registry import LentNode, Phase
from dnm.plan.draft import Draft
from dnm.plan.phases import advance_request


def take_up_requests(draft: Draft) -> None:
    """Each open request's new nodes join the record; what did not come in time is dropped."""
    left = []
    for request in draft.requests:
        step = advance_request(draft.config, request, frozenset(draft.entries), draft.facts)
        draft.entries |= step.joined
        if step.request is not None:
            left.append(step.request)
        if step.conversion_failed:
            error = (step.request and step.request.error) or step.note
            draft.fail_conversion(request.node_type, request.count, error)
        if step.note:
            draft.errors.append(step.note)
    draft.requests = left


def adopt_marked_nodes(draft: Draft) -> None:
    """A Node with our mark is ours, whatever the registry says."""
    for name, node in sorted((draft.facts.nodes or {}).items()):
        if name in draft.entries or node.mark is None:
            continue
        if node.mark.instance != draft.config.instance_id:
            continue
        if node.mark.namespace not in draft.config.namespaces:
            draft.errors.append(
                f"{name} carries our mark for namespace {node.mark.namespace!r}, which is not "
                "monitored: add it to monitored_namespaces, or take the dynamic-node-manager/ "
                "annotations off the Node"
            )
            continue
        draft.entries[name] = _from_mark(draft, node)
        draft.notes.append(f"node={name} carries our mark and is recorded again")


def _from_mark(draft: Draft, node: Node) -> LentNode:
    assert node.mark is not None
    policy = draft.config.namespaces[node.mark.namespace]
    return LentNode(
        node_type=node.mark.node_type,
        namespace=node.mark.namespace,
        queue=node.mark.queue or policy.queue,
        owner=node.mark.instance,
        phase=Phase.JOINING,
        since=draft.now,
    )
