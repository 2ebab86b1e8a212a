"""YuniKorn's configuration as values: the structs of pkg/common/configs/config.go of yunikorn-core.

The keys are those of 1.8 and later; older schedulers don't know `usergroupresolver` and
`quotapreemptionenabled`.
"""

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
    read_count,
    read_float,
    read_text,
    struct_of,
)
from dnm.queues.yaml_nodes import YamlNode


class Quantity:
    """The value of a limit, unparsed. `is_shared`: an alias or merge uses this text elsewhere."""

    __slots__ = ("is_shared", "node", "text")

    def __init__(self, text: str, node: YamlNode, is_shared: bool) -> None:
        self.text = text
        self.node = node
        self.is_shared = is_shared


Quantities = dict[str, Quantity]


class QueueResources(Struct):
    guaranteed: Quantities | None = None
    max: Quantities | None = None


class ChildTemplate(Struct):
    maxapplications = 0
    properties: dict[str, str] | None = None
    resources = QueueResources()


class Limit(Struct):
    """Of users or groups in one queue."""

    limit = ""
    users: list[str] | None = None
    groups: list[str] | None = None
    maxresources: Quantities | None = None
    maxapplications = 0


class Queue(Struct):
    name = ""
    parent = False
    resources = QueueResources()
    maxapplications = 0
    properties: dict[str, str] | None = None
    adminacl = ""
    submitacl = ""
    childtemplate = ChildTemplate()
    queues: list[Queue] | None = None
    limits: list[Limit] | None = None


class Filter(Struct):
    type = ""
    users: list[str] | None = None
    groups: list[str] | None = None


class PlacementRule(Struct):
    name = ""
    create = False
    filter = Filter()
    parent: PlacementRule | None = None
    value = ""


class Preemption(Struct):
    enabled: bool | None = None
    quotapreemptionenabled: bool | None = None


class NodeSortPolicy(Struct):
    type = ""
    resourceweights: dict[str, float] | None = None


class UserGroupResolver(Struct):
    type = ""


class Partition(Struct):
    name = ""
    queues: list[Queue] | None = None
    placementrules: list[PlacementRule] | None = None
    limits: list[Limit] | None = None
    preemption = Preemption()
    nodesortpolicy = NodeSortPolicy()
    usergroupresolver = UserGroupResolver()


class SchedulerConfig(Struct):
    partitions: list[Partition] | None = None
    checksum = ""


def decode(root: YamlNode | None) -> tuple[SchedulerConfig, tuple[RuleViolation, ...]]:
    """Returns the configuration, and why YuniKorn would not read it (empty: it would)."""
    decoder = Decoder()
    scheduler: Any = UNSET
    if root is not None:
        try:
            scheduler = decoder.read(root, _read_scheduler)
        except Abort as abort:
            decoder.problems.append(abort.violation)
    known = scheduler if isinstance(scheduler, SchedulerConfig) else SchedulerConfig()
    return known, tuple(decoder.problems)


def _read_quantity(decoder: Decoder, node: YamlNode, target: Any) -> Any:
    text = read_text(decoder, node)
    return text if text is UNSET else Quantity(text, node, decoder.is_shared)


_read_texts = list_of(read_text)
_read_text_map = map_of(read_text, lambda decoder, node: "")
_read_quantities = map_of(
    _read_quantity, lambda decoder, node: Quantity("", node, decoder.is_shared)
)
_read_resources = struct_of(
    QueueResources, {"guaranteed": _read_quantities, "max": _read_quantities}, "resources"
)
_read_limit = struct_of(
    Limit,
    {
        "limit": read_text,
        "users": _read_texts,
        "groups": _read_texts,
        "maxresources": _read_quantities,
        "maxapplications": read_count,
    },
    "a limit",
)
_queue_fields: dict[str, Reader] = {
    "name": read_text,
    "parent": read_bool,
    "resources": _read_resources,
    "maxapplications": read_count,
    "properties": _read_text_map,
    "adminacl": read_text,
    "submitacl": read_text,
    "childtemplate": struct_of(
        ChildTemplate,
        {
            "maxapplications": read_count,
            "properties": _read_text_map,
            "resources": _read_resources,
        },
        "a childtemplate",
    ),
    "limits": list_of(_read_limit),
}
_read_queue = struct_of(Queue, _queue_fields, "a queue")
_queue_fields["queues"] = list_of(_read_queue)  # queues contain queues
_rule_fields: dict[str, Reader] = {
    "name": read_text,
    "create": read_bool,
    "filter": struct_of(
        Filter, {"type": read_text, "users": _read_texts, "groups": _read_texts}, "a filter"
    ),
    "value": read_text,
}
_read_placement_rule = struct_of(PlacementRule, _rule_fields, "a placement rule")
_rule_fields["parent"] = _read_placement_rule
_read_partition = struct_of(
    Partition,
    {
        "name": read_text,
        "queues": list_of(_read_queue),
        "placementrules": list_of(_read_placement_rule),
        "limits": list_of(_read_limit),
        "preemption": struct_of(
            Preemption,
            {"enabled": read_bool, "quotapreemptionenabled": read_bool},
            "the preemption settings",
        ),
        "nodesortpolicy": struct_of(
            NodeSortPolicy,
            {
                "type": read_text,
                "resourceweights": map_of(read_float, lambda decoder, node: 0.0),
            },
            "the node sorting policy",
        ),
        "usergroupresolver": struct_of(
            UserGroupResolver, {"type": read_text}, "the user group resolver"
        ),
    },
    "a partition",
)
_read_scheduler = struct_of(
    SchedulerConfig,
    {"partitions": list_of(_read_partition), "checksum": read_text},
    "the configuration",
)
