"""Helpers for tests of queue documents: documents, their edits, and a collection of samples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.model.queue_edit import QueueEdit, QueueWants
from dnm.model.value import Resources
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.document import QueueDocument, read_document
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.edit import edit_source
from dnm.queues.yunikorn.ledger import Ledger, decode_ledger
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION, SourceDocument, resolve_document
from dnm.queues.yunikorn.tree import LimitPlace, check_rules, parse_tree, read_tree

DATA = Path(__file__).parent / "data" / "queues"
CORPUS = {
    path.stem: path.read_bytes().decode() for path in sorted((DATA / "lossless").glob("*.yaml"))
}
NODE: Resources = {
    "vcore": 128_000,
    "memory": 256 * 10**9,
    "pods": 110,
    "nvidia.com/gpu": 4,
    "ephemeral-storage": 10**12,
    "hugepages-2Mi": 2**31,
}
AMOUNT = re.compile(r"[0-9]+[ \t]*(?:[kKMGTPE]i?|m)?(?![0-9A-Za-z])")
"""Every possible value of a limit."""

ONE_LIMIT = """\
partitions:
- name: default
  queues:
  - name: root
    queues:
    - name: x
      resources: {max: {vcore: 80}}
"""

TREE = """\
partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: science
            resources:
              guaranteed: {vcore: 40, memory: 100G}
              max: {vcore: 1000, memory: 4T}
            queues:
              - name: a
                resources:
                  guaranteed: {vcore: 8, memory: 32G}
                  max: {vcore: 80, memory: 320G}
              - name: b
                resources:
                  max: {vcore: 64, memory: 256G}
          - name: free
"""
A, B = "root.science.a", "root.science.b"


def config_map(text: str, ledger: str = "", **fields: object) -> ConfigMap:
    annotations = {LEDGER_ANNOTATION: ledger} if ledger else {}
    values: dict[str, object] = {
        "namespace": "yunikorn",
        "name": "yunikorn-configs",
        "resource_version": "1",
        "data": {"queues.yaml": text},
        "annotations": annotations,
        **fields,
    }
    return ConfigMap(**values)  # type: ignore[arg-type]


def source(text: str, ledger: str = "") -> SourceDocument:
    return resolve_document(config_map(text, ledger), None)


def read(text: str, ledger: str = "") -> QueueDocument:
    return read_document(source(text, ledger))


def check_text(text: str) -> tuple[RuleViolation, ...]:
    """Returns the rules that a queue document violates, so that dnm must not edit it."""
    tree, problems = read_tree(text)
    return problems if tree is None or problems else check_rules(tree)


def nodes_of(queue: str, *names: str, size: Resources = NODE) -> dict[str, dict[str, Resources]]:
    return {queue: dict.fromkeys(names, size)}


def edit(
    text: str,
    ledger: str,
    nodes: Mapping[str, Mapping[str, Resources]],
    instance: str = "prod",
    **more: object,
) -> DocumentEdit:
    """Returns an instance's edit of a document; by default its last run had lent nothing."""
    try:
        values: dict[str, object] = {"remembered": ""} | more
        wants = QueueWants(instance_id=instance, nodes=nodes, **values)  # type: ignore[arg-type]
        return edit_source(source(text, ledger), wants)
    except QueueError as error:  # YuniKorn could not read it
        return DocumentEdit(text=text, ledger=ledger, refusal=str(error))


def lend(text: str, nodes: Mapping[str, Mapping[str, Resources]], **more: object) -> DocumentEdit:
    """Returns the first edit of a document, which must not be refused."""
    made = edit(text, "", nodes, **more)  # type: ignore[arg-type]
    assert not made.refusal
    return made


def notes_of(made: QueueEdit) -> tuple[str, ...]:
    """Returns what other clients have changed, as a run reports it."""
    return (*made.ledger_news, *(news.note for news in made.limit_news))


def lent_in(ledger: str) -> Ledger:
    """Returns a ledger with only the parts that say which nodes are lent."""
    result = decode_ledger(ledger)
    return Ledger(sections=result.sections, entries=result.entries, frozen=result.frozen)


def change(text: str, old: str, new: str) -> str:
    """Returns the text with `old`, which must occur once, replaced by `new`."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {text!r}"
    return text.replace(old, new)


ONE = nodes_of(A, "n1")
TWO = nodes_of(A, "n1", "n2")


def limit(made: DocumentEdit, queue: str, resource: str = "vcore", kind: str = "max") -> str:
    return parse_tree(made.text).places[LimitPlace(queue, kind, resource)].text


def wants(nodes: Mapping[str, Mapping[str, Resources]], **more: object) -> QueueWants:
    values: dict[str, object] = {"instance_id": "prod", "nodes": nodes, **more}
    return QueueWants(**values)  # type: ignore[arg-type]


def large_document() -> str:
    """Returns a queue document of 2,000 queues in 40 groups."""
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    queues:"]
    for group in range(40):
        lines += [
            f"    - name: group{group}   # its own budget",
            "      resources: {max: {vcore: 100k, memory: 400T}}",
            "      queues:",
        ]
        for team in range(49):
            lines += [
                f"      - name: team{team}",
                "        resources:",
                '          guaranteed: {vcore: "8", memory: 32G}',
                "          max:",
                "            vcore: 80",
                "            memory: 320G",
            ]
    return "\n".join(lines) + "\n"
