"""The decision which registry may act for an instance: the one that the instance's Lease names.

Two registries with one `instance_id` would each count the cap for themselves, and a pause in one
would be unknown to the other. So a registry without the Lease is refused until the registry that
has it has not acted for a day. The Lease is the same object with `registry = file` and `registry =
kubernetes`.

A file contains a random word, which is in the Lease too: on shared storage a second host continues
with it. If a copy acts, its host exchanges the word, and the other copies are refused. A file that
was lost, or restored from an older copy, is recognized by its place (host and path). A place has
one lock, so no other dnm can be there. The same place with another boot is this host after a
restart, or a clone of the host. A Lease younger than the boot shows that it is a clone, which is
refused. A registry in Kubernetes has the name of its Secret instead of a word.

All times are those of the API server: a wrong clock of a host neither ends a Lease nor keeps it.

`refusal.py` has the actions of a refused run. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.hostlist import fold_hostlist
from dnm.model.lease import ActingElsewhere, Lease, Place
from dnm.model.plan import EndConverter, Plan, Snapshot
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.value import Unreadable, Value

_IN_CLUSTER = "Secret "  # of `Lease.registry`: the registry is the Secret named behind it
_HELD_FOR = timedelta(days=1)
_LONGEST = 300  # characters of a holder


class Actor(Value):
    """A registry that is about to act for an instance. `now` is the time of its host's clock.
    `secret` names the Secret that contains it, as `Lease.registry` does; it is empty for a file."""

    instance: str
    place: Place
    registry: Registry
    now: datetime
    secret: str = ""

    def knows(self, lease: Lease) -> bool:
        """Returns whether the Lease names this registry as the one that acts."""
        return lease.registry in (*self.registry.lease_words, *filter(None, [self.secret]))


class Judgement(Value):
    """The decision whether a registry may act. `refusal`: why it may not. `needs_word`: it may,
    once it has written a new random word into the Lease. `elsewhere`: the registry that acts."""

    refusal: str = ""
    needs_word: bool = False
    elsewhere: ActingElsewhere | None = None


def judge_lease(lease: Lease | Unreadable, actor: Actor) -> Judgement:
    """Decides by the Lease of the instance whether this registry may act now."""
    if isinstance(lease, Unreadable):
        from dnm.plan.refusal import explain_unreadable

        return Judgement(refusal=explain_unreadable(lease, actor.instance))
    now, place = lease.read_at or actor.now, actor.place
    if not lease.registry:
        seen = acts_elsewhere(actor.registry, now)
        return _refuse(lease, actor, seen) if seen else Judgement(needs_word=True)
    if actor.knows(lease):
        is_moved = _is_in_cluster(lease) is not bool(actor.secret)
        return Judgement(needs_word=is_moved or not is_written_here(lease, place))
    is_old = lease.acted is not None and now - lease.acted >= _HELD_FOR
    if is_old or _was_here(lease, place, now):
        return Judgement(needs_word=True)
    return _refuse(lease, actor, ActingElsewhere(holder=lease.last, at=lease.acted or now))


def _is_in_cluster(lease: Lease) -> bool:
    """Returns whether the registry that the Lease names is a Secret of the cluster."""
    return lease.registry.startswith(_IN_CLUSTER)


def is_written_here(lease: Lease, place: Place) -> bool:
    """Returns whether only the dnm on this host can have written the Lease, since the host's boot.
    It is False for a container, which may share its host's name and path with another."""
    return bool(place.home) and (lease.home, lease.boot) == (place.home, place.boot)


def _was_here(lease: Lease, place: Place, now: datetime) -> bool:
    """Returns whether the dnm on this host wrote the Lease, with a registry that is lost now."""
    is_home = bool(place.home) and lease.home == place.home
    is_older = lease.acted is not None and now - lease.acted > place.up_for
    return is_home and (lease.boot == place.boot or is_older)


def _refuse(lease: Lease, actor: Actor, seen: ActingElsewhere) -> Judgement:
    from dnm.plan.refusal import explain_refusal  # most registries may act

    state = ""
    if _is_in_cluster(lease) is not bool(actor.secret):
        state = "file" if actor.secret else "kubernetes"
    why = explain_refusal(lease, actor.instance, actor.place.holder, state, seen)
    return Judgement(refusal=why, elsewhere=seen)


def acts_elsewhere(registry: Registry, now: datetime) -> ActingElsewhere | None:
    """Returns the other registry because of which the last run was refused, if it may still act."""
    seen = registry.elsewhere
    return seen if seen is not None and now - seen.at < _HELD_FOR else None


# --- the plan ---------------------------------------------------------------------------------


def judge_actor(config: Config, registry: Registry, snapshot: Snapshot) -> Judgement:
    """Decides whether this registry may act. If the cluster did not answer, nothing is planned."""
    if snapshot.lease is None:
        return Judgement()
    return judge_lease(snapshot.lease, actor_of(config, registry, snapshot))


def actor_of(config: Config, registry: Registry, snapshot: Snapshot) -> Actor:
    """Returns this registry as an `Actor`, with a snapshot's time and host identity."""
    return Actor(
        instance=config.instance_id,
        place=snapshot.place,
        registry=registry,
        now=snapshot.taken_at,
        secret=secret_word(config),
    )


def secret_word(config: Config) -> str:
    """Returns the registry's Secret in the form of `Lease.registry`; empty if it is a file."""
    if config.registry_storage == "file":
        return ""
    return f"{_IN_CLUSTER}{config.registry_namespace}/{config.object_name}"


def with_judgement(plan: Plan, registry: Registry, judged: Judgement, snapshot: Snapshot) -> Plan:
    """Returns the part of a plan that may be executed; `registry` is from before the plan."""
    if judged.refusal:
        from dnm.plan.refusal import refuse_acting

        return refuse_acting(plan, registry, judged.refusal, judged.elsewhere)
    acting = replace(plan.registry, elsewhere=None)
    lease = snapshot.lease
    is_kept = not isinstance(lease, Lease) or lease.kept == names_to_keep(acting)
    return replace(plan, registry=acting, backs_up=not is_kept)


def names_to_keep(registry: Registry) -> str:
    """Returns the pause, holds and exclusions as a text that the Lease keeps; empty without any."""
    if not (registry.pause or registry.held or registry.excluded):
        return ""
    from dnm.plan.lost_registry import keep_names

    return keep_names(registry)


def find_traces(config: Config, registry: Registry, snapshot: Snapshot) -> tuple[str, ...]:
    """Returns clauses that show that this instance has acted, although this registry never has:
    then it replaces a lost registry. Returns nothing if this registry has acted."""
    if registry.lease_words or registry.nodes:
        return ()
    traces = []
    lease = snapshot.lease
    if isinstance(lease, Lease) and lease.registry and not _is_in_cluster(lease):
        # The loss of a Secret is detected elsewhere.
        traces.append(f"its Lease shows (last holder {printable(lease.last, _LONGEST)})")
    nodes = () if isinstance(snapshot.nodes, Unreadable) else snapshot.nodes
    if marked := [node.name for node in nodes if node.is_marked_by(config.instance_id)]:
        traces.append(f"its marks on {printable(fold_hostlist(marked), _LONGEST)} show")
    from dnm.queues import system_of  # `dnm status` asks no queue system

    if system_of(config).names_instance(snapshot.queue_facts, config.instance_id):
        traces.append("its section of the ledger shows")
    return tuple(traces)


def needs_lease(plan: Plan) -> bool:
    """Returns whether a plan has actions that only the registry with the Lease may execute."""
    return plan.backs_up or not all(isinstance(action, EndConverter) for action in plan.actions)
