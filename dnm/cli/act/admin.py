"""The commands of the panel Act: each says what it did, and the next run acts on it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from dnm.cli.look.status_view import pause_line
from dnm.cli.terminal import completion
from dnm.cli.terminal.deadline import deadline_of
from dnm.cli.terminal.node_words import named_nodes
from dnm.cli.terminal.operation import (
    RefusedError,
    attempt,
    carry_out,
    granted,
    is_sure,
    new_operation,
    rehearse,
    said_by,
)
from dnm.cli.terminal.options import (
    ConfigOption,
    ForOption,
    NamesOption,
    NodeArgument,
    ReasonOption,
    UntilOption,
    YesOption,
)
from dnm.cli.terminal.output import shown, told_together
from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.model.orders import Pause, Way
from dnm.model.printable import printable
from dnm.model.value import Unreadable
from dnm.plan.lease import acts_elsewhere
from dnm.run.lease import fence_queue_document, judge_here, new_word
from dnm.run.registry import attach_lease, load_registry, opened_state
from dnm.verbs import keeping, taking_in
from dnm.verbs.keeping import Resettable, what_is_reset
from dnm.verbs.refusal import Refusal
from dnm.verbs.taking_in import why_not_known

_RESUMED = "`dnm resume`"
_LONGEST_HOLDER = 300  # characters that are shown


def pause(
    config: ConfigOption,
    output: NamesOption = "text",
    length: ForOption = "",
    until: UntilOption = "",
    reason: Annotated[str, typer.Option(help="Shown by status; kept in the history.")] = "",
    lending: Annotated[
        bool, typer.Option("--lending", help="Lend nothing; go on returning.")
    ] = False,
    returning: Annotated[
        bool, typer.Option("--returning", help="Return nothing; go on lending.")
    ] = False,
    is_forced: Annotated[
        bool, typer.Option("--force", help="In place of a pause that stops more, or for longer.")
    ] = False,
) -> str:
    """Stop lending and returning until resumed or for a while, or one of them."""
    half = None if lending is returning else Way.LENDING if lending else Way.RETURNING
    now, end = datetime.now(UTC), deadline_of(config, length, until)
    operation = new_operation(
        "pause", reason=reason, until=end.isoformat() if end else "",
        half=half.value if half else "",
    )  # fmt: skip
    paused = Pause(since=now, until=end, reason=operation.reason, who=said_by(operation), half=half)
    done = attempt(config, operation, keeping.pause, paused=paused, is_forced=is_forced)
    was = done.before.pause if done.before.paused(now) else None
    there = _pause_there(config, was) if was else ""
    if isinstance(done.after, Refusal):
        raise RefusedError(f"{there}; {done.after.sentence}")
    what = f"{half.value} is paused" if half else "paused"
    text = f"{what} until {shown(end, config.events_zone, seconds=True) if end else _RESUMED}"
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


def resume(config: ConfigOption, output: NamesOption = "text", reason: ReasonOption = "") -> str:
    """End the pause."""
    # The pause before the registry was lost is in force again after that of the loss.
    done = carry_out(config, new_operation("resume", reason=reason), keeping.resume)
    earlier = done.before.pause.earlier if done.before.pause else None
    if earlier is None or not earlier.stops(None, datetime.now(UTC)):
        return "lending and returning go on" if done.is_changed else "dnm was not paused"
    return (
        f"the registry begins anew; {_pause_there(config, earlier)}, as before the loss: run `dnm "
        "resume` once more to end that pause"
    )


def reset(
    config: ConfigOption,
    name: Annotated[str, typer.Argument(autocompletion=completion.resettable)],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> list[str]:
    """Reset a breaker, a back-off or failed nodes.

    NAME is a queue (closes its breaker), a node type (ends its back-off), or a failed node or a
    host list of them (tries to return them again).
    """
    names = named_nodes((name,)) if "[" in name or "," in name else (name,)
    now = datetime.now(UTC)
    each = ({"name": one, "now": now} for one in names)
    rehearse(config, load_registry(config, now), keeping.reset, *each)
    return told_together((one, _reset(config, one, reason)) for one in names)


def _reset(config: Config, name: str, reason: str) -> str:
    meant = name.lower() if name.lower() in config.queues else name
    operation = new_operation("reset", meant, reason)
    before = carry_out(config, operation, keeping.reset, name=name, now=datetime.now(UTC)).before
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


def forget(
    config: ConfigOption,
    node: NodeArgument,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Drop a node that a person has returned to Slurm."""
    registry = load_registry(config, datetime.now(UTC))
    granted(why_not_known(registry, node))
    there = KubeClient.connect(config).read_node(node)
    words = {"name": node, "node": there}
    rehearse(config, registry, taking_in.forget, words)
    question = (
        f"{node} leaves the registry: dnm will not return it any more, and its queue shrinks. "
        "Is it back in Slurm?"
    )
    if not is_sure(question, yes):
        return f"{node} stays as it is"
    carry_out(config, new_operation("forget", node, reason), taking_in.forget, **words)
    return f"{node} is forgotten; the next run takes its part out of the queue"


def takeover(
    config: ConfigOption,
    output: NamesOption = "text",
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> str:
    """Act for the instance from here, in another host's place.

    Only one host's record acts for an instance_id. Stop dnm on the other host first.
    """
    with closing(KubeClient.connect(config)) as kube, opened_state(config) as state:
        attach_lease(config, state, kube)
        state.begins_anew = True
        lease, now = state.observe(), datetime.now(UTC)
        if isinstance(lease, Unreadable):
            raise KubeError(lease.error)
        judged = judge_here(config, state, load_registry(config, now, state), now)
        at_work = state.holder
        if not (judged.refusal or at_work):
            return f"no other dnm acts as instance {config.instance_id}: nothing was changed"
        who = printable(judged.elsewhere.holder, _LONGEST_HOLDER) if judged.elsewhere else at_work
        gone = "From now on it may do nothing more. Is it gone, or dnm stopped there?"
        if not is_sure(f"{at_work}. {gone}" if at_work else _ask_to_stop(config, who), yes):
            return "nothing was changed"
        operation = new_operation("takeover", config.instance_id, reason, taken_from=who)
        words = {"word": state.registry or new_word(), "kept": lease.kept, "now": now}
        if state.kind == "file":  # the registry has the word before the Lease has
            carry_out(config, operation, keeping.take_over, **words)
        state.seize(str(words["word"]))
        if state.kind == "kubernetes":
            carry_out(config, operation, keeping.take_over, **words)
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
