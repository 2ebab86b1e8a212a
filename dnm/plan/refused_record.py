"""A record that must not act: why, in words, and what is left of its plan. Pure."""

from __future__ import annotations

from dnm.model.lease import RecordLease
from dnm.model.orders import LOST
from dnm.model.plan import EndConverter, Plan
from dnm.model.printable import printable
from dnm.model.registry import Registry


def words_of_another(instance: str, here: str, lease: RecordLease, gone: str = "") -> str:
    """Says that another acts as this instance; `here`: the holder that this one would
    be; `gone`: that its mark is no more."""
    is_twin = lease.holder == here
    return (
        f"another dnm acts as instance {instance}: {printable(lease.holder, 300)}, last at "
        f"{lease.at:%Y-%m-%d %H:%M:%S} UTC{gone}. This is {here}"
        f"{', of the same name but another' if is_twin else ''}: nothing is lent, returned or "
        "changed here. Give one of the two another instance_id; or, once dnm is stopped there for "
        "good, say `dnm takeover` here"
    )


def words_of_a_new_record(instance: str, registry: Registry, lease: RecordLease) -> str:
    """Says it of a registry that has never acted, while one has as this instance; empty: it has, or
    a person has been told already."""
    pause = registry.pause
    if registry.leases or (pause is not None and pause.who == LOST):
        return ""
    return (
        f"the registry is made anew: {printable(lease.holder, 300)} has acted as instance "
        f"{instance}, last at {lease.at:%Y-%m-%d %H:%M:%S} UTC, with another one. What it "
        "said of pauses, held and excluded nodes, orders and events is not known here"
    )


def words_of_an_odd_lease(instance: str, here: str, annotation: str, why: str) -> str:
    """Says that what stands there is no lease."""
    return (
        f"the annotation {annotation} of the queue document's ConfigMap "
        f"can't be read ({printable(why, 200)}), so nobody knows who else acts as instance "
        f"{instance}: nothing is lent, returned or changed by {here}. Once no "
        "other dnm acts as this instance, say `dnm takeover` here"
    )


def refuse_plan(plan: Plan, registry: Registry, why: str) -> Plan:
    """Returns what is left of a plan that must not be carried out; `registry` is what is
    recorded."""
    return Plan(
        registry=registry,
        actions=tuple(action for action in plan.actions if isinstance(action, EndConverter)),
        errors=(why,),  # what else it says to do is for the other to judge
        status=plan.seen,
        seen=plan.seen,
        needs_person=True,
        is_refused=True,
        run=plan.run,
    )
