"""Which registry may act for an instance: the one that the instance's Lease names.

Two registries with one `instance_id` would each count the cap for themselves, and a pause in one is
unknown to the other. So a registry that has not the Lease is refused until the registry that has it
has not acted for a day. The Lease is the same object with `state = file` and `state = kubernetes`.

A file has a random word, which is in the Lease too: on shared storage a second host continues with
it. If a copy acts, its host exchanges the word, and the other copies are refused. A file that was
lost, or restored from an older copy, is recognized by its place: on one path of one host there is
one lock, and no other dnm can be there. A clone of the whole host has the same place but another
boot. It is told from this host after a restart by a Lease that is younger than the restart. A
registry in Kubernetes has the name of its Secret instead of a word.

All times are those of the API server: a wrong clock of a host neither ends a Lease nor keeps it.

A refused run passes on what its own converters still print, and ends those that hang: no other host
can. It lends, returns, marks, fences and edits nothing, and its registry stays as it was. Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.lease import IN_CLUSTER, ActingElsewhere, Lease, Place, object_name
from dnm.model.plan import EndConverter, Plan, Snapshot
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.value import Unreadable, Value
from dnm.plan.lost_registry import keep_names

_HELD_FOR = timedelta(days=1)
_LONGEST = 300  # characters of a holder


class Actor(Value):
    """A registry that is about to act. `now`: by the clock of its host. `secret`: its name in
    `Lease.registry`, if it is in Kubernetes."""

    instance: str
    place: Place
    registry: Registry
    now: datetime
    secret: str = ""

    def knows(self, lease: Lease) -> bool:
        """Whether the Lease names this registry."""
        return lease.registry in (*self.registry.lease_words, *filter(None, [self.secret]))


class Judgement(Value):
    """Whether a registry may act. `refusal`: why not. `needs_word`: it may, and the Lease has to
    name it by another word from now on. `elsewhere`: the registry that acts instead."""

    refusal: str = ""
    needs_word: bool = False
    elsewhere: ActingElsewhere | None = None


def judge_lease(lease: Lease | Unreadable, actor: Actor) -> Judgement:
    """Decides whether this registry may act now."""
    if isinstance(lease, Unreadable):
        return Judgement(
            refusal=f"{lease.error}. Without its Lease nobody knows whether another dnm acts as "
            f"instance {actor.instance}: nothing is lent, returned or changed. Apply etc/rbac.yaml "
            "or make the API server answer; `dnm check` names what is missing"
        )
    now, place = lease.read_at or actor.now, actor.place
    if not lease.registry:
        seen = acts_elsewhere(actor.registry, now)
        return _refuse(actor, seen, lease) if seen else Judgement(needs_word=True)
    if actor.knows(lease):
        is_moved = lease.is_in_cluster is not bool(actor.secret)
        return Judgement(needs_word=is_moved or not is_written_here(lease, place))
    is_old = lease.acted is not None and now - lease.acted >= _HELD_FOR
    if is_old or _was_here(lease, place, now):
        return Judgement(needs_word=True)
    return _refuse(actor, ActingElsewhere(holder=lease.last, at=lease.acted or now), lease)


def is_written_here(lease: Lease, place: Place) -> bool:
    """Returns whether only this place, since this boot, can have written it. In a container, whose
    place may be another's too, nobody can say so."""
    return bool(place.home) and (lease.home, lease.boot) == (place.home, place.boot)


def _was_here(lease: Lease, place: Place, now: datetime) -> bool:
    """Whether the dnm of this very place wrote it, with a registry that is no longer there."""
    is_home = bool(place.home) and lease.home == place.home
    is_older = lease.acted is not None and now - lease.acted > place.up_for
    return is_home and (lease.boot == place.boot or is_older)


def _refuse(actor: Actor, seen: ActingElsewhere, lease: Lease) -> Judgement:
    here = actor.place.holder
    twin = ", of the same name but another" if seen.holder == here else ""
    gone = "" if lease.registry else "; its Lease was deleted since"
    if lease.is_in_cluster and not actor.secret:
        step = f"Its registry is {printable(lease.registry, _LONGEST)}: set state = kubernetes here"
    elif actor.secret and not lease.is_in_cluster:
        step = "Its registry is a file: run `dnm state move --to kubernetes` there"
    else:
        step = "Give one of the two another instance_id"
    return Judgement(
        elsewhere=seen,
        refusal=f"another dnm acts as instance {actor.instance}: {printable(seen.holder, _LONGEST)}"
        f", last at {seen.at:%Y-%m-%d %H:%M:%S} UTC{gone}. This is {here}{twin}: nothing is lent, "
        f"returned or changed here. {step}. If dnm is stopped there for good, run `dnm takeover` "
        "here",
    )


def acts_elsewhere(registry: Registry, now: datetime) -> ActingElsewhere | None:
    """Returns the other registry by which the last run was refused, if it may still act."""
    seen = registry.elsewhere
    return seen if seen is not None and now - seen.at < _HELD_FOR else None


# --- the plan ---------------------------------------------------------------------------------


def judge_actor(config: Config, registry: Registry, snapshot: Snapshot) -> Judgement:
    """Decides whether this registry may act; without an answer of the cluster no plan acts."""
    if snapshot.lease is None:
        return Judgement()
    return judge_lease(snapshot.lease, actor_of(config, registry, snapshot))


def actor_of(config: Config, registry: Registry, snapshot: Snapshot) -> Actor:
    """Returns this registry, as it is about to act on a snapshot."""
    return Actor(
        instance=config.instance_id,
        place=snapshot.place,
        registry=registry,
        now=snapshot.taken_at,
        secret=secret_word(config),
    )


def secret_word(config: Config) -> str:
    """Returns what a Lease calls the registry of this configuration; empty if it is a file."""
    if config.state == "file":
        return ""
    return f"{IN_CLUSTER}{config.state_namespace}/{object_name(config.instance_id)}"


def with_judgement(plan: Plan, registry: Registry, judged: Judgement, snapshot: Snapshot) -> Plan:
    """Returns the plan as far as it may be carried out; `registry` is the recorded one."""
    if judged.refusal:
        known = replace(registry, elsewhere=judged.elsewhere) if judged.elsewhere else registry
        refused = refuse_plan(plan, known, judged.refusal)
        unread = replace(refused, needs_person=False, errors=(judged.refusal, *plan.errors))
        return refused if judged.elsewhere else unread
    acting = replace(plan.registry, elsewhere=None)
    is_kept = not isinstance(snapshot.lease, Lease) or snapshot.lease.kept == keep_names(acting)
    return replace(plan, registry=acting, backs_up=not is_kept)


def refuse_plan(plan: Plan, registry: Registry, why: str) -> Plan:
    """Returns the rest of a plan that must not be carried out; `registry` is what is recorded."""
    return Plan(
        registry=registry,
        actions=tuple(action for action in plan.actions if isinstance(action, EndConverter)),
        errors=(why,),  # the registry that acts decides about the rest
        status=plan.seen,
        seen=plan.seen,
        needs_person=True,
        is_refused=True,
        run=plan.run,
    )


def needs_lease(plan: Plan) -> bool:
    """Returns whether a plan does anything that only one registry may do."""
    return plan.backs_up or not all(isinstance(one, EndConverter) for one in plan.actions)
