"""What dnm reads of YuniKorn's configuration, of the structs of pkg/common/configs/config.go of
yunikorn-core: the queues, their limits, and what an edit of these or an advice depends on."""

from __future__ import annotations

from typing import Any

from dnm.queues.decode import (
    UNSET,
    Abort,
    Decoder,
    Reader,
    RuleViolation,
    Struct,
    list_of,
    map_of,
    read_bool,
    read_text,
    struct_of,
)
from dnm.queues.yaml_nodes import YamlNode


class Quantity:
    """The value of a limit, unparsed. `is_shared`: an alias uses this text elsewhere."""

    __slots__ = ("is_shared", "node", "text")

    def __init__(self, text: str, node: YamlNode, is_shared: bool) -> None:
        self.text = text
        self.node = node
        self.is_shared = is_shared


Quantities = dict[str, Quantity]


class QueueResources(Struct):
    guaranteed: Quantities | None = None
    max: Quantities | None = None


class Limit(Struct):
    """Of users or groups in one queue."""

    limit = ""
    maxresources: Quantities | None = None


class Queue(Struct):
    name = ""
    parent = False
    resources = QueueResources()
    maxapplications = ""
    properties: dict[str, str] | None = None
    queues: list[Queue] | None = None
    limits: list[Limit] | None = None


class Preemption(Struct):
    quotapreemptionenabled: bool | None = None


class NodeSortPolicy(Struct):
    type = ""


class Partition(Struct):
    name = ""
    queues: list[Queue] | None = None
    limits: list[Limit] | None = None
    preemption = Preemption()
    nodesortpolicy = NodeSortPolicy()


class SchedulerConfig(Struct):
    partitions: list[Partition] | None = None


def decode(root: YamlNode | None) -> tuple[SchedulerConfig, tuple[RuleViolation, ...]]:
    """Returns the configuration, and why it can't be read (empty: it can)."""
    decoder = Decoder()
    scheduler: Any = UNSET
    if root is not None:
        try:
            scheduler = decoder.read(root, _read_scheduler)
        except Abort as abort:
            decoder.problems.append(abort.violation)
    known = scheduler if isinstance(scheduler, SchedulerConfig) else SchedulerConfig()
    return known, tuple(decoder.problems)


def _read_quantity(decoder: Decoder, node: YamlNode) -> Any:
    text = read_text(decoder, node)
    return text if text is UNSET else Quantity(text, node, decoder.is_shared)


_read_quantities = map_of(
    _read_quantity, lambda decoder, node: Quantity("", node, decoder.is_shared)
)
_read_limits = list_of(
    struct_of(Limit, {"limit": read_text, "maxresources": _read_quantities}, "a limit")
)
_queue_fields: dict[str, Reader] = {
    "name": read_text,
    "parent": read_bool,
    "resources": struct_of(
        QueueResources, {"guaranteed": _read_quantities, "max": _read_quantities}, "resources"
    ),
    "maxapplications": read_text,
    "properties": map_of(read_text, lambda decoder, node: ""),
    "limits": _read_limits,
}
_read_queues = list_of(struct_of(Queue, _queue_fields, "a queue"))
_queue_fields["queues"] = _read_queues  # queues contain queues
_read_partition = struct_of(
    Partition,
    {
        "name": read_text,
        "queues": _read_queues,
        "limits": _read_limits,
        "preemption": struct_of(
            Preemption, {"quotapreemptionenabled": read_bool}, "the preemption settings"
        ),
        "nodesortpolicy": struct_of(NodeSortPolicy, {"type": read_text}, "the node sorting policy"),
    },
    "a partition",
)
_read_scheduler = struct_of(
    SchedulerConfig, {"partitions": list_of(_read_partition)}, "the configuration"
)
