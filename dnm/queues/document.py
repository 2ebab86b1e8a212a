"""The queue document as one value: where it stands, its tree, its ledger, and what speaks against
an edit of it.

Read once in a run; `edit.py` makes the next one of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from dnm.host.collection import without_collection
from dnm.model.cluster import QueueLimits
from dnm.model.errors import QueueError
from dnm.model.value import Value
from dnm.queues.decode import RuleViolation
from dnm.queues.ledger import Ledger, decode_ledger
from dnm.queues.source import SourceDocument
from dnm.queues.tree import DocumentTree, check_rules, parse_tree


class QueueDocument(Value):
    """`violations`: why it can't be edited as it stands. `ledger_problem`: why the ledger could not
    be read; `ledger` says nothing then."""

    source: SourceDocument
    tree: DocumentTree
    ledger: Ledger
    violations: tuple[RuleViolation, ...] = ()
    ledger_problem: str | None = None

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        """Of every queue, by lower-case path, root included."""
        return self.tree.queues

    @property
    def is_built_in(self) -> bool:
        """Whether the cluster has no document, so that YuniKorn uses its built-in queues."""
        return self.source.is_built_in

    @property
    def refusal(self) -> str | None:
        """Why no limit may be edited, whatever the ledger says, with the next step."""
        return self.source.refusal or self.tree.refusal or _why_invalid(self.violations)

    @property
    def lenders(self) -> Mapping[str, str] | None:
        """Node -> the instance whose part of the ledger counts it; None: it can't be read."""
        if self.ledger_problem:
            return None
        return {
            node: instance
            for instance, section in sorted(self.ledger.sections.items())
            for nodes in section.queues.values()
            for node in nodes
        }

    def is_counted(self, node: str, instance_id: str) -> bool:
        """Tells whether a limit still contains this node of the instance. An unreadable ledger may
        count every node."""
        counted = self.ledger.of(instance_id).queues.values()
        return bool(self.ledger_problem) or any(node in nodes for nodes in counted)


Judged = tuple[DocumentTree, tuple[RuleViolation, ...]]
"""A text's tree, and why it can't be edited."""


@lru_cache(maxsize=200)  # who plays many runs sees few texts; nobody changes a tree
def judge_text(text: str) -> Judged:
    """Parses and judges a text. Raises QueueError, with lines, for what YuniKorn itself could not
    read."""
    tree = parse_tree(text)
    return tree, check_rules(tree)


@without_collection()
def read_document(source: SourceDocument) -> QueueDocument:
    """Parses and judges the document. Raises QueueError, with lines, for what YuniKorn itself could
    not read."""
    tree, violations = judge_text(source.text)
    found = QueueDocument(source=source, tree=tree, ledger=Ledger(), violations=violations)
    try:
        return replace(found, ledger=decode_ledger(source.ledger_text))
    except QueueError as error:
        return replace(found, ledger_problem=str(error))


def _why_invalid(violations: tuple[RuleViolation, ...]) -> str | None:
    if not violations:
        return None
    first = violations[0]
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return (
        f"the queue document can't be edited as it stands, line {first.line}: {first.message}"
        f"{more}; `dnm queues check` lists all, mend it first"
    )
