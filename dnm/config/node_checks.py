"""The parsing of the keys `readiness_checks` and `fault_conditions`, both lists of checks. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dnm.config import names, values
from dnm.model.opening import Check
from dnm.model.quantity import parse_span

_MOST_STEPS = 20
_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}"
_STATUS = ("True", "False", "Unknown")
# Kind of check -> its form.
_KINDS = {
    "daemonsets": "daemonsets",
    "daemonset": "daemonset NAMESPACE/NAME",
    "condition": "condition TYPE=True",
    "taint": "taint KEY",
    "images": "images",
    "image": "image NAME",
    "probe": "probe NAMESPACE/PODTEMPLATE",
}
# Forms of the signs of a faulty node. Ready=True is a sign of every healthy node.
_FAULTS = {"condition": "condition TYPE=STATUS, e.g. condition Ready=False", "taint": "taint KEY"}
_HEALTHY = ("Ready", "True")


def _image(text: str) -> None:
    if not re.fullmatch(_IMAGE, text):
        raise ValueError


def _object(text: str) -> None:
    namespace, _, name = text.partition("/")
    values.namespace(namespace)
    names.object_name(name)


_CHECKS: Mapping[str, Callable[[str], object]] = {
    "condition": names.label_key,
    "taint": names.label_key,
    "image": _image,
    "daemonset": _object,
    "probe": _object,
}


def parse_readiness_checks(text: str) -> tuple[Check, ...]:
    """Returns the readiness checks in the text. Each check may end in `within TIME`."""
    return _steps(text, _KINDS, has_time=True)


def parse_fault_conditions(text: str) -> tuple[Check, ...]:
    """Returns the conditions in the text that show that a lent node is faulty."""
    steps = _steps(text, _FAULTS, has_time=False)
    if any((step.name, step.status) == _HEALTHY for step in steps):
        raise ValueError("has 'condition Ready=True', which every healthy node has; name the fault")
    return steps


def _steps(text: str, kinds: Mapping[str, str], has_time: bool) -> tuple[Check, ...]:
    written = [item for line in re.split(r"[,\n]", text) if (item := " ".join(line.split()))]
    if len(written) > _MOST_STEPS:
        raise ValueError(f"has {len(written)} steps; write {_MOST_STEPS} at most")
    steps = tuple(_step(name, kinds, has_time) for name in written)
    names = [step.text for step in steps]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ValueError(f"names '{twice}' twice; keep one")
    return steps


def _step(text: str, kinds: Mapping[str, str], has_time: bool) -> Check:
    check, within, span = text.partition(" within ") if has_time else (text, "", "")
    kind, _, rest = check.partition(" ")
    if kind not in kinds:
        hint = values.suggest(kind, kinds) or f"; write one of {', '.join(kinds.values())}"
        raise ValueError(f"begins with '{kind[:60]}', which is not a check{hint}")
    wrong = ValueError(f"has '{check[:100]}'; write {kinds[kind]}")
    name, _, status = rest.partition("=") if kind == "condition" else (rest, "", "")
    if " " in rest or bool(rest) != (" " in kinds[kind]):
        raise wrong
    if kind == "condition" and status not in _STATUS:
        raise wrong
    try:
        _CHECKS.get(kind, str)(name)
    except ValueError as error:
        raise wrong from error
    if not within:
        return Check(kind=kind, name=name, status=status)
    wait = parse_span(span)
    if wait is None or not 0 < wait.total_seconds() <= 86_400:
        raise ValueError(f"has 'within {span[:40]}'; write a number and a unit, e.g. 90s, 10m, 1h")
    return Check(kind=kind, name=name, status=status, within=wait)
