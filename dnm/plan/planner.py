"""`make_plan`: what a run will do, from values alone. No clock, no client, no logger.

Invariants it keeps (design, "What must always be true"): a conversion is only planned within every
cap; a limit is computed from what serves now; a node is only handed to the converter when it has
been seen fenced, empty, and out of Slurm's service; an unreadable fact plans no step that rests on
it; without a change in demand the next plan is empty.

Order of actions: converters that hang are ended, marks and lifted fences, then the queue edit, then
new fences, then conversions, then returns. So capacity grows before promises, and promises shrink
before capacity.
"""

from __future__ import annotations

import msgspec

from dnm.model.cluster import Mark, Node
from dnm.model.config import Config
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    Plan,
    ReturnNode,
    Snapshot,
    StartConversion,
    Unfence,
)
from dnm.model.registry import Phase, QueueStatus, Registry
from dnm.model.value import Unreadable
from dnm.plan.adoption import adopt_marked_nodes, take_up_requests
from dnm.plan.conversions import plan_conversions
from dnm.plan.draft import Draft
from dnm.plan.phases import advance_node, without_future
from dnm.plan.returns import plan_fences, plan_returns


def make_plan(config: Config, registry: Registry, snapshot: Snapshot) -> Plan:
    """What the facts make of the record, what the queues need, and the actions that follow."""
    draft = Draft(config, without_future(config, registry, snapshot.taken_at), snapshot)
    take_up_requests(draft)
    adopt_marked_nodes(draft)
    for name in sorted(draft.entries):
        draft.take(name, advance_node(config, name, draft.entries[name], draft.facts))
    draft.look_at_limits()
    draft.credit_quota_use()
    plan_fences(draft)
    draft.plan_queue_edit()
    plan_returns(draft)
    plan_conversions(draft)
    return _plan(draft)


def _plan(draft: Draft) -> Plan:
    _tell_conflicts(draft)
    edit = draft.edit
    question = edit.refusal if edit else ""
    status = {queue: _status(draft, queue) for queue in draft.config.queues}
    return Plan(
        registry=draft.registry(status),
        actions=tuple(_actions(draft)),
        nodes=tuple(draft.verdicts[name] for name in sorted(draft.verdicts)),
        queues=tuple(draft.queue_verdicts[queue] for queue in sorted(draft.queue_verdicts)),
        notes=(*draft.notes, *(edit.notes if edit else ())),
        errors=tuple(dict.fromkeys(filter(None, (*_unread(draft), *draft.errors, question)))),
        status=status,
        diff=draft.diff(),
        needs_person=bool(question),
    )


def _unread(draft: Draft) -> list[str]:
    snapshot = draft.snapshot
    parts = (snapshot.nodes, snapshot.pods, snapshot.queue_maps, snapshot.batch, snapshot.claims,
             snapshot.yunikorn)  # fmt: skip
    lines = [part.error for part in parts if isinstance(part, Unreadable)]
    if not isinstance(snapshot.pods, Unreadable):
        lines += [
            f"the pods of namespace {namespace} could not be read: {why}"
            for namespace, why in sorted(snapshot.pods.unreadable.items())
        ]
    return lines


def _tell_conflicts(draft: Draft) -> None:
    """A serving node that Slurm also has in service is the worst that can be found."""
    for name, entry in sorted(draft.entries.items()):
        node = (draft.facts.nodes or {}).get(name)
        is_offered = entry.phase is Phase.SERVING or (
            entry.phase is Phase.FAILED and node is not None and not node.is_cordoned
        )
        if is_offered and node is not None and draft.facts.is_in_service(name):
            draft.errors.append(
                f"{name} is offered to Slurm and to Kubernetes at once: drain it in Slurm now "
                f"(scontrol update nodename={name} state=drain reason=...)"
            )


def _actions(draft: Draft) -> list[Action]:
    nodes = draft.facts.nodes or {}
    present = [(name, entry) for name, entry in sorted(draft.entries.items()) if name in nodes]
    ours = [(name, entry) for name, entry in present if entry.owner == draft.config.instance_id]
    actions: list[Action] = [
        EndConverter(key=key, process=process) for key, process in draft.overdue_converters()
    ]
    for name, entry in ours:
        is_in_use = entry.phase in (Phase.JOINING, Phase.SERVING, Phase.RELEASING)
        if is_in_use and not _carries(nodes[name], entry.mark):
            actions.append(MarkNode(node=name, mark=entry.mark))
    actions += [
        Unfence(node=name)
        for name, entry in ours
        if entry.phase is Phase.SERVING and nodes[name].carries_fence
    ]
    if draft.edit is not None and draft.edit.is_changed:
        actions.append(draft.set_queue_limits())
    actions += [
        Fence(node=name)
        for name, entry in ours
        if (entry.phase is Phase.RELEASING or name in draft.returns) and not nodes[name].is_cordoned
    ]
    actions += [StartConversion(request=request) for request in draft.new_requests]
    actions += [ReturnNode(node=name) for name in draft.returns]
    return actions


def _carries(node: Node, mark: Mark) -> bool:
    return node.mark is not None and msgspec.structs.replace(node.mark, fenced=False) == mark


def _status(draft: Draft, queue: str) -> QueueStatus:
    demand = draft.demand.queues.get(queue) if draft.demand else None
    numbers = (draft.edit.numbers if draft.edit else {}).get(queue)
    limits = draft.limits.get(queue)
    verdict = draft.queue_verdicts.get(queue)
    held = (draft.edit.held if draft.edit else {}).get(queue)
    sentences = [verdict.sentence if verdict else "", held or ""]
    # Where the document could not be judged, the numbers of the last run stand: the ledger is
    # rebuilt from them if it is lost.
    last = draft.before.last_run.queues.get(queue)
    is_known = numbers is not None or last is None
    return QueueStatus(
        limit=dict(limits.max) if limits and is_known else dict(last.limit) if last else {},
        baseline=dict(numbers.baseline) if numbers else dict(last.baseline) if last else {},
        lent=dict(numbers.lent) if numbers else dict(last.lent) if last else {},
        used=dict(demand.used) if demand else {},
        pending=dict(demand.pending) if demand else {},
        pending_pods=demand.pending_pods if demand else 0,
        verdict=verdict.verdict.value if verdict else "",
        reason="; ".join(filter(None, sentences)),
        is_judged=numbers is not None or (last is not None and last.is_judged),
    )
