"""The queue document as a tree: every queue, its limits, and the position of each number. Also the
violations of those YuniKorn rules that an edit of max and guaranteed can break. YuniKorn itself
checks its other rules, which no edit affects.

The rules are those of pkg/common/configs/configvalidator.go of yunikorn-core, unchanged from 1.4 to
1.9. Amounts are in YuniKorn's units. A resource that a limit does not name is unlimited."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from dnm.host.collection import without_collection
from dnm.model.cluster import QueueLimits
from dnm.model.errors import QueueError
from dnm.model.quantity import INT64_MAX, QuantityError
from dnm.model.value import Resources, Value
from dnm.queues.yunikorn.decode import (
    Partition,
    Quantities,
    Quantity,
    Queue,
    RuleViolation,
    SchedulerConfig,
    decode,
    violation_of,
)
from dnm.queues.yunikorn.quantities import format_amount, parse_yunikorn
from dnm.queues.yunikorn.yaml_nodes import Composed, YamlError, compose

KINDS = ("max", "guaranteed")
_MOST_PROBLEMS = 3  # problems in one message
_QUEUE_NAME = re.compile(r"[a-zA-Z0-9_:#/@-]{1,64}\Z")

Report = Callable[[str, str, int, str], None]
"""Receives a violation: rule, queue path, line, message."""


class LimitPlace(NamedTuple):
    """The name of one limit: queue path, kind (`max` or `guaranteed`) and resource."""

    queue: str
    kind: str
    resource: str


class DocumentTree(Value):
    """A queue document that YuniKorn can read; `check_rules` decides whether it is valid.

    `queues`: the limits of the default partition's queues, by lower-case path, root included and
    parents first. `written`: the same queues as the document defines them. `places`: every limit
    except root's. `shape`: the document's content, see `Composed`. `refusal`: why no limit may be
    edited."""

    text: str
    scheduler: SchedulerConfig
    shape: list[object]
    refusal: str | None
    queues: dict[str, QueueLimits]
    written: dict[str, Queue]
    places: dict[LimitPlace, Quantity]

    @property
    def partition(self) -> Partition | None:
        """Returns the partition with the queues of Kubernetes, or None if the document lacks it."""
        return default_partition(self.scheduler)


def parse_tree(text: str) -> DocumentTree:
    """Returns the tree of a queue document. Raises QueueError, with lines, if it is unreadable."""
    tree, problems = read_tree(text)
    if tree is None or problems:
        messages = [
            f"line {violations.line}: {violations.message}"
            for violations in problems[:_MOST_PROBLEMS]
        ]
        if more := problems[_MOST_PROBLEMS:]:
            messages.append(f"and {len(more)} more")
        raise QueueError(f"the queue document can't be read: {'; '.join(messages)}")
    return tree


def read_tree(text: str) -> tuple[DocumentTree | None, tuple[RuleViolation, ...]]:
    """Returns a queue document as a tree (None: it is not YAML), and the reasons why YuniKorn could
    not read it (none if it can)."""
    try:
        with without_collection():
            composed = compose(text)
            scheduler, problems = decode(composed.root)
    except YamlError as error:
        return None, (violation_of(error),)
    except RecursionError:
        return None, (violation_of(YamlError(1, "nested too deep")),)
    if composed.root is not None and scheduler.partitions is None and not problems:
        # Another text has replaced the document. A run reports this even if nothing would change.
        message = "it has no `partitions`, so it is not a configuration of YuniKorn"
        problems = (violation_of(YamlError(1, message, "dialect")),)
    return _tree_of(text, scheduler, composed), problems


def _tree_of(text: str, scheduler: SchedulerConfig, composed: Composed) -> DocumentTree:
    tree = DocumentTree(
        text=text,
        scheduler=scheduler,
        shape=composed.shape,
        refusal=_why_not_editable(scheduler, composed.has_more_documents),
        queues={},
        written={},
        places={},
    )
    if tree.partition is not None:
        for path, parent, queue in walk(root_of(tree.partition)):
            tree.written[path] = queue
            tree.queues[path] = _limits_of(path, parent, queue)
            if parent is not None:
                tree.places.update(_places_of(path, queue))
    return tree


def _limits_of(path: str, parent: str | None, queue: Queue) -> QueueLimits:
    return QueueLimits(
        path=path,
        parent=parent,
        is_leaf=not queue.queues and not queue.parent and parent is not None,
        max=_unless_zero(amounts_of(queue.resources.max)),
        guaranteed=_unless_zero(amounts_of(queue.resources.guaranteed)),
    )


def _places_of(path: str, queue: Queue) -> Iterator[tuple[LimitPlace, Quantity]]:
    for kind, quantities in queue.resources.kinds:
        for resource, quantity in quantities.items():
            yield LimitPlace(path, kind, resource), quantity


def _unless_zero(amounts: Resources) -> Resources:
    """Returns the limit, or an empty one if it is zero in all resources, which YuniKorn ignores
    (`setResources` of queue.go)."""
    return amounts if any(amounts.values()) else {}


def _why_not_editable(scheduler: SchedulerConfig, has_more_documents: bool) -> str | None:
    if has_more_documents:
        return (
            "the text contains several YAML documents (`---`), of which YuniKorn reads only the "
            "first. Remove the others"
        )
    partition = default_partition(scheduler)
    if partition is None:
        return (
            "there is no partition `default`, and so no queue for Kubernetes. Never apply it: a "
            "YuniKorn that reloads it ends every application and may hang"
        )
    for path, parent, queue in walk(root_of(partition)):
        if parent is not None and queue.name.lower() == "root":
            return (
                f"line {queue.line}: {path} is named like root, so YuniKorn ignores its limits at "
                "run time. Rename it"
            )
    return None


def default_partition(scheduler: SchedulerConfig) -> Partition | None:
    """Returns the partition that the Kubernetes shim uses, or None if the document lacks it."""
    partitions = scheduler.partitions or []
    return next(
        (partition for partition in partitions if partition.name.lower() in ("", "default")), None
    )


def root_of(partition: Partition) -> Queue:
    """Returns the document's root queue, or the one that YuniKorn adds above the other queues."""
    queues = partition.queues or []
    if len(queues) == 1 and queues[0].name.lower() == "root":
        return queues[0]
    root = Queue()
    root.name, root.line, root.queues = "root", partition.line, queues
    return root


def walk(root: Queue) -> Iterator[tuple[str, str | None, Queue]]:
    """Yields (lower-case path, parent's path, queue) of each queue, parents before children."""
    stack: list[tuple[str, str | None, Queue]] = [("root", None, root)]
    while stack:
        path, parent, queue = stack.pop()
        yield path, parent, queue
        children = [(f"{path}.{child.name.lower()}", path, child) for child in queue.queues or []]
        stack.extend(reversed(children))


def amounts_of(quantities: Quantities | None) -> dict[str, int]:
    """Returns the amounts of a limit, in YuniKorn's units. Omits invalid ones, which
    `_check_quantities` reports."""
    amounts = {}
    for resource, quantity in (quantities or {}).items():
        try:
            amounts[resource] = parse_yunikorn(resource, quantity.text)
        except QuantityError:
            continue
    return amounts


# --- YuniKorn's rules ----------------------------------------------------------------------------


def check_rules(tree: DocumentTree) -> tuple[RuleViolation, ...]:
    """Returns each violation of a YuniKorn rule in Kubernetes' partition, in the order of lines."""
    violations: list[RuleViolation] = []

    def report(rule: str, queue: str, line: int, message: str) -> None:
        violations.append(RuleViolation(rule=rule, queue=queue, line=line, message=message))

    if tree.partition is not None:
        root = root_of(tree.partition)
        for path, _, queue in walk(root):
            _check_names(path, queue, report)
            _check_quantities(path, queue, report)
            _check_limits(path, queue, report)
        _check_resources(root, report)
    return tuple(sorted(violations, key=lambda violation: violation.line))


def _check_names(path: str, queue: Queue, report: Report) -> None:
    """Checks that the children of a queue have valid and different names."""
    seen: set[str] = set()
    for child in queue.queues or []:
        name = child.name.lower()
        if not _QUEUE_NAME.match(child.name):
            message = f"{child.name!r} below {path} is not a valid queue name"
            report("name", path, child.line, message)
        if name in seen:
            report("name", path, child.line, f"{path}.{name} is written twice (case is ignored)")
        seen.add(name)


def _check_quantities(path: str, queue: Queue, report: Report) -> None:
    """Checks that max, guaranteed and the limits of users obey YuniKorn's grammar."""
    of_users = (("maxresources", limit.maxresources or {}) for limit in queue.limits or [])
    for kind, quantities in (*queue.resources.kinds, *of_users):
        for resource, quantity in quantities.items():
            try:
                parse_yunikorn(resource, quantity.text)
            except QuantityError as error:
                message = f"{path}: {kind} {resource} {quantity.text!r}: {error}"
                report("quantity", path, quantity.node.line, message)


def _check_limits(path: str, queue: Queue, report: Report) -> None:
    """Checks rule L1: no user or group may have more than the queue's own max."""
    own_max = {} if path == "root" else amounts_of(queue.resources.max)
    for limit in queue.limits or []:
        for resource, amount, most in _larger(amounts_of(limit.maxresources), own_max):
            pair = _pair(resource, amount, "the queue's max", most)
            report("L1", path, limit.line, f"{path}: limit {limit.limit!r}: {pair}")


def _check_resources(root: Queue, report: Report) -> None:
    """Checks R1: guaranteed is at most max; R2: max is at most the ancestors' max; R3, R4: the
    children's guarantees are in sum at most the queue's guaranteed and its tightest max."""
    order = list(walk(root))
    bounds: dict[str, Mapping[str, int]] = {}  # tightest max of the queue and its ancestors
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
        bounds[path] = tightest(own, above) if own else above
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
    """Returns the line of a limit's number, or of the queue if it lacks the number."""
    quantity = (quantities or {}).get(resource)
    return quantity.node.line if quantity else queue.resources.line or queue.line


def _larger(amounts: Resources, limits: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    for resource, amount in amounts.items():
        limit = limits.get(resource)
        if limit is not None and amount > limit:
            yield resource, amount, limit


def _pair(resource: str, amount: int, owner: str, limit: int) -> str:
    larger, smaller = format_amount(resource, amount), format_amount(resource, limit)
    return f"{resource} {larger} is larger than {owner}, {smaller}"


def tightest(own: Mapping[str, int], above: Mapping[str, int]) -> Mapping[str, int]:
    """Returns for each resource the smallest max of a queue and its ancestors."""
    bound = dict(above)
    for resource, amount in own.items():
        bound[resource] = min(amount, bound.get(resource, amount))
    return bound


def _add(total: dict[str, int], amounts: Resources) -> None:
    for resource, amount in amounts.items():
        total[resource] = min(total.get(resource, 0) + amount, INT64_MAX)
