"""Tests that findings of the plain-English rules in code, tests and pages only become fewer."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.docs.compared_sentences import find_comparisons
from tests.docs.plain_english import ROOT, files_below, find

# No subject, private word, long sentence, name to decode. The bounds only fall. The aim for dnm/
# and the pages is 0.5 % of 10,000 sentences and 60 names.
MOST = {
    ("dnm", "packages"): (20, 49, 65, 35),
    ("docs", "etc", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"): (2, 11, 10, 0),
    ("tests", ".ci"): (40, 57, 280, 98),
}
KINDS = ("no subject", "private word", "long", "name")
# Answers of programs that give no code or value with them, and a field of dnm's mark in Slurm.
COMPARED = {
    ("converters.nodeset", "Pod is terminating"),  # slurm-operator's reason
    ("converters.nodeset", "Not responding"),  # slurmctld's
    ("converters.slurm.commands", " is UP"),  # scontrol ping
    ("converters.slurm.text", "No \0s in the"),  # scontrol show
    ("converters.reservation", "not supported"),  # slurmctld's refusal of a flag
    ("kube.eviction", "does not support dry run"),
    ("kube.eviction", "more than one PodDisruptionBudget"),
    ("queues.yunikorn.rest", "Not enough user quota"),
    ("lab.sandbox.access", "Bearer system:node:"),  # a header
    ("simulate.policy", "error in plan.request_errors.values()"),  # the same texts twice
    ("cli.terminal.logs", "error not in outcome.errors"),  # new or repeated: the log level
    ("converters.claim", "op=\0"),
    ("converters.marks", "op="),
}


@pytest.mark.parametrize("paths", MOST, ids=" ".join)
def test_findings_of_the_plain_english_rules_only_become_fewer(paths: tuple[str, ...]) -> None:
    findings = list(find(files_below(*paths)))
    kinds = Counter(finding.kind for finding in findings)
    listed = f"python -m tests.docs.plain_english {' '.join(paths)}"
    for kind, most in zip(KINDS, MOST[paths], strict=True):
        assert kinds[kind] <= most, f"{kinds[kind]} of kind {kind!r}: {listed}"


def test_no_code_decides_by_a_sentence() -> None:
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for path in files_below("dnm")
    }
    comparisons = {
        (module.removeprefix("dnm."), text): f"{module}:{line}: {text!r}"
        for module, operands in find_comparisons(trees).items()
        for line, text in operands
    }
    assert not [place for key, place in comparisons.items() if key not in COMPARED]
    assert comparisons.keys() == COMPARED, "an exception that no code needs any more"


def test_no_two_public_classes_have_the_same_name() -> None:
    owners: dict[str, list[str]] = {}
    for path in files_below("dnm"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not {name: places for name, places in owners.items() if len(places) > 1}


# Each has once decided in dnm by a sentence.
DECIDES_BY_A_SENTENCE = {
    "the end of a sentence is cut off": 'text = error.replace("; nothing is done", "")',
    "a sentence is split at its colon": 'wrong(*find_distrust(path).rsplit(": ", 1))',
    "a label is cut off": 'lead, _, rest = line.partition("error: ")',
    "an error is searched": "if NO_DRY_RUN in str(error): pass",
    "a constant of another file is searched": "if NO_DRY_RUN not in obstacle: pass",
    "a function words both": "if too_much(path) in troubles: pass",
    "whole errors are sought": "others = [error for error in errors if error not in failures]",
    "whole errors are compared": "alone = {*errors} <= {*registry.failed_nodes.values()}",
    "a field of a log line is searched": 'next(e for e in errors if f"request={number} " in e)',
    "a log line is searched by its beginning": 'error.startswith("action=convert ")',
    "a sentence is compared": 'if detail.endswith("is used"): pass',
    "a printed time is compared": 'row["local"].startswith(f"{begins:%a} UTC began ")',
}
_WORDED = """
NO_DRY_RUN = "does not support dry run"
def too_much(path: str) -> str:
    return f"{path}: has too many events"
"""
_IMPORTED = "from worded import NO_DRY_RUN, too_much\n"


@pytest.mark.parametrize("name", DECIDES_BY_A_SENTENCE)
def test_check_finds_code_that_decides_by_a_sentence(name: str) -> None:
    code = _IMPORTED + DECIDES_BY_A_SENTENCE[name]
    assert find_comparisons({"worded": ast.parse(_WORDED), "code": ast.parse(code)})["code"]


def test_check_allows_code_that_parses_values() -> None:
    code = """
if path.startswith(f"{queue}."): pass
name, _, value = entry.partition("=")
kind, _, rest = text.partition(" ")
if status in ("True", "False"): pass
if str(error) != last: last = str(error)
"""
    assert not find_comparisons({"code": ast.parse(code)})["code"]
