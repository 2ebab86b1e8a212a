"""YAML nodes -> values, as go-yaml v3 decodes them with KnownFields on.

Unknown and repeated keys are errors, `null` leaves a field unset, text fields take any scalar as it
is written, list items that are null vanish, alias expansion is bounded. A reader turns one node
into a value, or into UNSET where go-yaml leaves its target as it was. What hides a number or is
read in two ways is refused, although YuniKorn takes it (the rule `dialect`): tags but `!!str`,
`<<`, directives, a count that is no whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dnm.model.value import Value
from dnm.queues.yaml_nodes import ALIAS, MAPPING, SCALAR, SEQUENCE, YamlNode
from dnm.queues.yaml_scalars import resolve_scalar


class RuleViolation(Value):
    """What YuniKorn would refuse or, as advice, what it takes but should not be given."""

    rule: str
    queue: str  # path, lower case; empty: not of one queue
    line: int
    message: str


class Struct:
    """A decoded mapping; fields that were not set keep the class's value."""

    line = 0


_OURS = "YuniKorn may take it, dnm does not edit such a document;"
Reader = Callable[["Decoder", YamlNode, Any], Any]
Put = Callable[[str, YamlNode, YamlNode], None]
UNSET: Final = object()

_YES = frozenset(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"))
_NO = frozenset(("n", "N", "no", "No", "NO", "off", "Off", "OFF"))


class Abort(Exception):
    """go-yaml reads no further."""

    def __init__(self, line: int, message: str, rule: str = "yaml") -> None:
        super().__init__(message)
        self.violation = RuleViolation(rule=rule, queue="", line=line, message=message)


class Decoder:
    """`problems` is empty if and only if YuniKorn reads the document."""

    def __init__(self) -> None:
        self.problems: list[RuleViolation] = []
        self._reads = 0
        self._alias_reads = 0
        self._alias_depth = 0
        self._shared_depth = 0
        self._open_aliases: set[int] = set()

    @property
    def is_shared(self) -> bool:
        """Tells whether the text being read is used in more than one place."""
        return self._shared_depth > 0

    def problem(self, node: YamlNode, message: str) -> None:
        self.problems.append(RuleViolation(rule="yaml", queue="", line=node.line, message=message))

    def mismatch(self, node: YamlNode, wanted: str) -> object:
        what = f"`{node.value[:40]}`" if node.kind is SCALAR else f"a {node.kind}"
        self.problem(node, f"{what} stands where {wanted} belongs")
        return UNSET

    def read(self, node: YamlNode, reader: Reader, target: Any = None) -> Any:
        """Returns what `reader` makes of the node, or of what the alias stands for."""
        self._reads += 1
        if node.tag not in ("", "!!str"):
            raise Abort(node.line, f"`{node.tag[:40]}`: {_OURS} take off the tag", "dialect")
        if self._alias_depth:
            self._alias_reads += 1
            self._stop_at_excess(node)
        if node.kind is ALIAS:
            return self._follow(node, reader, target)
        if not node.is_aliased:
            return reader(self, node, target)
        self._shared_depth += 1
        try:
            return reader(self, node, target)
        finally:
            self._shared_depth -= 1

    def _follow(self, node: YamlNode, reader: Reader, target: Any) -> Any:
        assert node.target is not None
        if id(node) in self._open_aliases:
            raise Abort(node.line, f"anchor '{node.value}' contains itself")
        self._open_aliases.add(id(node))
        self._alias_depth += 1
        try:
            return self.read(node.target, reader, target)
        finally:
            self._open_aliases.discard(id(node))
            self._alias_depth -= 1

    def _stop_at_excess(self, node: YamlNode) -> None:
        """go-yaml's bound: 99 % of the reads up to 400,000, falling to 10 % at 4,000,000."""
        low, high = 400_000, 4_000_000
        allowed = 0.99 - 0.89 * min(max(self._reads - low, 0) / (high - low), 1)
        if self._reads > 1000 and self._alias_reads > max(100, allowed * self._reads):
            raise Abort(node.line, "the document consists of aliases of aliases")


# --- scalars ---------------------------------------------------------------------------------


def read_text(decoder: Decoder, node: YamlNode, target: Any = None) -> Any:
    """Reads any scalar as it is written."""
    if node.kind is not SCALAR:
        return decoder.mismatch(node, "a text")
    return UNSET if resolve_scalar(node) is None else node.value


def is_null(node: YamlNode) -> bool:
    node = node.target or node
    return node.kind is SCALAR and resolve_scalar(node) is None


def _read_scalar(decoder: Decoder, node: YamlNode, wanted: str) -> Any:
    if node.kind is not SCALAR:
        return decoder.mismatch(node, wanted)
    resolved = resolve_scalar(node)
    return UNSET if resolved is None else resolved


def read_bool(decoder: Decoder, node: YamlNode, target: Any = None) -> Any:
    """Reads true and false, and YAML 1.1's yes, no, on, off, y, n."""
    value = _read_scalar(decoder, node, "true or false")
    if value is UNSET or isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _YES | _NO:
        return value in _YES
    return decoder.mismatch(node, "true or false")


def read_count(decoder: Decoder, node: YamlNode, target: Any = None) -> Any:
    """Reads an unsigned integer. go-yaml cuts a float off, each release and processor in its own
    way where it is large."""
    value = _read_scalar(decoder, node, "a whole number")
    if value is UNSET or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    if isinstance(value, float):
        message = f"`{node.value[:40]}`: {_OURS} write a whole number"
        raise Abort(node.line, message, "dialect")
    return decoder.mismatch(node, "a whole number")


def read_float(decoder: Decoder, node: YamlNode, target: Any = None) -> Any:
    value = _read_scalar(decoder, node, "a number")
    if value is UNSET:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return decoder.mismatch(node, "a number")


# --- collections -----------------------------------------------------------------------------


def list_of(reader: Reader) -> Reader:
    def read(decoder: Decoder, node: YamlNode, target: Any) -> Any:
        if node.kind is not SEQUENCE:
            return UNSET if is_null(node) else decoder.mismatch(node, "a list")
        made = []
        for item in node.items:  # a comprehension would deepen the stack with every queue level
            value = decoder.read(item, reader)
            if value is not UNSET:
                made.append(value)
        return made

    return read


def map_of(reader: Reader, zero: Callable[[Decoder, YamlNode], Any]) -> Reader:
    """Returns a reader of a mapping of texts; a null value becomes `zero(decoder, node)`, the
    type's empty value."""

    def read(decoder: Decoder, node: YamlNode, target: Any) -> Any:
        if node.kind is not MAPPING:
            return None if is_null(node) else decoder.mismatch(node, "a mapping")
        made: dict[str, Any] = {}

        def put(key: str, key_node: YamlNode, value_node: YamlNode) -> None:
            value = decoder.read(value_node, reader)
            if value is not UNSET:
                made[key] = value
            elif key not in made and is_null(value_node):
                made[key] = zero(decoder, value_node)

        return made if _each_pair(decoder, node, put) else UNSET

    return read


def struct_of(cls: type[Struct], fields: Mapping[str, Reader], kind: str) -> Reader:
    """Returns a reader of a mapping with known keys; `kind` is what the thing is called in
    messages."""

    def read(decoder: Decoder, node: YamlNode, target: Any) -> Any:
        if node.kind is not MAPPING:
            return UNSET if is_null(node) else decoder.mismatch(node, kind)
        made = cls()
        made.line = node.line
        done: set[str] = set()

        def put(key: str, key_node: YamlNode, value_node: YamlNode) -> None:
            reader = fields.get(key)
            if reader is None:
                decoder.problem(key_node, f"`{key}` is no key of {kind}{_near(key, fields)}")
            elif key in done:
                decoder.problem(key_node, f"`{key}` is set twice in {kind}")
            else:
                done.add(key)
                value = decoder.read(value_node, reader)
                if value is not UNSET:
                    setattr(made, key, value)

        return made if _each_pair(decoder, node, put) else UNSET

    return read


def _near(key: str, fields: Mapping[str, Reader]) -> str:
    return f"; keys are written in lower case: `{key.lower()}`" if key.lower() in fields else ""


def _each_pair(decoder: Decoder, node: YamlNode, put: Put) -> bool:
    """Every pair of a mapping; False where keys are repeated."""
    if not _keys_are_unique(decoder, node):
        return False
    items = node.items
    for at in range(0, len(items), 2):
        key_node = items[at]
        if key_node.value == "<<" and key_node.kind is SCALAR and not key_node.style:
            message = f"`<<`: {_OURS} write out what it merges"
            raise Abort(key_node.line, message, "dialect")
        key = decoder.read(key_node, read_text)
        if key is not UNSET:  # go-yaml passes over null keys
            put(key, key_node, items[at + 1])
    return True


def _keys_are_unique(decoder: Decoder, node: YamlNode) -> bool:
    """By kind and text alone, before anything is resolved: two list keys are equal too."""
    keys = node.items[::2]
    if len({(key.kind, key.value) for key in keys}) == len(keys):
        return True
    first: dict[tuple[str, str], YamlNode] = {}
    for key in keys:
        known = first.setdefault((key.kind, key.value), key)
        if known is not key:
            decoder.problem(key, f"`{key.value}` stands in line {known.line} already")
    return False
