"""The verbs of an administrator: pause, reset, forget, takeover, rebase. Each says what it did; the
next run acts on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import msgspec

from dnm.cli.by_hand.nodes import named_nodes
from dnm.cli.by_hand.person import (
    RefusedError,
    attempt,
    carry_out,
    granted,
    new_operation,
    rehearse,
    said_by,
    say_wait,
)
from dnm.cli.look.status_view import pause_line
from dnm.cli.set_up.queue_verbs import rebase_queues
from dnm.cli.terminal.logs import log_operation
from dnm.cli.terminal.output import shown, told_together
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.errors import KubeError, LeaseError
from dnm.model.history import Operation
from dnm.model.orders import Pause, Way
from dnm.model.printable import count_of, printable
from dnm.model.queue_edit import QueueEdit
from dnm.model.value import Resources, Unreadable
from dnm.plan.inputs import gather_inputs
from dnm.plan.lease import acts_elsewhere
from dnm.plan.limits import queue_wants, serving_sizes
from dnm.queues.document import read_document
from dnm.queues.rebase import Reading, rebase_document
from dnm.queues.source import SourceDocument
from dnm.queues.yunikorn_rest import YunikornClient
from dnm.run.lease import fence_queue_document, judge_here, new_word
from dnm.run.planning import connect
from dnm.run.registry import attach_lease, load_registry, opened_state
from dnm.run.snapshot import take_snapshot
from dnm.run.verbs import acting_state, keep_ledger, note_operation
from dnm.run.verbs import move_state as move_registry_to
from dnm.verbs.keeping import Resettable, what_is_reset
from dnm.verbs.refusal import Refusal
from dnm.verbs.taking_in import why_not_known

_RESUMED = "`dnm resume`"
_LONGEST_HOLDER = 300  # characters that are shown


def pause(
    config: Config,
    until: datetime | None,
    reason: str,
    half: Way | None = None,
    *,
    is_forced: bool = False,
) -> str:
    """Stops lending and returning, or one of them, until `resume`, or for a time."""
    now = datetime.now(UTC)
    operation = new_operation(
        "pause",
        reason=reason,
        until=until.isoformat() if until else "",
        half=half.value if half else "",
    )
    paused = Pause(
        since=now, until=until, reason=operation.reason, who=said_by(operation), half=half
    )
    done = attempt(config, operation, paused=paused, is_forced=is_forced)
    was = done.before.pause if done.before.paused(now) else None
    there = _pause_there(config, was) if was else ""
    if isinstance(done.after, Refusal):
        raise RefusedError(f"{there}; {done.after.sentence}")
    what = f"{half.value} is paused" if half else "paused"
    text = f"{what} until {shown(until, config.events_zone, seconds=True) if until else _RESUMED}"
    text += f"; in place of that before: {there}" if there else ""
    others = acts_elsewhere(done.after, now)
    if others is None:
        return text
    return (
        f"{text}, here alone: {printable(others.holder, _LONGEST_HOLDER)} acts as instance "
        f"{config.instance_id}, and `dnm pause` there stops that one"
    )


def _pause_there(config: Config, pause: Pause) -> str:
    said = pause_line(msgspec.structs.asdict(pause), config.events_zone)
    return said if pause.half else f"lending and returning are {said}"


def resume(config: Config, reason: str = "") -> str:
    """Ends the pause; the pause before the registry was lost is in force again."""
    done = carry_out(config, new_operation("resume", reason=reason))
    pause = done.before.pause.earlier if done.before.pause else None
    if pause is None or not pause.stops(None, datetime.now(UTC)):
        return "lending and returning go on" if done.is_changed else "dnm was not paused"
    return (
        f"the registry begins anew; {_pause_there(config, pause)}, as before the loss: run `dnm "
        "resume` once more to end that pause"
    )


def reset(config: Config, name: str, reason: str = "") -> list[str]:
    """Resets a queue, a node type, a failed node, or the failed nodes of a host list."""
    names = named_nodes((name,)) if "[" in name or "," in name else (name,)
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    rehearse(config, registry, "reset", *({"name": one, "now": now} for one in names))
    return told_together((one, _reset(config, one, reason)) for one in names)


def _reset(config: Config, name: str, reason: str) -> str:
    """Of a queue: closes its breaker. Of a node type: ends its back-off. Of a failed node: tries
    to return it again."""
    meant = name.lower() if name.lower() in config.queues else name
    operation = new_operation("reset", meant, reason)
    before = carry_out(config, operation, name=name, now=datetime.now(UTC)).before
    kind = what_is_reset(config, before, name)
    if kind is Resettable.NODE:
        return "NODE will be returned to Slurm by the next run"
    if kind is Resettable.QUEUE:
        breaker = before.breakers.get(name.lower())
        if breaker is None or breaker.tripped_at is None:
            return f"the breaker of {name.lower()} was not open; it counts anew"
        return f"the breaker of {name.lower()} is closed; it may be lent nodes again"
    was = "backs off no more" if name in before.backoffs else "was not backing off"
    return f"node type {name} {was}"


def forget(config: Config, node: str, is_sure: Callable[[str], bool], reason: str = "") -> str:
    """Takes a node out of the registry, which a person has found to be back in Slurm. Raises
    KubeError where nobody can tell."""
    registry = load_registry(config, datetime.now(UTC))
    granted(why_not_known(registry, node))
    there = KubeClient.connect(config).read_node(node)
    rehearse(config, registry, "forget", {"name": node, "node": there})
    if not is_sure(
        f"{node} leaves the registry: dnm will not return it any more, and its queue shrinks. "
        "Is it back in Slurm?"
    ):
        return f"{node} stays as it is"
    carry_out(config, new_operation("forget", node, reason), name=node, node=there)
    return f"{node} is forgotten; the next run takes its part out of the queue"


def take_over(config: Config, is_sure: Callable[[str], bool], reason: str = "") -> str:
    """Makes the registry of this host the one that acts for the instance."""
    with closing(KubeClient.connect(config)) as kube, opened_state(config) as state:
        attach_lease(config, state, kube)
        state.begins_anew = True
        lease, now = state.observe(), datetime.now(UTC)
        if isinstance(lease, Unreadable):
            raise KubeError(lease.error)
        judged, at_work = (
            judge_here(config, state, load_registry(config, now, state), now),
            state.holder,
        )
        if not (judged.refusal or at_work):
            return f"no other dnm acts as instance {config.instance_id}: nothing was changed"
        who = printable(judged.elsewhere.holder, _LONGEST_HOLDER) if judged.elsewhere else at_work
        gone = "From now on it may do nothing more. Is it gone, or dnm stopped there?"
        if not is_sure(f"{at_work}. {gone}" if at_work else _ask_to_stop(config, who)):
            return "nothing was changed"
        operation = new_operation("takeover", config.instance_id, reason, taken_from=who)
        word = state.registry or new_word()
        if state.kind == "file":  # the registry has the word before the Lease has
            carry_out(config, operation, word=word, kept=lease.kept, now=now)
        state.seize(word)
        if state.kind == "kubernetes":
            carry_out(config, operation, word=word, kept=lease.kept, now=now)
        fence_queue_document(config, kube, state)
    return f"from now on {state.place.holder} acts as instance {config.instance_id}"


def _ask_to_stop(config: Config, who: str) -> str:
    if not who:
        return (
            f"Nobody knows who acted last as instance {config.instance_id}. Is dnm stopped for "
            "good on every other host that has this name?"
        )
    return (
        f"{who} acted last as instance {config.instance_id}, and is refused from now on. Its nodes "
        "are taken up by their marks. A registry that is new here gets its pause, holds and "
        "exclusions too. Is dnm stopped there for good?"
    )


def move_state(config: Config, kind: str, reason: str = "") -> str:
    """Moves the registry to a file of this host, or into Kubernetes."""
    operation = new_operation("state", f"move to {kind}", reason)
    moved, where = move_registry_to(config, kind, operation)
    if moved is not None:
        log_operation(operation, config.instance_id)
    nodes = "" if moved is None else f" with {count_of(len(moved.nodes), 'lent node')}"
    said = f"the registry is in {where}{nodes}" if moved else f"the registry was in {where} before"
    if config.state == kind:
        return said
    hosts = "on every host" if kind == "kubernetes" else "here"
    return f"{said}; now set state = {kind} in [settings] of {config.path}, {hosts}"


# --- the queue document ----------------------------------------------------------------------


def queue_edges(config: Config) -> tuple[KubeClient, tuple[str, str], YunikornClient | None]:
    """Returns the clients for the queue document, and the place of its ConfigMap."""
    yunikorn = YunikornClient(config.yunikorn_url) if config.yunikorn_url else None
    return KubeClient.connect(config), config.queue_document, yunikorn


def used_by_queue(config: Config, environ: Mapping[str, str]) -> dict[str, Resources] | None:
    """What the pods of every queue use now; None: they could not be read."""
    registry = load_registry(config, datetime.now(UTC))
    facts = take_snapshot(config, registry, *connect(config, environ), datetime.now(UTC))
    demand = gather_inputs(config, registry, facts).demand
    return None if demand is None else {path: q.used for path, q in demand.queues.items()}


def rebase(
    config: Config,
    reading: str,
    queues: Sequence[str],
    is_sure: Callable[[str], bool],
    reason: str = "",
) -> int:
    """Writes down, under the lock, what a person says of the limits, with the nodes that serve."""
    operation = new_operation("rebase", ", ".join(queues), reason, reading=reading)
    kube, place, yunikorn = queue_edges(config)
    paths = [queue.lower() for queue in queues]

    def change(source: SourceDocument) -> QueueEdit:
        now = datetime.now(UTC)
        with opened_state(config) as state:
            registry = load_registry(config, now, state)
            attach_lease(config, state, kube)
            if refusal := judge_here(config, state, registry, now).refusal:
                raise LeaseError(refusal)  # this registry does not know which nodes serve
        nodes = serving_sizes(config, registry)
        wants = queue_wants(config, registry, nodes)
        return rebase_document(read_document(source), wants, Reading(reading), paths)

    return rebase_queues(
        kube, place, change, is_sure, _locked_and_told(config, operation), yunikorn
    )


@contextmanager
def _locked_and_told(
    config: Config, operation: Operation
) -> Iterator[Callable[[str | None], None]]:
    """The lock, for an operation that changes more than the registry. The history tells of it
    before it is done. Gives the function that keeps the ledger in the registry."""
    with acting_state(config, say_wait) as state:
        note_operation(config, state, operation)
        log_operation(operation, config.instance_id)
        yield lambda ledger: keep_ledger(config, state, ledger)
