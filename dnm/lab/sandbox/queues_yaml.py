"""Reads `queues.yaml` as go-yaml does for YuniKorn: strictly, into the fields that YuniKorn knows.

PyYAML splits the text (with libyaml, of which go-yaml is a translation, where it is built in) and
resolves nothing; what a scalar means depends on the field it stands for, as in Go. Where the two
differ: PyYAML's own words for a syntax error are used; `!!str 5` is taken for a plain 5; a comment
or a mark in an odd place may be refused by one and not by the other.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import yaml

Fields = dict[str, Any]
"""A mapping of the document with all its fields; None for what Go would leave nil."""

_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_TAG = "tag:yaml.org,2002:"
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?(?P<octal>[0-7]+)|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BOOLS = {word: value for value, words in ((True, "true True TRUE"), (False, "false False FALSE"))
          for word in words.split()}  # fmt: skip
_OLD_BOOLS = {"y": True, "Y": True, "yes": True, "on": True,
              "n": False, "N": False, "no": False, "off": False}  # fmt: skip

# Go type -> field -> what it holds: a scalar's Go type, [list of], {map of} or another Go type.
# In Go a pointer is nil where nothing stands; here it is in OPTIONAL.
_TEXTS: Any = {"string"}
_TYPES: dict[str, dict[str, Any]] = {
    "SchedulerConfig": {"partitions": ["PartitionConfig"], "checksum": "string"},
    "PartitionConfig": {
        "name": "string", "queues": ["QueueConfig"], "placementrules": ["PlacementRule"],
        "limits": ["Limit"], "preemption": "PartitionPreemptionConfig",
        "nodesortpolicy": "NodeSortingPolicy", "usergroupresolver": "UserGroupResolver",
    },
    "PartitionPreemptionConfig": {"enabled": "bool", "quotapreemptionenabled": "bool"},
    "NodeSortingPolicy": {"type": "string", "resourceweights": {"float64"}},
    "UserGroupResolver": {"type": "string"},
    "QueueConfig": {
        "name": "string", "parent": "bool", "resources": "Resources", "maxapplications": "uint64",
        "properties": _TEXTS, "adminacl": "string", "submitacl": "string",
        "childtemplate": "ChildTemplate", "queues": ["QueueConfig"], "limits": ["Limit"],
    },
    "Resources": {"guaranteed": _TEXTS, "max": _TEXTS},
    "ChildTemplate": {"maxapplications": "uint64", "properties": _TEXTS, "resources": "Resources"},
    "Limit": {
        "limit": "string", "users": ["string"], "groups": ["string"], "maxresources": _TEXTS,
        "maxapplications": "uint64",
    },
    "PlacementRule": {
        "name": "string", "create": "bool", "filter": "Filter", "parent": "PlacementRule",
        "value": "string",
    },
    "Filter": {"type": "string", "users": ["string"], "groups": ["string"]},
}  # fmt: skip
_OPTIONAL = {("PlacementRule", "parent")}
_ZERO: dict[str, Any] = {"string": "", "bool": False, "uint64": 0, "float64": 0.0}


class ConfigRefused(Exception):
    """YuniKorn does not take the document; the message is its reason."""


class _Mismatch(Exception):
    """A value that does not fit its field."""


def read_fields(text: str) -> Fields:
    """Reads the first document of the text, every field of every mapping filled in. Raises
    ConfigRefused; a text without a document is a configuration without partitions."""
    try:
        _check_spelling(text)
        loader = _LOADER(text.encode("utf-8", "surrogatepass"))
        try:
            node = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise ConfigRefused(f"yaml: {' '.join(str(error).split())}") from error
    reader = _Reader()
    found = reader.value(node, "SchedulerConfig") if node else _zero("SchedulerConfig")
    if reader.problems:
        raise ConfigRefused("\n  ".join(["yaml: unmarshal errors:", *reader.problems]))
    fields: Fields = _zero("SchedulerConfig") if found is None else found
    return fields


def _check_spelling(text: str) -> None:
    """Raises ConfigRefused for what libyaml reads in the first document and go-yaml does not:
    another version than 1.1, a second byte order mark, `?` within a word in brackets, a directive
    after the first line."""
    text = text.removeprefix("\ufeff")
    if text.startswith("\ufeff") or "\n\ufeff" in text:
        raise ConfigRefused("yaml: unmarshal errors: a byte order mark is no field")
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        match event:
            case yaml.DocumentStartEvent(version=version) if version not in (None, (1, 1)):
                raise ConfigRefused("yaml: found incompatible YAML document")
            case yaml.CollectionStartEvent(flow_style=True):
                depth += 1
            case yaml.CollectionStartEvent() if depth:
                depth += 1
            case yaml.CollectionEndEvent() if depth:
                depth -= 1
            case yaml.ScalarEvent(value=value, style=style) if depth and not style and "?" in value:
                raise ConfigRefused("yaml: did not find expected ',' or '}'")
            case yaml.DocumentEndEvent():
                end = len(text) if event.explicit else event.end_mark.index  # type: ignore[union-attr]
                rest = text[end:].splitlines()
                kept = [line for line in rest if line.strip() and not line.startswith(("%", "#"))]
                if rest and rest[0].startswith("%") and kept and not kept[0].startswith("---"):
                    raise ConfigRefused("yaml: found a directive within the document")
                return


class _Reader:
    """Goes through the nodes of one document; `problems` are those after which go-yaml goes on."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node, kind: Any) -> Any:
        """What stands there; None for a null and for what does not fit."""
        if any(node is above for above in self._open):
            raise ConfigRefused("yaml: anchor value contains itself")
        self._open.append(node)
        try:
            if isinstance(kind, list):
                return self._list(node, kind[0])
            if isinstance(kind, set):
                return self._map(node, next(iter(kind)))
            if kind in _TYPES:
                return self._fields(node, kind)
            return _scalar(node, kind)
        except _Mismatch as mismatch:
            self._note(node, str(mismatch))
            return None
        finally:
            self._open.pop()

    def _note(self, node: yaml.Node, what: str) -> None:
        self.problems.append(f"line {node.start_mark.line + 1}: {what}")

    def _list(self, node: yaml.Node, kind: Any) -> list[Any] | None:
        if _is_null(node):
            return None
        if not isinstance(node, yaml.SequenceNode):
            raise _misfit(node, f"[]{_go_type(kind)}")
        values = [self.value(item, kind) for item in node.value]
        return [value for value in values if value is not None]  # as go-yaml drops nulls

    def _map(self, node: yaml.Node, kind: str) -> Fields | None:
        if _is_null(node):
            return None
        if not isinstance(node, yaml.MappingNode):
            raise _misfit(node, f"map[string]{kind}")
        found = {}
        for key, item in self._pairs(node):
            name, value = self.value(key, "string"), self.value(item, kind)
            if name is not None:
                found[name] = _ZERO[kind] if value is None else value
        return found

    def _fields(self, node: yaml.Node, kind: str) -> Fields | None:
        if _is_null(node):
            return None
        if not isinstance(node, yaml.MappingNode):
            raise _misfit(node, f"configs.{kind}")
        found: Fields = _zero(kind)
        for key, item in self._pairs(node):
            name = self.value(key, "string")
            if name is None:
                continue
            if name not in _TYPES[kind]:
                self._note(key, f"field {name} not found in type configs.{kind}")
                continue
            value = self.value(item, _TYPES[kind][name])
            if value is not None:
                found[name] = value
        return found

    def _pairs(self, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
        """Key and value; what is merged in by `<<` comes last and only where it is not given."""
        own = [(key, item) for key, item in node.value if not _is_merge(key)]
        merged = [item for key, item in node.value if _is_merge(key)]
        seen: dict[tuple[type, str], int] = {}
        for key, _ in node.value:
            name = (type(key), key.value if isinstance(key, yaml.ScalarNode) else "")
            line = key.start_mark.line + 1
            if name in seen:
                self._note(key, f'mapping key "{name[1]}" already defined at line {seen[name]}')
            seen.setdefault(name, line)
        taken = {key.value for key, _ in own if isinstance(key, yaml.ScalarNode)}
        for item in merged:
            sources = item.value if isinstance(item, yaml.SequenceNode) else [item]
            for source in sources:
                if not isinstance(source, yaml.MappingNode):
                    raise ConfigRefused(
                        "yaml: map merge requires map or sequence of maps as the value"
                    )
                if any(source is above for above in self._open):
                    raise ConfigRefused("yaml: anchor value contains itself")
                for key, value in self._pairs(source):
                    if isinstance(key, yaml.ScalarNode) and key.value not in taken:
                        taken.add(key.value)
                        own.append((key, value))
        return own


def _zero(kind: Any) -> Any:
    """What Go has where nothing stands."""
    if not isinstance(kind, str):
        return None
    if kind in _ZERO:
        return _ZERO[kind]
    return {
        name: None if (kind, name) in _OPTIONAL else _zero(inner)
        for name, inner in _TYPES[kind].items()
    }


def _go_type(kind: Any) -> str:
    return f"configs.{kind}" if kind in _TYPES else str(kind)


def _is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and not _is_text(key)


def _is_text(node: yaml.ScalarNode) -> bool:
    """Quoted or a block, so that it means its letters and nothing else."""
    return bool(node.tag == f"{_TAG}str" and node.style)


def _is_null(node: yaml.Node) -> bool:
    if not isinstance(node, yaml.ScalarNode) or _is_text(node):
        return False
    if node.tag == f"{_TAG}null":
        _tagged(node)
        return True
    return bool(node.tag == f"{_TAG}str" and node.value in _NULLS)


def _misfit(node: yaml.Node, go_type: str) -> _Mismatch:
    if not isinstance(node, yaml.ScalarNode):
        kind = "seq" if isinstance(node, yaml.SequenceNode) else "map"
        return _Mismatch(f"cannot unmarshal !!{kind} into {go_type}")
    shown = node.value if len(node.value) <= 10 else f"{node.value[:7]}..."
    return _Mismatch(f"cannot unmarshal {_short_tag(node)} `{shown}` into {go_type}")


def _short_tag(node: yaml.ScalarNode) -> str:
    resolved = None if _is_text(node) else _resolved(node.value)
    names = {bool: "bool", int: "int", float: "float", str: "str"}
    return f"!!{names.get(type(resolved), 'str')}"


def _scalar(node: yaml.Node, kind: str) -> Any:
    """A string, bool, uint64 or float64; None for a null."""
    if _is_null(node):
        return None
    if not isinstance(node, yaml.ScalarNode):
        raise _misfit(node, kind)
    resolved = node.value if _is_text(node) else _tagged(node)
    if kind == "string":
        return resolved if node.tag == f"{_TAG}binary" else node.value
    if kind == "bool" and isinstance(resolved, bool):
        return resolved
    if kind == "bool" and isinstance(resolved, str) and resolved in _OLD_BOOLS:
        return _OLD_BOOLS[resolved]
    if isinstance(resolved, int | float) and not isinstance(resolved, bool):
        if kind == "float64":
            return float(resolved)
        if kind == "uint64" and _fits_unsigned(resolved):
            return int(resolved) % 2**64
    raise _misfit(node, kind)


def _fits_unsigned(number: int | float) -> bool:
    """Go takes a float too, cut off; a negative one comes out huge."""
    return -(2**63) < number < 2**64 if isinstance(number, float) else 0 <= number < 2**64


def _tagged(node: yaml.ScalarNode) -> Any:
    """The value of a plain scalar, or of one with a tag that must fit it."""
    name = node.tag.removeprefix(_TAG)
    if name == "binary":
        try:
            return base64.b64decode(node.value, validate=True).decode("utf-8", "surrogateescape")
        except (binascii.Error, ValueError) as error:
            raise ConfigRefused("yaml: !!binary value contains invalid base64 data") from error
    resolved = _resolved(node.value)
    wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}.get(name)
    if wanted is None:
        return resolved if name == "str" else node.value
    if not isinstance(resolved, wanted) or (name != "bool" and isinstance(resolved, bool)):  # type: ignore[arg-type]
        raise ConfigRefused(f"yaml: cannot decode {_short_tag(node)} `{node.value}` as a !!{name}")
    return float(resolved) if name == "float" else resolved


def _resolved(text: str) -> Any:
    """What go-yaml v3 takes a plain scalar for: None, a bool, a number, or the text itself."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    bare = text.replace("_", "")
    if match := _INTEGER.fullmatch(bare):
        sign = -1 if bare.startswith("-") else 1
        octal = match["octal"]
        number = sign * int(octal, 8) if octal else int(bare, 0)
        if -(2**63) <= number < 2**64:
            return number
    if _FLOAT.fullmatch(bare):
        return float(bare)
    if text.lower().lstrip("+-") == ".inf":
        return float("-inf") if text.startswith("-") else float("inf")
    return text
