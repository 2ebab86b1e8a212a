"""Parsers of configuration values. Pure. A parser raises ValueError with a sentence about the error
and the correct form. A queue's name must match YuniKorn's `^[a-zA-Z0-9_:#/@-]{1,64}$`
(configvalidator.go, 1.6 to 1.9), a namespace's RFC 1123. `names.py` has more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta

from dnm.model.errors import DnmError
from dnm.model.quantity import parse_kubernetes, parse_span

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_QUEUE_NAME = re.compile(r"[a-z0-9_:#/@-]{1,64}")
_SPACED_QUANTITY = re.compile(r"\s*([0-9]+)\s*((?:[mkMGTPE]i?)?)\s*")
QUEUE_SYSTEMS = ("yunikorn", "kueue", "resource_quota", "none")
TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def suggest(word: str, candidates: Iterable[str]) -> str:
    """Returns `, did you mean 'x'?` with the candidate closest to the word, or an empty text."""
    import difflib  # it takes 5 ms, needed only for a wrong file

    folded = {name.lower(): name for name in candidates}
    close = difflib.get_close_matches(word[:100].lower(), folded, n=1, cutoff=0.6)
    return f", did you mean '{folded[close[0]]}'?" if close else ""


def seconds(least: float, most: int) -> Callable[[str], timedelta]:
    """Returns a parser of durations: seconds with an optional fraction, or e.g. 90m, 2h, 1d."""

    def parse(text: str) -> timedelta:
        span = parse_span(text, "s")
        if span is None:
            raise ValueError(
                f"is not a duration; write seconds from {least:g} to {most}, or e.g. 90m, 2h, 1d"
            )
        if not least <= span.total_seconds() <= most:
            raise ValueError(f"is out of range; write seconds from {least:g} to {most}")
        return span

    return parse


def boolean(text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("is neither true nor false; write true or false")


def quantity(resource: str) -> Callable[[str], int]:
    """Returns a parser of positive amounts as in Kubernetes, or with YuniKorn's spaces."""

    def parse(text: str) -> int:
        spaced = _SPACED_QUANTITY.fullmatch(text)
        try:
            amount = parse_kubernetes(resource, "".join(spaced.groups()) if spaced else text)
        except DnmError as error:
            example = {"cpu": "128 or 127500m", "memory": "256G or 251Gi"}.get(resource, "4")
            raise ValueError(f"is not a quantity; write e.g. {example}") from error
        if amount <= 0:
            raise ValueError("is not above zero; write a positive amount")
        return amount

    return parse


def names(text: str) -> tuple[str, ...]:
    """Returns the names that commas or line ends separate. Refuses a name that is repeated."""
    entries = tuple(entry.strip() for entry in re.split(r"[,\n]", text) if entry.strip())
    seen: set[str] = set()
    for entry in entries:
        if entry in seen:
            raise ValueError(f"names {entry} more than once; name it once")
        seen.add(entry)
    return entries


def namespace(text: str) -> str:
    if not _DNS_LABEL.fullmatch(text):
        raise ValueError(
            f"'{text}' is not a namespace name; RFC 1123 allows up to 63 of a-z, 0-9 and '-', "
            "with a letter or digit at both ends"
        )
    return text


def namespaces(text: str) -> tuple[str, ...]:
    entries = some_names(text, "the namespaces that may receive nodes, e.g. dev, test")
    return tuple(map(namespace, entries))


def some_names(text: str, description: str) -> tuple[str, ...]:
    """Returns the names in the text. Refuses an empty text, and a name with a space."""
    entries = names(text)
    if not entries:
        raise ValueError(f"is empty; name {description}")
    if any(len(entry.split()) > 1 for entry in entries):
        words = [word for entry in entries for word in entry.split()]
        raise ValueError(f"has names without a comma between them; write {', '.join(words)}")
    return entries


def queue_path(text: str) -> str:
    """Returns a queue's path in lower case, from root. YuniKorn ignores case and a missing root."""
    path = text.strip().lower()
    path = path if path == "root" or path.startswith("root.") else f"root.{path}"
    for name in path.split("."):
        if not _QUEUE_NAME.fullmatch(name):
            raise ValueError(
                f"'{text}' is not a queue path; write names of up to 64 letters, digits and "
                "_:#/@- with dots between them, e.g. root.services.dev"
            )
    return path


def queue_system(text: str) -> str:
    """Returns the text if it is the name of a queue system that dnm supports."""
    if text not in QUEUE_SYSTEMS:
        hint = suggest(text, QUEUE_SYSTEMS) or ";"
        choices = ", ".join(QUEUE_SYSTEMS[:-1])
        raise ValueError(f"is not a queue system{hint} write {choices} or none")
    return text


def path_text(text: str) -> str:
    """Returns the text of a path. `resolve_paths` later makes an absolute path of it."""
    if "\n" in text:
        raise ValueError("has several lines; write one path")
    return text
