"""The queue document (YuniKorn's queues.yaml) as one value, with its ledger and its violations.

A run reads it once; `edit.py` makes the next document."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from dnm.host.collection import without_collection
from dnm.model.cluster import QueueLimits
from dnm.model.errors import QueueError
from dnm.model.queue_edit import QueueNumbers, QueueWants
from dnm.model.value import Value
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.document_edit import DocumentEdit
from dnm.queues.yunikorn.ledger import (
    Ledger,
    Section,
    checksum,
    decode_ledger,
    encode_ledger,
    lent_amounts,
)
from dnm.queues.yunikorn.quantities import parse_yunikorn
from dnm.queues.yunikorn.source import SourceDocument
from dnm.queues.yunikorn.tree import DocumentTree, LimitPlace, check_rules, parse_tree


class QueueDocument(Value):
    """A parsed queue document. `violations`: why it can't be edited. `ledger_problem`: why the
    ledger could not be read; `ledger` is an empty one then."""

    source: SourceDocument
    tree: DocumentTree
    ledger: Ledger
    violations: tuple[RuleViolation, ...] = ()
    ledger_problem: str | None = None

    @property
    def limits(self) -> Mapping[str, QueueLimits]:
        """Returns the limits of every queue, by lower-case path, root included."""
        return self.tree.queues

    @property
    def is_built_in(self) -> bool:
        """Returns whether the cluster has no document: YuniKorn then uses its built-in queues."""
        return self.source.is_built_in

    @property
    def refusal(self) -> str | None:
        """Returns why dnm cannot edit this document whatever its ledger is, with the next step."""
        return self.source.refusal or self.tree.refusal or _why_invalid(self.violations)

    @property
    def lenders(self) -> Mapping[str, str] | None:
        """Returns node -> instance that lends it, from the ledger; None if it is unreadable."""
        if self.ledger_problem:
            return None
        return {
            node: instance
            for instance, section in sorted(self.ledger.sections.items())
            for nodes in section.queues.values()
            for node in nodes
        }

    def is_counted(self, node: str, instance_id: str) -> bool:
        """Returns whether the limits contain this node of the instance, by the ledger. If the
        ledger is unreadable, they may contain any node, so the answer is True."""
        counted = self.ledger.of(instance_id).queues.values()
        return bool(self.ledger_problem) or any(node in nodes for nodes in counted)


Judged = tuple[DocumentTree, tuple[RuleViolation, ...]]
"""The tree of a text, and the reasons why it can't be edited."""


@lru_cache(maxsize=200)  # a simulation parses few distinct texts; trees do not change
def judge_text(text: str) -> Judged:
    """Parses a queue document and checks its rules. Raises QueueError if YuniKorn can't read it."""
    tree = parse_tree(text)
    return tree, check_rules(tree)


@without_collection()
def read_document(source: SourceDocument) -> QueueDocument:
    """Parses and checks a document and its ledger. Raises QueueError if YuniKorn can't read it."""
    tree, violations = judge_text(source.text)
    document = QueueDocument(source=source, tree=tree, ledger=Ledger(), violations=violations)
    try:
        return replace(document, ledger=decode_ledger(source.ledger_text))
    except QueueError as error:
        return replace(document, ledger_problem=str(error))


def _why_invalid(violations: tuple[RuleViolation, ...]) -> str | None:
    if not violations:
        return None
    first = violations[0]
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return (
        f"the queue document can't be edited, line {first.line}: {first.message}{more}. Fix it "
        "first; `dnm queues check` lists all problems"
    )


def is_settled(document: QueueDocument, wants: QueueWants) -> bool:
    """Returns whether an edit is needless: no node is lent, and the last run recorded this for
    exactly this text. So it is in most runs, and dnm then need not compare each limit."""
    if document.source.ledger_text or any(wants.nodes.values()) or document.refusal:
        return False
    text = checksum(document.source.text)
    is_recorded = wants.remembered == encode_ledger(Ledger(text=text, origin=text))
    has_closed = any(queue.max.get("pods") == 0 for queue in document.limits.values())
    return is_recorded and not has_closed


def unchanged_edit(document: QueueDocument, **more: Any) -> DocumentEdit:
    """Returns an edit that changes nothing. `more`: further fields of it, e.g. a refusal."""
    text, ledger = document.source.text, document.source.ledger_text
    return DocumentEdit(text=text, ledger=ledger, limits=document.limits, **more)


def settled_edit(document: QueueDocument, wants: QueueWants) -> DocumentEdit:
    """Returns an edit that changes nothing, for a document without nodes of this instance."""
    version, numbers = document.source.version, numbers_now(document, wants.instance_id)
    return unchanged_edit(document, record=wants.remembered, planned_on=version, numbers=numbers)


def numbers_now(document: QueueDocument, instance: str) -> dict[str, QueueNumbers]:
    """Returns limit, baseline and lent amounts of every queue in the current document. A limit that
    is not in the ledger is its own baseline."""
    tree, ledger = document.tree, document.ledger
    baselines = {
        place: parse_yunikorn(place.resource, entry.baseline)
        for place, entry in ledger.entries.items()
        if place in tree.places
    }
    return numbers_of(tree, baselines, {}, ledger.sections, instance)


def numbers_of(
    tree: DocumentTree,
    baselines: Mapping[LimitPlace, int],
    texts: Mapping[LimitPlace, str],
    sections: Mapping[str, Section],
    instance: str,
) -> dict[str, QueueNumbers]:
    """Returns each queue's max after the edit, its baseline, and what nodes of `instance` add."""
    own = lent_amounts(section for name, section in sections.items() if name == instance).max
    numbers = {}
    for path, queue in tree.queues.items():
        limit, baseline = dict(queue.max), dict(queue.max)
        for resource in queue.max:
            place = LimitPlace(path, "max", resource)
            if place in texts:
                limit[resource] = parse_yunikorn(resource, texts[place])
            if place in baselines:
                baseline[resource] = baselines[place]
        numbers[path] = QueueNumbers(limit=limit, baseline=baseline, lent=own.get(path, {}))
    return numbers
