"""Why a queue wants nodes, and why it gets fewer, in words."""

from __future__ import annotations

from collections import Counter

from dnm.model.printable import count_of
from dnm.model.reason import Reason
from dnm.model.verdict import Verdict
from dnm.sizing.caps import (
    BATCH_FLOOR,
    BATCH_NODES,
    BRIDGE,
    NODE_HOURS,
    ConversionBudget,
)
from dnm.sizing.queue_sizing import QueueSizing
from dnm.sizing.quota import Shortage

_BY_BOUND = (
    (BRIDGE, Reason.BRIDGE_EVICTS),
    (BATCH_FLOOR, Reason.BATCH_FLOOR),
    (NODE_HOURS, Reason.HOURS_SPENT),
)


def tell_wanted(sizing: QueueSizing, budget: ConversionBudget) -> tuple[Verdict, Reason, str]:
    """Returns what becomes of a queue that wants nodes, and why. `budget`: what there was at
    first."""
    wanted, granted = sum(sizing.wanted.values()), sum(sizing.granted.values())
    verdict = Verdict.CONVERT if granted else Verdict.WAIT
    reason, detail = _why_wanted(sizing)
    details = [detail, f"wants {_by_type(sizing)}"]
    if granted < wanted:
        details.append(_what_stops(sizing, granted, budget))
    if not granted:
        details[0] = f"{reason.value}: {detail}"
        reason = _why_none(sizing, budget)
    return verdict, reason, "; ".join(filter(None, details))


def _by_type(sizing: QueueSizing) -> str:
    types: Counter[str] = Counter()
    for pool, count in sizing.wanted.items():
        types[pool.node_type] += count
    return ", ".join(f"{count} of type {name}" for name, count in sorted(types.items()))


def _what_stops(sizing: QueueSizing, granted: int, budget: ConversionBudget) -> str:
    """Names the bounds that leave no more, and what is wrong with types that are not lent."""
    spent = [name for name in sizing.spent if name not in budget.barred]
    at_hand = [f"no more {name} can be lent" for name in spent if name.startswith(BATCH_NODES)]
    spent = [name for name in spent if not name.startswith(BATCH_NODES)]
    words = [f"{', '.join(spent)} used up"] if spent or not (at_hand or budget.barred) else []
    words += at_hand
    words += [budget.barred[name] for name in sizing.spent if name in budget.barred]
    return f"{granted} can be had: {'; '.join(words)}"


def _why_none(sizing: QueueSizing, budget: ConversionBudget) -> Reason:
    """Says why a queue gets none of the nodes that it wants."""
    gone = [name for name in sizing.spent if budget.left[name] <= 0]
    if gone and all(name in budget.barred for name in gone):
        return Reason.KUBELET_SETTINGS
    gone = [name for name in gone if name not in budget.barred]
    if not gone:
        return Reason.OTHERS_FIRST
    for words, reason in _BY_BOUND:
        if any(name.startswith(words) for name in gone):
            return reason
    if all(name.startswith(BATCH_NODES) for name in gone):
        return Reason.NO_BATCH_NODE
    return Reason.CAPPED


def _why_wanted(sizing: QueueSizing) -> tuple[Reason, str]:
    if sizing.for_pods:
        reason = Reason.LACKS_ROOM if not sizing.no_quota else Reason.LACKS_QUOTA
        if sizing.opened_for_room and sizing.no_quota:
            reason = Reason.LACKS_BOTH
        if sizing.no_quota and sizing.shortage is not None:
            return reason, _shortage_text(sizing.shortage)
        return reason, count_of(sizing.no_room, "pod")
    if sizing.shortage is not None:
        return Reason.NEARLY_FULL, _shortage_text(sizing.shortage)
    return Reason.MIN_NODES, ", ".join(sorted(set(sizing.below_min_nodes)))


def _shortage_text(short: Shortage) -> str:
    demand = number_text(short.resource, short.used + short.asked)
    return f"{short.path} has {amount_text(short.resource, short.limit)} for {demand}"


def amount_text(resource: str, amount: int) -> str:
    """Writes an amount and its resource: `1.5 vcore`, `16G memory`, `2 nvidia.com/gpu`."""
    return f"{number_text(resource, amount)} {resource}"


def number_text(resource: str, amount: int) -> str:
    """Writes an amount (millicores, bytes, a count) in cores, in gigabytes, or as it is."""
    if resource == "vcore":
        return f"{round(amount / 1000, 3):,g}" if amount < 10**6 else f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage"):
        gigabytes = amount / 10**9
        return f"{gigabytes:.3g}G" if gigabytes < 100 else f"{gigabytes:,.0f}G"
    return f"{amount:,}"
