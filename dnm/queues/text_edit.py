"""Single numbers of the document replaced, and every other character left as it is.

What could not be changed alone (an aliased value, an escaped one) is refused with its line. The
text is read again before it counts, and must be the same document but for these numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from dnm.model.errors import QueueError
from dnm.model.queue_path import lineage
from dnm.model.value import Value
from dnm.queues.schema import Quantities, Quantity, Queue, SchedulerConfig
from dnm.queues.tree import DocumentTree, LimitPlace, read_tree
from dnm.queues.validation import default_partition, root_of
from dnm.queues.yaml_nodes import YamlNode, digits_of


class EditedText(Value):
    """A text with other numbers that has not been read again yet; `scheduler` and `shape` are what
    it must then read as."""

    text: str
    scheduler: SchedulerConfig
    shape: list[object]


def replace_limits(tree: DocumentTree, texts: Mapping[LimitPlace, str]) -> EditedText:
    """Returns the document with other numbers at these places and every other character as it was.

    Raises QueueError, with the line, where a number can't be changed alone.
    """
    if tree.refusal:
        raise QueueError(f"the queue document can't be edited: {tree.refusal}")
    nodes: list[tuple[YamlNode, str]] = []
    for place, text in texts.items():
        problem = why_not_changeable(tree, place)
        if problem:
            raise QueueError(f"the queue document can't be edited: {problem}")
        nodes.append((tree.places[place].node, text))
    shape = list(tree.shape)
    for node, text in nodes:
        shape[node.shape_index] = _like_scalar(str(shape[node.shape_index]), text)
    return EditedText(
        text="".join(_spliced(tree.text, nodes)),
        scheduler=_with_texts(tree.scheduler, texts),
        shape=shape,
    )


def read_again(edited: EditedText) -> DocumentTree:
    """Returns the tree of the new text. Raises QueueError where it is not the document that it
    should be."""
    tree, problems = read_tree(edited.text)
    if tree is None or problems or tree.shape != edited.shape:
        raise QueueError(
            "the edited queue document would not read as it should: nothing is changed"
        )
    return tree


def why_not_changeable(tree: DocumentTree, place: LimitPlace) -> str | None:
    """Returns why this one number can't be changed alone."""
    quantity = tree.places[place]
    where = f"line {quantity.node.line}: {place.kind} {place.resource} of {place.queue}"
    if quantity.is_shared:
        return f"{where} is used elsewhere by an alias (`*`, `<<`); write it out in both places"
    if digits_of(tree.text, quantity.node) is None:
        return f"{where} is written with escapes or over several lines; write it plainly"
    return None


def _with_texts(scheduler: SchedulerConfig, texts: Mapping[LimitPlace, str]) -> SchedulerConfig:
    """A copy of the default partition's queues that change; all else is shared."""
    partition = default_partition(scheduler)
    assert partition is not None
    changes: dict[str, dict[str, dict[str, str]]] = {}  # queue -> kind -> resource -> text
    for place, text in texts.items():
        for path in lineage(place.queue):
            changes.setdefault(path, {})
        changes[place.queue].setdefault(place.kind, {})[place.resource] = text
    root = root_of(partition)
    queues = _queues_with(root, "root", changes)
    if partition.queues and partition.queues[0] is root:
        root = copy.copy(root)
        root.queues = queues
        queues = [root]
    changed = copy.copy(partition)
    changed.queues = queues
    made = copy.copy(scheduler)
    made.partitions = [changed if one is partition else one for one in scheduler.partitions or []]
    return made


def _queues_with(
    parent: Queue, path: str, changes: Mapping[str, Mapping[str, Mapping[str, str]]]
) -> list[Queue]:
    """The queues below a parent, those that change copied."""
    return [
        _queue_with(queue, below, changes) if below in changes else queue
        for queue in parent.queues or []
        for below in (f"{path}.{queue.name.lower()}",)
    ]


def _queue_with(
    queue: Queue, path: str, changes: Mapping[str, Mapping[str, Mapping[str, str]]]
) -> Queue:
    made = copy.copy(queue)
    made.resources = copy.copy(queue.resources)
    for kind, texts in changes[path].items():
        quantities: Quantities = dict(getattr(queue.resources, kind))
        for resource, text in texts.items():
            before = quantities[resource]
            quantities[resource] = Quantity(text, before.node, before.is_shared)
        setattr(made.resources, kind, quantities)
    if queue.queues:
        made.queues = _queues_with(queue, path, changes)
    return made


def _spliced(text: str, nodes: list[tuple[YamlNode, str]]) -> Iterator[str]:
    done = 0
    for node, new in sorted(nodes, key=lambda pair: pair[0].start):
        span = digits_of(text, node)
        assert span is not None
        start, end = span
        yield text[done:start]
        yield new if node.style not in ("|", ">") else new.strip()
        done = end
    yield text[done:]


def _like_scalar(before: str, text: str) -> str:
    """A block scalar keeps the line end behind its number."""
    core = before.strip()
    return before.replace(core, text.strip()) if before != core else text
