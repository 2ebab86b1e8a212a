"""A search for code that decides by a sentence: it compares or splits a text made for people.

The check follows constants and functions by their names through all files, since a sentence is
often defined in one file and compared in another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tests.trees import nodes_below

_METHODS = frozenset(
    ("startswith", "endswith", "removeprefix", "removesuffix", "split", "rsplit", "partition",
     "rpartition", "replace", "find", "index", "count")
)  # fmt: skip
_PUNCTUATION = re.compile(r"(?:[a-z ]+)?[:;.!?] ")  # it joins the parts of a sentence
_FIELD = re.compile(r"[a-z]+=\S* ?")  # of a log line
_GAP = "\0"  # instead of a value in an f-string


class Comparison(NamedTuple):
    """A place in a file that compares a sentence, and that sentence."""

    line: int
    text: str


def find_comparisons(trees: Mapping[str, ast.Module]) -> dict[str, list[Comparison]]:
    """Returns module -> the compared sentences, or parts of sentences, in it."""
    worded = {module: _worded_names(tree) for module, tree in trees.items()}
    return {
        module: list(_of_module(tree, worded[module] | _imported(tree, worded)))
        for module, tree in trees.items()
    }


def is_sentence(text: str) -> bool:
    """Returns whether a text looks like a sentence: several words in one line."""
    words = len(re.findall("[A-Za-z]{2,}", text))
    return words > 1 and " " in text.strip() and "\n" not in text


def _worded_names(tree: ast.Module) -> dict[str, str]:
    """Returns constant or function -> the sentence that it is or returns, for one module."""
    names: dict[str, str] = {}
    for node in nodes_below(tree):
        if isinstance(node, ast.Assign) and node in tree.body:
            for text in filter(is_sentence, _texts_of(node.value)):
                names |= {name.id: text for name in node.targets if isinstance(name, ast.Name)}
        elif isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or node) == "str":
            for part in nodes_below(node):
                if isinstance(part, ast.Return) and part.value is not None:
                    for text in filter(is_sentence, _texts_of(part.value)):
                        names[node.name] = text
    return names


def _imported(tree: ast.Module, worded: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {
        alias.name: worded[module][alias.name]
        for node in nodes_below(tree)
        if isinstance(node, ast.ImportFrom) and (module := node.module or "") in worded
        for alias in node.names
        if alias.name in worded[module]
    }


def _of_module(tree: ast.Module, names: Mapping[str, str]) -> Iterator[Comparison]:
    for node in nodes_below(tree):
        if isinstance(node, ast.Compare):
            for operand in (node.left, *node.comparators):
                yield from _sentences_in(operand, names)
            if any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops):
                yield from _searched_fields(node.left)
                yield from _searched_errors(node.comparators)
            if not any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops):
                yield from _compared_errors(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            for operand in node.args if node.func.attr in _METHODS else ():
                yield from _sentences_in(operand, names)
                yield from _searched_fields(operand)
                yield from _separators(operand)


def _sentences_in(operand: ast.expr, names: Mapping[str, str]) -> Iterator[Comparison]:
    for value in _elements(operand):
        name = value.func if isinstance(value, ast.Call) else value
        if isinstance(name, ast.Name) and name.id in names:
            yield Comparison(value.lineno, names[name.id])
        for text in filter(is_sentence, _texts_of(value)):
            yield Comparison(value.lineno, text)


def _searched_errors(operands: Iterable[ast.expr]) -> Iterator[Comparison]:
    for operand in operands:
        if re.fullmatch(r"str\(\w*error\w*\)", ast.unparse(operand)):
            yield Comparison(operand.lineno, ast.unparse(operand))


def _compared_errors(node: ast.Compare) -> Iterator[Comparison]:
    """Yields code that looks for an error among others, for example `{*errors} <= {*failed}`."""
    many = [part for part in (node.left, *node.comparators) if isinstance(part, ast.Set)]
    starred = [item for part in many for item in part.elts if isinstance(item, ast.Starred)]
    sought = [node.left] if isinstance(node.ops[0], ast.In | ast.NotIn) else starred
    for operand in sought:
        if re.search(r"(^|[._*])errors?$", ast.unparse(operand)):
            yield Comparison(node.lineno, ast.unparse(node))


def _searched_fields(operand: ast.expr) -> Iterator[Comparison]:
    """Yields code that searches a log line for a field, for example `node=`."""
    for value in _elements(operand):
        for text in _texts_of(value):
            if _FIELD.fullmatch(text) and len(text) > len("a="):
                yield Comparison(value.lineno, text)


def _separators(operand: ast.expr) -> Iterator[Comparison]:
    for value in _elements(operand):
        for text in _texts_of(value):
            if _PUNCTUATION.fullmatch(text):
                yield Comparison(value.lineno, text)


def _elements(operand: ast.expr) -> list[ast.expr]:
    is_many = isinstance(operand, ast.Tuple | ast.List | ast.Set)
    return operand.elts if is_many else [operand]  # type: ignore[attr-defined]


def _texts_of(value: ast.expr) -> list[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else _GAP for part in value.values)
        return ["".join(map(str, parts))]
    return []
