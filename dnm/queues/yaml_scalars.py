"""What a scalar of YAML stands for, as go-yaml v3 resolves it by its style and text. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

from dnm.queues.yaml_nodes import YamlNode

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_INTEGER = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]([0-7]+)|0([0-7]+)|(0|[1-9][0-9]*))\Z"
)
_BASES = (16, 2, 8, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL_FLOAT = re.compile(r"([+-]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


def resolve_scalar(node: YamlNode) -> Any:
    """Returns None, bool, int, float or text, as go-yaml's resolve() does where there is no tag but
    `!!str`; a date is its text."""
    text = node.value
    if node.tag or node.style:
        return text
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    special = _SPECIAL_FLOAT.match(text)
    if special:
        return math.nan if special[3] else float(f"{special[1]}inf")
    if text[0] not in "+-.0123456789":
        return text
    plain = text if text[0] == "." else text.replace("_", "")
    integer = _INTEGER.match(plain)
    if integer:
        digits = next(at for at in range(2, 7) if integer[at] is not None)
        value = int(integer[1] + integer[digits], _BASES[digits - 2])
        if -(2**63) <= value < (2**63 if integer[1] else 2**64):
            return value
    if _FLOAT.match(plain) and math.isfinite(float(plain)):
        return float(plain)
    return text
