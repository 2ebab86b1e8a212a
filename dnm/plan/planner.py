"""`make_plan`: the plan of a run, from values alone. No clock, no client, no logger.

The stages, each a function of the values that it needs:

    gather_inputs     Inputs          the record, the queue document, demand, facts
    with_floors       Inputs          the same, with the floors of the rules
    advance           Advanced        requests and nodes, up to date with the facts
    judge_limits      CurrentLimits   the limits with what serves now; may they be changed
    decide_nodes      NodeDecisions   one decision a node: stays, is fenced, returns
    plan_limits       PlannedLimits   the edit of the queue document
    plan_conversions  Conversions     requests, and a verdict for every queue

Invariants; `plan/invariants.py` checks those that a plan shows: a conversion is only planned within
every cap; a limit is computed from the nodes that serve now; a node is only passed to the converter
after it was seen fenced, empty, and out of Slurm's service; an unreadable fact plans no step that
depends on it; without a change in demand the next plan is empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice

import msgspec

from dnm.model.batch import WaitingJobs
from dnm.model.config import Config
from dnm.model.history import NodeRoom, PodKind
from dnm.model.observed import DocumentResets, count_reset
from dnm.model.plan import Action, Plan, Snapshot
from dnm.model.queue_edit import QueueEdit
from dnm.model.registry import NodePods, Registry, run_name
from dnm.model.value import Unreadable
from dnm.plan.actions import find_conflicts, list_actions
from dnm.plan.advance import Advanced, advance
from dnm.plan.conversions import Decided, plan_conversions
from dnm.plan.hooks import Additions
from dnm.plan.idle_times import idle_times, note_lends, note_returns
from dnm.plan.inputs import Inputs, gather_inputs, lent_with
from dnm.plan.invariants import check_invariants
from dnm.plan.lease import judge_actor, with_judgement
from dnm.plan.limits import CurrentLimits, diff_of, judge_limits, plan_limits
from dnm.plan.node_decisions import NodeDecisions, decide_nodes
from dnm.plan.queue_reports import current_statuses, holders_of, list_decisions, queue_statuses
from dnm.plan.rule import rules_of
from dnm.plan.uncertain_pods import with_uncertain_pods
from dnm.plan.waiting_pods import list_waiting

_DEFECT = (
    "this plan breaks an invariant, so no part of it is executed: {}. This is a defect of dnm: "
    "keep the registry and `dnm plan -o json`, and report it; run `dnm pause` until it is fixed"
)


def make_plan(config: Config, registry: Registry, snapshot: Snapshot) -> Plan:
    """Returns the plan of a run: the updated registry, the decisions, and the actions."""
    decided = decide(config, registry, snapshot)
    plan = unless_broken(fold_plan(decided), registry, decided.inputs)
    return with_judgement(plan, registry, judge_actor(config, registry, snapshot), snapshot)


def unless_broken(plan: Plan, registry: Registry, inputs: Inputs) -> Plan:
    """Returns the plan, or, if it breaks an invariant, one with an error and only safe actions."""
    broken = tuple(check_invariants(inputs.config, inputs.registry, inputs.facts, plan))
    if not broken:
        return plan
    from dnm.plan.refusal import refuse_plan  # a defect of dnm

    return refuse_plan(plan, registry, _DEFECT.format("; ".join(broken)))


def decide(config: Config, registry: Registry, snapshot: Snapshot) -> Decided:
    """Runs all stages of planning and returns their results, with the inputs."""
    inputs = with_floors(gather_inputs(config, registry, snapshot))
    seen = advance(inputs)
    current = judge_limits(inputs, seen.registry)
    decisions = _decide_nodes(inputs, seen, current)
    inputs = msgspec.structs.replace(inputs, demand=decisions.demand)
    limits = plan_limits(inputs, decisions.registry, current)
    conversions = plan_conversions(inputs, decisions.registry, limits)
    return Decided(
        inputs=inputs, seen=seen, decisions=decisions, limits=limits, conversions=conversions
    )


def _decide_nodes(inputs: Inputs, seen: Advanced, current: CurrentLimits) -> NodeDecisions:
    """Decides about lent nodes, if the registry has any."""
    if current.registry.nodes:
        return decide_nodes(inputs, seen, current)
    return NodeDecisions(registry=current.registry, verdicts=seen.verdicts, demand=inputs.demand)


def with_floors(inputs: Inputs) -> Inputs:
    """Returns the inputs with the idle time of each lent node, and as enabled rules prepare them,
    e.g. with raised `min_nodes`."""
    replace = msgspec.structs.replace
    rules = rules_of(inputs.config, inputs.registry, inputs.facts)
    if inputs.registry.nodes:
        times = idle_times(inputs.config, inputs.registry, inputs.now)
        inputs = replace(inputs, facts=replace(inputs.facts, idle_times=times))
    for rule in rules:
        inputs = rule.prepares(inputs) if rule.prepares else inputs
    return inputs


_MOST_PROBLEMS = 50  # of events that are reported as errors


def fold_plan(decided: Decided) -> Plan:
    """Combines the results of all stages of planning into a plan."""
    inputs, limits, conversions = decided.inputs, decided.limits, decided.conversions
    registry, edit = conversions.registry, limits.edit
    verdicts = {**decided.decisions.verdicts, **conversions.nodes}
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
    added = _with_rules(decided, _with_measured_times(decided))
    resets = _count_resets(added.registry, edit, inputs.now)
    is_reported = resets is not None and resets.is_repeated(inputs.now)
    shown = edit if edit and not (edit.reset_by and is_reported) else QueueEdit()
    notes = (
        *decided.seen.notes,
        *shown.ledger_news,
        *(news.note for news in shown.limit_news),
        *(note for note in added.notes if note not in questions),
    )
    waiting_jobs = _waiting_jobs(inputs)
    lent, nodes = registry.nodes.keys() | inputs.registry.nodes.keys(), inputs.facts.nodes or {}
    uids = {name: node.uid for name, node in nodes.items() if name in lent}
    fields = {"queues": dict(status), "notes": notes, "resets": resets,
              "waiting_jobs": waiting_jobs}  # fmt: skip
    plan = Plan(
        registry=_with_last_run(inputs.config, added.registry, edit, fields),
        actions=(*list_actions(decided), *added.actions),
        nodes=tuple(verdicts[name] for name in sorted(verdicts)),
        queues=tuple(conversions.verdicts[queue] for queue in sorted(conversions.verdicts)),
        notes=notes,
        errors=tuple(dict.fromkeys((*decided.seen.node_errors, *filter(None, errors)))),
        other_errors=tuple(dict.fromkeys(filter(None, errors))),
        request_errors=decided.seen.request_errors,
        limit_news=shown.limit_news,
        status=status,
        seen=current_statuses(inputs),
        decisions=list_decisions(decided, status),
        diff=diff_of(inputs.queues, limits),
        needs_person=bool(questions),
        run=run_name(inputs.now),
        waiting=list_waiting(decided) if inputs.demand and inputs.demand.groups else (),
        kinds=_seen_kinds(inputs),
        node_capacities=_free_capacity(inputs) if inputs.config.demand_keep else (),
        pods=_holders(inputs, registry),
        uids=uids,
        adopted=decided.seen.adopted,
        pause=registry.pause if inputs.paused() else None,
        waiting_jobs=waiting_jobs,
    )
    return with_uncertain_pods(plan, inputs) if inputs.snapshot.waits else plan


def _event_problems(config: Config) -> Iterator[str]:
    """Yields the errors of invalid events in the configuration, which make the exit code 2."""
    texts = (text for texts in config.unread_events.values() for text in texts)
    yield from (f"{config.path}: {text}" for text in islice(texts, _MOST_PROBLEMS))


def _with_rules(decided: Decided, recorded: Registry) -> Additions:
    """Returns the actions and notes that enabled rules add to the plan after all decisions."""
    inputs, after = decided.inputs, decided.conversions.registry
    actions: list[Action] = []
    notes: list[str] = []
    for rule in rules_of(inputs.config, inputs.registry, inputs.facts):
        if rule.adds:
            additions = rule.adds(inputs, after, recorded)
            recorded = additions.registry
            actions += additions.actions
            notes += additions.notes
    return Additions(registry=recorded, actions=tuple(actions), notes=tuple(notes))


def _holders(inputs: Inputs, registry: Registry) -> dict[str, NodePods]:
    """Returns the pods on each lent node, or nothing if pods could not be read."""
    pods = inputs.snapshot.pods
    if isinstance(pods, Unreadable) or not registry.nodes:
        return {}
    return holders_of(pods.pods, registry.nodes)


def _seen_kinds(inputs: Inputs) -> dict[str, tuple[PodKind, ...]]:
    """Returns each queue's groups of equal pods, except for queues with unreadable pods."""
    kinds = inputs.demand.kinds if inputs.demand else {}
    return {queue: kind for queue, kind in kinds.items() if not inputs.unreadable_namespaces(queue)}


def _free_capacity(inputs: Inputs) -> tuple[NodeRoom, ...]:
    from dnm.demand.kinds import list_free_capacity

    pods, nodes = inputs.snapshot.pods, inputs.facts.nodes
    if isinstance(pods, Unreadable) or nodes is None:
        return ()
    return list_free_capacity(inputs.config, nodes.values(), inputs.registry.nodes, pods.pods)


def _waiting_jobs(inputs: Inputs) -> tuple[WaitingJobs, ...] | None:
    """Returns Slurm's pending jobs as this run has read them, or else the last run that did. It is
    None if the Nodes could not be read, since the age of the last answer is unknown."""
    if inputs.snapshot.batch is None:
        return None if inputs.facts.nodes is None else inputs.registry.last_run.waiting_jobs
    return inputs.facts.waiting_jobs


def _with_measured_times(decided: Decided) -> Registry:
    """Returns the registry with the idle pauses and lend times that this run measured."""
    inputs, after, verdicts = (
        decided.inputs,
        decided.conversions.registry,
        decided.decisions.verdicts,
    )
    before = inputs.registry
    if not (before.nodes or after.nodes or after.requests or after.lent_again):
        return after
    needed: Counter[str] = Counter()
    for pool, count in decided.conversions.sizing.wanted().items():
        needed[pool.queue] += count
    recorded = note_returns(inputs.config, before, after, needed, inputs.now)
    return note_lends(inputs.config, before, recorded, verdicts, inputs.now)


def _unread(snapshot: Snapshot) -> list[str]:
    queues = snapshot.queue_facts
    parts = (snapshot.nodes, snapshot.pods, queues.unread, *queues.unread_queues.values(),
             snapshot.batch, snapshot.waiting_jobs, snapshot.claims, queues.view,
             snapshot.unread_zones, snapshot.daemon_sets)  # fmt: skip
    lines = [part.error for part in parts if isinstance(part, Unreadable)]
    if not isinstance(snapshot.pods, Unreadable):
        lines += [
            f"the pods of namespace {namespace} could not be read: {why}"
            for namespace, why in sorted(snapshot.pods.unreadable.items())
        ]
    if not isinstance(snapshot.nodes, Unreadable):
        lines += [
            f"{node.unreadable}: dnm neither adopts nor returns it"
            for node in snapshot.nodes
            if node.unreadable
        ]
    return lines


def _count_resets(
    registry: Registry, edit: QueueEdit | None, now: datetime
) -> DocumentResets | None:
    """Returns how often another client has reset the limits, with a reset found in this run."""
    resets = registry.last_run.resets
    if edit is None or edit.refusal or not (edit.is_changed and edit.reset_by):
        return resets
    return count_reset(resets, edit.reset_by, now)


def _with_last_run(
    config: Config, registry: Registry, edit: QueueEdit | None, fields: Mapping[str, object]
) -> Registry:
    """Returns the registry to save before the first action. It has the queues, the ledger and the
    pending jobs of this run, so that a run that is killed after a write leaves a trace of it."""
    replace, systems = msgspec.structs.replace, lent_with(config, registry)
    last_run = replace(registry.last_run, queue_systems=systems, **fields)
    if edit and not edit.refusal:
        system = config.quota_system or last_run.ledger_system
        last_run = replace(last_run, ledger=edit.record, ledger_system=system)
    return replace(registry, last_run=last_run)
