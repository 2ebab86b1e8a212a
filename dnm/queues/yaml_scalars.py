"""What a scalar of YAML stands for, as go-yaml v3 resolves it by its tag, style and text. Pure."""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any

from dnm.queues.yaml_nodes import YamlNode

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_RESOLVED = frozenset(("", "!", "!!str", "!!bool", "!!int", "!!float", "!!null", "!!timestamp"))
_INTEGER = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]([0-7]+)|0([0-7]+)|(0|[1-9][0-9]*))\Z"
)
_BASES = (16, 2, 8, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL_FLOAT = re.compile(r"([+-]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_DATE = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:[.,][0-9]+)?)?\Z"
)


def resolve_scalar(node: YamlNode) -> Any:
    """Returns None, bool, int, float or text, as go-yaml's resolve() does; anything else as its
    text. Raises ValueError where go-yaml reads no further."""
    tag, text = node.tag, node.value
    is_text = tag == "!!str" or (tag in ("", "!") and node.style != "")
    if is_text or tag not in _RESOLVED:
        if tag != "!!binary":
            return text
        try:
            return base64.b64decode(text, validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise ValueError("!!binary value contains invalid base64 data") from error
    found, value = _resolve_plain(text)
    if tag in ("", "!", found):
        return value
    if (tag, found) == ("!!float", "!!int"):
        return float(value)
    raise ValueError(f"cannot decode {found} `{text}` as a {tag}")


def _resolve_plain(text: str) -> tuple[str, Any]:
    if text in NULLS:
        return "!!null", None
    if text in _TRUE or text in _FALSE:
        return "!!bool", text in _TRUE
    special = _SPECIAL_FLOAT.match(text)
    if special:
        return "!!float", math.nan if special[3] else float(f"{special[1]}inf")
    if text[0] not in "+-.0123456789":
        return "!!str", text
    date = _DATE.match(text)
    if date and 1 <= int(date[2]) <= 12 and 1 <= int(date[3]) <= 31:
        return "!!timestamp", text
    plain = text if text[0] == "." else text.replace("_", "")
    integer = _INTEGER.match(plain)
    if integer:
        digits = next(at for at in range(2, 7) if integer[at] is not None)
        value = int(integer[1] + integer[digits], _BASES[digits - 2])
        if -(2**63) <= value < (2**63 if integer[1] else 2**64):
            return "!!int", value
    if _FLOAT.match(plain) and math.isfinite(float(plain)):
        return "!!float", float(plain)
    return "!!str", text
