"""What jobs wait for in Slurm while nodes are lent, told where it has come to be another amount.
Pure.

The rule: of a node type of which nodes are lent it counts how many more of its nodes jobs wait
for, as far as so many are lent: the others would not have started them either. The amount is
coarse, so that a queue that only moves tells nothing, and rounded up. Whether it is news is asked
of the last line; nobody saying it is an amount of its own, and so is nobody having looked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from dnm.model.history import ALL, JOBS, NONE, UNKNOWN, HistoryLine
from dnm.model.registry import Registry
from dnm.record.transitions import Cause


def list_job_waits(before: Registry, after: Registry, cause: Cause) -> Iterator[HistoryLine]:
    """Yields a line for each type whose amount is not that of its last line; and for each of which
    nodes were lent, and an amount was known, while no run looked."""
    told, lent = before.memory.jobs, _count_lent(after)
    unseen_since, were_lent = cause.unseen_since, _count_lent(before)
    gone = dict.fromkeys(were_lent, UNKNOWN) if unseen_since is not None else {}
    for node_type, amount in {**gone, **seen_waits(after)}.items():
        last = told.get(node_type, UNKNOWN)
        numbers: dict[str, object] = {"lent": lent[node_type]}
        if amount != UNKNOWN:
            rows = [row for row in after.last_run.waiting_jobs or () if row.node_type == node_type]
            numbers["jobs"] = sum(row.jobs for row in rows)
            numbers["nodes"] = sum(row.nodes for row in rows)
        if unseen_since is not None and last != UNKNOWN and were_lent[node_type]:
            event, numbers["since"] = "unseen", unseen_since.isoformat()
        elif amount != last:
            event = {UNKNOWN: "unknown", NONE: "none"}.get(amount, "wait")
        else:
            continue
        yield cause.line(
            JOBS, event, node_type, node_type=node_type, before=last, after=amount, numbers=numbers,
        )  # fmt: skip


def with_told(jobs: Mapping[str, str], lines: Iterable[HistoryLine]) -> dict[str, str]:
    """Returns the amounts as they are told once these lines are."""
    return {**jobs, **{line.object: line.after for line in lines if line.kind == JOBS}}


def seen_waits(registry: Registry) -> dict[str, str]:
    """Returns how many more nodes jobs wait for, as lines say it, of each type that is lent."""
    lent, rows = _count_lent(registry), registry.last_run.waiting_jobs
    if rows is None:
        return dict.fromkeys(lent, UNKNOWN)
    wanted: Counter[str] = Counter()
    for row in rows:
        wanted[row.node_type] += row.nodes
    return {node_type: _amount(wanted[node_type], lent[node_type]) for node_type in lent}


def _count_lent(registry: Registry) -> Counter[str]:
    return Counter(entry.node_type for _, entry in sorted(registry.nodes.items()))


def _amount(wanted: int, lent: int) -> str:
    if wanted <= 0:
        return NONE
    rounded = 1 << (wanted - 1).bit_length()
    return ALL if rounded >= lent else str(rounded)
