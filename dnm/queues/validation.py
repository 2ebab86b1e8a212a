"""What YuniKorn refuses of queues.yaml, on the whole tree: every violation, not the first.

The rules are those of pkg/common/configs/configvalidator.go of yunikorn-core, unchanged from 1.4 to
1.9, and what its validator lets pass and a start or a reload of the scheduler does not. Amounts are
in YuniKorn's units. A type that a map does not name is never compared: no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from dnm.model.quantity import INT64_MAX, QuantityError, format_amount, parse_yunikorn
from dnm.model.value import Resources
from dnm.queues.decode import RuleViolation
from dnm.queues.placement_rules import (
    GROUP_NAME,
    QUEUE_NAME,
    USER_NAME,
    check_placement_rules,
)
from dnm.queues.schema import Limit, Partition, Quantities, Queue, SchedulerConfig

Report = Callable[[str, str, int, str], None]
"""Takes a violation: rule, queue path, line, message."""

_WILDCARD = "*"


def is_default(partition: Partition) -> bool:
    """Tells whether it is the one partition that the Kubernetes shim uses."""
    return partition.name.lower() in ("", "default")


def default_partition(scheduler: SchedulerConfig) -> Partition | None:
    """Returns the partition that Kubernetes uses, if there is one."""
    return next(filter(is_default, scheduler.partitions or []), None)


def root_of(partition: Partition) -> Queue:
    """Returns the written root, or the one that YuniKorn puts above the top-level queues."""
    queues = partition.queues or []
    if len(queues) == 1 and queues[0].name.lower() == "root":
        return queues[0]
    root = Queue()
    root.name, root.line, root.queues = "root", partition.line, queues
    return root


def walk(root: Queue) -> Iterator[tuple[str, str | None, Queue]]:
    """Yields path, parent's path, queue; parents before children; paths in lower case."""
    stack: list[tuple[str, str | None, Queue]] = [("root", None, root)]
    while stack:
        path, parent, queue = stack.pop()
        yield path, parent, queue
        children = [(f"{path}.{child.name.lower()}", path, child) for child in queue.queues or []]
        stack.extend(reversed(children))


def amounts_of(quantities: Quantities | None) -> dict[str, int]:
    """Returns what can be read of a limit, in YuniKorn's units; what can't is a violation of its
    own (`_check_quantities`)."""
    amounts = {}
    for resource, quantity in (quantities or {}).items():
        try:
            amounts[resource] = parse_yunikorn(resource, quantity.text)
        except QuantityError:
            continue
    return amounts


def validate(scheduler: SchedulerConfig) -> tuple[RuleViolation, ...]:
    """Returns every violation, in the order of lines; none if and only if YuniKorn starts with the
    decoded configuration and reloads it."""
    found: list[RuleViolation] = []

    def report(rule: str, queue: str, line: int, message: str) -> None:
        found.append(RuleViolation(rule=rule, queue=queue, line=line, message=message))

    seen: dict[str, int] = {}
    for partition in scheduler.partitions or []:
        name = "default" if is_default(partition) else partition.name.lower()
        if name in seen:
            report("partition", "", partition.line, f"partition {name} is written twice")
        seen[name] = partition.line
        _check_partition(partition, report)
    return tuple(sorted(found, key=lambda violation: violation.line))


def _check_partition(partition: Partition, report: Report) -> None:
    if partition.queues is None:
        report("structure", "", partition.line, "the partition has no `queues`")
        return
    root = root_of(partition)
    if root.name != "root":
        message = f"YuniKorn can't start with a root written {root.name!r}"
        report("root", "root", root.line, message)
    resources = root.resources
    if resources.max is not None or resources.guaranteed is not None:
        message = "root can't have limits, not even empty ones: its size is that of the cluster"
        report("root", "root", resources.line, message)
    root_limits = _root_limits(partition, root, report)
    for path, _, queue in walk(root):
        _check_names(path, queue, report)
        limits = root_limits if queue is root else queue.limits or []
        _check_quantities(path, queue, limits, report)
        _check_limits(path, queue, limits, report)
        if queue is root or queue.parent or queue.queues:
            _check_template(path, queue, report)
    _check_resources(root, report)
    check_placement_rules(partition, root, report)
    _check_node_order(partition, report)
    _check_limits_below(root, root_limits, report)


def _root_limits(partition: Partition, root: Queue, report: Report) -> list[Limit]:
    """A partition's limits are root's; where both are written they must be the same."""
    own, above = root.limits or [], partition.limits or []
    if own and above and [_plain(limit) for limit in own] != [_plain(limit) for limit in above]:
        message = "the limits of the partition and of root differ: write them in one place"
        report("limits", "root", root.line, message)
    return own or above


def _plain(limit: Limit) -> tuple[object, ...]:
    texts = {name: quantity.text for name, quantity in (limit.maxresources or {}).items()}
    return (limit.limit, limit.users, limit.groups, texts, limit.maxapplications)


def _check_names(path: str, queue: Queue, report: Report) -> None:
    for field, acl in (("adminacl", queue.adminacl), ("submitacl", queue.submitacl)):
        # The validator counts words, the scheduler that starts counts single spaces.
        if len(acl.split()) > 2 or acl.count(" ") > 1:
            message = f"{path}: {field} is more than users, one space, groups: {acl[:60]!r}"
            report("acl", path, queue.line, message)
    seen: set[str] = set()
    for child in queue.queues or []:
        name = child.name.lower()
        if not QUEUE_NAME.match(child.name):
            message = f"{child.name!r} below {path} is no queue name"
            report("name", path, child.line, message)
        if name in seen:
            report("name", path, child.line, f"{path}.{name} is written twice (case is ignored)")
        seen.add(name)
        if queue.maxapplications and not child.maxapplications:
            message = f"{path}.{name} needs maxapplications: {path} has {queue.maxapplications}"
            report("maxapplications", f"{path}.{name}", child.line, message)
        elif queue.maxapplications and child.maxapplications > queue.maxapplications:
            message = (
                f"maxapplications {child.maxapplications} of {path}.{name} is larger than "
                f"{queue.maxapplications} of {path}"
            )
            report("maxapplications", f"{path}.{name}", child.line, message)


def _check_quantities(path: str, queue: Queue, limits: list[Limit], report: Report) -> None:
    """Every value of max, guaranteed and the user limits in YuniKorn's grammar."""
    maps = [("max", queue.resources.max), ("guaranteed", queue.resources.guaranteed)]
    maps += [("maxresources", limit.maxresources) for limit in limits]
    for kind, quantities in maps:
        for resource, quantity in (quantities or {}).items():
            try:
                parse_yunikorn(resource, quantity.text)
            except QuantityError as error:
                message = f"{path}: {kind} {resource} {quantity.text!r}: {error}"
                report("quantity", path, quantity.node.line, message)


def _check_template(path: str, queue: Queue, report: Report) -> None:
    """Amounts for dynamic queues: the validator passes over them, a start reads them, unless all
    of the template is empty."""
    template = queue.childtemplate
    maps = (template.resources.max, template.resources.guaranteed)
    properties = (template.properties or {}).items()
    amounts = [(key, one.text) for quantities in maps for key, one in (quantities or {}).items()]
    if not template.maxapplications and not any(
        key and text for key, text in [*properties, *amounts]
    ):
        return
    for quantities in maps:
        for resource, quantity in (quantities or {}).items():
            try:
                parse_yunikorn(resource, quantity.text)
            except QuantityError as error:
                message = f"{path}: childtemplate {resource} {quantity.text!r}: {error}"
                report("template", path, quantity.node.line, message)


def _check_resources(root: Queue, report: Report) -> None:
    """R1 to R4. Bounds go down the tree, guarantees come up."""
    order = list(walk(root))
    bounds: dict[str, Mapping[str, int]] = {}  # tightest max of the queue and all above it
    guaranteed: dict[str, Resources] = {}
    sums: dict[str, dict[str, int]] = {path: {} for path, _, _ in order}
    nothing: Mapping[str, int] = {}
    for path, parent, queue in order:
        above = bounds[parent] if parent else nothing
        own = amounts_of(queue.resources.max)
        floor = guaranteed[path] = amounts_of(queue.resources.guaranteed)
        for resource, amount, limit in _larger(floor, own):
            line = _line_of(queue, queue.resources.guaranteed, resource)
            message = f"guaranteed {_pair(resource, amount, 'its max', limit)}"
            report("R1", path, line, f"{path}: {message}")
        for resource, amount, limit in _larger(own, above):
            line = _line_of(queue, queue.resources.max, resource)
            message = f"max {_pair(resource, amount, 'the max of a queue above it', limit)}"
            report("R2", path, line, f"{path}: {message}")
        bounds[path] = _tightest(own, above) if own else above
    for path, parent, queue in reversed(order):
        total, written = sums[path], queue.resources
        for rule, kind, limits, quantities in (
            ("R3", "its guaranteed", guaranteed[path], written.guaranteed),
            ("R4", "the tightest max up to root", bounds[path], written.max),
        ):
            for resource, amount, limit in _larger(total, limits):
                line = _line_of(queue, quantities, resource)
                message = f"the children's guaranteed {_pair(resource, amount, kind, limit)}"
                report(rule, path, line, f"{path}: {message}")
        if parent:
            passed_up = guaranteed[path] if any(guaranteed[path].values()) else total
            _add(sums[parent], passed_up)


def _line_of(queue: Queue, quantities: Quantities | None, resource: str) -> int:
    """Of the number itself, or of the queue where it is not the one that has it."""
    quantity = (quantities or {}).get(resource)
    return quantity.node.line if quantity else queue.resources.line or queue.line


def _larger(amounts: Resources, limits: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    for resource, amount in amounts.items():
        limit = limits.get(resource)
        if limit is not None and amount > limit:
            yield resource, amount, limit


def _pair(resource: str, amount: int, whose: str, limit: int) -> str:
    larger, smaller = format_amount(resource, amount), format_amount(resource, limit)
    return f"{resource} {larger} is larger than {whose}, {smaller}"


def _tightest(own: Mapping[str, int], above: Mapping[str, int]) -> Mapping[str, int]:
    bound = dict(above)
    for resource, amount in own.items():
        bound[resource] = min(amount, bound.get(resource, amount))
    return bound


def _add(total: dict[str, int], amounts: Resources) -> None:
    for resource, amount in amounts.items():
        total[resource] = min(total.get(resource, 0) + amount, INT64_MAX)


# --- limits of users and groups ----------------------------------------------------------------


def _check_limits(path: str, queue: Queue, limits: list[Limit], report: Report) -> None:
    """One queue's list: names, order, amounts, and L1 against the queue's own max."""
    own_max = {} if queue.name == "root" else amounts_of(queue.resources.max)
    users: set[str] = set()
    groups: set[str] = set()
    for limit in limits:

        def complain(message: str, limit: Limit = limit, rule: str = "limits") -> None:
            report(rule, path, limit.line, f"{path}: limit {limit.limit!r}: {message}")

        if not limit.users and not limit.groups:
            complain("names no user and no group")
        _check_who("user", limit.users or [], users, USER_NAME, complain)
        _check_who("group", limit.groups or [], groups, GROUP_NAME, complain)
        if groups == {_WILDCARD}:
            complain("the group wildcard needs a limit for a named group before it")
        amounts = amounts_of(limit.maxresources)
        if (
            limit.maxresources
            and len(amounts) == len(limit.maxresources)
            and not any(amounts.values())
        ):
            complain("maxresources needs a value above zero")
        if not limit.maxresources and not limit.maxapplications:
            complain("has neither maxresources nor maxapplications")
        if queue.maxapplications and limit.maxapplications > queue.maxapplications:
            complain(
                f"maxapplications {limit.maxapplications} is larger than the queue's "
                f"{queue.maxapplications}"
            )
        for resource, amount, most in _larger(amounts, own_max):
            complain(_pair(resource, amount, "the queue's max", most), rule="L1")


def _check_who(
    kind: str,
    names: list[str],
    seen: set[str],
    pattern: re.Pattern[str],
    complain: Callable[[str], None],
) -> None:
    for name in names:
        if name != _WILDCARD and not pattern.match(name):
            complain(f"{name!r} is no {kind} name")
        if name in seen:
            complain(f"{kind} {name!r} has a limit in this queue already")
        seen.add(name)
        if _WILDCARD in seen and name != _WILDCARD:
            complain(f"{kind} {name!r} comes after the wildcard")


def _check_limits_below(root: Queue, root_limits: list[Limit], report: Report) -> None:
    """L2: nobody may have more than a queue above grants, by name or by the wildcard."""
    granted: dict[str, dict[str, tuple[Resources, int]]] = {}
    for path, parent, queue in walk(root):
        above = granted[parent] if parent else {}
        own = dict(above)
        for limit in root_limits if queue is root else queue.limits or []:
            amounts = amounts_of(limit.maxresources)
            names = [f"user {name}" for name in limit.users or []]
            names += [f"group {name}" for name in limit.groups or []]
            for name in names:
                most = above.get(name)
                is_named = most is not None
                most = most or above.get(f"{name.split(' ')[0]} {_WILDCARD}")
                if most is not None:
                    _check_grant(path, limit, name, (amounts, most), report)
                bounded = _tightest(amounts, most[0]) if is_named and most else amounts
                own[name] = (bounded, limit.maxapplications)
        granted[path] = own


def _check_grant(
    path: str,
    limit: Limit,
    name: str,
    grants: tuple[Resources, tuple[Resources, int]],
    report: Report,
) -> None:
    amounts, (most, applications) = grants
    for resource, amount, bound in _larger(amounts, most):
        message = _pair(resource, amount, "what a queue above grants", bound)
        report("L2", path, limit.line, f"{path}: {name}: {message}")
    if applications and (limit.maxapplications > applications or not limit.maxapplications):
        message = f"maxapplications {limit.maxapplications} exceeds {applications} of a queue above"
        report("L2", path, limit.line, f"{path}: {name}: {message}")


def _check_node_order(partition: Partition, report: Report) -> None:
    policy = partition.nodesortpolicy
    if policy.type not in ("", "fair", "binpacking"):
        report("nodesortpolicy", "", policy.line, f"{policy.type!r}: fair and binpacking exist")
    for resource, weight in (policy.resourceweights or {}).items():
        if weight < 0:
            report("nodesortpolicy", "", policy.line, f"the weight of {resource} is negative")
