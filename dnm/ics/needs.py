"""What an entry of a calendar says for dnm: for which namespace, and how much. Pure.

People write calendars, so an entry is prose with a few lines for us: those of its description that
are `key = value` with a key of a section [event:NAME]. All else in it is nobody's business.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

from dnm.config.keys import RESOURCE
from dnm.model.printable import printable

_KEYS = ("pods", "nodes", "cpu", "memory")
_LINE = re.compile(r"\s*([A-Za-z][\w./-]*)\s*=\s*(.*?)\s*")
_BREAK = re.compile(r"</?(?:br|p|div|li)\b[^<>]{0,1000}>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,1000}>")
_WORD = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST = 20_000  # characters of a description that are looked at


def namespaces_of(
    categories: Iterable[str], summary: str, monitored: Collection[str]
) -> tuple[str, ...]:
    """Returns the monitored namespaces that the categories name, else those that are words of the
    summary."""
    named = tuple(dict.fromkeys(one for one in categories if one in monitored))
    words = _WORD.findall(summary)
    return named or tuple(dict.fromkeys(word for word in words if word in monitored))


def entries_of(description: str) -> dict[str, str]:
    """Returns the lines of a description that are for dnm; some programs write it as HTML."""
    text = _TAG.sub("", _BREAK.sub("\n", description[:_LONGEST])).replace("&nbsp;", " ")
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and (match[1].lower() in _KEYS or ("/" in match[1] and RESOURCE.match(match[1]))):
            found[match[1]] = match[2]
    return found


def name_of(summary: str, uid: str) -> str:
    """Returns a name for the events of a series that stays for as long as both do."""
    words = "-".join(_WORD.findall(summary.lower()))[:40].strip("-")
    mark = hashlib.sha256(uid.encode("utf-8", "replace")).hexdigest()[:10]
    return f"{words}-{mark}" if words else f"event-{mark}"


def title_of(summary: str) -> str:
    """Returns the summary as a message quotes it."""
    return printable(summary, 60) or "without a summary"
