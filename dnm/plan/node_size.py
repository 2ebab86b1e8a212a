"""What a lent node is counted as: its allocatable, bounded by what its type declares. Pure.

A kubelet says what its own node offers, and only that much of it is believed: with the rights of
one node anybody could else raise a queue's limit to what he likes, and make the next edit overflow.
What a type does not declare is not counted, but for `pods`, which every kubelet has.
"""

from __future__ import annotations

from dnm.model.config import Config
from dnm.model.node import Node
from dnm.model.quantity import format_amount
from dnm.model.value import Resources, Value

_TOLERANCE = 0.1  # so much above the declared amount is believed
_MOST_PODS = 1000  # of one node; kubelets have 110 by default, and are not tested beyond 500


class NodeSize(Value):
    """`counted`: what the queue grows by. `remark`: what of the node's word is not believed, as a
    sentence; empty: nothing."""

    counted: dict[str, int]
    remark: str = ""


def measure_node(config: Config, node_type: str, node: Node) -> NodeSize | None:
    """Returns what the node is counted as; None while a resource that its type declares is missing
    (a device plugin registers its resource after the node is Ready).

    An amount up to a tenth above the declared one is taken as it is; beyond that the
    declared one counts. A type that the configuration no longer has bounds nothing.
    """
    known = config.node_types.get(node_type)
    if known is None:
        return NodeSize(counted=_positive(node.allocatable))
    if any(node.allocatable.get(resource, 0) <= 0 for resource in known.size):
        return None
    counted: dict[str, int] = {}
    beyond: list[str] = []
    for resource, amount in _positive(node.allocatable).items():
        declared = _declared(known.size, resource)
        if amount <= declared * (1 + _TOLERANCE):
            counted[resource] = amount
        elif declared:
            counted[resource] = declared
            beyond.append(
                f"{format_amount(resource, amount)} {resource}, and "
                f"{format_amount(resource, declared)} are counted"
            )
    remark = ""
    if beyond:
        remark = (
            f"{node.name} offers more than [node_type:{node_type}] declares: {'; '.join(beyond)}: "
            "correct the declared size, or look at its kubelet"
        )
    return NodeSize(counted=counted, remark=remark)


def grown(config: Config, node_type: str, node: Node, counted: Resources) -> NodeSize:
    """Returns the recorded size with what the node offers now. Growth only, since a device plugin
    that restarts shows zero for a moment; what was recorded beyond the bound comes down to it."""
    now = measure_node(config, node_type, node)
    if now is None or not node.is_ready:
        return NodeSize(counted=dict(counted))
    larger = {name: max(new, counted.get(name, 0)) for name, new in now.counted.items()}
    known = config.node_types.get(node_type)
    for name, declared in known.size.items() if known else ():
        if larger[name] > declared * (1 + _TOLERANCE):
            larger[name] = declared
    return NodeSize(counted={**counted, **larger}, remark=now.remark)


def _declared(size: Resources, resource: str) -> int:
    return size.get(resource, _MOST_PODS if resource == "pods" else 0)


def _positive(amounts: Resources) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount > 0}
