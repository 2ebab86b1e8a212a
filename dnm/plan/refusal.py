"""The plan of a registry that may not act: its error, and the actions that remain allowed.

A refused run reports the output of its own converters, and ends overdue ones: no other host can. It
lends, returns, marks, fences and edits nothing, and its registry stays the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lease import ActingElsewhere, Lease
from dnm.model.plan import EndConverter, Plan
from dnm.model.printable import printable
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.model.verdict import Objection

_LONGEST = 300  # characters of a holder


def explain_changed_system(
    config: Config, registry: Registry, lent: Mapping[str, str]
) -> Objection:
    """Returns the objection that a namespace has another queue system now than the nodes lent to
    it, and the next step. `lent` has the queue system of each namespace's nodes. Only that system
    can remove the nodes from its limits."""
    namespace, system = next(
        (name, system)
        for name, system in lent.items()
        if config.namespaces[name].queue_system != system
    )
    current = config.namespaces[namespace].queue_system
    names = [name for name, entry in registry.nodes.items() if entry.namespace == namespace]
    nodes = f"its lent nodes {fold_hostlist(names)}" if names else "its requested nodes"
    gone = (
        f". If the cluster has no {system} any more, call the converter yourself: --set batch "
        "--node-name NODE"
    )
    why = (
        f"namespace {namespace} has queue_system = {current}, but {nodes} have {system}: nothing "
        f"is lent, returned or written. Write queue_system = {system} again, run `dnm return NODE` "
        f"for each, and change the key when they are back{'' if system == 'none' else gone}"
    )
    return Objection(reason=Reason.QUEUE_UNREADABLE, detail=why, needs_person=True)


def explain_unreadable(lease: Unreadable, instance: str) -> str:
    """Returns the message that no registry may act without a readable Lease, and what to do."""
    return (
        f"{lease.error}. Nothing is lent, returned or changed, because only the Lease shows "
        f"whether another dnm acts as instance {instance}. `dnm check` names what is missing"
    )


def explain_refusal(
    lease: Lease, instance: str, this_host: str, registry: str, seen: ActingElsewhere
) -> str:
    """Returns the message why the registry of `this_host` may not act, and what to do. `seen` is
    the registry that acts. `registry` is its kind (`file`, `kubernetes`) if that differs."""
    difference = ", another host of the same name" if seen.holder == this_host else ""
    deleted = "" if lease.registry else "; its Lease was deleted since"
    if registry == "kubernetes":
        there = printable(lease.registry, _LONGEST)
        step = f"Its registry is {there}: set registry = kubernetes here"
    elif registry == "file":
        step = "Its registry is a file: run `dnm registry move --to kubernetes` there"
    else:
        step = "Give one of the two another instance_id"
    return (
        f"another dnm acts as instance {instance}: {printable(seen.holder, _LONGEST)}"
        f", last at {seen.at:%Y-%m-%d %H:%M:%S} UTC{deleted}. Nothing is lent, returned or changed "
        f"here, on {this_host}{difference}. {step}. If dnm is stopped there for good, run "
        "`dnm takeover` here"
    )


def refuse_acting(
    plan: Plan, registry: Registry, why: str, elsewhere: ActingElsewhere | None
) -> Plan:
    """Returns what remains of a plan if its registry may not act. `elsewhere` is the registry that
    acts instead, if known."""
    if elsewhere:
        return refuse_plan(plan, replace(registry, elsewhere=elsewhere), why)
    refused = refuse_plan(plan, registry, why)
    others = (why, *plan.other_errors)
    return replace(refused, needs_person=False, errors=(why, *plan.errors), other_errors=others)


def refuse_plan(plan: Plan, registry: Registry, why: str) -> Plan:
    """Returns what remains of a plan that must not be executed; `registry` is from before it."""
    return Plan(
        registry=registry,
        actions=tuple(action for action in plan.actions if isinstance(action, EndConverter)),
        errors=(why,),  # the registry that acts decides about the rest
        other_errors=(why,),
        status=plan.seen,
        seen=plan.seen,
        needs_person=True,
        is_refused=True,
        run=plan.run,
    )
