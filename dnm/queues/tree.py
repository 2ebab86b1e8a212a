"""The queue document as a tree: every queue, its limits, and where each number is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dnm.host.collection import without_collection
from dnm.model.cluster import QueueLimits
from dnm.model.errors import QueueError
from dnm.model.value import Resources, Value
from dnm.queues.decode import (
    Partition,
    Quantity,
    Queue,
    RuleViolation,
    SchedulerConfig,
    decode,
    violation_of,
)
from dnm.queues.validation import amounts_of, default_partition, root_of, validate, walk
from dnm.queues.yaml_nodes import Composed, YamlError, compose

KINDS = ("max", "guaranteed")
_MOST_TOLD = 3  # of what can't be read


class LimitPlace(NamedTuple):
    """One number of the document: a queue's path, `max` or `guaranteed`, the resource's name."""

    queue: str
    kind: str
    resource: str


class DocumentTree(Value):
    """A document that YuniKorn can read; whether it is valid says `check_rules`.

    `queues`: the limits of the default partition's queues, by lower-case path, root included and
    parents first. `written`: the same queues as the document has them. `places`: every limit of
    them, root's excluded. `shape`: all that was read, see `Composed`. `refusal`: why no limit at
    all may be edited.
    """

    text: str
    scheduler: SchedulerConfig
    shape: list[object]
    refusal: str | None
    queues: dict[str, QueueLimits]
    written: dict[str, Queue]
    places: dict[LimitPlace, Quantity]

    @property
    def partition(self) -> Partition | None:
        """The partition that Kubernetes uses."""
        return default_partition(self.scheduler)


def parse_tree(text: str) -> DocumentTree:
    """Returns the tree of a text. Raises QueueError, with lines, for what YuniKorn itself could not
    read."""
    tree, problems = read_tree(text)
    if tree is None or problems:
        told = [f"line {found.line}: {found.message}" for found in problems[:_MOST_TOLD]]
        if more := problems[_MOST_TOLD:]:
            told.append(f"and {len(more)} more")
        raise QueueError(f"the queue document can't be read: {'; '.join(told)}")
    return tree


def check_rules(tree: DocumentTree) -> tuple[RuleViolation, ...]:
    """Applies the rules that an edit of limits can break; empty: none is broken."""
    return validate(tree.scheduler)


def read_tree(text: str) -> tuple[DocumentTree | None, tuple[RuleViolation, ...]]:
    """Returns the tree (None: the text is no YAML) and why YuniKorn could not read it (empty: it
    could)."""
    try:
        with without_collection():
            composed = compose(text)
            scheduler, problems = decode(composed.root)
    except YamlError as error:
        return None, (violation_of(error),)
    except RecursionError:
        return None, (violation_of(YamlError(1, "nested too deep")),)
    if composed.root is not None and scheduler.partitions is None and not problems:
        # Something else was put in its place: a run says so, also where it has nothing to change.
        message = "it has no `partitions`, so it is no configuration of YuniKorn"
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
    """YuniKorn takes a limit that is zero throughout for none (`setResources` of queue.go)."""
    return amounts if any(amounts.values()) else {}


def _why_not_editable(scheduler: SchedulerConfig, has_more_documents: bool) -> str | None:
    if has_more_documents:
        return (
            "the text holds several YAML documents (`---`), of which YuniKorn reads only the "
            "first; remove the others"
        )
    partition = default_partition(scheduler)
    if partition is None:
        return (
            "there is no partition `default`, and so no queue for Kubernetes: never apply it, a "
            "YuniKorn that reloads it ends every application and may hang"
        )
    for path, parent, queue in walk(root_of(partition)):
        if parent is not None and queue.name.lower() == "root":
            return (
                f"line {queue.line}: {path} is named like root, so YuniKorn ignores its limits at "
                "run time; rename it"
            )
    return None
