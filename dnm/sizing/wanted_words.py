"""Why a queue wants nodes, and why it gets fewer, in words."""

from __future__ import annotations

from dnm.model.printable import count_of
from dnm.model.reason import Reason, Why
from dnm.model.verdict import Verdict
from dnm.sizing.queue_sizing import QueueSizing, count_by_type
from dnm.sizing.quota import Shortage


def tell_wanted(sizing: QueueSizing) -> tuple[Verdict, Why, str]:
    """Returns what becomes of a queue that wants nodes, and why."""
    wanted, granted = sum(sizing.wanted.values()), sum(sizing.granted.values())
    verdict = Verdict.CONVERT if granted else Verdict.WAIT
    reason, detail = _why_wanted(sizing)
    types = count_by_type(sizing.wanted).items()
    details = [detail, f"wants {', '.join(f'{count} of type {name}' for name, count in types)}"]
    if granted < wanted:
        details.append(_what_stops(sizing, granted))
    if not granted:
        details[0] = f"{reason.text}: {detail}"
        # Where there were some, other queues have them.
        reason = next(
            (bound.reason for bound in sizing.spent if bound.left <= 0), Reason.OTHERS_FIRST
        )
    return verdict, reason, "; ".join(filter(None, details))


def _what_stops(sizing: QueueSizing, granted: int) -> str:
    """Names the bounds that leave no more, those last that say it in words of their own."""
    used_up = sorted(bound.name for bound in sizing.spent if not bound.why)
    words = [f"{', '.join(used_up)} used up"] if used_up else []
    words += [bound.why for bound in sizing.spent if bound.why]
    return f"{granted} can be had: {'; '.join(words)}"


def _why_wanted(sizing: QueueSizing) -> tuple[Why, str]:
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
