"""Placement rules of queues.yaml: well formed, and the fixed part of their paths can be reached.

After checkPlacementRules and checkQueueHierarchyForPlacement of yunikorn-core's configvalidator.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dnm.queues.schema import Filter, Partition, PlacementRule, Queue

USER_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?\Z")
GROUP_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*\Z")
_RULE_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*\Z")
_PATTERN_SIGN = re.compile(r"[\^$*+?()\[{}|]")
_NOT_IN_GO = re.compile(r"\(\?(?:[=!#(>]|<[=!])|\\[1-9Z]|[*+?}][*+]|\(\?P[=>]")


def check_placement_rules(
    partition: Partition, root: Queue, report: Callable[[str, str, int, str], None]
) -> None:
    """Reports what YuniKorn's validator refuses, under the rule name `placement`."""
    rules = partition.placementrules or []
    before = [message for rule in rules for message in _syntax(rule)]
    for rule in rules:
        for message in _syntax(rule):
            report("placement", "", rule.line, message)
    if before:
        return
    for number, rule in enumerate(rules):
        message = _path_problem(rule, root)
        if message:
            report("placement", "", rule.line, f"placement rule no. {number}: {message}")


def _syntax(rule: PlacementRule) -> list[str]:
    problems = []
    if not _RULE_NAME.match(rule.name):
        problems.append(f"{rule.name!r} is no name of a placement rule")
    if rule.parent is not None:
        problems += _syntax(rule.parent)
    return problems + _filter_problems(rule.filter)


def _filter_problems(chosen: Filter) -> list[str]:
    problems = []
    if chosen.type.lower() not in ("", "allow", "deny"):
        problems.append(f"filter type {chosen.type!r}: allow and deny exist")
    for kind, names, pattern in (
        ("user", chosen.users, USER_NAME),
        ("group", chosen.groups, GROUP_NAME),
    ):
        if names and len(names) == 1 and not pattern.match(names[0]) and not _is_regex(names[0]):
            problems.append(f"filter {kind} {names[0]!r} is neither a name nor an expression")
    return problems


def _is_regex(text: str) -> bool:
    """Whether Go's regexp takes it; what only Python knows (look-around …) is out."""
    if not _PATTERN_SIGN.search(text) or _NOT_IN_GO.search(text):
        return False
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _path_problem(rule: PlacementRule, root: Queue) -> str:
    chain: list[PlacementRule] = []
    link: PlacementRule | None = rule
    while link is not None:
        chain.insert(0, link)
        link = link.parent
    path, has_dynamic_part = "", False
    for link in chain:
        if link.name != "fixed":
            has_dynamic_part = True
            break
        if link.value.startswith("root"):
            if path:
                return f"`fixed` with the full path {link.value} can only come first"
            path = link.value
        else:
            path = f"{path or 'root'}.{link.value}"
    if not path.startswith("root"):
        return ""
    return _walk(path, rule.create, has_dynamic_part, root)


def _walk(path: str, can_create: bool, has_dynamic_part: bool, root: Queue) -> str:
    """The queues as written: names are compared with the path in lower case, leaves are those
    without `parent: true`, and only root is known to be a parent without saying so."""
    missing = "" if can_create else f"{path} does not exist and create is false"
    level, above = [root], root
    parts = path.lower().split(".")
    for position, part in enumerate(parts):
        if not level:
            is_parent = above.parent or above is root
            return missing if is_parent else f"{above.name} on the way to {path} is a leaf"
        found = next((queue for queue in level if queue.name == part), None)
        if found is None:
            return missing
        if position == len(parts) - 1:
            is_parent = found.parent or found is root
            if is_parent != has_dynamic_part:
                return f"{path} is {'no leaf' if is_parent else 'a leaf'}"
        level, above = found.queues or [], found
    return ""
