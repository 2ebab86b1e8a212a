"""Says why YuniKorn would refuse a queue document, in its order and its words.

After yunikorn-core 1.9, pkg/common/configs/configvalidator.go (rules that hold before a document
is taken) and pkg/scheduler/objects/template (rules that hold when it is put in force).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from dnm.lab.sandbox.amounts import AmountError, configured_amounts, total
from dnm.lab.sandbox.placement_rules import (
    GROUP_NAME,
    QUEUE_NAME,
    ROOT,
    USER_NAME,
    check_placement,
    check_rule_starts,
)
from dnm.lab.sandbox.queues_yaml import ConfigRefused, Fields, read_fields

_Amounts = dict[str, int]


def read_document(text: str) -> Fields:
    """Reads a document that YuniKorn takes, with `root` put in where it is not written. Raises
    ConfigRefused with what its validator says first."""
    document = read_fields(text)
    names = set()
    for partition in document["partitions"] or ():
        if partition["name"].lower() in ("", "default"):
            partition["name"] = "default"
        if partition["name"].lower() in names:
            raise ConfigRefused(f"duplicate partition name found with name {partition['name']}")
        names.add(partition["name"].lower())
        try:
            _check_partition(partition)
        except AmountError as error:
            raise ConfigRefused(str(error)) from error
    return document


def check_activation(document: Fields) -> None:
    """Raises ConfigRefused for what the validator lets pass and a reload does not."""
    for partition in document["partitions"] or ():
        if partition["queues"][0]["name"] != ROOT:
            raise ConfigRefused("partition cannot be created without root queue")
        for rule in partition["placementrules"] or ():
            check_rule_starts(rule)
        _check_access(partition["queues"][0])
        _check_templates(partition["queues"][0])


def _check_access(queue: Fields) -> None:
    """The scheduler itself splits at every single space, which its validator does not."""
    for acl in (queue["submitacl"], queue["adminacl"]):
        if len(acl.split(" ")) > 2:
            raise ConfigRefused(f"multiple spaces found in ACL: '{acl}'")
    for child in queue["queues"] or ():
        _check_access(child)


def _check_partition(partition: Fields) -> None:
    if partition["queues"] is None:
        raise ConfigRefused("queue config is not set")
    root = _put_root_in(partition)
    if any(root["resources"][field] is not None for field in ("guaranteed", "max")):
        raise ConfigRefused("root queue must not have resource limits set")
    if partition["limits"] and root["limits"] and partition["limits"] != root["limits"]:
        raise ConfigRefused("partition limits and root queue limits are not equivalent")
    root["limits"] = root["limits"] or partition["limits"]
    _check_names(root, 1)
    _check_amounts(root, {})
    check_placement(partition)
    _check_node_order(partition["nodesortpolicy"])
    _check_max_applications(root)
    _check_limits_downwards(root, {}, _RESOURCE_LIMITS)
    _check_limits_downwards(root, {}, _APPLICATION_LIMITS)


def _put_root_in(partition: Fields) -> Fields:
    top = partition["queues"]
    if len(top) != 1 or top[0]["name"].lower() != ROOT:
        (root,) = read_fields("partitions: [{queues: [{name: root}]}]")["partitions"][0]["queues"]
        root["queues"] = top
        partition["queues"] = [root]
    found: Fields = partition["queues"][0]
    found["parent"] = True
    return found


# --- names, access, limits of users --------------------------------------------------------------


def _check_names(queue: Fields, level: int) -> None:
    for acl in (queue["adminacl"], queue["submitacl"]):
        if len(acl.split()) > 2:
            raise ConfigRefused(f"multiple spaces found in ACL: '{acl.strip()}'")
    users: set[str] = set()
    groups: set[str] = set()
    for limit in queue["limits"] or ():
        _check_limit(limit, users, groups, queue)
    names = set()
    for child in queue["queues"] or ():
        if not QUEUE_NAME.fullmatch(child["name"]):
            raise ConfigRefused(
                "invalid queue name, max 64 characters consisting of alphanumeric characters and "
                "'-', '_', '#', '@', '/', ':' allowed"
            )
        if child["name"].lower() in names:
            raise ConfigRefused(
                f"duplicate child name found with name '{child['name']}', level {level}"
            )
        names.add(child["name"].lower())
    for child in queue["queues"] or ():
        _check_names(child, level + 1)


def _check_limit(limit: Fields, users: set[str], groups: set[str], queue: Fields) -> None:
    if not limit["users"] and not limit["groups"]:
        raise ConfigRefused(f"empty user and group lists defined in limit '{_struct(limit)}'")
    _check_limit_names("user", limit["users"], users)
    _check_limit_names("group", limit["groups"], groups)
    if groups == {"*"}:
        raise ConfigRefused(
            "should not specify only one group limit that is using the wildcard. There must be at "
            "least one limit with a group name defined "
        )
    what, amounts = limit["limit"], configured_amounts(limit["maxresources"])
    if amounts and not any(amounts.values()):
        raise ConfigRefused(f"MaxResources should be greater than zero in '{what}' limit")
    if not amounts and not limit["maxapplications"]:
        raise ConfigRefused(
            f"invalid resource combination for limit {what} all resource limits are null"
        )
    if 0 < queue["maxapplications"] < limit["maxapplications"]:
        raise ConfigRefused(
            f"invalid MaxApplications settings for limit {what} exceed current the queue "
            "MaxApplications"
        )
    if queue["name"] != ROOT and _exceeds(amounts, _of(queue, "max", "parse queue %s max resource "
                                                       "failed: %s")):  # fmt: skip
        raise ConfigRefused(
            f"invalid MaxResources settings for limit {what} exeecd current the queue MaxResources"
        )


def _check_limit_names(kind: str, names: Iterable[str] | None, seen: set[str]) -> None:
    pattern = USER_NAME if kind == "user" else GROUP_NAME
    for name in names or ():
        if name != "*" and not pattern.fullmatch(name):
            raise ConfigRefused(f"invalid limit {kind} name '{name}' in limit definition")
        if name in seen:
            already = ", already exists" if kind == "user" else ""
            raise ConfigRefused(f"duplicated {kind} name '{name}'{already}")
        seen.add(name)
        if "*" in seen and name != "*":
            raise ConfigRefused(
                f"should not set no wildcard {kind} {name} after wildcard {kind} limit"
            )


class _LimitKind(NamedTuple):
    """What of a user's or group's limit is held against the same one's further up."""

    words: tuple[str, str]  # for the limit, and for the one above it
    read: Callable[[Fields], Any]
    exceeds: Callable[[Any, Any], bool]
    merge: Callable[[Any, Any], Any]  # with what is known from above
    show: Callable[[Any], str]


def _check_limits_downwards(
    queue: Fields, above: Mapping[tuple[str, str], Any], kind: _LimitKind
) -> None:
    """`above`: (user or group, name) -> the limit of the nearest queue above that has one."""
    own = dict(above)
    for limit in queue["limits"] or ():
        value = kind.read(limit)
        named = [("user", name) for name in limit["users"] or ()]
        named += [("group", name) for name in limit["groups"] or ()]
        for who, name in named:
            known, wildcard = above.get((who, name)), above.get((who, "*"))
            sentence = (
                f"{who} {name} {kind.words[0]} {kind.show(value)} of queue {queue['name']} is "
                "greater than "
            )
            if known is not None:
                if kind.exceeds(value, known):
                    raise ConfigRefused(
                        f"{sentence}immediate or ancestor parent {kind.words[1]} {kind.show(known)}"
                    )
            elif wildcard is not None and kind.exceeds(value, wildcard):
                raise ConfigRefused(
                    f"{sentence}wildcard {kind.words[1]} {kind.show(wildcard)} of immediate or "
                    "ancestor parent queue"
                )
            own[who, name] = value if known is None else kind.merge(value, known)
    for child in queue["queues"] or ():
        _check_limits_downwards(child, own, kind)


# --- amounts -------------------------------------------------------------------------------------


def _check_amounts(queue: Fields, above: _Amounts) -> _Amounts:
    """`above`: the tightest max of all queues above, by type. Returns what the queue's guarantee
    counts for further up: its own, or its children's where it has none."""
    name = queue["name"]
    guaranteed, own_max = _of(queue, "guaranteed"), _of(queue, "max")
    if _exceeds(guaranteed, own_max):
        raise ConfigRefused(
            f"guaranteed resource {go_map(guaranteed)} is larger than maximum resource "
            f"{go_map(own_max)} for queue {name}"
        )
    if _exceeds(own_max, above):
        raise ConfigRefused(
            f"max resource of parent {go_map(above)} is smaller than maximum resource "
            f"{go_map(own_max)} for queue {name}"
        )
    tightest = _tightest(own_max, above)
    children = total(_check_amounts(child, tightest) for child in queue["queues"] or ())
    for what, bound in (("guaranteed resource of parent", guaranteed), ("max resource", tightest)):
        if _exceeds(children, bound):
            raise ConfigRefused(
                f"{what} {go_map(bound)} is smaller than sum of guaranteed resources "
                f"{go_map(children)} of the children for queue {name}"
            )
    return guaranteed if any(guaranteed.values()) else children


def _of(queue: Fields, field: str, words: str = "") -> _Amounts:
    try:
        return configured_amounts(queue["resources"][field])
    except AmountError as error:
        raise ConfigRefused(words % (queue["name"], error) if words else str(error)) from error


def _exceeds(amounts: _Amounts, bounds: _Amounts) -> bool:
    """What a bound does not name is not bounded."""
    return any(amount > bounds[name] for name, amount in amounts.items() if name in bounds)


def _tightest(left: _Amounts, right: _Amounts) -> _Amounts:
    return {
        name: min(amounts[name] for amounts in (left, right) if name in amounts)
        for name in {**left, **right}
    }


def _check_max_applications(queue: Fields) -> None:
    own = queue["maxapplications"]
    for child in queue["queues"] or ():
        if 0 < own < child["maxapplications"]:
            raise ConfigRefused("parent maxApplications must be larger than child maxApplications")
        if own and not child["maxapplications"]:
            raise ConfigRefused(
                "maxApplications is either undefined or zero, which is not allowed when parent "
                "queue's maxApplications is defined"
            )
        _check_max_applications(child)


def _check_node_order(policy: Fields) -> None:
    if policy["type"] not in ("", "fair", "binpacking"):
        raise ConfigRefused(f"undefined policy: {policy['type']}")
    for name, weight in (policy["resourceweights"] or {}).items():
        if weight < 0:
            raise ConfigRefused(f"negative resource weight for {name} is not allowed")


# --- templates ------------------------------------------------------------------------------------


def _check_templates(queue: Fields) -> None:
    """Only those of parents are ever read, and only where something stands in them."""
    template = queue["childtemplate"]
    maps = [template["properties"], *template["resources"].values()]
    is_set = template["maxapplications"] or any(
        name and text for texts in maps for name, text in (texts or {}).items()
    )
    if is_set and (queue["parent"] or queue["queues"]):
        for texts in template["resources"].values():
            try:
                configured_amounts(texts)
            except AmountError as error:
                raise ConfigRefused(str(error)) from error
    for child in queue["queues"] or ():
        _check_templates(child)


# --- as Go prints it -----------------------------------------------------------------------------


def go_map(amounts: Mapping[str, Any]) -> str:
    """Prints a map as Go does, sorted by its keys."""
    return f"map[{' '.join(f'{name}:{amounts[name]}' for name in sorted(amounts))}]"


def _struct(limit: Fields) -> str:
    def listed(names: Iterable[str] | None) -> str:
        return f"[{' '.join(names or ())}]"

    return (
        f"{{{limit['limit']} {listed(limit['users'])} {listed(limit['groups'])} "
        f"{go_map(limit['maxresources'] or {})} {limit['maxapplications']}}}"
    )


_RESOURCE_LIMITS = _LimitKind(
    ("max resource", "maximum resource"),
    lambda limit: configured_amounts(limit["maxresources"]),
    _exceeds,
    _tightest,
    go_map,
)
_APPLICATION_LIMITS = _LimitKind(
    ("max applications", "max applications"),
    lambda limit: limit["maxapplications"],
    lambda value, known: known != 0 and (known < value or value == 0),
    lambda value, known: value,
    str,
)
