"""The reason why a queue needs nodes, and why it gets fewer, in words."""

from __future__ import annotations

from dnm.model.printable import count_of
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import Verdict
from dnm.sizing.queue_sizing import QueueSizing, count_by_type
from dnm.sizing.quota import Shortage


def describe_need(sizing: QueueSizing) -> tuple[Verdict, ReasonText, str]:
    """Returns the verdict on a queue that needs nodes, its reason and detail."""
    wanted, granted = sum(sizing.wanted.values()), sum(sizing.granted.values())
    verdict = Verdict.CONVERT if granted else Verdict.WAIT
    reason, detail = _reason_for_need(sizing)
    types = count_by_type(sizing.wanted).items()
    details = [detail, f"needs {', '.join(f'{count} of type {name}' for name, count in types)}"]
    if granted < wanted:
        details.append(_describe_bounds(sizing, granted))
    if not granted:
        details[0] = f"{reason.text}: {detail}"
        # If there were nodes, other queues got them.
        reason = next((bound.reason for bound in sizing.spent if bound.left <= 0), Reason.OUTRANKED)
    return verdict, reason, "; ".join(filter(None, details))


def _describe_bounds(sizing: QueueSizing, granted: int) -> str:
    """Returns the bounds that leave no more nodes, those with their own text last."""
    used_up = sorted(bound.name for bound in sizing.spent if not bound.why)
    texts = [f"{', '.join(used_up)} used up"] if used_up else []
    texts += [bound.why for bound in sizing.spent if bound.why]
    return f"{granted} can be lent: {'; '.join(texts)}"


def _reason_for_need(sizing: QueueSizing) -> tuple[ReasonText, str]:
    if sizing.for_pods:
        reason = Reason.LACKS_NODES if not sizing.no_quota else Reason.LACKS_QUOTA
        if sizing.opened_for_capacity and sizing.no_quota:
            reason = Reason.LACKS_BOTH
        if sizing.no_quota and sizing.shortage is not None:
            return reason, _shortage_text(sizing.shortage)
        return reason, count_of(sizing.without_capacity, "pod")
    if sizing.shortage is not None:
        return Reason.NEARLY_FULL, _shortage_text(sizing.shortage)
    return Reason.MIN_NODES, ", ".join(sorted(set(sizing.below_min_nodes)))


def _shortage_text(short: Shortage) -> str:
    demand = number_text(short.resource, short.used + short.asked)
    return f"{short.path} has {amount_text(short.resource, short.limit)} for {demand}"


def amount_text(resource: str, amount: int) -> str:
    """Returns an amount with its resource: `1.5 vcore`, `16G memory`, `2 nvidia.com/gpu`."""
    return f"{number_text(resource, amount)} {resource}"


def number_text(resource: str, amount: int) -> str:
    """Returns an amount (millicores, bytes, a count) in cores, in gigabytes, or as a number."""
    if resource == "vcore":
        return f"{round(amount / 1000, 3):,g}" if amount < 10**6 else f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage"):
        gigabytes = amount / 10**9
        return f"{gigabytes:.3g}G" if gigabytes < 100 else f"{gigabytes:,.0f}G"
    return f"{amount:,}"
