"""Replacement of single numbers in the text of a queue document. Every other character stays.

dnm refuses, with the line, a number that it can't change alone (aliased or escaped). It parses the
new text before it writes it, and checks that only the intended numbers differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dnm.model.errors import QueueError
from dnm.model.value import Value
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace, check_rules, read_tree
from dnm.queues.yunikorn.yaml_nodes import YamlNode, digits_of


class EditedText(Value):
    """A queue document with new numbers that has not been parsed yet. `shape`: the content that a
    parser must find in it. `violations`: the YuniKorn rules that the new numbers break."""

    text: str
    shape: list[object]
    violations: tuple[RuleViolation, ...]


def replace_limits(tree: DocumentTree, texts: Mapping[LimitPlace, str]) -> EditedText:
    """Returns the queue document with new numbers for these limits. Every other character stays.

    Raises QueueError, with the line, if a number can't be changed alone."""
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
        shape=shape,
        violations=_judge_with(tree, texts),
    )


def read_again(edited: EditedText) -> DocumentTree:
    """Parses an edited document and returns its tree. Raises QueueError if its content is not the
    expected one."""
    tree, problems = read_tree(edited.text)
    if tree is None or problems or tree.shape != edited.shape:
        raise QueueError("the edited queue document would have another meaning: nothing is changed")
    return tree


def why_not_changeable(tree: DocumentTree, place: LimitPlace) -> str | None:
    """Returns why dnm can't replace this number in the text, or None if it can."""
    quantity = tree.places[place]
    where = f"line {quantity.node.line}: {place.kind} {place.resource} of {place.queue}"
    if quantity.is_shared:
        return f"{where} is used elsewhere by an alias (`*`, `<<`). Write it out in both places"
    if digits_of(tree.text, quantity.node) is None:
        return f"{where} is written with escapes or over several lines. Write it plainly"
    return None


def _judge_with(tree: DocumentTree, texts: Mapping[LimitPlace, str]) -> tuple[RuleViolation, ...]:
    """Returns the rules that the queues would violate with these limits. Sets the limits in the
    tree for that, and restores the old ones afterwards."""
    before = {place: tree.places[place].text for place in texts}
    try:
        for place, text in texts.items():
            tree.places[place].text = text
        return check_rules(tree)
    finally:
        for place, text in before.items():
            tree.places[place].text = text


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
    """Returns the new number with the line end that a block scalar has after its number."""
    core = before.strip()
    return before.replace(core, text.strip()) if before != core else text
