"""Whether this registry may act for its instance, and what is left of a plan where it may not.
Pure.

A refused run passes on what converters of its own still print, and ends those that hang: nobody
else can. It lends, returns, marks, fences and edits nothing, and its record stays as it was: once
it may act again, it goes by what it sees then, as after any pause.
"""

from __future__ import annotations

import msgspec

from dnm.model.config import Config
from dnm.model.plan import EndConverter, Plan, Snapshot
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.lease import Actor, Judgement, after_refusal, judge_lease


def judge_actor(config: Config, registry: Registry, snapshot: Snapshot) -> Judgement | None:
    """Tells whether this registry may act; None: there is no ConfigMap that could say so."""
    maps = snapshot.queue_maps
    if isinstance(maps, Unreadable) or maps[0] is None:
        return None
    actor = Actor(
        instance=config.instance_id,
        place=snapshot.place,
        registry=registry,
        now=snapshot.taken_at,
    )
    return judge_lease(maps[0], actor)


def with_judgement(plan: Plan, registry: Registry, judged: Judgement | None) -> Plan:
    """Returns the plan as far as it may be carried out; `registry` is the one that it began
    with."""
    if judged is None:
        return plan
    if judged.refusal:
        return refuse_plan(plan, after_refusal(registry, judged), judged.refusal)
    notes = (*plan.notes, judged.note) if judged.note else plan.notes
    known = None if judged.ours else registry.others_lease
    acting = msgspec.structs.replace(plan.registry, others_lease=known)
    return msgspec.structs.replace(plan, registry=acting, notes=notes)


def refuse_plan(plan: Plan, registry: Registry, why: str) -> Plan:
    """Returns what is left of a plan that must not be carried out; `registry` is what is
    recorded."""
    return Plan(
        registry=registry,
        actions=tuple(action for action in plan.actions if isinstance(action, EndConverter)),
        errors=(why, *plan.errors),
        status=plan.seen,
        seen=plan.seen,
        needs_person=True,
        is_refused=True,
        run=plan.run,
    )


def needs_lease(plan: Plan) -> bool:
    """Returns whether a plan does anything that only one registry may do."""
    return not all(isinstance(action, EndConverter) for action in plan.actions)
