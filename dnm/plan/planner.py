"""`make_plan`: what a run will do, from values alone. No clock, no client, no logger.

A chain of values, each made of the one before it, so that none can be had too early:

    gather_known      Known           the record, the queue document, demand, facts
    with_floors       Known           the same, with what the rules want before any pod asks
    advance           Advanced        requests and nodes as the facts have moved them
    judge_limits      StandingLimits  the limits with what serves now; may they be changed
    plan_fences       Fenced          fences lifted and set
    plan_limits       PlannedLimits   the edit of the queue document
    plan_returns      Returned        nodes that the converter is called for
    plan_conversions  Converted       requests, and a verdict for every queue

Invariants it keeps (design, "What must always be true"): a conversion is only planned within every
cap; a limit is computed from what serves now; a node is only handed to the converter when it has
been seen fenced, empty, and out of Slurm's service; an unreadable fact plans no step that rests on
it; without a change in demand the next plan is empty.
"""

from __future__ import annotations

import msgspec

from dnm.model.cluster import WaitingJobs
from dnm.model.config import Config
from dnm.model.history import NodeRoom, PodKind
from dnm.model.plan import Action, Plan, Snapshot
from dnm.model.queue_edit import QueueEdit
from dnm.model.registry import NodePods, QueueStatus, Registry, run_name
from dnm.model.value import Unreadable
from dnm.plan.acting import judge_actor, refuse_plan, with_judgement
from dnm.plan.actions import find_conflicts, list_actions
from dnm.plan.advance import advance
from dnm.plan.brakes import is_paused
from dnm.plan.conversions import Converted, plan_conversions
from dnm.plan.fences import plan_fences
from dnm.plan.invariants import check_invariants
from dnm.plan.known import Known, gather_known
from dnm.plan.learned import note_gaps, note_lends
from dnm.plan.limits import plan_limits
from dnm.plan.queue_reports import (
    holders_of,
    list_decisions,
    list_waiting,
    queue_statuses,
    seen_statuses,
)
from dnm.plan.returns import plan_returns
from dnm.plan.rule import rules_of
from dnm.plan.standing_limits import judge_limits
from dnm.queues.document import Judge, judge_text

_FAULT = (
    "this plan breaks what must always be true, so nothing of it is done: {}. That is a fault of "
    "dnm's: keep the registry and `dnm plan -o json`, and report it; `dnm pause` until it is mended"
)


def make_plan(
    config: Config, registry: Registry, snapshot: Snapshot, judge: Judge = judge_text
) -> Plan:
    """What the facts make of the record, what the queues need, and the actions that follow."""
    converted = decide(config, registry, snapshot, judge)
    plan = unless_broken(fold_plan(converted), registry, converted.known)
    return with_judgement(plan, registry, judge_actor(config, registry, snapshot))


def unless_broken(plan: Plan, registry: Registry, known: Known) -> Plan:
    """Returns the plan, or what is left of one that breaks what must always be true; `registry` is
    what is recorded."""
    broken = tuple(check_invariants(known.config, known.registry, known.facts, plan))
    return refuse_plan(plan, registry, _FAULT.format("; ".join(broken))) if broken else plan


def decide(
    config: Config, registry: Registry, snapshot: Snapshot, judge: Judge = judge_text
) -> Converted:
    """The same, with all that it was decided from."""
    known = with_floors(gather_known(config, registry, snapshot, judge))
    advanced = advance(known)
    standing = judge_limits(advanced)
    fenced = plan_fences(standing)
    limits = plan_limits(fenced)
    returned = plan_returns(limits)
    return plan_conversions(returned)


def with_floors(known: Known) -> Known:
    """Returns what is known, with the configuration as it is in force now."""
    rules = rules_of(known.config, known.registry, known.facts)
    wanted = [floor for rule in rules if rule.floors for floor in rule.floors(known)]
    if not wanted:
        return known
    from dnm.plan.floors import raise_floors

    return msgspec.structs.replace(known, config=raise_floors(known.config, wanted))


def fold_plan(converted: Converted) -> Plan:
    """The plan that all the stages together are."""
    returned, limits, known = converted.returned, converted.limits, converted.known
    advanced = limits.fenced.standing.advanced
    verdicts = {**returned.verdicts, **converted.nodes}
    questions = [*_questions(limits.edit), *converted.questions]
    errors = (
        *_unread(known.snapshot),
        known.refusal,
        *advanced.errors,
        *converted.errors,
        *find_conflicts(converted),
        *questions,
    )
    status = queue_statuses(converted)
    at = known.snapshot.foreseen_at or known.now
    noted = _with_gaps(converted)
    added: list[Action] = []
    said: list[str] = []
    for rule in rules_of(known.config, known.registry, known.facts):
        if rule.adds:
            more = rule.adds(known, converted.registry, noted)
            noted, added, said = more.registry, [*added, *more.actions], [*said, *more.notes]
        said += rule.notes(known.config, known.registry, at) if rule.notes else ()
    notes = (
        *known.config.retired,
        *advanced.notes,
        *(limits.edit.notes if limits.edit else ()),
        *said,
    )
    waiting_jobs = _waiting_jobs(known)
    return Plan(
        registry=_remembering(noted, status, limits.edit, notes, waiting_jobs),
        actions=(*list_actions(converted), *added),
        nodes=tuple(verdicts[name] for name in sorted(verdicts)),
        queues=tuple(converted.verdicts[queue] for queue in sorted(converted.verdicts)),
        notes=notes,
        errors=tuple(dict.fromkeys(filter(None, errors))),
        status=status,
        seen=seen_statuses(known),
        decisions=list_decisions(converted, status),
        diff=limits.diff,
        needs_person=bool(questions),
        run=run_name(known.now),
        waiting=list_waiting(converted),
        kinds=_seen_kinds(known),
        rooms=_seen_rooms(known) if known.config.demand_keep else (),
        pods=_holders(known, converted.registry),
        uids={
            name: node.uid
            for name, node in (known.facts.nodes or {}).items()
            if name in converted.registry.nodes or name in known.registry.nodes
        },
        pause=converted.registry.pause if is_paused(converted.registry, known.now) else None,
        waiting_jobs=waiting_jobs,
    )


def _holders(known: Known, registry: Registry) -> dict[str, NodePods]:
    """Who holds the lent nodes; nothing where no pods could be read."""
    pods = known.snapshot.pods
    if isinstance(pods, Unreadable) or not registry.nodes:
        return {}
    return holders_of(pods.pods, registry.nodes)


def _seen_kinds(known: Known) -> dict[str, tuple[PodKind, ...]]:
    """Of a queue whose pods could not all be read nothing is said: they have not ended."""
    kinds = known.demand.kinds if known.demand else {}
    return {queue: one for queue, one in kinds.items() if not known.unreadable_namespaces(queue)}


def _seen_rooms(known: Known) -> tuple[NodeRoom, ...]:
    from dnm.demand.kinds import list_rooms

    pods, nodes = known.snapshot.pods, known.facts.nodes
    if isinstance(pods, Unreadable) or nodes is None:
        return ()
    return list_rooms(known.config, nodes.values(), known.registry.nodes, pods.pods)


def _waiting_jobs(known: Known) -> tuple[WaitingJobs, ...] | None:
    """What jobs wait for, as far as the batch side was asked now, else when it last was. A run that
    can't see the Nodes asks nobody: how long ago that was is not known any more."""
    if known.snapshot.batch is None:
        return None if known.facts.nodes is None else known.registry.last_run.waiting_jobs
    return known.facts.waiting_jobs


def _with_gaps(converted: Converted) -> Registry:
    known = converted.known
    verdicts = converted.returned.verdicts
    noted = note_gaps(known.config, known.registry, converted.registry, verdicts, known.now)
    return note_lends(known.config, known.registry, noted, verdicts, known.now)


def _questions(edit: QueueEdit | None) -> list[str]:
    """What only a person can mend in the queue document."""
    if edit is None:
        return []
    if edit.refusal:
        return [edit.refusal]
    return [f"{queue}: {why}" for queue, why in edit.blocked.items()]


def _unread(snapshot: Snapshot) -> list[str]:
    parts = (snapshot.nodes, snapshot.pods, snapshot.queue_maps, snapshot.batch,
             snapshot.waiting_jobs, snapshot.claims, snapshot.yunikorn,
             snapshot.unread_zones)  # fmt: skip
    lines = [part.error for part in parts if isinstance(part, Unreadable)]
    if not isinstance(snapshot.pods, Unreadable):
        lines += [
            f"the pods of namespace {namespace} could not be read: {why}"
            for namespace, why in sorted(snapshot.pods.unreadable.items())
        ]
    if not isinstance(snapshot.nodes, Unreadable):
        lines += [
            f"{node.unreadable}: it is neither taken up nor returned"
            for node in snapshot.nodes
            if node.unreadable
        ]
    return lines


def _remembering(
    registry: Registry,
    status: dict[str, QueueStatus],
    edit: QueueEdit | None,
    notes: tuple[str, ...],
    waiting_jobs: tuple[WaitingJobs, ...] | None,
) -> Registry:
    """The record as it is saved before the first action. It remembers the queues, the ledger and
    what jobs wait for from then on, so that a run that is killed after it has written leaves a
    trace of that."""
    return msgspec.structs.replace(
        registry,
        last_run=msgspec.structs.replace(
            registry.last_run,
            queues=dict(status),
            notes=notes,
            waiting_jobs=waiting_jobs,
            ledger=edit.noted if edit and not edit.refusal else registry.last_run.ledger,
        ),
    )
