"""Decoder of YAML nodes into the values that dnm reads, in the way of go-yaml v3: queues, limits,
and what an edit or an advice depends on. Only YuniKorn checks everything else.

`null` leaves a field unset, text fields accept any scalar as written, and null items of lists are
dropped. A reader is a function from a node to a value or UNSET. dnm refuses some YAML that YuniKorn
accepts, because it hides numbers or is ambiguous (rule `dialect`): tags except `!!str`, `<<`,
directives, and thousands of aliases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dnm.model.value import Value
from dnm.queues.yunikorn.yaml_nodes import ALIAS, MAPPING, SCALAR, SEQUENCE, YamlError, YamlNode


class RuleViolation(Value, kw_only=True):
    """A reason why dnm can't edit a document, or a piece of advice about it."""

    rule: str
    queue: str = ""  # path, lower case; empty: not of one queue
    line: int
    message: str


def violation_of(error: YamlError) -> RuleViolation:
    """Converts an error of the YAML parser into a violation, so that reports can include it."""
    return RuleViolation(rule=error.rule, line=error.line, message=str(error))


class Struct:
    """A base class of decoded YAML mappings. Keys that are not set keep the class's defaults."""

    line = 0


_NOT_EDITED = "YuniKorn may accept it, but dnm does not edit such a document;"
_MOST_ALIASED = 100_000  # nodes that are read again for an alias
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_YES = frozenset(("true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"))
_NO = frozenset(("false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"))
Reader = Callable[["Decoder", YamlNode], Any]
UNSET: Final = object()


class Decoder:
    """A decoder of one YAML document. `problems`: errors for which YuniKorn refuses it too."""

    def __init__(self) -> None:
        self.problems: list[RuleViolation] = []
        self._alias_reads = 0
        self._shared_depth = 0
        self._open_aliases: set[int] = set()

    @property
    def is_shared(self) -> bool:
        """Returns whether an alias repeats this part of the document, so that it occurs twice."""
        return self._shared_depth > 0

    def problem(self, node: YamlNode, message: str) -> None:
        self.problems.append(RuleViolation(rule="yaml", line=node.line, message=message))

    def mismatch(self, node: YamlNode, wanted: str) -> object:
        if is_null(node):
            return UNSET
        shown = f"`{node.value[:40]}`" if node.kind is SCALAR else f"a {node.kind}"
        self.problem(node, f"{shown} instead of {wanted}")
        return UNSET

    def read(self, node: YamlNode, reader: Reader) -> Any:
        """Returns the value that `reader` makes of the node or, for an alias, of its target."""
        if node.tag not in ("", "!!str"):
            raise YamlError(
                node.line, f"`{node.tag[:40]}`: {_NOT_EDITED} remove the tag", "dialect"
            )
        if node.kind is ALIAS:
            return self._follow(node, reader)
        self._alias_reads += bool(self._open_aliases)
        if self._alias_reads > _MOST_ALIASED:
            raise YamlError(
                node.line, f"aliases of aliases: {_NOT_EDITED} write them out", "dialect"
            )
        self._shared_depth += node.is_aliased
        try:
            return reader(self, node)
        finally:
            self._shared_depth -= node.is_aliased

    def _follow(self, node: YamlNode, reader: Reader) -> Any:
        assert node.target is not None
        if id(node) in self._open_aliases:
            raise YamlError(node.line, f"anchor '{node.value}' contains itself")
        self._open_aliases.add(id(node))
        try:
            return self.read(node.target, reader)
        finally:
            self._open_aliases.discard(id(node))


def is_null(node: YamlNode) -> bool:
    node = node.target or node
    return node.kind is SCALAR and not node.style and not node.tag and node.value in _NULLS


def read_text(decoder: Decoder, node: YamlNode) -> Any:
    """Returns the text of a YAML scalar as written; reports any other node as a mismatch."""
    is_text = node.kind is SCALAR and not is_null(node)
    return node.value if is_text else decoder.mismatch(node, "a text")


def read_bool(decoder: Decoder, node: YamlNode) -> Any:
    """Returns the boolean for true and false, and for YAML 1.1's yes, no, on, off, y, n."""
    if node.kind is SCALAR and node.value in _YES | _NO:
        return node.value in _YES
    return decoder.mismatch(node, "true or false")


def list_of(reader: Reader) -> Reader:
    def read(decoder: Decoder, node: YamlNode) -> Any:
        if node.kind is not SEQUENCE:
            return decoder.mismatch(node, "a list")
        made = []
        for item in node.items:  # a comprehension would deepen the stack with every queue level
            value = decoder.read(item, reader)
            if value is not UNSET:
                made.append(value)
        return made

    return read


def map_of(reader: Reader) -> Reader:
    """Returns a decoder of mappings with any keys. It omits keys if their value is UNSET."""

    def read(decoder: Decoder, node: YamlNode) -> Any:
        if node.kind is not MAPPING:
            return decoder.mismatch(node, "a mapping")
        pairs = ((key, decoder.read(value, reader)) for key, value in _pairs(decoder, node))
        return {key: value for key, value in pairs if value is not UNSET}

    return read


def struct_of(cls: type[Struct], fields: Mapping[str, Reader], kind: str) -> Reader:
    """Returns a function that decodes a mapping with these keys into a `cls` and ignores all other
    keys. `kind` names the mapping in error messages."""

    def read(decoder: Decoder, node: YamlNode) -> Any:
        if node.kind is not MAPPING:
            return decoder.mismatch(node, kind)
        made = cls()
        made.line = node.line
        for key, value_node in _pairs(decoder, node):
            reader = fields.get(key)
            value = UNSET if reader is None else decoder.read(value_node, reader)
            if value is not UNSET:
                setattr(made, key, value)
        return made

    return read


def _pairs(decoder: Decoder, node: YamlNode) -> Iterator[tuple[str, YamlNode]]:
    """Yields key and value node of each pair of a mapping. Reports repeated keys as problems."""
    first: dict[str, YamlNode] = {}
    for key_node, value_node in zip(node.items[::2], node.items[1::2], strict=True):
        if key_node.value == "<<" and key_node.kind is SCALAR and not key_node.style:
            raise YamlError(
                key_node.line, f"`<<`: {_NOT_EDITED} write out the merged keys", "dialect"
            )
        key = decoder.read(key_node, read_text)
        if key is UNSET:
            continue
        if first.setdefault(key, key_node) is not key_node:
            decoder.problem(key_node, f"`{key}` is already in line {first[key].line}")
        yield key, value_node


# --- the structs of pkg/common/configs/config.go of yunikorn-core that dnm reads ------------------


class Quantity(msgspec.Struct, eq=False):
    """The number of a limit as text. `is_shared`: an alias uses the same text for another limit."""

    text: str
    node: YamlNode
    is_shared: bool


Quantities = dict[str, Quantity]


class QueueResources(Struct):
    guaranteed: Quantities | None = None
    max: Quantities | None = None

    @property
    def kinds(self) -> tuple[tuple[str, Quantities], ...]:
        """Returns the pairs (`max`, its quantities) and (`guaranteed`, its quantities)."""
        return ("max", self.max or {}), ("guaranteed", self.guaranteed or {})


class Limit(Struct):
    """A limit of users or groups in one queue."""

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
    """Returns YuniKorn's configuration, and the errors for which YuniKorn could not read it."""
    decoder = Decoder()
    scheduler: Any = UNSET
    if root is not None:
        try:
            scheduler = decoder.read(root, _read_scheduler)
        except YamlError as error:
            decoder.problems.append(violation_of(error))
    config = scheduler if isinstance(scheduler, SchedulerConfig) else SchedulerConfig()
    return config, tuple(decoder.problems)


def _read_quantity(decoder: Decoder, node: YamlNode) -> Quantity:
    text = read_text(decoder, node)
    return Quantity("" if text is UNSET else text, node, decoder.is_shared)


def _read_property(decoder: Decoder, node: YamlNode) -> str:
    """Returns a property. Null is an empty text, as in Go, so that it overrides the other name."""
    text = read_text(decoder, node)
    return "" if text is UNSET else text


_read_quantities = map_of(_read_quantity)
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
    "properties": map_of(_read_property),
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
