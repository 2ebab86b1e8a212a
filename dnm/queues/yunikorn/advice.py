"""Advice about queue documents that YuniKorn accepts but handles in an unexpected way, and about
limits that dnm raises and lowers. Advice never makes a document invalid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.quantities import format_amount
from dnm.queues.yunikorn.tree import DocumentTree, amounts_of

_DELAYS = ("quota.preemption.delay", "preemption.quota.delay")  # of 1.9, of 1.8
_NO_DELAY = frozenset(("", "0", "0s", "0m", "0h"))


def warn_of_quota_preemption(tree: DocumentTree, queues: Iterable[str]) -> tuple[str, ...]:
    """Returns warnings about queues with quota preemption, which kills pods above a lowered max."""
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
    """Returns warnings about queues in which gang applications run. `largest` maps a queue to the
    resources that its largest gang requests."""
    warnings = []
    for path, ask in sorted(largest.items()):
        if not any(ask.values()) or path not in tree.queues:
            continue
        amounts = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in ask.items())
        text = (
            f"{path}: gang applications run here, the largest requests {amounts}. While it exists, "
            "dnm does not lower the max below that"
        )
        tight = [
            above
            for above in lineage(path)
            if any(ask.get(name, 0) > amount for name, amount in tree.queues[above].max.items())
        ]
        if tight:
            text += (
                f". The max of {tight[0]} is smaller: YuniKorn rejects the gang, its pods fail "
                "and never cause a conversion. Raise the baseline"
            )
        warnings.append(text)
    return tuple(warnings)


def warn_of_spreading(tree: DocumentTree) -> str:
    """Returns a warning if the scheduler spreads pods over all nodes, so that lent nodes are seldom
    empty. The number in the warning was measured over a day of notebooks in tests/economy."""
    if tree.partition is None or tree.partition.nodesortpolicy.type not in ("", "fair"):
        return ""
    return (
        "nodesortpolicy is fair (the default): YuniKorn spreads pods over all nodes, so lent nodes "
        "are seldom empty and are returned late. Notebooks need a fifth more node-hours"
    )


def warn_of_uncounted_limits(tree: DocumentTree, queues: Iterable[str]) -> tuple[str, ...]:
    """Returns warnings about queues that also limit users, groups or applications. Only the
    scheduler counts these limits, so dnm can't see that a pod waits for one."""
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
                    f"{path}: {above} limits users, groups or applications. Without yunikorn_url "
                    "dnm can't see these limits: it lends a node once, in vain, for pods that wait "
                    "only for such a limit"
                )
                break
    return tuple(warnings)


def advise(tree: DocumentTree) -> tuple[RuleViolation, ...]:
    """Returns advice about the limits in a document: all zero, or an unknown resource name."""
    violations: list[RuleViolation] = []

    def advice(rule: str, queue: str, line: int, message: str) -> None:
        violations.append(RuleViolation(rule=rule, queue=queue, line=line, message=message))

    for path, queue in tree.written.items():
        for kind, quantities in queue.resources.kinds:
            amounts = amounts_of(quantities)
            line = queue.resources.line or queue.line
            if amounts and not any(amounts.values()):
                meaning = "no limit at all" if kind == "max" else "no guarantee"
                advice("zero", path, line, f"{path}: all of {kind} is zero, which means {meaning}")
            for name in ("cpu", "CPU", "vCore", "VCore", "Memory"):
                if name in amounts:
                    right = "memory" if name == "Memory" else "vcore"
                    message = f"{path}: no pod requests {name!r}; YuniKorn's name is {right!r}"
                    advice("resource", path, line, message)
    return tuple(sorted(violations, key=lambda violation: violation.line))
