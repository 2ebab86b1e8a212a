"""Says why YuniKorn would refuse a placement rule, in its words.

After yunikorn-core 1.9: pkg/common/configs/configvalidator.go, pkg/scheduler/placement.
"""

from __future__ import annotations

import re

from dnm.lab.sandbox.queues_yaml import ConfigRefused, Fields

ROOT = "root"
QUEUE_NAME = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}")
USER_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9:#/_.@-]*[$]?")
GROUP_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9:_.-]*")
_RULE_NAME = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*")
_SPECIAL = re.compile(r"[\^$*+?()\[{}|]")
_NOT_IN_GO = re.compile(r"\(\?(=|!|<=|<!|>|\()|\\[1-9]|[*+?}]\+")  # Python has them, RE2 has not
_RULES = ("provided", "fixed", "tag", "user", "test")


def check_placement(partition: Fields) -> None:
    """Raises ConfigRefused for a rule that is none, and for one whose fixed path leads nowhere."""
    rules: list[Fields] = partition["placementrules"] or []
    for rule in rules:
        _check_rule(rule)
    paths = [_fixed_path(rule) for rule in rules]
    for number, (path, goes_on) in enumerate(paths):
        rule = rules[number]
        if not path.startswith(ROOT):
            continue
        chain = "->".join(one["name"] for one in _chain(rule))
        problem = _placement_problem(path, rule["create"], goes_on, partition["queues"])
        if problem:
            raise ConfigRefused(
                f"placement rule no. #{number} ({chain}) references {problem.format(path=path)}"
            )


def _check_rule(rule: Fields) -> None:
    if not _RULE_NAME.fullmatch(rule["name"]):
        raise ConfigRefused(f"invalid rule name {rule['name']}, a name must be a valid identifier")
    if rule["parent"] is not None:
        _check_rule(rule["parent"])
    accepted = rule["filter"]
    if accepted["type"].lower() not in ("", "allow", "deny"):
        raise ConfigRefused(
            f"invalid rule filter type {accepted['type']}, filter type  must be either '', allow "
            "or deny"
        )
    for kind, pattern in (("user", USER_NAME), ("group", GROUP_NAME)):
        names: list[str] = accepted[f"{kind}s"] or []
        if len(names) == 1 and not pattern.fullmatch(names[0]) and not _is_expression(names[0]):
            raise ConfigRefused(
                f"invalid rule filter {kind} list is not a proper list or regexp: [{names[0]}]"
            )


def _is_expression(text: str) -> bool:
    """Whether Go would compile it, as far as Python's regular expressions are the same."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return bool(_SPECIAL.search(text)) and not _NOT_IN_GO.search(text)


def _chain(rule: Fields) -> list[Fields]:
    """The rule behind all its parents, the outermost first."""
    return [*(_chain(rule["parent"]) if rule["parent"] is not None else ()), rule]


def _fixed_path(rule: Fields) -> tuple[str, bool]:
    """The path as far as `fixed` rules alone give it, and whether another rule goes on below."""
    path: str = ""
    for one in _chain(rule):
        if one["name"] != "fixed":
            return path or "<dynamic>", True
        if not one["value"].startswith(ROOT):
            path = f"{path or ROOT}.{one['value']}"
        elif path:
            raise ConfigRefused(f"illegal fully qualified 'fixed' rule with value {one['value']}")
        else:
            path = one["value"]
    return path, False


def _placement_problem(path: str, create: bool, goes_on: bool, top: list[Fields]) -> str:
    level, above = top, None
    steps = path.lower().split(".")
    for depth, step in enumerate(steps):
        found = next((queue for queue in level if queue["name"] == step), None)
        if not level and above is not None and not above["parent"]:
            return (
                "non-existing queues ({path}) which cannot be created because the last queue "
                f"({above['name']}) in the hierarchy is a leaf"
            )
        if found is None:
            return "" if create else "non-existing queues ({path}) and create is 'false'"
        if depth == len(steps) - 1:
            return "" if found["parent"] == goes_on else "a queue ({path}) which is not a leaf"
        level, above = found["queues"] or [], found
    return ""


def check_rule_starts(rule: Fields) -> None:
    """Raises ConfigRefused for what no rule can be made of when the document is put in force."""
    name = rule["name"].lower()
    if name == "recovery":
        raise ConfigRefused(
            "recovery rule cannot be part of the config, failing placement rule config"
        )
    if name not in _RULES:
        raise ConfigRefused(
            f"unknown rule name specified {rule['name']}, failing placement rule config"
        )
    value = rule["value"].lower()
    if name in ("fixed", "tag") and not value:
        what = "queue" if name == "fixed" else "tag"
        raise ConfigRefused(f"a {name} queue rule must have a {what} name set")
    if name == "fixed":
        if not all(QUEUE_NAME.fullmatch(part) for part in value.split(".")):
            raise ConfigRefused(f"invalid queue name in a fixed queue rule: {value}")
        if value.startswith(ROOT) and rule["parent"] is not None:
            raise ConfigRefused(
                "cannot have a fixed queue rule with qualified queue getName and a parent rule"
            )
    if rule["parent"] is not None:
        check_rule_starts(rule["parent"])
