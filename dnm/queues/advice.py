"""What YuniKorn accepts and does something surprising with: of a document, and of a site whose
limits dnm raises and lowers. Never part of the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.model.quantity import format_amount
from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.decode import RuleViolation
from dnm.queues.tree import DocumentTree, amounts_of

_DELAYS = ("quota.preemption.delay", "preemption.quota.delay")  # of 1.9, of 1.8
_NO_DELAY = frozenset(("", "0", "0s", "0m", "0h"))


def warn_of_quota_preemption(tree: DocumentTree, queues: Iterable[str]) -> tuple[str, ...]:
    """Names the queues whose pods YuniKorn (1.8 and later) would kill when their max is lowered."""
    partition = tree.partition
    if partition is None or not partition.preemption.quotapreemptionenabled:
        return ()
    warnings = []
    for path in queues:
        for above in lineage(path):
            delay = _delay_of(tree, above)
            if delay not in _NO_DELAY:
                warnings.append(
                    f"{path}: quota preemption is on ({above} has a delay of {delay}): pods above "
                    "a lowered max are killed after it. dnm never lowers below what is allocated, "
                    "but pods that start meanwhile can be hit"
                )
                break
    return tuple(warnings)


def _delay_of(tree: DocumentTree, path: str) -> str:
    queue = tree.written.get(path)
    properties = (queue.properties or {}) if queue is not None else {}
    return next((properties[name].strip() for name in _DELAYS if name in properties), "")


def warn_of_gangs(tree: DocumentTree, largest: Mapping[str, Resources]) -> tuple[str, ...]:
    """Names the queues with gang applications; `largest`: what the largest of each asks for."""
    warnings = []
    for path, ask in sorted(largest.items()):
        if not any(ask.values()) or path not in tree.queues:
            continue
        told = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in ask.items())
        text = (
            f"{path}: gang applications run here, the largest asks for {told}: while it exists the "
            "max is not lowered below that"
        )
        tight = [
            above
            for above in lineage(path)
            if any(ask.get(name, 0) > amount for name, amount in tree.queues[above].max.items())
        ]
        if tight:
            text += (
                f"; the max of {tight[0]} is smaller, so YuniKorn rejects it at once, its pods "
                "fail and never ask for nodes: raise the baseline"
            )
        warnings.append(text)
    return tuple(warnings)


def warn_of_spreading(tree: DocumentTree) -> str:
    """Says that the scheduler puts each pod on the emptiest node, so that lent nodes are seldom
    empty; the figure is of a day of notebooks in tests/economy."""
    if tree.partition is None or tree.partition.nodesortpolicy.type not in ("", "fair"):
        return ""
    return (
        "nodesortpolicy is fair, which is the default too: pods are spread over all nodes, so lent "
        "nodes are seldom empty and go back late; notebooks need a fifth more node-hours"
    )


def warn_of_uncounted_limits(tree: DocumentTree, queues: Iterable[str]) -> tuple[str, ...]:
    """Names the queues whose pods can wait for a limit that only the scheduler counts: of users,
    groups or applications."""
    partition = tree.partition
    if partition is None:
        return ()
    warnings = []
    for path in queues:
        for above in (*lineage(path), "root"):
            queue = tree.written.get(above)
            limits = () if queue is None else (queue.limits, queue.maxapplications.strip("0"))
            if any(limits) or (above == "root" and partition.limits):
                warnings.append(
                    f"{path}: {above} limits users, groups or applications, which dnm does not "
                    "consider without yunikorn_url: for pods that only such a limit holds back a "
                    "node is lent once, in vain"
                )
                break
    return tuple(warnings)


def advise(tree: DocumentTree) -> tuple[RuleViolation, ...]:
    """Lists what YuniKorn accepts and then does something surprising with, in the order of
    lines."""
    found: list[RuleViolation] = []

    def advice(rule: str, queue: str, line: int, message: str) -> None:
        found.append(RuleViolation(rule=rule, queue=queue, line=line, message=message))

    for path, queue in tree.written.items():
        for kind, quantities in queue.resources.kinds:
            amounts = amounts_of(quantities)
            line = queue.resources.line or queue.line
            if amounts and not any(amounts.values()):
                meaning = "no limit at all" if kind == "max" else "no guarantee"
                advice(
                    "zero", path, line, f"{path}: {kind} is zero throughout: that means {meaning}"
                )
            for name in ("cpu", "CPU", "vCore", "VCore", "Memory"):
                if name in amounts:
                    right = "memory" if name == "Memory" else "vcore"
                    message = f"{path}: no pod asks for {name!r}; YuniKorn's name is {right!r}"
                    advice("resource", path, line, message)
    return tuple(sorted(found, key=lambda violation: violation.line))
