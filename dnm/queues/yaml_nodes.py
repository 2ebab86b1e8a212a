"""YAML text -> nodes that know their place in it, the way go-yaml v3 composes them.

Scalars keep their raw text; nothing is resolved here. Only the first document is read, as YuniKorn
does. libyaml is used where PyYAML has it, PyYAML's own parser otherwise: same result, ten times the
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

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

_LONG_TAG = "tag:yaml.org,2002:"
_DIRECTIVE = re.compile("(?:\\A\ufeff?|[\n\r\x85\u2028\u2029])%")
_MAX_DEPTH = 200  # of nesting; a queue path of 60 levels needs 125


class YamlError(Exception):
    """Not YAML; `line` counts from 1. `rule` `dialect`: YuniKorn may take it, dnm does not."""

    def __init__(self, line: int, problem: str, rule: str = "yaml") -> None:
        super().__init__(problem)
        self.line = line
        self.rule = rule


class YamlNode:
    """One node. `items` of a mapping are key, value, key, value …; an alias points at `target`.

    `start` and `end` are offsets into the text that was composed, `shape_index` is where a scalar
    stands in `Composed.shape`. `is_aliased`: some alias refers to this very node.
    """

    __slots__ = (
        "end", "is_aliased", "items", "kind", "line", "shape_index", "start", "style", "tag",
        "target", "value",
    )  # fmt: skip

    def __init__(self, kind: str, value: str, line: int, start: int) -> None:
        self.kind = kind
        self.value = value
        self.line = line
        self.start = start
        self.end = start
        self.tag = ""
        self.style = ""
        self.shape_index = -1
        self.is_aliased = False
        self.items = _NO_ITEMS if kind is SCALAR or kind is ALIAS else []
        self.target: YamlNode | None = None


_NO_ITEMS: list[YamlNode] = []  # never added to


class Composed:
    """The first document; `root` None: there is none. `shape` is everything that was read, in
    order, without comments and places: two texts of equal shape mean the same."""

    def __init__(self) -> None:
        self.root: YamlNode | None = None
        self.shape: list[object] = []
        self.has_more_documents = False


def compose(text: str) -> Composed:
    """The first document, as YuniKorn reads it. Raises YamlError, with the line, for what is no
    YAML, and for unknown anchors."""
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
    """Every document of a text, as kubectl reads manifests. Raises YamlError."""
    return list(_documents(text))


def _documents(text: str) -> Iterator[Composed]:
    mark_length = len(text) - len(text.removeprefix("\ufeff"))
    within = text.find("\ufeff", 1)
    if within >= 0:  # libyaml passes over some, go-yaml takes it for a letter
        line = text.count("\n", 0, within) + 1
        raise YamlError(line, "a byte order mark stands within the text", "dialect")
    parser = _parser(text[mark_length:])
    try:
        composed = _compose(parser, text[mark_length:], mark_length)
        is_first = True
        while is_first or composed.root is not None:
            yield composed
            is_first = False
            composed = _compose(parser, text[mark_length:], mark_length)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if "\t" in _indent(text, line):
            problem = "a tab stands before the text of the line: write spaces"
            raise YamlError(line, problem, "dialect") from error
        raise YamlError(line, error.problem or str(error)) from error
    except yaml.YAMLError as error:  # a character that YAML forbids
        raise YamlError(1, str(error).splitlines()[0]) from error
    except UnicodeEncodeError as error:
        raise YamlError(1, f"not Unicode text: {error.reason}") from error
    finally:
        parser.dispose()


def _indent(text: str, line: int) -> str:
    found = text.split("\n", line)[line - 1 : line]
    return found[0][: len(found[0]) - len(found[0].lstrip())] if found else ""


def _parser(text: str) -> Any:
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    return loader(text)


def _compose(parser: Any, text: str, offset: int) -> Composed:
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
            composed.has_more_documents = True  # what follows is not read, so it need not be YAML
            return composed
        kind = type(event)
        if kind is DocumentStartEvent or kind is StreamStartEvent:
            continue
        if kind is StreamEndEvent or event is None:
            return composed
        if kind is DocumentEndEvent:
            return composed
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            shape.append(kind)
            closed = open_nodes.pop()
            closed.end = event.end_mark.index + offset
            continue
        node = _node(event, kind, offset)
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


def _node(event: Any, kind: type, offset: int) -> YamlNode:
    mark = event.start_mark
    if kind is ScalarEvent:
        node = YamlNode(SCALAR, event.value, mark.line + 1, mark.index + offset)
        node.end = event.end_mark.index + offset
        node.style = event.style or ""
    elif kind is MappingStartEvent:
        node = YamlNode(MAPPING, "", mark.line + 1, mark.index + offset)
    elif kind is SequenceStartEvent:
        node = YamlNode(SEQUENCE, "", mark.line + 1, mark.index + offset)
    else:
        assert kind is AliasEvent
        return YamlNode(ALIAS, event.anchor, mark.line + 1, mark.index + offset)
    if event.tag:
        tag: str = event.tag
        node.tag = "!!" + tag.removeprefix(_LONG_TAG) if tag.startswith(_LONG_TAG) else tag
    return node


def digits_of(text: str, node: YamlNode) -> tuple[int, int] | None:
    """Where the characters of a scalar stand in the text, without quotes, tags and anchors; None
    where they are not written as they read (escapes, folded lines)."""
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
