"""Claims of nodes, their owners and their progress, for `--list`; and the pauses of nodes after a
failed conversion.

Slurm shows the claims: dnm's reservations, and drains with a mark. The journals show the progress
of a conversion, and their locks show whether a converter works on it now. Slurm is read before the
journals, so that every claim that was read has its journal.

A failure costs two boots and delays pods, and a broken machine fails again. So each failure in a
row doubles the pause of a node, from twice `min_idle_seconds` up to a day. The next call chooses
another node at once, and tries a failed one after its pause. A success ends the row.
`--node-name` ignores pauses. Each journal takes over the count of failures from the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeAlias

import msgspec

from dnm.converters.journal import Direction, Journal, JournalStore
from dnm.converters.listing import connect_slurm, read_facts
from dnm.converters.marks import instances_on, operation_of, reason_of_drain
from dnm.converters.select import Judged, SlurmFacts, format_duration, held, judge_nodes
from dnm.converters.settings import Settings
from dnm.converters.slurm.text import SlurmNode
from dnm.model.batch import BatchClaim
from dnm.model.errors import ConverterError
from dnm.model.slurm_state import ABSENT

# From these stages on the machine itself may have changed.
_FIRST_TOUCH = ("prepare", "reset", "cordon", "leave", "fence")


class Claimed(NamedTuple):
    """The claim of each node (None: unreadable), and the journal of each node's last conversion."""

    claims: dict[str, BatchClaim] | None = None
    journals: Mapping[str, Journal] = {}

    @property
    def errors(self) -> dict[str, str]:
        """Returns the error of each node with a failed conversion or an unreadable journal."""
        return {node: claim.error for node, claim in (self.claims or {}).items() if claim.error}


def read_claims(settings: Settings, facts: SlurmFacts, log: Callable[[str], None]) -> Claimed:
    """Returns which nodes are claimed. If the journals are unreadable, logs that; returns none."""
    unreadable: dict[str, str] = {}
    try:
        # None: nothing was ever converted here; --list makes no directory.
        store = JournalStore(settings.state_dir) if settings.state_dir.exists() else None
        journals = store.load_all(unreadable.__setitem__) if store else {}
        reserved = _reserved(facts, settings.res_name)
        claims = {
            node.name: msgspec.structs.replace(claim, account=reserved.get(node.name, ""))
            for node in facts.nodes
            if (claim := _claim_of(node, reserved, journals.get(node.name)))
        }
        for node, cause in unreadable.items():
            claimed = claims.get(node, BatchClaim(instance=settings.instance))
            claims[node] = msgspec.structs.replace(claimed, error=cause)
        if store:
            claims = {
                node: msgspec.structs.replace(claim, is_at_work=store.is_at_work(node))
                for node, claim in claims.items()
            }
    except (ConverterError, OSError) as error:
        log(f"{settings.machines.value}: claims can't be read: {error}")
        return Claimed()
    return Claimed(claims, journals)


def _reserved(facts: SlurmFacts, prefix: str) -> dict[str, str]:
    """Returns the nodes that dnm has reserved, each with the account that pays. The one reservation
    of all nodes by node-convert's predecessor does not count: administrators use it too."""
    return {
        node: reservation.charged_to
        for reservation in facts.reservations
        for node in reservation.nodes
        if reservation.name == f"{prefix}-{node}"
    }


def _claim_of(
    node: SlurmNode, reserved: Collection[str], journal: Journal | None
) -> BatchClaim | None:
    is_drained, marks = "DRAIN" in node.state.flags, instances_on(node)
    is_held = node.name in reserved or (is_drained and bool(marks))
    if node.state.base == ABSENT and journal is not None and not journal.is_open:
        # Slurm has no record, so the journal decides.
        is_lent = journal.direction is Direction.K8S and not journal.error
        return _from_journal(journal, "") if is_lent else None
    is_begun = journal is not None and journal.is_open and any(map(journal.has_begun, _FIRST_TOUCH))
    if not is_held and not is_begun:
        return None
    named = marks if is_drained else []  # without the drain, only the reservation holds it
    if journal and journal.is_open and journal.instance in (named or [journal.instance]):
        return _from_journal(journal, journal.way.value)
    operation = operation_of(reason_of_drain(node))
    if journal is not None and operation and operation == journal.operation:
        return _from_journal(journal, "")
    return BatchClaim(instance=marks[0] if marks else "", since=_time_of(operation))


def _from_journal(journal: Journal, direction: str) -> BatchClaim:
    return BatchClaim(
        instance=journal.instance,
        direction=direction,
        namespace=journal.namespace,
        node_type=journal.node_type,
        request=journal.request,
        since=journal.begun,
        error=journal.error if direction else "",
    )


def _time_of(operation: str) -> datetime | None:
    """Returns the time at which an operation began, by its name; None if the name has no time."""
    try:
        return datetime.strptime(operation.partition("-")[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


Judge: TypeAlias = Callable[[Sequence[Judged], Settings], Sequence[Judged]]
"""A function that judges a program's nodes by Kubernetes too. It raises KubeError."""


class Survey(NamedTuple):
    facts: SlurmFacts
    judged: Sequence[Judged]
    claimed: Claimed


def judge_all(
    settings: Settings, judge: Judge | None, log: Callable[[str], None], is_named: bool = False
) -> Survey:
    """Returns each node with its verdict, and all claims. Slurm and the program's `judge` decide.
    SKIP follows from an unreadable journal and, unless `is_named`, from a pause after a failure."""
    facts = read_facts(connect_slurm(settings))
    judged: Sequence[Judged] = judge_nodes(facts, settings)
    judged = judge(judged, settings) if judge else judged
    listed = msgspec.structs.replace(facts, nodes=tuple(node.node for node in judged))
    claimed = read_claims(settings, listed, log)
    skips, shortest = claimed.errors, settings.min_idle_seconds
    for name, journal in () if is_named else claimed.journals.items():
        skips.setdefault(name, pause_reason(journal, shortest, facts.read_at))
    return Survey(facts, [held(node, skips.get(node.node.name, "")) for node in judged], claimed)


def describe_claims(claims: Mapping[str, BatchClaim], settings: Settings) -> list[str]:
    """Returns lines with the next step of each interrupted or failed conversion of this dnm."""
    lines = []
    for node, claim in sorted(claims.items()):
        if claim.instance != settings.instance or claim.is_at_work:
            continue
        if claim.error and not claim.direction:
            lines.append(claim.error)
        elif claim.direction:
            failed = f" ({claim.error})" if claim.error else ""
            todo = next_commands(node, claim.direction, claim.namespace, settings.machines.value)
            is_return = claim.direction == "batch"
            shown = "return to Slurm" if is_return else f"conversion for '{claim.namespace}'"
            lines.append(f"{node}: its {shown} was interrupted{failed}; {todo}")
    return lines


def next_commands(node: str, direction: str, namespace: str, program: str = "node-convert") -> str:
    """Returns a text with the commands that continue or undo a stopped conversion."""
    back = f"'{program} --set batch --node-name {node}' returns it"
    if direction == "batch":
        return back
    namespace = f" --namespace {namespace}" if namespace else ""
    return f"'{program} --set k8s --node-name {node}{namespace}' continues it, {back}"


LONGEST_REST = timedelta(days=1)
_COUNT, _LAST = "failures", "failed_at"  # keys of the journal's facts


def carry_over(last: Journal | None) -> dict[str, str]:
    """Returns the failures that a node's last journal counts, as entries for its next journal."""
    facts = last.facts if last else {}
    return {key: facts[key] for key in (_COUNT, _LAST) if key in facts}


def count_failure(journal: Journal, now: datetime) -> dict[str, str]:
    """Returns the journal's entries after one more failure in a row: their number, and the time."""
    return {_COUNT: str(_failures(journal) + 1), _LAST: now.isoformat()}


NO_FAILURE: Mapping[str, str] = {_COUNT: "0"}


def pause_end(journal: Journal, shortest: timedelta) -> datetime | None:
    """Returns when the node's pause ends; None if it has not failed or the time is unknown."""
    failures = _failures(journal)
    try:
        failed_at = datetime.fromisoformat(journal.facts.get(_LAST, ""))
    except ValueError:
        return None
    if failures < 1 or failed_at.tzinfo is None:
        return None
    doubled: int = 2 ** min(failures, 16)
    return failed_at + min(shortest * doubled, LONGEST_REST)


def _failures(journal: Journal) -> int:
    text = journal.facts.get(_COUNT, "0")
    return int(text) if text.isascii() and text.isdecimal() else 0


def pause_reason(journal: Journal, shortest: timedelta, now: datetime) -> str:
    """Returns the reason why a node with a pause after a failure is not lent; otherwise empty."""
    end = pause_end(journal, shortest)
    if end is None or now >= end:
        return ""
    failures = _failures(journal)
    times = "" if failures == 1 else f" {failures} times in a row"
    cause = f" ({journal.error})" if journal.error else ""
    return f"its conversion failed{times}{cause}: left alone for {format_duration(end - now)}"
