"""Which nodes go back: chosen, fenced, looked at once more, handed to the converter. Pure.

A node takes two runs at least to leave: one shrinks the queue and fences it, a later one has seen
the fence, no pod on it, the queue without it, and Slurm without it, and only then asks for its
return. Demand that comes back in between takes the fence off again.
"""

from __future__ import annotations

from dnm.model.plan import Reason, Verdict
from dnm.model.queue_path import may_edit
from dnm.model.registry import Phase
from dnm.plan.brakes import is_paused
from dnm.plan.conversions import conversion_budget
from dnm.plan.draft import Draft
from dnm.plan.phases import enter_phase
from dnm.sizing.releases import Candidates, choose_releases, recall


def plan_fences(draft: Draft) -> None:
    """Lifts the fences of nodes that are wanted again, then chooses whom to fence next."""
    if draft.demand is None or draft.facts.nodes is None:
        return
    _lift_fences(draft)
    names = tuple(name for name in draft.wants_release if _may_leave(draft, name))
    if not names:
        return
    asked = Candidates(
        now=draft.now,
        names=names,
        at_most=draft.config.max_reversions_per_run,
        budget=conversion_budget(draft),
    )
    chosen = choose_releases(draft.config, draft.demand, draft.limits, draft.node_supply(), asked)
    draft.verdicts |= chosen.verdicts
    for name in chosen.go:
        draft.entries[name] = enter_phase(draft.entries[name], Phase.RELEASING, draft.now)
    draft.remember_stalled(chosen.stalled)


def _may_leave(draft: Draft, name: str) -> bool:
    entry = draft.entries[name]
    if name in draft.before.held:
        draft.say(name, Reason.HELD, Verdict.KEEP, f"dnm unhold {name}")
    elif is_paused(draft.before, draft.now):
        _say_paused(draft, name)
    elif draft.refusal or draft.source is None:
        draft.say(name, Reason.QUEUE_UNREADABLE, Verdict.WAIT, draft.refusal)
    elif not may_edit(entry.queue, draft.config.allowed_queue_prefixes):
        detail = f"{entry.queue} is outside allowed_queue_prefixes, so it can't be shrunk"
        draft.say(name, Reason.QUEUE_UNREADABLE, Verdict.WAIT, detail)
    elif draft.unreadable_namespaces(entry.queue):
        draft.say(name, Reason.DEMAND_UNREADABLE, Verdict.WAIT)
    else:
        return True
    return False


def _say_paused(draft: Draft, name: str) -> None:
    assert draft.before.pause is not None
    draft.say(name, Reason.PAUSED, Verdict.WAIT, draft.before.pause.reason)


def _lift_fences(draft: Draft) -> None:
    """Whatever has come to speak for a fenced node before the converter was asked, wins."""
    fenced = draft.own(Phase.RELEASING)
    if not fenced or draft.demand is None:
        return
    node_supply = draft.node_supply()
    wanted = recall(
        draft.config, draft.demand, draft.limits, node_supply, fenced, conversion_budget(draft)
    )
    prefixes = draft.config.allowed_queue_prefixes
    for name in fenced:
        if name in draft.before.held:
            draft.say(name, Reason.HELD, Verdict.KEEP, f"dnm unhold {name}")
        elif draft.refusal or not may_edit(fenced[name].queue, prefixes):
            detail = "its queue can't be shrunk, so it serves on"
            draft.say(name, Reason.QUEUE_UNREADABLE, Verdict.KEEP, detail)
        elif wanted[name].verdict is not Verdict.REVERT:
            draft.verdicts[name] = wanted[name]
        else:
            continue
        draft.entries[name] = enter_phase(
            draft.entries[name], Phase.SERVING, draft.now, idle_since=None
        )


def plan_returns(draft: Draft) -> None:
    """Hands nodes to the converter, oldest first, within the run's budget."""
    left = draft.config.max_reversions_per_run
    ready = [name for name in draft.wants_return if _is_ready(draft, name)]
    for name in sorted(ready, key=lambda name: (draft.entries[name].since, name)):
        if is_paused(draft.before, draft.now):
            _say_paused(draft, name)
        elif left <= 0:
            most = draft.config.max_reversions_per_run
            draft.say(name, Reason.BUDGET, Verdict.WAIT, f"max_reversions_per_run = {most}")
        else:
            left -= 1
            if draft.entries[name].phase is Phase.RELEASING:
                draft.entries[name] = enter_phase(draft.entries[name], Phase.RETURNING, draft.now)
            draft.returns.append(name)
            draft.say(name, Reason.RETURNING, Verdict.REVERT)


def _is_ready(draft: Draft, name: str) -> bool:
    entry = draft.entries.get(name)
    if entry is None or entry.phase not in (Phase.RELEASING, Phase.RETURNING):
        return False
    in_service = draft.facts.is_in_service(name)
    if in_service is None:
        draft.say(name, Reason.UNKNOWN, Verdict.WAIT, "Slurm could not be asked about it")
        return False
    if in_service:
        # The next look finds it offered to both and calls a person.
        draft.entries[name] = enter_phase(entry, Phase.RETURNING, draft.now)
        return False
    return draft.is_shrunk(name)
