"""Placement rules of queues.yaml: well formed, known, and the fixed part of their paths can be
reached.

After checkPlacementRules and checkQueueHierarchyForPlacement of yunikorn-core's configvalidator.go,
and after pkg/scheduler/placement: a scheduler that starts with a rule that it does not know places
nothing, one that runs does not reload it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator

from dnm.queues.schema import Filter, Partition, PlacementRule, Queue

USER_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?\Z")
GROUP_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*\Z")
QUEUE_NAME = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}\Z")
_RULE_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*\Z")
_PATTERN_SIGN = re.compile(r"[\^$*+?()\[{}|]")
_RULES = frozenset(("user", "fixed", "provided", "tag", "test"))

# What Python's and Go's regular expressions read differently, or only one of them knows.
_DIFFERENT = re.compile(
    r"\(\?(?!:|P<|[ims]+\))|\\[^.^$*+?()\[\]{}|\\dDwWsSbBAtnrfv/-]|[*+?}][*+?{]|\{[0-9]{3,}|"
    r"\{.*\{|\{,|(?:\\[bBA]|[$^])[*+?{]|\[[^]]*\\[bBA]|\[\[|\[.*(--|&&|~~|\|\|)|.\(\?[ims]"
)


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


def doubtful_expressions(partition: Partition) -> Iterator[tuple[int, str]]:
    """Yields line and text of the filters' expressions that only Go can judge."""
    rules = list(partition.placementrules or [])
    while rules:
        rule = rules.pop(0)
        for names in (rule.filter.users, rule.filter.groups):
            if names and len(names) == 1 and is_regex(names[0]) is None:
                yield rule.line, names[0]
        if rule.parent is not None:
            rules.append(rule.parent)


def _syntax(rule: PlacementRule) -> list[str]:
    problems = []
    if not _RULE_NAME.match(rule.name):
        problems.append(f"{rule.name!r} is no name of a placement rule")
    elif rule.name.lower() not in _RULES:
        known = ", ".join(sorted(_RULES - {"test"}))
        problems.append(f"YuniKorn knows no placement rule {rule.name!r}; there are {known}")
    problems += _value_problems(rule)
    if rule.parent is not None:
        problems += _syntax(rule.parent)
    return problems + _filter_problems(rule.filter)


def _value_problems(rule: PlacementRule) -> list[str]:
    name, value = rule.name.lower(), rule.value.lower()
    if name in ("fixed", "tag") and not value:
        return [f"a placement rule `{name}` needs a value"]
    if name != "fixed":
        return []
    problems = [
        f"{part!r} in the value of a placement rule `fixed` is no queue name"
        for part in value.split(".")
        if not QUEUE_NAME.match(part)
    ]
    if value.startswith("root") and rule.parent is not None:
        problems.append(f"a placement rule `fixed` with the full path {value} takes no parent")
    return problems


def _filter_problems(chosen: Filter) -> list[str]:
    problems = []
    if chosen.type.lower() not in ("", "allow", "deny"):
        problems.append(f"filter type {chosen.type!r}: allow and deny exist")
    for kind, names, pattern in (
        ("user", chosen.users, USER_NAME),
        ("group", chosen.groups, GROUP_NAME),
    ):
        if (
            names
            and len(names) == 1
            and not pattern.match(names[0])
            and is_regex(names[0]) is False
        ):
            problems.append(f"filter {kind} {names[0]!r} is neither a name nor an expression")
    return problems


def is_regex(text: str) -> bool | None:
    """Tells whether YuniKorn takes the text for a regular expression, which Go's regexp has to
    compile; None: only Go can tell."""
    if not _PATTERN_SIGN.search(text):
        return False
    if _DIFFERENT.search(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
