"""Rules of plain English, and a search for sentences and names that break them.

A finding is a place to look at, not an error. `python -m tests.docs.plain_english PATH...` lists
the findings below paths, as `file:line: kind: text`."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.trees import nodes_below

ROOT = Path(__file__).parents[2]
LONGEST = 30  # words of a sentence
MOST_PAUSES = 2  # colons and semicolons of a sentence
SHORTEST = 3  # words; less is a label

# A clause without a subject begins with one of these. A question in a message may.
_NO_SUBJECT = re.compile(
    r"(?:What|Who|Whose|Whom|Whoever|Whatever|That|Which|Whether|Of|One|Those|Nobody|Somebody|Else"
    r"|How|For how|Here|Both|Neither)\b"
)
# The words that the glossary replaces.
_PRIVATE = re.compile(
    r"\b(?:told|tells?|telling|hears?|heard|said|says|sayings?|words? of|by its word|at hand"
    r"|stands? (?:in|there|for|beside)|stood|somebody|nobody|anybody|whoever|its whom|whose|deeds?"
    r"|blows?|strikes?|struck|house|rooms?|wings?|walls?|goes by|by what|what it|such a one"
    r"|the one who|one who|anew|at rest|in force|beforehand|it was begun|is looked|looked at"
    r"|look(?:s|ed)? afresh|taken up|goes on|went on|mend(?:s|ed)?|let(?:s)? nothing|shall)\b",
    re.IGNORECASE,
)
_IN_NAMES = re.compile(
    r"\b(?:told|tells?|say|says|said|hear|heard|hands?|stands|stood|standing|goes|gone|come|came|who"
    r"|whose|whom|what|anothers|ours|others|one|those|then|found|deeds?|odd|whole|sitting|doubts?"
    r"|doubted|foreseen?|given|known|wake|woken|mend|blows|house|rooms?|wing)\b"
)
# A string, or a comment in its group: no quotation mark within a string ends another one.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])*'|"
    r"(#[^\n]*)",
    re.DOTALL,
)


class Finding(NamedTuple):
    path: str
    line: int
    kind: str
    text: str


def find(paths: Iterable[Path]) -> Iterator[Finding]:
    """Yields the findings of Python files and Markdown pages."""
    for path in paths:
        shown, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        is_page = path.suffix == ".md"
        nodes = [] if is_page else nodes_below(ast.parse(text))
        prose = _prose_of_page(text) if is_page else _prose_of_code(text, nodes)
        for line, may_ask, sentence in prose:
            for kind in _kinds(sentence, may_ask):
                yield Finding(shown, line, kind, sentence)
        for line, name in _names(nodes):
            if _IN_NAMES.search(name.replace("_", " ").lower()):
                yield Finding(shown, line, "name", name)


def _kinds(sentence: str, may_ask: bool) -> Iterator[str]:
    if not may_ask and _NO_SUBJECT.match(sentence):
        yield "no subject"
    if _PRIVATE.search(sentence):
        yield "private word"
    if len(sentence.split()) > LONGEST or len(re.findall("[;:]", sentence)) > MOST_PAUSES:
        yield "long"


def _sentences(text: str) -> Iterator[str]:
    flat = " ".join(text.split())
    for sentence in re.split(r"(?<=[.!?])\s|(?<=:)\s(?=[A-Z])", flat):
        if len(sentence.split()) >= SHORTEST:
            yield sentence


def _prose_of_page(text: str) -> Iterator[tuple[int, bool, str]]:
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.startswith("```")
        if not is_code and not line.startswith(("|", "    ", "#")):
            yield from ((number, False, sentence) for sentence in _sentences(line))


def _prose_of_code(text: str, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, bool, str]]:
    """Yields the sentences of docstrings, messages and comments."""
    docstrings = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                value = node.body[0].value  # type: ignore[attr-defined]
                docstrings.add(value)
                yield from ((value.lineno, False, sentence) for sentence in _sentences(docstring))
    for node in nodes:
        if not isinstance(node, ast.Constant) or node in docstrings:
            continue
        if isinstance(node.value, str) and node.value.count(" ") > SHORTEST:
            yield from ((node.lineno, True, sentence) for sentence in _sentences(node.value))
    for match in _STRING_OR_COMMENT.finditer(text):
        comment = match[1]
        if comment and not comment.startswith("# ---"):
            line = text.count("\n", 0, match.start()) + 1
            yield from ((line, False, each) for each in _sentences(comment.lstrip("# ")))


def _names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields the names that a file defines: functions, parameters, classes, variables, fields."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        if isinstance(node, ast.arguments):
            yield from ((each.lineno, each.arg) for each in (*node.args, *node.kwonlyargs))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def files_below(*paths: str) -> list[Path]:
    """Returns the Python files and pages of these paths, sorted."""
    below: set[Path] = set()
    for path in map(ROOT.joinpath, paths):
        below |= {path} if path.is_file() else {*path.rglob("*.py"), *path.rglob("*.md")}
    return sorted(below)


def main() -> None:
    findings = list(find(files_below(*sys.argv[1:])))
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.kind}: {finding.text}")
    print(dict(Counter(finding.kind for finding in findings)), file=sys.stderr)


if __name__ == "__main__":
    main()
