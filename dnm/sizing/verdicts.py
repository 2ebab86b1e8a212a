"""The answer of `sizing.py` in words: one verdict, one reason, one sentence a queue.

The rule: the first true reason wins, and pods that ask for nothing are named whatever the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dnm.demand.demand import Demand
from dnm.model.plan import QueueVerdict, Reason, Verdict
from dnm.model.queue_path import is_under
from dnm.sizing.allotment import BATCH_NODES, Answer, Case
from dnm.sizing.quota import Shortage

_MOST_KINDS = 3  # of pods that no node helps, one named of each


def queue_verdict(
    demand: Demand, case: Case, want: Answer, grant: Answer, bounds: Mapping[str, int]
) -> QueueVerdict:
    """What a queue wants, what of it can be had (`bounds`: what there was at first), and why."""
    if want.opened:
        verdict = Verdict.CONVERT if grant.opened else Verdict.WAIT
        reason, detail = _why_wanted(want)
        types = Counter(case.kinds[kind].node_type for kind in want.opened)
        many = ", ".join(f"{count} of type {name}" for name, count in sorted(types.items()))
        details = [detail, f"wants {many}"]
        if len(grant.opened) < len(want.opened):
            details.append(f"{len(grant.opened)} can be had: {', '.join(grant.spent)} used up")
        if not grant.opened:
            details[0] = f"{reason.value}: {detail}"
            reason = _why_none(grant.spent, bounds)
    else:
        verdict, reason, detail = _why_nothing(demand, case, want)
        details = [detail]
    if reason is not Reason.NOTHING_HELPS:
        details.append(_beyond_text(want))
    details += _left_out(demand, case.queue)
    return QueueVerdict(
        queue=case.queue, verdict=verdict, reason=reason, detail="; ".join(filter(None, details))
    )


def _why_none(spent: Sequence[str], bounds: Mapping[str, int]) -> Reason:
    """Why a queue gets none of the nodes that it wants."""
    gone = [name for name in spent if bounds[name] <= 0]
    if not gone:
        return Reason.OTHERS_FIRST
    if all(name.startswith(BATCH_NODES) for name in gone):
        return Reason.NO_BATCH_NODE
    return Reason.CAPPED


def _why_wanted(want: Answer) -> tuple[Reason, str]:
    if want.no_room or want.no_quota:
        reason = Reason.LACKS_ROOM if not want.no_quota else Reason.LACKS_QUOTA
        if want.for_room and want.no_quota:
            reason = Reason.LACKS_BOTH
        if want.no_quota and want.short is not None:
            return reason, _short_text(want.short)
        return reason, f"{want.no_room} pods"
    if want.short is not None:
        return Reason.NEARLY_FULL, _short_text(want.short)
    return Reason.MIN_NODES, ", ".join(sorted(set(want.too_few)))


def _short_text(short: Shortage) -> str:
    demand = _number(short.resource, short.used + short.asked)
    return f"{short.path} has {amount_text(short.resource, short.limit)} for {demand}"


def _why_nothing(demand: Demand, case: Case, want: Answer) -> tuple[Verdict, Reason, str]:
    if case.helped and want.relies_on_coming:
        return Verdict.WAIT, Reason.ON_THE_WAY, ""
    if want.beyond:
        return Verdict.KEEP, Reason.NOTHING_HELPS, _beyond_text(want)
    young = sum(group.young for group in demand.groups if is_under(group.queue, case.queue))
    if young:
        return Verdict.WAIT, Reason.TOO_YOUNG, f"{young} pods"
    return Verdict.KEEP, Reason.ENOUGH, ""


def _beyond_text(want: Answer) -> str:
    """The pods that no node helps: one of each kind, of a few kinds."""
    kinds = [
        f"no node helps {count} like {group.namespace}/{group.names[0]}: {why}"
        for group, count, why in want.beyond[:_MOST_KINDS]
    ]
    if len(want.beyond) > _MOST_KINDS:
        kinds.append("nor others: `dnm check` names them")
    return "; ".join(kinds)


def _left_out(demand: Demand, queue: str) -> list[str]:
    """The pods that are not counted, by reason, with one of them."""
    counts: Counter[str] = Counter()
    like: dict[str, str] = {}
    for one in demand.uncounted:
        if is_under(one.queue, queue):
            counts[one.why.value] += one.count
            like.setdefault(one.why.value, f"{one.namespace}/{one.names[0]}")
    return [f"{count} not counted, {why}: {like[why]}" for why, count in sorted(counts.items())]


def amount_text(resource: str, amount: int) -> str:
    """For people: `1.5 vcore`, `16G memory`, `2 nvidia.com/gpu`."""
    return f"{_number(resource, amount)} {resource}"


def _number(resource: str, amount: int) -> str:
    if resource == "vcore":
        return f"{round(amount / 1000, 3):,g}" if amount < 10**6 else f"{amount / 1000:,.0f}"
    if resource in ("memory", "ephemeral-storage"):
        gigabytes = amount / 10**9
        return f"{gigabytes:.3g}G" if gigabytes < 100 else f"{gigabytes:,.0f}G"
    return f"{amount:,}"
