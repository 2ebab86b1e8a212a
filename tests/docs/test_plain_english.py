"""Plain English in code, tests and pages: findings only become fewer."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.docs.plain_english import ROOT, files_below, find

# No subject, private word, long sentence, name to decode. The bounds only fall. The aim for dnm/
# and the pages is 0.5 % of 10,000 sentences and 60 names.
MOST = {
    ("dnm", "packages"): (20, 49, 65, 35),
    ("docs", "etc", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"): (2, 11, 10, 0),
    ("tests", ".ci"): (40, 57, 280, 98),
}
KINDS = ("no subject", "private word", "long", "name")
# Answers of programs that have no other form than a sentence, and names of kinds in the code.
COMPARED = {
    "Pod is terminating", "Not responding",  # slurm-operator's and slurmctld's reasons
    " is UP",  # scontrol ping
    "not supported",  # slurmctld's refusal of a flag
    "not yet valid",  # OpenSSL's refusal of a certificate
    "is fenced", "will be fenced",  # `dnm plan` words the reason of a fence that is only planned
    "; nothing is done",  # the end of an error that `dnm report --format` prints as a note
    "back at its baseline",  # a note of the queue document becomes an event of the history
}  # fmt: skip
_METHODS = frozenset(
    ("startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "rpartition",
     "replace", "find", "index", "count")
)  # fmt: skip


@pytest.mark.parametrize("paths", MOST, ids=" ".join)
def test_findings_of_the_plain_english_rules_only_become_fewer(paths: tuple[str, ...]) -> None:
    findings = list(find(files_below(*paths)))
    kinds = Counter(finding.kind for finding in findings)
    listed = f"python -m tests.docs.plain_english {' '.join(paths)}"
    for kind, most in zip(KINDS, MOST[paths], strict=True):
        assert kinds[kind] <= most, f"{kinds[kind]} of kind {kind!r}: {listed}"


def test_no_code_decides_by_a_sentence() -> None:
    """Compares no text of several words, searches for none, and cuts none out."""
    compared = {
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in files_below("dnm")
        for line, text in _compared_texts(ast.parse(path.read_text(encoding="utf-8")))
        if len(re.findall("[A-Za-z]{2,}", text)) > 1 and " " in text.strip()
        if text not in COMPARED
    }
    assert not compared


def _compared_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = node.args if node.func.attr in _METHODS else []
        for operand in operands:
            is_many = isinstance(operand, ast.Tuple | ast.List | ast.Set)
            for value in operand.elts if is_many else (operand,):  # type: ignore[attr-defined]
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.lineno, value.value
