"""YAML nodes with their positions, composed from a text in the way of go-yaml v3.

Scalars keep their raw text, without conversion to numbers or booleans. Only the first document is
read, as YuniKorn does. Without libyaml, PyYAML gives the same nodes but takes ten times as long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

SCALAR: Final = "scalar"
MAPPING: Final = "mapping"
SEQUENCE: Final = "sequence"
ALIAS: Final = "alias"

_KINDS = {
    ScalarEvent: SCALAR,
    MappingStartEvent: MAPPING,
    SequenceStartEvent: SEQUENCE,
    AliasEvent: ALIAS,
}
_LONG_TAG = re.compile("^tag:yaml[.]org,2002:")
_DIRECTIVE = re.compile("(?:\\A\ufeff?|[\n\r\x85\u2028\u2029])%")
_MAX_DEPTH = 200  # of nesting; a queue path of 60 levels needs 125


class YamlError(Exception):
    """A YAML error in `line`, counted from 1. The rule `dialect` means valid YAML that YuniKorn may
    accept, but dnm refuses."""

    def __init__(self, line: int, problem: str, rule: str = "yaml") -> None:
        super().__init__(problem)
        self.line = line
        self.rule = rule


class YamlNode(msgspec.Struct, eq=False):
    """A YAML node. `items` of a mapping are key, value, key, value …; an alias has a `target`.

    `start` and `end` are offsets into the composed text, and `shape_index` is the index of a scalar
    in `Composed.shape`. `is_aliased`: an alias refers to this node."""

    kind: str
    value: str
    line: int
    start: int
    end: int
    tag: str = ""
    style: str = ""
    shape_index: int = -1
    is_aliased: bool = False
    items: list[YamlNode] = []
    target: YamlNode | None = None


class Composed(msgspec.Struct, eq=False):
    """The first YAML document of a text; `root` is None if there is none. `shape` is its content in
    order, without comments and positions. Two texts with equal shapes mean the same."""

    root: YamlNode | None = None
    shape: list[object] = []
    has_more_documents: bool = False


def compose(text: str) -> Composed:
    """Returns the nodes of the first YAML document of a text, the only one that YuniKorn reads.
    Raises YamlError, with the line, for bad YAML and for unknown anchors."""
    directive = _DIRECTIVE.search(text)
    if directive:
        line = text.count("\n", 0, directive.end()) + 1
        raise YamlError(line, "a line begins with `%`: dnm reads no directives", "dialect")
    documents = _documents(text)
    composed = next(documents)
    try:
        composed.has_more_documents |= next(documents, None) is not None
    except YamlError:
        composed.has_more_documents = True
    return composed


def compose_all(text: str) -> list[Composed]:
    """Returns every YAML document of a text as nodes, as kubectl reads them. Raises YamlError."""
    return list(_documents(text))


def _documents(text: str) -> Iterator[Composed]:
    mark_length = len(text) - len(text.removeprefix("\ufeff"))
    within = text.find("\ufeff", 1)
    if within >= 0:  # libyaml passes over some, go-yaml takes it for a letter
        line = text.count("\n", 0, within) + 1
        raise YamlError(line, "a byte order mark is within the text", "dialect")
    parser: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text[mark_length:])
    try:
        yield _compose(parser, mark_length)
        while (composed := _compose(parser, mark_length)).root is not None:
            yield composed
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if "\t" in _indent(text, line):
            problem = "the line is indented with a tab: write spaces"
            raise YamlError(line, problem, "dialect") from error
        raise YamlError(line, error.problem or str(error)) from error
    except yaml.YAMLError as error:  # a character that YAML forbids
        raise YamlError(1, str(error).splitlines()[0]) from error
    except UnicodeEncodeError as error:
        raise YamlError(1, f"not Unicode text: {error.reason}") from error
    finally:
        parser.dispose()


def _indent(text: str, line: int) -> str:
    lines = text.split("\n", line)[line - 1 : line]
    return lines[0][: len(lines[0]) - len(lines[0].lstrip())] if lines else ""


def _compose(parser: Any, offset: int) -> Composed:
    composed = Composed()
    shape = composed.shape
    anchors: dict[str, YamlNode] = {}
    open_nodes: list[YamlNode] = []
    next_event = parser.get_event
    while True:
        try:
            event = next_event()
        except yaml.MarkedYAMLError:
            if composed.root is None or open_nodes:
                raise
            composed.has_more_documents = True  # dnm does not read the rest: it need not be YAML
            return composed
        kind = type(event)
        if kind is DocumentStartEvent or kind is StreamStartEvent:
            continue
        if event is None or kind is DocumentEndEvent or kind is StreamEndEvent:
            return composed
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            shape.append(kind)
            closed = open_nodes.pop()
            closed.end = event.end_mark.index + offset
            continue
        node = _node(event, _KINDS[kind], offset)
        if node.kind is ALIAS:
            target = anchors.get(node.value)
            if target is None:
                raise YamlError(node.line, f"unknown anchor '{node.value}' referenced")
            target.is_aliased = True
            node.target = target
            shape.append((ALIAS, node.value))
        else:
            if event.anchor is not None:
                anchors[event.anchor] = node
                shape.append(("anchor", event.anchor))
            if node.tag:
                shape.append(("tag", node.tag))
            node.shape_index = len(shape)
            shape.append(node.value if node.kind is SCALAR else kind)
        if open_nodes:
            open_nodes[-1].items.append(node)
        else:
            composed.root = node
        if node.kind is MAPPING or node.kind is SEQUENCE:
            open_nodes.append(node)
            if len(open_nodes) > _MAX_DEPTH:
                raise YamlError(node.line, f"nested deeper than {_MAX_DEPTH} levels")


def _node(event: Any, kind: str, offset: int) -> YamlNode:
    value = event.value if kind is SCALAR else event.anchor if kind is ALIAS else ""
    start, end = event.start_mark, event.end_mark.index + offset
    node = YamlNode(kind, value, start.line + 1, start.index + offset, end)
    if kind is SCALAR:
        node.style = event.style or ""
    if kind is not ALIAS and event.tag:
        node.tag = _LONG_TAG.sub("!!", event.tag)
    return node


def digits_of(text: str, node: YamlNode) -> tuple[int, int] | None:
    """Returns the span of a scalar's characters in the text, without quotes, tags and anchors, for
    an edit. Returns None if they differ from the scalar's value (escapes, folded lines)."""
    if node.style in ("'", '"'):
        end = node.end - 1
        start = end - len(node.value)
        if text[start - 1] != node.style:  # the last characters of an escape may read like it
            return None
    elif node.style in ("|", ">"):
        core = node.value.strip()
        start = text.find("\n", node.start, node.end) + 1
        start = text.find(core, start, node.end) if start and core else -1
        end = start + len(core)
        return (start, end) if start >= 0 else None
    else:
        start = text.rfind(node.value, node.start, node.end)
        end = start + len(node.value)
    if start < node.start or text[start:end] != node.value:
        return None
    return start, end
