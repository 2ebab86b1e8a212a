"""`make_plan`: what a run will do, from values alone. No clock, no client, no logger.

The stages, each a function of the values that it needs:

    gather_inputs     Inputs          the record, the queue document, demand, facts
    with_floors       Inputs          the same, with what the rules want before any pod asks
    advance           Advanced        requests and nodes as the facts have moved them
    judge_limits      StandingLimits  the limits with what serves now; may they be changed
    decide_fates      Fates           one fate a node: stays, is fenced, returns
    plan_limits       PlannedLimits   the edit of the queue document
    plan_conversions  Conversions     requests, and a verdict for every queue

Invariants it keeps; `plan/invariants.py` asks those that show in a plan of each one that is made:
a conversion is only planned within every cap; a limit is computed from what serves now; a node is
only handed to the converter when it has been seen fenced, empty, and out of Slurm's service; an
unreadable fact plans no step that rests on it; without a change in demand the next plan is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

import msgspec

from dnm.model.batch import WaitingJobs
from dnm.model.config import Config
from dnm.model.history import NodeRoom, PodKind
from dnm.model.observed import DocumentResets, count_reset
from dnm.model.plan import Action, Plan, Snapshot
from dnm.model.queue_edit import QueueEdit
from dnm.model.registry import NodePods, QueueStatus, Registry, run_name
from dnm.model.value import Unreadable
from dnm.plan.actions import find_conflicts, list_actions
from dnm.plan.advance import Advanced, advance
from dnm.plan.conversions import Decided, plan_conversions
from dnm.plan.doubted_pods import with_doubts
from dnm.plan.fates import Fates, decide_fates
from dnm.plan.hooks import Additions
from dnm.plan.idle_times import idle_times, note_lends, note_returns
from dnm.plan.inputs import Inputs, gather_inputs
from dnm.plan.invariants import check_invariants
from dnm.plan.lease import judge_actor, with_judgement
from dnm.plan.limits import StandingLimits, diff_of, judge_limits, plan_limits
from dnm.plan.queue_reports import holders_of, list_decisions, queue_statuses, seen_statuses
from dnm.plan.rule import rules_of
from dnm.plan.waiting_pods import list_waiting

_FAULT = (
    "this plan breaks what must always be true, so nothing of it is done: {}. That is a fault of "
    "dnm's: keep the registry and `dnm plan -o json`, and report it; `dnm pause` until it is mended"
)


def make_plan(config: Config, registry: Registry, snapshot: Snapshot) -> Plan:
    """What the facts make of the record, what the queues need, and the actions that follow."""
    decided = decide(config, registry, snapshot)
    plan = unless_broken(fold_plan(decided), registry, decided.inputs)
    return with_judgement(plan, registry, judge_actor(config, registry, snapshot), snapshot)


def unless_broken(plan: Plan, registry: Registry, inputs: Inputs) -> Plan:
    """Returns the plan, or what is left of one that breaks what must always be true; `registry` is
    what is recorded."""
    broken = tuple(check_invariants(inputs.config, inputs.registry, inputs.facts, plan))
    if not broken:
        return plan
    from dnm.plan.refusal import refuse_plan  # a fault of dnm

    return refuse_plan(plan, registry, _FAULT.format("; ".join(broken)))


def decide(config: Config, registry: Registry, snapshot: Snapshot) -> Decided:
    """The same, with all that it was decided from."""
    inputs = with_floors(gather_inputs(config, registry, snapshot))
    seen = advance(inputs)
    standing = judge_limits(inputs, seen.registry)
    fates = _fates(inputs, seen, standing)
    inputs = msgspec.structs.replace(inputs, demand=fates.demand)
    limits = plan_limits(inputs, fates.registry, standing)
    conversions = plan_conversions(inputs, fates.registry, limits)
    return Decided(inputs=inputs, seen=seen, fates=fates, limits=limits, conversions=conversions)


def _fates(inputs: Inputs, seen: Advanced, standing: StandingLimits) -> Fates:
    """Where nothing is lent there is nothing to decide about."""
    if standing.registry.nodes:
        return decide_fates(inputs, seen, standing)
    return Fates(registry=standing.registry, verdicts=seen.verdicts, demand=inputs.demand)


def with_floors(inputs: Inputs) -> Inputs:
    """Returns what is known, with the configuration as it is in force now, what limits are to be
    for a demand, and for how long idle nodes stay."""
    replace = msgspec.structs.replace
    rules = rules_of(inputs.config, inputs.registry, inputs.facts)
    if inputs.registry.nodes:
        times = idle_times(inputs.config, inputs.registry)
        inputs = replace(inputs, facts=replace(inputs.facts, idle_times=times))
    for rule in rules:
        inputs = rule.prepares(inputs) if rule.prepares else inputs
    return inputs


_MOST_PROBLEMS = 50  # of events that are reported as errors


def fold_plan(decided: Decided) -> Plan:
    """The plan that all the stages together are."""
    inputs, limits, conversions = decided.inputs, decided.limits, decided.conversions
    registry, edit = conversions.registry, limits.edit
    verdicts = {**decided.fates.verdicts, **conversions.nodes}
    questions = [*limits.questions, *conversions.questions, *_event_problems(inputs.config)]
    errors = (
        *_unread(inputs.snapshot),
        inputs.objection.detail if inputs.objection else "",
        *decided.seen.errors,
        *conversions.errors,
        *find_conflicts(inputs.facts, registry),
        *questions,
    )
    status = queue_statuses(decided)
    added = _with_rules(decided, _with_learned(decided))
    resets = _count_resets(added.registry, edit, inputs.now)
    is_known = resets is not None and resets.is_repeated(inputs.now)
    notes = (
        *decided.seen.notes,
        *(edit.notes if edit and not (edit.reset_by and is_known) else ()),
        *(note for note in added.notes if note not in questions),
    )
    waiting_jobs = _waiting_jobs(inputs)
    plan = Plan(
        registry=_remembering(
            _with_resets(added.registry, resets), status, edit, notes, waiting_jobs
        ),
        actions=(*list_actions(decided), *added.actions),
        nodes=tuple(verdicts[name] for name in sorted(verdicts)),
        queues=tuple(conversions.verdicts[queue] for queue in sorted(conversions.verdicts)),
        notes=notes,
        errors=tuple(dict.fromkeys(filter(None, errors))),
        status=status,
        seen=seen_statuses(inputs),
        decisions=list_decisions(decided, status),
        diff=diff_of(inputs.document, limits),
        needs_person=bool(questions),
        run=run_name(inputs.now),
        waiting=list_waiting(decided) if inputs.demand and inputs.demand.groups else (),
        kinds=_seen_kinds(inputs),
        rooms=_seen_rooms(inputs) if inputs.config.demand_keep else (),
        pods=_holders(inputs, registry),
        uids={
            name: node.uid
            for name, node in (inputs.facts.nodes or {}).items()
            if name in registry.nodes or name in inputs.registry.nodes
        },
        pause=registry.pause if inputs.paused() else None,
        waiting_jobs=waiting_jobs,
    )
    return with_doubts(plan, inputs) if inputs.snapshot.waits else plan


def _event_problems(config: Config) -> Iterator[str]:
    """Yields why events of the configuration can't be read. The run does the rest and ends with
    exit code 2."""
    texts = (text for texts in config.unread_events.values() for text in texts)
    yield from (f"{config.path}: {text}" for text in islice(texts, _MOST_PROBLEMS))


def _with_rules(decided: Decided, noted: Registry) -> Additions:
    """What the rules add when all else is decided, and what they say."""
    inputs, after = decided.inputs, decided.conversions.registry
    actions: list[Action] = []
    notes: list[str] = []
    for rule in rules_of(inputs.config, inputs.registry, inputs.facts):
        if rule.adds:
            more = rule.adds(inputs, after, noted)
            noted = more.registry
            actions += more.actions
            notes += more.notes
    return Additions(registry=noted, actions=tuple(actions), notes=tuple(notes))


def _holders(inputs: Inputs, registry: Registry) -> dict[str, NodePods]:
    """Who holds the lent nodes; nothing where no pods could be read."""
    pods = inputs.snapshot.pods
    if isinstance(pods, Unreadable) or not registry.nodes:
        return {}
    return holders_of(pods.pods, registry.nodes)


def _seen_kinds(inputs: Inputs) -> dict[str, tuple[PodKind, ...]]:
    """Of a queue whose pods could not all be read nothing is said: they have not ended."""
    kinds = inputs.demand.kinds if inputs.demand else {}
    return {queue: kind for queue, kind in kinds.items() if not inputs.unreadable_namespaces(queue)}


def _seen_rooms(inputs: Inputs) -> tuple[NodeRoom, ...]:
    from dnm.demand.kinds import list_rooms

    pods, nodes = inputs.snapshot.pods, inputs.facts.nodes
    if isinstance(pods, Unreadable) or nodes is None:
        return ()
    return list_rooms(inputs.config, nodes.values(), inputs.registry.nodes, pods.pods)


def _waiting_jobs(inputs: Inputs) -> tuple[WaitingJobs, ...] | None:
    """What jobs wait for, as far as the batch side was asked now, else when it last was. A run that
    can't see the Nodes asks nobody: how long ago that was is not known any more."""
    if inputs.snapshot.batch is None:
        return None if inputs.facts.nodes is None else inputs.registry.last_run.waiting_jobs
    return inputs.facts.waiting_jobs


def _with_learned(decided: Decided) -> Registry:
    """The record with what this run has taught of gaps and of lending."""
    inputs, after, verdicts = decided.inputs, decided.conversions.registry, decided.fates.verdicts
    before = inputs.registry
    if not (before.nodes or after.nodes or after.requests or after.lent_again):
        return after
    needed: Counter[str] = Counter()
    for pool, count in decided.conversions.sizing.wanted().items():
        needed[pool.queue] += count
    noted = note_returns(inputs.config, before, after, needed, inputs.now)
    return note_lends(inputs.config, before, noted, verdicts, inputs.now)


def _unread(snapshot: Snapshot) -> list[str]:
    parts = (snapshot.nodes, snapshot.pods, snapshot.queue_maps, snapshot.batch,
             snapshot.waiting_jobs, snapshot.claims, snapshot.yunikorn,
             snapshot.unread_zones, snapshot.daemon_sets)  # fmt: skip
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


def _count_resets(
    registry: Registry, edit: QueueEdit | None, now: datetime
) -> DocumentResets | None:
    """Returns the resets of the queue document, with the one that this run found."""
    resets = registry.last_run.resets
    if edit is None or edit.refusal or not (edit.is_changed and edit.reset_by):
        return resets
    return count_reset(resets, edit.reset_by, now)


def _with_resets(registry: Registry, resets: DocumentResets | None) -> Registry:
    last_run = msgspec.structs.replace(registry.last_run, resets=resets)
    return msgspec.structs.replace(registry, last_run=last_run)


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
