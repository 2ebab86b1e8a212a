"""Nodes as the API prints them, reduced to `model.Node`.

A node that cannot be read stays in the list without its facts, since a kubelet may write anything
into its own status. The other nodes are read. dnm refuses a list only if a node has no name."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

import msgspec

from dnm.kube.errors import clean
from dnm.kube.objects import READY, Condition, ListPage, decode_raw_page
from dnm.model.node import Mark, Node
from dnm.model.node_type import Taint
from dnm.model.quantity import QuantityError, kube_resources

MARK_PREFIX = "dynamic-node-manager/"
FENCED = f"{MARK_PREFIX}fenced"
MOST_NAMES = 64  # of resources or conditions of a Node
MOST_TAINTS = 64
MOST_LABELS = 1_000
_LONGEST_MARK = 256  # characters of an annotation


class _Annotations(
    msgspec.Struct,
    frozen=True,
    rename={
        "instance": f"{MARK_PREFIX}instance",
        "node_type": f"{MARK_PREFIX}node-type",
        "namespace": f"{MARK_PREFIX}namespace",
        "queue": f"{MARK_PREFIX}queue",
        "fenced": FENCED,
    },
):
    instance: str | None = None
    node_type: str | None = None
    namespace: str | None = None
    queue: str | None = None
    fenced: str | None = None


class _NodeMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    labels: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_LABELS)] | None = None
    annotations: _Annotations | None = None


class _Taint(msgspec.Struct, frozen=True):
    key: str
    effect: str
    value: str | None = None


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] | None = None
    capacity: msgspec.Raw = msgspec.Raw()
    conditions: list[Condition] | None = None


class _Node(msgspec.Struct, frozen=True):
    metadata: _NodeMetadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Least(msgspec.Struct, frozen=True):
    name: str
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class _Named(msgspec.Struct, frozen=True):
    metadata: _Least


class _WholeNode(_Node, frozen=True, kw_only=True):
    kind: Literal["Node"]


_decode_capacity = msgspec.json.Decoder(dict[str, str] | None).decode
_NO_MARK = _Annotations()
_NO_STATUS = _NodeStatus()
_decode_item = msgspec.json.Decoder(_Node).decode
_decode_name = msgspec.json.Decoder(_Named).decode
_decode_marks = msgspec.json.Decoder(_Annotations | None).decode
_decode_page = msgspec.json.Decoder(ListPage[_Node]).decode
_decode_node = msgspec.json.Decoder(_WholeNode).decode


def mark_annotations(mark: Mark) -> dict[str, str | None]:
    """Returns the annotations that mark a Node as lent by dnm. A cordon has its own annotation."""
    return {
        f"{MARK_PREFIX}instance": mark.instance,
        f"{MARK_PREFIX}node-type": mark.node_type,
        f"{MARK_PREFIX}namespace": mark.namespace,
        f"{MARK_PREFIX}queue": mark.queue,
    }


def read_node_page(page: memoryview | bytes, has_capacity: bool = False) -> list[Node]:
    """Returns the nodes of a page in their order. Raises msgspec.MsgspecError if an object has no
    name. With `has_capacity`, also reads the capacity, not only the allocatable amounts."""
    try:
        nodes = _decode_page(page).items
    except msgspec.ValidationError:
        items = decode_raw_page(page).items
        return [_read_alone(item, has_capacity) for item in items]
    return [_reduce(node, has_capacity) for node in nodes]


def _capacity(status: _NodeStatus) -> dict[str, int]:
    """Returns a node's capacity, or {} if it is unreadable: then dnm compares nothing with it."""
    try:
        return kube_resources(_decode_capacity(status.capacity) or {})
    except (msgspec.MsgspecError, QuantityError):
        return {}


def _read_alone(item: msgspec.Raw, has_capacity: bool) -> Node:
    """Returns one node of a page in which a node is unreadable. It reads dnm's mark separately,
    since a marked node counts under the caps even if it is unreadable."""
    try:
        return _reduce(_decode_item(item), has_capacity)
    except msgspec.ValidationError as error:
        least, mark = _decode_name(item).metadata, None
        with suppress(msgspec.ValidationError):
            mark = _mark(_decode_marks(least.annotations))
        why = f"node {clean(least.name)} can't be read: {clean(str(error))}"
        return Node(name=least.name, allocatable={}, is_ready=False, mark=mark, unreadable=why)


def read_node_body(body: memoryview | bytes, name: str) -> Node:
    """Returns the Node with this name. Raises msgspec.MsgspecError, QuantityError with the node's
    name, or ValueError if the answer is another Node."""
    node = _reduce(_decode_node(body))
    if node.name != name:
        raise ValueError(f"it is Node {node.name[:80]!r}")
    if node.unreadable:
        raise QuantityError(node.unreadable)
    return node


def _reduce(node: _Node, has_capacity: bool = False) -> Node:
    """Returns the node as `model.Node`, without its status if its amounts are unreadable."""
    metadata, spec, status = node.metadata, node.spec, node.status
    taints, allocatable, why = spec.taints or [], status.allocatable or {}, ""
    amounts: dict[str, int] = {}
    try:
        amounts = kube_resources(allocatable)
    except QuantityError as error:
        why = f"allocatable of node {metadata.name}: {error}"
    for items, count, most in (
        ("resources", len(allocatable), MOST_NAMES),
        ("taints", len(taints), MOST_TAINTS),
    ):
        if count > most:
            why = f"node {metadata.name} has {count} {items}, of which {most} are counted"
    if why:
        amounts, status = {}, _NO_STATUS
    return Node(
        name=metadata.name,
        allocatable=amounts,
        uid=metadata.uid or "",
        labels=metadata.labels or {},
        taints=tuple(
            Taint(key=taint.key, effect=taint.effect, value=taint.value or "")
            for taint in taints[:MOST_TAINTS]
        ),
        resource_version=metadata.resource_version or "",
        is_ready=READY in (status.conditions or ()),
        is_cordoned=bool(spec.unschedulable),
        is_deleting=metadata.deletion_timestamp is not None,
        mark=(mark := _mark(metadata.annotations)),
        conditions={
            condition.type: condition.status
            for condition in (status.conditions or ())[:MOST_NAMES]
            if mark
        },
        capacity=_capacity(status) if has_capacity else {},
        unreadable=clean(why),
    )


def _mark(annotations: _Annotations | None) -> Mark | None:
    """Returns the mark of a lent node. An incomplete one counts too, so that no cap is exceeded."""
    if annotations is None or annotations == _NO_MARK:
        return None
    return Mark(
        instance=(annotations.instance or "")[:_LONGEST_MARK],
        node_type=(annotations.node_type or "")[:_LONGEST_MARK],
        namespace=(annotations.namespace or "")[:_LONGEST_MARK],
        queue=(annotations.queue or "")[:_LONGEST_MARK],
        fenced=annotations.fenced == "true",
    )
